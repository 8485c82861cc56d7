// SPDX-License-Identifier: BSD-3-Clause
//! A NAK that waits to be sent while more packets arrive.

use super::pair::{FIRST, Fate, Pair, TIMEOUT_US, wr};
use crate::access::FLUSH_PERSISTENT;
use crate::host::Durable;
use crate::limits::MAX_DEFERRED_PACKETS;
use crate::roce::wire::{Extension, Nak, Packet, Psn, Syndrome};
use crate::step::reason;
use crate::testing::recorder::{BASE, STAG};
use crate::wr::{Local, Op, SendWr, status};

const OK: u32 = status::SUCCESS;

/// What was posted meets no receive; then these packets come again from a former link, and meet one.
/// `is_queued`: the link takes the RNR NAK only after them.
fn receive_late(pair: &mut Pair, copies: &[usize], is_queued: bool) {
    pair.step(0, reason::POSTED);
    let copies = copies.iter().map(|at| pair.hosts[0].link.sent[*at].clone()).collect::<Vec<_>>();
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.hosts[1].link.room = is_queued.then_some(0);
    pair.step(1, reason::READABLE);
    pair.post_receive(1, 20, 0x7000, 1024);
    pair.hosts[1].link.arrived.extend(copies);
    pair.step(1, reason::READABLE);
    reply(pair);
    pair.settle();
    pair.expire(0);
    pair.settle();
}

/// A request meets no receive, a copy of it from a former link meets one: the peer still learns that what was
/// between the two was dropped.
#[test]
fn an_rnr_nak_is_sent_before_the_ack_of_a_late_copy() {
    let mut pair = Pair::with(|_, terms| (terms.retries, terms.rnr_retries) = (0, 1));
    pair.post(0, wr(1, Op::Send, 0, 8, 0));
    pair.post(0, wr(2, Op::Write, 0, 8, 0x4000));
    receive_late(&mut pair, &[0], true);
    pair.post(0, wr(3, Op::Write, 0, 8, 0x4000));
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!(pair.done(1), [(20, OK)]);
}

/// The same with a packet behind the copy that shows the gap: the NAK costs no retry, whatever is between it
/// and the RNR NAK, and whether that has left before.
#[test]
fn a_nak_behind_a_late_copy_is_no_retry() {
    let send = |len| wr(1, Op::Send, 0, len, 0);
    let write = |id| wr(id, Op::Write, 0, 8, 0x4000);
    let read = |id| wr(id, Op::Read, 0x100, 8, 0x8000);
    let schedules: [(&[SendWr], &[usize]); 3] = [
        (&[send(600)], &[0, 2]),
        (&[send(8), write(2), write(3)], &[0, 2]),
        (&[send(8), read(2), write(3), write(4)], &[0, 1, 3]),
    ];
    for ((requests, copies), is_queued) in schedules.into_iter().flat_map(|one| [(one, true), (one, false)]) {
        let mut pair = Pair::with(|_, terms| (terms.retries, terms.rnr_retries) = (0, 1));
        requests.iter().for_each(|request| pair.post(0, request.clone()));
        receive_late(&mut pair, copies, is_queued);
        let done = requests.iter().map(|request| (request.wr_id, OK)).collect::<Vec<_>>();
        assert_eq!(pair.done(0), done, "queued: {is_queued}");
        assert_eq!(pair.done(1), [(20, OK)]);
    }
}

/// Packets of side 0 arrive in this order while the link of side 1 is full; then that replies. `is_single`:
/// each packet in a step of its own.
fn arrive_at_once(pair: &mut Pair, order: &[usize], is_single: bool) {
    pair.step(0, reason::POSTED);
    let sent = std::mem::take(&mut pair.hosts[0].link.sent);
    pair.hosts[1].link.room = Some(0);
    for at in order {
        pair.hosts[1].link.arrived.push_back(sent[*at].clone());
        if is_single {
            pair.step(1, reason::READABLE);
        }
    }
    pair.step(1, reason::READABLE);
    reply(pair);
}

