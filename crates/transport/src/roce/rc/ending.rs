// SPDX-License-Identifier: BSD-3-Clause
//! The end of a connection: the cause, and how it is reported to the peer and to the program.

use std::fmt;

use crate::access::{Denied, Unchanged};
use crate::host::{Ended, Ending};
use crate::roce::wire::{Nak, Reth};
use crate::units::Errno;
use crate::wr::{SendWr, status};

/// A request of this side that ends the connection: its position, and the status it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub position: u64,
    pub status: u32,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The program ends it.
    Local,
    /// A request of this side failed, here or at the peer.
    Request(Failed),
    /// A request of the peer is refused.
    Refused(Refusal),
    /// The queue pair cannot be used any more.
    Lost(Errno),
}

/// A request of the peer that is refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// The name of the operation.
    pub operation: &'static str,
    /// The memory of this side that its packet names.
    pub range: Option<Reth>,
    pub cause: Cause,
}

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

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("connection closed by this side"),
            Self::Request(Failed { status, .. }) => f.write_str(match *status {
                status::REM_ACCESS_ERR => "the peer refused it: remote access error",
                status::REM_INV_REQ_ERR => "the peer refused it: invalid request",
                status::REM_OP_ERR => "the peer could not complete it: remote operational error",
                status::RETRY_EXC_ERR => "the peer did not acknowledge it (retry_cnt is used up)",
                status::RNR_RETRY_EXC_ERR => "the peer has no receive posted (rnr_retry is used up)",
                status::BAD_RESP_ERR => "the response of the peer has a wrong length",
                _ => "connection ended",
            }),
            Self::Refused(Refusal { operation, range, cause }) => {
                write!(f, "connection ended: {operation} from the remote peer")?;
                if let Some(Reth { va, rkey, len }) = range {
                    write!(f, ", {len} bytes at {va:#x}, key {rkey:#x}")?;
                }
                write!(f, ": {cause}")
            }
            Self::Lost(errno) => {
                write!(f, "connection lost: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl End {
    /// How it is reported to the program, besides completions.
    pub(super) fn kind(&self) -> Ended {
        match self {
            Self::Local => Ended::Closed,
            Self::Lost(_) => Ended::Failed,
            Self::Request(_) => Ended::Completed,
            Self::Refused(Refusal { cause, .. }) => match (cause, cause.nak()) {
                (Cause::TooLong | Cause::Receive, _) => Ended::Completed,
                (_, Nak::RemoteAccess) => Ended::AccessRefused,
                (_, Nak::InvalidRequest) => Ended::RequestRefused,
                _ => Ended::Failed,
            },
        }
    }

    /// Describes the end to the host, with the request of this side that fails because of it.
    pub(super) fn describe<'a>(&'a self, failed: Option<(&'a SendWr, u32)>) -> Ending<'a> {
        let refused = if let Self::Refused(refusal) = self { Some(refusal.operation) } else { None };
        Ending {
            failed,
            is_failure: !matches!(self, Self::Local),
            operation: failed.map(|(wr, _)| wr.op.name()).or(refused),
            errno: if let Self::Lost(errno) = self { Some(*errno) } else { None },
            why: self,
        }
    }
}
