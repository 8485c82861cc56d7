// SPDX-License-Identifier: BSD-3-Clause
//! ATOMIC WRITE and FLUSH (annex A19).

use super::pair::{Fate, Pair, wr};
use crate::access::{Access, FLUSH_GLOBAL, FLUSH_PERSISTENT, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::host::Durable;
use crate::limits::MAX_DEFERRED_PACKETS;
use crate::roce::wire::{
    Bth, Extension, Feth, Nak, Opcode, Operation, Packet, Psn, Reth, Selectivity, Syndrome,
};
use crate::step::reason;
use crate::testing::recorder::{BARE, BASE, Call, SIZE, STAG};
use crate::wr::{Local, Op, SendWr, opcode, status};

const OK: u32 = status::SUCCESS;
/// The PSN of the first request to side 1.
const FIRST: u32 = 0xff_fffa;

fn atomic_write(id: u64, word: u64, remote: u64) -> SendWr {
    SendWr { local: Local::inline(&word.to_ne_bytes()).unwrap(), ..wr(id, Op::AtomicWrite, 0, 8, remote) }
}

fn stores(pair: &Pair) -> usize {
    pair.hosts[1].calls.iter().filter(|call| matches!(call, Call::Stored(_))).count()
}

#[test]
fn an_atomic_write_is_one_store() {
    let mut pair = Pair::new();
    pair.post(0, atomic_write(1, 0x0102_0304_0506_0708, 0x800));
    pair.settle();
    let done = pair.completions(0);
    assert_eq!((done[0].status, done[0].opcode), (OK, opcode::ATOMIC_WRITE));
    assert_eq!(pair.carried, [vec![Operation::AtomicWrite], vec![Operation::ReadOnly]]);
    assert_eq!(pair.bytes(1, 0x800, 8), 0x0102_0304_0506_0708u64.to_ne_bytes());
    assert_eq!(stores(&pair), 1);
    assert!(!pair.hosts[1].calls.iter().any(|call| matches!(call, Call::Placed(_))));
}

/// It takes one of the outstanding reads, and a fence waits for it.
#[test]
fn an_atomic_write_counts_as_a_read() {
    let mut pair = Pair::with(|path, terms| (path.reads, terms.reads) = (2, 2));
    for id in 0..9 {
        pair.post(0, atomic_write(id, id, 0x800));
    }
    pair.post(0, SendWr { fence: true, ..wr(9, Op::Write, 0, 8, 0x4000) });
    pair.settle();
    assert_eq!(pair.done(0), (0..10).map(|id| (id, OK)).collect::<Vec<_>>());
    let fenced = pair.carried[0].iter().position(|&sent| sent == Operation::WriteOnly);
    assert_eq!(fenced, Some(9));
}

#[test]
fn a_repeated_atomic_write_is_answered_and_not_stored_again() {
    let mut pair = Pair::new();
    pair.post(0, atomic_write(1, 1, 0x800));
    pair.post(0, wr(2, Op::Write, 0, 8, 0x800));
    pair.settle_with(|from, _| if from == 1 { Fate::Lost } else { Fate::Arrives });
    assert!(pair.done(0).is_empty());
    for _ in 0..2 {
        assert!(pair.expire(0));
        pair.settle();
    }
    assert_eq!(pair.done(0), [(1, OK), (2, OK)]);
    assert_eq!(stores(&pair), 1);
    assert_eq!(pair.bytes(1, 0x800, 8), pair.bytes(0, 0, 8), "the write is later");
}

#[test]
fn an_atomic_write_that_is_refused() {
    let right = |access: u32| Pair::with(move |path, _| path.access = access);
    let all = REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC;
    for (access, wr, expected) in [
        (all & !REMOTE_WRITE, atomic_write(1, 1, 0x800), status::REM_INV_REQ_ERR),
        (all, atomic_write(1, 1, 0x804), status::REM_INV_REQ_ERR),
        (all, SendWr { rkey: BARE, ..atomic_write(1, 1, 0x800) }, status::REM_ACCESS_ERR),
        (all, atomic_write(1, 1, 0x1_0000), status::REM_ACCESS_ERR),
        (REMOTE_WRITE, atomic_write(1, 1, 0x800), OK),
    ] {
        let mut pair = right(access);
        pair.post(0, wr.clone());
        pair.settle();
        assert_eq!(pair.done(0), [(1, expected)], "{wr:?}");
        assert_eq!(stores(&pair), usize::from(expected == OK));
    }
}

/// The first packet for side 1, from a hostile peer.
fn arrives(pair: &mut Pair, operation: Operation, extension: Extension, payload: &[u8]) {
    arrives_at(pair, FIRST, operation, extension, payload);
}

fn arrives_at(pair: &mut Pair, psn: u32, operation: Operation, extension: Extension, payload: &[u8]) {
    let bth = Bth::new(Opcode::Rc(operation), 0x22_0002, Psn::new(psn));
    let mut packet = Packet::encode_headers(&bth, &extension).to_vec();
    packet.extend_from_slice(payload);
    pair.hosts[1].link.arrived.push_back(packet);
    pair.settle();
}

#[test]
fn an_atomic_write_has_eight_bytes() {
    for (len, payload) in [(8, &[1; 4][..]), (8, &[1; 12]), (4, &[1; 8]), (16, &[1; 8]), (0, &[])] {
        let mut pair = Pair::new();
        let reth = Extension::Reth(Reth { va: BASE, rkey: STAG, len });
        arrives(&mut pair, Operation::AtomicWrite, reth, payload);
        assert!(pair.conns[1].is_over(), "{len} bytes, {} in the packet", payload.len());
        assert_eq!(stores(&pair), 0);
    }
}

fn flush(id: u64, rights: u32, len: u32, remote: u64) -> SendWr {
    let local = Local::Flush { len, rights, whole: false };
    SendWr { local, ..wr(id, Op::Flush, 0, 0, remote) }
}

fn flushed(pair: &Pair) -> Vec<(Access, u64)> {
    let flush = |call: &Call| match *call {
        Call::Flushed(access, number) => Some((access, number)),
        _ => None,
    };
    pair.hosts[1].calls.iter().filter_map(flush).collect()
}

/// The flush with this number ends.
fn ends(pair: &mut Pair, number: u64, durable: bool) {
    let (conn, host) = (&mut pair.conns[1], &mut pair.hosts[1]);
    conn.durable(host, number, durable);
    pair.step(1, reason::DURABLE);
    pair.settle();
}

#[test]
fn a_flush_to_visibility_waits_for_nothing() {
    let mut pair = Pair::new();
    pair.hosts[1].durable = Durable::Later;
    pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
    pair.post(0, flush(2, FLUSH_GLOBAL, 8, 0x4000));
    pair.settle();
    let done = pair.completions(0);
    assert_eq!((done[1].status, done[1].opcode, done[1].byte_len), (OK, opcode::FLUSH, 0));
    assert_eq!(pair.carried[0], [Operation::WriteOnly, Operation::Flush]);
    assert_eq!(pair.carried[1].last(), Some(&Operation::ReadOnly));
    assert!(flushed(&pair).is_empty());
}

#[test]
fn a_flush_to_persistence_is_answered_when_the_range_is_durable() {
    let mut pair = Pair::new();
    pair.hosts[1].durable = Durable::Later;
    pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
    pair.post(0, flush(2, FLUSH_PERSISTENT, 100, 0x4000));
    pair.post(0, wr(3, Op::Write, 0, 8, 0x5000));
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK)]);
    let access = Access { stag: STAG, addr: BASE + 0x4000, len: 100, rights: FLUSH_PERSISTENT };
    assert_eq!(flushed(&pair), [(access, 1)]);
    assert_eq!(pair.bytes(0, 0, 8), pair.bytes(1, 0x5000, 8), "what follows is carried out");
    ends(&mut pair, 1, true);
    assert_eq!(pair.done(0), [(2, OK), (3, OK)]);
}

