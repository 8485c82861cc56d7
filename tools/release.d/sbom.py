# SPDX-License-Identifier: BSD-3-Clause
"""What is linked into the artefacts: as a CycloneDX document, and as the section that cargo-auditable defines."""

import json
import time
import tomllib
import uuid
import zlib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader


def licences():
    """tools/licences, which lists the crates."""
    loader = SourceFileLoader("licences", "tools/licences")
    module = module_from_spec(spec_from_loader("licences", loader))
    loader.exec_module(module)
    return module


def linked():
    """{(name, version, licence): the files that the crate is in}"""
    tool = licences()
    found = {}
    for selection, files in (tool.IN_LIBRARY, ["librpma.so.0", "librpma.a"]), (tool.IN_SOFTVERBS, ["libsoftverbs.so", "libsoftverbs-dl.so", "rpma"]):
        for crate in tool.crates(selection):
            found.setdefault(crate, []).extend(files)
    return dict(sorted(found.items()))


def checksums():
    with open("Cargo.lock", "rb") as lock:
        return {(package["name"], package["version"]): package.get("checksum") for package in tomllib.load(lock)["package"]}


def component(crate, files, sums):
    name, version, licence = crate
    reference = f"pkg:cargo/{name}@{version}"
    return {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference,
            "licenses": [{"expression": licence}], "hashes": [{"alg": "SHA-256", "content": sums[name, version]}],
            "properties": [{"name": "librpma:linked-into", "value": file} for file in files]}


def document(release):
    """The CycloneDX document: the same for the same Cargo.lock."""
    sums = checksums()
    components = [component(crate, files, sums) for crate, files in linked().items()]
    own = f"pkg:generic/{release.name}@{release.version}"
    identity = {"type": "library", "bom-ref": own, "name": release.name, "version": release.version, "purl": own,
                "licenses": [{"license": {"id": "BSD-3-Clause"}}], "supplier": {"name": release.identity["MAINTAINER"].split(" <")[0]},
                "externalReferences": [{"type": "website", "url": release.identity["URL"]}]}
    body = {"metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch)), "component": identity},
            "components": components,
            "dependencies": [{"ref": own, "dependsOn": [one["bom-ref"] for one in components]}, *({"ref": one["bom-ref"]} for one in components)]}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1, **body}


def section(release, file):
    """The content of .dep-v0 of a file: https://github.com/rust-secure-code/cargo-auditable, PARSING.md."""
    names = [(name, version) for (name, version, _), files in linked().items() if file in files]
    crates = [{"name": name, "version": version, "source": "crates.io"} for name, version in names]
    own = {"name": release.name, "version": release.version, "source": "local", "dependencies": list(range(len(crates))), "root": True}
    return zlib.compress(json.dumps({"packages": [*crates, own]}, separators=(",", ":")).encode(), 9)
