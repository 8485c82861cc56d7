# SPDX-License-Identifier: BSD-3-Clause
"""Peers that refuse, end, are killed or are stopped, at several points."""

import gc
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import free_port

import rpma
from rpma import Access, _link


def test_nobody_listens():
    with pytest.raises(rpma.RefusedError) as caught:
        rpma.connect("127.0.0.1", free_port())
    assert caught.value.call == "Peer.connect" and "nothing accepts" in caught.value.reason


def test_no_such_address():
    with pytest.raises(rpma.UnreachableError):
        rpma.Peer("no.such.name.invalid")
    with pytest.raises(rpma.UnreachableError):
        rpma.Peer("127.0.0.1").connect("no.such.name.invalid", 7204)


def test_rejected(other):
    server = other("""
    with listen() as listener:
        request = listener.incoming()
        request.reject()
        request.reject()
        try:
            request.accept()
        except rpma.ClosedError:
            say("rejected")
    """)
    with pytest.raises(ConnectionRefusedError):
        server.connect()
    assert server.hear() == "rejected"


def test_request_that_is_dropped_is_rejected(other):
    server = other("""
    with listen() as listener:
        listener.incoming()
    """)
    with pytest.raises(rpma.RefusedError):
        server.connect()


def test_nobody_accepts(other):
    server = other("""
    listener = listen()
    hear()
    """)
    began = time.monotonic()
    with pytest.raises(rpma.TimedOutError):
        rpma.connect("127.0.0.1", server.port, timeout=0.2)
    assert time.monotonic() - began < 10
    server.say("end")


def test_killed_before_it_accepts(other):
    server = other("""
    listener = listen()
    hear()
    """)
    peer = rpma.Peer("127.0.0.1")
    threading.Timer(0.3, server.kill).start()
    with pytest.raises((rpma.LostError, rpma.RefusedError, rpma.UnreachableError)):
        peer.connect("127.0.0.1", server.port)


def test_killed_while_idle(share):
    conn = share.connect()
    share.kill()
    assert isinstance(conn.wait_closed(timeout=20), rpma.ClosedError)
    for call in (
        lambda: conn.read(conn.remotes[0][:5]),
        lambda: conn.write(b"1", conn.remotes[0][:1]),
        lambda: conn.send(b"1"),
        lambda: conn.recv(1),
        lambda: conn.flush(conn.remotes[0]),
    ):
        with pytest.raises(rpma.ClosedError):
            call()
    conn.close()


def test_killed_while_a_receive_waits(share):
    with share.connect() as conn:
        receives = [conn.arecv(10) for _ in range(100)]  # some of them wait for room in the queue
        share.kill()
        for op in receives:
            with pytest.raises(rpma.ClosedError):
                op.wait(timeout=20)


@pytest.mark.parametrize("after", [0, 0.01, 0.1])
def test_killed_under_load(other, after):
    server = other("""
    memory = peer.expose(1 << 20, Access.READ | Access.WRITE | Access.VISIBLE)
    accept(offer=[memory]).wait_closed()
    """)
    with server.connect() as conn:
        remote, data = conn.remotes[0], bytearray(1 << 20)
        threading.Timer(after, server.kill).start()
        with pytest.raises(rpma.ClosedError):
            until = time.monotonic() + 20
            while time.monotonic() < until:
                ops = [conn.aread_into(remote, data), conn.awrite(data, remote), conn.aflush(remote)]
                for op in ops:
                    op.wait(timeout=20)
        conn.close()
        data.extend(b"nothing uses it any more")


def test_killed_client(other):
    server = other("""
    with listen() as listener:
        for _ in range(2):
            conn = listener.accept()
            say("accepted")
            try:
                say(bytes(conn.recv(5)).decode())
            except rpma.ClosedError as error:
                say(type(error).__name__)
    """)
    client = other(f"""
    conn = rpma.connect("127.0.0.1", {server.port})
    say("connected")
    hear()
    """)
    assert (client.hear(), server.hear()) == ("connected", "accepted")
    client.kill()
    assert server.hear() in ("ClosedError", "LostError")
    with server.connect() as conn:
        conn.send(b"hello")
        assert (server.hear(), server.hear()) == ("accepted", "hello")


def test_end_of_a_program_that_closes_nothing(other):
    """It is no loss: the peer gets what was written, and the event at once."""
    server = other("""
    memory = peer.expose(8, Access.READ | Access.WRITE)
    conn = accept(offer=[memory])
    say(type(conn.wait_closed(timeout=20)).__name__)
    say(bytes(memory).decode())
    """)
    client = other(f"""
    conn = rpma.connect("127.0.0.1", {server.port})
    conn.write(b"12345678", conn.remotes[0])
    """)
    client.end()
    assert (server.hear(), server.hear()) == ("ClosedError", "12345678")


