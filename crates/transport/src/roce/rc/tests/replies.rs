// SPDX-License-Identifier: BSD-3-Clause
//! What becomes of a NAK that is still queued when more packets arrive.

use super::pair::{Fate, Pair, wr};
use crate::step::reason;
use crate::wr::{Op, SendWr, status};

const OK: u32 = status::SUCCESS;

/// What was posted meets no receive; then these packets come again from a former link, and meet one.
/// `is_queued`: the link takes the RNR NAK only after them.
fn receive_late(pair: &mut Pair, copies: &[usize], is_queued: bool) {
    pair.step(0, reason::POSTED);
    let copies = copies.iter().map(|at| pair.hosts[0].link.sent[*at].clone()).collect::<Vec<_>>();
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.hosts[1].link.room = is_queued.then_some(0);
    pair.step(1, reason::READABLE);
    pair.post_receive(1, 20, 0x7000, 1024);
    pair.hosts[1].link.arrived.extend(copies);
    pair.step(1, reason::READABLE);
    pair.hosts[1].link.room = None;
    pair.step(1, reason::WRITABLE);
    pair.settle();
    pair.expire(0);
    pair.settle();
}

/// A request meets no receive, a copy of it from a former link meets one: the peer still learns that what was
/// between the two was dropped.
#[test]
fn an_rnr_nak_is_sent_before_the_ack_of_a_late_copy() {
    let mut pair = Pair::with(|_, terms| (terms.retries, terms.rnr_retries) = (0, 1));
    pair.post(0, wr(1, Op::Send, 0, 8, 0));
    pair.post(0, wr(2, Op::Write, 0, 8, 0x4000));
    receive_late(&mut pair, &[0], true);
    pair.post(0, wr(3, Op::Write, 0, 8, 0x4000));
    pair.settle();
    assert_eq!(pair.done(0), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!(pair.done(1), [(20, OK)]);
}

/// The same with a packet behind the copy that shows the gap: the NAK costs no retry, whatever is between it
/// and the RNR NAK, and whether that has left before.
#[test]
fn a_nak_behind_a_late_copy_is_no_retry() {
    let send = |len| wr(1, Op::Send, 0, len, 0);
    let write = |id| wr(id, Op::Write, 0, 8, 0x4000);
    let read = |id| wr(id, Op::Read, 0x100, 8, 0x8000);
    let schedules: [(&[SendWr], &[usize]); 3] = [
        (&[send(600)], &[0, 2]),
        (&[send(8), write(2), write(3)], &[0, 2]),
        (&[send(8), read(2), write(3), write(4)], &[0, 1, 3]),
    ];
    for ((requests, copies), is_queued) in schedules.into_iter().flat_map(|one| [(one, true), (one, false)]) {
        let mut pair = Pair::with(|_, terms| (terms.retries, terms.rnr_retries) = (0, 1));
        requests.iter().for_each(|request| pair.post(0, request.clone()));
        receive_late(&mut pair, copies, is_queued);
        let done = requests.iter().map(|request| (request.wr_id, OK)).collect::<Vec<_>>();
        assert_eq!(pair.done(0), done, "queued: {is_queued}");
        assert_eq!(pair.done(1), [(20, OK)]);
    }
}
