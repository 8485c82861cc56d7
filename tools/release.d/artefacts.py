# SPDX-License-Identifier: BSD-3-Clause
"""What a release consists of. Each function leaves files in a directory; it is called twice, with different places to build in."""

import json
import os
import shutil
import tarfile

import image
import roots
import sbom
from roots import Missing, run

# Debian 12 has a newer compiler beside its own, for browsers.
COMPILERS = "rustc-web,cargo-web,libstd-rust-web-dev:arm64,gcc,gcc-aarch64-linux-gnu,libc6-dev,binutils,make,pkg-config,xz-utils"
RDMA = "libibverbs-dev,librdmacm-dev"
PACKAGING = f"gcc,libc6-dev,binutils,make,pkg-config,xz-utils,dpkg-dev,debhelper,{RDMA}"
# What the binaries are linked with decides which C library they need: that of Debian 11 is glibc 2.31.
OLDEST = "bullseye"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CROSS_TOOLS = {"CC": "gcc", "LD": "ld", "AR": "ar", "OBJCOPY": "objcopy", "STRIP": "strip"}


def builder(release):
    """Debian 12 with compilers for both architectures, and in sysroot/ the libraries that they link with."""
    root = roots.make(release.roots / "builder", "bookworm", f"{COMPILERS},{RDMA},rpm", "apt", "amd64,arm64")
    for debian in ARCHITECTURES.values():
        directory = root.within("sysroot", debian)
        directory.parent.mkdir(exist_ok=True)
        roots.make(directory, OLDEST, f"libc6-dev,libgcc-s1,{RDMA}", "extract", debian)
        roots.make_relative(directory)
    root.within("cross").mkdir(exist_ok=True)
    for machine, debian in ARCHITECTURES.items():
        triplet, sysroot = f"{machine}-linux-gnu", f"/sysroot/{ARCHITECTURES[machine]}"
        wrapper(root.within("cross", f"{triplet}-gcc"),
                f'exec /usr/bin/{triplet}-gcc --sysroot={sysroot} -L{sysroot}/lib/{triplet} -L{sysroot}/usr/lib/{triplet} "$@"')
        wrapper(root.within("cross", f"{triplet}-pkg-config"),
                f'PKG_CONFIG_LIBDIR={sysroot}/usr/lib/{triplet}/pkgconfig exec /usr/bin/pkg-config "$@"')
    return root


def wrapper(file, command):
    file.write_text(f"#!/bin/sh\n{command}\n")
    file.chmod(0o755)


def for_machine(machine):
    """The settings of packaging/README.md for a cross build."""
    tools = {name: f"{machine}-linux-gnu-{tool}" for name, tool in CROSS_TOOLS.items()}
    return {**tools, "RUST_TARGET": f"{machine}-unknown-linux-gnu", "PKG_CONFIG": f"{machine}-linux-gnu-pkg-config", "SETUP": ":"}


def place(root, directory):
    """An empty directory of the root to build in, of another name in the second build: (inside, outside)."""
    inside = f"/build/{directory.parent.name}-{directory.name}"
    outside = root.within(inside.lstrip("/"))
    shutil.rmtree(outside, ignore_errors=True)
    outside.mkdir(parents=True)
    return inside, outside


def unpack(tarball, directory):
    with tarfile.open(tarball) as opened:
        opened.extractall(directory)


def pack(directory, file, epoch):
    """A .tar.xz of a directory with one directory in it; the same content gives the same bytes."""
    run(["tar", "--create", f"--file={file}", "--sort=name", f"--mtime=@{epoch}", "--owner=0", "--group=0", "--numeric-owner",
         "--mode=u=rwX,go=rX", "--format=gnu", "--xz", *sorted(os.listdir(directory))], file.with_suffix(".log"), cwd=directory,
        env={**os.environ, "XZ_OPT": "-6"})
    file.with_suffix(".log").unlink()


# ---- the artefacts -----------------------------------------------------------------------------------------------------------------------


def source(release, directory):
    """A source tarball with the linked crates, the manual and the completions."""
    run(["tools/dist", release.version, "build/share/man", "build/share/completions", str(directory / release.tarball.name)], release.log("source"))


