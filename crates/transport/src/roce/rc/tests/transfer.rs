// SPDX-License-Identifier: BSD-3-Clause
//! Each operation over a network that loses nothing.

use super::pair::{Fate, MTU, Pair, wr};
use crate::policy::mode::Mode;
use crate::roce::wire::Operation;
use crate::step::{Progress, reason};
use crate::testing::recorder::{BASE, Call, STAG};
use crate::wr::{Extra, Local, Op, SendWr, opcode, status};

const OK: u32 = status::SUCCESS;

#[test]
fn writes_of_every_length() {
    for len in [0, 1, 3, 8, MTU - 1, MTU, MTU + 1, 3 * MTU, 40 * MTU + 5] {
        let mut pair = Pair::new();
        pair.fill(0, 0, len, 9);
        pair.post(0, wr(1, Op::Write, 0, len as u32, 0x8000));
        pair.settle();
        assert_eq!(pair.done(0), [(1, OK)], "{len} bytes");
        assert_eq!(pair.hosts[1].served, [(1, len as u64), (0, 0), (0, 0)]);
        assert_eq!(pair.bytes(0, 0, len), pair.bytes(1, 0x8000, len), "{len} bytes");
        assert!(pair.conns.iter().all(|conn| conn.is_at_rest()));
    }
}

#[test]
fn reads_of_every_length() {
    for len in [0, 1, 8, MTU, MTU + 1, 33 * MTU, 100 * MTU + 5] {
        let mut pair = Pair::new();
        pair.fill(1, 0x8000, len, 5);
        pair.post(0, wr(1, Op::Read, 0, len as u32, 0x8000));
        pair.settle();
        assert_eq!(pair.done(0), [(1, OK)], "{len} bytes");
        assert_eq!(pair.bytes(0, 0, len), pair.bytes(1, 0x8000, len), "{len} bytes");
        let requests = pair.carried[0].iter().filter(|&&sent| sent == Operation::ReadRequest).count();
        assert_eq!(requests, len.div_ceil(32 * MTU).max(1), "pieces of {len} bytes");
        assert_eq!(pair.hosts[1].served, [(0, 0), (requests as u64, len as u64), (0, 0)]);
    }
}

/// The first packet and the one behind it arrive together, then the others by five.
#[test]
fn what_arrives_together_is_placed_together() {
    for (op, from, to) in [(Op::Write, 0, 1), (Op::Read, 1, 0)] {
        let mut pair = Pair::new();
        let places: [u32; 2] = [0, 0x8000];
        pair.fill(from, places[from] as usize, 12 * MTU, 9);
        pair.post(0, wr(1, op, places[0].into(), 12 * MTU as u32, places[1].into()));
        pair.settle();
        let settled = pair.hosts[to].calls.iter().filter(|call| **call == Call::Settled).count();
        assert_eq!(settled, 5, "{op:?}: first, 1, 5, 4, last");
        assert_eq!(pair.done(0), [(1, OK)]);
        assert_eq!(pair.bytes(0, 0, 12 * MTU), pair.bytes(1, 0x8000, 12 * MTU));
    }
}

/// Posts a write of eight bytes each to these places, one behind the other.
fn post_small_writes(pair: &mut Pair, places: &[u64]) {
    for (n, place) in (0..).zip(places) {
        pair.post(0, wr(n, Op::Write, 64 * n, 8, *place));
    }
}

/// The accesses by which bytes were placed, and how many batches of them there were.
fn placed(calls: &[Call]) -> (Vec<u64>, usize) {
    let place = |call: &Call| match call {
        Call::Placed(access) => Some(access.addr - BASE),
        _ => None,
    };
    let batches = calls.iter().filter(|call| **call == Call::Settled).count();
    (calls.iter().filter_map(place).collect(), batches)
}

