// SPDX-License-Identifier: BSD-3-Clause
//! Schedules that the simulation has found.

use super::pair::{FIRST, Fate, Pair, TIMEOUT_US, wr};
use crate::host::Durable;
use crate::roce::wire::{Opcode, Operation, Packet, Psn};
use crate::step::{Budget, Quota, reason};
use crate::testing::memory::State;
use crate::testing::recorder::{BARE, BASE, STAG};
use crate::wr::{Local, Op, SendWr, status};

const OK: u32 = status::SUCCESS;

/// A request without bytes may have no key.
#[test]
fn nothing_needs_no_key() {
    let mut pair = Pair::new();
    for (id, op) in [(1, Op::Write), (2, Op::Read), (3, Op::Send)] {
        let mut empty = wr(id, op, 0, 0, 0);
        (empty.local, empty.rkey) = (Local::memory(&[]).unwrap(), 0);
        pair.post(0, empty);
    }
    pair.post_receive(1, 20, 0, 0);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!(pair.done(1), [(20, OK)]);
}

/// A request that cannot be sent does not keep those before it from being sent again.
#[test]
fn what_is_before_a_bad_request_is_sent_again() {
    let mut pair = Pair::new();
    let mut bad = wr(2, Op::Write, 0, 8, 0x4000);
    bad.local = Local::Memory { addr: 0, lkey: STAG + 1 };
    pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
    pair.post(0, bad);
    pair.settle_with(|_, _| Fate::Lost);
    for _ in 0..2 {
        assert!(pair.expire(0));
        pair.settle();
    }
    assert_eq!(pair.done(0), [(1, OK), (2, status::LOC_PROT_ERR)]);
}

/// An RNR NAK that the network repeats costs one retry.
#[test]
fn a_repeated_rnr_nak_is_one() {
    let mut pair = Pair::with(|_, terms| terms.rnr_retries = 1);
    pair.post(0, wr(1, Op::Send, 0, 8, 0));
    pair.settle_with(|from, _| if from == 1 { Fate::Twice } else { Fate::Arrives });
    pair.post_receive(1, 20, 0x7000, 8);
    assert!(pair.expire(0));
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK)]);
}

/// The completion queue has room again when the program disconnects: a send that has arrived is received.
#[test]
fn a_send_before_a_disconnect_finds_room() {
    let mut pair = Pair::with(|_, terms| terms.rnr_retries = 1);
    pair.hosts[1].queues.recv_cq.room = 0;
    (1..3).for_each(|id| pair.post(0, wr(id, Op::Send, 0, 8, 0)));
    (20..22).for_each(|id| pair.post_receive(1, id, 0x7000, 8));
    pair.settle();
    assert!(pair.expire(0));
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.hosts[1].queues.recv_cq.room = 2;
    pair.step(1, reason::READABLE | reason::DISCONNECT);
    pair.settle();
    assert_eq!(pair.done(1), [(20, OK), (21, OK)]);
    assert_eq!(pair.done(0), [(1, OK), (2, OK)]);
}

/// A duplicate of a read whose response is still queued takes no room from the next read.
#[test]
fn a_duplicate_is_not_one_read_too_many() {
    let mut pair = Pair::with(|path, terms| (path.reads, terms.reads) = (1, 1));
    pair.post(0, wr(1, Op::Read, 0, 8, 0x8000));
    pair.step(0, reason::POSTED);
    // The request arrives twice, and the link takes one response.
    pair.carry(0, &mut |_, _| Fate::Twice);
    pair.hosts[1].link.room = Some(1);
    pair.step(1, reason::READABLE);
    pair.carry(1, &mut |_, _| Fate::Arrives);
    pair.post(0, wr(2, Op::Read, 0x100, 8, 0x8000));
    pair.step(0, reason::READABLE);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.step(1, reason::READABLE);
    assert!(!pair.conns[1].is_over(), "the second read is the only one outstanding");
    pair.hosts[1].link.room = None;
    pair.step(1, reason::WRITABLE);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK)]);
}

