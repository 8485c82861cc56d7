// SPDX-License-Identifier: BSD-3-Clause
//! Requests that the host carries out directly: by copies, and by accesses to words.

use std::collections::VecDeque;

use super::host::*;
use crate::access::{Access, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::direct::{MAX_TOGETHER, WordAccess};
use crate::host::{Durable, Host};
use crate::iwarp::conn::{Framing, Offered, Role, Sizes, Terms};
use crate::iwarp::link::LinkError;
use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{Opcode, encode_immediate};
use crate::step::reason;
use crate::wr::{Entries, Local, Op, SendWr, Sge, status};

fn bench(transfers: &[usize]) -> Bench {
    let mut bench = Bench::with(Terms { transfers: true, ..terms() }, Sizes::default());
    bench.host.transfers = VecDeque::from_iter(transfers.iter().copied());
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
fn offer(bench: &mut Bench, wr: &SendWr) -> Offered {
    bench.host.queues.sends.push_back(wr.clone());
    bench.host.next_send().unwrap();
    let offered = bench.conn.carry_out(&mut bench.host, wr);
    if offered == Offered::Refused {
        bench.host.queues.give_back();
    }
    offered
}

#[test]
fn a_request_that_is_carried_out_alone_completes_without_a_step() {
    for wr in [wr(1, Op::Write, 100), wr(2, Op::Read, 100), inline(3, Op::Write, &[7; 8])] {
        let mut bench = bench(&[wr.len as usize]);
        assert_eq!(offer(&mut bench, &wr), Offered::Complete);
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
    assert_eq!(offer(&mut bench, &wr), Offered::Refused);
    bench.step(reason::POSTED);
    let calls = bench.calls();
    assert_eq!(transfers(&calls), [remote(REMOTE_WRITE, 0, 100), remote(REMOTE_WRITE, 40, 60)]);
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::SendDone(_))).count(), 1);
    assert!(bench.conn.is_at_rest());
}

#[test]
fn a_short_message_is_sent_without_a_step() {
    for (wr, len) in [(wr(1, Op::Send, 100), 100), (inline(2, Op::Send, &[7; 8]), 8), (wr(3, Op::Send, 0), 0)]
    {
        let (mut alone, mut posted) = (bench(&[]), bench(&[]));
        assert_eq!(offer(&mut alone, &wr), Offered::Complete);
        posted.post(wr);
        let (alone_calls, calls) = (alone.calls(), posted.calls());
        assert_eq!(sent(&alone_calls), sent(&calls), "{len} bytes");
        let done = |call: &&Call| matches!(call, Call::SendDone(c) if c.status == status::SUCCESS);
        assert_eq!(alone_calls.iter().filter(done).count(), 1);
        assert!(alone.conn.is_at_rest());
        // The next one has the next number.
        for bench in [&mut alone, &mut posted] {
            bench.post(inline(4, Op::Send, &[8; 8]));
        }
        assert_eq!(sent(&alone.calls()), sent(&posted.calls()));
    }
}

#[test]
fn a_short_message_that_the_link_takes_in_part_is_in_the_queue() {
    let message = wr(1, Op::Send, 100);
    let mut posted = bench(&[]);
    posted.post(message.clone());
    let whole = sent(&posted.calls());
    // In the header, the payload and the trailer.
    for most in [1, 30, whole.len() - 1] {
        let mut bench = bench(&[]);
        bench.host.link.out.capacity = most;
        assert_eq!(offer(&mut bench, &message), Offered::Taken);
        bench.step(reason::POSTED);
        bench.host.link.out.capacity = usize::MAX;
        bench.step(reason::WRITABLE);
        let calls = bench.calls();
        assert_eq!(sent(&calls), whole, "{most} bytes at first");
        let done = |call: &&Call| matches!(call, Call::SendDone(c) if c.status == status::SUCCESS);
        assert_eq!(calls.iter().filter(done).count(), 1);
        assert!(bench.conn.is_at_rest());
    }
}

/// It is the queued request that reports an error.
#[test]
fn a_short_message_that_cannot_be_sent_now_is_posted() {
    let mut full = bench(&[]);
    full.host.link.out.capacity = 0;
    assert_eq!(offer(&mut full, &wr(1, Op::Send, 100)), Offered::Refused);
    let mut refused = bench(&[]);
    let local = Local::Memory { addr: BASE, lkey: 0xbad };
    assert_eq!(offer(&mut refused, &SendWr { local, ..wr(1, Op::Send, 100) }), Offered::Refused);
    let mut reading = bench(&[0]);
    reading.post(wr(1, Op::Read, 50));
    assert_eq!(offer(&mut reading, &wr(2, Op::Send, 100)), Offered::Refused, "it is in the queue");
    for bench in [&mut full, &mut refused] {
        assert_eq!(sent(&bench.calls()), []);
    }
}

