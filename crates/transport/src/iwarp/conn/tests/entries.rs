// SPDX-License-Identifier: BSD-3-Clause
//! Requests and receives with several entries, and inline data of any length.

use crate::iwarp::wire::rdmap::{Opcode, ReadRequest, TermCode};

use super::host::*;
use crate::access::{Access, LOCAL_WRITE};
use crate::iwarp::conn::{Framing, Sizes, Terms};
use crate::iwarp::link::LinkError;
use crate::limits::{MAX_INLINE, MAX_SGE};
use crate::step::reason;
use crate::wr::{Entries, Local, Op, RecvWr, SHORT_INLINE, SendWr, Sge, status};

/// A request that gathers these ranges of the region: where each begins, and its length.
fn gathered(wr_id: u64, op: Op, ranges: &[(u64, u32)]) -> SendWr {
    let entries = entries(ranges);
    let len = entries.iter().map(|entry| entry.len).sum();
    SendWr { local: Local::memory(&entries).unwrap(), ..wr(wr_id, op, len) }
}

fn entries(ranges: &[(u64, u32)]) -> Entries {
    ranges.iter().map(|&(at, len)| Sge::new(BASE + at, len, STAG)).collect()
}

fn scattered(wr_id: u64, ranges: &[(u64, u32)]) -> RecvWr {
    let entries = entries(ranges);
    let len = entries.iter().map(|entry| entry.len).sum();
    RecvWr::new(wr_id, &entries, len).unwrap()
}

/// A connection that has received an FPDU of its peer.
fn with(framing: Framing) -> Bench {
    let mut bench = Bench::opened(Terms { framing, ..terms() }, Sizes::default());
    bench.receive(&fpdu_with(framing.crc, &tagged(Opcode::Write, true, 1, 0), &[]));
    assert!(!bench.calls().contains(&Call::Ended));
    bench
}

/// The bytes of these ranges.
fn contents(bench: &Bench, ranges: &[(u64, u32)]) -> Vec<u8> {
    ranges.iter().flat_map(|&(at, len)| bench.host.bytes(BASE + at, len as usize).to_vec()).collect()
}

/// What a request sends is what one with all of it in one place does.
fn assert_sent_as_one(framing: Framing, request: SendWr, body: &[u8]) {
    let op = request.op;
    let mut bench = with(framing);
    let mut other = with(framing);
    other.host.memory.bytes[..body.len()].copy_from_slice(body);
    other.post(wr(request.wr_id, op, body.len() as u32));
    let expected = other.calls();
    bench.post(request);
    let calls = bench.calls();
    assert!(sent(&calls).len() > body.len());
    assert_eq!(sent(&calls), sent(&expected), "{op:?}");
    assert_eq!(calls.last(), expected.last(), "completed alike");
}

#[test]
fn what_is_gathered_is_sent_as_if_it_were_in_one_place() {
    // Within a segment, over its end (mulpdu is 256), more than a segment long, of one byte, and all sixteen.
    let all: Vec<(u64, u32)> = (0..MAX_SGE as u64).map(|i| (3000 - 150 * i, 100 + i as u32)).collect();
    let cases: [&[(u64, u32)]; 5] = [
        &[(10, 5), (100, 7)],
        &[(0, 200), (1000, 100), (500, 3)],
        &[(7, 1), (90, 700), (6, 1)],
        &[(1, 1); 2],
        &all,
    ];
    for crc in [false, true] {
        for ranges in cases {
            for op in [Op::Write, Op::WriteWithImm, Op::Send, Op::SendWithImm] {
                let framing = Framing { crc, ..FRAMING };
                let body = contents(&Bench::ready(), ranges);
                assert_sent_as_one(framing, gathered(1, op, ranges), &body);
            }
        }
    }
}

