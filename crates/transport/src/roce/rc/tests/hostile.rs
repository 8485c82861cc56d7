// SPDX-License-Identifier: BSD-3-Clause
//! A hostile peer, or an attacker that forges its packets, tries to cause work, memory or answers without a
//! limit.

use super::pair::{MTU, Pair, wr};
use crate::policy::probe::{MOST, SHORTEST_US};
use crate::roce::link::Dropped;
use crate::roce::wire::{
    Aeth, AtomicEth, Bth, Extension, Nak, Opcode, Operation, Packet, Psn, Reth, Syndrome,
};
use crate::step::{Stepped, reason};
use crate::testing::recorder::{BASE, Call, SIZE, STAG};
use crate::wr::{Op, status};

const OK: u32 = status::SUCCESS;
/// The PSN of the first request to side 1.
const FIRST: u32 = 0xff_fffa;

/// A packet for side 1 arrives there; no step follows.
fn arrives(pair: &mut Pair, operation: Operation, psn: u32, extension: Extension, payload: &[u8]) {
    let bth = Bth { ack_req: true, ..Bth::new(Opcode::Rc(operation), 0x22_0002, Psn::new(psn)) };
    let mut packet = Packet::encode_headers(&bth, &extension).to_vec();
    packet.extend_from_slice(payload);
    pair.hosts[1].link.arrived.push_back(packet);
}

fn reth(len: usize) -> Extension {
    Extension::Reth(Reth { va: BASE, rkey: STAG, len: len as u32 })
}

fn write(pair: &mut Pair, psn: u32) {
    arrives(pair, Operation::WriteOnly, psn, reth(8), &[7; 8]);
}

fn step(pair: &mut Pair, why: u32, operations: usize) -> Stepped {
    pair.step_within(1, why, operations)
}

/// What side 1 has sent since the last call.
fn sent(pair: &mut Pair) -> Vec<Operation> {
    let sent = std::mem::take(&mut pair.hosts[1].link.sent);
    let operation = |packet: &Vec<u8>| match Packet::parse(packet).unwrap().bth.opcode {
        Opcode::Rc(operation) => operation,
        other => panic!("{other}"),
    };
    sent.iter().map(operation).collect()
}

#[test]
fn the_end_sends_no_more_than_the_budget() {
    let mut pair = Pair::new();
    arrives(&mut pair, Operation::ReadRequest, FIRST, reth(SIZE), &[]);
    // A middle packet without a first one.
    arrives(&mut pair, Operation::WriteMiddle, FIRST + (SIZE / MTU) as u32, Extension::None, &[0; MTU]);
    let stepped = step(&mut pair, reason::READABLE, 10);
    assert!(pair.conns[1].is_over() && stepped.again);
    let mut all = sent(&mut pair);
    assert!(all.len() <= 20, "{} packets in one step", all.len());
    while step(&mut pair, reason::AGAIN, 10).again {
        let more = sent(&mut pair);
        assert!(more.len() <= 10);
        all.extend(more);
    }
    all.extend(sent(&mut pair));
    assert_eq!(all.len(), SIZE / MTU + 1, "the data of the read, and then the NAK");
    assert_eq!(all.last(), Some(&Operation::Acknowledge));
}

#[test]
fn reads_are_not_answered_when_the_program_has_ended_it() {
    let mut pair = Pair::new();
    write(&mut pair, FIRST);
    arrives(&mut pair, Operation::ReadRequest, FIRST + 1, reth(SIZE), &[]);
    pair.hosts[1].link.room = Some(0);
    step(&mut pair, reason::READABLE, 100);
    pair.hosts[1].link.room = None;
    step(&mut pair, reason::DISCONNECT | reason::WRITABLE, 100);
    assert_eq!(sent(&mut pair), [Operation::Acknowledge], "of the write");
}

