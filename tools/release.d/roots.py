# SPDX-License-Identifier: BSD-3-Clause
"""Roots of Debian releases, in which artefacts are built and used. They are kept from run to run."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

MIRROR = os.environ.get("MIRROR", "http://deb.debian.org/debian")
SECURITY = os.environ.get("SECURITY_MIRROR", "http://deb.debian.org/debian-security")

SUPPORTED = ("bookworm", "trixie")

# A root has its own processes, mounts and loopback interface, and no other network.
NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
ENTER = """
root=$1 script=$2
shift 2
ip link set lo up
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/tmp"
exec chroot "$root" env -i PATH=/cross:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C "$@" sh -euc "$script"
"""


class Missing(Exception):
    """Why something cannot be made or used on this machine."""


class Failed(Exception):
    """What went wrong, and the log that has the rest."""

    def __init__(self, what, log):
        super().__init__(what)
        self.log = log


def run(command, log, **options):
    """Runs a command whose output is appended to a log."""
    with open(log, "a") as said:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, **options).returncode
    if code != 0:
        raise Failed(f"{Path(command[0]).name} exited with {code}", log)


def apt_options():
    """The apt configuration of the machine for its mirrors, if any."""
    said = subprocess.run(["apt-config", "dump"], stdout=subprocess.PIPE, text=True).stdout
    settings = [line for line in said.splitlines() if line.startswith(("Acquire::http", "Acquire::Retries"))]
    return [f"--aptopt={line}" for line in ['APT::Install-Recommends "false"', *settings]]


class Root:
    def __init__(self, path):
        self.path = path

    def within(self, *names):
        return self.path.joinpath(*names)

    def shell(self, script, log, timeout=3600, **environment):
        """Runs a script of sh in the root, without network."""
        settings = [f"{name}={value}" for name, value in environment.items()]
        try:
            run([*NAMESPACES, "sh", "-euc", ENTER, "sh", str(self.path), script, *settings], log, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end in {timeout} s", log) from None

    def packages(self):
        """NAME=VERSION of each installed package, or the file of each that was only unpacked."""
        if (unpacked := self.within("packages")).exists():
            return sorted(unpacked.read_text().split())
        said = subprocess.run(["dpkg-query", f"--admindir={self.path}/var/lib/dpkg", "--show", "--showformat",
                               "${Package}:${Architecture}=${Version}\n"], stdout=subprocess.PIPE, text=True, check=True).stdout
        return sorted(said.splitlines())


def sources(release):
    """The lines for apt. Security updates of a release that has ended are not kept for all architectures."""
    main, security = f"deb {MIRROR} {release} main", f"deb {SECURITY} {release}-security main"
    return [main, security] if release in SUPPORTED else [main]


def make(directory, *wanted):
    """The root in the directory, created unless it exists. Another run that needs it waits."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.with_name(directory.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return made(directory, *wanted)


def made(directory, release, packages, variant="minbase", architectures="amd64"):
    wish = f"{sources(release)} {variant} {architectures} {packages}"
    mark = directory.with_name(directory.name + ".made")
    if mark.exists() and mark.read_text() == wish:
        return Root(directory)
    for tool in ("mmdebstrap", "unshare", "ip"):
        if not shutil.which(tool):
            raise Missing(f"there is no {tool}")
    mark.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
    log = directory.with_name(directory.name + ".log")
    log.unlink(missing_ok=True)
    listed = ["--extract-hook=ls \"$1/var/cache/apt/archives\" | grep '\\.deb$' >\"$1/packages\""] if variant == "extract" else []
    lean = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
    try:
        run(["mmdebstrap", "--mode=root", f"--variant={variant}", f"--architectures={architectures}", *apt_options(), *lean, *listed,
             f"--include={packages}", release, str(directory), *sources(release)], log)
    except Failed:
        raise Missing(f"no root of Debian {release} could be made; see {log}") from None
    mark.write_text(wish)
    return Root(directory)


def make_relative(directory):
    """Makes absolute links relative: those of a root that is not entered would lead out of it."""
    for link in directory.rglob("*"):
        if link.is_symlink() and os.readlink(link).startswith("/"):
            target = directory / os.readlink(link).lstrip("/")
            link.unlink()
            link.symlink_to(os.path.relpath(target, link.parent))


def sha256(file):
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
