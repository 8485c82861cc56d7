// SPDX-License-Identifier: BSD-3-Clause
//! Requests that are repeated, or copied by the network: which responses the peer gets, and in which order.

use super::pair::{FIRST, Fate, Pair, wr};
use crate::roce::wire::{Extension, Packet, Psn};
use crate::step::reason;
use crate::wr::{Op, SendWr, status};

const OK: u32 = status::SUCCESS;

fn read(id: u64, len: u32) -> SendWr {
    wr(id, Op::Read, 0x100, len, 0x8000)
}

/// Creates a pair without a local ACK timeout, with at most `most` outstanding reads.
fn with_reads(most: u16) -> Pair {
    Pair::with(|path, terms| (path.reads, terms.reads, terms.timeout) = (most, most, 0))
}

/// Posts requests at side 0 and returns the packets that it sends; they do not arrive yet.
fn request(pair: &mut Pair, requests: impl IntoIterator<Item = SendWr>) -> Vec<Vec<u8>> {
    requests.into_iter().for_each(|request| pair.post(0, request));
    pair.step(0, reason::POSTED);
    std::mem::take(&mut pair.hosts[0].link.sent)
}

/// Delivers packets to side 1 and returns what it sends.
fn respond(pair: &mut Pair, packets: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    pair.hosts[1].link.arrived.extend(packets);
    pair.step(1, reason::READABLE | reason::WRITABLE);
    std::mem::take(&mut pair.hosts[1].link.sent)
}

/// Returns the PSN of each packet, relative to the first PSN of side 0.
fn psns(packets: &[Vec<u8>]) -> Vec<i32> {
    let distance = |packet: &Vec<u8>| Packet::parse(packet).unwrap().bth.psn.distance(Psn::new(FIRST[0]));
    packets.iter().map(distance).collect()
}

/// A copy of a request that is complete waits to be answered, and no further duplicate has room. The rest of
/// the read that is outstanding takes its place.
#[test]
fn a_needed_duplicate_takes_the_place_of_a_late_copy() {
    let mut pair = with_reads(1);
    let copy = request(&mut pair, [read(1, 8)]);
    respond(&mut pair, copy.clone())
        .into_iter()
        .for_each(|packet| pair.hosts[0].link.arrived.push_back(packet));
    let packets = request(&mut pair, [read(2, 600)]);
    let responses = respond(&mut pair, packets);
    assert_eq!(psns(&responses), [1, 2, 3]);
    pair.hosts[1].link.room = Some(0);
    respond(&mut pair, copy);
    for at in [1, 0, 2] {
        pair.hosts[0].link.arrived.push_back(responses[at].clone());
        pair.step(0, reason::READABLE);
    }
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.step(1, reason::READABLE);
    pair.hosts[1].link.room = None;
    pair.step(1, reason::WRITABLE);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK)]);
}

/// Responses to duplicates leave in the order of their PSNs, whichever copies had arrived before: behind a
/// response that is missing, the peer would wait for all that follow. A response that has begun is finished.
#[test]
fn responses_to_duplicates_keep_their_order() {
    for (before, after, begun, expected) in [
        (vec![0, 2], vec![0, 1, 2, 3], None, vec![0, 1, 2, 3, 4, 5]),
        (vec![3], vec![1, 2, 3], None, vec![1, 2, 3, 4, 5]),
        (vec![3], vec![1, 2, 3], Some(1), vec![4, 5, 1, 2, 3, 4, 5]),
    ] {
        let mut pair = with_reads(4);
        let packets = request(&mut pair, [read(1, 8), read(2, 8), read(3, 8), read(4, 600)]);
        assert_eq!(respond(&mut pair, packets.clone()).len(), 6);
        pair.hosts[1].link.room = Some(begun.unwrap_or(0));
        let copies = |which: &[usize]| which.iter().map(|at| packets[*at].clone()).collect::<Vec<_>>();
        respond(&mut pair, copies(&before));
        pair.hosts[1].link.room = Some(0);
        respond(&mut pair, copies(&after));
        pair.hosts[1].link.room = None;
        let sent = respond(&mut pair, []);
        assert_eq!(psns(&sent), expected, "{before:?}, then {after:?}");
    }
}

/// The peer has gone back twice, since a change of the link delays the first packets of a response: it
/// requests again what was sent of the response that has begun. That takes no room from the next one; further
/// copies do.
#[test]
fn a_duplicate_is_answered_behind_the_response_that_has_begun() {
    let mut pair = with_reads(1);
    let requests = request(&mut pair, [read(1, 600)]);
    assert_eq!(psns(&respond(&mut pair, requests.clone())), [0, 1, 2]);
    pair.hosts[1].link.room = Some(1);
    assert_eq!(psns(&respond(&mut pair, requests.clone())), [0]);
    pair.hosts[1].link.room = Some(0);
    for _ in 0..3 {
        respond(&mut pair, requests.clone());
    }
    pair.hosts[1].link.room = None;
    assert_eq!(psns(&respond(&mut pair, [])), [1, 2, 0, 1, 2]);
}

/// An ACK, or the response to a later request, does not leave before the response to a duplicate. An MSN
/// counts no request that is answered later.
#[test]
fn a_response_to_a_duplicate_leaves_before_later_replies() {
    let mut pair = with_reads(2);
    let write = |id| wr(id, Op::Write, 0x200, 8, 0x4000);
    let packets = request(&mut pair, [read(1, 8), write(2), read(3, 8)]);
    pair.hosts[1].link.room = Some(1);
    respond(&mut pair, packets.clone());
    pair.hosts[1].link.room = Some(0);
    respond(&mut pair, [packets[1].clone(), packets[0].clone()]);
    pair.hosts[1].link.room = None;
    let sent = respond(&mut pair, []);
    let msn = |packet: &Vec<u8>| match Packet::parse(packet).unwrap().extension {
        Extension::Aeth(aeth) => aeth.msn,
        other => panic!("{other:?}"),
    };
    assert_eq!(psns(&sent), [0, 1, 2, 1]);
    assert_eq!(sent.iter().map(msn).collect::<Vec<_>>(), [2, 2, 3, 3]);
}