/// After a disconnect no read is answered, even if the connection ended for another reason.
#[test]
fn reads_are_not_answered_after_a_disconnect() {
    for is_over in [false, true] {
        let mut pair = Pair::new();
        pair.hosts[1].link.room = Some(0);
        arrives(&mut pair, Operation::ReadRequest, FIRST, reth(SIZE), &[]);
        arrives(&mut pair, Operation::WriteMiddle, FIRST + (SIZE / MTU) as u32, Extension::None, &[0; MTU]);
        if is_over {
            step(&mut pair, reason::READABLE, 100);
            assert!(pair.conns[1].is_over());
        }
        step(&mut pair, reason::READABLE | reason::DISCONNECT, 100);
        pair.hosts[1].link.room = None;
        step(&mut pair, reason::WRITABLE, 100);
        assert!(sent(&mut pair).is_empty(), "{is_over}");
    }
}

/// Packets behind the first one of a write belong to it by their operation, not by their length.
#[test]
fn a_write_within_a_write_is_refused() {
    let mut pair = Pair::new();
    arrives(&mut pair, Operation::WriteFirst, FIRST, reth(8 * MTU), &[1; MTU]);
    (1..3).for_each(|n| arrives(&mut pair, Operation::WriteOnly, FIRST + n, reth(MTU), &[2; MTU]));
    step(&mut pair, reason::READABLE, 100);
    assert!(pair.conns[1].is_over());
    assert_ne!(pair.bytes(1, MTU as u64, 1), [2]);
}

/// A program that polls the completion finds the queue pair in ERR.
#[test]
fn a_receive_fails_after_the_end_has_begun() {
    let mut pair = Pair::new();
    pair.post_receive(1, 20, 0x7000, 8);
    arrives(&mut pair, Operation::SendOnly, FIRST, Extension::None, &[1; 16]);
    step(&mut pair, reason::READABLE, 100);
    let before_end = pair.hosts[1].calls_before_end.unwrap();
    assert!(pair.hosts[1].calls[..before_end].iter().all(|call| !matches!(call, Call::RecvDone(_))));
    assert_eq!(pair.done(1), [(20, status::LOC_LEN_ERR)]);
}

#[test]
fn a_dropped_packet_has_a_reason() {
    let mut pair = Pair::new();
    let ack = Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 1 });
    arrives(&mut pair, Operation::WriteOnly, FIRST + 1, reth(8), &[7; 8]);
    arrives(&mut pair, Operation::Acknowledge, 77, ack, &[]);
    write(&mut pair, FIRST);
    write(&mut pair, FIRST);
    let link = &mut pair.hosts[1].link;
    let mut other = link.arrived.back().unwrap().clone();
    other[2] = 0x12;
    link.arrived.push_back(other);
    link.arrived.push_back(vec![0x64; 20]);
    step(&mut pair, reason::READABLE, 100);
    let expected = [Dropped::Psn, Dropped::Psn, Dropped::Pkey, Dropped::Malformed];
    assert_eq!(pair.hosts[1].link.dropped, expected, "and not the duplicate");
}

/// The peer requests more than a step sends, again and again.
#[test]
fn replies_leave_room_for_requests() {
    let mut pair = Pair::new();
    let read = |pair: &mut Pair, n: u32| {
        arrives(pair, Operation::ReadRequest, (FIRST + n * (SIZE / MTU) as u32) & 0xff_ffff, reth(SIZE), &[]);
    };
    (0..2).for_each(|n| read(&mut pair, n));
    pair.post(1, wr(1, Op::Write, 0, 8, 0x4000));
    let all = (2..5).map(|n| {
        read(&mut pair, n);
        step(&mut pair, reason::READABLE | reason::POSTED, 10);
        sent(&mut pair)
    });
    assert!(all.flatten().any(|operation| operation == Operation::WriteOnly));
}

#[test]
fn what_arrives_after_the_end_is_taken_in_portions() {
    let mut pair = Pair::new();
    step(&mut pair, reason::DISCONNECT, 100);
    (0..25).for_each(|_| write(&mut pair, FIRST));
    let again: Vec<_> = (0..3).map(|_| step(&mut pair, reason::READABLE, 10).again).collect();
    assert_eq!(again, [true, true, false]);
    assert!(sent(&mut pair).is_empty());
}

