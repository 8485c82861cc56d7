# SPDX-License-Identifier: BSD-3-Clause
"""What is wrong is found before anything is posted: the connection can be used further."""

import asyncio
import errno
import mmap
import os
import re

import numpy as np
import pytest
from conftest import free_port

import rpma
from rpma import Access

PEER = rpma.Peer("127.0.0.1")


@pytest.fixture
def conn(share):
    """A connection that nothing that a test does may harm."""
    with share.connect() as conn:
        yield conn
        assert conn.read(conn.remotes[0][:5]) == b"hello"


@pytest.mark.parametrize(
    "begin, end", [(0, 4097), (4097, 4097), (4097, 8), (-1, 5), (-5, None), (0, 2**65), (2**65, None)]
)
def test_ranges_are_inside(conn, begin, end):
    with pytest.raises(rpma.RangeError, match="it is outside the 4096 bytes of the memory"):
        conn.remotes[0][begin:end]
    with pytest.raises(IndexError):
        PEER.region(4096)[begin:end]
    with pytest.raises(rpma.RangeError):
        conn.remotes[0][100:200][begin:end]


def test_ranges_begin_before_their_end(conn):
    for memory in conn.remotes[0], PEER.region(4096):
        for begin, end in (10, 5), (4096, 0):
            with pytest.raises(rpma.RangeError, match=rf"\[{begin}:{end}\]: it begins after its end"):
                memory[begin:end]


def test_ranges_have_no_step_and_are_no_index(conn):
    with pytest.raises(rpma.RangeError):
        conn.remotes[0][0:8:2]
    with pytest.raises(TypeError):
        conn.remotes[0][3]


def test_lengths_are_the_same(conn):
    remote = conn.remotes[0]
    for data in b"", b"1234", b"123456":
        with pytest.raises(rpma.RangeError, match="remote"):
            conn.write(data, remote[:5])
        with pytest.raises(ValueError):
            conn.read_into(remote[:5], bytearray(data))
    with pytest.raises(rpma.RangeError):
        conn.atomic_write(1, remote[:16])
    with pytest.raises(rpma.RangeError):
        conn.atomic_write(b"1234", remote[:4])


def test_atomic_writes_are_aligned_numbers(conn):
    with pytest.raises(rpma.InvalidError, match="multiple of 8"):
        conn.atomic_write(1, conn.remotes[0][4:12])
    for value in -1, 2**64:
        with pytest.raises(rpma.InvalidError, match=f"{value} does not fit an unsigned 64-bit integer"):
            conn.atomic_write(value, conn.remotes[0][:8])


def test_memory_of_the_peer_is_a_remote(conn):
    five, hello = conn.remotes[0][:5], b"hello"
    for call, wrong in {
        "Conn.write(data, to): to": lambda: conn.write(five, hello),
        "Conn.atomic_write(value, to): to": lambda: conn.atomic_write(five, 1),
        "Conn.read(source): source": lambda: conn.read(hello),
        "Conn.read_into(source, to): source": lambda: conn.read_into(hello, five),
        "Conn.flush(range): range": lambda: conn.flush(PEER.region(8)),
    }.items():
        with pytest.raises(TypeError, match=f"^{re.escape(call)} is a Remote, memory of the peer, not "):
            wrong()


def test_what_was_not_offered(conn, other):
    assert len(conn.remotes) == 1 and conn.remotes == (conn.remotes[-1],) and conn.remotes[1:] == ()
    with pytest.raises(IndexError, match=r"^remotes\[1\]: the peer offered 1 region$"):
        conn.remotes[1]
    with pytest.raises(TypeError):
        conn.remotes["1"]
    with other("""accept(private_data=b"own").wait_closed()""").connect() as none:
        with pytest.raises(
            rpma.RangeError, match=r"remotes\[0\]: the peer offered no region; .*from_bytes\(conn.private_data"
        ):
            none.remotes[0]
        assert none.remotes == () and not none.remotes


def test_offers_are_checked_before_a_client_comes():
    region = PEER.expose(8, Access.READ)
    wrong = {
        "offer is a list of regions, offer=[region], not Region": dict(offer=region),
        "offer is a list of regions, offer=[region], not int": dict(offer=5),
        "offer has bytes instead of Region; Peer.expose(memory, access) makes": dict(offer=[region, b"hello"]),
        "offer has int instead of Region": dict(offer=b"hello"),
    }
    port = free_port()
    with PEER.listen("127.0.0.1", port) as listener:
        for reason, options in wrong.items():
            with pytest.raises(TypeError, match=f"^Listener.accept: {re.escape(reason)}"):
                listener.accept(timeout=5, **options)
            with pytest.raises(TypeError, match=f"^Listener.accept: {re.escape(reason)}"):
                asyncio.run(asyncio.wait_for(listener.aaccept(**options), 5))
            with pytest.raises(TypeError, match=f"^Peer.connect: {re.escape(reason)}"):
                PEER.connect("127.0.0.1", port, **options)
        with pytest.raises(rpma.InvalidError, match="^Listener.accept: .*255"):
            listener.accept(timeout=5, private_data=bytes(256))


