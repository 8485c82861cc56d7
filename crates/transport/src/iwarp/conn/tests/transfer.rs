// SPDX-License-Identifier: BSD-3-Clause
//! Requests that the host carries out by direct copy.

use std::collections::VecDeque;

use super::host::*;
use crate::access::{Access, REMOTE_READ, REMOTE_WRITE};
use crate::direct::MAX_TOGETHER;
use crate::host::{Durable, Host};
use crate::iwarp::conn::{Framing, Role, Sizes, Terms};
use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{Opcode, encode_immediate};
use crate::step::reason;
use crate::wr::{Local, Op, SendWr, status};

fn bench(transfers: &[usize]) -> Bench {
    let mut bench = Bench::with(Terms { transfers: true, ..terms() }, Sizes::default());
    bench.host.link.transfers = VecDeque::from_iter(transfers.iter().copied());
    bench
}

/// The rest of request `wr(.., len)` from byte `at` on, at the peer.
fn remote(rights: u32, at: u64, len: usize) -> Access {
    Access { stag: 0x900, addr: 0x5000 + at, len, rights }
}

fn transfers(calls: &[Call]) -> Vec<Access> {
    batches(calls).concat()
}

/// The same, each call of the host by itself.
fn batches(calls: &[Call]) -> Vec<Vec<Access>> {
    let offered =
        |call: &Call| if let Call::Transferred(remote, _) = call { Some(remote.clone()) } else { None };
    calls.iter().filter_map(offered).collect()
}

#[test]
fn a_request_that_is_transferred_completes_and_nothing_is_sent() {
    let mut bench = bench(&[100, 50, 8]);
    bench.post(wr(1, Op::Write, 100));
    bench.post(wr(2, Op::Read, 50));
    bench.post(inline(3, Op::Write, &[7; 8]));
    let calls = bench.calls();
    let offered = [remote(REMOTE_WRITE, 0, 100), remote(REMOTE_READ, 0, 50), remote(REMOTE_WRITE, 0, 8)];
    assert_eq!(transfers(&calls), offered);
    let done = calls.iter().filter(|call| matches!(call, Call::SendDone(c) if c.status == status::SUCCESS));
    assert_eq!(done.count(), 3);
    assert_eq!(sent(&calls), []);
    assert!(bench.conn.is_at_rest());
}

/// Offers a request to the connection before it is taken.
fn offer(bench: &mut Bench, wr: &SendWr) -> bool {
    bench.host.queues.sends.push_back(wr.clone());
    bench.host.next_send().unwrap();
    let is_complete = bench.conn.carry_out(&mut bench.host, wr);
    if !is_complete {
        bench.host.queues.give_back();
    }
    is_complete
}

#[test]
fn a_request_that_is_carried_out_alone_completes_without_a_step() {
    for wr in [wr(1, Op::Write, 100), wr(2, Op::Read, 100), inline(3, Op::Write, &[7; 8])] {
        let mut bench = bench(&[wr.len as usize]);
        assert!(offer(&mut bench, &wr));
        let calls = bench.calls();
        assert_eq!(transfers(&calls).len(), 1);
        let done = |call: &&Call| matches!(call, Call::SendDone(c) if c.wr_id == wr.wr_id && c.status == status::SUCCESS);
        assert_eq!(calls.iter().filter(done).count(), 1);
        assert!(bench.conn.is_at_rest());
    }
}

#[test]
fn the_rest_of_a_request_that_is_carried_out_in_part_follows_in_the_next_step() {
    let mut bench = bench(&[40, 60]);
    let wr = wr(1, Op::Write, 100);
    assert!(!offer(&mut bench, &wr));
    bench.step(reason::POSTED);
    let calls = bench.calls();
    assert_eq!(transfers(&calls), [remote(REMOTE_WRITE, 0, 100), remote(REMOTE_WRITE, 40, 60)]);
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::SendDone(_))).count(), 1);
    assert!(bench.conn.is_at_rest());
}