def test_timeout_leaves_the_operation_in_flight(other):
    server = other("""
    conn = accept()
    hear()
    for n in range(3):
        conn.send(bytes([n]) * 3)
    conn.wait_closed()
    """)
    with server.connect() as conn:
        data = bytearray(3)
        op = conn.arecv_into(data)
        with pytest.raises(rpma.TimedOutError) as caught:
            op.wait(timeout=0.05)
        assert caught.value.call == "Conn.recv_into" and not op.done()
        with pytest.raises(TimeoutError):
            conn.recv(3, timeout=0)
        with pytest.raises(BufferError):
            data.extend(b"1")
        server.say("go on")
        assert op.wait(timeout=20) == 3 and op.wait() == 3 and data == b"\0\0\0"
        data.extend(b"1")
        # the receive whose time had passed took the second message
        assert conn.recv(3, timeout=20) == b"\2\2\2"


def test_dropped_operation_keeps_its_memory(other):
    server = other("""
    conn = accept()
    hear()
    conn.send(b"12345678")
    conn.send(b"second")
    conn.send(b"third")
    conn.wait_closed()
    """)
    with server.connect() as conn:
        array = np.zeros(8, dtype=np.uint8)
        ref = weakref.ref(array)
        conn.arecv_into(array)
        region = conn.peer.region(16)
        view = region.view
        conn.arecv_into(region[4:10])
        region.close()
        del array, region
        gc.collect()
        assert ref() is not None
        server.say("go on")
        last = conn.arecv(10)
        assert last.wait(timeout=20) == b"third"
        assert bytes(view[4:10]) == b"second" and ref() is None


def test_stopped_peer(share):
    """Its host answers, so it is not lost; a timeout helps."""
    with share.connect() as conn:
        conn.read(conn.remotes[0])
        share.stop()
        try:
            with pytest.raises(rpma.TimedOutError):
                conn.recv(1, timeout=0.1)
        finally:
            share.go_on()
        assert conn.read(conn.remotes[0][:5], timeout=20) == b"hello"


def test_memory_that_its_owner_has_closed(other):
    server = other("""
    memory, conn = share()
    hear()
    memory.close()
    say("closed")
    conn.wait_closed()
    """)
    with server.connect() as conn:
        server.say("close it")
        server.hear()
        with pytest.raises((rpma.NotPermittedError, rpma.ClosedError)):
            conn.read(conn.remotes[0], timeout=20)


def test_message_that_is_too_long(other):
    server = other("""
    conn = accept()
    try:
        conn.recv(3)
    except rpma.RpmaError as error:
        say(f"{error.code > 0} {error.call}")
    """)
    with server.connect() as conn:
        conn.asend(b"four")
        assert server.hear() == "True Conn.recv"
        assert isinstance(conn.wait_closed(timeout=20), rpma.ClosedError)


def test_no_descriptor_is_left(other):
    server = other("""
    with listen() as listener:
        memory = peer.expose(64, Access.READ)
        for _ in range(30):
            listener.accept(offer=[memory]).wait_closed()
    """)
    counts = []
    for n in range(30):
        conn = server.connect()
        conn.read(conn.remotes[0])
        if n % 2:
            conn.close()
        del conn
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[5]


def test_exposed_to_a_peer_that_goes_away(other):
    server = other("""
    with listen() as listener:
        conn = listener.accept()
        conn.close()
    """)
    peer = rpma.Peer("127.0.0.1")
    with peer.expose(64, Access.WRITE) as memory, peer.connect(
        "127.0.0.1", server.port, offer=[memory]
    ) as conn:
        assert type(conn.wait_closed(timeout=20)) is rpma.ClosedError


def test_memory_is_deregistered_when_the_interpreter_exits(other):
    """The names of the module `sys` are the last ones that are deleted; those of others are None then."""
    server = other("""
    class Recording:
        def rpma_mr_dereg(self, mr, write=os.write, lib=rpma._c.lib):
            write(1, b"deregistered\\n")
            return lib.rpma_mr_dereg(mr)

    end = rpma._region.Registered.end
    never_freed, _, ffi = end.__defaults__
    end.__defaults__ = never_freed, Recording(), ffi
    sys.kept = peer.expose(8, Access.READ)
    """)
    assert server.hear() == "deregistered"


class Interrupted(list):
    """Its handle is lost: the exception of a signal handler comes right behind `pop`."""

    def pop(self):
        super().pop()
        raise KeyboardInterrupt