/// NAKs and ACKs while the link takes nothing: the response of a read finds room behind them.
#[test]
fn acknowledgements_that_wait_are_merged() {
    let mut pair = Pair::new();
    pair.hosts[1].link.room = Some(0);
    for round in 0..40 {
        write(&mut pair, FIRST + round + 1);
        step(&mut pair, reason::READABLE, 100);
        write(&mut pair, FIRST + round);
        step(&mut pair, reason::READABLE, 100);
    }
    arrives(&mut pair, Operation::ReadRequest, FIRST + 40, reth(8), &[]);
    step(&mut pair, reason::READABLE, 100);
    pair.hosts[1].link.room = None;
    step(&mut pair, reason::WRITABLE, 100);
    assert_eq!(sent(&mut pair), [Operation::Acknowledge, Operation::ReadOnly]);
}

/// A NAK that waits is not replaced by the ACK of a duplicate, which covers less.
#[test]
fn a_nak_survives_a_duplicate() {
    let mut pair = Pair::new();
    pair.hosts[1].link.room = Some(0);
    write(&mut pair, FIRST);
    write(&mut pair, FIRST + 2);
    step(&mut pair, reason::READABLE, 100);
    write(&mut pair, FIRST);
    step(&mut pair, reason::READABLE, 100);
    pair.hosts[1].link.room = None;
    step(&mut pair, reason::WRITABLE, 100);
    let packets = std::mem::take(&mut pair.hosts[1].link.sent);
    let syndromes: Vec<_> = packets
        .iter()
        .filter_map(|packet| match Packet::parse(packet).unwrap().extension {
            Extension::Aeth(aeth) => Some(aeth.syndrome),
            _ => None,
        })
        .collect();
    assert_eq!(syndromes, [Syndrome::Nak(Nak::PsnSequence)]);
}

#[test]
fn duplicates_in_masses_get_few_replies() {
    let mut pair = Pair::new();
    pair.hosts[1].memory.bytes[..8].fill(0);
    let add = Extension::Atomic(AtomicEth { va: BASE, rkey: STAG, swap_add: 1, compare: 0 });
    write(&mut pair, FIRST);
    arrives(&mut pair, Operation::FetchAdd, FIRST + 1, add, &[]);
    arrives(&mut pair, Operation::ReadRequest, FIRST + 2, reth(8), &[]);
    step(&mut pair, reason::READABLE, 100);
    assert_eq!(sent(&mut pair).len(), 3);
    for _ in 0..1_000 {
        write(&mut pair, FIRST);
        arrives(&mut pair, Operation::FetchAdd, FIRST + 1, add, &[]);
        arrives(&mut pair, Operation::ReadRequest, FIRST + 2, reth(8), &[]);
    }
    pair.hosts[1].calls.clear();
    step(&mut pair, reason::READABLE, usize::MAX);
    let replies = sent(&mut pair);
    assert!((1..=20).contains(&replies.len()), "{} replies", replies.len());
    assert!(!pair.hosts[1].calls.iter().any(|call| matches!(call, Call::Changed(_) | Call::Placed(_))));
    assert!(pair.conns[1].is_open());
}

#[test]
fn a_psn_far_outside_changes_nothing_and_gets_one_nak() {
    let mut pair = Pair::new();
    for distance in [1, 2, 1_000, 0x7f_ffff] {
        (0..50).for_each(|_| write(&mut pair, FIRST + distance));
    }
    step(&mut pair, reason::READABLE, usize::MAX);
    assert_eq!(sent(&mut pair), [Operation::Acknowledge]);
    // Earlier PSNs: duplicates of requests that were never sent.
    arrives(&mut pair, Operation::FetchAdd, FIRST - 1, reth_of_atomic(), &[]);
    arrives(&mut pair, Operation::ReadRequest, FIRST - 1, reth(SIZE), &[]);
    (0..50).for_each(|_| write(&mut pair, FIRST + 0x80_0000));
    step(&mut pair, reason::READABLE, usize::MAX);
    assert_eq!(sent(&mut pair), [Operation::Acknowledge]);
    assert!(!pair.hosts[1].calls.iter().any(|call| matches!(call, Call::Changed(_) | Call::Placed(_))));
    write(&mut pair, FIRST);
    step(&mut pair, reason::READABLE, 100);
    assert_eq!(sent(&mut pair), [Operation::Acknowledge]);
}