/// The link of side 1 takes packets again.
fn reply(pair: &mut Pair) {
    pair.hosts[1].link.room = None;
    pair.step(1, reason::WRITABLE);
}

/// The ACKs and NAKs that side 1 has sent, with the distance of their PSNs from the first one.
fn sent(pair: &Pair) -> Vec<(i32, Syndrome)> {
    let packets = pair.hosts[1].link.sent.iter().map(|packet| Packet::parse(packet).unwrap());
    let acknowledges = packets.filter_map(|packet| match packet.extension {
        Extension::Aeth(aeth) => Some((packet.bth.psn.distance(Psn::new(FIRST[0])), aeth.syndrome)),
        _ => None,
    });
    acknowledges.collect()
}

const NAK: Syndrome = Syndrome::Nak(Nak::PsnSequence);

fn write(id: u64) -> SendWr {
    wr(id, Op::Write, 0, 8, 0x4000)
}

/// One of each kind that has a response.
fn with_responses(id: u64) -> [SendWr; 3] {
    let read = wr(id, Op::Read, 0x100, 8, 0x8000);
    let local = Local::Atomic { addr: BASE + 0x100, lkey: STAG, compare_add: 5, swap: 0 };
    let add = SendWr { local, ..wr(id, Op::FetchAdd, 0, 8, 0x8000) };
    let local = Local::inline(&[1; 8]).unwrap();
    [read, add, SendWr { local, ..wr(id, Op::AtomicWrite, 0, 8, 0x8000) }]
}

/// The first packet arrives last: its ACK does not hide that those behind it were dropped. There is no timer,
/// and no further NAK for the same packet.
#[test]
fn an_ack_does_not_hide_what_was_dropped() {
    let mut pair = Pair::with(|_, terms| (terms.timeout, terms.retries) = (0, 1));
    (1..=4).for_each(|id| pair.post(0, write(id)));
    pair.step(0, reason::POSTED);
    let packets = pair.hosts[0].link.sent.clone();
    arrive_at_once(&mut pair, &[1, 2, 0], true);
    assert_eq!(sent(&pair), [(1, NAK)]);
    pair.hosts[1].link.arrived.push_back(packets[3].clone());
    pair.step(1, reason::READABLE);
    assert_eq!(sent(&pair), [(1, NAK)]);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK), (4, OK)]);
}

/// If those behind it have arrived again by then, an ACK is sent, and no NAK.
#[test]
fn what_has_arrived_again_needs_no_nak() {
    for is_single in [true, false] {
        let mut pair = Pair::with(|_, terms| (terms.timeout, terms.retries) = (0, 0));
        (1..=4).for_each(|id| pair.post(0, write(id)));
        arrive_at_once(&mut pair, &[1, 2, 3, 0, 1, 2, 3], is_single);
        assert_eq!(sent(&pair), [(3, Syndrome::ACK)], "{is_single}");
        pair.settle();
        assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK), (4, OK)]);
    }
}

/// A packet that had been dropped has arrived again, and has a response: no NAK is left.
#[test]
fn a_response_replaces_a_nak() {
    for (second, is_single) in with_responses(2).iter().flat_map(|one| [(one, true), (one, false)]) {
        let mut pair = Pair::with(|_, terms| (terms.timeout, terms.retries) = (0, 0));
        [write(1), second.clone(), write(3)].into_iter().for_each(|wr| pair.post(0, wr));
        arrive_at_once(&mut pair, &[1, 0, 1, 2], is_single);
        pair.settle();
        assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)], "{:?} {is_single}", second.op);
    }
}

