# SPDX-License-Identifier: BSD-3-Clause
"""A virtual machine with another architecture, in which a tarball is used. The emulation of single processes lacks system calls."""

import shutil
import subprocess

import roots
from roots import Failed, Missing, run

PACKAGES = "libc6,libgcc-s1,bash,busybox-static,coreutils,grep,sed,rdmacm-utils,ibverbs-utils,linux-image-arm64"
QEMU = ["qemu-system-aarch64", "-machine", "virt", "-accel", "tcg,thread=multi", "-cpu", "neoverse-n1", "-smp", "2", "-m", "2G", "-nodefaults",
        "-no-reboot", "-display", "none", "-monitor", "none", "-nic", "none"]
# Of the root what runs; the kernel is given to qemu.
COPY = r"""find . \( -path ./boot -o -path ./lib/modules -o -path ./usr/lib/modules -o -path ./usr/share -o -path ./var -o -path ./dev \) -prune \
    -o -print0 | cpio --quiet -0pdm "$1" """
INIT = """#!/bin/bash
export PATH=/applets:/opt/rpma/bin:/usr/bin:/bin LD_LIBRARY_PATH=/opt/rpma/lib
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
ip link set lo up
uname -srm
result() { if [ $2 -eq 0 ]; then echo "@ok $1"; else echo "@FAIL $1"; fi; }
rpma --version; result version $?
rpma doctor; result doctor $?
RPMA_PROVIDER=soft bash /opt/talk /opt/rpma; result talk $?
timeout 60 rpma run -- rping -s -a 127.0.0.1 -p 11999 -C 10 -V & server=$!
rpma wait -t 30 11999
timeout 60 rpma run -- rping -c -a 127.0.0.1 -p 11999 -C 10 -V -v >/tmp/rping; result client $?
wait $server; result server $?
grep rdma-ping-9: /tmp/rping; result rping $?
echo @end
sync
poweroff -f
sleep 60
"""
RESULTS = ["version", "doctor", "talk", "client", "server", "rping"]


def initramfs(root, prefix, directory):
    log = directory / "guest.log"
    at = directory / "root"
    for name in "applets", "proc", "sys", "tmp", "dev", "opt":
        (at / name).mkdir(parents=True)
    run(["bash", "-euc", COPY, "bash", str(at)], log, cwd=root.path)
    busybox = next(found for found in (root.within("bin/busybox"), root.within("usr/bin/busybox")) if found.exists())
    shutil.copy(busybox, at / "applets/busybox")
    for applet in "mount", "ip", "poweroff", "sleep", "sync", "mkdir", "uname", "timeout", "mktemp", "rm", "grep", "sed":
        (at / "applets" / applet).symlink_to("busybox")
    shutil.copytree(prefix, at / "opt/rpma", symlinks=True)
    shutil.copy("tools/talk", at / "opt")
    (at / "etc").mkdir(exist_ok=True)
    (at / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (at / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (at / "init").write_text(INIT)
    (at / "init").chmod(0o755)
    run(["bash", "-euc", 'find . | cpio --quiet -o -H newc -R 0:0 >"$1"', "bash", str(directory / "initramfs")], log, cwd=at)
    return directory / "initramfs"


def use(kept, prefix, directory, log):
    """What the guest has found out about the tarball, unpacked in prefix with the programs server and client."""
    for tool in QEMU[0], "cpio":
        if not shutil.which(tool):
            raise Missing(f"there is no {tool}")
    root = roots.make(kept, "bookworm", PACKAGES, "extract", "arm64")
    directory.mkdir()
    memory = initramfs(root, prefix, directory)
    kernel = next(root.within("boot").glob("vmlinuz-*"))
    console = directory / "console"
    try:
        run([*QEMU, "-kernel", str(kernel), "-initrd", str(memory), "-append", "console=ttyAMA0 quiet loglevel=4 oops=panic panic=-1",
             "-serial", f"file:{console}"], log, timeout=900)
    except subprocess.TimeoutExpired:
        raise Failed("the guest did not end in 900 s", console) from None
    said = console.read_text(errors="replace").replace("\r", "").splitlines()
    if "@end" not in said or any(f"@ok {name}" not in said for name in RESULTS):
        raise Failed("not everything went well in the guest", console)
    system = next(line for line in said if line.startswith("Linux"))
    return f"{system}, in qemu: rpma doctor, rpma run rping, a server and a client"