/// A read of three packets, one at a time and without a timer: its request, and the responses, which are on
/// their way.
fn answered_read() -> (Pair, Vec<u8>, Vec<Vec<u8>>) {
    let mut pair = Pair::with(|path, terms| (path.reads, terms.reads, terms.timeout) = (1, 1, 0));
    pair.post(0, wr(1, Op::Read, 0, 600, 0x8000));
    pair.step(0, reason::POSTED);
    let request = pair.hosts[0].link.sent[0].clone();
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.step(1, reason::READABLE);
    let responses = std::mem::take(&mut pair.hosts[1].link.sent);
    (pair, request, responses)
}

/// The rest of a read is requested while the response to an earlier duplicate is queued, and no further
/// duplicate has room. If the memory is gone by then, the NAK is for the packet that the peer waits for.
#[test]
fn a_duplicate_replaces_an_earlier_one_of_the_same_read() {
    for (before, after) in [(None, None), (None, Some(State::Unmapped)), (Some(State::Deregistered), None)] {
        let is_gone = before.or(after).is_some();
        let (mut pair, request, responses) = answered_read();
        let changes = |pair: &mut Pair, state: Option<State>| {
            let region = &mut pair.hosts[1].memory.table[0];
            region.state = state.unwrap_or(region.state);
        };
        changes(&mut pair, before);
        // A copy of the request is answered later; the second response overtakes the first one.
        pair.hosts[1].link.room = Some(0);
        pair.hosts[1].link.arrived.push_back(request);
        pair.step(1, reason::READABLE);
        for at in [1, 0, 2] {
            pair.hosts[0].link.arrived.push_back(responses[at].clone());
            pair.step(0, reason::READABLE);
        }
        pair.carry(0, &mut |_, _| Fate::Arrives);
        pair.step(1, reason::READABLE);
        changes(&mut pair, after);
        pair.hosts[1].link.room = None;
        pair.step(1, reason::WRITABLE);
        assert_eq!(pair.hosts[1].link.sent.len(), if is_gone { 1 } else { 2 });
        pair.settle();
        let status = if is_gone { status::REM_ACCESS_ERR } else { OK };
        assert_eq!(pair.done(0), [(1, status)]);
    }
}

/// Half of a response was sent when its memory is gone and another copy of the request arrives: the NAK is
/// for the first packet that was not sent.
#[test]
fn a_duplicate_does_not_replace_a_response_that_has_begun() {
    let (mut pair, request, _) = answered_read();
    pair.hosts[1].link.room = Some(2);
    pair.hosts[1].link.arrived.push_back(request.clone());
    pair.step(1, reason::READABLE);
    assert_eq!(pair.hosts[1].link.sent.len(), 2);
    pair.hosts[1].memory.table[0].state = State::Deregistered;
    pair.hosts[1].link.arrived.push_back(request);
    pair.step(1, reason::READABLE);
    pair.hosts[1].link.room = None;
    pair.step(1, reason::WRITABLE);
    pair.settle();
    assert_eq!(pair.done(0), [(1, status::REM_ACCESS_ERR)]);
}

/// A NAK behind a read that waits for durability is sent after its response, although the connection has
/// ended.
#[test]
fn a_refusal_behind_a_flush_is_sent() {
    let mut pair = Pair::new();
    pair.hosts[1].durable = Durable::Later;
    pair.post(0, wr(1, Op::Read, 0, 8, 0x8000));
    pair.post(0, SendWr { rkey: 0, ..wr(2, Op::Write, 0, 8, 0x4000) });
    pair.settle();
    assert!(pair.conns[1].is_over() && pair.done(0).is_empty());
    let (conn, host) = (&mut pair.conns[1], &mut pair.hosts[1]);
    conn.durable(host, 1, true);
    pair.step(1, reason::DURABLE);
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, status::REM_ACCESS_ERR)]);
}