/// The peer need not wait for a receive that was posted before the RNR NAK left.
#[test]
fn an_rnr_nak_of_an_executed_request_is_not_sent() {
    let mut pair = Pair::with(|_, terms| terms.rnr_retries = 0);
    pair.post(0, wr(1, Op::Send, 0, 8, 0));
    receive_late(&mut pair, &[0], true);
    assert_eq!((pair.done(0), pair.done(1)), (vec![(1, OK)], vec![(20, OK)]));
}

/// What the peer knows by an earlier NAK is not reported again: it sends that anyway. A NAK that was wrong
/// (those lost are of another queue pair) costs no retry when its packet has arrived.
#[test]
fn a_nak_reports_what_was_dropped_since() {
    let mut pair = Pair::with(|_, terms| (terms.timeout, terms.retries) = (0, 0));
    pair.post(0, wr(1, Op::Send, 0, 256 * 16, 0));
    pair.settle();
    pair.post_receive(1, 20, 0x7000, 256 * 16);
    assert!(pair.expire(0));
    let mut again = std::mem::take(&mut pair.hosts[0].link.sent).into_iter();
    pair.hosts[1].link.room = Some(0);
    pair.hosts[1].link.has_lost = true;
    for count in [2, 10] {
        pair.hosts[1].link.arrived.extend(again.by_ref().take(count));
        pair.step(1, reason::READABLE);
    }
    reply(&mut pair);
    pair.hosts[1].link.arrived.extend(again);
    pair.settle();
    assert_eq!((pair.done(0), pair.done(1)), (vec![(1, OK)], vec![(20, OK)]));
}

/// The same for packets for which there was no room behind an ATOMIC WRITE: a copy of the first of them hides
/// none of the others.
#[test]
fn an_ack_does_not_hide_what_was_not_deferred() {
    let mut pair = Pair::with(|_, terms| (terms.timeout, terms.retries) = (0, 1));
    pair.hosts[1].durable = Durable::Later;
    let local = Local::Flush { len: 8, rights: FLUSH_PERSISTENT, whole: false };
    pair.post(0, SendWr { local, ..wr(1, Op::Flush, 0, 0, 0x4000) });
    let [.., atomic_write] = with_responses(2);
    pair.post(0, atomic_write);
    (3..=6).for_each(|id| pair.post(0, write(id)));
    pair.step(0, reason::POSTED);
    let packets = std::mem::take(&mut pair.hosts[0].link.sent);
    let arrived = &mut pair.hosts[1].link.arrived;
    arrived.extend(packets[..2].iter().cloned());
    // Late copies of the FLUSH take the room of all but the first write.
    arrived.extend(std::iter::repeat_n(packets[0].clone(), MAX_DEFERRED_PACKETS - 2));
    arrived.extend(packets[2..].iter().cloned());
    pair.step(1, reason::READABLE);
    assert_eq!(pair.hosts[1].link.dropped.len(), 3);
    pair.hosts[1].link.room = Some(0);
    pair.conns[1].durable(&mut pair.hosts[1], 1, true);
    pair.step(1, reason::DURABLE);
    pair.hosts[1].link.arrived.push_back(packets[3].clone());
    pair.step(1, reason::READABLE);
    reply(&mut pair);
    pair.settle();
    assert_eq!(pair.done(0), (1..=6).map(|id| (id, OK)).collect::<Vec<_>>());
}

/// Otherwise the peer would use a retry, and fail with another status if none is left.
#[test]
fn a_refusal_replaces_the_nak_for_its_packet() {
    let mut pair = Pair::with(|_, terms| terms.retries = 0);
    pair.post(0, SendWr { rkey: 0, ..write(1) });
    pair.post(0, write(2));
    arrive_at_once(&mut pair, &[1, 0], true);
    assert_eq!(sent(&pair), [(0, Syndrome::Nak(Nak::RemoteAccess))]);
    pair.settle();
    assert_eq!(pair.done(0)[0], (1, status::REM_ACCESS_ERR));
}

