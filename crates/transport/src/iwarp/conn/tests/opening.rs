// SPDX-License-Identifier: BSD-3-Clause
//! The opening phase, until an FPDU of the peer has arrived.

use super::host::*;
use crate::iwarp::conn::opening::BYTES_BEFORE_PROBE;
use crate::iwarp::conn::{Role, Sizes, Terms};
use crate::step::reason;
use crate::wr::{Op, status};

fn opened(role: Role) -> Bench {
    let mut bench = Bench::opened(Terms { role, ..terms() }, Sizes::default());
    bench.step(reason::READABLE);
    bench
}

/// Steps at each deadline until there is none: the calls of each step, and its time in milliseconds.
fn step_at_deadlines(bench: &mut Bench) -> Vec<(u64, Vec<Call>)> {
    let began = bench.host.now;
    let mut called = Vec::new();
    while let Some(deadline) = bench.conn.deadline() {
        bench.host.now = deadline - 1;
        bench.step(reason::TIME);
        assert_eq!(bench.calls(), [], "before its time");
        bench.host.now = deadline;
        bench.step(reason::TIME);
        called.push(((deadline - began) / 1_000, bench.calls()));
    }
    called
}

#[test]
fn an_initiator_that_announced_an_fpdu_sends_one_at_once() {
    let mut bench = opened(Role::INITIATOR_ANNOUNCED);
    assert_eq!(bench.calls(), [Call::Sent(empty_write(), false)]);
    let mut bench = opened(Role::INITIATOR);
    assert_eq!(bench.calls(), []);
}

#[test]
fn an_initiator_that_receives_nothing_sends_probes_at_growing_intervals() {
    for role in [Role::INITIATOR, Role::INITIATOR_ANNOUNCED] {
        let mut bench = opened(role);
        bench.calls();
        let times = [10, 30, 70, 150, 310, 630, 1270, 2550, 5110, 10230];
        let send_probe = |at| (at, vec![Call::Sent(empty_write(), false)]);
        assert_eq!(step_at_deadlines(&mut bench), times.map(send_probe));
    }
}

#[test]
fn an_initiator_that_has_received_an_fpdu_sends_no_probe() {
    let mut bench = opened(Role::INITIATOR);
    bench.host.now = bench.conn.deadline().unwrap();
    bench.step(reason::TIME);
    bench.receive(&empty_write());
    bench.calls();
    assert_eq!(bench.conn.deadline(), None);
    bench.host.now += 1_000_000;
    bench.step(reason::TIME);
    assert_eq!(bench.calls(), []);
}

#[test]
fn a_part_of_an_fpdu_does_not_end_the_opening_phase() {
    let mut bench = opened(Role::INITIATOR);
    let fpdu = empty_write();
    bench.receive(&fpdu[..10]);
    assert!(bench.conn.deadline().is_some());
    bench.receive(&fpdu[10..]);
    assert_eq!(bench.conn.deadline(), None);
}

#[test]
fn a_message_that_arrives_while_the_first_requests_cannot_be_sent_is_delivered() {
    let mut bench = opened(Role::RESPONDER_ANNOUNCED);
    bench.host.queues.receives.push_back(receive(1, 100));
    bench.post(wr(2, Op::Send, 8));
    bench.host.link.send_errors.push_back(broken(libc::EPIPE));
    bench.host.link.arrives_late = send(1, b"hello");
    bench.receive(&empty_write());
    let calls = bench.calls();
    assert_eq!(completed(&calls, None), [(1, 0), (2, status::WR_FLUSH_ERR)], "{calls:?}");
    assert_eq!(calls.last(), Some(&Call::Ended));
}

#[test]
fn an_initiator_sends_little_before_it_has_received_an_fpdu() {
    let mut bench = opened(Role::INITIATOR);
    bench.post(wr(1, Op::Write, 60_000));
    let first = sent(&bench.calls());
    assert!(first.len() >= BYTES_BEFORE_PROBE && first.len() < BYTES_BEFORE_PROBE + 512, "{}", first.len());
    bench.receive(&empty_write());
    let calls = bench.calls();
    let segments = segments(&[first, sent(&calls)].concat());
    let payload: Vec<u8> = segments.into_iter().flat_map(|(_, payload)| payload).collect();
    assert_eq!(payload, bench.host.bytes(BASE, 60_000));
    assert!(matches!(calls.last(), Some(Call::SendDone(c)) if c.wr_id == 1));
}