/// What is sent again because of a gap has the whole timeout.
#[test]
fn a_gap_starts_the_timer_again() {
    let mut pair = Pair::with(|_, terms| terms.retries = 1);
    pair.post(0, wr(1, Op::Read, 0, 8, 0x8000));
    pair.post(0, wr(2, Op::Write, 0x100, 8, 0x4000));
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.step(1, reason::READABLE);
    // The response of the read is lost, the acknowledgement of the write is late.
    let mut responses = 0;
    pair.hosts[0].now += TIMEOUT_US / 2;
    pair.carry(1, &mut |_, _| {
        responses += 1;
        if responses == 1 { Fate::Lost } else { Fate::Arrives }
    });
    pair.step(0, reason::READABLE);
    assert!(pair.carry(0, &mut |_, _| Fate::Lost), "the read is requested again");
    let began = pair.hosts[0].now;
    pair.lose_until_the_end(0);
    assert!(pair.hosts[0].now - began >= TIMEOUT_US);
    assert_eq!(pair.done(0), [(1, status::RETRY_EXC_ERR), (2, status::WR_FLUSH_ERR)]);
}

/// A request that cannot be sent again succeeds when its acknowledgement arrives, and the next ones are sent.
#[test]
fn an_acknowledgement_of_what_cannot_be_sent_again() {
    let mut pair = Pair::new();
    pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
    let mut from_bare = wr(2, Op::Write, 0, 8, 0x4000);
    from_bare.local = Local::Memory { addr: BASE, lkey: BARE };
    pair.post(0, from_bare);
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.step(1, reason::READABLE);
    let bare = pair.hosts[0].memory.find(BARE).unwrap();
    pair.hosts[0].memory.table[bare].state = State::Deregistered;
    assert!(pair.expire(0) && pair.expire(0), "the acknowledgements are late");
    pair.post(0, wr(3, Op::Write, 0, 8, 0x4000));
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)]);
}

/// A read whose memory is gone ends the connection also in a step whose budget ends with its request.
#[test]
fn a_used_up_budget_hides_no_refusal() {
    let mut pair = Pair::new();
    pair.hosts[1].memory.table[0].state = State::Unmapped;
    pair.post(0, wr(1, Op::Read, 0, 8, 0x8000));
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    let one = Quota { bytes: usize::MAX, operations: 1 };
    pair.conns[1].step(&mut pair.hosts[1], reason::READABLE, Budget { send: one, receive: one });
    assert!(pair.conns[1].is_over());
    pair.settle();
    assert_eq!(pair.done(0), [(1, status::REM_ACCESS_ERR)]);
}

/// A read whose response waits, in front of a refusal, and whose region is deregistered meanwhile: the peer,
/// which has no timer, gets the NAK.
#[test]
fn a_read_before_a_refusal_is_refused_too() {
    let mut pair = Pair::with(|_, terms| terms.timeout = 0);
    pair.post(0, wr(1, Op::Read, 0, 8, 0x8000));
    pair.post(0, SendWr { rkey: 0, ..wr(2, Op::Write, 0, 8, 0x4000) });
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.hosts[1].link.room = Some(0);
    pair.step(1, reason::READABLE);
    assert!(pair.conns[1].is_over());
    pair.hosts[1].memory.table[0].state = State::Deregistered;
    pair.hosts[1].link.room = None;
    while pair.step_within(1, reason::WRITABLE, usize::MAX).again {}
    pair.carry(1, &mut |_, _| Fate::Arrives);
    pair.step(0, reason::READABLE);
    assert_eq!(pair.done(0), [(1, status::REM_ACCESS_ERR), (2, status::WR_FLUSH_ERR)]);
}

