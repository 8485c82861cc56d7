# SPDX-License-Identifier: BSD-3-Clause
"""The connection of the library with its operations."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from . import _c
from ._errors import ClosedError, LostError, NotPermittedError, RefusedError, RpmaError, UnreachableError
from ._c import check, ffi, lib
from ._peer import Device
from ._region import Registered
from ._wait import Event, Waiting

# What connections that could not be deleted still use: the device may access it.
_never_freed: list[Any] = []

STATUS = {
    _c.WC_WR_FLUSH_ERR: (ClosedError, "the connection is closed"),
    _c.WC_REM_ACCESS_ERR: (
        NotPermittedError,
        "the peer does not permit this access; it may have closed the region",
    ),
    _c.WC_RETRY_EXC_ERR: (LostError, "the peer does not answer any more"),
}


class Entry(Event):
    """
    An operation, from the call to its completion.

    `post` posts it for a connection, with a number that is in its completion; it refers to the memory that is
    used, and so keeps it until then. `own` is what was registered for this operation alone.
    """

    __slots__ = ("call", "post", "own", "error", "length")

    def __init__(self, call: str, post: Callable[[Any, Any], int], own: Registered | None) -> None:
        super().__init__()
        self.call, self.own = call, own
        self.post: Callable[[Any, Any], int] | None = post
        self.error: RpmaError | None = None
        self.length = 0


class Queue:
    """The operations that wait for room in the send or receive queue."""

    __slots__ = ("room", "waiting")

    def __init__(self, room: int) -> None:
        self.room = room
        self.waiting: deque[Entry] = deque()


class Link(Waiting):
    """All methods without an underscore take the lock, except where stated."""

    def __init__(self, device: Device, handle: Any, send: int, receive: int) -> None:
        self.device = device
        self._handle = handle  # struct rpma_conn **
        self._is_deleted = False
        fd, cq = ffi.new("int *"), ffi.new("struct rpma_cq **")
        lib.rpma_conn_get_cq(handle[0], cq)
        self._cq = cq[0]
        lib.rpma_cq_get_fd(self._cq, fd)
        fds = [fd[0]]
        lib.rpma_conn_get_event_fd(handle[0], fd)
        fds.append(fd[0])
        for each in fds:
            os.set_blocking(each, False)
        super().__init__(*fds)
        self._wc, self._got, self._event = ffi.new("struct ibv_wc *"), ffi.new("int *", 0), ffi.new("int *")
        self._sends, self._receives = Queue(send), Queue(receive)
        self._posted: dict[int, tuple[Entry, Queue]] = {}
        self._next = 1
        self.established, self.ended = Event(), Event()
        self._error: RpmaError | None = None
        self._is_closing = self._may_flush = False
        # a peer may have closed it since
        self.was_established = False
        self._is_dropped = False
        device.use()

    # ---- operations ------------------------------------------------------------------------------

    def add(self, entry: Entry, is_receive: bool) -> None:
        """Posts an operation, or puts it behind those that wait for room."""
        queue = self._receives if is_receive else self._sends
        with self.lock:
            if self._error is not None or self._is_closing:
                raise self._closed(entry.call)
            queue.waiting.append(entry)
            self._post(queue)

    def is_done(self, event: Event) -> bool:
        """Whether it has happened; takes completions and events, but does not wait."""
        with self.lock:
            if not event.is_done:
                self.drive()
            return event.is_done

    def _post(self, queue: Queue) -> None:
        while queue.waiting and queue.room > 0 and not self._is_deleted:
            entry, number = queue.waiting[0], self._next
            # Before it is posted: an exception of a signal handler may come at any place.
            self._posted[number] = entry, queue
            self._next += 1
            queue.waiting.popleft()
            queue.room -= 1
            assert entry.post is not None
            code = entry.post(self._handle[0], ffi.cast("void *", number))
            if code != 0:
                error = RpmaError(entry.call, _c.last_reason() or _c.text(lib.rpma_err_2str(code)), code)
                self._end_entry(number, self._failure(entry, error))

    def _failure(self, entry: Entry, error: RpmaError) -> RpmaError:
        return self._closed(entry.call) if self._error is not None or self._is_closing else error

    def _end_entry(self, number: int, error: RpmaError | None, length: int = 0) -> None:
        entry, queue = self._posted[number]
        entry.error, entry.length = error, length
        self._let_go(entry)
        self.finish(entry)
        del self._posted[number]
        queue.room += 1

    def _let_go(self, entry: Entry) -> None:
        """The program may resize or close its memory at once; it is freed without the lock."""
        if entry.own is not None:
            entry.own.end()
        self.lock.dropped.append(entry.post)
        entry.post = entry.own = None

    def _complete(self) -> None:
        """
        Takes completions.

        One at a time: what the library has reported is in `_got` and `_wc` until it has been dealt with.
        """
        if self._is_deleted:
            return
        found, code = False, 0
        while self._got[0] > 0 or (code := lib.rpma_cq_get_wc(self._cq, 1, self._wc, self._got)) == 0:
            found = True
            number = self._wc.wr_id
            if number in self._posted:
                self._end_entry(number, *self._result(self._wc, self._posted[number][0]))
            self._got[0] = 0
        if code != _c.E_NO_COMPLETION:
            self._fail(code)
        elif found:
            self._post(self._sends)
            self._post(self._receives)

    def _result(self, wc: Any, entry: Entry) -> tuple[RpmaError | None, int]:
        if wc.status == _c.WC_SUCCESS:
            return None, 0 if wc.opcode == _c.WC_RECV_RDMA_WITH_IMM else wc.byte_len
        if wc.status == _c.WC_WR_FLUSH_ERR and self._error is not None:
            return self._closed(entry.call), 0
        kind, reason = STATUS.get(wc.status, (RpmaError, ""))
        if not reason:
            reason = _c.last_reason() or f"the completion has the status {wc.status}"
        return kind(entry.call, reason, wc.status), 0

    # ---- events ----------------------------------------------------------------------------------

    def drive(self) -> None:
        while not self._is_deleted:
            self._complete()
            if self._is_deleted:
                return
            code = lib.rpma_cq_wait(self._cq)
            if code == _c.E_NO_COMPLETION:
                break
            if code != 0:
                self._fail(code)
        while not self._is_deleted:
            code = lib.rpma_conn_next_event(self._handle[0], self._event)
            if code in (_c.E_NO_EVENT, _c.E_UNKNOWN):  # none, or one that means nothing here
                break
            if code == 0:
                self._take(self._event[0])
            else:
                self._fail(code)

    def _fail(self, code: int) -> None:
        """Nothing more can be taken: the connection is lost."""
        reason = _c.last_reason() or _c.text(lib.rpma_err_2str(code))
        self._error = self._error or LostError("Conn", reason, code)
        self._delete()

    def _take(self, event: int) -> None:
        if event == _c.ESTABLISHED:
            self.was_established = True
            self.finish(self.established)
            return
        reason = _c.last_reason()
        if event == _c.CLOSED:
            # The request of the peer: this side ends, too, so that what is still posted completes.
            if not self._is_closing:
                self._is_closing = True
                lib.rpma_conn_disconnect(self._handle[0])
            self._end(ClosedError("Conn", "the connection is closed"))
        elif event == _c.REJECTED:
            self._end(RefusedError("Peer.connect", reason or "the connection was refused"))
        elif event == _c.UNREACHABLE:
            self._end(UnreachableError("Peer.connect", reason or "the peer does not answer"))
        else:
            self._end(LostError("Conn", reason or "the connection broke"))

    def _end(self, error: RpmaError) -> None:
        if self._error is None:
            self._error = error
        for queue in self._sends, self._receives:
            while queue.waiting:
                entry = queue.waiting.popleft()
                entry.error = self._closed(entry.call)
                self._let_go(entry)
                self.finish(entry)
        self.finish(self.ended)
        self.finish(self.established)

    def _closed(self, call: str) -> RpmaError:
        error = self._error
        if error is None:
            return ClosedError(call, "the connection is closed")
        return type(error)(call, error.reason, error.code)

    def check_open(self, call: str) -> None:
        """Raises how it ended, if it has."""
        with self.lock:
            if self._error is not None:
                raise self._closed(call)

    @property
    def error(self) -> RpmaError | None:
        """How the connection ended."""
        return self._error

    def private_data(self) -> bytes:
        """What the peer sent when the connection was established."""
        with self.lock:
            if self._is_deleted:
                raise self._closed("Conn")
            return get_private_data(lib.rpma_conn_get_private_data, self._handle[0])

    def declare_durable(self) -> None:
        """Permits flushes to persistence: the peer has declared for the memory in question that they are
        possible."""
        with self.lock:
            if self._may_flush or self._is_deleted:
                return
            cfg = ffi.new("struct rpma_peer_cfg **")
            check(lib.rpma_peer_cfg_from_descriptor(b"\1", 1, cfg), "Conn.flush")
            code = lib.rpma_conn_apply_remote_peer_cfg(self._handle[0], cfg[0])
            lib.rpma_peer_cfg_delete(cfg)
            check(code, "Conn.flush")
            self._may_flush = True

    # ---- the end ---------------------------------------------------------------------------------

    def outstanding(self) -> list[Entry]:
        """The operations that are not complete, without receives."""
        with self.lock:
            posted = [entry for entry, queue in self._posted.values() if queue is self._sends]
            return posted + list(self._sends.waiting)

    def disconnect(self) -> None:
        """Begins to close: no operation can be added any more."""
        with self.lock:
            if self._is_deleted or self._is_closing or self._error is not None:
                return
            self._is_closing = True
            lib.rpma_conn_disconnect(self._handle[0])

    def close(self, timeout: float) -> None:
        """Waits, then deletes the connection."""
        deadline = time.monotonic() + timeout
        for entry in self.outstanding():
            if not self.wait(entry, deadline):
                break
        self.disconnect()
        self.wait(self.ended, deadline)
        self.delete()

    async def aclose(self) -> None:
        for entry in self.outstanding():
            await self.wait_async(entry)
        self.disconnect()
        await self.wait_async(self.ended)

    def delete(self) -> None:
        """Deletes the connection; from then on the device uses no memory of its operations."""
        with self.lock:
            self._delete()

    def _delete(self) -> None:
        if self._is_deleted:
            return
        self._is_deleted = True
        if not self._is_closing and self._error is None:
            lib.rpma_conn_disconnect(self._handle[0])
        self._is_closing = True
        code = lib.rpma_conn_delete(self._handle)
        self.device.release()
        left = list(self._posted.values())
        if code != 0:
            # The queue pair may still exist.
            for entry, _ in left:
                _never_freed.append(entry.post)
                entry.own = None
        self._end(ClosedError("Conn", "the connection is closed"))
        for number in list(self._posted):
            self._end_entry(number, self._closed(self._posted[number][0].call))
        self.ready.end()

    def drop(self) -> None:
        """
        Deletes it with the last object that uses it.

        The garbage collector may run while this thread has the lock in
        `_on_readable`, which then does it.
        """
        self._is_dropped = True
        if not self.is_inherited() and self.lock.acquire(blocking=False):
            try:
                self._delete()
            finally:
                self.lock.__exit__(None, None, None)

    def _on_readable(self) -> None:
        super()._on_readable()
        if self._is_dropped:
            self.delete()


def private_data_of(view: Any) -> bytes:
    return b"" if view.ptr == ffi.NULL else bytes(ffi.buffer(view.ptr, view.len))


def get_private_data(get: Any, handle: Any) -> bytes:
    """The private data of a connection or of a request for one."""
    view = ffi.new("struct rpma_conn_private_data *")
    check(get(handle, view), "private data")
    return private_data_of(view)


def configuration(send: int, receive: int, timeout: float | None) -> Any:
    """A configuration with a completion queue that cannot overflow."""
    cfg = ffi.new("struct rpma_conn_cfg **")
    check(lib.rpma_conn_cfg_new(cfg), "a connection")
    cfg = ffi.gc(cfg, lib.rpma_conn_cfg_delete)
    lib.rpma_conn_cfg_set_sq_size(cfg[0], send)
    lib.rpma_conn_cfg_set_rq_size(cfg[0], receive)
    lib.rpma_conn_cfg_set_cq_size(cfg[0], send + receive)
    if timeout is not None:
        lib.rpma_conn_cfg_set_timeout(cfg[0], min(max(1, int(timeout * 1000)), 2**31 - 1))
    return cfg


def begin(device: Device, request: Any, data: bytes, send: int, receive: int, call: str) -> Link:
    """
    Sends a connection request, or accepts one.

    The request is consumed.
    """
    handle = ffi.new("struct rpma_conn **")
    view, keep = ffi.NULL, None
    if data:
        keep = ffi.from_buffer(data)
        view = ffi.new("struct rpma_conn_private_data *", {"ptr": ffi.cast("void *", keep), "len": len(data)})
    check(lib.rpma_conn_req_connect(request, view, handle), call)
    try:
        return Link(device, handle, send, receive)
    except BaseException:
        lib.rpma_conn_delete(handle)
        raise
