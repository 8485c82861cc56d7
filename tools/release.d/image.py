# SPDX-License-Identifier: BSD-3-Clause
"""An OCI image, written without a daemon: https://github.com/opencontainers/image-spec."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import time

import roots
from roots import run

SUITE = "trixie"
PROGRAMS = "rdmacm-utils,ibverbs-utils,libgcc-s1"


def base(release, file):
    """The root file system of the image as a tar; with the same packages the same bytes."""
    log = release.log("oci")
    lean = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
    copyright_files = "--dpkgopt=path-include=/usr/share/doc/*/copyright"
    try:
        run(["mmdebstrap", "--mode=root", "--variant=minbase", *roots.apt_options(), *lean, copyright_files, f"--include={PROGRAMS}",
             SUITE, str(file), *roots.sources(SUITE)], log,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch)})
    except roots.Failed:
        raise roots.Missing(f"no root of Debian {SUITE} could be made; see {log}") from None


def moved(tarball, below, epoch):
    """A tar with the content of the only directory of a tarball, below another path."""
    layer = io.BytesIO()
    with tarfile.open(tarball) as old, tarfile.open(fileobj=layer, mode="w", format=tarfile.GNU_FORMAT) as new:
        for entry in old:
            _, _, rest = entry.name.partition("/")
            if not rest or entry.isdir():
                continue
            content = old.extractfile(entry) if entry.isreg() else None
            entry.name, entry.mtime = f"{below}/{rest}", epoch
            new.addfile(entry, content)
    return layer.getvalue()


class Layout:
    """The files of an image, by name."""

    def __init__(self):
        self.files = {"oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode()}

    def blob(self, kind, content, **more):
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content), **more}

    def write(self, file, epoch):
        with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as opened:
            for name, content in sorted(self.files.items()):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime = len(content), epoch
                opened.addfile(entry, io.BytesIO(content))


def write(release, tarball, directory):
    file = directory / "base.tar"
    base(release, file)
    layers = [file.read_bytes(), moved(tarball, "usr/local", release.epoch)]
    file.unlink()
    layout = Layout()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    labels = {"org.opencontainers.image.title": release.name, "org.opencontainers.image.version": release.version,
              "org.opencontainers.image.url": release.identity["URL"], "org.opencontainers.image.licenses": "BSD-3-Clause",
              "org.opencontainers.image.authors": release.identity["MAINTAINER"]}
    config = {"created": created, "architecture": "amd64", "os": "linux",
              "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH=/usr/local/lib"], "Cmd": ["rpma", "doctor"], "Labels": labels},
              "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]},
              "history": [{"created": created, "created_by": f"Debian {SUITE}: {PROGRAMS}"}, {"created": created, "created_by": tarball.name}]}
    packed = [layout.blob("layer.v1.tar+gzip", gzip.compress(layer, 6, mtime=0)) for layer in layers]
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": layout.blob("config.v1+json", json.dumps(config).encode()), "layers": packed}
    named = layout.blob("manifest.v1+json", json.dumps(manifest).encode(), platform={"architecture": "amd64", "os": "linux"},
                        annotations={"org.opencontainers.image.ref.name": release.version,
                                     # what podman and containerd name an image that they load
                                     "io.containerd.image.name": f"localhost/{release.name}:{release.version}"})
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [named]}
    layout.files["index.json"] = json.dumps(index).encode()
    layout.write(directory / f"{release.name}-{release.version}-x86_64.oci.tar", release.epoch)
