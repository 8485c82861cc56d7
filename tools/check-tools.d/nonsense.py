# SPDX-License-Identifier: BSD-3-Clause
"""nonsense.py PORT: rpma perf serve rejects requests (RFC 5044, 7.1) with private data that no client has."""

import socket
import struct
import sys


def reply(private_data):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) as peer:
        peer.sendall(b"MPA ID Req Frame" + struct.pack(">BBH", 0, 1, len(private_data)) + private_data)
        frame = b""
        while len(frame) < 20 or len(frame) < 20 + struct.unpack(">H", frame[18:20])[0]:
            part = peer.recv(1000)
            assert part, frame
            frame += part
    assert frame.startswith(b"MPA ID Rep Frame"), frame
    return "rejected" if frame[16] & 0x20 else frame[30:].decode()


def wish(version=1, role=1, depth=1, size=64, session=0):
    return b"rpmaperf" + struct.pack(">BBHII", version, role, depth, size, session)


REFUSED = [
    (b"", "rejected"),
    (b"GET / HTTP/1.0", "rejected"),
    (b"rpmaperF" + wish()[8:], "rejected"),
    (wish()[:15], "too short"),
    (wish(version=2), "it speaks version 1, not 2"),
    (wish(role=9), "does not support this operation"),
    (wish(depth=0), "out of range"),
    (wish(depth=513), "out of range"),
    (wish(size=0), "out of range"),
    (wish(size=1 << 31), "out of range"),
    (wish(), "session has ended"),
    (wish(session=1), "session has ended"),
]
for data, answer in REFUSED:
    said = reply(data)
    assert answer in said, (data, said)
print("refused")
