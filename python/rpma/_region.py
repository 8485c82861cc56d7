# SPDX-License-Identifier: BSD-3-Clause
"""Registered memory of this process."""

from __future__ import annotations

import enum
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from . import _c
from ._errors import ClosedError, InvalidError, RangeError
from ._c import OfProcess, check, ffi, lib
from ._remote import Remote

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from ._peer import Device


class HasArray(Protocol):
    """An array of NumPy, whose types say only from Python 3.12 on that it has memory."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


Memory: TypeAlias = "Buffer | HasArray"

# The sources and destinations of operations; of memory that is read-only, the sources.
SOURCE = _c.WRITE_SRC | _c.SEND
LOCAL = SOURCE | _c.READ_DST | _c.RECV

# Memory that is or may be registered without a handle with which it can be deregistered: a device or a peer
# may still write there. By the identity of the buffer.
_never_freed: dict[int, Any] = {}
# While a handle is taken.
_taking = threading.RLock()


class Access(enum.IntFlag):
    """What peers may do with exposed memory; combined with `|`."""

    READ = _c.READ_SRC
    """Read it."""

    WRITE = _c.WRITE_DST
    """Write it, also atomically."""

    VISIBLE = _c.FLUSH_VISIBLE
    """
    Flush it: behind `Conn.flush`, what was written is seen here.

    Peers can then read it as well.
    """

    PERSISTENT = _c.FLUSH_PERSISTENT
    """
    Flush it to persistence: behind `Conn.flush(..., durable=True)`, what was written survives a loss of
    power.

    It is for a shared mapping of a file on a medium that keeps it (`Peer.expose_file`), and for persistent
    memory. With software RDMA, other memory (a number of bytes, a bytearray, an anonymous mmap) is exposed and
    flushed without an error as well, but then the flush makes nothing durable: what was written is lost with
    the process.

    Peers can then read it as well.
    """


class Registered(OfProcess):
    """Memory that is registered until nothing refers to it any more: neither a region nor an operation in
    flight."""

    __slots__ = ("device", "memory", "buffer", "mr", "descriptor", "is_writable", "_left", "__weakref__")

    def __init__(self, device: Device, buffer: Memory, access: Access | None, call: str) -> None:
        super().__init__()
        self._left: list[Any] = []  # what is not deregistered yet
        self.device = device
        self.memory = buffer  # so that `end` does not free it
        self.buffer, self.is_writable = _exported(buffer, access, call)
        usage = (LOCAL if self.is_writable else SOURCE) if access is None else int(access)
        mr = ffi.new("struct rpma_mr_local **")
        # An exception of a signal handler may come at any place.
        _never_freed[id(self.buffer)] = self.buffer
        code = lib.rpma_mr_reg(device.peer[0], ffi.cast("void *", self.buffer), len(self.buffer), usage, mr)
        if code == 0:
            device.use()
            self._left = [mr]
        del _never_freed[id(self.buffer)]
        check(code, call)
        self.mr = mr
        self.descriptor = b""
        if access is not None:
            descriptor = ffi.new("char[]", _c.SIZE_OF_DESCRIPTOR)
            check(lib.rpma_mr_get_descriptor(mr[0], descriptor), call)
            self.descriptor = bytes(ffi.buffer(descriptor))

    def release(self) -> None:
        """
        Deregisters it.

        If that fails, a peer may still write there: then it is never freed.
        """
        if self.is_inherited():
            return
        with _taking:
            if not self._left:
                return  # another thread does it, and may fail
            # Before `pop`, behind which an exception of a signal handler loses the handle.
            _never_freed[id(self.buffer)] = self.buffer
            mr = self._left.pop()
        try:
            check(lib.rpma_mr_dereg(mr), "Region.close")
        finally:
            self.device.release()
        del _never_freed[id(self.buffer)]
        ffi.release(self.buffer)

    def end(self, never_freed: Any = _never_freed, lib: Any = lib, ffi: Any = ffi) -> None:
        """`release`, without an exception."""
        if self.is_inherited() or not self._left:
            return
        never_freed[id(self.buffer)] = self.buffer
        if lib.rpma_mr_dereg(self._left.pop()) == 0:
            del never_freed[id(self.buffer)]
            ffi.release(self.buffer)
        self.device.release()

    __del__ = end


def _exported(buffer: Memory, access: Access | None, call: str) -> tuple[Any, bool]:
    """The bytes of an object, and whether they can be written."""
    must_write = access is not None and Access.WRITE in access
    with viewed(buffer, call) as view:
        if not view.c_contiguous:
            raise InvalidError(call, "the memory is not contiguous, in the order of C")
        if view.nbytes == 0:
            raise InvalidError(call, "the memory has no bytes")
        if must_write and view.readonly:
            raise InvalidError(call, "the memory is read-only, and access has WRITE")
        is_writable = not view.readonly
    return ffi.from_buffer("char[]", buffer, require_writable=is_writable), is_writable


def viewed(buffer: Memory, call: str) -> memoryview:
    """The memory of an object."""
    try:
        return memoryview(cast("Buffer", buffer))
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidError(
            call, f"{type(buffer).__name__} does not support the buffer protocol: {error}", _c.E_INVAL
        ) from None


class Slice:
    """A range of a region, for operations; its bytes are `view`."""

    __slots__ = ("_region", "_offset", "_len")

    def __init__(self, region: Region, offset: int, length: int) -> None:
        self._region, self._offset, self._len = region, offset, length

    @property
    def view(self) -> memoryview:
        """The bytes, without a copy."""
        return self._region.view[self._offset:self._offset + self._len]

    def __getitem__(self, range: slice) -> Slice:
        offset, length = inside(range, self._len, "Region")
        return Slice(self._region, self._offset + offset, length)

    def __len__(self) -> int:
        return self._len

    def __bytes__(self) -> bytes:
        return bytes(self.view)

    def __repr__(self) -> str:
        return f"{self._region!r}[{self._offset}:{self._offset + self._len}]"


class Region:
    """
    Registered memory: `Peer.region`, for operations of this process, `Peer.expose` and `Peer.expose_file`,
    for peers.

    `view` is its bytes, without a copy: a memoryview, which NumPy takes as well
    (`numpy.frombuffer(region.view, ...)`); from Python 3.12 on, `memoryview(region)` is the same.
    `region[from:to]` is a range of it, for operations. A view stays valid when the region is closed.
    """

    __slots__ = ("_registered", "_bytes", "_len", "_access", "_is_durable", "__weakref__")

    def __init__(self, registered: Registered, buffer: Memory, access: Access, is_durable: bool) -> None:
        self._registered: Registered | None = registered
        self._bytes: memoryview | None = _bytes_of(buffer)
        self._len = self._bytes.nbytes
        self._access, self._is_durable = access, is_durable

    def _open(self, call: str) -> Registered:
        if self._registered is None:
            raise ClosedError(call, "the region is closed")
        self._registered.check_process(call)
        return self._registered

    @property
    def view(self) -> memoryview:
        """The bytes, without a copy."""
        view = self._bytes
        self._open("Region.view")
        if view is None:  # another thread closes it
            raise ClosedError("Region.view", "the region is closed")
        return view[:]

    def __buffer__(self, flags: int) -> memoryview:
        return self.view

    @property
    def access(self) -> Access:
        """What peers may do with it."""
        return self._access

    @property
    def remote(self) -> Remote:
        """
        The memory as peers use it.

        `bytes(region.remote)` is its descriptor: whoever has these bytes and a connection to this peer may
        access the memory. They go with a connection (`offer=`) or in a way of the program's own.

        Raises InvalidError if it is not exposed.
        """
        registered = self._open("Region.remote")
        if not self._access:
            raise InvalidError("Region.remote", "the region is not exposed; Peer.expose does that")
        return Remote.from_bytes(registered.descriptor + bytes([self._is_durable]))

    def __getitem__(self, range: slice) -> Slice:
        offset, length = inside(range, len(self), "Region")
        return Slice(self, offset, length)

    def __len__(self) -> int:
        return self._len

    def __bytes__(self) -> bytes:
        return bytes(self.view)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._registered is None

    def close(self) -> None:
        """
        Ends the access of peers: operations of theirs that come later fail with NotPermittedError.

        If operations of this process still use the region, it is deregistered with the last of them. The
        memory is kept as long.

        Raises RpmaError if a peer process of this host was stopped in the middle of a copy and did not
        continue within 5 seconds; then the memory is never freed.
        """
        registered, self._registered = self._registered, None
        self._bytes = None
        if registered is not None and self._access:
            registered.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else f", {self._access!r}" if self._access else ""
        return f"Region({len(self)} bytes{state})"


def _bytes_of(buffer: Memory) -> memoryview:
    return memoryview(cast("Buffer", buffer)).cast("B")


def inside(range: slice, size: int, call: str) -> tuple[int, int]:
    """Offset and length of a range that must be inside, unlike those of Python's sequences."""
    if not isinstance(range, slice):
        raise TypeError(f"{call}: a range [from:to], not {range!r}")
    if range.step not in (None, 1):
        raise RangeError(f"{call}[{range.start}:{range.stop}:{range.step}]", "a range has no step")
    start = 0 if range.start is None else range.start.__index__()
    stop = size if range.stop is None else range.stop.__index__()
    if not 0 <= start <= stop <= size:
        is_reversed = 0 <= stop < start <= size
        reason = "it begins after its end" if is_reversed else f"it is outside the {size} bytes of the memory"
        raise RangeError(f"{call}[{start}:{stop}]", reason)
    return start, stop - start