#[test]
fn behind_an_outstanding_request_nothing_is_carried_out_alone() {
    let mut bench = bench(&[0, 8]);
    bench.post(wr(1, Op::Read, 50));
    assert!(!offer(&mut bench, &inline(2, Op::Write, &[7; 8])));
    assert_eq!(transfers(&bench.calls()).len(), 1, "the read alone was offered");
}

/// A write of `len` bytes from byte `at` on at both ends.
fn write_at(wr_id: u64, at: u64, len: u32) -> SendWr {
    let wr = wr(wr_id, Op::Write, len);
    let Local::Memory { addr, lkey } = wr.local else { panic!("{wr:?}") };
    SendWr { remote_addr: wr.remote_addr + at, local: Local::Memory { addr: addr + at, lkey }, ..wr }
}

#[test]
fn small_requests_of_one_kind_are_transferred_together() {
    let mut bench = bench(&[]);
    bench.host.link.transfers = VecDeque::from([30, 40, 8, 0]);
    for wr in [
        write_at(1, 0, 10),
        write_at(2, 10, 20),
        // reads are none of them
        wr(3, Op::Read, 40),
        inline(4, Op::Write, &[7; 8]),
        // one of another key
        SendWr { rkey: 0x901, ..write_at(5, 0, 8) },
    ] {
        bench.host.queues.sends.push_back(wr);
    }
    bench.step(reason::POSTED);
    let calls = bench.calls();
    let other = Access { stag: 0x901, ..remote(REMOTE_WRITE, 0, 8) };
    let one = |access| vec![access];
    assert_eq!(
        batches(&calls),
        [
            one(remote(REMOTE_WRITE, 0, 30)),
            one(remote(REMOTE_READ, 0, 40)),
            one(remote(REMOTE_WRITE, 0, 8)),
            one(other)
        ]
    );
    assert_eq!(segments(&sent(&calls)).len(), 1, "the last one was not transferred");
}

#[test]
fn what_a_batch_was_not_carried_out_of_goes_over_the_link() {
    let mut bench = bench(&[]);
    bench.host.link.transfers = VecDeque::from([25, 0]);
    for wr in [write_at(1, 0, 10), write_at(2, 100, 20), write_at(3, 200, 30)] {
        bench.host.queues.sends.push_back(wr);
    }
    bench.step(reason::POSTED);
    let calls = bench.calls();
    let rest = vec![remote(REMOTE_WRITE, 115, 5), remote(REMOTE_WRITE, 200, 30)];
    let all = [remote(REMOTE_WRITE, 0, 10), remote(REMOTE_WRITE, 100, 20), remote(REMOTE_WRITE, 200, 30)];
    assert_eq!(batches(&calls), [all.to_vec(), rest]);
    let lengths = segments(&sent(&calls)).iter().map(|(_, payload)| payload.len()).collect::<Vec<_>>();
    assert_eq!(lengths, [5, 30]);
    let done = calls.iter().filter(|call| matches!(call, Call::SendDone(c) if c.status == status::SUCCESS));
    assert_eq!(done.count(), 3);
}

#[test]
fn a_batch_has_an_end() {
    let n = MAX_TOGETHER + 1;
    let mut bench = Bench::of_depth(n as u32, Terms { transfers: true, ..terms() }, Sizes::default());
    bench.receive(&empty_write());
    bench.calls();
    bench.host.link.transfers = VecDeque::from([8 * MAX_TOGETHER, 8]);
    bench.host.queues.sends.extend((0..n as u64).map(|i| write_at(i, 16 * i, 8)));
    bench.step(reason::POSTED);
    let lengths = batches(&bench.calls()).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths, [MAX_TOGETHER, 1]);
    bench.host.link.transfers = VecDeque::from([40_000, 40_000]);
    bench.host.queues.sends.push_back(write_at(1, 0, 40_000));
    bench.host.queues.sends.push_back(write_at(2, 0, 40_000));
    bench.step(reason::POSTED);
    assert_eq!(batches(&bench.calls()).len(), 2, "large ones are transferred one at a time");
}

