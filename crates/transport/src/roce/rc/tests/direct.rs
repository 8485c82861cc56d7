// SPDX-License-Identifier: BSD-3-Clause
//! Requests that the host carries out directly, and a link that changes.

use super::pair::{FIRST, Fate, MTU, Pair, wr};
use crate::access::{Access, REMOTE_ATOMIC, REMOTE_WRITE};
use crate::direct::WordAccess;
use crate::roce::wire::{Operation, Packet, Psn};
use crate::step::reason;
use crate::testing::recorder::{BARE, BASE, Call, STAG};
use crate::wr::{Local, Op, SendWr, status};

const OK: u32 = status::SUCCESS;

/// The lengths of the direct copies of a side.
fn copies(pair: &Pair, me: usize) -> Vec<usize> {
    let copied = |call: &Call| match call {
        Call::Transferred(_, n) => Some(*n),
        _ => None,
    };
    pair.hosts[me].calls.iter().filter_map(copied).collect()
}

#[test]
fn a_direct_copy_needs_no_packet_and_no_psn() {
    let mut pair = Pair::new();
    pair.hosts[0].transfers = [100, 0, 200].into();
    for (id, op, len) in [(1, Op::Write, 100), (2, Op::Write, 8), (3, Op::Read, 200)] {
        pair.post(0, wr(id, op, 0, len, 0x8000));
        pair.settle();
    }
    assert_eq!(copies(&pair, 0), [100, 0, 200]);
    assert_eq!(pair.carried[0], [Operation::WriteOnly], "the second one");
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)]);
}

#[test]
fn a_direct_copy_begins_when_all_before_it_is_acknowledged() {
    let mut pair = Pair::new();
    pair.post_receive(1, 10, 0x8000, 8);
    pair.hosts[0].transfers = [MTU, MTU].into();
    pair.post(0, wr(1, Op::Send, 0, 8, 0));
    pair.post(0, wr(2, Op::Write, 0, MTU as u32, 0x8000));
    pair.step(0, reason::POSTED);
    assert_eq!(copies(&pair, 0), [], "a send is outstanding");
    pair.settle();
    assert_eq!(copies(&pair, 0), [], "a short request does not wait for that");
    assert_eq!(pair.carried[0], [Operation::SendOnly, Operation::WriteOnly]);
    // A long one does, if a direct copy is then likely, and so does what follows it.
    pair.hosts[0].may_transfer = true;
    pair.hosts[0].transfers = [16 << 10, MTU].into();
    pair.post_receive(1, 11, 0x8000, 8);
    for (id, op, len) in [(3, Op::Send, 8), (4, Op::Write, 16 << 10), (5, Op::Write, MTU as u32)] {
        pair.post(0, wr(id, op, 0, len, 0x4000));
    }
    pair.step(0, reason::POSTED);
    assert_eq!(copies(&pair, 0), []);
    pair.settle();
    assert_eq!(copies(&pair, 0), [16 << 10, MTU]);
    assert_eq!(pair.carried[0].len(), 3);
    assert_eq!(pair.done(0), (1..=5).map(|id| (id, OK)).collect::<Vec<_>>());
}

#[test]
fn small_requests_are_copied_together_and_long_ones_in_pieces() {
    let mut pair = Pair::new();
    pair.hosts[0].transfers = [24, 1000, 500, 500].into();
    for id in 1..=3 {
        pair.post(0, wr(id, Op::Write, 64 * id, 8, 0x8000 + 8 * id));
    }
    pair.post(0, wr(4, Op::Read, 0, 2000, 0x8000));
    pair.settle();
    assert_eq!(copies(&pair, 0), [24, 1000, 500, 500]);
    assert!(pair.carried[0].is_empty());
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK), (4, OK)]);
}

/// A queue pair in SQD completes what it has begun, and begins nothing else.
#[test]
fn a_send_queue_is_drained_when_the_direct_copy_is_complete() {
    for is_refused in [false, true] {
        let mut pair = Pair::new();
        let rest = if is_refused { 0 } else { 500 };
        pair.hosts[0].transfers = [1500, rest, 8].into();
        pair.post(0, wr(1, Op::Write, 0, 2000, 0x8000));
        pair.post(0, wr(2, Op::Write, 0, 8, 0x8000));
        pair.step_within(0, reason::POSTED, 1);
        assert_eq!(copies(&pair, 0), [1500]);
        pair.conns[0].drain(true);
        assert!(!pair.conns[0].has_drained());
        pair.settle();
        assert!(pair.conns[0].has_drained());
        assert_eq!(pair.done(0), [(1, OK)]);
        assert_eq!(pair.carried[0].is_empty(), !is_refused, "the whole request");
        pair.conns[0].drain(false);
        pair.settle();
        assert_eq!(pair.done(0), [(2, OK)]);
    }
}

