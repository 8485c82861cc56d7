# SPDX-License-Identifier: BSD-3-Clause
"""top.py PID: the objects that `rpma top --json` prints of one process, which reads 64 bytes again and again."""

import json
import sys

lines = [json.loads(line) for line in sys.stdin]
assert len(lines) >= 3, lines
counts = []
for line in lines:
    row, = line["processes"]
    assert row["pid"] == int(sys.argv[1]) and row["connections"]["open"] == 1 and row["opened"] == 1, row
    # Between two readings of the counters; the time of the line is when it was printed. The duration is
    # rounded.
    rate, more = row["ops_per_second"]["read"], row["operations"]["read"] - counts[-1][1] if counts else None
    assert more is None or abs(rate * row["seconds"] - more) <= 0.01 * more + 0.001 * rate, (more, row)
    assert not counts or line["time"] > counts[-1][0], line
    # A read may be posted between the looks at the two counters.
    assert abs(row["bytes"]["read"] - 64 * row["operations"]["read"]) <= 64 < row["bytes"]["read"], row
    each, = row["each_connection"]
    labels = [each[name] for name in ("provider", "device", "transport", "link", "state", "error")]
    assert labels == ["soft", "soft0", "iwarp", "direct_copy", "open", None] and each["peer"].startswith("127.0.0.1:"), each
    # Its first read uses the ring; it serves no operations itself.
    assert each["operations"]["read"] > 0 and sum(row["served"].values()) == sum(each["served"].values()) == 0, row
    if counts:
        assert row["out_ops_per_second"] == rate and row["in_bytes_per_second"] == row["bytes_per_second"]["read"], row
        assert abs(each["out_ops_per_second"] - rate) <= 0.01 * rate + 10, row
        assert row["in_ops_per_second"] == row["out_bytes_per_second"] == 0, row
    # The last interval ends with a signal, maybe before a read of it completes.
    latency = row["latency_us"].get("read")
    assert rate * row["seconds"] < 1.5 if latency is None else 0 < latency["p50"] <= latency["p99"], row
    assert row["latency_all_us"] == latency, row
    counts.append((line["time"], row["operations"]["read"]))
print(len(lines), "objects")
