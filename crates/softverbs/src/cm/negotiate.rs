// SPDX-License-Identifier: BSD-3-Clause
//! What the two sides of an MPA handshake agree on (RFC 5044, RFC 6581): frames in, frames and terms out,
//! without a socket.
#![forbid(unsafe_code)]

use transport::iwarp::wire::mpa::{self, DEPTH_NOT_NEGOTIATED, Enhanced, Frame, Kind};
use transport::iwarp::wire::rdmap::TermCode;

use transport::iwarp::conn::Role;
use transport::limits::MAX_READS;

/// What a program offers with rdma_connect(3) or rdma_accept(3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Reads that it answers at a time.
    pub ird: u16,
    /// Reads that it has outstanding at a time.
    pub ord: u16,
    /// It requires CRCs.
    pub crc: bool,
}

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub crc: bool,
    /// Reads that the peer takes at a time.
    pub ord: u16,
    pub role: Role,
}

/// Why an initiator cannot begin after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The peer has rejected the request.
    Rejected,
    /// The peer requires markers, which are not supported.
    Markers,
    /// The peer does not take a Write as the first message, the only one that is sent.
    FirstMessage,
    /// The peer may have more reads outstanding than are ever answered at a time.
    Depth,
}

impl Refusal {
    /// The Terminate code that is sent before the connection closes, with a CRC if the reply has set it.
    pub(crate) fn terminate(self) -> Option<TermCode> {
        match self {
            Self::Rejected | Self::Markers => None,
            Self::FirstMessage => Some(TermCode::MPA_NO_RTR),
            Self::Depth => Some(TermCode::MPA_INSUFFICIENT_IRD),
        }
    }
}

/// The MPA Request of an initiator.
pub(crate) fn request(offer: Offer) -> Frame {
    Frame {
        kind: Kind::Request,
        markers: false,
        crc: offer.crc,
        reject: false,
        revision: mpa::REVISION,
        enhanced: Some(Enhanced {
            // Announces that this side sends the first FPDU, after which the responder may send.
            peer_to_peer: true,
            rtr_send: false,
            rtr_write: true,
            rtr_read: false,
            ird: offer.ird,
            ord: offer.ord,
        }),
    }
}

/// The MPA Reply of a responder that accepts, and what is agreed with it.
pub(crate) fn accept(request: &Frame, offer: Offer) -> (Frame, Agreed) {
    let asked = request.enhanced;
    let crc = request.crc || offer.crc;
    let ord = asked.map_or(offer.ord, |e| offer.ord.min(e.ird));
    let enhanced = asked.map(|e| {
        let first = e.peer_to_peer;
        let read = e.rtr_read && !e.rtr_write;
        let send = e.rtr_send && !e.rtr_write && !e.rtr_read;
        // A reply names a first message, also to an initiator that offers none; that one may then refuse it.
        Enhanced {
            peer_to_peer: first,
            rtr_send: first && send,
            rtr_write: first && !read && !send,
            rtr_read: first && read,
            ird: offer.ird,
            ord,
        }
    });
    let role = if asked.is_some_and(|e| e.peer_to_peer) { Role::RESPONDER_TOLD } else { Role::RESPONDER };
    let reply =
        Frame { kind: Kind::Reply, markers: false, crc, reject: false, revision: request.revision, enhanced };
    (reply, Agreed { crc, ord, role })
}

/// The MPA Reply that rejects a request.
pub(crate) fn rejection(request: &Frame) -> Frame {
    Frame {
        kind: Kind::Reply,
        markers: false,
        crc: request.crc,
        reject: true,
        revision: request.revision,
        enhanced: request.enhanced.map(|_| Enhanced::default()),
    }
}

/// What an initiator that has offered `offer` makes of the reply.
pub(crate) fn agree(reply: &Frame, offer: Offer) -> Result<Agreed, Refusal> {
    if reply.reject {
        return Err(Refusal::Rejected);
    }
    if reply.markers {
        return Err(Refusal::Markers);
    }
    let enhanced = reply.enhanced.unwrap_or_default();
    if enhanced.peer_to_peer && !enhanced.rtr_write {
        return Err(Refusal::FirstMessage);
    }
    // Whatever was offered, this many are answered.
    if enhanced.ord > MAX_READS && enhanced.ord != DEPTH_NOT_NEGOTIATED {
        return Err(Refusal::Depth);
    }
    Ok(Agreed {
        crc: reply.crc || offer.crc,
        ord: reply.enhanced.map_or(offer.ord, |e| offer.ord.min(e.ird)),
        role: if enhanced.peer_to_peer { Role::INITIATOR_ANNOUNCED } else { Role::INITIATOR },
    })
}
