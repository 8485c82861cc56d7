# SPDX-License-Identifier: BSD-3-Clause
"""Connecting, and what both sides of it have in common."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import SupportsIndex

from . import _c, _private_data
from ._conn import Conn
from ._errors import InvalidError, TimedOutError, UnreachableError
from ._c import check, ffi, lib
from ._link import Link, begin, configuration
from ._peer import Peer
from ._region import Region
from ._wait import deadline_of

CONNECT = "Peer.connect"
MOST_PORT = 65535


def connect(
    peer: Peer,
    addr: str,
    port: int,
    offer: Iterable[Region],
    private_data: bytes,
    raw: bool,
    queues: tuple[int, int],
    timeout: float | None,
) -> Conn:
    deadline = deadline_of(timeout)
    link = _begin(peer, addr, port, offer, private_data, raw, queues, timeout)
    return wait_established(link, deadline, CONNECT)


async def aconnect(
    peer: Peer,
    addr: str,
    port: int,
    offer: Iterable[Region],
    private_data: bytes,
    raw: bool,
    queues: tuple[int, int],
) -> Conn:
    check_port(port, 0, CONNECT)
    link = _begin(peer, await _resolved(addr, port), port, offer, private_data, raw, queues, None)
    return await established(link, CONNECT)


async def _resolved(addr: str, port: int) -> str:
    """The address of a name, which the loop resolves in a thread."""
    try:
        return str(ipaddress.ip_address(addr))
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(addr, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnreachableError(CONNECT, f"{addr}: {error}") from None
    return str(found[0][4][0])


def _begin(
    peer: Peer,
    addr: str,
    port: int,
    offer: Iterable[Region],
    private_data: bytes,
    raw: bool,
    queues: tuple[int, int],
    timeout: float | None,
) -> Link:
    device = peer._open(CONNECT)
    check_port(port, 0, CONNECT)
    data = _private_data.encode(offer, private_data, raw, CONNECT)
    cfg = configuration(*check_queues(queues, CONNECT), timeout)
    request = ffi.new("struct rpma_conn_req **")
    check(
        lib.rpma_conn_req_new(device.peer[0], addr.encode(), str(port).encode(), cfg[0], request),
        CONNECT,
        UnreachableError,
    )
    return begin(device, request, data, *queues, CONNECT)


def check_port(port: int, least: int, call: str) -> None:
    if not isinstance(port, SupportsIndex):
        raise TypeError(f"{call}: the port is an int, not {type(port).__name__}")
    if not least <= port <= MOST_PORT:
        raise InvalidError(call, f"port {port} is not in {least}..{MOST_PORT}", _c.E_INVAL)


def check_queues(queues: tuple[int, int], call: str) -> tuple[int, int]:
    if min(queues) < 1:
        raise InvalidError(
            call, f"queues for {queues[0]} sends and {queues[1]} receives: at least one of each"
        )
    return queues


def wait_established(link: Link, deadline: float | None, call: str) -> Conn:
    """The connection, once it is established; without it, nothing is left of it."""
    try:
        if not link.wait(link.established, deadline):
            raise TimedOutError(call, "the peer has not answered in time", _c.E_NO_EVENT)
        return _conn(link, call)
    except BaseException:
        link.delete()
        raise


async def established(link: Link, call: str) -> Conn:
    try:
        await link.wait_async(link.established)
        return _conn(link, call)
    except GeneratorExit:
        link.drop()
        raise
    except BaseException:
        link.delete()
        raise


def _conn(link: Link, call: str) -> Conn:
    if not link.was_established:
        link.check_open(call)
    return Conn(link, link.private_data())
