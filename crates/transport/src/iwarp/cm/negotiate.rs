// SPDX-License-Identifier: BSD-3-Clause
//! Negotiation of the connection parameters in the MPA handshake (RFC 5044, RFC 6581): CRC, IRD and ORD, and
//! the RTR message.
//!
//! Pure functions: frames and the local offer go in, a frame or the agreed parameters come out. A CRC is used
//! if either side requires it. The ORD of a side never exceeds the IRD of the other. Markers are never
//! offered or accepted.

use crate::iwarp::wire::mpa::{self, DEPTH_NOT_NEGOTIATED, Enhanced, Frame, Kind};
use crate::iwarp::wire::rdmap::TermCode;

use crate::iwarp::conn::Role;
use crate::limits::MAX_READS;

/// The parameters that a program offers with rdma_connect(3) or rdma_accept(3).
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// IRD: inbound reads and atomic operations that may be outstanding.
    pub ird: u16,
    /// ORD: outbound reads and atomic operations that may be outstanding.
    pub ord: u16,
    /// This side requires a CRC in each FPDU.
    pub crc: bool,
}

/// The negotiated parameters of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// FPDUs have a CRC.
    pub crc: bool,
    /// Outbound reads and atomic operations that may be outstanding: at most the IRD of the peer.
    pub ord: u16,
    /// Who may send the first FPDU.
    pub role: Role,
}

/// Why a reply does not establish the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The peer has rejected the request.
    Rejected,
    /// The peer requires markers, which are not supported.
    Markers,
    /// The peer does not accept an RDMA Write as the RTR message, and no other is sent.
    FirstMessage,
    /// The ORD of the peer exceeds [`MAX_READS`], the largest IRD of softverbs.
    Depth,
}

impl Refusal {
    /// The code of the Terminate message to send before the connection is closed, if there is one.
    pub fn terminate(self) -> Option<TermCode> {
        match self {
            Self::Rejected | Self::Markers => None,
            Self::FirstMessage => Some(TermCode::MPA_NO_RTR),
            Self::Depth => Some(TermCode::MPA_INSUFFICIENT_IRD),
        }
    }
}

/// The MPA Request of an initiator.
pub fn request(offer: Offer) -> Frame {
    Frame {
        kind: Kind::Request,
        markers: false,
        crc: offer.crc,
        reject: false,
        revision: mpa::REVISION,
        enhanced: Some(Enhanced {
            // Announces an RTR: this side sends the first FPDU, after which the responder may send.
            peer_to_peer: true,
            rtr_send: false,
            rtr_write: true,
            rtr_read: false,
            ird: offer.ird,
            ord: offer.ord,
        }),
    }
}

/// The MPA Reply of a responder that accepts, and the parameters agreed by it.
pub fn accept(request: &Frame, offer: Offer) -> (Frame, Agreed) {
    let requested = request.enhanced;
    let crc = request.crc || offer.crc;
    let ord = requested.map_or(offer.ord, |e| offer.ord.min(e.ird));
    let enhanced = requested.map(|e| {
        let first = e.peer_to_peer;
        let read = e.rtr_read && !e.rtr_write;
        let send = e.rtr_send && !e.rtr_write && !e.rtr_read;
        // A peer-to-peer reply always names an RTR message, even if the request offers none; the initiator
        // may then refuse it.
        Enhanced {
            peer_to_peer: first,
            rtr_send: first && send,
            rtr_write: first && !read && !send,
            rtr_read: first && read,
            ird: offer.ird,
            ord,
        }
    });
    let role =
        if requested.is_some_and(|e| e.peer_to_peer) { Role::RESPONDER_ANNOUNCED } else { Role::RESPONDER };
    let reply =
        Frame { kind: Kind::Reply, markers: false, crc, reject: false, revision: request.revision, enhanced };
    (reply, Agreed { crc, ord, role })
}

/// The MPA Reply that rejects a request.
pub fn rejection(request: &Frame) -> Frame {
    Frame {
        kind: Kind::Reply,
        markers: false,
        crc: request.crc,
        reject: true,
        revision: request.revision,
        enhanced: request.enhanced.map(|_| Enhanced::default()),
    }
}

/// The parameters agreed by a reply, for an initiator that offered `offer`; or why they do not permit a
/// connection.
pub fn agree(reply: &Frame, offer: Offer) -> Result<Agreed, Refusal> {
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
    // The IRD is MAX_READS, whatever was offered.
    if enhanced.ord > MAX_READS && enhanced.ord != DEPTH_NOT_NEGOTIATED {
        return Err(Refusal::Depth);
    }
    Ok(Agreed {
        crc: reply.crc || offer.crc,
        ord: reply.enhanced.map_or(offer.ord, |e| offer.ord.min(e.ird)),
        role: if enhanced.peer_to_peer { Role::INITIATOR_ANNOUNCED } else { Role::INITIATOR },
    })
}
