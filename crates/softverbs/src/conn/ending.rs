// SPDX-License-Identifier: BSD-3-Clause
//! The end of a connection: why, and what the peer and the work requests are told.

use iwarp::rdmap::TermCode;
use iwarp::terminate::Terminate;

use super::host::Errno;
use super::wr::status;
use crate::access::Denied;

/// Why a connection ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The program asked for it.
    Local,
    /// The peer closed its side.
    PeerClosed,
    /// The peer refused something of ours.
    Terminated(Terminate),
    /// Something of the peer is refused; it is told why, where there is a code for it.
    Refused(Option<Terminate>),
    /// The link failed, or the peer did not keep a time limit.
    Link(Errno),
    /// A work request of our own is wrong: its position and the status it gets.
    Request { position: u64, status: u32 },
}

impl End {
    /// Whether there is nobody left to send anything to.
    pub(super) fn is_without_link(&self) -> bool {
        matches!(self, End::PeerClosed | End::Link(_))
    }

    pub(super) fn log(&self, num: u32) {
        match self {
            End::Local | End::PeerClosed => log::debug!("queue pair {num}: connection closed: {self:?}"),
            End::Terminated(message) => {
                let text = code_of(message).text().unwrap_or("a code that no standard defines");
                log::warn!("queue pair {num}: the peer ended the connection: {text}");
            }
            End::Refused(_) => log::warn!("queue pair {num}: connection ended because of what the peer sent"),
            End::Link(e) => {
                log::warn!("queue pair {num}: connection lost: {}", std::io::Error::from_raw_os_error(*e));
            }
            End::Request { status, .. } => {
                log::warn!("queue pair {num}: connection ended: a work request failed with status {status}");
            }
        }
    }
}

/// What a Terminate message says. A code that can be read as one of connection set-up or as another is the other one: that is over.
fn code_of(terminate: &Terminate) -> TermCode {
    match (terminate.term_code(), terminate.alternative) {
        (TermCode { layer: 2, .. }, Some(other)) => other,
        (code, _) => code,
    }
}

/// The status of the read or atomic operation of ours that the peer refused, if its Terminate message says why.
pub(super) fn status_of(terminate: &Terminate, atomic: bool) -> Option<u32> {
    let code = code_of(terminate);
    match (code.layer, code.etype) {
        (0, 1) => Some(status::REM_ACCESS_ERR),
        // The word is not aligned, or the peer knows no atomic operations.
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

/// The code for a read or an atomic operation that may not be done.
pub(super) fn read_denied(denied: Denied) -> TermCode {
    match denied {
        Denied::Stag => TermCode::RDMAP_PROT_INVALID_STAG,
        Denied::Pd => TermCode::RDMAP_PROT_NOT_OF_STREAM,
        Denied::Rights => TermCode::RDMAP_PROT_ACCESS,
        Denied::Wrap => TermCode::RDMAP_PROT_TO_WRAP,
        Denied::Bounds => TermCode::RDMAP_PROT_BOUNDS,
    }
}

/// The code for a write that may not be done. DDP has no word for a missing right: to it the STag is then not valid for this.
pub(super) fn write_denied(denied: Denied) -> TermCode {
    match denied {
        Denied::Stag | Denied::Rights => TermCode::DDP_TAGGED_INVALID_STAG,
        Denied::Pd => TermCode::DDP_TAGGED_NOT_OF_STREAM,
        Denied::Wrap => TermCode::DDP_TAGGED_TO_WRAP,
        Denied::Bounds => TermCode::DDP_TAGGED_BOUNDS,
    }
}