#[test]
fn requests_are_transferred_together_up_to_64_kib() {
    for (len, calls) in [(4096, vec![2]), (32 * 1024, vec![2]), (32 * 1024 + 1, vec![1, 1])] {
        let mut bench = bench(&vec![2 * len as usize / calls.len(); calls.len()]);
        // Of two ranges each call has two.
        bench.host.queues.sends.extend([write_at(1, 0, len), write_at(2, 0, len)]);
        bench.step(reason::POSTED);
        let done = bench.calls();
        assert_eq!(batches(&done).iter().map(Vec::len).collect::<Vec<_>>(), calls, "{len} bytes each");
        assert_eq!(sent(&done), []);
    }
}

/// Requests that follow one another at the peer are one range there, but each brings bytes of its own.
#[test]
fn a_batch_ends_where_its_bytes_lie_in_too_many_places() {
    let n = MAX_TOGETHER + 1;
    let mut bench = Bench::of_depth(n as u32, Terms { transfers: true, ..terms() }, Sizes::default());
    bench.receive(&empty_write());
    bench.calls();
    bench.host.link.transfers = VecDeque::from([8 * MAX_TOGETHER, 8]);
    let nth = |i| SendWr { remote_addr: 0x5000 + 8 * i, ..inline(i, Op::Write, &[7; 8]) };
    bench.host.queues.sends.extend((0..n as u64).map(nth));
    bench.step(reason::POSTED);
    let all = 8 * MAX_TOGETHER;
    let expected = [vec![remote(REMOTE_WRITE, 0, all)], vec![remote(REMOTE_WRITE, all as u64, 8)]];
    assert_eq!(batches(&bench.calls()), expected);
}

#[test]
fn an_empty_request_behind_a_batch_is_sent() {
    let mut bench = bench(&[10]);
    bench.host.queues.sends.extend([wr(1, Op::Write, 10), wr(2, Op::Write, 0), wr(3, Op::Send, 0)]);
    bench.step(reason::POSTED);
    let calls = bench.calls();
    assert_eq!(transfers(&calls), [remote(REMOTE_WRITE, 0, 10)]);
    let sent = segments(&sent(&calls));
    let opcodes: Vec<_> = sent.iter().map(|(header, _)| header.opcode()).collect();
    assert_eq!(opcodes, [Opcode::Write, Opcode::Send]);
}

#[test]
fn an_atomic_write_of_librpma_goes_over_the_link() {
    let mut bench = bench(&[8, 8]);
    bench.post(SendWr { fence: true, ..inline(1, Op::Write, &[7; 8]) });
    bench.post(inline(2, Op::Write, &[7; 8]));
    let calls = bench.calls();
    assert_eq!(transfers(&calls).len(), 1);
    assert_eq!(segments(&sent(&calls)).len(), 1);
}

#[test]
fn one_that_is_not_goes_over_the_link() {
    let mut bench = bench(&[0, 0]);
    bench.post(wr(1, Op::Write, 100));
    bench.post(wr(2, Op::Read, 50));
    let calls = bench.calls();
    assert_eq!(transfers(&calls).len(), 2);
    let segments = segments(&sent(&calls));
    assert_eq!(
        segments.iter().map(|(header, _)| header.opcode()).collect::<Vec<_>>(),
        [Opcode::Write, Opcode::ReadRequest]
    );
}