/// The peer may have received it.
#[test]
fn a_short_message_is_not_sent_again_on_a_link_that_has_failed() {
    let mut bench = bench(&[]);
    bench.host.link.send_errors.push_back(LinkError::Broken(libc::ENOMEM));
    assert_eq!(offer(&mut bench, &inline(1, Op::Send, &[7; 8])), Offered::Refused);
    bench.step(reason::POSTED);
    let calls = bench.calls();
    assert_eq!(sent(&calls), []);
    let failed = |call: &&Call| matches!(call, Call::SendDone(c) if c.status == status::WR_FLUSH_ERR);
    assert_eq!(calls.iter().filter(failed).count(), 1);
}

#[test]
fn behind_an_outstanding_request_nothing_is_carried_out_alone() {
    let mut bench = bench(&[0, 8]);
    bench.post(wr(1, Op::Read, 50));
    assert_eq!(offer(&mut bench, &inline(2, Op::Write, &[7; 8])), Offered::Refused);
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
    bench.host.transfers = VecDeque::from([30, 40, 8, 0]);
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
    bench.host.transfers = VecDeque::from([25, 0]);
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
    bench.host.transfers = VecDeque::from([8 * MAX_TOGETHER, 8]);
    bench.host.queues.sends.extend((0..n as u64).map(|i| write_at(i, 16 * i, 8)));
    bench.step(reason::POSTED);
    let lengths = batches(&bench.calls()).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths, [MAX_TOGETHER, 1]);
    bench.host.transfers = VecDeque::from([40_000, 40_000]);
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
    bench.host.transfers = VecDeque::from([8 * MAX_TOGETHER, 8]);
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

/// An atomic write as librpma posts it.
fn store(wr_id: u64, number: u64) -> SendWr {
    SendWr { fence: true, ..inline(wr_id, Op::Write, &number.to_ne_bytes()) }
}

/// Its result goes to the beginning of the region.
fn atomic(wr_id: u64, op: Op) -> SendWr {
    let local = Local::Atomic { addr: BASE, lkey: STAG, compare_add: 5, swap: 6 };
    SendWr { local, ..wr(wr_id, op, 8) }
}

fn words(calls: &[Call]) -> Vec<(Access, WordAccess)> {
    let accessed =
        |call: &Call| if let Call::Accessed(remote, word) = call { Some((*remote, *word)) } else { None };
    calls.iter().filter_map(accessed).collect()
}

#[test]
fn atomic_operations_and_atomic_writes_are_accesses_to_words() {
    let mut bench = bench(&[8, 8]);
    bench.host.words = VecDeque::from([1, 70, 80]);
    bench.host.queues.sends.extend([store(1, 9), store(2, 10), atomic(3, Op::FetchAdd)]);
    bench.step(reason::POSTED);
    let calls = bench.calls();
    let number = |id| if id == 1 { 9 } else { 10 };
    let stored = [1, 2].map(|id| (remote(REMOTE_WRITE, 0, 8), WordAccess::Store(number(id))));
    let added = (remote(REMOTE_ATOMIC, 0, 8), WordAccess::Add(5));
    assert_eq!(words(&calls), [&stored[..], &[added]].concat());
    assert_eq!(bench.host.bytes(BASE, 8), 80u64.to_ne_bytes());
    assert_eq!(sends_done(&calls), [1, 2, 3].map(|id| (id, status::SUCCESS)));
    bench.host.words = VecDeque::from([90]);
    bench.post(atomic(4, Op::CompareSwap));
    let calls = bench.calls();
    assert_eq!(
        words(&calls),
        [(remote(REMOTE_ATOMIC, 0, 8), WordAccess::CompareSwap { compare: 5, swap: 6 })]
    );
    let placed = calls.iter().position(|call| matches!(call, Call::Placed(_)));
    let done = calls.iter().position(|call| matches!(call, Call::SendDone(_)));
    assert!(placed.is_some() && placed < done, "the result is there before the completion: {calls:?}");
    assert_eq!(bench.host.bytes(BASE, 8), 90u64.to_ne_bytes());
    assert_eq!((transfers(&calls), sent(&calls)), (vec![], vec![]));
    assert!(bench.conn.is_at_rest());
}

