// SPDX-License-Identifier: BSD-3-Clause
//! ATOMIC WRITE (annex A19).

use super::pair::{Fate, Pair, wr};
use crate::access::{REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::roce::wire::{Bth, Extension, Opcode, Operation, Packet, Psn, Reth};
use crate::testing::recorder::{BARE, BASE, Call, STAG};
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

/// A packet for side 1, from a hostile peer.
fn arrives(pair: &mut Pair, len: u32, payload: &[u8]) {
    let bth = Bth::new(Opcode::Rc(Operation::AtomicWrite), 0x22_0002, Psn::new(FIRST));
    let reth = Extension::Reth(Reth { va: BASE, rkey: STAG, len });
    let mut packet = Packet::encode_headers(&bth, &reth).to_vec();
    packet.extend_from_slice(payload);
    pair.hosts[1].link.arrived.push_back(packet);
    pair.settle();
}

#[test]
fn an_atomic_write_has_eight_bytes() {
    for (len, payload) in [(8, &[1; 4][..]), (8, &[1; 12]), (4, &[1; 8]), (16, &[1; 8]), (0, &[])] {
        let mut pair = Pair::new();
        arrives(&mut pair, len, payload);
        assert!(pair.conns[1].is_over(), "{len} bytes, {} in the packet", payload.len());
        assert_eq!(stores(&pair), 0);
    }
}
