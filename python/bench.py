#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""usage: bench.py RPMA [ROUNDS]

Reads 64 MiB of another process, in turn by `rpma perf`, which uses the C API and has one read in flight, by
Python into anonymous memory as `rpma perf` has it, and by Python from one NumPy array into another, for which
NumPy asks for huge pages. RPMA is that program (build/bin/rpma). Prints the bandwidth of each round (5), and
the ratios of the medians.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time

import numpy as np

import rpma

SIZE = 64 << 20
DURATION_S = 1.0
SHARE = f"""
import sys, numpy, rpma
with rpma.Peer("127.0.0.1") as peer:
    array = peer.expose(numpy.ones({SIZE}, dtype=numpy.uint8), rpma.Access.READ)
    plain = peer.expose({SIZE}, rpma.Access.READ)
    plain.view[:] = array.view
    with peer.listen("127.0.0.1", int(sys.argv[1])) as listener:
        print(flush=True)
        conn = listener.accept(offer=[array, plain])
    conn.wait_closed()
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def of_python(conn: rpma.Conn, remote: rpma.Remote, region: rpma.Region) -> float:
    """Bytes per second, by the median of the reads."""
    taken: list[float] = []
    while sum(taken) < DURATION_S:
        began = time.perf_counter()
        conn.read_into(remote, region)
        taken.append(time.perf_counter() - began)
    return SIZE / statistics.median(taken)


def of_c(program: str, port: int) -> float:
    options = ["-o", "read", "-s", "64M", "-D", str(DURATION_S), "--json"]
    command = [program, "perf", *options, f"127.0.0.1:{port}"]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return SIZE / (float(json.loads(said)["results"][0]["latency_us"]["p50"]) / 1e6)


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        print(__doc__, end="")
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    program, rounds = arguments[0], int(arguments[1]) if len(arguments) > 1 else 5
    os.environ.setdefault("RPMA_PROVIDER", "soft")
    port, other_port = free_port(), free_port()
    share = subprocess.Popen([sys.executable, "-c", SHARE, str(port)], stdout=subprocess.PIPE)
    serve = subprocess.Popen([program, "perf", "serve", f"127.0.0.1:{other_port}"], stdout=subprocess.DEVNULL)
    try:
        assert share.stdout is not None
        share.stdout.readline()
        subprocess.run([program, "wait", str(other_port)], check=True)
        array = np.zeros(SIZE, dtype=np.uint8)
        results = []
        with rpma.connect("127.0.0.1", port) as conn:
            into_array, into_plain = conn.peer.region(array), conn.peer.region(SIZE)
            for _ in range(rounds):
                results.append(
                    (
                        of_c(program, other_port),
                        of_python(conn, conn.remotes[1], into_plain),
                        of_python(conn, conn.remotes[0], into_array),
                    )
                )
                c, plain, arrays = (each / 1e9 for each in results[-1])
                print(f"C {c:6.2f}   Python {plain:6.2f}   NumPy {arrays:6.2f} GB/s", flush=True)
            assert array.all() and into_plain.view == into_array.view
    finally:
        for process in serve, share:
            process.terminate()
            process.wait()
    c, plain, arrays = (statistics.median(each) for each in zip(*results))
    print(f"ratio to C: Python {plain / c:.2f}, NumPy {arrays / c:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
