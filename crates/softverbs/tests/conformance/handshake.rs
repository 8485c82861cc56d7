// SPDX-License-Identifier: BSD-3-Clause
//! The responder: requests split in any way, bytes that must not accompany them, and the replies of programs
//! that accept or reject.

use super::bystander::Bystander;
use super::common::*;
use super::peer::*;
use super::requests::{
    After, DEPTHS_8, IRD, ORD, accept, empty_write, end_of, reply, row, take_request_event,
};
use softverbs::rdma as cm;
use std::time::Duration;

/// A wrong key is refused at its first wrong byte, without waiting for the rest.
#[test]
fn a_malformed_key_ends_the_connection() {
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    let right = hex("'MPA ID Req Frame' 10 02 0004 0008 0008");
    for at in 0..16 {
        let mut bytes = right.clone();
        bytes[at] ^= 0x20;
        for len in [at + 1, bytes.len()] {
            let mut wire = listening.wire();
            wire.send(&bytes[..len], Pieces::Whole);
            assert_eq!(wire.take_rest(), [], "byte {at} of the key is wrong, {len} bytes sent");
        }
    }
    let mut wire = listening.wire();
    wire.send(&hex("'MPA ID Rep Frame' 10 02 0004 0008 0008"), Pieces::Whole);
    assert_eq!(wire.take_rest(), [], "a reply instead of a request");
    bystander.goes_on("malformed keys");
}

#[test]
fn a_request_may_be_split_at_every_byte() {
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    let row = row(
        "split",
        "10 02 0008 8008 8009 'ping'",
        After(reply("10 02 0006 8014 8008 'ok'"), empty_write()),
        (b"ping", 9, 8),
    );
    for at in 1..row.request.len() {
        let mut wire = listening.wire();
        wire.send(&row.request[..at], Pieces::Whole);
        std::thread::sleep(Duration::from_millis(2));
        wire.send(&row.request[at..], Pieces::Whole);
        let end = accept(&listening, &row);
        assert_eq!(wire.take(26), hex(&reply("10 02 0006 8014 8008 'ok'")), "split at {at}");
        wire.send_ulpdu(&empty_write(), Pieces::Whole);
        assert_eq!(next_event(end.events).0, ESTABLISHED, "split at {at}");
        end_of(end, wire, "split");
    }
    bystander.goes_on("split requests");
}

/// An initiator must not send anything after its request before it has the reply.
#[test]
fn bytes_directly_after_a_request_end_the_connection() {
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    let request = hex("'MPA ID Req Frame' 10 02 0004 8008 8008");
    for behind in [vec![0], fpdu(&empty_write(), false), request.clone()] {
        let mut wire = listening.wire();
        wire.send(&[&request[..], &behind].concat(), Pieces::Whole);
        assert_eq!(wire.take_rest(), [], "{behind:02x?}");
    }
    bystander.goes_on("early data");
}

/// In a separate segment they cannot be distinguished from bytes sent after the reply.
#[test]
fn bytes_that_arrive_before_the_program_accepts_are_received_then() {
    let listening = Listening::new();
    let mut wire = listening.wire();
    wire.send(&hex("'MPA ID Req Frame' 10 02 0004 8008 8008"), Pieces::Whole);
    let (id, _) = take_request_event(&listening);
    wire.send_ulpdu(&empty_write(), Pieces::Whole);
    std::thread::sleep(Duration::from_millis(20));
    let end = accept_with(id, 16, &mut terms(IRD, ORD, true, b""));
    assert_eq!(next_event(end.events).0, ESTABLISHED);
    wire.take(24);
    assert_eq!(wire.ulpdu(), Some(empty_write()));
    end_of(end, wire, "early FPDU");
}

#[test]
fn private_data_of_any_length_go_into_a_reply() {
    let listening = Listening::new();
    for len in [0, 1, 250, 251] {
        let mut wire = listening.wire();
        wire.send(&hex("'MPA ID Req Frame' 10 02 0004 0008 0008"), Pieces::Whole);
        let (id, _) = take_request_event(&listening);
        let end = accept_with(id, 16, &mut terms(IRD, ORD, true, &vec![b'q'; len]));
        let expected = reply(format!("10 02 {:04x} {DEPTHS_8} '{}'", len + 4, "q".repeat(len)));
        assert_eq!(wire.take(24 + len), hex(&expected), "{len} bytes");
        assert_eq!(next_event(end.events).0, ESTABLISHED);
        end_of(end, wire, "private data of a reply");
    }
}

/// A rejection has the revision, the CRC flag and the enhanced block of the request, with depths of 0.
#[test]
fn a_rejection_has_the_form_of_the_request() {
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    for (request, start) in [
        ("00 01 0000", "20 01"),
        ("40 01 0001 'x'", "60 01"),
        ("00 02 0000", "20 02"),
        ("40 02 0000", "60 02"),
        ("10 02 0004 0008 0008", "30 02"),
        ("50 02 0004 8008 8008", "70 02"),
    ] {
        for len in [0, 1, 251] {
            let mut wire = listening.wire();
            wire.send(&hex(&format!("'MPA ID Req Frame' {request}")), Pieces::Whole);
            let (id, _) = take_request_event(&listening);
            let reason = "r".repeat(len);
            // SAFETY: the identifier is rejected and destroyed exactly once.
            unsafe {
                assert_eq!(cm::rdma_reject(id, reason.as_ptr().cast(), len as u8), 0);
                assert_eq!(cm::rdma_destroy_id(id), 0);
            }
            let block = if start.starts_with(['3', '7']) { "00000000" } else { "" };
            let expected = reply(format!("{start} {:04x} {block} '{reason}'", len + block.len() / 2));
            assert_eq!(wire.take_rest(), hex(&expected), "{request}, {len} bytes of private data");
        }
    }
    bystander.goes_on("rejections");
}
