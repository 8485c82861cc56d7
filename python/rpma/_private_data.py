# SPDX-License-Identifier: BSD-3-Clause
"""The private data of a connection, in the format of the crate rpma: what a side offers, and its program's
own bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsIndex, overload

from ._errors import InvalidError, RangeError, RpmaError
from ._c import SIZE_OF_DESCRIPTOR
from ._region import Region
from ._remote import Remote

# The first byte, by which they are recognized: a program in C may send any bytes.
MARK = 0xA7
OFFER = SIZE_OF_DESCRIPTOR + 1
MOST = 255


class Remotes(tuple[Remote, ...]):
    """What a peer offers. The error for a number that it does not have says what there is."""

    __slots__ = ()

    @overload
    def __getitem__(self, number: SupportsIndex) -> Remote: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Remote, ...]: ...

    def __getitem__(self, number: SupportsIndex | slice) -> Remote | tuple[Remote, ...]:
        try:
            return super().__getitem__(number)
        except IndexError:
            reason = f"the peer offered {len(self)} region{'s' if len(self) > 1 else ''}"
            if not self:
                reason = (
                    "the peer offered no region; if it is a program in C, "
                    "Remote.from_bytes(conn.private_data) reads the descriptor that it sent"
                )
            raise RangeError(f"remotes[{number}]", reason) from None


def offered(offer: Iterable[Region], call: str) -> tuple[Region, ...]:
    """The regions."""
    if not isinstance(offer, Iterable):  # a region is none
        raise TypeError(f"{call}: offer is a list of regions, offer=[region], not {type(offer).__name__}")
    regions = tuple(offer)
    for each in regions:
        if not isinstance(each, Region):
            raise TypeError(
                f"{call}: offer has {type(each).__name__} instead of Region; "
                "Peer.expose(memory, access) makes a region"
            )
    return regions


def encode(offer: Iterable[Region], own: bytes, raw: bool, call: str) -> bytes:
    """
    A byte each for the mark, the number of offers and that of the program's own bytes; the offers; the own
    bytes.

    RoCE appends zeros.
    """
    offers = [bytes(region.remote) for region in offered(offer, call)]
    if raw and offers:
        raise InvalidError(call, "raw private data have no offers: use bytes(region.remote)")
    length = len(own) if raw else 3 + len(offers) * OFFER + len(own)
    if length > MOST:
        raise InvalidError(
            call, f"{len(offers)} offers and {len(own)} bytes of private data do not fit into {MOST} bytes"
        )
    return bytes(own) if raw else bytes([MARK, len(offers), len(own)]) + b"".join(offers) + own


def decode(data: bytes) -> tuple[Remotes, bytes]:
    """What was offered, and the program's own bytes: all of them if they have another format."""
    if len(data) < 3 or data[0] != MARK:
        return Remotes(), data
    own = 3 + data[1] * OFFER
    if own + data[2] > len(data):
        return Remotes(), data
    try:
        remotes = Remotes(Remote.from_bytes(data[at:at + OFFER]) for at in range(3, own, OFFER))
    except RpmaError:
        return Remotes(), data
    return remotes, data[own:own + data[2]]
