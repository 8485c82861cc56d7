// SPDX-License-Identifier: BSD-3-Clause
//! The end of a connection: the cause, and how it is reported to the peer and to the program.

use std::fmt;

use crate::host::{Ended, Ending};
use crate::roce::cause::Cause;
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