#[test]
fn a_flush_of_a_region_covers_all_of_it() {
    let mut pair = Pair::new();
    let rights = FLUSH_GLOBAL | FLUSH_PERSISTENT;
    // Its address is ignored.
    let local = Local::Flush { len: 0, rights, whole: true };
    pair.post(0, SendWr { local, remote_addr: 0, ..flush(1, rights, 0, 0) });
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK)]);
    assert_eq!(flushed(&pair), [(Access { stag: STAG, addr: BASE, len: SIZE, rights }, 1)]);
}

#[test]
fn a_repeated_flush_waits_and_flushes_once() {
    let mut pair = Pair::new();
    pair.hosts[1].durable = Durable::Later;
    pair.post(0, flush(1, FLUSH_PERSISTENT, 8, 0x4000));
    pair.settle();
    for _ in 0..2 {
        assert!(pair.expire(0));
        pair.settle();
    }
    assert!(pair.done(0).is_empty(), "the duplicate is not answered before");
    ends(&mut pair, 1, true);
    assert_eq!(pair.done(0), [(1, OK)]);
    assert_eq!(flushed(&pair).len(), 1);
}

/// The response leaves over the new link, once.
#[test]
fn a_flush_ends_after_a_change_of_the_link() {
    let mut pair = Pair::new();
    pair.hosts[1].durable = Durable::Later;
    pair.post(0, flush(1, FLUSH_PERSISTENT, 8, 0x4000));
    pair.post(0, atomic_write(2, 1, 0x800));
    pair.settle();
    for _ in 0..2 {
        pair.change_link();
        pair.settle();
    }
    assert!(pair.done(0).is_empty());
    ends(&mut pair, 1, true);
    assert_eq!(pair.done(0), [(1, OK), (2, OK)]);
    assert_eq!((flushed(&pair).len(), stores(&pair)), (1, 1));
}

