// SPDX-License-Identifier: BSD-3-Clause
//! Why a request of the peer is not carried out.

use std::fmt;

use super::wire::Nak;
use crate::access::{Denied, Unchanged};
use crate::wr::status;

/// Why a request of the peer is refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// The packet does not continue the message that the one before it began, or its length is wrong.
    Sequence,
    /// The queue pair does not permit this operation.
    QpAccess,
    /// More reads, atomic operations and flushes than announced.
    TooMany,
    /// The word of an atomic operation is not aligned.
    Misaligned,
    /// The message is longer than the receive.
    TooLong,
    /// A flush has no placement type, or a reserved selectivity.
    FlushType,
    /// The operation is not supported.
    Unsupported,
    /// The registered memory does not permit the access.
    Denied(Denied),
    /// The registered memory is no longer mapped.
    Unmapped,
    /// The memory of the receive does not permit it.
    Receive,
    /// The window cannot be invalidated.
    Invalidate,
    /// What a flush covers could not be made durable.
    NotDurable,
}

impl Cause {
    /// The NAK code that the peer gets.
    pub(super) fn nak(self) -> Nak {
        match self {
            Self::Sequence
            | Self::QpAccess
            | Self::TooMany
            | Self::Misaligned
            | Self::TooLong
            | Self::FlushType
            | Self::Unsupported => Nak::InvalidRequest,
            Self::Denied(_) | Self::Unmapped | Self::Invalidate => Nak::RemoteAccess,
            Self::Receive | Self::NotDurable => Nak::RemoteOperational,
        }
    }

    /// The status of the receive that the message has taken, if that is the cause.
    pub(super) fn status_of_receive(self) -> Option<u32> {
        match self {
            Self::TooLong => Some(status::LOC_LEN_ERR),
            Self::Receive => Some(status::LOC_PROT_ERR),
            _ => None,
        }
    }
}

impl From<Unchanged> for Cause {
    fn from(unchanged: Unchanged) -> Self {
        match unchanged {
            Unchanged::Denied(denied) => Self::Denied(denied),
            Unchanged::Misaligned => Self::Misaligned,
            Unchanged::Fault => Self::Unmapped,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sequence => "the packet does not continue its message, or has a wrong length",
            Self::QpAccess => "the queue pair does not permit it (qp_access_flags)",
            Self::TooMany => {
                "more reads, atomic operations and flushes are outstanding than max_dest_rd_atomic"
            }
            Self::Misaligned => "the address is not aligned to 8 bytes",
            Self::TooLong => "the message is longer than the posted receive",
            Self::FlushType => "it has no placement type, or an unknown selectivity",
            Self::Unsupported => "the operation is not supported",
            Self::Denied(denied) => return fmt::Display::fmt(denied, f),
            Self::Unmapped => "the registered memory is no longer mapped",
            Self::Receive => "the memory of the posted receive cannot be written",
            Self::NotDurable => "the data could not be made durable",
            Self::Invalidate => "the key is not that of a window of this connection",
        })
    }
}