#[test]
fn a_request_that_is_copied_in_part_goes_over_the_link_as_a_whole() {
    let mut pair = Pair::new();
    pair.fill(0, 0, 4 * MTU, 9);
    pair.hosts[0].transfers = [MTU].into();
    pair.post(0, wr(1, Op::Write, 0, 4 * MTU as u32, 0x8000));
    pair.settle();
    assert_eq!(copies(&pair, 0), [MTU, 0]);
    assert_eq!(pair.carried[0].len(), 4);
    assert_eq!(pair.done(0), [(1, OK)]);
    assert_eq!(pair.bytes(0, 0, 4 * MTU), pair.bytes(1, 0x8000, 4 * MTU));
}

/// The accesses to words of a side.
fn words(pair: &Pair, me: usize) -> Vec<(Access, WordAccess)> {
    let accessed = |call: &Call| match call {
        Call::Accessed(remote, word) => Some((*remote, *word)),
        _ => None,
    };
    pair.hosts[me].calls.iter().filter_map(accessed).collect()
}

/// A request for the word at 0x8000, with its operands or its result at the beginning of the region.
fn of_word(id: u64, op: Op) -> SendWr {
    let local = match op {
        Op::FetchAdd | Op::CompareSwap => Local::Atomic { addr: BASE, lkey: STAG, compare_add: 5, swap: 6 },
        _ => Local::inline(&7u64.to_ne_bytes()).unwrap(),
    };
    SendWr { local, fence: op == Op::Write, ..wr(id, op, 0, 8, 0x8000) }
}

#[test]
fn messages_with_receives_are_not_copied_nor_are_words() {
    let mut pair = Pair::new();
    pair.hosts[0].transfers = [8; 8].into();
    pair.hosts[0].may_transfer = true;
    (10..12).for_each(|id| pair.post_receive(1, id, 0x8000, 8));
    for (id, op) in [(1, Op::Send), (2, Op::WriteWithImm)] {
        pair.post(0, wr(id, op, 0, 8, 0x8000));
    }
    for (id, op) in [(3, Op::AtomicWrite), (4, Op::FetchAdd), (5, Op::CompareSwap), (6, Op::Write)] {
        pair.post(0, of_word(id, op));
    }
    pair.settle();
    assert_eq!(copies(&pair, 0), [], "the fenced write of 8 bytes is an atomic write of librpma");
    assert_eq!(pair.done(0), (1..=6).map(|id| (id, OK)).collect::<Vec<_>>());
}

#[test]
fn a_direct_access_to_a_word_needs_no_packet_and_its_result_precedes_the_completion() {
    let mut pair = Pair::new();
    pair.hosts[0].words = [1, 2, 70, 80].into();
    for (id, op) in [(1, Op::AtomicWrite), (2, Op::Write), (3, Op::FetchAdd), (4, Op::CompareSwap)] {
        pair.post(0, of_word(id, op));
    }
    pair.settle();
    let calls = &pair.hosts[0].calls;
    let placed = calls.iter().rposition(|call| matches!(call, Call::Placed(_)));
    let done = calls.iter().rposition(|call| matches!(call, Call::SendDone(_)));
    assert!(placed.is_some() && placed < done);
    let access = |rights, word| (Access { stag: STAG, addr: BASE + 0x8000, len: 8, rights }, word);
    assert_eq!(
        words(&pair, 0),
        [
            access(REMOTE_WRITE, WordAccess::Store(7)),
            access(REMOTE_WRITE, WordAccess::Store(7)),
            access(REMOTE_ATOMIC, WordAccess::Add(5)),
            access(REMOTE_ATOMIC, WordAccess::CompareSwap { compare: 5, swap: 6 })
        ]
    );
    assert!(pair.carried[0].is_empty());
    assert_eq!(pair.bytes(0, 0, 8), 80u64.to_ne_bytes());
    assert_eq!(pair.done(0), (1..=4).map(|id| (id, OK)).collect::<Vec<_>>());
}

/// So it follows what was written before, and a flush.
#[test]
fn a_word_is_accessed_directly_when_all_before_it_is_acknowledged() {
    let mut pair = Pair::new();
    pair.hosts[0].words = [70].into();
    pair.post(0, wr(1, Op::Write, 0, 8, 0x8000));
    pair.post(0, of_word(2, Op::AtomicWrite));
    pair.step(0, reason::POSTED);
    assert_eq!(words(&pair, 0), [], "a write is outstanding");
    pair.settle();
    assert_eq!(pair.carried[0], [Operation::WriteOnly, Operation::AtomicWrite]);
    assert_eq!(pair.done(0), [(1, OK), (2, OK)]);
}

#[test]
fn a_misaligned_word_is_refused_by_the_peer() {
    let mut pair = Pair::new();
    pair.hosts[0].words = [70, 70].into();
    pair.post(0, SendWr { remote_addr: BASE + 0x8004, ..of_word(1, Op::FetchAdd) });
    pair.settle();
    assert_eq!(words(&pair, 0), []);
    assert_eq!(pair.done(0), [(1, status::REM_INV_REQ_ERR)]);
}