/// rxe of Linux 6.12 repeats a FLUSH with the address 0.
#[test]
fn a_duplicate_of_a_flush_is_recognized_by_its_psn() {
    let mut pair = Pair::new();
    let feth = Feth { placement: Feth::GLOBAL_VISIBILITY, selectivity: Selectivity::Range };
    for va in [BASE, 0] {
        let reth = Reth { va, rkey: STAG, len: 8 };
        arrives(&mut pair, Operation::Flush, Extension::Flush(feth, reth), &[]);
    }
    assert_eq!(pair.carried[1], [Operation::ReadOnly; 2]);
    assert!(pair.conns[1].is_open());
}

#[test]
fn a_flush_that_fails_ends_the_connection() {
    let mut pair = Pair::new();
    pair.hosts[1].durable = Durable::Later;
    pair.post(0, flush(1, FLUSH_PERSISTENT, 8, 0x4000));
    pair.settle();
    ends(&mut pair, 1, false);
    assert_eq!(pair.done(0), [(1, status::REM_OP_ERR)]);
    assert!(pair.conns.iter().all(|conn| conn.is_over()));
}

/// The number of a record is stored when the record is durable, and later requests after that.
#[test]
fn an_atomic_write_waits_for_a_flush_to_persistence() {
    let mut pair = Pair::new();
    pair.hosts[1].durable = Durable::Later;
    pair.hosts[1].memory.bytes[0x800..0x808].fill(0);
    pair.post_receive(1, 20, 0x7000, 8);
    pair.post(0, flush(1, FLUSH_PERSISTENT, 8, 0x4000));
    pair.post(0, atomic_write(2, 1, 0x800));
    pair.post(0, flush(3, FLUSH_PERSISTENT, 8, 0x800));
    pair.post(0, atomic_write(4, 2, 0x800));
    pair.post(0, wr(5, Op::Send, 0, 8, 0));
    pair.settle();
    assert_eq!(pair.bytes(1, 0x800, 8), [0; 8]);
    ends(&mut pair, 1, true);
    assert_eq!(pair.done(0), [(1, OK), (2, OK)]);
    assert_eq!(pair.bytes(1, 0x800, 8), 1u64.to_ne_bytes());
    assert!(pair.conns[1].has_receive() || pair.hosts[1].queues.receives.len() == 1, "the send waits");
    ends(&mut pair, 2, true);
    assert_eq!(pair.done(0), [(3, OK), (4, OK), (5, OK)]);
    assert_eq!(pair.bytes(1, 0x800, 8), 2u64.to_ne_bytes());
}

/// Delivers a flush that is not durable yet, an atomic write, and this number of writes.
fn with_writes_behind_an_atomic_write_that_waits(writes: u32) -> Pair {
    let mut pair = Pair::new();
    pair.hosts[1].durable = Durable::Later;
    let feth = Feth { placement: Feth::PERSISTENCE, selectivity: Selectivity::Range };
    let reth = Reth { va: BASE, rkey: STAG, len: 8 };
    arrives(&mut pair, Operation::Flush, Extension::Flush(feth, reth), &[]);
    arrives_at(&mut pair, FIRST + 1, Operation::AtomicWrite, Extension::Reth(reth), &[1; 8]);
    for n in 0..writes {
        arrives_at(&mut pair, FIRST + 2 + n, Operation::WriteOnly, Extension::Reth(reth), &[2; 8]);
    }
    pair
}

