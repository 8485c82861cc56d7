# SPDX-License-Identifier: BSD-3-Clause
"""report.py REPORT PICTURE: what rpma perf --json and --plot leave."""

import json
import sys
import xml.dom.minidom

report = json.load(open(sys.argv[1]))
rows = report["results"]
assert [row["size"] for row in rows] == [64, 128, 256, 512, 1024, 2048, 4096] * 2, rows
for row in rows:
    latency = row["latency_us"]
    assert row["complete"] and row["operations"] > 0, row
    assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"], row
    assert abs(row["bytes_per_second"] / row["size"] / row["ops_per_second"] - 1) < 0.01, row
assert any(row["cpu"]["client"] > 0 for row in rows) and all(row["cpu"]["server"] >= 0 for row in rows)
assert not report["interrupted"] and report["failure"] is None
svg = xml.dom.minidom.parse(sys.argv[2]).documentElement
assert svg.tagName == "svg" and len(svg.getElementsByTagName("circle")) >= 28
print("well-formed,", len(rows), "rows")
