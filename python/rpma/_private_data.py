# SPDX-License-Identifier: BSD-3-Clause
"""The private data of a connection, in the format of the crate rpma: what a side offers, and its program's
own bytes."""

from __future__ import annotations

from collections.abc import Iterable

from ._errors import InvalidError, RpmaError
from ._c import SIZE_OF_DESCRIPTOR
from ._region import Region
from ._remote import Remote

# The first byte, by which they are recognized: a program in C may send any bytes.
MARK = 0xA7
OFFER = SIZE_OF_DESCRIPTOR + 1
MOST = 255


def encode(offer: Iterable[Region], own: bytes, raw: bool, call: str) -> bytes:
    """
    A byte each for the mark, the number of offers and that of the program's own bytes; the offers; the own
    bytes.

    RoCE appends zeros.
    """
    offers = [bytes(region.remote) for region in offer]
    if raw and offers:
        raise InvalidError(call, "raw private data have no offers: use bytes(region.remote)")
    length = len(own) if raw else 3 + len(offers) * OFFER + len(own)
    if length > MOST:
        raise InvalidError(
            call, f"{len(offers)} offers and {len(own)} bytes of private data do not fit into {MOST} bytes"
        )
    return bytes(own) if raw else bytes([MARK, len(offers), len(own)]) + b"".join(offers) + own


def decode(data: bytes) -> tuple[tuple[Remote, ...], bytes]:
    """What was offered, and the program's own bytes: all of them if they have another format."""
    if len(data) < 3 or data[0] != MARK:
        return (), data
    own = 3 + data[1] * OFFER
    if own + data[2] > len(data):
        return (), data
    try:
        remotes = tuple(Remote.from_bytes(data[at:at + OFFER]) for at in range(3, own, OFFER))
    except RpmaError:
        return (), data
    return remotes, data[own:own + data[2]]