/// The second RNR NAK also acknowledges what the first one requested.
#[test]
fn one_of_two_rnr_naks_is_sent() {
    let mut pair = Pair::with(|_, terms| terms.rnr_retries = 1);
    (1..=2).for_each(|id| pair.post(0, wr(id, Op::Send, 0, 8, 0)));
    pair.step(0, reason::POSTED);
    let copies = pair.hosts[0].link.sent.clone();
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.hosts[1].link.room = Some(0);
    pair.step(1, reason::READABLE);
    pair.post_receive(1, 20, 0x7000, 8);
    pair.hosts[1].link.arrived.extend(copies);
    pair.step(1, reason::READABLE);
    reply(&mut pair);
    assert!(matches!(sent(&pair)[..], [(1, Syndrome::Rnr { .. })]), "{:?}", sent(&pair));
    pair.settle();
    pair.post_receive(1, 21, 0x7000, 8);
    pair.expire(0);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK)]);
}

/// Nor does it hide what was dropped behind both.
#[test]
fn a_second_rnr_nak_reports_what_the_first_one_did() {
    let mut pair = Pair::with(|_, terms| terms.timeout = 0);
    (1..=3).for_each(|id| pair.post(0, wr(id, Op::Send, 0, 8, 0)));
    pair.step(0, reason::POSTED);
    let sent = std::mem::take(&mut pair.hosts[0].link.sent);
    pair.hosts[1].link.room = Some(0);
    for (arrives, receive) in [(0..3, 20), (0..2, 21), (1..2, 22)] {
        pair.hosts[1].link.arrived.extend(sent[arrives].iter().cloned());
        pair.step(1, reason::READABLE);
        pair.post_receive(1, receive, 0x7000, 8);
    }
    reply(&mut pair);
    pair.settle();
    pair.expire(0);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)]);
}

/// A side that ends because nothing acknowledges its own request acknowledges what it has executed in that
/// step.
#[test]
fn what_was_executed_before_a_timeout_is_acknowledged() {
    let mut pair = Pair::with(|_, terms| terms.retries = 0);
    pair.post(1, write(1));
    pair.step(1, reason::POSTED);
    pair.expire(1);
    pair.hosts[1].link.sent.clear();
    pair.post_receive(1, 20, 0x7000, 8);
    pair.post(0, wr(2, Op::Send, 0, 8, 0));
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.hosts.iter_mut().for_each(|host| host.now += 4 * TIMEOUT_US);
    pair.step(1, reason::READABLE | reason::TIME);
    assert_eq!(pair.done(1), [(20, OK), (1, status::RETRY_EXC_ERR)]);
    pair.settle();
    assert_eq!(pair.done(0), [(2, OK)]);
}

/// A disconnect drops no response that needs no memory, and none behind a late copy of a read.
#[test]
fn a_disconnect_drops_no_response_without_data() {
    let [read, add, atomic_write] = with_responses(1);
    for (request, repeats) in [(read, true), (add, false), (atomic_write, false)] {
        let mut pair = Pair::new();
        pair.post_receive(1, 20, 0x7000, 8);
        pair.post(0, request.clone());
        pair.step(0, reason::POSTED);
        let copy = pair.hosts[0].link.sent.clone();
        if repeats {
            pair.settle();
            pair.hosts[1].link.arrived.extend(copy);
        }
        pair.post(0, wr(2, Op::Send, 0, 8, 0));
        pair.step(0, reason::POSTED);
        pair.carry(0, &mut |_, _| Fate::Arrives);
        pair.step(1, reason::READABLE | reason::DISCONNECT);
        pair.settle();
        assert_eq!(pair.done(0), [(1, OK), (2, OK)], "{:?}", request.op);
    }
}

