# SPDX-License-Identifier: BSD-3-Clause
"""Listening, and the requests that arrive."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _c, _private_data
from ._connect import check_port, check_queues, established, wait_established
from ._conn import Conn
from ._errors import ClosedError, RpmaError, TimedOutError
from ._c import Counted, OfProcess, check, ffi, lib
from ._link import Link, begin, configuration, get_private_data
from ._peer import Device, Peer
from ._region import Region
from ._remote import Remote
from ._wait import Event, Waiting, deadline_of

if TYPE_CHECKING:
    from typing_extensions import Self


class Listening(Counted):
    """
    The endpoint of the library.

    A request that is not answered uses its channel of events, so it is deleted after the last of them.
    """

    __slots__ = ("device", "handle")

    def __init__(self, device: Device, addr: str, port: int, call: str) -> None:
        self.device, self.handle = device, ffi.new("struct rpma_ep **")
        check(lib.rpma_ep_listen(device.peer[0], addr.encode(), str(port).encode(), self.handle), call)
        device.use()
        super().__init__(partial(_shutdown, self.handle, device))


def _shutdown(handle: Any, device: Device, lib: Any = lib) -> None:
    lib.rpma_ep_shutdown(handle)
    device.release()


class Request(OfProcess):
    """A request of the library, which is rejected with the last reference."""

    __slots__ = ("device", "queues", "handle", "_listening")

    def __init__(self, listening: Listening, queues: tuple[int, int], handle: Any) -> None:
        super().__init__()
        self.device, self.queues, self.handle = listening.device, queues, handle
        self._listening: Listening | None = listening
        listening.use()

    def end(self, lib: Any = lib, null: Any = ffi.NULL) -> None:
        """Rejects it, if it was not accepted."""
        listening, self._listening = self._listening, None
        if listening is None or self.is_inherited():
            return
        if self.handle[0] != null:
            lib.rpma_conn_req_delete(self.handle)
        listening.release()

    __del__ = end


class Incoming:
    """
    A connection request that has arrived, from `Listener.incoming`: accept it or reject it.

    One that is dropped is rejected.
    """

    __slots__ = ("_request", "_remotes", "_private_data", "__weakref__")

    def __init__(self, request: Request) -> None:
        self._request = [request]
        data = get_private_data(lib.rpma_conn_req_get_private_data, request.handle[0])
        self._remotes, self._private_data = _private_data.decode(data)

    @property
    def remotes(self) -> tuple[Remote, ...]:
        """The memory that the peer offers."""
        return self._remotes

    @property
    def private_data(self) -> bytes:
        """The bytes that the peer's program sent."""
        return self._private_data

    def accept(
        self,
        *,
        offer: Iterable[Region] = (),
        private_data: bytes = b"",
        raw: bool = False,
        timeout: float | None = None,
    ) -> Conn:
        """
        The connection.

        The peer gets what is offered, as for `Peer.connect`.

        Raises LostError if the peer is gone, TimedOutError.
        """
        deadline = deadline_of(timeout)
        return wait_established(self._begin(offer, private_data, raw), deadline, "Incoming.accept")

    async def aaccept(
        self, *, offer: Iterable[Region] = (), private_data: bytes = b"", raw: bool = False
    ) -> Conn:
        """`accept` in an asyncio task."""
        return await established(self._begin(offer, private_data, raw), "Incoming.accept")

    def reject(self) -> None:
        """Rejects it: the peer gets RefusedError."""
        if self._request:
            self._take("Incoming.reject").end()

    def _take(self, call: str) -> Request:
        try:
            request = self._request.pop()
        except IndexError:
            raise ClosedError(call, "the request was accepted or rejected before") from None
        request.check_process(call)
        return request

    def _begin(self, offer: Iterable[Region], private_data: bytes, raw: bool) -> Link:
        call = "Incoming.accept"
        data = _private_data.encode(offer, private_data, raw, call)
        request = self._take(call)
        try:
            return begin(request.device, request.handle, data, *request.queues, call)
        finally:
            request.end()


class Wanted(Event):
    """A waiting call of `incoming`."""

    __slots__ = ("request", "error", "is_abandoned")

    def __init__(self) -> None:
        super().__init__()
        self.request: Request | None = None
        self.error: RpmaError | None = None
        self.is_abandoned = False


