# SPDX-License-Identifier: BSD-3-Clause
"""Threads, signals and fork."""

import os
import select
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import free_port

import rpma
from rpma import Access


def test_threads_share_a_connection(other):
    server = other("""
    memory = peer.expose(8 * 1000, Access.READ | Access.WRITE)
    memory.view.cast("Q")[:] = memoryview(b"".join(n.to_bytes(8, "little") for n in range(1000))).cast("Q")
    accept(offer=[memory]).wait_closed()
    """)
    with server.connect(send=4) as conn:
        remote = conn.remotes[0]

        def reads(first):
            for n in range(first, 1000, 8):
                assert int.from_bytes(conn.read(remote[8 * n:8 * n + 8], timeout=60), "little") == n
            return first

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(reads, range(8))) == list(range(8))


def test_other_threads_run_while_one_waits(conn):
    op = conn.arecv(1)
    thread = threading.Thread(target=lambda: pytest.raises(rpma.ClosedError, op.wait))
    thread.start()
    counted, until = 0, time.monotonic() + 0.2
    while time.monotonic() < until:
        counted += 1
    assert counted > 100
    assert conn.read(conn.remotes[0][:5]) == b"hello"
    conn.close()
    thread.join(20)
    assert not thread.is_alive()


def test_several_wait_and_each_gets_a_message(other):
    server = other("""
    conn = accept()
    hear()
    for n in range(8):
        conn.send(bytes([n]))
    conn.wait_closed()
    """)
    with server.connect() as conn, ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(conn.recv, 1, timeout=20) for _ in range(8)]
        server.say("go on")
        assert sorted(one.result() for one in waiting) == [bytes([n]) for n in range(8)]


@pytest.mark.parametrize("threads", [1, 3])
def test_close_ends_those_who_wait(share, threads):
    conn = share.connect()
    failures = []

    def waits():
        with pytest.raises(rpma.ClosedError) as caught:
            conn.recv(1)
        failures.append(caught.value)

    started = [threading.Thread(target=waits) for _ in range(threads)]
    for thread in started:
        thread.start()
    time.sleep(0.1)
    conn.close()
    for thread in started:
        thread.join(20)
    assert len(failures) == threads


def test_closing_a_listener_ends_those_who_wait():
    listener = rpma.Peer("127.0.0.1").listen("127.0.0.1", free_port())
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(listener.accept) for _ in range(3)]
        time.sleep(0.1)
        listener.close()
        for one in waiting:
            with pytest.raises(rpma.ClosedError):
                one.result(20)


def test_interrupt(conn):
    """Control-C ends the wait, not the operation."""
    # A shell starts a program in the background with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    data = bytearray(1)
    with pytest.raises(KeyboardInterrupt):
        conn.recv_into(data)
    with pytest.raises(BufferError):
        data.extend(b"1")
    assert conn.read(conn.remotes[0][:5]) == b"hello"


def test_close_while_others_post(other):
    server = other("""
    memory = peer.expose(4096, Access.READ | Access.WRITE)
    with listen() as listener:
        for _ in range(20):
            listener.accept(offer=[memory]).wait_closed()
    """)
    for n in range(20):
        conn = server.connect()

        def reads():
            with pytest.raises(rpma.ClosedError):
                while True:
                    conn.read(conn.remotes[0], timeout=20)

        threads = [threading.Thread(target=reads) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.002 * n)
        conn.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()


def test_one_of_several_accepts_and_closes(other):
    client = """
    try:
        rpma.connect("127.0.0.1", int(hear())).wait_closed()
    except rpma.RefusedError:
        pass
    """
    peer, port = rpma.Peer("127.0.0.1"), free_port()

    def tries(call):
        try:
            return call()
        except rpma.ClosedError:
            return None

    with peer.listen("127.0.0.1", port) as listener, ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            other(client).say(str(port))
            request, memory = listener.incoming(timeout=20), peer.expose(64, Access.READ)
            conns = [conn for conn in pool.map(tries, [request.accept] * 4) if conn is not None]
            assert len(conns) == 1
            list(pool.map(rpma.Conn.close, conns * 4))
            list(pool.map(tries, [memory.close, lambda: memory.remote] * 4))
            assert memory.closed