fn reth_of_atomic() -> Extension {
    Extension::Atomic(AtomicEth { va: BASE, rkey: STAG, swap_add: 1, compare: 0 })
}

/// NAKs of one gap, and ACKs that say that the response of a read was lost, in masses.
#[test]
fn forged_naks_cost_one_retransmission() {
    let forged = [
        (Operation::Acknowledge, Syndrome::Nak(Nak::PsnSequence)),
        (Operation::Acknowledge, Syndrome::Reserved(0xff)),
        (Operation::Acknowledge, Syndrome::Nak(Nak::Other(31))),
    ];
    for (operation, syndrome) in forged {
        let mut pair = Pair::new();
        pair.post(1, wr(1, Op::Read, 0, 8, 0x4000));
        pair.post(1, wr(2, Op::Write, 0, 8, 0x4000));
        step(&mut pair, reason::POSTED, 100);
        assert_eq!(sent(&mut pair).len(), 2);
        for _ in 0..1_000 {
            let aeth = Extension::Aeth(Aeth { syndrome, msn: 1 });
            arrives(&mut pair, operation, 0x10, aeth, &[]);
            let ack = Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 1 });
            arrives(&mut pair, Operation::Acknowledge, 0x11, ack, &[]);
            step(&mut pair, reason::READABLE, 100);
        }
        assert!(sent(&mut pair).len() <= 2, "{syndrome:?}");
        assert!(pair.conns[1].is_open() && pair.done(1).is_empty());
    }
}

/// A peer that takes back what it has acknowledged, or acknowledges what it has not got.
#[test]
fn acks_complete_nothing_twice() {
    let mut pair = Pair::new();
    for id in 0..6 {
        pair.post(1, wr(id, Op::Write, 0, 8, 0x4000));
    }
    step(&mut pair, reason::POSTED, 100);
    for psn in [0x12, 0x10, 0x12, 0x0f, 0x16, 0xff_ffff, 0x13, 0x80_0010, 0x15, 0x15] {
        let ack = Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 9 });
        arrives(&mut pair, Operation::Acknowledge, psn, ack, &[]);
        step(&mut pair, reason::READABLE, 100);
    }
    assert_eq!(pair.done(1), (0..6).map(|id| (id, OK)).collect::<Vec<_>>());
    assert!(pair.conns[1].is_open());
}

#[test]
fn the_longest_timeout_and_rnr_delay_do_not_overflow() {
    let mut pair = Pair::with(|_, terms| terms.timeout = 31);
    pair.post(1, wr(1, Op::Send, 0, 8, 0));
    step(&mut pair, reason::POSTED, 100);
    let began = pair.hosts[1].now;
    // The check after the request was sent, then those that predict its loss.
    (0..=MOST).for_each(|_| assert!(pair.expire(1)));
    assert_eq!(pair.conns[1].deadline(), Some(began + SHORTEST_US + 8_796_093_022));
    for _ in 0..100 {
        let rnr = Extension::Aeth(Aeth { syndrome: Syndrome::Rnr { timer: 0 }, msn: 0 });
        arrives(&mut pair, Operation::Acknowledge, 0x10, rnr, &[]);
        step(&mut pair, reason::READABLE, 100);
        assert!(pair.expire(1));
    }
    assert!(pair.conns[1].is_open() && pair.done(1).is_empty(), "rnr_retry 7 is unlimited");
}
