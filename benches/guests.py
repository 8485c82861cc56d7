# SPDX-License-Identifier: BSD-3-Clause
"""Two virtual machines with a link between them, and the RoCE device of each: the kernel's rxe, or soft0."""

import os
import re
import select
import subprocess
import time

from machine import Failed

BOOT_SECONDS = 120
COMMAND_SECONDS = 30

RXE, SOFT = "rxe", "soft"
# rxe handles packets of the initial network namespace only, and holds UDP port 4791 there, so soft0 has
# another one.
NAMESPACE = "soft"
UNDER = {
    RXE: "",
    SOFT: f"nsenter --net=/run/netns/{NAMESPACE} env LD_PRELOAD=/prefix/libsoftverbs.so SOFTVERBS_ONLY=1 SOFTVERBS_TRANSPORT=roce ",
}


class Guest:
    """One of the two machines. Its adapter moves to the namespace of the device that is used."""

    def __init__(self, out, number, link):
        self.address = f"10.82.0.{number}"
        self.side, self.netem = None, None
        self.buffer = b""
        command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off,erms=off,fsrm=off", "-m", "1G", "-nodefaults",
                   "-no-reboot", "-display", "none", "-monitor", "none", "-kernel", f"{out}/vmlinuz", "-initrd", f"{out}/initramfs",
                   "-append", "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off no_timer_check rdinit=/commands",
                   "-netdev", f"stream,id=link,server={'on' if number == 1 else 'off'},addr.type=unix,addr.path={link}",
                   "-device", f"virtio-net-pci,netdev=link,mac=52:54:00:00:00:0{number}",
                   "-serial", f"file:{out}/console.{number}", "-serial", "stdio"]
        with open(f"{out}/qemu.{number}.log", "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def await_end(self, seconds):
        """The output and the status of the last command."""
        until = time.monotonic() + seconds
        while True:
            found = re.search(rb"(?:^|\n)end (\d+)\r?\n", self.buffer)
            if found:
                text, self.buffer = self.buffer[:found.start()], self.buffer[found.end():]
                return text.decode(errors="replace").replace("\r", ""), int(found.group(1))
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Failed(f"{self.address} has not ended a command after {seconds} s")
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise Failed(f"the guest {self.address} has ended")
            self.buffer += data

    def begin(self):
        self.await_end(BOOT_SECONDS)
        self.run(f"ip netns add {NAMESPACE}; ip -n {NAMESPACE} link set lo up")

    def tries(self, command, seconds=COMMAND_SECONDS):
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()
        return self.await_end(seconds)

    def run(self, command, seconds=COMMAND_SECONDS):
        text, status = self.tries(command, seconds)
        if status:
            last = (text.strip().splitlines() or ["no output"])[-1]
            raise Failed(f"{command.split(' -- ')[0]}: status {status}: {last}")
        return text

    def use(self, side, netem):
        """Makes it a host with this device, and a network that loses and delays what it sends, if any."""
        if self.side != side:
            if self.side == RXE:
                self.run("rdma link delete rxe0")
            if self.side == SOFT:
                self.run(f"ip -n {NAMESPACE} link set eth0 netns 1")
            at = f"ip -n {NAMESPACE}" if side == SOFT else "ip"
            if side == SOFT:
                self.run(f"ip link set eth0 netns {NAMESPACE}")
            self.run(f"{at} link set eth0 up && {at} addr add {self.address}/24 dev eth0")
            if side == RXE:
                self.run("rdma link add rxe0 type rxe netdev eth0")
            self.side, self.netem = side, None
        if self.netem != netem:
            tc = f"tc -n {NAMESPACE}" if side == SOFT else "tc"
            self.run(f"{tc} qdisc replace dev eth0 root {'netem ' + netem if netem else 'pfifo'}")
            self.netem = netem

    def gid_index(self):
        devinfo = self.run(f"{UNDER[self.side]}/prefix/ibv_devinfo -v")
        found = re.search(rf"GID\[ *(\d+)\]:.*::ffff:{re.escape(self.address)},", devinfo)
        if not found:
            raise Failed(f"no GID of {self.address} on {self.side}")
        return found.group(1)

    def serve(self, command, port):
        """Starts a server, and waits until it listens."""
        self.run(f"{UNDER[self.side]}{command} >/tmp/server 2>&1 &")
        listening = f"{UNDER[self.side]}cat /proc/net/tcp /proc/net/tcp6 | grep -q -E '^ *[0-9]+: [0-9A-F]+:{port:04X} [0-9A-F]+:0000 0A '"
        for _ in range(100):
            if self.tries(listening)[1] == 0:
                return
            time.sleep(0.05)
        raise Failed(f"{command.split()[0]} does not listen: {self.tries('tail -n 1 /tmp/server')[0].strip()}")

    def end_server(self):
        """The server ends when its client has; one without a client is killed."""
        running = "[ -n \"$(jobs -pr)\" ]"
        self.tries(f"for n in $(seq 20); do {running} || break; sleep 0.1; done; kill $(jobs -pr) 2>/dev/null; wait")

    def end(self):
        self.process.kill()
        self.process.wait()


class Pair:
    """The two guests: a server on the first one, a client on the second."""

    def __init__(self, out):
        link = f"{out}/link"
        if os.path.exists(link):
            os.unlink(link)
        self.server = Guest(out, 1, link)
        try:
            while not os.path.exists(link):
                if self.server.process.poll() is not None:
                    raise Failed(f"QEMU ended: {out}/qemu.1.log")
                time.sleep(0.05)
            self.client = Guest(out, 2, link)
        except BaseException:
            self.server.end()
            raise
        self.guests = (self.server, self.client)
        self.port = 7800

    def begin(self):
        for guest in self.guests:
            guest.begin()

    def end(self):
        for guest in self.guests:
            guest.end()

    def use(self, server, client, netem=None):
        self.server.use(server, netem)
        self.client.use(client, netem)

    def between(self, server, client, seconds):
        """The output of a client with its server, which listens on the current port."""
        self.server.serve(server, self.port)
        try:
            return self.client.run(f"{UNDER[self.client.side]}{client}", seconds + COMMAND_SECONDS)
        finally:
            self.server.end_server()

    def perftest(self, program, options, seconds):
        """The figures of the line that the client prints."""
        self.port += 1
        both = f"timeout {seconds} /prefix/{program} -F -p {self.port} {options}"
        text = self.between(f"{both} -x {self.server.gid_index()}", f"{both} -x {self.client.gid_index()} {self.server.address}", seconds)
        lines = re.findall(r"^ *\d+ +\d+ +[\d.]+ .*$", text, re.M)
        if not lines:
            raise Failed(f"{program} printed no figures")
        return [float(field) for field in lines[-1].split()]

    def tcp(self, seconds):
        """MB/s of a TCP connection, by qperf."""
        self.port += 1
        server = f"timeout {seconds + COMMAND_SECONDS} /prefix/qperf -lp {self.port}"
        text = self.between(server, f"/prefix/qperf -lp {self.port} -t {seconds} {self.server.address} tcp_bw quit", seconds)
        found = re.search(r"bw += +([\d.]+) (\w+)/sec", text)
        if not found:
            raise Failed("qperf printed no bandwidth")
        return float(found.group(1)) * {"bytes": 1e-6, "KB": 1e-3, "MB": 1, "GB": 1e3}[found.group(2)]
