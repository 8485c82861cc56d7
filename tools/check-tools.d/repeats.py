# SPDX-License-Identifier: BSD-3-Clause
"""repeats.py REPORT [OUTCOME]: the repeats of a result of rpma perf --json. With OUTCOME prints the result with rates and latencies with which
every other result is "same", "slower" or "faster"."""

import json
import sys

RATES = {"same": [1e-6, 1e-3, 1e3, 1e9, 1e12], "slower": [1e12] * 5, "faster": [1e-6] * 5}

report = json.load(open(sys.argv[1]))
row, = report["results"]
repeats = row["repeats"]
if len(sys.argv) == 2:
    rates = [repeat["ops_per_second"] for repeat in repeats]
    assert report["repeat"] == len(rates) and 0 < min(rates) <= row["ops_per_second"] <= max(rates), report
    print(len(rates), "repeats")
else:
    for repeat, rate in zip(repeats, RATES[sys.argv[2]]):
        repeat.update(ops_per_second=rate, p50_us=1e6 / rate, p99_us=1e6 / rate)
    print(json.dumps(report))
