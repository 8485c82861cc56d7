// SPDX-License-Identifier: BSD-3-Clause
//! The end of a connection: its effects on the peer, the link and the work requests, and their order.

use crate::iwarp::wire::rdmap::{Opcode, TermCode};
use crate::iwarp::wire::terminate::Terminate;

use super::host::*;
use crate::iwarp::conn::STALLED_END_MS;
use crate::iwarp::conn::{Conn, Sizes};
use crate::step::{Awaits, reason};
use crate::wr::{Completion, Op, SendWr, opcode, status};

const FLUSHED: u32 = status::WR_FLUSH_ERR;

/// A connection with a read and a write under way and two receives posted.
fn busy() -> Bench {
    let mut bench = Bench::ready();
    bench.post_receive(10, 100);
    bench.post_receive(11, 100);
    bench.host.queues.sends.push_back(wr(1, Op::Read, 8));
    bench.post(wr(2, Op::Write, 8));
    assert_eq!(bench.sends_done(), []);
    bench
}

/// The calls of the end of [`busy`]: the last words, and the status of the read.
#[track_caller]
fn assert_ended(bench: &mut Bench, last: Option<&[u8]>, read: u32) {
    let brief: Vec<_> = bench
        .calls()
        .into_iter()
        .map(|call| match call {
            Call::SendDone(c) | Call::RecvDone(c) => (c.wr_id, c.status),
            Call::Closed(words) => {
                assert_eq!(words.as_deref(), last);
                (0, 0)
            }
            Call::Ended => (99, 99),
            call => panic!("{call:?}"),
        })
        .collect();
    let expected = [(0, 0), (1, read), (2, FLUSHED), (10, FLUSHED), (11, FLUSHED), (99, 99)];
    assert_eq!(brief, expected);
}

#[test]
fn the_program_ends_it() {
    let mut bench = busy();
    bench.step(reason::DISCONNECT);
    assert_ended(&mut bench, Some(&[]), FLUSHED);
    bench.step(reason::DISCONNECT);
    bench.hang_up();
    assert_eq!(bench.calls(), [], "once");
    assert_eq!(bench.conn.deadline(), None);
}

#[test]
fn a_receive_that_is_flushed_is_said_to_be_one() {
    let mut bench = busy();
    bench.step(reason::DISCONNECT);
    let mut calls = bench.calls();
    calls.retain(|call| matches!(call, Call::RecvDone(_)));
    let flushed = |wr_id| Completion {
        wr_id,
        status: FLUSHED,
        opcode: opcode::RECV,
        qp_num: QP,
        ..Completion::default()
    };
    assert_eq!(calls, [10, 11].map(|wr_id| Call::RecvDone(flushed(wr_id))));
}

#[test]
fn what_was_deferred_goes_out_before_the_program_ends_it() {
    let mut bench = Bench::ready();
    bench.host.queues.sends.push_back(wr(1, Op::Write, 8));
    bench.step(reason::POSTED | reason::DISCONNECT);
    let calls = bench.calls();
    assert_eq!(segments(&sent(&calls)).len(), 1);
    assert!(
        matches!(&calls[1..], [Call::SendDone(c), Call::Closed(Some(_)), Call::Ended] if c.status == status::SUCCESS)
    );
}

#[test]
fn the_peer_closes() {
    let mut bench = busy();
    bench.hang_up();
    assert_ended(&mut bench, None, FLUSHED);
}

#[test]
fn what_came_before_the_peers_end_counts() {
    let mut bench = busy();
    bench.host.link.arrives([send(1, b"last words"), write(STAG, BASE, b"and this")].concat());
    bench.hang_up();
    assert_eq!(bench.host.bytes(BASE, 8), b"and this");
    assert_eq!(bench.receives_done(), [(10, 0), (11, FLUSHED)]);
}

#[test]
fn the_link_is_cut() {
    let mut bench = busy();
    bench.host.link.receive_error = Some(broken(libc::ECONNRESET));
    bench.step(reason::READABLE);
    assert_ended(&mut bench, None, FLUSHED);
}

