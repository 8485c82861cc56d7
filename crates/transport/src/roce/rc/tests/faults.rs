// SPDX-License-Identifier: BSD-3-Clause
//! Lost, repeated and late packets, timers and their limits.

use super::pair::{Fate, MTU, Pair, TIMEOUT_US, wr};
use crate::policy::probe::MOST;
use crate::roce::wire::{Aeth, Bth, Extension, Nak, Opcode, Operation, Packet, Psn, Syndrome};
use crate::step::reason;
use crate::wr::{Op, status};

const OK: u32 = status::SUCCESS;

/// Every packet of a mixture of requests, lost once.
#[test]
fn each_packet_may_be_lost() {
    let mut total = usize::MAX;
    let mut lost = 0;
    while lost < total {
        let mut pair = Pair::new();
        pair.fill(0, 0, 0x2000, 1);
        pair.fill(1, 0x8000, 0x1000, 2);
        pair.post_receive(1, 20, 0x7000, 1024);
        pair.post(0, wr(1, Op::Write, 0, 5 * MTU as u32, 0x4000));
        pair.post(0, wr(2, Op::Send, 0x1000, 3 * MTU as u32, 0));
        pair.post(0, wr(3, Op::Read, 0x2000, 6 * MTU as u32 + 1, 0x8000));
        pair.post(0, wr(4, Op::Write, 0x800, 8, 0xf000));
        let mut count = 0;
        for _ in 0..20 {
            pair.settle_with(|_, _| {
                count += 1;
                if count - 1 == lost { Fate::Lost } else { Fate::Arrives }
            });
            if pair.conns.iter().all(|conn| conn.is_at_rest()) || !pair.expire(0) {
                break;
            }
        }
        total = count;
        assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK), (4, OK)], "packet {lost} lost");
        assert_eq!(pair.done(1), [(20, OK)], "packet {lost} lost");
        assert_eq!(pair.bytes(0, 0, 5 * MTU), pair.bytes(1, 0x4000, 5 * MTU));
        assert_eq!(pair.bytes(0, 0x1000, 3 * MTU), pair.bytes(1, 0x7000, 3 * MTU));
        assert_eq!(pair.bytes(0, 0x2000, 6 * MTU + 1), pair.bytes(1, 0x8000, 6 * MTU + 1));
        lost += 1;
    }
    assert!(lost > 15, "{lost} packets");
}

#[test]
fn repeated_packets_change_nothing() {
    let mut pair = Pair::new();
    pair.hosts[1].memory.bytes[0x800..0x808].fill(0);
    pair.fill(0, 0, 0x1000, 1);
    pair.post_receive(1, 20, 0x7000, 1024);
    pair.post(0, wr(1, Op::Write, 0, 3 * MTU as u32, 0x4000));
    pair.post(0, wr(2, Op::Send, 0, 8, 0));
    let mut add = wr(3, Op::FetchAdd, 0x1000, 8, 0x800);
    add.local = crate::wr::Local::Atomic {
        addr: crate::testing::recorder::BASE + 0x1000,
        lkey: crate::testing::recorder::STAG,
        compare_add: 5,
        swap: 0,
    };
    pair.post(0, add);
    pair.post(0, wr(4, Op::Read, 0x2000, 2 * MTU as u32, 0x8000));
    pair.settle_with(|_, _| Fate::Twice);
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK), (4, OK)]);
    assert_eq!(pair.done(1), [(20, OK)]);
    assert_eq!(pair.bytes(1, 0x800, 8), 5u64.to_ne_bytes(), "added once");
}

#[test]
fn an_unanswered_request_fails_after_its_retries() {
    for retries in [0, 1, 7] {
        let mut pair = Pair::with(|_, terms| terms.retries = retries);
        pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
        pair.post(0, wr(2, Op::Write, 0, 8, 0x4000));
        pair.settle_with(|_, _| Fate::Lost);
        let began = pair.hosts[0].now;
        let mut checks = 0;
        while !pair.conns[0].is_over() {
            assert!(pair.expire(0), "no timer");
            pair.settle_with(|_, _| Fate::Lost);
            checks += 1;
        }
        assert_eq!(pair.done(0), [(1, status::RETRY_EXC_ERR), (2, status::WR_FLUSH_ERR)]);
        // The first check is after progress: the request was sent.
        assert!((2..=2 + u32::from(retries) + MOST).contains(&checks), "{checks} checks");
        let waited = pair.hosts[0].now - began;
        let periods = u64::from(retries) + 1;
        assert!((periods * TIMEOUT_US..=4 * periods * TIMEOUT_US).contains(&waited), "{waited} us");
    }
}