class Endpoint(Waiting):
    """Gives the requests that arrive to those who wait for one."""

    def __init__(self, device: Device, addr: str, port: int, queues: tuple[int, int]) -> None:
        call = f"Peer.listen({addr!r}, {port!r})"
        check_port(port, 1, call)
        self._queues = check_queues(queues, call)
        self._cfg = configuration(*queues, None)
        self._listening = Listening(device, addr, port, call)
        try:
            fd = ffi.new("int *")
            lib.rpma_ep_get_fd(self._listening.handle[0], fd)
            os.set_blocking(fd[0], False)
            super().__init__(fd[0])
        except BaseException:
            self._listening.release()
            raise
        self.is_closed = False
        self._wanted: deque[Wanted] = deque()
        self._given_back: deque[Request] = deque()

    def drive(self) -> None:
        while self._wanted:
            wanted = self._wanted[0]
            if wanted.is_abandoned:
                self._wanted.popleft()
                continue
            if self.is_closed:
                wanted.error = ClosedError("Listener", "the listener is closed")
            elif self._given_back:
                wanted.request = self._given_back.popleft()
            else:
                handle = ffi.new("struct rpma_conn_req **")
                code = lib.rpma_ep_next_conn_req(self._listening.handle[0], self._cfg[0], handle)
                if code == _c.E_NO_EVENT:
                    return
                if code == 0:
                    wanted.request = Request(self._listening, self._queues, handle)
                else:
                    wanted.error = RpmaError("Listener.incoming", _c.last_reason(), code)
            self._wanted.popleft()
            self.finish(wanted)

    def want(self) -> Wanted:
        wanted = Wanted()
        with self.lock:
            if self.is_closed:
                raise ClosedError("Listener", "the listener is closed")
            self._wanted.append(wanted)
        return wanted

    def unwant(self, wanted: Wanted) -> None:
        """It does not wait any more: somebody else gets the request."""
        with self.lock:
            if wanted.request is not None:
                if not self.is_closed:
                    self._given_back.append(wanted.request)
                    self.drive()
            elif wanted in self._wanted:
                self._wanted.remove(wanted)

    def shutdown(self) -> None:
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
            self.drive()
            self.ready.end()
            self._listening.release()
            self._given_back.clear()

    def drop(self) -> None:
        if not self.is_inherited():
            self.shutdown()


class Listener:
    """
    Listens for connections: `Peer.listen`.

    Requests that nobody takes are rejected when it is closed.

    All methods may be called by all threads and tasks at once; each request goes to one of those who wait.
    `fileno()` is readable when there is a request.
    """

    __slots__ = ("_endpoint", "_at", "_finalizer", "__weakref__")

    def __init__(self, peer: Peer, addr: str, port: int, send: int, receive: int) -> None:
        self._endpoint = Endpoint(peer._open("Peer.listen"), addr, port, (send, receive))
        self._at = addr, port
        self._finalizer = weakref.finalize(self, self._endpoint.drop)

    def incoming(self, *, timeout: float | None = None) -> Incoming:
        """
        The next request.

        Raises RpmaError if a connection could not be prepared; its request was rejected, and the listener
        remains usable. Raises ClosedError when the listener is closed, TimedOutError.
        """
        self._endpoint.check_process("Listener.incoming")
        wanted = self._endpoint.want()
        try:
            if not self._endpoint.wait(wanted, deadline_of(timeout)):
                raise TimedOutError("Listener.incoming", f"no request in {timeout} s", _c.E_NO_EVENT)
        except BaseException:
            self._endpoint.unwant(wanted)
            raise
        return _incoming(wanted)

    async def aincoming(self) -> Incoming:
        """`incoming` in an asyncio task."""
        self._endpoint.check_process("Listener.aincoming")
        wanted = self._endpoint.want()
        try:
            await self._endpoint.wait_async(wanted)
        except GeneratorExit:
            wanted.is_abandoned = True  # without the lock, as in wait_async
            raise
        except BaseException:
            self._endpoint.unwant(wanted)
            raise
        return _incoming(wanted)

    def accept(
        self,
        *,
        offer: Iterable[Region] = (),
        private_data: bytes = b"",
        raw: bool = False,
        timeout: float | None = None,
    ) -> Conn:
        """
        Accepts the next request: `incoming` and `Incoming.accept`.

        Wrong arguments are an error before it waits.
        """
        deadline = deadline_of(timeout)
        offer = _checked(offer, private_data, raw)
        request = self.incoming(timeout=timeout)
        return wait_established(request._begin(offer, private_data, raw), deadline, "Listener.accept")

    async def aaccept(
        self, *, offer: Iterable[Region] = (), private_data: bytes = b"", raw: bool = False
    ) -> Conn:
        """`accept` in an asyncio task."""
        offer = _checked(offer, private_data, raw)
        return await (await self.aincoming()).aaccept(offer=offer, private_data=private_data, raw=raw)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._endpoint.is_closed

    def close(self) -> None:
        """
        Stops listening; connections are not affected.

        Whoever waits for a request gets ClosedError. A request that was taken before can still be accepted;
        the port is in use until all of them are answered.
        """
        self._finalizer()

    def fileno(self) -> int:
        """A descriptor that is readable when there is a request."""
        self._endpoint.check_process("Listener.fileno")
        return self._endpoint.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Listener({self._at[0]}, {self._at[1]}{', closed' if self.closed else ''})"


def _checked(offer: Iterable[Region], private_data: bytes, raw: bool) -> tuple[Region, ...]:
    """The regions; what is wrong is found before a client comes."""
    regions = _private_data.offered(offer, "Listener.accept")
    _private_data.encode(regions, private_data, raw, "Listener.accept")
    return regions


def _incoming(wanted: Wanted) -> Incoming:
    if wanted.error is not None:
        raise wanted.error
    assert wanted.request is not None
    return Incoming(wanted.request)