#[test]
fn the_peer_refuses_a_read() {
    let cases = [
        (TermCode::RDMAP_PROT_ACCESS, status::REM_ACCESS_ERR),
        (TermCode::RDMAP_PROT_BOUNDS, status::REM_ACCESS_ERR),
        (TermCode::RDMAP_OP_OPCODE, status::REM_OP_ERR),
        (TermCode::RDMAP_OP_CATASTROPHIC_STREAM, status::REM_OP_ERR),
        (TermCode::LOCAL_CATASTROPHIC, FLUSHED),
        (TermCode::DDP_TAGGED_INVALID_STAG, FLUSHED),
    ];
    for (code, read) in cases {
        let mut bench = busy();
        bench.receive(&terminate_fpdu(&Terminate::new(code)));
        assert_ended(&mut bench, Some(&[]), read);
    }
}

#[test]
fn a_malformed_terminate_message_ends_it_too() {
    let mut bench = busy();
    bench.receive(&fpdu(&untagged(Opcode::Terminate, true, 1, 0), &[1]));
    let calls = bench.calls();
    assert_eq!(calls.last(), Some(&Call::Ended));
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::Closed(_))).count(), 1);
}

#[test]
fn a_request_is_made_to_fail_when_those_before_it_are_over() {
    let mut bench = busy();
    assert!(!bench.conn.has_completed_all());
    bench.receive(&response(1, true, 0, b"8 bytes."));
    assert_eq!(bench.sends_done(), [(1, status::SUCCESS), (2, status::SUCCESS)]);
    assert!(bench.conn.has_completed_all());
    let unsignalled = |id| SendWr { signaled: false, ..wr(id, Op::Write, 8) };
    bench.host.queues.sends.extend([wr(3, Op::Write, 8), unsignalled(4), wr(5, Op::Read, 8)]);
    bench.conn.fail_next(&mut bench.host, status::RETRY_EXC_ERR);
    let calls = bench.calls();
    assert!(matches!(calls.first(), Some(Call::Closed(Some(words))) if words.is_empty()), "{calls:?}");
    assert_eq!(calls.last(), Some(&Call::Ended));
    assert_eq!(sends_done(&calls), [(3, status::RETRY_EXC_ERR), (4, FLUSHED), (5, FLUSHED)]);
    // Once, and not without a request.
    bench.conn.fail_next(&mut bench.host, status::RETRY_EXC_ERR);
    let mut bench = Bench::ready();
    bench.conn.fail_next(&mut bench.host, status::RETRY_EXC_ERR);
    assert_eq!(bench.calls(), []);
    assert!(!bench.conn.is_over());
}

#[test]
fn no_request_is_made_to_fail_before_the_beginning_or_after_the_end() {
    let mut bench = Bench::ready();
    bench.step(reason::DISCONNECT);
    bench.calls();
    bench.host.queues.sends.push_back(wr(1, Op::Write, 8));
    bench.conn.fail_next(&mut bench.host, status::RETRY_EXC_ERR);
    assert_eq!(bench.host.queues.sends.len(), 1, "it stays with the host");
    bench.step(reason::POSTED);
    assert_eq!(bench.sends_done(), [(1, FLUSHED)]);
    bench.conn = Conn::new(QP, 8, true, Sizes::default()).unwrap();
    bench.host.queues.sends.push_back(wr(2, Op::Write, 8));
    bench.conn.fail_next(&mut bench.host, status::RETRY_EXC_ERR);
    assert_eq!(bench.calls(), []);
    assert!(!bench.conn.is_over());
}

#[test]
fn the_end_reports_whether_one_side_has_closed_the_connection() {
    let closed: [fn(&mut Bench); 2] = [
        |bench| {
            bench.step(reason::DISCONNECT);
        },
        |bench| {
            bench.hang_up();
        },
    ];
    let failed: [fn(&mut Bench); 4] = [
        |bench| {
            bench.host.link.receive_error = Some(broken(libc::ECONNRESET));
            bench.step(reason::READABLE);
        },
        |bench| {
            bench.receive(&terminate_fpdu(&Terminate::new(TermCode::RDMAP_PROT_BOUNDS)));
        },
        |bench| {
            bench.receive(&write(0xbad, 0, b"refused"));
        },
        |bench| {
            bench.host.memory.mapped_to = BASE;
            bench.post(wr(3, Op::Send, 8));
        },
    ];
    let reported = |end: &fn(&mut Bench)| {
        let mut bench = busy();
        end(&mut bench);
        bench.host.ended.map(|how| how.is_failure())
    };
    assert_eq!(closed.each_ref().map(reported), [Some(false); 2]);
    assert_eq!(failed.each_ref().map(reported), [Some(true); 4]);
}

