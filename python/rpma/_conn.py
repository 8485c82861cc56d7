# SPDX-License-Identifier: BSD-3-Clause
"""Connections, and their operations."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _c, _private_data
from ._errors import ClosedError, InvalidError, RangeError, TimedOutError
from ._c import COMPLETION_ALWAYS, ffi, lib
from ._link import Entry, Link
from ._peer import Device, Peer
from ._region import Memory, Region, Registered, Slice, viewed
from ._remote import Remote
from ._wait import deadline_of

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class Op(Generic[T]):
    """
    An operation that was posted: `await` it, or `wait` for it on a thread; both as often as one likes.

    It is executed whether or not somebody waits. Dropping it, the end of a timeout and the cancellation of a
    task that awaits it cancel nothing: the connection keeps the memory until the operation is complete. An
    operation that still waits for room in a queue is discarded, however, when nothing refers to the
    connection and its operations any more; `Conn.close` waits for it.
    """

    __slots__ = ("_conn", "_link", "_entry", "_result")

    def __init__(self, conn: Conn, link: Link, entry: Entry, result: Callable[[Entry], T]) -> None:
        # the connection lives as long as somebody may wait
        self._conn, self._link, self._entry, self._result = conn, link, entry, result

    def done(self) -> bool:
        """Whether it is complete."""
        self._link.check_process(self._entry.call)
        return self._link.is_done(self._entry)

    def wait(self, timeout: float | None = None) -> T:
        """
        Its result.

        Raises its failure, and TimedOutError after `timeout` seconds.
        """
        self._link.check_process(self._entry.call)
        if not self._link.wait(self._entry, deadline_of(timeout)):
            raise TimedOutError(
                self._entry.call, f"not complete after {timeout} s; it is not cancelled", _c.E_NO_COMPLETION
            )
        return self._value()

    def _value(self) -> T:
        if self._entry.error is not None:
            error = self._entry.error
            raise type(error)(error.call, error.reason, error.code)
        return self._result(self._entry)

    def __await__(self) -> Generator[Any, None, T]:
        self._link.check_process(self._entry.call)
        yield from self._link.wait_async(self._entry).__await__()
        return self._value()

    def __repr__(self) -> str:
        return f"Op({self._entry.call}{', complete' if self._entry.is_done else ''})"


class Local:
    """A range of registered memory as source or destination; `own` if it is registered for it alone."""

    __slots__ = ("registered", "offset", "length", "own")

    def __init__(
        self, registered: Registered | None, offset: int, length: int, own: Registered | None = None
    ) -> None:
        self.registered, self.offset, self.length, self.own = registered, offset, length, own

    def mr(self) -> Any:
        return ffi.NULL if self.registered is None else self.registered.mr[0]


def _nothing(entry: Entry) -> None:
    return None


def _check_remote(it: object, name: str, call: str, arguments: str) -> None:
    """`it` is memory of the peer: arguments are easily exchanged."""
    if not isinstance(it, Remote):
        raise TypeError(
            f"{call}({arguments}): {name} is a Remote, memory of the peer, not {type(it).__name__}"
        )


class Conn:
    """
    A connection to a peer: from `Peer.connect`, `rpma.connect` or `Listener.accept`.

    Operations are executed in the order of the calls, except that a read, and a flush, may be executed while
    earlier reads are not complete. Each has a form that blocks the thread (`read`), with the lock of the
    interpreter released, and one that posts it and returns an `Op` to await or to wait for (`aread`). More
    operations than fit into the queues wait for room.

    `timeout` is in seconds; when it has passed, TimedOutError is raised, and the operation remains in flight.
    A receive then stays posted and consumes the next message; keep the `Op` of `arecv` and wait again.

    Where memory is asked for, a `Region`, a range of one or any object with contiguous memory does. An object
    is registered for the time of the operation, which a region saves; it is used without a copy, and must not
    be changed meanwhile. Arguments are checked before anything is posted (RangeError, NotPermittedError,
    InvalidError). An operation fails with ClosedError when the connection ends, with LostError if that was
    because the peer was lost, and with RpmaError for any other status.

    All methods may be called by all threads and tasks at once. A child of fork(2) cannot use it. `fileno()`
    is readable when there is something to take, for loops of one's own, which call `Op.done`.
    """

    __slots__ = ("_link", "_remotes", "_private_data", "_finalizer", "__weakref__")

    def __init__(self, link: Link, data: bytes) -> None:
        self._link = link
        self._remotes, self._private_data = _private_data.decode(data)
        self._finalizer = weakref.finalize(self, link.drop)

    # ---- what the peer sent ----------------------------------------------------------------------

    @property
    def remotes(self) -> tuple[Remote, ...]:
        """The memory that the peer offered with the connection; a program in C offers none, but may send a
        descriptor: `Remote.from_bytes(conn.private_data)`."""
        return self._remotes

    @property
    def private_data(self) -> bytes:
        """The bytes that the peer's program sent with the connection; all of them, and perhaps zeros behind
        them, if the peer is a program in C."""
        return self._private_data

    @property
    def peer(self) -> Peer:
        """The peer that the connection was made from."""
        self._link.check_process("Conn.peer")
        return Peer._of(self._link.device)

    # ---- operations ------------------------------------------------------------------------------

    def read(self, source: Remote, *, timeout: float | None = None) -> bytearray:
        """Reads a range of the peer's memory."""
        return self.aread(source).wait(timeout)

    def aread(self, source: Remote) -> Op[bytearray]:
        """`read` as an operation."""
        self._check_read(source, "Conn.read", "source")
        data = bytearray(len(source))
        return self._read(source, data, lambda entry: data, "Conn.read")

    def read_into(self, source: Remote, to: Region | Slice | Memory, *, timeout: float | None = None) -> None:
        """Reads a range of the peer's memory into memory of the same length."""
        self.aread_into(source, to).wait(timeout)

    def aread_into(self, source: Remote, to: Region | Slice | Memory) -> Op[None]:
        """`read_into` as an operation."""
        self._check_read(source, "Conn.read_into", "source, to")
        return self._read(source, to, _nothing, "Conn.read_into")

    def write(self, data: Region | Slice | Memory, to: Remote, *, timeout: float | None = None) -> None:
        """
        Writes bytes to a range of the same length of the peer's memory.

        Behind it the data may be changed; the peer's program sees what was written behind a `flush`, an
        `atomic_write` or a message.
        """
        self.awrite(data, to).wait(timeout)

    def awrite(self, data: Region | Slice | Memory, to: Remote) -> Op[None]:
        """`write` as an operation."""
        call = "Conn.write"
        link = self._open(call)
        _check_remote(to, "to", call, "data, to")
        to._permits(_c.WRITE_DST, call, "write")
        source = self._local(link.device, data, False, call)
        to._fits(source.length, call)
        if source.length == 0:
            return self._add(
                link,
                call,
                _nothing,
                lambda conn, number: lib.rpma_write(
                    conn, ffi.NULL, 0, ffi.NULL, 0, 0, COMPLETION_ALWAYS, number
                ),
            )
        return self._add(
            link,
            call,
            _nothing,
            lambda conn, number: lib.rpma_write(
                conn,
                to._mr[0],
                to._offset,
                source.mr(),
                source.offset,
                source.length,
                COMPLETION_ALWAYS,
                number,
            ),
            source.own,
        )

    def atomic_write(self, value: int | bytes, to: Remote, *, timeout: float | None = None) -> None:
        """
        Writes 8 bytes, or a number in the byte order of this host, at once: a program that reads the new
        value sees all that was written before, too.

        `to` is 8 bytes long, at an address that is a multiple of 8.
        """
        self.aatomic_write(value, to).wait(timeout)

    def aatomic_write(self, value: int | bytes, to: Remote) -> Op[None]:
        """`atomic_write` as an operation."""
        call = "Conn.atomic_write"
        link = self._open(call)
        _check_remote(to, "to", call, "value, to")
        try:
            data = value.to_bytes(8, sys.byteorder) if isinstance(value, int) else bytes(value)
        except OverflowError:
            raise InvalidError(
                call, f"{value!r} does not fit an unsigned 64-bit integer", _c.E_INVAL
            ) from None
        to._permits(_c.WRITE_DST, call, "write")
        to._fits(len(data), call)
        if len(data) != 8:
            raise RangeError(call, f"{len(data)} bytes; it writes 8", _c.E_INVAL)
        if to._addr % 8 != 0 or to._offset % 8 != 0:
            raise InvalidError(call, "the address is not a multiple of 8", _c.E_INVAL)
        return self._add(
            link,
            call,
            _nothing,
            lambda conn, number: lib.rpma_atomic_write(
                conn, to._mr[0], to._offset, data, COMPLETION_ALWAYS, number
            ),
        )

    def flush(self, range: Remote, *, durable: bool = False, timeout: float | None = None) -> None:
        """
        Waits until all that was written to the range before is visible to the peer's program; with `durable`,
        until it survives a loss of power there.

        Raises NotPermittedError if the memory was exposed without Access.VISIBLE, NotDurableError without
        Access.PERSISTENT.
        """
        self.aflush(range, durable=durable).wait(timeout)

    def aflush(self, range: Remote, *, durable: bool = False) -> Op[None]:
        """`flush` as an operation."""
        link = self._open("Conn.flush")
        _check_remote(range, "range", "Conn.flush", "range")
        range._flushable(durable)
        offset, length = range._flushed()
        if durable:
            link.declare_durable()
        return self._add(
            link,
            "Conn.flush",
            _nothing,
            lambda conn, number: lib.rpma_flush(
                conn, range._mr[0], offset, length, 0 if durable else 1, COMPLETION_ALWAYS, number
            ),
        )

    def send(self, message: Region | Slice | Memory, *, timeout: float | None = None) -> None:
        """Sends a message, for which the peer must have posted a receive of at least this length, or must do
        so soon: some devices wait for it only for a while."""
        self.asend(message).wait(timeout)

    def asend(self, message: Region | Slice | Memory) -> Op[None]:
        """`send` as an operation."""
        link = self._open("Conn.send")
        source = self._local(link.device, message, False, "Conn.send")
        return self._add(
            link,
            "Conn.send",
            _nothing,
            lambda conn, number: lib.rpma_send(
                conn, source.mr(), source.offset, source.length, COMPLETION_ALWAYS, number
            ),
            source.own,
        )

    def recv(self, size: int, *, timeout: float | None = None) -> bytes:
        """
        Receives one message of at most `size` bytes.

        A longer one ends the connection. Messages are delivered to receives in posting order. A receive that
        has timed out stays posted and consumes the next message; keep the `Op` of `arecv` and wait again.
        """
        return self.arecv(size).wait(timeout)

    def arecv(self, size: int) -> Op[bytes]:
        """
        `recv` as an operation.

        Messages are delivered to receives in posting order. A receive that is dropped, cancelled or timed out
        stays posted and consumes the next message; keep its `Op` and wait again.
        """
        self._open("Conn.recv")
        if size < 0:
            raise InvalidError("Conn.recv", f"a size of {size} bytes", _c.E_INVAL)
        data = bytearray(size)
        return self._recv(data, lambda entry: bytes(memoryview(data)[: entry.length]), "Conn.recv")

    def recv_into(self, to: Region | Slice | Memory, *, timeout: float | None = None) -> int:
        """
        Receives one message into memory, and returns its length.

        Messages are delivered to receives in posting order. A receive that has timed out stays posted and
        consumes the next message; keep the `Op` of `arecv_into` and wait again.
        """
        return self.arecv_into(to).wait(timeout)

    def arecv_into(self, to: Region | Slice | Memory) -> Op[int]:
        """`recv_into` as an operation."""
        return self._recv(to, lambda entry: entry.length, "Conn.recv_into")

    # ---- the end ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether one side has closed the connection, or it was lost, as of the last event taken; takes the
        events that have arrived."""
        if not self._link.is_inherited():
            self._link.is_done(self._link.ended)
        return self._link.error is not None

    def wait_closed(self, *, timeout: float | None = None) -> ClosedError:
        """Waits until the connection has ended, and returns how: ClosedError if one side closed it, LostError
        if it broke."""
        link = self._link
        link.check_process("Conn.wait_closed")
        if not link.wait(link.ended, deadline_of(timeout)):
            raise TimedOutError(
                "Conn.wait_closed", f"the connection still exists after {timeout} s", _c.E_NO_EVENT
            )
        return self._how()

    async def await_closed(self) -> ClosedError:
        """`wait_closed` in an asyncio task."""
        self._link.check_process("Conn.await_closed")
        await self._link.wait_async(self._link.ended)
        return self._how()

    def _how(self) -> ClosedError:
        error = self._link.error
        return error if isinstance(error, ClosedError) else ClosedError("Conn", "the connection is closed")

    def close(self, *, timeout: float = 5.0) -> None:
        """
        Waits at most `timeout` seconds for the operations other than receives, then closes the connection:
        the peer gets an event, and what is not complete fails with ClosedError.

        It raises nothing if the connection was lost. A `with` block that an exception ends does not wait.
        Dropping the last reference to the connection and its operations does not wait, either.
        """
        if not self._link.is_inherited():
            self._link.close(timeout)
        self._finalizer.detach()

    async def aclose(self, *, timeout: float = 5.0) -> None:
        """`close` in an asyncio task."""
        if not self._link.is_inherited():
            try:
                await asyncio.wait_for(self._link.aclose(), timeout)
            except asyncio.TimeoutError:
                pass
            except GeneratorExit:
                raise  # without the lock, as in wait_async; the finalizer deletes the connection
            except BaseException:
                self._link.delete()
                raise
            self._link.delete()
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(timeout=0.0 if error is not None else 5.0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose(timeout=0.0 if error is not None else 5.0)

    def fileno(self) -> int:
        """A descriptor that is readable when there is something to take."""
        return self._open("Conn.fileno").fileno()

    def __repr__(self) -> str:
        return "Conn" if self._link.error is None else "Conn(closed)"

    # ---- common to operations --------------------------------------------------------------------

    def _open(self, call: str) -> Link:
        self._link.check_process(call)
        if self._link.error is not None:
            self._link.check_open(call)
        return self._link

    def _add(
        self,
        link: Link,
        call: str,
        result: Callable[[Entry], T],
        post: Callable[[Any, Any], int],
        own: Registered | None = None,
        is_receive: bool = False,
    ) -> Op[T]:
        entry = Entry(call, post, own)
        link.add(entry, is_receive)
        return Op(self, link, entry, result)

    def _check_read(self, source: Remote, call: str, arguments: str) -> None:
        self._open(call)
        _check_remote(source, "source", call, arguments)
        source._permits(_c.READ_SRC, call, "read")
        source._fits(source._len, call)

    def _read(
        self, source: Remote, to: Region | Slice | Memory, result: Callable[[Entry], T], call: str
    ) -> Op[T]:
        link = self._link
        target = self._local(link.device, to, True, call)
        source._fits(target.length, call)
        if target.length == 0:
            return self._add(
                link,
                call,
                result,
                lambda conn, number: lib.rpma_read(
                    conn, ffi.NULL, 0, ffi.NULL, 0, 0, COMPLETION_ALWAYS, number
                ),
            )
        return self._add(
            link,
            call,
            result,
            lambda conn, number: lib.rpma_read(
                conn,
                target.mr(),
                target.offset,
                source._mr[0],
                source._offset,
                target.length,
                COMPLETION_ALWAYS,
                number,
            ),
            target.own,
        )

    def _recv(self, to: Region | Slice | Memory, result: Callable[[Entry], T], call: str) -> Op[T]:
        link = self._open(call)
        target = self._local(link.device, to, True, call)
        return self._add(
            link,
            call,
            result,
            lambda conn, number: lib.rpma_recv(conn, target.mr(), target.offset, target.length, number),
            target.own,
            is_receive=True,
        )

    def _local(self, device: Device, memory: Region | Slice | Memory, must_write: bool, call: str) -> Local:
        """The memory, which is registered if it is not a region."""
        if isinstance(memory, (Region, Slice)):
            local = _of_region(memory, device, call)
        else:
            local = _registered(memory, device, call)
        if local.length > _c.MOST_OF_ONE_OPERATION:
            raise RangeError(
                call, f"{local.length} bytes; one operation transfers less than 4 GiB", _c.E_INVAL
            )
        if must_write and local.registered is not None and not local.registered.is_writable:
            raise InvalidError(call, "the memory is read-only", _c.E_INVAL)
        return local


def _of_region(memory: Region | Slice, device: Device, call: str) -> Local:
    region = memory if isinstance(memory, Region) else memory._region
    registered = region._open(call)
    if region.access:
        raise InvalidError(
            call,
            "the region is exposed to peers: use its view, or Peer.region of the same memory",
            _c.E_INVAL,
        )
    if registered.device is not device:
        raise InvalidError(call, "the region is of another Peer than the connection", _c.E_INVAL)
    return Local(registered, memory._offset if isinstance(memory, Slice) else 0, len(memory))


def _registered(memory: Memory, device: Device, call: str) -> Local:
    with viewed(memory, call) as view:
        length = view.nbytes
    own = Registered(device, memory, None, call) if length > 0 else None
    return Local(own, 0, length, own)