/// Acknowledgements that have arrived but are unread cost no retry. A side that always has packets to read
/// does not wait for ever: neither for a probe nor for the end of its retries.
#[test]
fn unread_packets_postpone_the_timer() {
    let mut pair = Pair::with(|_, terms| terms.retries = 0);
    pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
    pair.step(0, reason::POSTED);
    let packet = pair.hosts[0].link.sent.pop().unwrap();
    pair.hosts[0].link.has_unread = true;
    let began = pair.hosts[0].now;
    while pair.hosts[0].now - began < 2 * TIMEOUT_US {
        assert!(pair.expire(0));
        assert!(!pair.conns[0].is_over());
    }
    assert!(!pair.hosts[0].link.sent.is_empty(), "no probe");
    pair.hosts[0].link.sent = vec![packet];
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK)]);

    pair.post(0, wr(2, Op::Write, 0, 8, 0x4000));
    pair.settle_with(|_, _| Fate::Lost);
    let began = pair.hosts[0].now;
    while !pair.conns[0].is_over() {
        assert!(pair.expire(0));
    }
    assert_eq!(pair.done(0), [(2, status::RETRY_EXC_ERR)]);
    let waited = pair.hosts[0].now - began;
    assert!((2 * TIMEOUT_US..=4 * TIMEOUT_US).contains(&waited), "{waited} us");
}

#[test]
fn a_message_without_a_receive_waits() {
    let mut pair = Pair::new();
    pair.fill(0, 0, 600, 1);
    pair.post(0, wr(1, Op::Send, 0, 600, 0));
    pair.post(0, wr(2, Op::Send, 0, 8, 0));
    pair.settle();
    assert!(pair.done(0).is_empty());
    for _ in 0..20 {
        assert!(pair.expire(0), "waits after an RNR NAK");
        pair.settle();
    }
    let began = pair.hosts[0].now;
    pair.post_receive(1, 20, 0x7000, 1024);
    pair.post_receive(1, 21, 0x8000, 1024);
    pair.step(1, reason::RECEIVE);
    assert!(pair.expire(0));
    pair.settle();
    assert_eq!(pair.hosts[0].now - began, 1_280, "rnr_timer 14");
    assert_eq!(pair.done(0), [(1, OK), (2, OK)]);
    assert_eq!(pair.done(1), [(20, OK), (21, OK)]);
    assert_eq!(pair.bytes(0, 0, 600), pair.bytes(1, 0x7000, 600));
}

#[test]
fn rnr_retries_are_used_up() {
    let mut pair = Pair::with(|_, terms| terms.rnr_retries = 2);
    pair.post(0, wr(1, Op::Send, 0, 8, 0));
    pair.settle();
    for _ in 0..2 {
        assert!(pair.done(0).is_empty());
        assert!(pair.expire(0));
        pair.settle();
    }
    assert_eq!(pair.done(0), [(1, status::RNR_RETRY_EXC_ERR)]);
    assert!(!pair.conns[1].is_over(), "the responder goes on");
}

/// rxe sends a NAK "PSN sequence error" for the packets that follow one without a receive. It costs no retry,
/// also when it arrives after the wait.
#[test]
fn a_gap_behind_an_rnr_nak_is_no_retry() {
    for is_late in [false, true] {
        let mut pair = Pair::with(|_, terms| terms.retries = 1);
        pair.post(0, wr(1, Op::Send, 0, 600, 0));
        let naks = |pair: &mut Pair, syndrome| {
            let bth = Bth::new(Opcode::Rc(Operation::Acknowledge), 0x11_0001, Psn::new(0xff_fffa));
            let aeth = Extension::Aeth(Aeth { syndrome, msn: 0 });
            pair.hosts[0].link.arrived.push_back(Packet::encode_headers(&bth, &aeth).to_vec());
            pair.step(0, reason::READABLE);
        };
        pair.settle();
        for _ in 0..4 {
            if is_late {
                assert!(pair.expire(0));
            }
            naks(&mut pair, Syndrome::Nak(Nak::PsnSequence));
            if !is_late {
                assert!(pair.expire(0));
            }
            pair.settle();
        }
        assert!(pair.conns[0].is_open() && pair.done(0).is_empty(), "late: {is_late}");
        pair.post_receive(1, 20, 0x7000, 1024);
        pair.step(1, reason::RECEIVE);
        assert!(pair.expire(0));
        pair.settle();
        assert_eq!(pair.done(0), [(1, OK)]);
    }
}