// ---- the peer's end while messages wait for receives -----------------------------------------------------------------------------------

#[test]
fn messages_of_a_peer_that_has_ended_wait_for_receives_that_keep_coming() {
    let mut bench = Bench::ready();
    bench.receive(&[send(1, b"1"), send(2, b"2"), send(3, b"3")].concat());
    bench.hang_up();
    assert_eq!(bench.calls(), []);
    let wait = STALLED_END_MS * 1_000;
    assert_eq!(bench.conn.deadline(), Some(bench.host.now + wait));
    for id in 1..=2 {
        bench.host.now += wait - 1;
        bench.post_receive(id, 100);
        assert_eq!(bench.receives_done(), [(id, 0)]);
        assert_eq!(bench.conn.deadline(), Some(bench.host.now + wait), "each receive begins a new wait");
    }
    bench.host.now += wait - 1;
    bench.step(reason::TIME);
    assert_eq!(bench.calls(), []);
    bench.host.now += 1;
    bench.step(reason::TIME);
    assert_eq!(bench.calls(), [Call::Closed(None), Call::Ended]);
}

#[test]
fn a_peer_that_has_ended_is_over_with_its_last_message() {
    let mut bench = Bench::ready();
    bench.receive(&send(1, b"1"));
    bench.hang_up();
    bench.post_receive(1, 100);
    let calls = bench.calls();
    assert!(matches!(&calls[..], [.., Call::RecvDone(c), Call::Closed(None), Call::Ended] if c.wr_id == 1));
}

#[test]
fn the_end_is_found_where_the_last_count_was_short() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 100);
    bench.calls();
    bench.host.link.arrives(send(1, b"1"));
    bench.host.link.ends();
    bench.step(reason::READABLE | reason::HANGUP);
    assert_eq!(bench.calls().last(), Some(&Call::Ended));
}

// ---- last words --------------------------------------------------------------------------------------------------------------------

#[test]
fn the_rest_of_an_fpdu_that_the_link_has_begun_to_take_goes_out() {
    for begun in [1, 15, 16, 20, 27] {
        let mut bench = Bench::ready();
        let body = bench.host.bytes(BASE, 8).to_vec();
        let fpdu = write(0x900, 0x5000, &body);
        bench.host.link.out.set_room(begun);
        bench.host.queues.sends.push_back(wr(1, Op::Write, 8));
        bench.post(wr(2, Op::Write, 8));
        assert_eq!(sent(&bench.calls()), fpdu[..begun]);
        bench.step(reason::DISCONNECT);
        let calls = bench.calls();
        assert_eq!(calls[0], Call::Closed(Some(fpdu[begun..].to_vec())), "and nothing of the second one");
        // Without a CRC the trailer adds nothing: a write whose payload was taken has completed already.
        let flushed = if begun < 24 { 2 } else { 1 };
        assert_eq!(calls.len(), 2 + flushed, "{calls:?}");
    }
}

#[test]
fn a_terminate_message_follows_the_rest_of_an_fpdu() {
    let mut bench = Bench::ready();
    let body = bench.host.bytes(BASE, 8).to_vec();
    bench.host.link.out.set_room(20);
    bench.post(wr(1, Op::Write, 8));
    let header = tagged(Opcode::Write, true, 0xbad, 0);
    bench.receive(&fpdu(&header, b"1"));
    let terminate = terminate_fpdu(&about(TermCode::DDP_TAGGED_INVALID_STAG, &header, 1));
    let rest = write(0x900, 0x5000, &body)[20..].to_vec();
    assert!(bench.calls().contains(&Call::Closed(Some([rest, terminate].concat()))));
}

#[test]
fn the_link_is_dropped_where_the_rest_cannot_be_had() {
    let mut bench = Bench::ready();
    bench.host.link.out.set_room(20);
    bench.post(wr(1, Op::Write, 8));
    bench.calls();
    bench.host.memory.mapped_to = BASE;
    bench.step(reason::DISCONNECT);
    assert_eq!(bench.calls()[0], Call::Closed(None));
}