def in_child(function):
    """Whether a function returns in a child of fork."""
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(30)
            function()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_child_cannot_use_what_its_parent_made(conn):
    peer, region, remote = conn.peer, conn.peer.region(8), conn.remotes[0]
    listener, pending = peer.listen("127.0.0.1", free_port()), conn.arecv(1)

    def uses():
        for call in (
            lambda: conn.read(remote),
            lambda: conn.write(b"hello", remote[:5]),
            lambda: conn.recv(1),
            conn.fileno,
            lambda: peer.region(8),
            lambda: peer.listen("127.0.0.1", free_port()),
            lambda: region.view,
            lambda: peer.connect("127.0.0.1", 1),
            listener.accept,
            pending.wait,
            pending.done,
            conn.wait_closed,
        ):
            with pytest.raises(rpma.RpmaError, match="fork"):
                call()
        region.close()
        conn.close()
        listener.close()
        peer.close()

    assert in_child(uses)
    assert conn.read(remote[:5]) == b"hello" and not pending.done()
    listener.close()


def test_child_makes_its_own(conn, other):
    server = other("""
    memory, conn = share()
    conn.wait_closed()
    """)

    def connects():
        with rpma.connect("127.0.0.1", server.port) as own:
            assert own.read(own.remotes[0][:5]) == b"hello"

    assert in_child(connects)
    assert conn.read(conn.remotes[0][:5]) == b"hello"


def test_child_that_drops_and_ends(conn):
    """The finalizers of the parent's objects do nothing in a child."""
    exposed = conn.peer.expose(8, Access.READ)
    child = os.fork()
    if child == 0:
        import atexit

        atexit._run_exitfuncs()
        conn._link = exposed._registered = None
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert conn.read(conn.remotes[0][:5]) == b"hello" and len(bytes(exposed.remote)) == 22


class Late:
    """Threads that are about to wait on the descriptors of an object, but do not yet."""

    def __init__(self, waiting):
        self.ready, self.epoll = waiting.ready, waiting.ready.epoll
        self.came, self.may_go = threading.Event(), threading.Event()
        self.ready.epoll = self

    def poll(self, left):
        self.came.set()
        self.may_go.wait(20)
        return self.epoll.poll(left)

    def go(self):
        self.ready.epoll = self.epoll
        self.may_go.set()


def test_another_thread_takes_what_one_waits_for(other):
    """The thread that waits on the descriptors is woken, and they are not readable for ever then."""
    server = other("""
    conn = accept()
    while hear() == "send":
        conn.send(b"1")
    conn.wait_closed()
    """)
    with server.connect() as conn:
        for _ in range(3):
            op, late = conn.arecv(1), Late(conn._link)
            thread = threading.Thread(target=op.wait, daemon=True)
            thread.start()
            assert late.came.wait(20)
            server.say("send")
            while not op.done():
                pass
            late.go()
            thread.join(5)
            assert not thread.is_alive()
            assert not select.select([conn.fileno()], [], [], 0)[0]
        server.say("end")


def test_another_thread_takes_the_request_that_one_waits_for():
    peer = rpma.Peer("127.0.0.1")
    with peer.listen("127.0.0.1", free_port()) as listener, ThreadPoolExecutor(2) as pool:
        late = Late(listener._endpoint)
        first = pool.submit(listener.incoming)
        assert late.came.wait(20)
        client, until = pool.submit(peer.connect, *listener._at), time.monotonic() + 20
        while listener._endpoint._wanted and time.monotonic() < until:
            with pytest.raises(rpma.TimedOutError):
                listener.incoming(timeout=0)
        late.go()
        try:
            first.result(5).reject()
        finally:
            listener.close()
        with pytest.raises(rpma.RefusedError):
            client.result(20)


def test_memory_can_be_resized_whoever_takes_the_completion(conn):
    def reads(_):
        for _ in range(200):
            data = bytearray(5)
            conn.read_into(conn.remotes[0][:5], data, timeout=60)
            data.extend(b"1")
            assert data == b"hello1"

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(reads, range(4)))


def test_view_while_another_thread_closes(monkeypatch):
    region, opened = rpma.Peer("127.0.0.1").region(8), rpma.Region._open

    def closes(self, call):
        registered = opened(self, call)
        self.close()
        return registered

    monkeypatch.setattr(rpma.Region, "_open", closes)
    assert len(region.view) == 8
    with pytest.raises(rpma.ClosedError):
        region.view