#[test]
fn small_writes_that_arrive_together_are_placed_together() {
    let mut pair = Pair::new();
    let places = [0x8000, 0x9008, 0x8010, 0x8000, 0x7000];
    post_small_writes(&mut pair, &places);
    pair.settle();
    assert_eq!(placed(&pair.hosts[1].calls), (places.to_vec(), 1));
    assert_eq!(pair.hosts[1].served, [(5, 40), (0, 0), (0, 0)]);
    assert!(pair.hosts[1].calls.contains(&Call::Established));
    assert_eq!(pair.done(0), [0, 1, 2, 3, 4].map(|id| (id, OK)));
    assert_eq!(pair.carried[1], [Operation::Acknowledge], "one for all");
    assert_eq!(pair.bytes(0, 64 * 3, 8), pair.bytes(1, 0x8000, 8), "in order");
    assert_eq!(pair.bytes(0, 64, 8), pair.bytes(1, 0x9008, 8));
}

#[test]
fn a_small_write_among_others_fails_alone_and_none_is_placed_twice() {
    const DENIED: u64 = 0x1_0000;
    let mut pair = Pair::new();
    post_small_writes(&mut pair, &[0x8000, 0x8008, DENIED, 0x8010, 0x8018]);
    pair.settle();
    assert_eq!(placed(&pair.hosts[1].calls).0, [0x8000, 0x8008]);
    let refused = (2, status::REM_ACCESS_ERR);
    let flushed = [3, 4].map(|id| (id, status::WR_FLUSH_ERR));
    assert_eq!(pair.done(0), [[(0, OK), (1, OK), refused].as_slice(), &flushed].concat());

    let mut pair = Pair::new();
    pair.hosts[1].memory.mapped_to = BASE + 0x9000;
    post_small_writes(&mut pair, &[0x8000, 0x8008, 0x9000, 0x8010, 0x8018]);
    pair.settle();
    assert_eq!(placed(&pair.hosts[1].calls).0, [0x8000, 0x8008], "memory that is gone");
    assert_eq!(pair.done(0)[2], refused);
}

#[test]
fn small_writes_need_the_right_of_the_queue_pair() {
    let mut pair = Pair::with(|path, _| path.access = 0);
    post_small_writes(&mut pair, &[0x8000, 0x8008]);
    pair.settle();
    assert_eq!(placed(&pair.hosts[1].calls).0, []);
    assert_eq!(pair.done(0)[0], (0, status::REM_INV_REQ_ERR));
}

#[test]
fn messages_without_payload_name_no_memory() {
    let mut pair = Pair::new();
    pair.post_receive(1, 10, 0x8000, 8);
    for (id, op) in [(1, Op::Send), (2, Op::Write), (3, Op::Read)] {
        let local = Local::memory(&[]).unwrap();
        pair.post(0, SendWr { local, rkey: 0, ..wr(id, op, 0, 0, 0) });
    }
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!(pair.done(1), [(10, OK)]);
}

#[test]
fn sends_take_receives_in_order() {
    let mut pair = Pair::new();
    pair.fill(0, 0, 2 * MTU, 1);
    for (id, at) in [(10, 0x8000), (11, 0x9000), (12, 0xa000)] {
        pair.post_receive(1, id, at, 1024);
    }
    pair.post(0, wr(1, Op::Send, 0, 2 * MTU as u32, 0));
    pair.post(0, wr(2, Op::SendWithImm, 0, 0, 0));
    let mut write = wr(3, Op::WriteWithImm, 0, MTU as u32 + 1, 0x4000);
    write.solicited = true;
    pair.post(0, write);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)]);
    let received = pair.completions(1);
    let seen: Vec<_> = received.iter().map(|done| (done.wr_id, done.opcode, done.byte_len)).collect();
    let len = 2 * MTU as u32;
    assert_eq!(
        seen,
        [(10, opcode::RECV, len), (11, opcode::RECV, 0), (12, opcode::RECV_RDMA_WITH_IMM, MTU as u32 + 1)]
    );
    assert_eq!(received[1].extra, Extra::Imm([1, 2, 3, 4]));
    assert!(received[2].solicited && !received[1].solicited);
    assert_eq!(pair.bytes(0, 0, 2 * MTU), pair.bytes(1, 0x8000, 2 * MTU));
    assert_eq!(pair.bytes(0, 0, MTU + 1), pair.bytes(1, 0x4000, MTU + 1));
}

