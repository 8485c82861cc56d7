// SPDX-License-Identifier: BSD-3-Clause
//! The send queue: in which order requests complete, and how often.

use super::host::{Bench, Call, Host, QP, sends_done, wr};
use crate::sq::{Progress, SendQueue};
use crate::wr::{Op, SendWr, opcode, status};

const FLUSHED: u32 = status::WR_FLUSH_ERR;

/// A queue of 8 places, and the host that these requests were taken from.
fn queue(requests: &[(u64, Op)]) -> (SendQueue, Host) {
    let (mut sq, mut host) = of_depth(8);
    requests.iter().for_each(|&(id, op)| push(&mut sq, &mut host, wr(id, op, 1)));
    (sq, host)
}

fn of_depth(depth: u32) -> (SendQueue, Host) {
    (SendQueue::new(depth).unwrap(), Bench::ready().host)
}

/// The connection takes a request.
fn push(sq: &mut SendQueue, host: &mut Host, wr: SendWr) {
    host.queues.taken_sends.push_back(wr.clone());
    sq.push(wr);
}

/// The next request was made into FPDUs, and this is how far it is.
fn sent(sq: &mut SendQueue, to: Progress) {
    let position = sq.next_position().unwrap();
    sq.advance();
    sq.at(position).unwrap().progress = to;
}

fn retired(sq: &mut SendQueue, host: &mut Host) -> Vec<(u64, u32)> {
    sq.retire(host, QP);
    sends_done(&std::mem::take(&mut host.calls))
}

#[test]
fn a_write_behind_a_read_waits_for_it() {
    let (mut sq, mut host) = queue(&[(1, Op::Read), (2, Op::Write)]);
    sent(&mut sq, Progress::Awaiting);
    sent(&mut sq, Progress::Done(status::SUCCESS));
    assert_eq!(retired(&mut sq, &mut host), []);
    sq.oldest_awaited().unwrap().1.progress = Progress::Done(status::SUCCESS);
    assert_eq!(retired(&mut sq, &mut host), [(1, 0), (2, 0)]);
    assert!(sq.oldest_awaited().is_none());
}

#[test]
fn the_oldest_read_is_the_first_that_is_awaited() {
    let mut sq = queue(&[(1, Op::Write), (2, Op::Read), (3, Op::Write), (4, Op::Read), (5, Op::Read)]).0;
    sent(&mut sq, Progress::Done(status::SUCCESS));
    sent(&mut sq, Progress::Queued);
    assert!(sq.oldest_awaited().is_none(), "the link has not taken it");
    sq.sent(1);
    sent(&mut sq, Progress::Done(status::SUCCESS));
    sent(&mut sq, Progress::Awaiting);
    assert_eq!(sq.oldest_awaited().unwrap().1.wr.wr_id, 2);
    sq.oldest_awaited().unwrap().1.progress = Progress::Done(status::SUCCESS);
    assert_eq!(sq.oldest_awaited().unwrap().1.wr.wr_id, 4);
    sq.oldest_awaited().unwrap().1.progress = Progress::Done(status::SUCCESS);
    assert!(sq.oldest_awaited().is_none(), "the last one was not made into FPDUs");
}

#[test]
fn a_read_that_is_posted_when_all_else_is_over_is_awaited() {
    let (mut sq, mut host) = queue(&[(1, Op::Write)]);
    sent(&mut sq, Progress::Done(status::SUCCESS));
    assert!(sq.oldest_awaited().is_none());
    push(&mut sq, &mut host, wr(2, Op::Read, 1));
    assert!(sq.oldest_awaited().is_none());
    sent(&mut sq, Progress::Awaiting);
    assert_eq!(sq.oldest_awaited().map(|(position, entry)| (position, entry.wr.wr_id)), Some((1, 2)));
}

#[test]
fn what_is_over_stays_so_when_the_link_has_taken_it() {
    for over in [status::SUCCESS, status::LOC_PROT_ERR] {
        let mut sq = queue(&[(1, Op::Read), (2, Op::Write)]).0;
        for position in 0..2 {
            sent(&mut sq, Progress::Done(over));
            sq.sent(position);
            assert_eq!(sq.at(position).unwrap().progress, Progress::Done(over));
        }
    }
}

#[test]
fn there_is_no_next_request_behind_the_last_one() {
    let (mut sq, mut host) = queue(&[]);
    assert_eq!((sq.next_position(), sq.next_alone()), (None, None));
    push(&mut sq, &mut host, wr(1, Op::Write, 1));
    assert_eq!((sq.next_position(), sq.next_alone()), (Some(0), Some(0)));
    push(&mut sq, &mut host, wr(2, Op::Write, 1));
    sq.advance();
    assert_eq!((sq.next_position(), sq.next_alone()), (Some(1), None));
    sq.advance();
    assert_eq!((sq.next_position(), sq.next_alone()), (None, None));
}