/// A read whose response was lost, and whose region is deregistered or unmapped when it is repeated, is
/// refused; the responder goes on.
#[test]
fn a_repeated_read_of_a_lost_region_is_refused() {
    for state in [State::Deregistered, State::Unmapped] {
        let mut pair = Pair::new();
        pair.post(0, wr(1, Op::Read, 0, 8, 0x8000));
        pair.settle_with(|from, _| if from == 1 { Fate::Lost } else { Fate::Arrives });
        pair.hosts[1].memory.table[0].state = state;
        for _ in 0..2 {
            assert!(pair.expire(0));
            pair.settle();
        }
        assert_eq!(pair.done(0), [(1, status::REM_ACCESS_ERR)], "{state:?}");
        assert!(!pair.conns[1].is_over(), "{state:?}");
    }
}

/// A peer that has received neither the NAK nor the acknowledgements before it, and whose window ends before
/// the refused request, gets the NAK.
#[test]
fn a_nak_is_repeated_for_requests_before_the_refused_one() {
    let mut pair = Pair::with(|_, terms| terms.retries = 2);
    for id in 1..=6 {
        pair.post(0, wr(id, Op::Write, 0, 8, 0x4000));
    }
    pair.post(0, SendWr { rkey: 0, ..wr(7, Op::Write, 0, 8, 0x4000) });
    pair.settle_with(|from, _| if from == 1 { Fate::Lost } else { Fate::Arrives });
    assert!(pair.conns[1].is_over() && pair.done(0).is_empty());
    for _ in 0..2 {
        assert!(pair.expire(0));
        pair.settle();
    }
    let mut expected: Vec<_> = (1..=6).map(|id| (id, OK)).collect();
    expected.push((7, status::REM_ACCESS_ERR));
    assert_eq!(pair.done(0), expected);
}

/// The refusal of a repeated read is sent although requests behind it are repeated, too, and acknowledged.
#[test]
fn an_acknowledgement_hides_no_refusal() {
    let mut pair = Pair::new();
    pair.post(0, wr(1, Op::Read, 0, 8, 0x8000));
    pair.post(0, wr(2, Op::Write, 0x100, 8, 0x4000));
    pair.settle_with(|from, _| if from == 1 { Fate::Lost } else { Fate::Arrives });
    pair.hosts[1].memory.table[0].state = State::Deregistered;
    for _ in 0..2 {
        assert!(pair.expire(0));
        pair.settle();
    }
    assert_eq!(pair.done(0), [(1, status::REM_ACCESS_ERR), (2, status::WR_FLUSH_ERR)]);
}

/// A repeated write behind which a read or an atomic operation was carried out, whose response is lost: the
/// ACK of the write has no PSN of the response, which would replace it. A capture of rxe showed it.
#[test]
fn an_acknowledgement_stands_for_no_response() {
    for (op, len) in [(Op::Read, 600), (Op::Read, 8), (Op::FetchAdd, 8)] {
        let mut pair = Pair::new();
        pair.post(0, wr(1, Op::Write, 0, 8, 0x4000));
        let mut second = wr(2, op, 0x100, len, 0x8000);
        if op == Op::FetchAdd {
            second.local = Local::Atomic { addr: BASE + 0x100, lkey: STAG, compare_add: 5, swap: 0 };
        }
        pair.post(0, second);
        pair.settle_with(|from, _| if from == 1 { Fate::Lost } else { Fate::Arrives });
        while pair.hosts[0].link.sent.is_empty() {
            assert!(pair.expire(0));
        }
        pair.carry(0, &mut |_, _| Fate::Arrives);
        pair.step(1, reason::READABLE);
        let sent = pair.hosts[1].link.sent.iter().map(|packet| Packet::parse(packet).unwrap().bth);
        let acks = sent.filter(|bth| bth.opcode == Opcode::Rc(Operation::Acknowledge));
        assert_eq!(acks.map(|bth| bth.psn).collect::<Vec<_>>(), [Psn::new(FIRST[0])], "{op:?}");
        pair.settle();
        assert_eq!(pair.done(0), [(1, OK), (2, OK)], "{op:?}");
    }
}