#[test]
fn a_probe_releases_the_rest_and_is_not_sent_between_segments() {
    let mut bench = opened(Role::INITIATOR);
    bench.post(wr(1, Op::Write, 60_000));
    let first = sent(&bench.calls());
    bench.host.now = bench.conn.deadline().unwrap();
    bench.step(reason::TIME);
    let segments = segments(&[first, sent(&bench.calls())].concat());
    assert!(segments.iter().all(|(_, payload)| !payload.is_empty()));
    assert_eq!(segments.iter().map(|(_, payload)| payload.len()).sum::<usize>(), 60_000);
}

#[test]
fn a_responder_with_an_announced_fpdu_is_established_by_it_and_answers() {
    let mut bench = opened(Role::RESPONDER_ANNOUNCED);
    bench.post(wr(1, Op::Send, 4));
    assert_eq!(bench.calls(), [], "it does not send first");
    bench.receive(&empty_write());
    let calls = bench.calls();
    assert_eq!(calls[0], Call::Established);
    let body = bench.host.bytes(BASE, 4).to_vec();
    assert_eq!(calls[1], Call::Sent([empty_write(), send(1, &body)].concat(), false));
    bench.receive(&empty_write());
    assert_eq!(bench.calls(), [], "only the first one matters");
}

#[test]
fn a_responder_with_an_announced_fpdu_waits_ten_seconds_for_it() {
    let mut bench = opened(Role::RESPONDER_ANNOUNCED);
    assert_eq!(step_at_deadlines(&mut bench), [(10_000, vec![Call::Closed(None), Call::Ended])]);
}

#[test]
fn what_has_arrived_when_these_expire_has_arrived_in_time() {
    for why in [reason::TIME, reason::TIME | reason::READABLE | reason::POSTED] {
        let mut bench = opened(Role::RESPONDER_ANNOUNCED);
        bench.host.now = bench.conn.deadline().unwrap();
        bench.host.link.arrives(empty_write());
        bench.step(why);
        assert_eq!(bench.calls()[0], Call::Established);
        assert_eq!(bench.conn.deadline(), None);
    }
    let mut bench = opened(Role::RESPONDER_ANNOUNCED);
    bench.host.now = bench.conn.deadline().unwrap();
    bench.host.link.arrives(&empty_write()[..9]);
    bench.step(reason::TIME | reason::READABLE);
    assert_eq!(bench.calls(), [Call::Closed(None), Call::Ended], "a part of one is none");
}

/// A step for another reason does not read the link, which may have bytes that arrived in time.
#[test]
fn the_ten_seconds_end_in_a_step_for_the_timer() {
    let mut bench = opened(Role::RESPONDER_ANNOUNCED);
    bench.host.now = bench.conn.deadline().unwrap();
    bench.host.link.arrives(empty_write());
    for why in [reason::POSTED, reason::WRITABLE, reason::RECEIVE, reason::ROOM, reason::AGAIN] {
        bench.step(why);
        assert_eq!(bench.calls(), [], "reason {why:#x}");
        assert_eq!(
            bench.host.link.incoming.readable(),
            empty_write().len(),
            "the link is not read, reason {why:#x}"
        );
    }
    bench.step(reason::TIME);
    assert_eq!(bench.calls()[0], Call::Established);
}

#[test]
fn another_responder_pauses_before_it_sends() {
    let mut bench = opened(Role::RESPONDER);
    bench.post(wr(1, Op::Send, 4));
    assert_eq!(bench.calls(), []);
    let body = bench.host.bytes(BASE, 4).to_vec();
    let called = step_at_deadlines(&mut bench);
    assert_eq!(called.len(), 1);
    assert_eq!(called[0].0, 100);
    assert_eq!(called[0].1[0], Call::Sent(send(1, &body), false));

    let mut bench = opened(Role::RESPONDER);
    bench.post(wr(1, Op::Send, 4));
    bench.receive(&empty_write());
    assert_eq!(
        bench.calls()[0],
        Call::Sent(send(1, &body), false),
        "at once after the first FPDU of the peer"
    );
}

#[test]
fn bytes_behind_the_mpa_frame_of_the_peer_are_received_first() {
    let early = empty_write();
    let mut bench =
        Bench::opened(Terms { role: Role::RESPONDER_ANNOUNCED, early: &early, ..terms() }, Sizes::default());
    bench.step(reason::READABLE);
    assert_eq!(bench.calls(), [Call::Established, Call::Sent(empty_write(), false)]);
}