/// Packets beyond the maximum that is deferred are dropped, and the peer retransmits them.
#[test]
fn packets_behind_an_atomic_write_that_waits_take_a_bounded_amount_of_memory() {
    const MORE: usize = MAX_DEFERRED_PACKETS + 100;
    let mut pair = with_writes_behind_an_atomic_write_that_waits(MORE as u32);
    assert_eq!(pair.hosts[1].link.dropped.len(), 1 + MORE - MAX_DEFERRED_PACKETS);
    pair.hosts[1].calls.clear();
    pair.conns[1].durable(&mut pair.hosts[1], 1, true);
    pair.step(1, reason::DURABLE);
    let placed = pair.hosts[1].calls.iter().filter(|call| matches!(call, Call::Placed(_))).count();
    assert_eq!((stores(&pair), placed), (1, MAX_DEFERRED_PACKETS - 1));
    assert!(pair.conns[1].is_open());
    // No later packet shows the gap: the peer may have no timeout, and sends nothing more.
    let last = Packet::parse(pair.hosts[1].link.sent.last().unwrap()).unwrap();
    let syndrome = Syndrome::Nak(Nak::PsnSequence);
    assert!(matches!(last.extension, Extension::Aeth(aeth) if aeth.syndrome == syndrome), "{last:?}");
    assert_eq!(last.bth.psn, Psn::new(FIRST + 1 + MAX_DEFERRED_PACKETS as u32));
}

/// The largest window fits: no packet is dropped, and no retry is needed.
#[test]
fn a_window_of_packets_behind_an_atomic_write_that_waits_is_deferred() {
    let mut pair = Pair::with(|_, terms| terms.retries = 0);
    pair.hosts[1].durable = Durable::Later;
    let long = |id| wr(id, Op::Write, 0, SIZE as u32 - 0x2000, 0x1000);
    (1..=5).for_each(|id| pair.post(0, long(id)));
    pair.settle();
    pair.post(0, flush(6, FLUSH_PERSISTENT, 8, 0x4000));
    pair.post(0, atomic_write(7, 1, 0x800));
    (8..=13).for_each(|id| pair.post(0, long(id)));
    pair.settle();
    assert_eq!(pair.conns[1].responder.deferred.len(), MAX_DEFERRED_PACKETS - 1);
    ends(&mut pair, 1, true);
    assert_eq!(pair.done(0), (1..=13).map(|id| (id, OK)).collect::<Vec<_>>());
    assert!(pair.hosts[1].link.dropped.is_empty());
}

#[test]
fn deferred_packets_are_executed_within_the_budget() {
    const DEFERRED: usize = 8;
    let mut pair = with_writes_behind_an_atomic_write_that_waits(DEFERRED as u32 - 1);
    pair.conns[1].durable(&mut pair.hosts[1], 1, true);
    let mut steps = 1;
    while pair.step_within(1, reason::DURABLE | reason::AGAIN, 3).again {
        steps += 1;
    }
    assert_eq!(steps, DEFERRED.div_ceil(3));
    let placed = pair.hosts[1].calls.iter().filter(|call| matches!(call, Call::Placed(_))).count();
    assert_eq!((stores(&pair), placed), (1, DEFERRED - 1));
}

#[test]
fn a_flush_that_is_refused() {
    let both = FLUSH_GLOBAL | FLUSH_PERSISTENT;
    for (access, wr, expected) in [
        (FLUSH_GLOBAL, flush(1, FLUSH_PERSISTENT, 8, 0), status::REM_INV_REQ_ERR),
        (FLUSH_PERSISTENT, flush(1, FLUSH_GLOBAL, 8, 0), status::REM_INV_REQ_ERR),
        (FLUSH_GLOBAL, flush(1, both, 8, 0), status::REM_INV_REQ_ERR),
        (both, flush(1, 0, 8, 0), status::REM_INV_REQ_ERR),
        (both, SendWr { rkey: BARE, ..flush(1, both, 8, 0) }, status::REM_ACCESS_ERR),
        (both, SendWr { rkey: STAG + 1, ..flush(1, both, 8, 0) }, status::REM_ACCESS_ERR),
        (both, flush(1, FLUSH_GLOBAL, 8, SIZE as u64 - 7), status::REM_ACCESS_ERR),
        (both, flush(1, both, 8, SIZE as u64 - 8), OK),
    ] {
        let mut pair = Pair::with(|path, _| path.access = access);
        pair.post(0, wr.clone());
        pair.settle();
        assert_eq!(pair.done(0), [(1, expected)], "{wr:?}");
        assert_eq!(flushed(&pair).len(), usize::from(expected == OK), "{wr:?}");
    }
}

#[test]
fn an_unknown_selectivity_is_refused() {
    let mut pair = Pair::new();
    let feth = Feth { placement: Feth::GLOBAL_VISIBILITY, selectivity: Selectivity::Reserved(2) };
    let reth = Reth { va: BASE, rkey: STAG, len: 8 };
    arrives(&mut pair, Operation::Flush, Extension::Flush(feth, reth), &[]);
    assert!(pair.conns[1].is_over());
}