/// A gap costs one retransmission, whatever arrives of the first transmission behind it.
#[test]
fn a_gap_is_repeated_once() {
    let mut pair = Pair::new();
    pair.fill(0, 0, 12 * MTU, 1);
    pair.post(0, wr(1, Op::Write, 0, 12 * MTU as u32, 0x4000));
    let mut seen = 0;
    pair.settle_with(|from, _| {
        seen += usize::from(from == 0);
        if from == 0 && seen == 2 { Fate::Lost } else { Fate::Arrives }
    });
    assert_eq!(pair.done(0), [(1, OK)]);
    assert_eq!(pair.bytes(0, 0, 12 * MTU), pair.bytes(1, 0x4000, 12 * MTU));
    assert_eq!(pair.carried[0].len(), 12 + 11, "from the second packet on");
}

#[test]
fn a_lost_read_response_is_requested_again_from_the_gap() {
    let mut pair = Pair::new();
    pair.fill(1, 0x8000, 8 * MTU, 1);
    pair.post(0, wr(1, Op::Read, 0, 8 * MTU as u32, 0x8000));
    let mut seen = 0;
    pair.settle_with(|from, _| {
        seen += usize::from(from == 1);
        if from == 1 && seen == 3 { Fate::Lost } else { Fate::Arrives }
    });
    assert_eq!(pair.done(0), [(1, OK)]);
    assert_eq!(pair.bytes(0, 0, 8 * MTU), pair.bytes(1, 0x8000, 8 * MTU));
    assert_eq!(pair.carried[1].len(), 8 + 6);
    assert_eq!(pair.carried[0], [Operation::ReadRequest; 2]);
}

#[test]
fn a_full_link_loses_nothing() {
    let mut pair = Pair::new();
    pair.fill(0, 0, 20 * MTU, 1);
    pair.post(0, wr(1, Op::Write, 0, 20 * MTU as u32, 0x4000));
    for _ in 0..40 {
        pair.hosts.iter_mut().for_each(|host| host.link.room = Some(1));
        (0..2).for_each(|me| pair.step(me, reason::WRITABLE));
        (0..2).for_each(|me| _ = pair.carry(me, &mut |_, _| Fate::Arrives));
    }
    assert_eq!(pair.done(0), [(1, OK)]);
    assert_eq!(pair.bytes(0, 0, 20 * MTU), pair.bytes(1, 0x4000, 20 * MTU));
}

/// While the link is full, nothing is sent again, and no retry is used.
#[test]
fn a_full_link_uses_no_retry() {
    let mut pair = Pair::with(|_, terms| terms.retries = 1);
    pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Lost);
    pair.hosts[0].link.room = Some(0);
    for _ in 0..10 {
        assert!(pair.expire(0));
    }
    assert!(pair.done(0).is_empty());
    pair.hosts[0].link.room = None;
    pair.step(0, reason::WRITABLE);
    assert!(pair.carry(0, &mut |_, _| Fate::Lost), "it is sent again");
    let began = pair.hosts[0].now;
    pair.lose_until_the_end(0);
    assert!(pair.hosts[0].now - began >= TIMEOUT_US, "it has the whole timeout");
    assert_eq!(pair.done(0), [(1, status::RETRY_EXC_ERR)]);
}

/// The peer has stopped, and what it does not take fills the link. The program polls, which tries to send.
#[test]
fn a_link_that_the_peer_leaves_full_uses_retries() {
    let mut pair = Pair::with(|_, terms| terms.retries = 2);
    pair.hosts[0].link.is_room_of_peer = true;
    pair.hosts[0].link.room = Some(2);
    pair.post(0, wr(1, Op::Write, 0, 4 * MTU as u32, 0x4000));
    pair.step(0, reason::POSTED);
    let began = pair.hosts[0].now;
    while !pair.conns[0].is_over() {
        assert!(pair.hosts[0].now - began < 100 * TIMEOUT_US, "no retry was used");
        pair.step(0, reason::READABLE | reason::WRITABLE);
        assert!(pair.expire(0), "no timer");
        pair.carry(0, &mut |_, _| Fate::Lost);
    }
    assert!(pair.hosts[0].now - began >= 3 * TIMEOUT_US, "it has all retries");
    assert_eq!(pair.done(0), [(1, status::RETRY_EXC_ERR)]);
}

