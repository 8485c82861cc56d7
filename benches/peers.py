# SPDX-License-Identifier: BSD-3-Clause
"""UCX and libfabric, measured by the programs of their own packages (ucx-utils, libfabric-bin)."""

import os
import re
import shutil

from machine import Failed
from others import pair

# Words of a row's program: a test of ucx_perftest with size and transports; the size and provider of
# fi_pingpong.
UCX = "@ucx"
FABRIC = "@fabric"

SHARED = "posix,cma,self"  # UCX over shared memory and process_vm_*, as between two processes of one user
TCP = "tcp"

SMALL = 20000  # messages of a few bytes
LARGE = {SHARED: 10000, TCP: 1000}  # UCX reads over TCP at 40 MB/s if it has one CPU an end
MIB_IN_GB = 1.048576e-3

PROGRAMS = {UCX: "ucx_perftest", FABRIC: "fi_pingpong"}


def missing(program):
    """The program that a row needs and that is not installed."""
    needed = PROGRAMS.get(program[0]) if program else None
    return needed if needed and not shutil.which(needed) else None


def is_latency(test):
    return test.endswith("_lat")


def ucx_figures(output, test):
    """The last line is iterations, median, average and overall latency in us, average and overall bandwidth in MiB/s, rates."""
    fields = output.strip().splitlines()[-1].split(",") if output.strip() else []
    if len(fields) != 8 or not fields[0].isdigit():
        raise Failed("ucx_perftest printed no figures")
    if is_latency(test):
        return {"value": float(fields[2]), "p50": float(fields[1])}
    return {"value": float(fields[5]) * MIB_IN_GB}


def fabric_figures(output):
    """The last line is bytes, sent, answered, total, time, MB/s and us for each message, half a round trip."""
    line = re.search(r"^\d+\s+\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+([0-9.]+)\s+\S+\s*$", output, re.M)
    if not line:
        raise Failed("fi_pingpong printed no figures")
    return {"value": float(line.group(1))}


def ucx(bench, test, size, transports):
    env = dict(os.environ, UCX_TLS=transports, UCX_WARN_UNUSED_ENV_VARS="n")
    if transports == TCP:
        env["UCX_NET_DEVICES"] = "lo"
    messages = SMALL if is_latency(test) else LARGE[transports]
    client = ["ucx_perftest", "127.0.0.1", "-f", "-v", "-t", test, "-s", size, "-n", str(messages), "-w", str(messages // 10), "-p"]
    return pair(bench, ["ucx_perftest", "-p"], client, env, lambda output: ucx_figures(output, test))


def fabric(bench, size, provider):
    both = ["fi_pingpong", "-e", "rdm", "-p", provider, "-I", str(SMALL), "-S", size]
    return pair(bench, [*both, "-B"], [*both, "127.0.0.1", "-P"], dict(os.environ), fabric_figures)