#[test]
fn what_is_left_of_a_write_goes_over_the_link_and_a_read_as_a_whole() {
    let mut bench = bench(&[30, 20, 0, 30, 0]);
    bench.post(wr(1, Op::Write, 100));
    let calls = bench.calls();
    let offered = [0, 30, 50].map(|at| remote(REMOTE_WRITE, at, 100 - at as usize));
    assert_eq!(transfers(&calls), offered);
    let segments_of = segments(&sent(&calls));
    assert!(
        matches!(segments_of[..], [(Header::Tagged { to: 0x5032, last: true, .. }, _)]),
        "{segments_of:?}"
    );
    assert_eq!(segments_of[0].1.len(), 50);
    bench.post(wr(2, Op::Read, 100));
    let calls = bench.calls();
    assert_eq!(transfers(&calls), [remote(REMOTE_READ, 0, 100), remote(REMOTE_READ, 30, 70)]);
    assert_eq!(segments(&sent(&calls)).len(), 1);
    bench.receive(&response(1, true, 0, &[1; 100]));
    assert_eq!(bench.sends_done(), [(2, status::SUCCESS)]);
}

#[test]
fn nothing_passes_what_is_not_complete() {
    let mut bench = bench(&[0]);
    bench.post(wr(1, Op::Read, 50));
    assert_eq!(transfers(&bench.calls()).len(), 1);
    bench.host.link.transfers = VecDeque::from([10]);
    bench.post(wr(2, Op::Write, 10));
    assert_eq!(transfers(&bench.calls()), [], "a read is under way");
    bench.receive(&response(1, true, 0, &[1; 50]));
    bench.host.queues.send_cq.room = 0;
    bench.post(wr(3, Op::Send, 10));
    bench.post(wr(4, Op::Write, 10));
    assert_eq!(transfers(&bench.calls()), [], "the completion queue is full");
    bench.host.queues.send_cq.room = 9;
    bench.step(reason::ROOM);
    bench.post(wr(5, Op::Write, 10));
    assert_eq!(transfers(&bench.calls()), [remote(REMOTE_WRITE, 0, 10)]);
}

#[test]
fn behind_a_read_over_the_link_waits_what_can_be_transferred() {
    let mut bench = bench(&[0]);
    bench.host.link.may_transfer = true;
    bench.post(wr(1, Op::Read, 50));
    bench.host.link.transfers = VecDeque::from([60]);
    bench.post(wr(2, Op::Read, 60));
    bench.post(wr(3, Op::Send, 10));
    let calls = bench.calls();
    assert_eq!(segments(&sent(&calls)).len(), 1, "the first read");
    bench.receive(&response(1, true, 0, &[1; 50]));
    let calls = bench.calls();
    assert_eq!(transfers(&calls).last(), Some(&remote(REMOTE_READ, 0, 60)));
    assert_eq!(segments(&sent(&calls)).len(), 1, "the message");
    // What cannot be goes out at once.
    bench.host.link.may_transfer = false;
    bench.host.link.transfers = VecDeque::from([0]);
    bench.post(wr(4, Op::Read, 50));
    bench.post(wr(5, Op::Read, 50));
    assert_eq!(segments(&sent(&bench.calls())).len(), 2);
}

/// What the peer has of it already may not have been placed yet.
#[test]
fn a_request_that_has_begun_on_the_link_stays_there() {
    // More than one call writes to the link, so the connection steps again in the middle of the request.
    let len = 242 * 80;
    let mut bench = bench(&[0, len as usize]);
    bench.post(wr(1, Op::Write, len));
    let calls = bench.calls();
    assert_eq!(transfers(&calls), [remote(REMOTE_WRITE, 0, len as usize)]);
    let payload: usize = segments(&sent(&calls)).iter().map(|(_, payload)| payload.len()).sum();
    assert_eq!(payload, len as usize);
}

/// Nor does it wait there for reads, as the peer must get the rest of the message before another one.
#[test]
fn a_request_that_has_begun_on_the_link_does_not_wait_to_be_transferred() {
    // Of 200 FPDUs, a call gives 64 to the link, and 64 more wait for the next one.
    let len = 242 * 200;
    let mut bench = bench(&[0]);
    bench.post(wr(1, Op::Read, 8));
    bench.budget.send.bytes = 1;
    assert!(bench.post(wr(2, Op::Write, len)).again);
    bench.budget.send.bytes = usize::MAX;
    bench.host.link.may_transfer = true;
    bench.step(reason::AGAIN);
    let segments = segments(&sent(&bench.calls()));
    let payload: usize = segments[1..].iter().map(|(_, payload)| payload.len()).sum();
    assert_eq!(payload, len as usize);
}

