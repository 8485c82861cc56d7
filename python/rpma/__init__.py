# SPDX-License-Identifier: BSD-3-Clause
"""Read, write and flush memory of another process or host (RDMA); without a device, by software RDMA.

    share.py                                                    read.py

    import rpma                                                 import rpma

    with rpma.Peer("127.0.0.1") as peer:                        with rpma.connect("127.0.0.1", 7204) as conn:
        memory = peer.expose(4096, rpma.Access.READ)                print(conn.read(conn.remotes[0][:5]))
        memory.view[:5] = b"hello"
        with peer.listen("127.0.0.1", 7204) as listener:
            listener.accept(offer=[memory]).wait_closed()

`Peer` is a device of this host, `Region` registered memory of this process, `Remote` memory of a peer,
`Listener` and `Conn` are connections, `Op` an operation in flight. Each failure is an `RpmaError`.

Threads: all objects may be used by all threads; the lock of the interpreter is released while one waits.
asyncio: the methods whose names begin with "a" are for tasks; the loop watches a descriptor, without a
thread. fork(2): a child cannot use the objects of its parent, and makes its own; with the device of an
adapter not even that (librpma_providers(7)).

As with any lock, a handler of a signal must not use an object that the interrupted code may be using.

Memory that a peer may write changes at any time, and memory of an operation in flight until it is complete:
the program decides when it looks. No mistake of a program, and no peer, makes this package access memory
that was freed.
"""

from __future__ import annotations

from collections.abc import Iterable as _Iterable

from ._conn import Conn, Op
from ._errors import (
    ClosedError,
    InvalidError,
    LostError,
    NotDurableError,
    NotPermittedError,
    OutOfMemoryError,
    RangeError,
    RefusedError,
    RpmaError,
    TimedOutError,
    UnreachableError,
)
from ._c import library_version
from ._listen import Incoming, Listener
from ._peer import Peer
from ._region import Access, Region, Slice
from ._remote import Remote

__all__ = [
    "Access",
    "ClosedError",
    "Conn",
    "Incoming",
    "InvalidError",
    "Listener",
    "LostError",
    "NotDurableError",
    "NotPermittedError",
    "Op",
    "OutOfMemoryError",
    "Peer",
    "RangeError",
    "RefusedError",
    "Region",
    "Remote",
    "RpmaError",
    "Slice",
    "TimedOutError",
    "UnreachableError",
    "connect",
    "library_version",
]


def connect(
    addr: str,
    port: int,
    *,
    offer: _Iterable[Region] = (),
    private_data: bytes = b"",
    raw: bool = False,
    send: int = 64,
    receive: int = 64,
    timeout: float | None = None,
) -> Conn:
    """
    Connects through the device through which the address is reached: `Peer.to(addr).connect(...)`.

    `Conn.peer` is the peer.
    """
    return Peer.to(addr).connect(
        addr,
        port,
        offer=offer,
        private_data=private_data,
        raw=raw,
        send=send,
        receive=receive,
        timeout=timeout,
    )