#[test]
fn an_atomic_operation_whose_result_cannot_be_stored_fails_and_is_not_repeated() {
    let mut pair = Pair::new();
    pair.hosts[0].words = [70, 80].into();
    let local = Local::Atomic { addr: BASE, lkey: BARE, compare_add: 5, swap: 6 };
    pair.post(0, SendWr { local, ..of_word(1, Op::FetchAdd) });
    pair.post(0, of_word(2, Op::FetchAdd));
    pair.settle();
    assert_eq!(words(&pair, 0).len(), 1);
    assert!(pair.carried[0].is_empty());
    assert_eq!(pair.done(0), [(1, status::LOC_PROT_ERR), (2, status::WR_FLUSH_ERR)]);
}

/// What the link has lost when it changes is sent again at once, and executed once.
#[test]
fn a_link_that_changes_loses_nothing() {
    for lost in [0, 1] {
        let mut pair = Pair::new();
        pair.fill(0, 0, 3 * MTU, 9);
        pair.post_receive(1, 10, 0x8000, 3 * MTU as u32);
        pair.post(0, wr(1, Op::Send, 0, 3 * MTU as u32, 0));
        pair.post(0, wr(2, Op::Read, 0x1000, 2 * MTU as u32, 0x9000));
        pair.settle_with(|from, _| if from == lost { Fate::Lost } else { Fate::Arrives });
        assert_eq!(pair.done(0), []);
        pair.change_link();
        let now = pair.hosts[0].now;
        pair.settle();
        assert_eq!(pair.done(0), [(1, OK), (2, OK)], "side {lost} lost packets");
        assert_eq!((pair.done(1), pair.hosts[0].now), (vec![(10, OK)], now));
        assert_eq!(pair.bytes(0, 0, 3 * MTU), pair.bytes(1, 0x8000, 3 * MTU));
        assert_eq!(pair.bytes(0, 0x1000, 2 * MTU), pair.bytes(1, 0x9000, 2 * MTU));
    }
}

/// A late acknowledgement over the old link tells nothing about the packets behind it.
#[test]
fn what_a_link_loses_is_sent_again_although_its_peer_is_late() {
    let mut pair = Pair::new();
    let post = |pair: &mut Pair, ids: std::ops::RangeInclusive<u64>| {
        ids.for_each(|id| pair.post(0, wr(id, Op::Write, 0, MTU as u32, 0x8000)));
    };
    post(&mut pair, 1..=1);
    pair.settle();
    post(&mut pair, 2..=3);
    pair.step(0, reason::POSTED);
    let mut is_first = true;
    pair.carry(0, &mut |_, _| if std::mem::take(&mut is_first) { Fate::Arrives } else { Fate::Lost });
    pair.step(1, reason::READABLE);
    // The link takes nothing of the probe.
    pair.hosts[0].link.room = Some(0);
    (0..3).for_each(|_| assert!(pair.expire(0)));
    pair.hosts[0].link.room = None;
    pair.change_link();
    pair.carry(1, &mut |_, _| Fate::Arrives);
    let now = pair.hosts[0].now;
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!(pair.hosts[0].now, now, "before a timer expires");
}

/// The first responses over the new link overtake the last ones over the old link.
#[test]
fn what_is_overtaken_at_a_change_of_the_link_uses_no_retry() {
    let mut pair = Pair::with(|_, terms| terms.retries = 0);
    pair.fill(1, 0x8000, 4 * MTU, 9);
    for id in 0..4 {
        let at = id * MTU as u64;
        pair.post(0, wr(id, Op::Read, at, MTU as u32, 0x8000 + at));
    }
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.step(1, reason::READABLE);
    // Every other one comes late.
    let number = |packet: &Vec<u8>| Packet::parse(packet).unwrap().bth.psn.distance(Psn::new(FIRST[0]));
    pair.hosts[1].link.sent.sort_by_key(|packet| (1 - number(packet) % 2, number(packet)));
    pair.change_link();
    pair.settle();
    assert_eq!(pair.done(0), (0..4).map(|id| (id, OK)).collect::<Vec<_>>());
    assert_eq!(pair.bytes(0, 0, 4 * MTU), pair.bytes(1, 0x8000, 4 * MTU));
    // From now on it does again.
    pair.post(0, wr(4, Op::Read, 0, MTU as u32, 0x8000));
    pair.post(0, wr(5, Op::Read, 0, MTU as u32, 0x8000));
    let mut responses = 0;
    pair.settle_with(|from, _| {
        responses += from;
        if (from, responses) == (1, 1) { Fate::Lost } else { Fate::Arrives }
    });
    assert_eq!(pair.done(0), [(4, status::RETRY_EXC_ERR), (5, status::WR_FLUSH_ERR)]);
}