#[test]
fn what_could_be_transferred_waits_for_nothing_where_no_read_is_open() {
    let mut bench = bench(&[0, 0]);
    bench.host.link.may_transfer = true;
    bench.host.queues.sends.push_back(wr(1, Op::Write, 8));
    bench.post(wr(2, Op::Read, 8));
    assert_eq!(segments(&sent(&bench.calls())).len(), 2);
}

#[test]
fn a_read_is_not_transferred_where_the_peer_takes_none() {
    let framing = Framing { ord: 0, ..FRAMING };
    let mut bench = Bench::with(Terms { transfers: true, framing, ..terms() }, Sizes::default());
    bench.host.link.transfers = VecDeque::from([8]);
    bench.post(wr(1, Op::Read, 8));
    assert_eq!(bench.host.link.transfers.len(), 1);
    assert_eq!(bench.sends_done(), [(1, status::LOC_QP_OP_ERR)]);
}

/// What the write of eight bytes is on the link.
const WRITE_FPDU: usize = 2 + 14 + 8 + 4;

/// It goes over the link then, behind the answer.
#[test]
fn nothing_is_transferred_while_an_answer_is_on_its_way() {
    let mut bench = bench(&[8]);
    bench.host.link.out.set_room(10);
    bench.receive(&read(1, &read_request(STAG, BASE, 100)));
    bench.calls();
    bench.host.link.out.set_room(usize::MAX);
    bench.host.queues.sends.push_back(wr(1, Op::Write, 8));
    bench.step(reason::POSTED | reason::WRITABLE);
    let calls = bench.calls();
    assert_eq!(sent(&calls).len(), 2 + 14 + 100 + 4 - 10 + WRITE_FPDU, "the rest of an FPDU comes first");
    assert_eq!(transfers(&calls), []);

    // Of eighty FPDUs, 64 go out in the first call.
    bench.budget.send.bytes = 1;
    assert!(bench.receive(&read(2, &read_request(STAG, BASE, 242 * 80))).again);
    assert_eq!(sent(&bench.calls()).len(), 64 * 264);
    bench.budget.send.bytes = usize::MAX;
    bench.host.queues.sends.push_back(wr(2, Op::Write, 8));
    bench.step(reason::POSTED | reason::AGAIN);
    let calls = bench.calls();
    assert_eq!(sent(&calls).len(), 16 * 264 + WRITE_FPDU, "so does the rest of the message");
    assert_eq!(transfers(&calls), []);
}

#[test]
fn answers_and_requests_that_are_transferred_take_turns() {
    let mut bench = bench(&[8, 8]);
    bench.host.durable = Durable::Later;
    bench.receive(&read(1, &read_request(STAG, BASE, 8)));
    bench.post(wr(1, Op::Write, 8));
    let calls = bench.calls();
    assert_eq!(transfers(&calls).len(), 1, "an answer that may not go out yet holds up nothing");
    assert_eq!(sent(&calls), []);
    bench.conn.durable(&mut bench.host, 0, true);
    bench.host.queues.sends.push_back(wr(2, Op::Write, 8));
    bench.step(reason::POSTED | reason::DURABLE);
    let calls = bench.calls();
    let opcodes: Vec<_> = segments(&sent(&calls)).iter().map(|(header, _)| header.opcode()).collect();
    assert_eq!(opcodes, [Opcode::ReadResponse, Opcode::Write]);
    assert_eq!(transfers(&calls), []);
}

#[test]
fn messages_atomics_and_empty_requests_are_for_the_link() {
    let mut bench = bench(&[100, 100, 100]);
    bench.post(wr(1, Op::Send, 10));
    bench.post(wr(2, Op::WriteWithImm, 10));
    bench.post(wr(3, Op::Write, 0));
    assert_eq!(transfers(&bench.calls()), []);
}

