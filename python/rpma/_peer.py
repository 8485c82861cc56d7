# SPDX-License-Identifier: BSD-3-Clause
"""
Peers: a device of this host.

What is made from one is in the file of its type.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from . import _c
from ._errors import ClosedError, InvalidError, OutOfMemoryError, UnreachableError
from ._c import Counted, check, ffi, lib
from ._region import Access, Memory, Region, Registered

# Regions get memfds as long as these have smaller numbers.
MAX_DESCRIPTOR = 256
# The memory of a memfd is allocated at once. For fewer bytes the available memory is not read, which takes
# longer than the allocation.
COMPARED_FROM = 1 << 20
MEMINFO = "/proc/meminfo"

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._conn import Conn
    from ._listen import Listener


class Device(Counted):
    """
    The peer of the library.

    It is deleted after the last object of the library that was made from it.
    """

    def __init__(self, addr: str, is_local: bool, call: str) -> None:
        self.peer = ffi.new("struct rpma_peer **")
        super().__init__(partial(lib.rpma_peer_delete, self.peer))
        context = ffi.new("struct ibv_context **")
        check(
            lib.rpma_utils_get_ibv_context(addr.encode(), 0 if is_local else 1, context),
            call,
            UnreachableError,
        )
        check(lib.rpma_peer_new(context[0], self.peer), call)
        device = context[0].device
        self.name = _c.text(device.name)
        self.is_soft = self.name == "soft0" and device.ibdev_path[0] == b"\0"

    def __del__(self) -> None:
        self.release()


class Peer:
    """
    A device of this host, from which memory, listeners and connections are made.

    `addr` is a local address; an RDMA device that has it is used, and software RDMA if none has. The
    environment variable `RPMA_PROVIDER` (`auto`, `rdma-core`, `soft`) changes this choice;
    librpma_providers(7) describes it. `Peer.to` takes the address of a remote host instead.

    What was made from a peer can be used after the peer was closed. All methods may be called by all threads.
    A child of fork(2) cannot use the objects of its parent (RpmaError), and makes its own.

    Raises UnreachableError if no device serves the address.
    """

    __slots__ = ("_device", "__weakref__")

    def __init__(self, addr: str = "127.0.0.1") -> None:
        self._device: Device | None = Device(addr, True, f"Peer({addr!r})")

    @classmethod
    def to(cls, addr: str) -> Self:
        """The device through which a remote address is reached."""
        self = cls.__new__(cls)
        self._device = Device(addr, False, f"Peer.to({addr!r})")
        return self

    @classmethod
    def _of(cls, device: Device) -> Peer:
        self = cls.__new__(cls)
        self._device = device
        return self

    def _open(self, call: str) -> Device:
        if self._device is None:
            raise ClosedError(call, "the peer is closed")
        self._device.check_process(call)
        return self._device

    @property
    def device(self) -> str:
        """The name of the device: "soft0" is software RDMA."""
        return self._open("Peer.device").name

    def region(self, memory: int | Memory) -> Region:
        """
        Registers memory for operations of this process: the source and destination of reads, writes and
        messages.

        `memory` is a number of bytes, for new memory, or any object with contiguous memory (bytearray, mmap,
        a NumPy array), which is used without a copy. It may be read-only; then it is a source alone. As long
        as the region is open or used by an operation, the object cannot be resized or closed (BufferError).

        New memory is zeros that peers on the same host map. If it would take more than half of what the host
        has available (`MemAvailable` of `/proc/meminfo`), it is allocated when it is first used, and they do
        not map it, which makes operations slower.

        Raises InvalidError for a size of 0 and for memory that is not contiguous, OutOfMemoryError if the
        kernel refuses the size, as it does for more than the host has (unless `vm.overcommit_memory` is 1).
        """
        device = self._open("Peer.region")
        buffer = _buffer(memory, "Peer.region")
        return Region(Registered(device, buffer, None, "Peer.region"), buffer, Access(0), False)

    def expose(
        self, memory: int | Memory, access: Access, direct_write_to_pmem: bool | None = None
    ) -> Region:
        """
        Registers memory that peers may access as `access` says, once they have its descriptor
        (`Region.remote`).

        `memory` is as for `region`, and not read-only if `access` has WRITE. Peers access it at any time, so
        the program sees single bytes of a write, in any order, until a message or a flag behind it says that
        it is complete.

        PERSISTENT is for shared mappings of files, which `expose_file` makes: a flush makes them durable. It
        succeeds for other memory as well, and then makes nothing durable (`Access.PERSISTENT`).
        With an adapter it is for persistent memory alone, and `direct_write_to_pmem` must be true; it
        declares that what the adapter writes does not stay in a cache of the processor.
        """
        device = self._open("Peer.expose")
        if not access:
            raise InvalidError(
                "Peer.expose", "access is empty; Peer.region registers memory for this process alone"
            )
        access = Access(access)
        buffer = _buffer(memory, "Peer.expose")
        is_durable = Access.PERSISTENT in access and (
            device.is_soft if direct_write_to_pmem is None else direct_write_to_pmem
        )
        return Region(Registered(device, buffer, access, "Peer.expose"), buffer, access, is_durable)

    def expose_file(
        self,
        file: str | os.PathLike[str] | BinaryIO,
        size: int,
        access: Access,
        direct_write_to_pmem: bool | None = None,
    ) -> Region:
        """
        Exposes the first `size` bytes of a file, a path or an open file.

        It is created if it is not there, and extended if it is shorter; what peers write is in the file. A
        file that is truncated meanwhile ends a process that accesses the lost part (SIGBUS).
        """
        self._open("Peer.expose_file")
        if size <= 0:
            raise InvalidError("Peer.expose_file", f"a size of {size} bytes")
        if isinstance(file, (str, os.PathLike)):
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                return self.expose(_mapped(fd, size), access, direct_write_to_pmem)
            finally:
                os.close(fd)
        return self.expose(_mapped(file.fileno(), size), access, direct_write_to_pmem)

    def listen(self, addr: str, port: int, *, send: int = 64, receive: int = 64) -> Listener:
        """
        Listens for connections at a local address and port.

        `send` and `receive` are the numbers of operations that each of its connections posts at once; more of
        them wait.

        Raises RpmaError, for example if the address is in use.
        """
        from ._listen import Listener

        return Listener(self, addr, port, send, receive)

    def connect(
        self,
        addr: str,
        port: int,
        *,
        offer: Iterable[Region] = (),
        private_data: bytes = b"",
        raw: bool = False,
        send: int = 64,
        receive: int = 64,
        timeout: float | None = None,
    ) -> Conn:
        """
        Connects to a peer that listens there.

        The peer gets the descriptors of the regions that are offered (`Conn.remotes`) and `private_data`
        (`Conn.private_data`). With `raw` it gets the bytes alone, as a program in C expects them; then there
        is no offer. `send` and `receive` are the numbers of operations that are posted at once; more of them
        wait.

        Raises RefusedError, UnreachableError, LostError, TimedOutError.
        """
        from . import _connect

        return _connect.connect(self, addr, port, offer, private_data, raw, (send, receive), timeout)

    async def aconnect(
        self,
        addr: str,
        port: int,
        *,
        offer: Iterable[Region] = (),
        private_data: bytes = b"",
        raw: bool = False,
        send: int = 64,
        receive: int = 64,
    ) -> Conn:
        """
        As `connect`, in an asyncio task.

        A name is resolved by the loop, in a thread of it; an address needs none. The device may take a while
        to find the route to the address, without awaiting.
        """
        from . import _connect

        return await _connect.aconnect(self, addr, port, offer, private_data, raw, (send, receive))

    def close(self) -> None:
        """Closes it; the device is released with the last object that was made from it."""
        self._device = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return "Peer(closed)" if self._device is None else f"Peer({self._device.name})"


def _buffer(memory: int | Memory, call: str) -> Memory:
    if not isinstance(memory, int):
        return memory
    if memory <= 0:
        raise InvalidError(call, f"a size of {memory} bytes")
    try:
        return _new_memory(memory)
    except (OSError, OverflowError) as error:
        reason = f"a size of {memory} bytes: {getattr(error, 'strerror', None) or error}"
        raise OutOfMemoryError(call, reason, _c.E_NOMEM) from None


def _new_memory(size: int) -> mmap.mmap:
    """
    Memory that peers on the same host can map (librpma_providers(7), Memory): a memfd that cannot shrink,
    whose descriptor the object keeps. Other memory serves as well where memfds are forbidden or there is too
    little memory, and a program with many regions needs its descriptors for other things.
    """
    fd = -1
    try:
        if _may_allocate(size):
            fd = os.memfd_create("rpma", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        if 0 <= fd < MAX_DESCRIPTOR:
            os.posix_fallocate(fd, 0, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            return mmap.mmap(fd, size)
    except (AttributeError, OSError, OverflowError):
        pass  # an old C library, a sandbox, a limit
    finally:
        if fd >= 0:
            os.close(fd)
    return mmap.mmap(-1, size)


def _may_allocate(size: int) -> bool:
    """
    Whether the size may be allocated at once: at most half of the available memory.

    If memory runs out, the OOM killer ends processes, this one or others.
    """
    if size < COMPARED_FROM:
        return True
    try:
        with open(MEMINFO) as lines:
            for line in lines:
                name, _, kib = line.partition(":")
                if name == "MemAvailable":
                    return size <= int(kib.split()[0]) * 1024 // 2
    except (OSError, ValueError, IndexError):
        pass
    return True


def _mapped(fd: int, size: int) -> mmap.mmap:
    if os.fstat(fd).st_size < size:
        os.truncate(fd, size)
    return mmap.mmap(fd, size)