#[test]
fn an_fpdu_that_the_link_has_not_begun_to_take_is_dropped() {
    let mut bench = Bench::ready();
    bench.host.link.out.set_room(0);
    bench.post(wr(1, Op::Write, 8));
    bench.step(reason::DISCONNECT);
    assert_eq!(bench.calls()[0], Call::Closed(Some(Vec::new())));
}

// ---- after the end -----------------------------------------------------------------------------------------------------------------

#[test]
fn what_is_posted_after_the_end_is_flushed() {
    let mut bench = Bench::ready();
    assert_eq!(bench.step(reason::DISCONNECT).awaits, Awaits::Receive, "a receive leads to a step");
    bench.calls();
    (1..=20).for_each(|id| bench.host.queues.sends.push_back(wr(id, Op::Write, 8)));
    bench.step(reason::POSTED);
    let all: Vec<_> = (1..=20).map(|id| (id, FLUSHED)).collect();
    assert_eq!(bench.sends_done(), all);
    bench.post_receive(1, 100);
    assert_eq!(bench.receives_done(), [(1, FLUSHED)]);
}

#[test]
fn flush_errors_wait_for_room_and_none_is_lost() {
    let mut bench = Bench::ready();
    (1..=5).for_each(|id| bench.host.queues.receives.push_back(receive(id, 100)));
    (1..=20).for_each(|id| bench.host.queues.sends.push_back(wr(id, Op::Write, 8)));
    bench.host.queues.send_cq.room = 0;
    bench.host.queues.recv_cq.room = 0;
    assert_eq!(bench.step(reason::DISCONNECT).awaits, Awaits::Room);
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for _ in 0..25 {
        (bench.host.queues.send_cq.room, bench.host.queues.recv_cq.room) = (1, 1);
        bench.step(reason::ROOM);
        let calls = bench.calls();
        sends.extend(sends_done(&calls));
        receives.extend(receives_done(&calls));
    }
    assert_eq!(sends, (1..=20).map(|id| (id, FLUSHED)).collect::<Vec<_>>());
    assert_eq!(receives, (1..=5).map(|id| (id, FLUSHED)).collect::<Vec<_>>());
}

#[test]
fn the_receives_of_a_shared_queue_stay_there_but_for_the_one_that_was_begun() {
    let mut bench = Bench::ready();
    bench.conn = Conn::new(QP, 8, false, Sizes::default()).unwrap();
    bench.conn.open(terms(), bench.host.now).unwrap();
    (1..=2).for_each(|id| bench.host.queues.receives.push_back(receive(id, 100)));
    bench.receive(&fpdu(&untagged(Opcode::Send, false, 1, 0), b"the beginning"));
    bench.step(reason::DISCONNECT);
    assert_eq!(bench.receives_done(), [(1, FLUSHED)]);
    assert_eq!(bench.host.queues.receives.len(), 1);
}

#[test]
fn nothing_completes_once_the_queue_pair_is_destroyed() {
    let mut bench = busy();
    bench.conn.abandon(&mut bench.host);
    bench.conn.abandon(&mut bench.host);
    assert_eq!(bench.calls(), [Call::Closed(Some(Vec::new()))]);
}

#[test]
fn a_connection_that_was_never_opened_ends_without_a_link() {
    let mut bench = Bench::ready();
    bench.conn = Conn::new(QP, 8, true, Sizes::default()).unwrap();
    bench.host.queues.receives.push_back(receive(1, 100));
    assert_eq!(bench.step(reason::ALL), crate::step::Stepped::default());
    bench.conn.lose(&mut bench.host, libc::EMFILE);
    let calls = bench.calls();
    assert!(matches!(&calls[..], [Call::RecvDone(c), Call::Ended] if c.status == FLUSHED), "{calls:?}");
}

#[test]
fn a_connection_at_rest_has_nothing_under_way() {
    let mut bench = Bench::ready();
    assert!(bench.conn.is_at_rest());
    bench.post(wr(1, Op::Read, 8));
    assert!(!bench.conn.is_at_rest(), "a response is awaited");
    bench.receive(&response(1, true, 0, b"8 bytes."));
    assert!(bench.conn.is_at_rest());
    bench.receive(&send(1, b"hello"));
    assert!(!bench.conn.is_at_rest(), "a message waits for a receive");
    bench.post_receive(1, 100);
    assert!(bench.conn.is_at_rest());
}
