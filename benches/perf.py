# SPDX-License-Identifier: BSD-3-Clause
"""The rows of one operation at a time, whose completion is polled: `rpma perf` measures them."""

import json
import os
import signal

import others
from machine import Failed

# Words of a row's program: PERF, operation, bytes, options of both sides.
PERF = "@perf"

SECONDS = 10  # for each side


def environment(bench, original, settings):
    """The words before the command, and its environment: this library, or the C library on libsoftverbs."""
    if not original:
        return [], {**bench.env, **settings}
    library = os.path.dirname(others.original())
    return others.under_softverbs(bench.prefix), {**others.without_ours(), "LD_LIBRARY_PATH": library, **settings}


def perf(bench, original, settings, operation, size, *options):
    """Microseconds from the call that posts an operation until its completion has been taken."""
    before, env = environment(bench, original, settings)
    command = [*before, os.path.join(bench.prefix, "bin", "rpma"), "perf"]
    address = f"127.0.0.1:{others.any_port()}"
    server = bench.spawn([*command, "serve", address, *options], env, bench.target_cpu)
    try:
        if not server.stdout.readline():
            raise Failed((server.stderr.read().strip().splitlines() or ["rpma perf serve ended"])[0])
        client = bench.spawn([*command, "--json", "--poll", "--op", operation, "--size", size, "--duration",
                              str(bench.args.ms / 1000), *options, address], env, bench.initiator_cpu)
        [row] = json.loads(bench.finish(client, SECONDS))["results"]
        server.send_signal(signal.SIGINT)
        server.wait(SECONDS)
    finally:
        bench.end(server)
    latency = row["latency_us"]
    return {"value": latency["mean"], "p50": latency["p50"], "p99": latency["p99"], "rounds": row["operations"]}