#[test]
fn an_atomic_write_takes_its_bytes_from_registered_memory_too() {
    let mut bench = bench(&[]);
    bench.host.words = VecDeque::from([0, 0]);
    let own = |at: u64, len| Sge::new(BASE + at, len, STAG);
    let parts = Entries::from_iter([own(3, 5), own(100, 3)]);
    let write = SendWr { fence: true, ..wr(1, Op::Write, 8) };
    bench.post(write.clone());
    bench.post(SendWr { local: Local::memory(&parts).unwrap(), ..write });
    let number = |bytes: &[u8]| WordAccess::Store(u64::from_ne_bytes(bytes.try_into().unwrap()));
    let found: Vec<_> = words(&bench.calls()).into_iter().map(|(_, word)| word).collect();
    assert_eq!(found, [number(&[0, 1, 2, 3, 4, 5, 6, 7]), number(&[3, 4, 5, 6, 7, 100, 101, 102])]);
}

/// A copy of writes beside it does not include it.
#[test]
fn an_atomic_write_is_alone() {
    let mut bench = bench(&[20, 30]);
    bench.host.words = VecDeque::from([0]);
    bench.host.queues.sends.extend([write_at(1, 0, 20), store(2, 1), write_at(3, 0, 30)]);
    bench.step(reason::POSTED);
    let calls = bench.calls();
    let ranges = [remote(REMOTE_WRITE, 0, 20), remote(REMOTE_WRITE, 0, 30)].map(|range| vec![range]);
    assert_eq!(batches(&calls), ranges);
    let order = |call: &Call| match call {
        Call::Transferred(_, n) => Some(*n),
        Call::Accessed(..) => Some(8),
        _ => None,
    };
    assert_eq!(calls.iter().filter_map(order).collect::<Vec<_>>(), [20, 8, 30]);
}

#[test]
fn a_word_that_the_host_does_not_access_goes_over_the_link() {
    let misaligned = |wr: SendWr| SendWr { remote_addr: wr.remote_addr + 4, ..wr };
    for (wr, is_offered) in [
        (store(1, 1), true),
        (atomic(1, Op::FetchAdd), true),
        (misaligned(store(1, 1)), false),
        (misaligned(atomic(1, Op::CompareSwap)), false),
        (SendWr { local: Local::Memory { addr: BASE, lkey: 7 }, ..store(1, 1) }, false),
    ] {
        let mut bench = bench(&[8]);
        bench.host.words = if is_offered { VecDeque::new() } else { VecDeque::from([1]) };
        let wrong = wr.local == Local::Memory { addr: BASE, lkey: 7 };
        bench.post(wr);
        let calls = bench.calls();
        assert_eq!((words(&calls), transfers(&calls)), (vec![], vec![]));
        match wrong {
            true => assert_eq!(sends_done(&calls), [(1, status::LOC_PROT_ERR)]),
            false => assert_eq!(segments(&sent(&calls)).len(), 1),
        }
    }
}

/// As over the link: the operation was carried out, and the request fails.
#[test]
fn a_result_that_cannot_be_stored_fails_the_request_which_is_not_repeated() {
    for lkey in [BARE, FOREIGN, 7] {
        let mut bench = bench(&[]);
        bench.host.words = VecDeque::from([1, 2]);
        let local = Local::Atomic { addr: BASE, lkey, compare_add: 5, swap: 6 };
        bench.host.queues.sends.extend([
            store(1, 1),
            SendWr { local, ..atomic(2, Op::FetchAdd) },
            wr(3, Op::Send, 8),
        ]);
        bench.step(reason::POSTED);
        let calls = bench.calls();
        assert_eq!(words(&calls).len(), 2);
        assert_eq!(sent(&calls), []);
        let done = [(1, status::SUCCESS), (2, status::LOC_PROT_ERR), (3, status::WR_FLUSH_ERR)];
        assert_eq!(sends_done(&calls), done);
        assert!(bench.host.closed);
    }
}

#[test]
fn an_atomic_operation_waits_for_a_read_over_the_link_if_it_is_then_likely_to_be_direct() {
    let mut bench = bench(&[0]);
    bench.host.may_transfer = true;
    bench.post(wr(1, Op::Read, 8));
    bench.host.words = VecDeque::from([80]);
    bench.post(atomic(2, Op::FetchAdd));
    let calls = bench.calls();
    assert_eq!((words(&calls), segments(&sent(&calls)).len()), (vec![], 1));
    bench.receive(&response(1, true, 0, &[1; 8]));
    let calls = bench.calls();
    assert_eq!(words(&calls).len(), 1);
    assert_eq!(sends_done(&calls), [(1, status::SUCCESS), (2, status::SUCCESS)]);
}

#[test]
fn an_atomic_write_is_carried_out_without_a_step_and_an_atomic_operation_in_one() {
    let mut bench = bench(&[]);
    bench.host.words = VecDeque::from([70, 80]);
    assert_eq!(offer(&mut bench, &store(1, 1)), Offered::Complete);
    let offered = offer(&mut bench, &atomic(2, Op::FetchAdd));
    assert_eq!(offered, Offered::Refused, "its result may be refused");
    bench.step(reason::POSTED);
    let calls = bench.calls();
    assert_eq!(words(&calls).len(), 2);
    assert_eq!(sends_done(&calls), [(1, status::SUCCESS), (2, status::SUCCESS)]);
    assert!(bench.conn.is_at_rest());
}

