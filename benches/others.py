# SPDX-License-Identifier: BSD-3-Clause
"""Third-party programs that benches/run starts: the C librpma and perftest, both on libsoftverbs."""

import os
import re
import shutil
import subprocess
import time

from machine import Failed

# Words of a row's program.
ORIGINAL = "@original"  # the benchmark program with the C library of this machine
PERFTEST = "@perftest"  # a program of perftest, and the size of a message
SOFTVERBS = "@softverbs"  # the path of libsoftverbs.so

MESSAGES = 10000
SECONDS = 10  # of one pair of programs
TRIES = 5


def original():
    """The C librpma that the dynamic linker finds without ours; an error names the package to install."""
    known = subprocess.run([shutil.which("ldconfig") or "/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    found = re.search(r"librpma\.so\.0 .*=> (\S+)", known)
    if not found:
        raise Failed("there is no C librpma here: apt-get install librpma0")
    with open(found.group(1), "rb") as file:
        if b"softverbs" in file.read():
            raise Failed(f"{found.group(1)} is this library and not the C librpma")
    return found.group(1)


def environment(*without):
    """That of this process, without these variables."""
    return {name: value for name, value in os.environ.items() if name not in without}


def without_ours():
    original()
    return environment("LD_LIBRARY_PATH", "RPMA_PROVIDER")


def under_softverbs(prefix):
    return [os.path.join(prefix, "bin", "rpma"), "run", "--"]


def figures(output, size):
    """The average in GB/s of the line with the figures: size, messages, peak and average in Gb/s, messages a second."""
    line = re.search(rf"^\s*{size}\s+\d+\s+\S+\s+([0-9.]+)\s", output, re.M)
    if not line:
        raise Failed("perftest printed no figures")
    return {"value": float(line.group(1)) / 8}


def any_port():
    """A port that hardly anybody has."""
    return str(20000 + (os.getpid() * 7 + time.monotonic_ns() // 1000) % 10000)


def pair(bench, server_command, client_command, env, read):
    """A server and a client, each on its CPU, until `read` makes figures of the client's output. The port is added to both commands."""
    why = None
    for attempt in range(TRIES):
        port = any_port()
        server = bench.spawn([*server_command, port], env, bench.target_cpu)
        try:
            # it does not announce its listener, and a client that connects too early does not retry
            time.sleep(0.2 + 0.2 * attempt)
            client = bench.spawn([*client_command, port], env, bench.initiator_cpu)
            output = bench.finish(client, SECONDS)
            bench.finish(server, SECONDS)
            return read(output)
        except Failed as error:
            why = error
        finally:
            if server.poll() is None:
                bench.end(server)
    raise why


def perftest(bench, program, size):
    if not shutil.which(program):
        raise Failed(f"there is no {program} here: apt-get install perftest")
    both = [*under_softverbs(bench.prefix), program, "-R", "-F", "-s", size, "-n", str(MESSAGES), "--report_gbits"]
    return pair(bench, [*both, "-p"], [*both, "127.0.0.1", "-p"], environment("LD_LIBRARY_PATH"), lambda output: figures(output, size))
