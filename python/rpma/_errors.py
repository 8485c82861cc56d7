# SPDX-License-Identifier: BSD-3-Clause
"""What operations fail with."""

from __future__ import annotations


class RpmaError(Exception):
    """
    A failure.

    `call` is what failed ("Conn.read"), `reason` why, for people; `code` is the code of the C library
    (negative, `RPMA_E_*` of librpma.h) or the status of a completion (positive, `enum ibv_wc_status`), and 0
    if neither has one.
    """

    call: str
    reason: str
    code: int

    def __init__(self, call: str, reason: str, code: int = 0) -> None:
        self.args = (call, reason, code)
        self.call, self.reason, self.code = call, reason, code

    def __str__(self) -> str:
        return f"{self.call}: {self.reason}"


class InvalidError(RpmaError, ValueError):
    """An argument is wrong; nothing was posted."""


class RangeError(InvalidError, IndexError):
    """A range is not inside of the memory, or does not have the length of the buffer; nothing was posted."""


class OutOfMemoryError(RpmaError, MemoryError):
    """The host does not have so much memory."""


class NotPermittedError(RpmaError, PermissionError):
    """The owner of the memory did not expose it for this, or has closed it since."""


class NotDurableError(NotPermittedError):
    """The owner of the memory did not expose it for flushes to persistence."""


class RefusedError(RpmaError, ConnectionRefusedError):
    """Nobody listens there, or the peer rejected the connection."""


class UnreachableError(RpmaError, ConnectionError):
    """The address cannot be resolved or reached."""


class ClosedError(RpmaError, ConnectionError):
    """The connection or object is closed."""


class LostError(ClosedError):
    """The connection broke: the peer was killed, or does not answer any more."""


class TimedOutError(RpmaError, TimeoutError):
    """
    The time has passed.

    An operation is not cancelled by it.
    """