/// A ring that was full has refused the first packet of a request.
fn refused_by_a_full_ring(retries: u8) -> Pair {
    let mut pair = Pair::with(|_, terms| terms.retries = retries);
    pair.hosts[0].link.is_room_of_peer = true;
    pair.hosts[0].link.room = Some(0);
    pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
    pair.step(0, reason::POSTED);
    pair
}

/// Nothing is outstanding: the request waits for room with its first packet.
#[test]
fn a_link_that_the_peer_has_left_full_uses_the_retries_of_the_next_request() {
    let mut pair = refused_by_a_full_ring(2);
    let began = pair.hosts[0].now;
    pair.lose_until_the_end(0);
    assert!(pair.hosts[0].now - began >= 3 * TIMEOUT_US, "it has all retries");
    assert_eq!(pair.done(0), [(1, status::RETRY_EXC_ERR)]);
}

/// A copy of the request before found it full, and the first transmission was acknowledged.
#[test]
fn a_ring_that_has_refused_a_retransmission_uses_the_retries_of_the_next_request() {
    let mut pair = Pair::with(|_, terms| terms.retries = 2);
    pair.hosts[0].link.is_room_of_peer = true;
    pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
    pair.step(0, reason::POSTED);
    pair.hosts[0].link.room = Some(0);
    pair.hosts[0].now += 2 * TIMEOUT_US;
    pair.step(0, reason::TIME);
    pair.hosts[0].now += 2 * TIMEOUT_US;
    pair.step(0, reason::TIME);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.step(1, reason::READABLE);
    pair.carry(1, &mut |_, _| Fate::Arrives);
    pair.step(0, reason::READABLE);
    assert_eq!(pair.done(0), [(1, OK)]);
    pair.post(0, wr(2, Op::Write, 0, 8, 0x4000));
    pair.step(0, reason::POSTED);
    pair.lose_until_the_end(0);
    assert_eq!(pair.done(0), [(2, status::RETRY_EXC_ERR)]);
}

/// Nothing was lost: what follows has the whole window.
#[test]
fn a_ring_that_the_peer_leaves_full_for_a_while_keeps_the_window() {
    let first_flight = |is_full: bool| {
        let mut pair = Pair::new();
        pair.hosts[0].link.is_room_of_peer = true;
        // Measures a round trip.
        pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
        pair.settle();
        while pair.expire(0) {}
        let until = pair.hosts[0].now + TIMEOUT_US;
        pair.hosts[0].link.room = is_full.then_some(0);
        pair.post(0, wr(2, Op::Write, 0, 40 * MTU as u32, 0x4000));
        pair.step(0, reason::POSTED);
        let mut checks = 0;
        while is_full && pair.conns[0].deadline().is_some_and(|deadline| deadline < until) {
            assert!(pair.expire(0));
            checks += 1;
        }
        assert!(checks > 2 || !is_full, "a probe would not have been due");
        pair.hosts[0].link.room = None;
        pair.step(0, reason::WRITABLE);
        pair.hosts[0].link.sent.len()
    };
    assert_eq!(first_flight(true), first_flight(false));
}

/// The wait after an RNR NAK, longer than the timeout here, is not part of it.
#[test]
fn a_full_link_after_an_rnr_nak_uses_no_retry_early() {
    let mut pair = Pair::with(|path, terms| (path.rnr_timer, terms.retries) = (26, 1));
    pair.hosts[0].link.is_room_of_peer = true;
    pair.post(0, wr(1, Op::Send, 0, 8, 0));
    pair.settle();
    assert!(pair.expire(0), "it is sent again");
    pair.settle();
    pair.hosts[0].link.room = Some(0);
    assert!(pair.expire(0));
    let began = pair.hosts[0].now;
    assert!(began > 2 * TIMEOUT_US && pair.done(0).is_empty());
    pair.lose_until_the_end(0);
    assert!(pair.hosts[0].now - began >= 2 * TIMEOUT_US, "after {} us", pair.hosts[0].now - began);
    assert_eq!(pair.done(0), [(1, status::RETRY_EXC_ERR)]);
}

