# SPDX-License-Identifier: BSD-3-Clause
"""Every operation, between two processes."""

import mmap

import numpy as np
import pytest

import rpma
from rpma import Access


def test_read(conn):
    remote = conn.remotes[0]
    assert len(remote) == 4096
    assert conn.read(remote[:5]) == b"hello"
    assert conn.read(remote)[:6] == b"hello\0"
    assert conn.read(remote[7:7]) == b""


def test_read_into_each_kind_of_memory(conn):
    remote = conn.remotes[0][:5]
    mapped = mmap.mmap(-1, 4096)
    array = np.zeros(5, dtype=np.uint8)
    data = bytearray(7)
    conn.read_into(remote, memoryview(mapped)[:5])
    conn.read_into(remote, array)
    conn.read_into(remote, memoryview(data)[1:6])
    with conn.peer.region(64) as region:
        conn.read_into(remote, region[10:15])
        assert bytes(region[8:16]) == b"\0\0hello\0"
    assert mapped[:6] == b"hello\0" and array.tobytes() == b"hello" and data == b"\0hello\0"


def test_write_is_visible_behind_a_flush(other):
    server = other("""
    memory, conn = share()
    hear()
    say(bytes(memory.view[:16]).hex())
    conn.wait_closed()
    """)
    with server.connect() as conn:
        remote = conn.remotes[0]
        conn.write(b"world", remote[:5])
        conn.write(np.array([1, 2], dtype=np.uint16), remote[8:12])
        conn.write(b"", remote[3:3])
        conn.flush(remote[:5])
        server.say("written")
        assert bytes.fromhex(server.hear()) == b"world\0\0\0\1\0\2\0\0\0\0\0"


def test_a_flag_is_behind_what_it_announces(other):
    server = other("""
    memory, conn = share()
    flag = memory.view[64:72].cast("Q")
    while flag[0] == 0:
        pass
    say(f"{flag[0]} {bytes(memory.view[128:131]).decode()}")
    conn.wait_closed()
    """)
    with server.connect() as conn:
        remote = conn.remotes[0]
        conn.write(b"all", remote[128:131])
        conn.atomic_write(2**64 - 1, remote[64:72])
        assert server.hear() == f"{2 ** 64 - 1} all"
        conn.atomic_write(b"12345678", remote[72:80])
        assert conn.read(remote[72:80]) == b"12345678"


def test_messages(other):
    server = other("""
    conn = accept()
    for _ in range(3):
        conn.send(conn.recv(100)[::-1])
    into = peer.region(100)
    length = conn.recv_into(into)
    conn.send(into[:length])
    conn.wait_closed()
    """)
    with server.connect() as conn:
        for message in b"first", b"", b"x" * 100:
            conn.send(message)
            assert conn.recv(100) == message[::-1]
        conn.send(b"fourth")
        data = bytearray(10)
        assert conn.recv_into(data) == 6 and data == b"fourth\0\0\0\0"


def test_more_operations_than_the_queues_hold(other):
    server = other("""
    memory = peer.expose(4096, Access.READ | Access.WRITE)
    with listen() as listener:
        conn = listener.accept(offer=[memory])
    for n in range(300):
        assert conn.recv(2) == n.to_bytes(2, "little"), n
    conn.wait_closed()
    """)
    with server.connect(send=3, receive=1) as conn:
        remote = conn.remotes[0]
        writes = [conn.awrite(n.to_bytes(2, "little"), remote[2 * n:2 * n + 2]) for n in range(300)]
        sends = [conn.asend(n.to_bytes(2, "little")) for n in range(300)]
        for op in writes + sends:
            op.wait(timeout=20)
        assert np.frombuffer(conn.read(remote[:600]), dtype="<u2").tolist() == list(range(300))


def test_durable(other, tmp_path):
    path = tmp_path / "data"
    server = other(f"""
    memory = peer.expose_file({str(path)!r}, 4096, Access.READ | Access.WRITE | Access.PERSISTENT)
    with open({str(path)!r}, "r+b") as file:
        second = peer.expose_file(file, 100, Access.WRITE | Access.PERSISTENT)
    accept(offer=[memory, second]).wait_closed()
    """)
    with server.connect() as conn:
        memory, second = conn.remotes
        conn.write(b"kept", memory[:4])
        conn.flush(memory[:4], durable=True)
        conn.write(b"too", second[97:])
        conn.flush(second[97:], durable=True)
        assert (path.read_bytes()[:4], path.read_bytes()[97:100]) == (b"kept", b"too")
        server.kill()
    assert path.read_bytes()[:4] == b"kept" and path.stat().st_size == 4096


def test_array_without_a_copy(other):
    server = other("""
    import numpy as np
    array = np.arange(1000, dtype=np.float64)
    memory = peer.expose(array, Access.READ)
    conn = accept(offer=[memory])
    hear()
    array[3] = -1
    say("changed")
    conn.wait_closed()
    """)
    with server.connect() as conn:
        array = np.empty(1000)
        region = conn.peer.region(array)
        conn.read_into(conn.remotes[0], region)
        assert array.tolist() == list(map(float, range(1000)))
        server.say("change")
        server.hear()
        conn.read_into(conn.remotes[0][24:32], region[24:32])
        assert array[3] == -1 and np.frombuffer(region.view, dtype=np.float64)[3] == -1


def test_offers_of_both_sides_and_private_data(other):
    server = other("""
    memory = [peer.expose(size, Access.READ) for size in (100, 200)]
    with listen() as listener:
        request = listener.incoming()
        say(request.private_data.decode())
        conn = request.accept(offer=memory, private_data=b"welcome")
    say(bytes(conn.read(conn.remotes[0])).decode())
    conn.wait_closed()
    """)
    peer = rpma.Peer.to("127.0.0.1")
    mine = peer.expose(bytearray(b"of the client"), Access.READ)
    with peer.connect("127.0.0.1", server.port, offer=[mine], private_data=b"it is me") as conn:
        assert server.hear() == "it is me"
        assert server.hear() == "of the client"
        assert [len(remote) for remote in conn.remotes] == [100, 200] and conn.private_data == b"welcome"


def test_descriptors_in_a_way_of_ones_own(other):
    """As with a program in C, whose private data are a descriptor alone."""
    server = other("""
    memory = peer.expose(bytearray(b"0123456789"), Access.READ)
    accept(private_data=bytes(memory.remote)[:21], raw=True).wait_closed()
    """)
    with server.connect() as conn:
        assert conn.remotes == () and len(conn.private_data) == 21
        remote = rpma.Remote.from_bytes(conn.private_data)
        assert conn.read(remote) == b"0123456789"
        # a range is a descriptor, too
        part = rpma.Remote.from_bytes(bytes(remote[3:6]))
        assert part == remote[3:6] and conn.read(part[1:]) == b"45"


@pytest.mark.parametrize("size", [1, 4096, 1 << 20, 10_000_000])
def test_sizes(other, size):
    server = other(f"""
    memory = peer.expose({size}, Access.READ | Access.WRITE)
    accept(offer=[memory]).wait_closed()
    """)
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    with server.connect() as conn:
        conn.write(data, conn.remotes[0])
        assert conn.read(conn.remotes[0]) == data.tobytes()