/// The driver may take both reasons at a time: the peer disconnects once its requests are complete.
#[test]
fn what_has_arrived_before_the_end_counts() {
    let mut pair = Pair::new();
    for me in 0..2 {
        pair.post_receive(me, 10, 0x8000, 8);
    }
    pair.post(0, wr(1, Op::Send, 0, 8, 0));
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.step(1, reason::READABLE);
    pair.carry(1, &mut |_, _| Fate::Arrives);
    pair.post(1, wr(2, Op::Send, 0, 8, 0));
    pair.step(1, reason::POSTED);
    pair.carry(1, &mut |_, _| Fate::Arrives);
    pair.step(0, reason::READABLE | reason::DISCONNECT);
    assert_eq!(pair.done(0), [(10, OK), (1, OK)], "the acknowledgement came later than the message");
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.step(1, reason::READABLE | reason::DISCONNECT);
    assert_eq!(pair.done(1), [(10, OK), (2, OK)]);
}

/// The budget bounds the steps of a connection that continues; after the last one nothing is received.
#[test]
fn what_has_arrived_before_the_end_may_exceed_the_budget() {
    const MESSAGES: u64 = 12;
    for why in [reason::READABLE, reason::AGAIN, 0] {
        let mut pair = Pair::in_mode(Mode::Always, |_, _| {});
        for id in 0..MESSAGES {
            pair.post_receive(0, id, 0x8000, 8);
            pair.post(1, wr(id, Op::Send, 0, 8, 0));
        }
        pair.step(1, reason::POSTED);
        pair.carry(1, &mut |_, _| Fate::Arrives);
        assert_eq!(pair.hosts[0].link.arrived.len(), MESSAGES as usize);
        pair.step_within(0, why | reason::DISCONNECT, 2);
        assert_eq!(pair.done(0), (0..MESSAGES).map(|id| (id, OK)).collect::<Vec<_>>());
        assert!(pair.conns[0].is_over());
    }
}

#[test]
fn atomic_operations() {
    let mut pair = Pair::new();
    pair.hosts[1].memory.bytes[0x800..0x808].copy_from_slice(&40u64.to_ne_bytes());
    let atomic = |id, op, at, compare_add, swap| {
        let mut wr = wr(id, op, at, 8, 0x800);
        wr.local = match wr.local {
            Local::Memory { addr, lkey } => Local::Atomic { addr, lkey, compare_add, swap },
            other => other,
        };
        wr
    };
    pair.post(0, atomic(1, Op::FetchAdd, 0, 2, 0));
    pair.post(0, atomic(2, Op::CompareSwap, 8, 42, 7));
    pair.post(0, atomic(3, Op::CompareSwap, 16, 42, 8));
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)]);
    let word = |at| u64::from_ne_bytes(pair.bytes(0, at, 8).try_into().unwrap());
    assert_eq!([word(0), word(8), word(16)], [40, 42, 7]);
    assert_eq!(pair.bytes(1, 0x800, 8), 7u64.to_ne_bytes());
    assert_eq!(pair.hosts[1].served, [(0, 0), (0, 0), (3, 24)]);
}

#[test]
fn a_fence_waits_for_reads() {
    let mut pair = Pair::new();
    pair.fill(1, 0x8000, 64, 3);
    pair.post(0, wr(1, Op::Read, 0, 64, 0x8000));
    let mut write = wr(2, Op::Write, 0, 64, 0x9000);
    write.fence = true;
    pair.post(0, write);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK)]);
    assert_eq!(pair.bytes(1, 0x9000, 64), pair.bytes(1, 0x8000, 64), "the write sends what the read fetched");
}

