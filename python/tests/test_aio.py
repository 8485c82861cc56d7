# SPDX-License-Identifier: BSD-3-Clause
"""Asyncio: tasks are woken by a descriptor, without a thread."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import free_port

import rpma
from rpma import Access


async def connected(server, **options):
    return await rpma.Peer("127.0.0.1").aconnect("127.0.0.1", server.port, **options)


def test_operations(share):
    async def main():
        async with await connected(share) as conn:
            remote = conn.remotes[0]
            assert await conn.aread(remote[:5]) == b"hello"
            await conn.awrite(b"world", remote[8:13])
            await conn.aflush(remote)
            await conn.aatomic_write(1, remote[16:24])
            data = bytearray(5)
            await conn.aread_into(remote[8:13], data)
            assert data == b"world"
            op = conn.aread(remote[:5])
            assert await op == await op == b"hello" and op.done()
        with pytest.raises(rpma.ClosedError):
            conn.aread(remote[:5])
        assert isinstance(await conn.await_closed(), rpma.ClosedError)
        return threading.active_count()

    assert asyncio.run(main()) == 1


def test_both_sides_in_one_loop():
    async def main():
        peer = rpma.Peer("127.0.0.1")
        with peer.listen("127.0.0.1", free_port()) as listener, peer.expose(b"shared", Access.READ) as memory:
            port = listener._at[1]
            client, server = await asyncio.gather(
                peer.aconnect("127.0.0.1", port), listener.aaccept(offer=[memory])
            )
            sent = asyncio.gather(*(server.asend(b"%d" % n) for n in range(200)))
            received = await asyncio.gather(*(client.arecv(3) for n in range(200)))
            await sent
            assert received == [b"%d" % n for n in range(200)]
            reads = await asyncio.gather(*(client.aread(client.remotes[0]) for n in range(200)))
            assert set(map(bytes, reads)) == {b"shared"}
            await asyncio.gather(client.aclose(), server.aclose())
        assert threading.active_count() == 1

    asyncio.run(main())


def test_cancelling_a_task_does_not_cancel_the_operation(other):
    server = other("""
    conn = accept()
    hear()
    conn.send(b"first")
    conn.send(b"second")
    say("sent")
    conn.wait_closed()
    """)

    async def main():
        async with await connected(server) as conn:
            data = bytearray(10)

            async def receives():
                return await conn.arecv_into(data)

            task = asyncio.create_task(receives())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(conn.arecv(10), 0.05)
            gc.collect()
            with pytest.raises(BufferError):
                data.extend(b"1")
            third = conn.arecv(10)
            server.say("go on")
            assert server.hear() == "sent"
            assert not third.done() and data[:5] == b"first"

    asyncio.run(main())


def test_a_loop_that_does_something_else(share):
    async def main():
        async with await connected(share) as conn:
            ticks = 0

            async def tick():
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0.005)

            task = asyncio.create_task(tick())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(conn.arecv(1), 0.2)
            task.cancel()
            assert ticks > 5
            assert await conn.aread(conn.remotes[0][:5]) == b"hello"

    asyncio.run(main())


def test_killed_peer(share):
    async def main():
        async with await connected(share) as conn:
            tasks = [asyncio.ensure_future(conn.arecv(1)) for _ in range(100)]
            await asyncio.sleep(0.05)
            share.kill()
            for result in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20):
                assert isinstance(result, rpma.ClosedError), result
            assert isinstance(await conn.await_closed(), rpma.ClosedError)

    asyncio.run(main())


def test_refused_and_unreachable():
    async def main():
        peer = rpma.Peer("127.0.0.1")
        with pytest.raises(rpma.RefusedError):
            await peer.aconnect("127.0.0.1", free_port())
        with pytest.raises(rpma.RefusedError):
            await peer.aconnect("localhost", free_port())
        with pytest.raises(rpma.UnreachableError):
            await peer.aconnect("no.such.name.invalid", 1)

    asyncio.run(main())


def test_cancelled_connect_and_accept(other):
    server = other("""
    listener = listen()
    hear()
    """)

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connected(server), 0.1)
        peer = rpma.Peer("127.0.0.1")
        with peer.listen("127.0.0.1", free_port()) as listener:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(listener.aaccept(), 0.05)
            client, accepted = await asyncio.gather(peer.aconnect(*listener._at), listener.aaccept())
            with pytest.raises(rpma.ClosedError):
                waiting = asyncio.ensure_future(listener.aincoming())
                await asyncio.sleep(0)
                listener.close()
                await waiting
            await accepted.aclose()
            assert isinstance(await client.await_closed(), rpma.ClosedError)

    asyncio.run(main())
    server.say("end")


def test_threads_and_loops_share_a_connection(share):
    conn = share.connect()

    async def reads():
        return set(map(bytes, await asyncio.gather(*(conn.aread(conn.remotes[0][:5]) for _ in range(100)))))

    with ThreadPoolExecutor(4) as pool:
        in_loops = [pool.submit(asyncio.run, reads()) for _ in range(2)]
        in_threads = [
            pool.submit(lambda: {bytes(conn.read(conn.remotes[0][:5])) for _ in range(200)}) for _ in range(2)
        ]
        for one in in_loops + in_threads:
            assert one.result(60) == {b"hello"}
    conn.close()


def test_close_by_another_thread(share):
    conn = share.connect()

    async def main():
        threading.Timer(0.1, conn.close).start()
        with pytest.raises(rpma.ClosedError):
            await asyncio.wait_for(conn.arecv(1), 20)

    asyncio.run(main())


def test_loop_that_ends_while_a_task_waits(share):
    conn = share.connect()

    async def main():
        asyncio.ensure_future(conn.arecv(1))
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert conn.read(conn.remotes[0][:5]) == b"hello"

    async def again():
        return await conn.aread(conn.remotes[0][:5])

    assert asyncio.run(again()) == b"hello"
    conn.close()


def test_tasks_that_are_destroyed(other):
    """The garbage collector ends them, perhaps in a thread that has the lock."""
    server = other("""
    import asyncio, signal

    def destroy(task, waiting):
        waiting.drive = lambda: None  # nothing has happened yet
        task.send(None)
        del waiting.drive
        with waiting.lock:
            task.close()

    async def waits(op):
        await op

    async def main():
        readers = asyncio.get_running_loop()._selector.get_map()
        before = len(readers)
        with peer.listen("127.0.0.1", port) as listener:
            destroy(listener.aincoming(), listener._endpoint)
            client, server = await asyncio.gather(peer.aconnect("127.0.0.1", port), listener.aaccept())
            destroy(waits(server.arecv(1)), server._link)
            second = server.arecv(1)
            await client.asend(b"1")
            await client.asend(b"2")
            assert await second == b"2"
            destroy(waits(server.arecv(1)), server._link)
            destroy(client.await_closed(), client._link)
            destroy(client.aclose(), client._link)
            await client.aclose()
            await server.await_closed()
            await server.aclose()
        await asyncio.sleep(0.05)
        assert len(readers) == before

    say("ready")
    signal.alarm(15)
    asyncio.run(main())
    say("done")
    """)
    assert server.hear() == "done"


def test_a_loop_of_the_program_watches_too():
    """The descriptors of `fileno` are not those that the tasks of this package watch."""

    async def main():
        loop, called = asyncio.get_running_loop(), asyncio.Event()
        peer = rpma.Peer("127.0.0.1")
        with peer.listen("127.0.0.1", free_port()) as listener:
            loop.add_reader(listener.fileno(), called.set)
            server, client = await asyncio.gather(listener.aaccept(), peer.aconnect(*listener._at))
            assert loop.remove_reader(listener.fileno())
            loop.add_reader(server.fileno(), called.set)
            await asyncio.gather(server.arecv(1), client.asend(b"1"))
            called.clear()
            op = server.arecv(1)
            await client.asend(b"2")
            await asyncio.wait_for(called.wait(), 20)
            while not op.done():
                await asyncio.sleep(0.001)
            assert loop.remove_reader(server.fileno())
            await asyncio.gather(client.aclose(), server.aclose())

    asyncio.run(main())


def test_loops_that_are_closed_are_forgotten(share):
    with share.connect() as conn:

        async def main():
            waiting = conn._link.wait_async(conn._link.ended)
            waiting.send(None)
            waiting.close()

        for _ in range(3):
            asyncio.run(main())
        assert len(conn._link._watching) == len(conn._link._abandoned) == 1
