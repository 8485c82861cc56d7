# SPDX-License-Identifier: BSD-3-Clause
"""terminal.py COMMAND...: rpma perf on a terminal draws a bar, and prints whole lines."""

import os
import pty
import re
import sys

out = b""


def read(fd):
    global out
    part = os.read(fd, 1000)
    out += part
    return part


status = pty.spawn(sys.argv[1:], read)
assert status == 0, status
assert re.search(rb"=> +[0-9]+% +[0-9]+s write 64", out) and out.endswith(b"\x1b[2K"), out
assert re.search(rb"\x1b\[2Kwrite +64 .*[0-9]\r\n", out), out
print("\na bar")