/// An RNR NAK for the first of two messages arrives while the link has refused the second one: the wait comes
/// first, then the link is tried.
#[test]
fn an_rnr_nak_while_the_link_is_full_loses_no_timer_and_no_retry() {
    for is_room_of_peer in [false, true] {
        let mut pair = Pair::with(|_, terms| terms.retries = 1);
        pair.hosts[0].link.is_room_of_peer = is_room_of_peer;
        pair.hosts[0].link.room = Some(1);
        pair.post(0, wr(1, Op::Send, 0, 8, 0));
        pair.post(0, wr(2, Op::Send, 8, 8, 0));
        pair.step(0, reason::POSTED);
        pair.carry(0, &mut |_, _| Fate::Arrives);
        pair.step(1, reason::READABLE);
        assert!(pair.carry(1, &mut |_, _| Fate::Arrives), "an RNR NAK");
        pair.step(0, reason::READABLE);
        pair.hosts[0].link.room = Some(1);
        pair.step(0, reason::READABLE | reason::WRITABLE);
        assert!(pair.hosts[0].link.sent.is_empty(), "it waits");
        pair.hosts[0].link.room = Some(0);
        assert!(pair.expire(0));
        let began = pair.hosts[0].now;
        if is_room_of_peer {
            while pair.conns[0].deadline().unwrap() < began + TIMEOUT_US {
                assert!(pair.expire(0));
            }
            assert!(pair.done(0).is_empty(), "no retry is left to use");
        }
        (0..2).for_each(|i| pair.post_receive(1, 10 + i, 0x8000 + 8 * i, 8));
        pair.hosts[0].link.room = None;
        pair.step(0, reason::WRITABLE);
        pair.settle();
        assert_eq!(pair.done(0), [(1, OK), (2, OK)], "{is_room_of_peer}");
    }
}

/// The timer of a request that waits for room in a ring expires with the step that finds the end of the ring.
#[test]
fn a_ring_that_ends_uses_no_retry() {
    let mut pair = refused_by_a_full_ring(0);
    let expires = pair.hosts[0].now + TIMEOUT_US;
    while pair.conns[0].deadline() != Some(expires) {
        assert!(pair.expire(0));
    }
    pair.hosts[0].link.room = None;
    pair.hosts[0].link.ends = true;
    assert!(pair.expire(0));
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK)]);
}

/// The first copy of a request found no receive, the second one did.
#[test]
fn a_request_that_is_complete_ends_the_wait_after_its_rnr_nak() {
    let mut pair = Pair::new();
    pair.post(0, wr(1, Op::Send, 0, 8, 0));
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Twice);
    let second = pair.hosts[1].link.arrived.pop_back().unwrap();
    pair.step(1, reason::READABLE);
    pair.post_receive(1, 10, 0x8000, 8);
    pair.hosts[1].link.arrived.push_back(second);
    pair.step(1, reason::READABLE);
    pair.carry(1, &mut |_, _| Fate::Arrives);
    assert_eq!(pair.carried[1], [Operation::Acknowledge; 2], "an RNR NAK and an ACK");
    pair.post(0, wr(2, Op::Write, 0, 8, 0x4000));
    pair.step(0, reason::READABLE | reason::POSTED);
    assert_eq!(pair.done(0), [(1, OK)]);
    assert_eq!(pair.hosts[0].link.sent.len(), 1, "the next request");
}

/// The first packets of a message request no acknowledgement: nothing is sent again while the link does not
/// take the last one.
#[test]
fn a_full_link_in_a_message_repeats_nothing() {
    let mut pair = Pair::new();
    pair.post(0, wr(1, Op::Write, 0, 2 * MTU as u32, 0x4000));
    pair.hosts[0].link.room = Some(1);
    pair.step(0, reason::POSTED);
    for _ in 0..10 {
        assert!(pair.expire(0));
    }
    pair.hosts[0].link.room = None;
    pair.step(0, reason::WRITABLE);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK)]);
    assert_eq!(pair.carried[0].len(), 2);
}
