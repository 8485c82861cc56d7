// SPDX-License-Identifier: BSD-3-Clause
//! A step does what its reasons allow, and nothing that could cost a system call in vain.

use super::host::*;
use crate::iwarp::conn::Sizes;
use crate::step::{Budget, Quota, reason};
use crate::wr::Op;

#[test]
fn all_reasons_are_these() {
    let each = [
        reason::POSTED,
        reason::READABLE,
        reason::WRITABLE,
        reason::HANGUP,
        reason::RECEIVE,
        reason::ROOM,
        reason::DURABLE,
        reason::TIME,
        reason::DISCONNECT,
        reason::AGAIN,
    ];
    assert!(each.iter().all(|reason| reason.is_power_of_two()));
    assert_eq!(each.iter().sum::<u32>(), reason::ALL);
    assert_eq!(each.iter().fold(0, |all, reason| all | reason), reason::ALL, "each is another bit");
}

#[test]
fn a_link_that_was_full_is_tried_again_when_it_takes_bytes() {
    let mut bench = Bench::ready();
    bench.host.link.out.set_room(0);
    bench.post(wr(1, Op::Write, 8));
    bench.host.link.out.set_room(usize::MAX);
    bench.post(wr(2, Op::Write, 8));
    bench.step(reason::ALL & !(reason::WRITABLE | reason::DISCONNECT | reason::HANGUP));
    assert_eq!(bench.calls(), [], "no step has reported room");
    bench.step(reason::WRITABLE);
    assert_eq!(bench.sends_done(), [(1, 0), (2, 0)]);
}

#[test]
fn the_rest_of_the_input_waits_for_a_step_that_reads() {
    let mut bench = Bench::with(terms(), Sizes { buffer: 0, ..Sizes::default() });
    bench.budget = Budget { send: Quota::of_bytes(usize::MAX), receive: Quota::of_bytes(1) };
    let left = |bench: &Bench| bench.host.link.incoming.readable();
    let input = empty_write().repeat(1000);
    assert!(bench.receive(&input).again);
    let before = left(&bench);
    assert!(before > 0 && before < input.len(), "{before} bytes are left");
    for why in [reason::POSTED, reason::WRITABLE, reason::DURABLE] {
        bench.step(why);
        assert_eq!(left(&bench), before);
    }
    for why in [reason::AGAIN, reason::READABLE, reason::RECEIVE, reason::ROOM, reason::TIME] {
        let before = left(&bench);
        bench.step(why);
        assert!(left(&bench) < before, "reason {why:#x}");
    }
}

#[test]
fn a_step_says_how_many_bytes_it_has_moved() {
    let write = write(STAG, BASE, b"12345678");
    let mut bench = Bench::ready();
    assert_eq!(bench.step(reason::ALL & !(reason::DISCONNECT | reason::HANGUP)).moved, 0);
    assert_eq!(bench.receive(&write).moved, write.len());
    let posted = bench.post(wr(1, Op::Write, 8)).moved;
    assert_eq!(sent(&bench.calls()).len(), posted);
    bench.host.queues.sends.push_back(wr(2, Op::Write, 100));
    bench.host.link.arrives(&write);
    let both = bench.step(reason::POSTED | reason::READABLE).moved;
    assert_eq!(both, write.len() + sent(&bench.calls()).len());
}

#[test]
fn the_link_is_read_when_it_may_have_bytes() {
    let mut bench = Bench::ready();
    for why in [reason::POSTED, reason::WRITABLE, reason::RECEIVE, reason::ROOM, reason::TIME, reason::AGAIN]
    {
        bench.host.link.receive_error = Some(broken(libc::ECONNRESET));
        bench.step(why);
        assert!(bench.host.link.receive_error.is_some(), "read for reason {why:#x}");
    }
    assert!(!bench.conn.is_over());
    bench.step(reason::READABLE);
    assert!(bench.host.link.receive_error.is_none() && bench.conn.is_over());
}
