// SPDX-License-Identifier: BSD-3-Clause
//! The end of a connection: the cause, the Terminate message, and the statuses of the work requests.

use std::fmt;

use crate::iwarp::wire::WireError;
use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{Opcode, ReadRequest, TermCode};
use crate::iwarp::wire::terminate::Terminate;

use crate::access::Denied;
use crate::host::Ending;
use crate::units::Errno;
use crate::wr::{SendWr, status};

/// Why a connection ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The program disconnected.
    Local,
    /// The peer closed its side.
    PeerClosed,
    /// The peer refused a message of ours.
    Terminated(Terminate),
    /// This side refuses a message of the peer. The Terminate message has the reason if there is a code for
    /// it.
    Refused(Option<Terminate>, Refusal),
    /// The link failed, or the peer exceeded a time limit.
    Link(Errno),
    /// A work request of ours is invalid: its position, and the status of its completion.
    Request { position: u64, status: u32 },
}

/// What this side refuses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// A violation of the protocol.
    Protocol(WireError),
    /// A segment with this many bytes of payload.
    Segment(Header, usize, Cause),
    /// A read.
    Read(ReadRequest, Cause),
    /// An access to registered memory that is no longer mapped.
    Unmapped(Opcode),
    /// A flush to persistence that has failed.
    Durability,
}

/// The reason for a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    /// The code for the peer.
    Code(TermCode),
    /// The access is denied. The code that the peer gets may reveal less.
    Denied(Denied),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Code(code) => code.text().unwrap_or("refused"),
            Self::Denied(denied) => return fmt::Display::fmt(denied, f),
        })
    }
}

impl Refusal {
    /// The name of the peer's operation, if the refusal concerns one.
    fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Protocol(_) => None,
            Self::Segment(header, ..) => Some(name_of(header.opcode())),
            Self::Read(..) => Some(name_of(Opcode::ReadRequest)),
            Self::Unmapped(opcode) => Some(name_of(*opcode)),
            Self::Durability => Some("flush to persistence"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = self.operation() {
            write!(f, "{operation} from the remote peer")?;
        }
        match self {
            Self::Protocol(error) => write!(f, "protocol violation of the remote peer: {error}"),
            Self::Segment(Header::Tagged { stag, to, .. }, len, cause) => {
                write!(f, ", {len} bytes at {to:#x}, key {stag:#x}: {cause}")
            }
            Self::Segment(_, _, cause) => write!(f, ": {cause}"),
            Self::Read(ReadRequest { size, src_stag, src_to, .. }, cause) => {
                write!(f, ", {size} bytes at {src_to:#x}, key {src_stag:#x}: {cause}")
            }
            Self::Unmapped(_) => f.write_str(": the registered memory is not mapped any more"),
            Self::Durability => f.write_str(": the data could not be made durable"),
        }
    }
}

/// The operation of a message in the terms of verbs.
fn name_of(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Write => "RDMA write",
        Opcode::ReadRequest | Opcode::ReadResponse => "RDMA read",
        Opcode::Send | Opcode::SendSe => "send",
        Opcode::SendInv | Opcode::SendSeInv => "send with invalidate",
        Opcode::Immediate | Opcode::ImmediateSe => "immediate data",
        Opcode::AtomicRequest | Opcode::AtomicResponse => "atomic operation",
        Opcode::Terminate => "Terminate",
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("connection closed by this side"),
            Self::PeerClosed => f.write_str("connection closed by the remote peer"),
            Self::Terminated(message) => {
                let text = code_of(message).text().unwrap_or("a code that no standard defines");
                write!(f, "the remote peer ended the connection: {text}")
            }
            Self::Refused(_, refusal) => write!(f, "connection ended: {refusal}"),
            Self::Link(errno) => {
                write!(f, "connection lost: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::Request { .. } => f.write_str("connection ended"),
        }
    }
}

impl End {
    /// Describes the end to the host, with the request of this side that fails because of it.
    pub(super) fn describe<'a>(&'a self, failed: Option<(&'a SendWr, u32)>) -> Ending<'a> {
        let operation = if let Self::Refused(_, refusal) = self { refusal.operation() } else { None };
        Ending {
            failed,
            is_failure: !matches!(self, Self::Local | Self::PeerClosed),
            operation: failed.map(|(wr, _)| wr.op.name()).or(operation),
            errno: if let Self::Link(errno) = self { Some(*errno) } else { None },
            why: self,
        }
    }

    /// Whether nothing can be sent to the peer any more.
    pub(super) fn is_without_link(&self) -> bool {
        matches!(self, Self::PeerClosed | Self::Link(_))
    }
}

/// The code of a Terminate message. If it can be read as a code of connection set-up or as another one, it is
/// the other: set-up is complete.
fn code_of(terminate: &Terminate) -> TermCode {
    match (terminate.term_code(), terminate.alternative) {
        (TermCode { layer: 2, .. }, Some(other)) => other,
        (code, _) => code,
    }
}

/// The status of our read or atomic operation that the peer refused, if its Terminate message has a reason.
pub(super) fn status_of(terminate: &Terminate, atomic: bool) -> Option<u32> {
    let code = code_of(terminate);
    match (code.layer, code.etype) {
        (0, 1) => Some(status::REM_ACCESS_ERR),
        // The word is not aligned, or the peer does not support atomic operations.
        (0, 2)
            if atomic
                && matches!(code, TermCode::RDMAP_OP_CATASTROPHIC_STREAM | TermCode::RDMAP_OP_OPCODE) =>
        {
            Some(status::REM_INV_REQ_ERR)
        }
        (0, 2) => Some(status::REM_OP_ERR),
        _ => None,
    }
}

/// The code for a denied read or atomic operation.
pub(super) fn read_denied(denied: Denied) -> TermCode {
    match denied {
        Denied::Stag => TermCode::RDMAP_PROT_INVALID_STAG,
        Denied::Pd => TermCode::RDMAP_PROT_NOT_OF_STREAM,
        Denied::Rights => TermCode::RDMAP_PROT_ACCESS,
        Denied::Wrap => TermCode::RDMAP_PROT_TO_WRAP,
        Denied::Bounds => TermCode::RDMAP_PROT_BOUNDS,
    }
}

/// The code for a denied write. DDP has no code for a missing access right: the STag counts as invalid then.
pub(super) fn write_denied(denied: Denied) -> TermCode {
    match denied {
        Denied::Stag | Denied::Rights => TermCode::DDP_TAGGED_INVALID_STAG,
        Denied::Pd => TermCode::DDP_TAGGED_NOT_OF_STREAM,
        Denied::Wrap => TermCode::DDP_TAGGED_TO_WRAP,
        Denied::Bounds => TermCode::DDP_TAGGED_BOUNDS,
    }
}