#[test]
fn inline_data_of_any_length_is_sent_as_if_it_were_registered() {
    for crc in [false, true] {
        for len in [0, 1, SHORT_INLINE, SHORT_INLINE + 1, 100, MAX_INLINE] {
            let body: Vec<u8> = (0..len).map(|i| 200 - i as u8 / 2).collect();
            for op in [Op::Write, Op::Send, Op::SendWithImm] {
                // The longest does not fit into one segment.
                let framing = Framing { crc, mulpdu: 200, ..FRAMING };
                let mut other = with(framing);
                other.host.memory.bytes[..len].copy_from_slice(&body);
                other.post(wr(1, op, len as u32));
                let mut bench = with(framing);
                bench.post(inline(1, op, &body));
                let (calls, expected) = (bench.calls(), other.calls());
                assert!(sent(&calls).len() > len);
                assert_eq!(sent(&calls), sent(&expected), "{op:?} of {len}");
                assert_eq!(calls.last(), expected.last(), "completed alike");
            }
        }
    }
}

/// However few bytes the link takes at a time.
#[test]
fn what_is_gathered_may_go_out_byte_by_byte() {
    let ranges = [(10, 5), (100, 7), (3, 260)];
    let mut whole = Bench::ready();
    whole.post(gathered(1, Op::Send, &ranges));
    let expected = sent(&whole.calls());
    let mut bench = Bench::ready();
    bench.host.link.out.set_room(0);
    bench.post(gathered(1, Op::Send, &ranges));
    for _ in 0..expected.len() {
        bench.host.link.out.set_room(1);
        bench.step(reason::WRITABLE);
    }
    let calls = bench.calls();
    assert_eq!(sent(&calls), expected);
    assert!(matches!(calls[calls.len() - 2..], [Call::SendDone(_), Call::Sent(..)] | [_, Call::SendDone(_)]));
}

/// More parts than one call of the link takes.
#[test]
fn many_gathered_requests_are_all_sent() {
    let ranges: Vec<(u64, u32)> = (0..MAX_SGE as u64).map(|i| (17 * i, 2)).collect();
    let mut bench = Bench::ready();
    let body = contents(&bench, &ranges);
    (1..=8).for_each(|id| bench.host.queues.sends.push_back(gathered(id, Op::Send, &ranges)));
    bench.step(reason::POSTED);
    bench.post(gathered(9, Op::Send, &ranges));
    let calls = bench.calls();
    let expected: Vec<u8> = (1..=9).flat_map(|msn| send(msn, &body)).collect();
    assert_eq!(sent(&calls), expected);
    let done = calls.iter().filter(|call| matches!(call, Call::SendDone(c) if c.status == status::SUCCESS));
    assert_eq!(done.count(), 9);
}

#[test]
fn one_wrong_entry_fails_a_request() {
    for crc in [false, true] {
        for which in 0..3 {
            let mut wrong = entries(&[(0, 8), (100, 8), (200, 8)]);
            wrong[which] = Sge::new(BASE, 8, 0xbad);
            let framing = Framing { crc, ..FRAMING };
            let mut bench = with(framing);
            bench.post(SendWr { local: Local::memory(&wrong).unwrap(), ..wr(1, Op::Send, 24) });
            assert_eq!(bench.sends_done(), [(1, status::LOC_PROT_ERR)], "entry {which}");
        }
    }
}

#[test]
fn the_end_of_a_connection_completes_an_fpdu_that_was_begun() {
    let ranges = [(10, 5), (100, 7), (30, 40)];
    let mut whole = Bench::ready();
    whole.post(gathered(1, Op::Send, &ranges));
    let expected = sent(&whole.calls());
    for room in 1..expected.len() {
        let mut bench = Bench::ready();
        bench.host.link.out.set_room(room);
        bench.post(gathered(1, Op::Send, &ranges));
        let first = sent(&bench.calls());
        bench.step(reason::DISCONNECT);
        let calls = bench.calls();
        let closed =
            calls.iter().find_map(|call| if let Call::Closed(last) = call { last.clone() } else { None });
        assert_eq!([first, closed.unwrap()].concat(), expected, "{room} bytes were sent");
    }
}

