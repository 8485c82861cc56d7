// SPDX-License-Identifier: BSD-3-Clause
//! The MPA handshake of either side, with a frame of the peer that the input has written.

use crate::iwarp::wire::mpa::{self, DEPTH_NOT_NEGOTIATED, Decoded, Frame, Kind};

use super::input::Input;
use crate::iwarp::cm::negotiate::{self, Agreed, Offer, Refusal};
use crate::iwarp::conn::Role;
use crate::limits::MAX_READS;

/// What is agreed with the peer, and what it sent behind its frame; `None` when there is no connection.
pub(super) fn run(input: &mut Input<'_>) -> Option<(Agreed, Vec<u8>)> {
    let [what, ird, ord] = input.bytes();
    let offer =
        Offer { ird: u16::from(ird).min(MAX_READS), ord: u16::from(ord).min(MAX_READS), crc: what & 1 != 0 };
    let kind = if what & 2 != 0 { Kind::Request } else { Kind::Reply };
    // Without the key most inputs would end here.
    let mut bytes = if what & 4 != 0 { Vec::new() } else { kind.key().to_vec() };
    if what & 8 != 0 {
        let depths: [u8; 4] = input.bytes();
        let crc = if what & 16 != 0 { 0x40 } else { 0 };
        bytes = [kind.key(), &[0x10 | crc, 2, 0, 4][..], &depths].concat();
    }
    bytes.extend_from_slice(input.take(usize::from(what >> 5) * 8));
    let Ok(Decoded::Frame { frame, private_data, consumed }) = mpa::decode(kind, &bytes) else { return None };
    assert!(private_data.len() <= mpa::MAX_PRIVATE_DATA);
    let early = &bytes[consumed..];
    match kind {
        // What follows a request ends the connection.
        Kind::Request if frame.markers || !early.is_empty() => {
            reject(&frame);
            None
        }
        Kind::Request => Some((accept(&frame, offer), Vec::new())),
        Kind::Reply => Some((agree(&frame, offer)?, early.to_vec())),
    }
}

/// The frame as its receiver has it.
fn over_the_wire(frame: &Frame) -> Frame {
    let mut bytes = Vec::new();
    mpa::encode(frame, b"private", &mut bytes).expect("a frame of ours can be sent");
    match mpa::decode(frame.kind, &bytes) {
        Ok(Decoded::Frame { frame: received, private_data: b"private", consumed }) => {
            assert_eq!((received, consumed), (*frame, bytes.len()));
            received
        }
        other => panic!("{frame:?} arrives as {other:?}"),
    }
}

fn reject(request: &Frame) {
    let reply = over_the_wire(&negotiate::rejection(request));
    let offer = Offer { ird: 1, ord: 1, crc: false };
    assert_eq!(negotiate::agree(&reply, offer), Err(Refusal::Rejected));
}

fn accept(request: &Frame, offer: Offer) -> Agreed {
    let (reply, agreed) = negotiate::accept(request, offer);
    let reply = over_the_wire(&reply);
    assert!(!reply.reject && !reply.markers);
    assert_eq!(reply.enhanced.is_some(), request.enhanced.is_some());
    assert_eq!(reply.crc, request.crc || offer.crc);
    assert_eq!(agreed.crc, reply.crc);
    assert!(agreed.ord <= offer.ord);
    let (Some(requested), Some(replied)) = (request.enhanced, reply.enhanced) else {
        assert_eq!(agreed.role, Role::RESPONDER);
        return agreed;
    };
    assert!(agreed.ord <= requested.ird && replied.ord == agreed.ord && replied.ird == offer.ird);
    assert_eq!(replied.peer_to_peer, requested.peer_to_peer);
    assert_eq!(agreed.role == Role::RESPONDER_ANNOUNCED, requested.peer_to_peer);
    let named =
        [replied.rtr_send, replied.rtr_write, replied.rtr_read].into_iter().filter(|named| *named).count();
    assert_eq!(named, usize::from(replied.peer_to_peer), "one first message is named");
    // An initiator of our own accepts the reply of a responder of our own.
    if requested.peer_to_peer && requested.rtr_write && requested.ird <= MAX_READS {
        let theirs = Offer { ird: requested.ird, ord: requested.ord.min(MAX_READS), crc: request.crc };
        let mirrored = negotiate::agree(&reply, theirs).expect("a reply to an initiator of our own");
        assert_eq!((mirrored.crc, mirrored.role), (agreed.crc, Role::INITIATOR_ANNOUNCED));
        assert!(mirrored.ord <= offer.ird);
    }
    agreed
}

fn agree(reply: &Frame, offer: Offer) -> Option<Agreed> {
    let agreed = match negotiate::agree(reply, offer) {
        Ok(agreed) => agreed,
        Err(refusal) => {
            let has_terminate = refusal.terminate().is_some();
            assert_eq!(has_terminate, matches!(refusal, Refusal::FirstMessage | Refusal::Depth));
            return None;
        }
    };
    assert!(!reply.reject && !reply.markers);
    assert!(agreed.ord <= offer.ord && agreed.crc == (reply.crc || offer.crc));
    if let Some(replied) = reply.enhanced {
        assert!(agreed.ord <= replied.ird);
        assert!(replied.ord <= MAX_READS || replied.ord == DEPTH_NOT_NEGOTIATED);
    }
    Some(agreed)
}
