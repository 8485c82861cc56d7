# SPDX-License-Identifier: BSD-3-Clause
"""Memory of a peer."""

from __future__ import annotations

import struct
from typing import Any

from . import _c
from ._errors import InvalidError, NotDurableError, NotPermittedError, RangeError
from ._c import check, ffi, lib

# The descriptor of the library: address, size, key, usage.
DESCRIPTOR = struct.Struct("<QQIB")
# A flush may be executed as a read of so many bytes.
LEAST_FLUSH = 8


class Remote:
    """
    Memory that a peer has exposed, or a range of it: where it is, and what its owner permits.

    It is a value: it holds no connection, and nothing is sent when it is made.

    `remote[from:to]` is a range of it, `len(remote)` its size, `bytes(remote)` its descriptor, of which
    `Remote.from_bytes` makes the same.
    """

    __slots__ = ("_addr", "_len", "_key", "_usage", "_is_durable", "_mr", "_offset", "_whole")

    _addr: int
    _len: int
    _key: int
    _usage: int
    _is_durable: bool
    _mr: Any
    _offset: int
    _whole: int

    def __init__(self) -> None:
        raise TypeError("Remote: use Conn.remotes, Region.remote or Remote.from_bytes")

    @classmethod
    def from_bytes(cls, descriptor: bytes | bytearray | memoryview) -> Remote:
        """
        From the descriptor of a region; what follows it is ignored.

        The 21 bytes of `rpma_mr_get_descriptor` of the C library alone are memory that cannot be flushed to
        persistence.

        A descriptor is not authenticated: whoever can modify it in transit chooses which memory is accessed.

        Raises InvalidError if this is no descriptor.
        """
        data = bytes(descriptor[: _c.SIZE_OF_DESCRIPTOR + 1])
        mr = ffi.new("struct rpma_mr_remote **")
        check(
            lib.rpma_mr_remote_from_descriptor(data, min(len(data), _c.SIZE_OF_DESCRIPTOR), mr),
            "Remote.from_bytes",
            InvalidError,
        )
        self = cls.__new__(cls)
        self._mr = ffi.gc(mr, lib.rpma_mr_remote_delete)
        self._addr, self._len, self._key, self._usage = DESCRIPTOR.unpack_from(data)
        self._is_durable = data[_c.SIZE_OF_DESCRIPTOR:] not in (b"", b"\0")
        self._offset, self._whole = 0, self._len
        return self

    def __bytes__(self) -> bytes:
        return DESCRIPTOR.pack(self._addr, self._len, self._key, self._usage) + bytes([self._is_durable])

    def __getitem__(self, range: slice) -> Remote:
        from ._region import inside

        offset, length = inside(range, self._len, "Remote")
        part = Remote.__new__(Remote)
        part._mr, part._key, part._usage, part._is_durable = (
            self._mr,
            self._key,
            self._usage,
            self._is_durable,
        )
        part._addr, part._offset, part._len, part._whole = (
            self._addr + offset,
            self._offset + offset,
            length,
            self._whole,
        )
        return part

    def __len__(self) -> int:
        return self._len

    def __eq__(self, other: object) -> bool:
        return bytes(self) == bytes(other) if isinstance(other, Remote) else NotImplemented

    def __hash__(self) -> int:
        return hash(bytes(self))

    def __repr__(self) -> str:
        from ._region import Access

        return f"Remote({self._len} bytes, {Access(self._usage)!r})"

    def _permits(self, usage: int, call: str, access: str) -> None:
        if not self._usage & usage:
            raise NotPermittedError(
                call, f"the peer did not expose this memory for {access} access", _c.E_INVAL
            )

    def _fits(self, length: int, call: str) -> None:
        if length != self._len:
            raise RangeError(
                call,
                f"a buffer of {length} bytes for {self._len} bytes of the peer; remote[from:to] is a part",
                _c.E_INVAL,
            )
        if length > _c.MOST_OF_ONE_OPERATION:
            raise RangeError(call, f"{length} bytes; one operation transfers less than 4 GiB", _c.E_INVAL)

    def _flushable(self, durable: bool) -> None:
        call = "Conn.flush"
        if durable and not (self._is_durable and self._usage & _c.FLUSH_PERSISTENT):
            raise NotDurableError(
                call,
                "the peer did not expose this memory for flushes to persistence (Access.PERSISTENT)",
                _c.E_NOSUPP,
            )
        if not durable:
            self._permits(_c.FLUSH_VISIBLE, call, "flush (Access.VISIBLE)")
        if self._whole < LEAST_FLUSH:
            raise InvalidError(
                call, f"a flush needs memory of at least {LEAST_FLUSH} bytes, not {self._whole}", _c.E_INVAL
            )

    def _flushed(self) -> tuple[int, int]:
        """Offset and length of a flush, which may be executed as a read of 8 bytes, all of them inside."""
        offset = min(self._offset, self._whole - LEAST_FLUSH)
        return offset, max(self._offset - offset + self._len, LEAST_FLUSH)