#[test]
fn a_message_fills_the_entries_of_its_receive_in_order() {
    let body: Vec<u8> = (0..200).map(|i| 250 - i as u8).collect();
    let ranges = [(500, 1), (90, 60), (4000, 139), (0, 50)];
    // All sizes of a buffer: split anywhere, straight to the memory, and through the buffer.
    for (buffer, direct, behind_direct) in [(4096, 8192, 4096), (128, 65, 1), (128, 65, 20), (300, 100, 64)] {
        for cut in 0..=body.len() {
            let sizes = Sizes { buffer, direct, behind_direct, ..Sizes::default() };
            let mut bench = Bench::with(terms(), sizes);
            bench.host.queues.receives.push_back(scattered(1, &ranges));
            bench.step(reason::RECEIVE);
            let first = fpdu(&untagged(Opcode::Send, false, 1, 0), &body[..cut]);
            let second = fpdu(&untagged(Opcode::Send, true, 1, cut as u32), &body[cut..]);
            bench.receive(&[first, second].concat());
            assert_eq!(bench.receives_done(), [(1, status::SUCCESS)]);
            assert_eq!(contents(&bench, &ranges[..3]), body, "cut at {cut}");
            assert_ne!(bench.host.bytes(BASE, 1), [250 - 200 + 1], "the last entry is not reached");
        }
    }
}

#[test]
fn long_entries_are_received_in_place() {
    let body: Vec<u8> = (0..200u8).collect();
    let sizes = Sizes { direct: 65, behind_direct: 20, ..Sizes::default() };
    let mut bench = Bench::with(terms(), sizes);
    bench.host.queues.receives.push_back(scattered(1, &[(500, 80), (90, 20), (4000, 100)]));
    bench.step(reason::RECEIVE);
    let whole = send(1, &body);
    bench.receive(&whole[..20]);
    bench.receive(&whole[20..]);
    let calls = bench.calls();
    let at = |at: u64, len| Access { stag: STAG, addr: BASE + at, len, rights: LOCAL_WRITE };
    assert!(calls.contains(&Call::PlacedDirectly(at(500, 80))), "{calls:?}");
    assert!(calls.contains(&Call::Placed(at(90, 20))), "{calls:?}");
    assert!(calls.contains(&Call::PlacedDirectly(at(4000, 100))), "{calls:?}");
    assert_eq!(contents(&bench, &[(500, 80), (90, 20), (4000, 100)]), body);
}

#[test]
fn a_receive_with_a_wrong_entry_fails_if_the_message_reaches_it() {
    for (len, result) in [(16, status::SUCCESS), (17, status::LOC_PROT_ERR)] {
        let mut list = entries(&[(0, 8), (100, 8), (200, 8)]);
        list[2] = Sge::new(BASE, 8, BARE);
        let mut bench = Bench::ready();
        bench.host.queues.receives.push_back(RecvWr::new(1, &list, 24).unwrap());
        bench.step(reason::RECEIVE);
        bench.receive(&send(1, &vec![1; len]));
        assert_eq!(bench.receives_done(), [(1, result)], "{len} bytes");
        assert_eq!(
            bench.host.bytes(BASE, 1) == [1],
            result == status::SUCCESS,
            "nothing is placed of what fails"
        );
    }
}

#[test]
fn a_message_that_is_longer_than_all_entries_fails_its_receive() {
    let mut bench = Bench::ready();
    bench.host.queues.receives.push_back(scattered(1, &[(0, 8), (100, 8)]));
    bench.step(reason::RECEIVE);
    bench.receive(&send(1, &[1; 17]));
    let calls = bench.calls();
    let failed = |call: &Call| matches!(call, Call::RecvDone(c) if c.status == status::LOC_LEN_ERR);
    assert!(calls.iter().any(failed), "{calls:?}");
    let terminate = about(TermCode::DDP_UNTAGGED_TOO_LONG, &untagged(Opcode::Send, true, 1, 0), 17);
    assert!(calls.contains(&Call::Closed(Some(terminate_fpdu(&terminate)))));
}