/// A NAK for what may have been lost says nothing about the packets behind: the first one that arrives out of
/// order is reported.
#[test]
fn a_guessed_nak_suppresses_no_nak_for_a_gap() {
    let mut pair = Pair::with(|_, terms| (terms.timeout, terms.retries) = (0, 1));
    pair.post(0, wr(1, Op::Write, 0, 256 * 18, 0x4000));
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.hosts[1].link.has_lost = true;
    pair.step(1, reason::READABLE);
    pair.carry(1, &mut |_, _| Fate::Arrives);
    pair.step(0, reason::READABLE);
    let mut rest = std::mem::take(&mut pair.hosts[0].link.sent);
    assert_eq!(rest.len(), 2);
    rest.reverse();
    pair.hosts[1].link.arrived.extend(rest);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK)]);
}

/// However often RNR NAKs are queued and withdrawn, the ACKs around them take the place of one reply.
#[test]
fn acks_around_a_withdrawn_rnr_nak_are_merged() {
    let mut pair = Pair::with(|path, terms| (path.reads, terms.reads, terms.timeout) = (1, 1, 0));
    (0..12).for_each(|id| pair.post(0, wr(id, Op::Send, 0, 8, 0)));
    let [read, ..] = with_responses(12);
    pair.post(0, read);
    pair.step(0, reason::POSTED);
    let packets = std::mem::take(&mut pair.hosts[0].link.sent);
    pair.hosts[1].link.room = Some(0);
    for at in 0..12 {
        // Dropped; then the next packet, which shows that; then a copy, which is received.
        pair.hosts[1].link.arrived.extend([at, at + 1].map(|at| packets[at].clone()));
        pair.step(1, reason::READABLE);
        pair.post_receive(1, 20 + at as u64, 0x7000, 8);
        pair.hosts[1].link.arrived.push_back(packets[at].clone());
        pair.step(1, reason::READABLE);
    }
    pair.hosts[1].link.arrived.push_back(packets[12].clone());
    reply(&mut pair);
    pair.settle();
    pair.expire(0);
    pair.settle();
    assert_eq!(pair.done(0), (0..13).map(|id| (id, OK)).collect::<Vec<_>>());
}

/// An RNR NAK replaces a guessed NAK for the same packet, and remains when packets behind it arrive.
#[test]
fn an_rnr_nak_replaces_a_guessed_nak() {
    let mut pair = Pair::with(|_, terms| (terms.timeout, terms.retries, terms.rnr_retries) = (0, 0, 1));
    let imm = SendWr {
        len: 512,
        local: wr(1, Op::Write, 0, 512, 0).local,
        ..wr(1, Op::WriteWithImm, 0, 512, 0x4000)
    };
    pair.post(0, imm);
    pair.post(0, write(2));
    pair.step(0, reason::POSTED);
    let sent = std::mem::take(&mut pair.hosts[0].link.sent);
    pair.hosts[1].link.room = Some(0);
    pair.hosts[1].link.has_lost = true;
    for arrives in [0..1, 1..3] {
        pair.hosts[1].link.arrived.extend(sent[arrives].iter().cloned());
        pair.step(1, reason::READABLE);
    }
    pair.post_receive(1, 20, 0x7000, 8);
    reply(&mut pair);
    pair.settle();
    pair.expire(0);
    pair.settle();
    assert_eq!((pair.done(0), pair.done(1)), (vec![(1, OK), (2, OK)], vec![(20, OK)]));
}

/// The program disconnects while a NAK waits behind the response of a read, which is not sent any more: what
/// was executed before is acknowledged.
#[test]
fn a_nak_takes_the_place_of_no_ack_that_the_end_needs() {
    let mut pair = Pair::new();
    let [read, ..] = with_responses(2);
    [write(1), read, write(3)].into_iter().for_each(|wr| pair.post(0, wr));
    pair.step(0, reason::POSTED);
    let packets = std::mem::take(&mut pair.hosts[0].link.sent);
    pair.hosts[1].link.arrived.extend([0, 2, 1].map(|at| packets[at].clone()));
    pair.step(1, reason::READABLE | reason::DISCONNECT);
    assert_eq!(sent(&pair), [(0, Syndrome::ACK)]);
}