def test_rights(other):
    server = other("""
    memory = [peer.expose(100, access) for access in (Access.READ, Access.WRITE, Access.VISIBLE)]
    small = peer.expose(4, Access.VISIBLE)
    accept(offer=[*memory, small]).wait_closed()
    """)
    with server.connect() as conn:
        read, write, visible, small = conn.remotes
        for call in (
            lambda: conn.write(b"1", read[:1]),
            lambda: conn.atomic_write(1, read[:8]),
            lambda: conn.write(b"1", visible[:1]),
        ):
            with pytest.raises(rpma.NotPermittedError, match="write access"):
                call()
        for call in (lambda: conn.read(write[:1]), lambda: conn.read_into(write[:1], bytearray(1))):
            with pytest.raises(PermissionError):
                call()
        with pytest.raises(rpma.NotPermittedError, match="VISIBLE"):
            conn.flush(write)
        with pytest.raises(rpma.NotDurableError, match="PERSISTENT"):
            conn.flush(visible, durable=True)
        with pytest.raises(rpma.InvalidError, match="8 bytes"):
            conn.flush(small)
        conn.write(b"1", write[:1])
        assert conn.read(read[:1]) == b"\0"


def test_local_memory(conn):
    five = conn.remotes[0][:5]
    with pytest.raises(rpma.InvalidError, match="read-only"):
        conn.read_into(five, b"12345")
    with pytest.raises(rpma.InvalidError, match="contiguous"):
        conn.write(np.zeros(10, dtype=np.uint8)[::2], five)
    with pytest.raises(rpma.InvalidError, match="another Peer"):
        conn.read_into(five, PEER.region(5))
    with pytest.raises(rpma.InvalidError, match="exposed"):
        conn.read_into(five, conn.peer.expose(5, Access.READ))
    with pytest.raises(rpma.InvalidError, match="str does not support the buffer protocol"):
        conn.write("hello", five)
    with pytest.raises(rpma.InvalidError, match="read-only"):
        conn.peer.expose(b"12345", Access.WRITE)
    with pytest.raises(rpma.InvalidError, match="ndarray does not support the buffer protocol"):
        PEER.region(np.zeros(3, dtype="M8[s]"))
    assert len(PEER.region(np.zeros(3, dtype=[("when", ">i8")]))) == 24
    source = conn.peer.region(b"other")
    with pytest.raises(rpma.InvalidError, match="read-only"):
        conn.recv_into(source)
    conn.write(source, conn.remotes[0][100:105])
    assert conn.read(conn.remotes[0][100:105]) == b"other"


@pytest.mark.parametrize("memory", [0, -1, b"", bytearray(), np.zeros(0)])
def test_memory_has_bytes(memory):
    with pytest.raises(ValueError):
        PEER.region(memory)
    with pytest.raises(rpma.InvalidError):
        PEER.expose(memory, Access.READ)


@pytest.fixture
def allocated(monkeypatch):
    """The sizes that were to be allocated at once, of which those that the host may not have are refused."""
    sizes, allocate = [], os.posix_fallocate

    def counted(fd, offset, size):
        sizes.append(size)
        if size >= 1 << 30:
            raise OSError(errno.ENOSPC, "refused by the test")
        allocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", counted)
    return sizes


@pytest.mark.parametrize("size", [1 << 45, 1 << 62, 1 << 63, 1 << 70])
def test_memory_that_the_host_does_not_have_is_refused(size, allocated):
    before = os.listdir("/proc/self/fd")
    for call, new in {
        "Peer.region": lambda: PEER.region(size),
        "Peer.expose": lambda: PEER.expose(size, Access.READ),
    }.items():
        with pytest.raises(MemoryError, match=f"^{call}: a size of {size} bytes: ") as caught:
            new()
        assert isinstance(caught.value, rpma.OutOfMemoryError) and caught.value.code == -100003
    assert allocated == [] and len(os.listdir("/proc/self/fd")) == len(before)


def test_half_of_the_available_memory_is_allocated_at_once(monkeypatch, tmp_path, allocated):
    mib, meminfo = 1 << 20, tmp_path / "meminfo"
    monkeypatch.setattr(rpma._peer, "MEMINFO", str(meminfo))
    meminfo.write_text(f"MemTotal: {100 * mib} kB\nMemAvailable:   {4 * mib // 1024} kB\n")
    for size in 2 * mib, 2 * mib + 1, mib - 1:
        region = PEER.region(size)
        assert len(region) == size and region.view[-1] == 0
    assert allocated == [2 * mib, mib - 1]
    for unknown in "", "MemAvailable:", "MemAvailable: kB", "MemAvailable: many kB":
        meminfo.write_text(unknown)
        PEER.region(8 * mib)
    meminfo.unlink()
    PEER.region(8 * mib)
    assert allocated[2:] == [8 * mib] * 5


def test_regions_that_are_not_exposed_have_no_descriptor():
    with pytest.raises(rpma.InvalidError, match="expose"):
        PEER.region(8).remote
    with pytest.raises(rpma.InvalidError, match="empty"):
        PEER.expose(8, Access(0))