#[test]
fn a_position_outside_the_queue_has_no_request() {
    let (mut sq, mut host) = of_depth(2);
    for id in 0..4 {
        push(&mut sq, &mut host, wr(id, Op::Write, 1));
        if id < 2 {
            sent(&mut sq, Progress::Done(status::SUCCESS));
            assert_eq!(retired(&mut sq, &mut host), [(id, 0)]);
        }
    }
    for position in 0..6 {
        let expected = (2..4).contains(&position).then_some(position);
        assert_eq!(sq.at(position).map(|entry| entry.wr.wr_id), expected);
        assert_eq!(sq.entry(position).map(|entry| entry.wr.wr_id), expected);
    }
}

#[test]
fn what_the_link_has_taken_is_over_but_for_reads() {
    let mut sq = queue(&[(1, Op::Write), (2, Op::Read)]).0;
    sq.advance();
    sq.advance();
    sq.sent(0);
    sq.sent(1);
    assert_eq!(sq.at(0).unwrap().progress, Progress::Done(status::SUCCESS));
    assert_eq!(sq.at(1).unwrap().progress, Progress::Awaiting);
    sq.sent(2);
    assert!(sq.at(2).is_none());
}

#[test]
fn a_queue_is_full_until_its_oldest_request_is_complete() {
    let (mut sq, mut host) = of_depth(2);
    for lap in 0..5 {
        assert!(!sq.is_full());
        push(&mut sq, &mut host, wr(lap, Op::Write, 1));
        push(&mut sq, &mut host, wr(lap + 100, Op::Write, 1));
        assert!(sq.is_full());
        sent(&mut sq, Progress::Done(status::SUCCESS));
        sent(&mut sq, Progress::Done(status::SUCCESS));
        host.queues.send_cq.room = 1;
        assert_eq!(retired(&mut sq, &mut host), [(lap, 0)]);
        assert!(!sq.is_full());
        host.queues.send_cq.room = 1;
        assert_eq!(retired(&mut sq, &mut host), [(lap + 100, 0)]);
    }
}

#[test]
fn an_unsignalled_request_gives_its_place_back_without_a_completion() {
    let (mut sq, mut host) = of_depth(2);
    push(&mut sq, &mut host, SendWr { signaled: false, ..wr(1, Op::Write, 1) });
    sent(&mut sq, Progress::Done(status::SUCCESS));
    host.queues.send_cq.room = 0;
    sq.retire(&mut host, QP);
    assert_eq!(host.calls, [Call::Released]);
}

#[test]
fn a_completion_says_what_was_done() {
    let ops = [
        (Op::Write, opcode::RDMA_WRITE),
        (Op::WriteWithImm, opcode::RDMA_WRITE),
        (Op::Read, opcode::RDMA_READ),
        (Op::Send, opcode::SEND),
        (Op::SendWithImm, opcode::SEND),
    ];
    for (op, opcode) in ops {
        let (mut sq, mut host) = queue(&[(9, op)]);
        sent(&mut sq, Progress::Done(status::SUCCESS));
        sq.retire(&mut host, QP);
        let [Call::SendDone(c)] = host.calls[..] else { panic!("{:?}", host.calls) };
        assert_eq!((c.wr_id, c.status, c.opcode, c.byte_len, c.qp_num), (9, 0, opcode, 1, QP));
    }
}

#[test]
fn nothing_succeeds_behind_a_failure() {
    let (mut sq, mut host) = queue(&[(1, Op::Write), (2, Op::Read), (3, Op::Write)]);
    sent(&mut sq, Progress::Done(status::SUCCESS));
    sent(&mut sq, Progress::Awaiting);
    sent(&mut sq, Progress::Done(status::SUCCESS));
    sq.fail_all();
    assert_eq!(retired(&mut sq, &mut host), [(1, 0), (2, FLUSHED), (3, FLUSHED)]);
}

#[test]
fn a_failed_request_keeps_its_status_and_nothing_behind_it_succeeds() {
    let requests = [(0, Op::Write), (1, Op::Read), (2, Op::Write), (3, Op::Write)];
    let (mut sq, mut host) = queue(&requests);
    sent(&mut sq, Progress::Done(status::SUCCESS));
    sent(&mut sq, Progress::Awaiting);
    sent(&mut sq, Progress::Done(status::SUCCESS));
    sq.oldest_awaited().unwrap().1.progress = Progress::Done(status::REM_ACCESS_ERR);
    sq.fail_all();
    let expected = [(0, 0), (1, status::REM_ACCESS_ERR), (2, FLUSHED), (3, FLUSHED)];
    assert_eq!(retired(&mut sq, &mut host), expected);
}

#[test]
fn failing_completes_everything_once_signalled_or_not() {
    let (mut sq, mut host) = of_depth(8);
    for id in 0..4 {
        push(&mut sq, &mut host, SendWr { signaled: id % 2 == 0, ..wr(id, Op::Write, 1) });
    }
    sent(&mut sq, Progress::Done(status::SUCCESS));
    host.queues.send_cq.room = 2;
    sq.fail_all();
    assert_eq!(retired(&mut sq, &mut host), [(0, 0), (1, FLUSHED)]);
    host.queues.send_cq.room = 9;
    sq.fail_all();
    assert_eq!(retired(&mut sq, &mut host), [(2, FLUSHED), (3, FLUSHED)]);
    sq.fail_all();
    assert_eq!(retired(&mut sq, &mut host), []);
}
