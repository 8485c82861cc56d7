# SPDX-License-Identifier: BSD-3-Clause
"""A peer of examples/cpp in Python: share PORT FILE, or write PORT TEXT."""

import sys

import rpma
from rpma import Access

task, port, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if task == "share":
    with rpma.Peer("127.0.0.1") as peer:
        memory = peer.expose_file(what, 4096, Access.READ | Access.WRITE | Access.PERSISTENT)
        with peer.listen("127.0.0.1", port) as listener:
            while True:
                listener.accept(offer=[memory], private_data=b"own").wait_closed()
else:
    text = what.encode()
    with rpma.connect("127.0.0.1", port) as conn:
        there = conn.remotes[0][:len(text)]
        conn.write(text, there)
        conn.flush(there, durable=True)
        assert conn.read(there) == text