@pytest.mark.parametrize("call", ["release", "end"])
def test_memory_whose_handle_is_lost_is_never_freed(call):
    """A peer may still write there."""
    data = bytearray(64)
    region = rpma.Peer("127.0.0.1").expose(data, Access.WRITE)
    registered = region._registered
    registered._left = Interrupted(registered._left)
    with pytest.raises(KeyboardInterrupt):
        getattr(registered, call)()
    del region, registered
    gc.collect()
    with pytest.raises(BufferError):
        data.extend(b"1")


def test_cyclic_garbage_is_deleted_in_order(other):
    """The collector finalizes a peer before the memory that was registered with it."""
    server = other("""
    import gc
    memory = [peer._device, peer.region(8), peer.expose(8, Access.READ)]
    memory.append(memory)
    del peer, memory
    gc.collect()
    say(rpma._c.last_reason())
    """)
    assert server.hear() == ""


@pytest.mark.parametrize("is_dropped", [False, True])
def test_request_outlives_its_listener(is_dropped):
    """It uses the channel of the endpoint, which is deleted after it."""
    peer, port = rpma.Peer("127.0.0.1"), free_port()
    with ThreadPoolExecutor(2) as pool:
        with peer.listen("127.0.0.1", port) as listener:
            clients = [pool.submit(peer.connect, "127.0.0.1", port, timeout=20) for _ in range(2)]
            requests = [listener.incoming(timeout=20) for _ in clients]
        assert listener.closed
        with pytest.raises(rpma.ClosedError):
            listener.incoming()
        requests.pop().reject()
        with pytest.raises(rpma.RpmaError, match="in use"):
            peer.listen("127.0.0.1", port)
        if is_dropped:
            del requests[0]
        else:
            with requests[0].accept(timeout=20) as conn:
                conn.send(b"hello")
        answers = [one.exception(20) or one.result().recv(5, timeout=20) for one in clients]
        refused = [answer for answer in answers if isinstance(answer, rpma.RefusedError)]
        assert len(refused) == 2 if is_dropped else len(refused) == 1 and b"hello" in answers
    with peer.listen("127.0.0.1", port):
        pass


def test_request_that_was_given_back_is_rejected_at_the_end():
    peer = rpma.Peer("127.0.0.1")
    with ThreadPoolExecutor(1) as pool:
        with peer.listen("127.0.0.1", free_port()) as listener:
            client = pool.submit(peer.connect, *listener._at, timeout=20)
            wanted = listener._endpoint.want()
            assert listener._endpoint.wait(wanted, time.monotonic() + 20)
            listener._endpoint.unwant(wanted)
            del wanted
        with pytest.raises(rpma.RefusedError):
            client.result(20)
    with peer.listen(*listener._at):
        pass


def test_finalizer_of_memory_uses_the_connection(other):
    """It runs without the lock."""
    server = other("""
    memory, conn = share()
    conn.recv(5)
    conn.wait_closed()
    """)
    client = other(f"""
    import signal
    signal.alarm(15)
    freed = []

    class Memory(bytearray):
        def __del__(self):
            freed.append(bytes(conn.read(conn.remotes[0][:5])) if not conn.closed else b"closed")

    conn = rpma.connect("127.0.0.1", {server.port})
    conn.write(Memory(b"world"), conn.remotes[0][:5])
    conn.send(Memory(b"hello"))
    op = conn.arecv_into(Memory(1))
    conn.close()
    say(freed)
    """)
    assert client.hear() == "[b'world', b'world', b'closed']"


@pytest.mark.parametrize("call", ["rpma_cq_get_wc", "rpma_cq_wait", "rpma_conn_next_event"])
def test_events_that_cannot_be_taken(share, monkeypatch, call):
    """The connection is lost, and nobody waits for ever."""

    class Failing:
        def __getattr__(self, name):
            return (lambda *arguments: -100002) if name == call else getattr(lib, name)

    conn, lib = share.connect(), _link.lib
    op, data = conn.arecv(1), bytearray(1)
    into = conn.arecv_into(data)
    monkeypatch.setattr(_link, "lib", Failing())
    for wait in (op.wait, into.wait):
        with pytest.raises(rpma.LostError) as caught:
            wait(5)
        assert caught.value.code == -100002
    assert isinstance(conn.wait_closed(timeout=5), rpma.LostError) and conn.closed
    data.extend(b"1")
    conn.close()


def test_asking_whether_it_is_closed(other):
    """It takes the event that tells so."""
    server = other("""
    conn = accept()
    hear()
    conn.close()
    """)
    conn = server.connect()
    assert not conn.closed
    server.say("close")
    until = time.monotonic() + 20
    while not conn.closed:
        assert time.monotonic() < until
    conn.close()