@pytest.mark.parametrize("data", [b"", bytes(20), bytes(22), b"\xff" * 22])
def test_descriptors(data):
    with pytest.raises(rpma.InvalidError):
        rpma.Remote.from_bytes(data)
    with pytest.raises(TypeError):
        rpma.Remote()


def test_closed_objects(share):
    peer = rpma.Peer.to("127.0.0.1")
    region, exposed = peer.region(5), peer.expose(5, Access.READ)
    conn = peer.connect("127.0.0.1", share.port)
    remote = conn.remotes[0][:5]
    part = region[1:3]
    region.close()
    region.close()
    for call in (
        lambda: conn.read_into(remote, region),
        lambda: conn.read_into(remote[:2], part),
        lambda: region.view,
        lambda: bytes(part),
        lambda: bytes(region),
    ):
        with pytest.raises(rpma.ClosedError, match="region is closed"):
            call()
    exposed.close()
    with pytest.raises(rpma.ClosedError):
        exposed.remote
    peer.close()
    for call in (
        lambda: peer.region(5),
        lambda: peer.expose(5, Access.READ),
        lambda: peer.connect("127.0.0.1", 1),
        lambda: peer.listen("127.0.0.1", 1),
        lambda: peer.device,
    ):
        with pytest.raises(rpma.ClosedError, match="peer is closed"):
            call()
    assert conn.read(remote) == b"hello"
    op = conn.aread(remote)
    conn.close()
    conn.close()
    assert op.wait() == b"hello" and conn.closed
    for call in (
        lambda: conn.read(remote),
        lambda: conn.read_into(remote, bytearray(5)),
        lambda: conn.write(b"hello", remote),
        lambda: conn.atomic_write(1, conn.remotes[0][:8]),
        lambda: conn.flush(remote),
        lambda: conn.send(b""),
        lambda: conn.recv(1),
        conn.fileno,
    ):
        with pytest.raises(rpma.ClosedError, match="connection is closed"):
            call()
    assert isinstance(conn.wait_closed(), rpma.ClosedError)


def test_closed_listener():
    listener = PEER.listen("127.0.0.1", free_port())
    listener.close()
    listener.close()
    assert listener.closed
    for call in listener.incoming, listener.accept:
        with pytest.raises(rpma.ClosedError):
            call()


def test_listening():
    port = free_port()
    for wrong in 0, -1, 65536:
        with pytest.raises(rpma.InvalidError, match=rf"port {wrong} is not in 1\.\.65535"):
            PEER.listen("127.0.0.1", wrong)
    for wrong in -1, 65536, 99999:
        reason = rf"^Peer.connect: port {wrong} is not in 0\.\.65535$"
        with pytest.raises(ValueError, match=reason):
            rpma.connect("127.0.0.1", wrong)
        for addr in "127.0.0.1", "localhost":
            with pytest.raises(rpma.InvalidError, match=reason):
                asyncio.run(PEER.aconnect(addr, wrong))
    for call in PEER.listen, PEER.connect:
        with pytest.raises(TypeError, match="the port is an int, not str"):
            call("127.0.0.1", "7204")
    with pytest.raises(rpma.InvalidError, match="at least one"):
        PEER.listen("127.0.0.1", port, send=0)
    with PEER.listen("127.0.0.1", port) as listener:
        with pytest.raises(rpma.RpmaError, match="in use") as caught:
            PEER.listen("127.0.0.1", port)
        assert caught.value.code < 0 and caught.value.call.startswith("Peer.listen")
        with pytest.raises(rpma.TimedOutError):
            listener.accept(timeout=0.05)
    with PEER.listen("127.0.0.1", port):
        pass


def test_private_data_fit():
    with PEER.listen("127.0.0.1", free_port()) as listener:
        exposed = PEER.expose(8, Access.READ)
        port = listener._at[1]
        with pytest.raises(rpma.InvalidError, match="255"):
            PEER.connect("127.0.0.1", port, offer=[exposed] * 12)
        with pytest.raises(rpma.InvalidError, match="raw"):
            PEER.connect("127.0.0.1", port, offer=[exposed], raw=True)


def test_memory_in_use_keeps_its_place(conn):
    data, mapped = bytearray(10), mmap.mmap(-1, 4096)
    region, exposed = conn.peer.region(data), conn.peer.expose(mapped, Access.READ)
    with pytest.raises(BufferError):
        data.extend(b"1")
    with pytest.raises(BufferError):
        mapped.close()
    region.close()
    exposed.close()
    data.extend(b"1")
    mapped.close()


def test_errors_are_errors_of_python():
    import pickle

    error = rpma.LostError("Conn.read", "it broke", 12)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.call, copy.reason, copy.code, str(copy)) == (
        "Conn.read",
        "it broke",
        12,
        "Conn.read: it broke",
    )
    assert isinstance(error, ConnectionError) and isinstance(rpma.TimedOutError("a", "b"), TimeoutError)
    assert isinstance(rpma.RefusedError("a", "b"), ConnectionRefusedError)
