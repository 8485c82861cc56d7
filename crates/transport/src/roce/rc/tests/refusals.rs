// SPDX-License-Identifier: BSD-3-Clause
//! Requests that are refused, here or by the peer, and packets that violate the protocol.

use super::pair::{Fate, MTU, Pair, wr};
use crate::access::REMOTE_READ;
use crate::host::Ended;
use crate::roce::wire::{Bth, Extension, Opcode, Operation, Packet, Psn, Reth};
use crate::testing::recorder::{BARE, FOREIGN, STAG};
use crate::wr::{Op, status};

const OK: u32 = status::SUCCESS;
const FLUSHED: u32 = status::WR_FLUSH_ERR;

/// Posts a request that fails between two that are permitted.
fn refused(pair: &mut Pair, failing: crate::wr::SendWr) -> u32 {
    pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
    pair.post(0, failing);
    pair.post(0, wr(3, Op::Write, 0, 8, 0x5000));
    pair.settle();
    let done = pair.done(0);
    assert_eq!((done[0], done[2]), ((1, OK), (3, FLUSHED)), "{done:?}");
    done[1].1
}

fn ends(pair: &Pair) -> [Option<Ended>; 2] {
    [0, 1].map(|me| pair.hosts[me].ended)
}

#[test]
fn an_access_that_memory_does_not_permit() {
    for op in [Op::Write, Op::Read] {
        for rkey in [0, BARE, FOREIGN, STAG + 1] {
            let mut pair = Pair::new();
            let failing = crate::wr::SendWr { rkey, ..wr(2, op, 0, 3 * MTU as u32, 0x4000) };
            assert_eq!(refused(&mut pair, failing), status::REM_ACCESS_ERR, "{op:?} with key {rkey:#x}");
            assert!(pair.conns[1].is_over());
            assert_eq!(ends(&pair), [Some(Ended::Completed), Some(Ended::AccessRefused)]);
        }
        let mut pair = Pair::new();
        let beyond = wr(2, op, 0, 300, 0x1_0000 - 299);
        assert_eq!(refused(&mut pair, beyond), status::REM_ACCESS_ERR, "{op:?} beyond the region");
    }
}

#[test]
fn an_operation_that_the_queue_pair_does_not_permit() {
    let mut pair = Pair::with(|path, _| path.access = REMOTE_READ);
    pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
    pair.settle();
    assert_eq!(pair.done(0), [(1, status::REM_INV_REQ_ERR)]);
    assert_eq!(ends(&pair), [Some(Ended::Completed), Some(Ended::RequestRefused)]);
}

#[test]
fn local_memory_that_does_not_permit_it() {
    let mut pair = Pair::new();
    let mut failing = wr(2, Op::Write, 0, 8, 0x4000);
    failing.local = crate::wr::Local::Memory { addr: 0, lkey: 77 };
    assert_eq!(refused(&mut pair, failing), status::LOC_PROT_ERR);
    let mut pair = Pair::new();
    let mut failing = wr(2, Op::Read, 0, 8, 0x4000);
    failing.local = crate::wr::Local::Memory { addr: 0, lkey: 77 };
    assert_eq!(refused(&mut pair, failing), status::LOC_PROT_ERR);
}

#[test]
fn a_message_longer_than_the_receive() {
    let mut pair = Pair::new();
    pair.post_receive(1, 20, 0x7000, 300);
    pair.post_receive(1, 21, 0x7000, 300);
    pair.post(0, wr(1, Op::Send, 0, 301, 0));
    pair.settle();
    assert_eq!(pair.done(0), [(1, status::REM_INV_REQ_ERR)]);
    assert_eq!(pair.done(1), [(20, status::LOC_LEN_ERR), (21, FLUSHED)]);
    assert_eq!(ends(&pair), [Some(Ended::Completed); 2]);
}

#[test]
fn a_nak_that_is_lost_is_repeated() {
    let mut pair = Pair::new();
    pair.post(0, crate::wr::SendWr { rkey: 5, ..wr(1, Op::Write, 0, 8, 0x4000) });
    pair.settle_with(|from, _| if from == 1 { Fate::Lost } else { Fate::Arrives });
    assert!(pair.conns[1].is_over() && !pair.conns[0].is_over());
    for _ in 0..2 {
        assert!(pair.expire(0));
        pair.settle();
    }
    assert_eq!(pair.done(0), [(1, status::REM_ACCESS_ERR)]);
}

/// A packet that a hostile peer makes.
fn forge(pair: &mut Pair, to: usize, bth: Bth, extension: Extension, payload: &[u8]) {
    let pad = payload.len().next_multiple_of(4) - payload.len();
    let mut packet = Packet::encode_headers(&Bth { pad: pad as u8, ..bth }, &extension).to_vec();
    packet.extend_from_slice(payload);
    packet.resize(packet.len() + pad, 0);
    pair.hosts[to].link.arrived.push_back(packet);
    pair.settle();
}

fn request(operation: Operation, psn: u32) -> Bth {
    Bth::new(Opcode::Rc(operation), 0x22_0002, Psn::new(psn))
}

#[test]
fn opcodes_out_of_sequence() {
    for operation in
        [Operation::WriteMiddle, Operation::WriteLast, Operation::SendMiddle, Operation::SendLast]
    {
        let mut pair = Pair::new();
        forge(&mut pair, 1, request(operation, 0xff_fffa), Extension::None, &[7; MTU]);
        assert!(pair.conns[1].is_over(), "{operation:?} at the beginning");
    }
    let mut pair = Pair::new();
    let reth = Extension::Reth(Reth { va: crate::testing::recorder::BASE, rkey: STAG, len: 2 * MTU as u32 });
    forge(&mut pair, 1, request(Operation::WriteFirst, 0xff_fffa), reth, &[7; MTU]);
    assert!(!pair.conns[1].is_over());
    forge(&mut pair, 1, request(Operation::SendMiddle, 0xff_fffb), Extension::None, &[7; MTU]);
    assert!(pair.conns[1].is_over(), "a send in the middle of a write");
}

#[test]
fn a_write_of_another_length_than_announced() {
    for (len, payload) in [(8, 7), (8, 9), (0, 4), (300, 300)] {
        let mut pair = Pair::new();
        let reth = Extension::Reth(Reth { va: crate::testing::recorder::BASE, rkey: STAG, len });
        forge(&mut pair, 1, request(Operation::WriteOnly, 0xff_fffa), reth, &vec![7; payload]);
        assert!(pair.conns[1].is_over(), "{payload} of {len} bytes");
    }
}

#[test]
fn responses_to_nothing_are_dropped() {
    let mut pair = Pair::new();
    let before = pair.hosts[1].memory.bytes.clone();
    for operation in [Operation::Acknowledge, Operation::ReadOnly, Operation::AtomicAcknowledge] {
        for psn in [0x10, 0x0f, 0x11, 0x80_0000] {
            let aeth = crate::roce::wire::Aeth { syndrome: crate::roce::wire::Syndrome::ACK, msn: 1 };
            let extension = match operation {
                Operation::AtomicAcknowledge => Extension::AtomicAck(aeth, 5),
                _ => Extension::Aeth(aeth),
            };
            let payload: &[u8] = if operation == Operation::ReadOnly { &[1; 8] } else { &[] };
            forge(&mut pair, 1, request(operation, psn), extension, payload);
        }
    }
    assert!(pair.conns.iter().all(|conn| conn.is_open()));
    assert!(pair.hosts[1].memory.bytes == before);
    pair.post(1, wr(1, Op::Write, 0, 8, 0x4000));
    pair.settle();
    assert_eq!(pair.done(1), [(1, OK)]);
}