def binary(release, directory, machine):
    """A tarball of what make install installs, for every distribution with the C library of Debian 11 or a newer one."""
    root = builder(release)
    inside, outside = place(root, directory)
    unpack(release.source(), outside)
    top = f"{release.name}-{release.version}-{machine}"
    log = release.log(f"binary-{machine}")
    root.shell(f'cd {inside}/{release.tree} && make RDMA_CORE=optional && make install RDMA_CORE=optional DESTDIR={inside}/out prefix=/{top}', log,
               SOURCE_DATE_EPOCH=release.epoch, **for_machine(machine))
    installed = outside / "out" / top
    for file in "lib/librpma.so.0", "lib/softverbs/libsoftverbs.so", "lib/softverbs/libsoftverbs-dl.so", "bin/rpma":
        (outside / "dep").write_bytes(sbom.section(release, os.path.basename(file)))
        root.shell(f"{machine}-linux-gnu-objcopy --add-section .dep-v0={inside}/dep {inside}/out/{top}/{file}", log)
    # It is unpacked anywhere.
    described = installed / "lib/pkgconfig/librpma.pc"
    described.write_text(described.read_text().replace(f"prefix=/{top}\n", "prefix=${pcfiledir}/../..\n"))
    for name in "LICENSE", "CHANGELOG.md", "SECURITY.md", "packaging/LICENSE.dependencies":
        shutil.copy(outside / release.tree / name, installed / "share/doc/librpma")
    pack(outside / "out", directory / f"{top}.tar.xz", release.epoch)
    shutil.rmtree(outside)


def x86_64(release, directory):
    binary(release, directory, "x86_64")


def aarch64(release, directory):
    binary(release, directory, "aarch64")


def deb(release, directory, root, suite):
    """The Debian packages, built by the compiler in the root; the names do not contain the release of Debian."""
    inside, outside = place(root, directory)
    (outside / "tools").mkdir()
    shutil.copy("tools/deb", outside / "tools")
    shutil.copytree("debian", outside / "debian")
    shutil.copy(release.source(), outside / release.tarball.name)
    root.shell(f"cd {inside} && tools/deb {release.version} {release.tarball.name} out", release.log(suite), SOURCE_DATE_EPOCH=release.epoch)
    (directory / suite).mkdir()
    for file in (outside / "out").iterdir():
        # The other files describe the machine that has built them.
        if file.name.endswith((".deb", ".dsc", ".debian.tar.xz")):
            shutil.copy(file, directory / suite)
    shutil.rmtree(outside)


def debian_12(release, directory):
    root = roots.make(release.roots / "builder-12", "bookworm", f"rustc-web,cargo-web,libstd-rust-web-dev,{PACKAGING}", "apt")
    deb(release, directory, root, "debian-12")


def debian_13(release, directory):
    root = roots.make(release.roots / "builder-13", "trixie", f"rustc,cargo,libstd-rust-dev,{PACKAGING}", "apt")
    deb(release, directory, root, "debian-13")


def rpm(release, directory):
    """RPMs for the distributions that name the packages as Fedora does, built by Debian's rpmbuild with the libraries of Debian 11."""
    root = builder(release)
    inside, outside = place(root, directory)
    for name in "SOURCES", "SPECS":
        (outside / name).mkdir()
    shutil.copy(release.source(), outside / "SOURCES")
    shutil.copy("packaging/librpma.spec", outside / "SPECS")
    settings = {"_topdir": inside, "_libdir": "/usr/lib64", "_buildhost": "reproducible", "use_source_date_epoch_as_buildtime": "1",
                "clamp_mtime_to_source_date_epoch": "1", "_build_id_links": "none", "debug_package": "%{nil}"}
    defined = " ".join(f"--define '{name} {value}'" for name, value in settings.items())
    root.shell(f"rpmbuild -bb --nodeps --nocheck {defined} {inside}/SPECS/librpma.spec", release.log("rpm"), SOURCE_DATE_EPOCH=release.epoch,
               **for_machine("x86_64"))
    (directory / "rpm").mkdir()
    for file in (outside / "RPMS").rglob("*.rpm"):
        shutil.copy(file, directory / "rpm")
    shutil.rmtree(outside)


def oci(release, directory):
    """An image of Debian 13 with the binary tarball in /usr/local and programs to try it with."""
    tarball = release.made(f"{release.name}-{release.version}-x86_64.tar.xz")
    if not tarball.exists():
        raise Missing("it has the binary tarball for x86_64, which is not there")
    image.write(release, tarball, directory)


def wheel(release, directory):
    """The Python package, with the library of the binary tarball for x86_64 in it."""
    name = f"{release.name}-{release.version}-x86_64"
    tarball = release.made(f"{name}.tar.xz")
    if not tarball.exists():
        raise Missing("it has the library of the binary tarball for x86_64, which is not there")
    work = directory.with_name(f"{directory.name}.work")
    shutil.rmtree(work, ignore_errors=True)
    unpack(tarball, work)
    run(["tools/wheel", release.version, str(work / name / "lib/librpma.so.0"), str(directory)], release.log("wheel"),
        env={**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch)})
    shutil.rmtree(work)


def bill(release, directory):
    """The CycloneDX document."""
    text = json.dumps(sbom.document(release), indent=1) + "\n"
    (directory / f"{release.name}-{release.version}.cdx.json").write_text(text)


# More of them: a function, and its line here. Later ones may use the files of those before them.
ALL = {
    "source": source,
    "sbom": bill,
    "x86_64": x86_64,
    "oci": oci,
    "wheel": wheel,
    "aarch64": aarch64,
    "debian-12": debian_12,
    "debian-13": debian_13,
    "rpm": rpm,
}