#[test]
fn a_budget_ends_a_step_in_the_middle_of_a_request() {
    let mut bench = bench(&[40, 40, 20]);
    bench.budget.send.bytes = 60;
    assert!(bench.post(wr(1, Op::Write, 100)).again);
    assert_eq!(transfers(&bench.calls()).len(), 2);
    assert!(!bench.step(reason::AGAIN).again);
    let calls = bench.calls();
    assert_eq!(transfers(&calls), [remote(REMOTE_WRITE, 80, 20)]);
    assert_eq!(sent(&calls), []);
}

#[test]
fn a_budget_counts_requests() {
    let mut bench = bench(&[10; 4]);
    bench.budget.send.operations = 2;
    (1..=4).for_each(|id| bench.host.queues.sends.push_back(wr(id, Op::Write, 10)));
    assert!(bench.step(reason::POSTED).again);
    assert_eq!(bench.sends_done().len(), 2);
    bench.budget.send.operations = usize::MAX;
    assert!(!bench.step(reason::AGAIN).again);
    assert_eq!(bench.sends_done().len(), 2);
}

#[test]
fn nothing_is_transferred_before_the_first_fpdu_of_the_peer_nor_where_a_crc_was_agreed_on() {
    let mut early =
        Bench::opened(Terms { transfers: true, role: Role::INITIATOR, ..terms() }, Sizes::default());
    early.host.link.transfers = VecDeque::from([10]);
    early.post(wr(1, Op::Write, 10));
    assert_eq!(transfers(&early.calls()), []);
    let framing = Framing { crc: true, ..FRAMING };
    let mut opened = Bench::opened(Terms { transfers: true, framing, ..terms() }, Sizes::default());
    opened.receive(&fpdu_with(true, &tagged(Opcode::Write, true, 1, 0), &[]));
    opened.host.link.transfers = VecDeque::from([10]);
    opened.post(wr(1, Op::Write, 10));
    assert_eq!(transfers(&opened.calls()), []);
}

#[test]
fn the_host_is_told_when_all_was_acted_on_and_not_before() {
    let mut bench = bench(&[]);
    let told = |bench: &mut Bench| std::mem::take(&mut bench.host.link.acted) > 0;
    told(&mut bench);
    let message = send(1, &[1; 40]);
    bench.receive(&message[..30]);
    assert!(!told(&mut bench), "half of it is there");
    bench.receive(&message[30..]);
    assert!(!told(&mut bench), "it waits for a receive");
    bench.host.queues.recv_cq.room = 0;
    bench.post_receive(1, 64);
    assert!(!told(&mut bench), "it waits for room in the completion queue");
    bench.host.queues.recv_cq.room = 1;
    bench.step(reason::ROOM);
    assert!(told(&mut bench));
}

#[test]
fn the_host_is_not_told_that_all_was_acted_on_in_the_middle_of_a_message() {
    let immediate = |msn| {
        let mut body = encode_immediate(*b"imme");
        body[4..].copy_from_slice(b"Send");
        fpdu(&untagged(Opcode::Immediate, true, msn, 0), &body)
    };
    let long = write(STAG, BASE, &[1; 200]);
    // In a header, in payload that is placed as it comes, in payload that waits for its end, and before the
    // Send that has the data.
    let cases = [long[..10].to_vec(), long[..100].to_vec(), send(1, &[1; 40])[..40].to_vec(), immediate(1)];
    for bytes in cases {
        let mut bench = bench(&[]);
        bench.post_receive(1, 64);
        bench.host.link.acted = 0;
        bench.receive(&bytes);
        assert_eq!(bench.host.link.acted, 0, "{} bytes", bytes.len());
        if bytes[..] == immediate(1)[..] {
            bench.receive(&send(2, b""));
            assert_eq!(bench.host.link.acted, 1);
        }
    }
}