/// Memory that goes away under a batch: what came before it is placed.
#[test]
fn an_entry_whose_memory_is_gone_ends_the_connection() {
    let mut bench = Bench::ready();
    bench.host.memory.mapped_to = BASE + 4096;
    bench.host.queues.receives.push_back(scattered(1, &[(0, 8), (5000, 8), (100, 8)]));
    bench.step(reason::RECEIVE);
    bench.receive(&send(1, &[1; 24]));
    assert_eq!(bench.host.bytes(BASE, 8), [1; 8]);
    assert_ne!(bench.host.bytes(BASE + 100, 8), [1; 8]);
    assert_eq!(bench.receives_done(), [(1, status::WR_FLUSH_ERR)]);
}

/// The kernel does not say whose memory a fault was about: alone the request is to blame.
#[test]
fn a_fault_in_one_of_several_entries_fails_the_request() {
    let mut bench = Bench::ready();
    bench.host.memory.mapped_to = BASE + 4096;
    bench.host.queues.sends.push_back(wr(1, Op::Send, 8));
    bench.post(gathered(2, Op::Send, &[(0, 8), (5000, 8)]));
    assert_eq!(bench.sends_done(), [(1, status::SUCCESS), (2, status::LOC_PROT_ERR)]);
    let error = LinkError::Memory(0, crate::access::Unreachable::Fault);
    let mut bench = Bench::ready();
    bench.host.link.send_errors.push_back(error);
    bench.host.queues.sends.push_back(gathered(1, Op::Send, &[(0, 8), (100, 8)]));
    bench.post(gathered(2, Op::Send, &[(0, 8), (100, 8)]));
    assert_eq!(bench.sends_done(), [(1, status::SUCCESS), (2, status::SUCCESS)], "tried again one by one");
}

#[test]
fn the_answer_to_a_read_fills_its_entries_in_order() {
    let body: Vec<u8> = (0..200).map(|i| 250 - i as u8).collect();
    let ranges = [(500, 1), (90, 60), (4000, 139)];
    for (buffer, direct, behind_direct) in [(4096, 8192, 4096), (128, 65, 1), (128, 65, 20), (300, 100, 64)] {
        for cut in 0..body.len() {
            let sizes = Sizes { buffer, direct, behind_direct, ..Sizes::default() };
            let mut bench = Bench::with(terms(), sizes);
            bench.post(gathered(1, Op::Read, &ranges));
            let request =
                ReadRequest { sink_stag: sink(1), sink_to: 0, size: 200, src_stag: 0x900, src_to: 0x5000 };
            assert_eq!(sent(&bench.calls()), read(1, &request), "one sink on the wire");
            bench.receive(
                &[response(1, false, 0, &body[..cut]), response(1, true, cut as u64, &body[cut..])].concat(),
            );
            assert_eq!(bench.sends_done(), [(1, status::SUCCESS)]);
            assert_eq!(contents(&bench, &ranges), body, "cut at {cut}");
        }
    }
}

/// The next read has entries of its own.
#[test]
fn reads_with_several_entries_follow_one_another() {
    let mut bench = Bench::ready();
    bench.host.queues.sends.push_back(gathered(1, Op::Read, &[(100, 3), (0, 5)]));
    bench.post(gathered(2, Op::Read, &[(300, 7), (200, 1)]));
    bench.calls();
    bench.receive(&[response(1, true, 0, b"answer 1"), response(2, true, 0, b"answer 2")].concat());
    assert_eq!(bench.sends_done(), [(1, status::SUCCESS), (2, status::SUCCESS)]);
    assert_eq!(contents(&bench, &[(100, 3), (0, 5), (300, 7), (200, 1)]), b"answer 1answer 2");
}

#[test]
fn one_wrong_entry_fails_a_read_and_nothing_of_the_segment_is_placed() {
    for which in 0..3 {
        let mut wrong = entries(&[(0, 8), (100, 8), (200, 8)]);
        wrong[which] = Sge::new(BASE, 8, BARE);
        let mut bench = Bench::ready();
        bench.post(SendWr { local: Local::memory(&wrong).unwrap(), ..wr(1, Op::Read, 24) });
        let before = bench.host.memory.bytes.clone();
        bench.receive(&response(1, true, 0, &[1; 24]));
        assert_eq!(bench.sends_done(), [(1, status::LOC_PROT_ERR)], "entry {which}");
        assert!(bench.host.memory.bytes == before);
    }
}