#[test]
fn atomic_operations_are_not_carried_out_where_the_peer_takes_none() {
    let framing = Framing { ord: 0, ..FRAMING };
    let mut bench = Bench::with(Terms { transfers: true, framing, ..terms() }, Sizes::default());
    bench.host.words = VecDeque::from([1, 1]);
    bench.post(store(1, 1));
    bench.post(atomic(2, Op::FetchAdd));
    assert_eq!(bench.sends_done(), [(1, status::SUCCESS), (2, status::LOC_QP_OP_ERR)]);
    assert_eq!(bench.host.words.len(), 1);
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
    bench.host.transfers = VecDeque::from([10]);
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
    bench.host.may_transfer = true;
    bench.post(wr(1, Op::Read, 50));
    bench.host.transfers = VecDeque::from([60]);
    bench.post(wr(2, Op::Read, 60));
    bench.post(wr(3, Op::Send, 10));
    let calls = bench.calls();
    assert_eq!(segments(&sent(&calls)).len(), 1, "the first read");
    bench.receive(&response(1, true, 0, &[1; 50]));
    let calls = bench.calls();
    assert_eq!(transfers(&calls).last(), Some(&remote(REMOTE_READ, 0, 60)));
    assert_eq!(segments(&sent(&calls)).len(), 1, "the message");
    // What cannot be goes out at once.
    bench.host.may_transfer = false;
    bench.host.transfers = VecDeque::from([0]);
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
    bench.host.may_transfer = true;
    bench.step(reason::AGAIN);
    let segments = segments(&sent(&bench.calls()));
    let payload: usize = segments[1..].iter().map(|(_, payload)| payload.len()).sum();
    assert_eq!(payload, len as usize);
}

#[test]
fn what_could_be_transferred_waits_for_nothing_where_no_read_is_open() {
    let mut bench = bench(&[0, 0]);
    bench.host.may_transfer = true;
    bench.host.queues.sends.push_back(wr(1, Op::Write, 8));
    bench.post(wr(2, Op::Read, 8));
    assert_eq!(segments(&sent(&bench.calls())).len(), 2);
}

/// Its bytes are shared with the caller, who does not expect that they change.
#[test]
fn a_read_into_inline_data_is_not_transferred() {
    let mut bench = bench(&[8, 8]);
    assert_eq!(offer(&mut bench, &inline(1, Op::Read, &[7; 8])), Offered::Refused);
    bench.step(reason::POSTED);
    let to_bytes = |call: &Call| matches!(call, Call::Transferred(remote, _) if !remote.is_empty());
    assert!(!bench.calls().iter().any(to_bytes));
}

#[test]
fn a_read_is_not_transferred_where_the_peer_takes_none() {
    let framing = Framing { ord: 0, ..FRAMING };
    let mut bench = Bench::with(Terms { transfers: true, framing, ..terms() }, Sizes::default());
    bench.host.transfers = VecDeque::from([8]);
    bench.post(wr(1, Op::Read, 8));
    assert_eq!(bench.host.transfers.len(), 1);
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
fn messages_and_empty_requests_are_for_the_link() {
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
    early.host.transfers = VecDeque::from([10]);
    early.post(wr(1, Op::Write, 10));
    assert_eq!(transfers(&early.calls()), []);
    let framing = Framing { crc: true, ..FRAMING };
    let mut opened = Bench::opened(Terms { transfers: true, framing, ..terms() }, Sizes::default());
    opened.receive(&fpdu_with(true, &tagged(Opcode::Write, true, 1, 0), &[]));
    opened.host.transfers = VecDeque::from([10]);
    opened.post(wr(1, Op::Write, 10));
    assert_eq!(transfers(&opened.calls()), []);
}

#[test]
fn the_host_is_notified_when_all_was_processed_and_not_before() {
    let mut bench = bench(&[]);
    let notified = |bench: &mut Bench| std::mem::take(&mut bench.host.link.acted) > 0;
    notified(&mut bench);
    let message = send(1, &[1; 40]);
    bench.receive(&message[..30]);
    assert!(!notified(&mut bench), "half of it is there");
    bench.receive(&message[30..]);
    assert!(!notified(&mut bench), "it waits for a receive");
    bench.host.queues.recv_cq.room = 0;
    bench.post_receive(1, 64);
    assert!(!notified(&mut bench), "it waits for room in the completion queue");
    bench.host.queues.recv_cq.room = 1;
    bench.step(reason::ROOM);
    assert!(notified(&mut bench));
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