#[test]
fn more_reads_than_the_peer_takes_wait() {
    let mut pair = Pair::with(|path, terms| (path.reads, terms.reads) = (2, 2));
    for id in 0..9 {
        pair.post(0, wr(id, Op::Read, 8 * id, 8, 0x8000));
    }
    pair.settle();
    assert_eq!(pair.done(0), (0..9).map(|id| (id, OK)).collect::<Vec<_>>());
}

#[test]
fn the_acknowledgement_of_an_unsignalled_request_frees_its_entry() {
    let mut pair = Pair::new();
    for (signaled, awaits) in [(true, false), (false, true)] {
        pair.post(0, SendWr { signaled, ..wr(1, Op::Write, 0, 8, 0x8000) });
        pair.step(0, reason::POSTED);
        assert_eq!(pair.conns[0].awaits_entries(), awaits, "signalled: {signaled}");
        pair.settle();
        assert!(!pair.conns[0].awaits_entries());
    }
    assert_eq!(pair.done(0), [(1, OK)]);
}

#[test]
fn both_directions_at_once() {
    let mut pair = Pair::new();
    let len = 50 * MTU;
    for me in 0..2 {
        pair.fill(me, 0, len, me as u8);
        pair.post(me, wr(1, Op::Write, 0, len as u32, 0x5000));
        pair.post(me, wr(2, Op::Read, 0xa000, 1000, 0));
    }
    pair.settle();
    for me in 0..2 {
        assert_eq!(pair.done(me), [(1, OK), (2, OK)]);
        assert_eq!(pair.bytes(me, 0, len), pair.bytes(1 - me, 0x5000, len));
    }
}

fn ten_atomic_operations() -> Pair {
    let mut pair = Pair::with(|path, terms| (path.reads, terms.reads) = (16, 16));
    for id in 0..10 {
        let local = Local::Atomic { addr: BASE, lkey: STAG, compare_add: 1, swap: 0 };
        pair.post(0, SendWr { local, ..wr(id, Op::FetchAdd, 0, 8, 0x4000) });
    }
    pair
}

/// The engine serves others after [`crate::step::ATOMIC_OPERATIONS`] operations for each.
#[test]
fn a_step_carries_out_few_atomic_operations_of_the_peer() {
    let mut pair = ten_atomic_operations();
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    for carried_out in [4, 4, 2] {
        let stepped = pair.step_within(1, reason::READABLE, 256);
        assert_eq!(pair.hosts[1].link.sent.len(), carried_out);
        assert_eq!(stepped.again, carried_out == 4);
        pair.carry(1, &mut |_, _| Fate::Arrives);
    }
    pair.settle();
    assert_eq!(pair.done(0).len(), 10);
}

/// Also those that the last step had left, and however often they were sent again.
#[test]
fn atomic_operations_that_have_arrived_are_carried_out_before_the_end() {
    let mut pair = ten_atomic_operations();
    let number = |pair: &Pair| u64::from_ne_bytes(pair.bytes(1, 0x4000, 8).try_into().unwrap());
    let before = number(&pair);
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    let again: Vec<_> = pair.hosts[1].link.arrived.iter().skip(1).cycle().take(30).cloned().collect();
    pair.hosts[1].link.arrived.extend(again);
    pair.post(1, wr(20, Op::Write, 0, 8, 0x6000));
    pair.step_within(1, reason::READABLE | reason::POSTED, 2);
    pair.carry(1, &mut |_, _| Fate::Arrives);
    pair.step(0, reason::READABLE);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.step_within(1, reason::READABLE | reason::DISCONNECT, 1);
    assert_eq!(number(&pair), before + 10);
    assert_eq!(pair.done(1), [(20, OK)], "its acknowledgement came behind them");
}
