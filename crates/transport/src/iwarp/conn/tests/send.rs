// SPDX-License-Identifier: BSD-3-Clause
//! What goes to the link: the FPDUs of each work request and each answer, and in which order.

use crate::iwarp::wire::codes::QN_SEND;
use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{Opcode, ReadRequest, TermCode, encode_immediate};
use crate::iwarp::wire::terminate::Terminate;

use super::host::*;
use crate::access::{Access, FIRST_SINK, REMOTE_READ, Unreachable};
use crate::host::Durable;
use crate::iwarp::conn::{Framing, Sizes, Terms};
use crate::iwarp::link::LinkError;
use crate::step::{Budget, Quota, reason};
use crate::wr::{Local, Op, SendWr, status};

/// The bytes at the beginning of the region.
fn memory(bench: &Bench, len: usize) -> Vec<u8> {
    bench.host.bytes(BASE, len).to_vec()
}

/// Posts, and gives what was sent; the request must be complete, and be completed behind that.
#[track_caller]
fn sent_for(bench: &mut Bench, wr: SendWr) -> Vec<u8> {
    bench.post(wr);
    let calls = bench.calls();
    assert!(matches!(&calls[..], [Call::Sent(_, false), Call::SendDone(_)]), "{calls:?}");
    sent(&calls)
}

fn immediate(msn: u32, of_send: bool) -> Vec<u8> {
    let mut body = encode_immediate(*b"imme");
    if of_send {
        body[4..].copy_from_slice(b"Send");
    }
    fpdu(&untagged(Opcode::Immediate, true, msn, 0), &body)
}

#[test]
fn a_write_is_cut_into_tagged_segments() {
    let mut bench = Bench::ready();
    let body = memory(&bench, 600);
    let segment =
        |last, at: usize, end| fpdu(&tagged(Opcode::Write, last, 0x900, 0x5000 + at as u64), &body[at..end]);
    assert_eq!(sent_for(&mut bench, wr(1, Op::Write, 8)), segment(true, 0, 8));
    // A ULPDU of 256 bytes has 242 of payload.
    let expected = [segment(false, 0, 242), segment(false, 242, 484), segment(true, 484, 600)].concat();
    assert_eq!(sent_for(&mut bench, wr(2, Op::Write, 600)), expected);
    let exact = [segment(false, 0, 242), segment(true, 242, 484)].concat();
    assert_eq!(sent_for(&mut bench, wr(3, Op::Write, 484)), exact, "no empty segment at the end");
    let empty = fpdu(&tagged(Opcode::Write, true, 1, 0x5000), &[]);
    assert_eq!(sent_for(&mut bench, wr(4, Op::Write, 0)), empty);
    let eight = write(0x900, 0x5000, b"8 bytes.");
    assert_eq!(sent_for(&mut bench, inline(5, Op::Write, b"8 bytes.")), eight);
}

#[test]
fn a_send_is_cut_into_untagged_segments_and_messages_are_counted() {
    let mut bench = Bench::ready();
    let body = memory(&bench, 600);
    let segment =
        |opcode, msn, last, at: usize, end| fpdu(&untagged(opcode, last, msn, at as u32), &body[at..end]);
    assert_eq!(sent_for(&mut bench, wr(1, Op::Send, 8)), segment(Opcode::Send, 1, true, 0, 8));
    // A ULPDU of 256 bytes has 238 of payload.
    let expected = [
        segment(Opcode::Send, 2, false, 0, 238),
        segment(Opcode::Send, 2, false, 238, 476),
        segment(Opcode::Send, 2, true, 476, 600),
    ];
    assert_eq!(sent_for(&mut bench, wr(2, Op::Send, 600)), expected.concat());
    let solicited = SendWr { solicited: true, ..wr(3, Op::Send, 8) };
    assert_eq!(sent_for(&mut bench, solicited), segment(Opcode::SendSe, 3, true, 0, 8));
    assert_eq!(sent_for(&mut bench, wr(4, Op::Send, 0)), segment(Opcode::Send, 4, true, 0, 0));
}

#[test]
fn every_segment_of_a_send_says_what_it_invalidates() {
    for (solicited, opcode) in [(false, Opcode::SendInv), (true, Opcode::SendSeInv)] {
        let mut bench = Bench::ready();
        let body = memory(&bench, 300);
        let header = |last, mo| Header::Untagged { opcode, last, inv_stag: 0x900, qn: QN_SEND, msn: 1, mo };
        let expected = [fpdu(&header(false, 0), &body[..238]), fpdu(&header(true, 238), &body[238..])];
        let request = SendWr { solicited, ..wr(1, Op::SendWithInv, 300) };
        assert_eq!(sent_for(&mut bench, request), expected.concat());
        assert_eq!(sent_for(&mut bench, wr(2, Op::Send, 8)), send(2, &body[..8]), "and the next one nothing");
    }
}

#[test]
fn immediate_data_is_a_message_of_its_own() {
    let mut bench = Bench::ready();
    let body = memory(&bench, 300);
    let expected = [immediate(1, true), send(2, &body[..8])].concat();
    assert_eq!(sent_for(&mut bench, wr(1, Op::SendWithImm, 8)), expected);
    let expected = [
        fpdu(&tagged(Opcode::Write, false, 0x900, 0x5000), &body[..242]),
        fpdu(&tagged(Opcode::Write, true, 0x900, 0x5000 + 242), &body[242..]),
        immediate(3, false),
    ];
    assert_eq!(sent_for(&mut bench, wr(2, Op::WriteWithImm, 300)), expected.concat());
    let solicited = SendWr { solicited: true, ..wr(3, Op::WriteWithImm, 0) };
    let expected = [
        fpdu(&tagged(Opcode::Write, true, 1, 0x5000), &[]),
        fpdu(&untagged(Opcode::ImmediateSe, true, 4, 0), &encode_immediate(*b"imme")),
    ];
    assert_eq!(sent_for(&mut bench, solicited), expected.concat());
}

fn request(msn: u32, len: u32) -> Vec<u8> {
    let (sink_stag, src_stag) = if len == 0 { (1, 1) } else { (sink(msn), 0x900) };
    read(msn, &ReadRequest { sink_stag, sink_to: 0, size: len, src_stag, src_to: 0x5000 })
}

#[test]
fn a_read_is_a_request_and_complete_with_its_response() {
    let mut bench = Bench::ready();
    bench.post(wr(1, Op::Read, 8));
    bench.post(wr(2, Op::Read, 0));
    assert_eq!(bench.calls(), [Call::Sent([request(1, 8), request(2, 0)].concat(), false)]);
    bench.receive(&response(1, true, 0, &[7; 8]));
    assert_eq!(bench.sends_done(), [(1, 0)]);
    assert_eq!(bench.host.bytes(BASE, 9), [&[7; 8][..], &[8]].concat());
    bench.receive(&fpdu(&tagged(Opcode::ReadResponse, true, 1, 0), &[]));
    assert_eq!(bench.sends_done(), [(2, 0)]);
}

#[test]
fn no_more_reads_are_under_way_than_the_peer_takes() {
    let mut bench = Bench::ready();
    (1..=3).for_each(|id| bench.host.queues.sends.push_back(wr(id, Op::Read, 8)));
    bench.post(wr(4, Op::Write, 8));
    assert_eq!(sent(&bench.calls()), [request(1, 8), request(2, 8)].concat(), "nor what was posted behind");
    bench.receive(&response(1, true, 0, &[7; 8]));
    let body = memory(&bench, 8);
    let expected = [request(3, 8), write(0x900, 0x5000, &body)].concat();
    assert_eq!(sent(&bench.calls()), expected);
    bench.receive(&[response(2, true, 0, &[7; 8]), response(3, true, 0, &[7; 8])].concat());
    assert_eq!(bench.sends_done(), [(2, 0), (3, 0), (4, 0)]);
}

#[test]
fn a_read_is_refused_where_the_peer_takes_none() {
    let framing = Framing { ord: 0, ..FRAMING };
    let mut bench = Bench::with(Terms { framing, ..terms() }, Sizes::default());
    bench.host.queues.sends.push_back(wr(1, Op::Send, 4));
    bench.host.queues.sends.push_back(wr(2, Op::Read, 8));
    bench.post(wr(3, Op::Write, 8));
    let calls = bench.calls();
    assert_eq!(sent(&calls), send(1, &memory(&bench, 4)));
    assert_eq!(sends_done(&calls), [(1, 0), (2, status::LOC_QP_OP_ERR), (3, status::WR_FLUSH_ERR)]);
    assert_eq!(calls.last(), Some(&Call::Ended));
}

#[test]
fn a_fenced_request_waits_until_no_read_is_under_way() {
    let mut bench = Bench::ready();
    bench.host.queues.sends.extend([wr(1, Op::Read, 8), wr(2, Op::Write, 4)]);
    bench.post(SendWr { fence: true, ..wr(3, Op::Send, 4) });
    bench.post(wr(4, Op::Write, 4));
    let body = memory(&bench, 4);
    assert_eq!(sent(&bench.calls()), [request(1, 8), write(0x900, 0x5000, &body)].concat());
    bench.receive(&response(1, true, 0, &[7; 8]));
    let body = memory(&bench, 4);
    let expected = [send(1, &body), write(0x900, 0x5000, &body)].concat();
    assert_eq!(sent(&bench.calls()), expected);
}

#[test]
fn a_crc_covers_a_copy_of_what_is_sent() {
    let framing = Framing { crc: true, ..FRAMING };
    let mut bench = Bench::opened(Terms { framing, ..terms() }, Sizes::default());
    let body = memory(&bench, 300);
    bench.post(wr(1, Op::Write, 300));
    let expected = [
        fpdu_with(true, &tagged(Opcode::Write, false, 0x900, 0x5000), &body[..242]),
        fpdu_with(true, &tagged(Opcode::Write, true, 0x900, 0x5000 + 242), &body[242..]),
    ];
    assert_eq!(bench.calls()[0], Call::Sent(expected.concat(), false));
    // It is fetched when the FPDU is made: memory that is gone ends the connection there.
    bench.host.memory.mapped_to = BASE + 4;
    bench.post(wr(2, Op::Write, 8));
    assert_eq!(bench.sends_done(), [(2, status::LOC_PROT_ERR)]);
}

#[test]
fn fpdus_lie_in_tcp_segments_as_a_whole_where_the_peer_needs_that() {
    let framing = Framing { segment: Some(600), ..FRAMING };
    let mut bench = Bench::with(Terms { framing, ..terms() }, Sizes::default());
    bench.host.queues.sends.push_back(wr(1, Op::Write, 242 * 4));
    bench.step(reason::POSTED);
    let sent: Vec<_> = bench
        .host
        .calls
        .iter()
        .filter_map(|call| {
            if let Call::Sent(bytes, boundary) = call { Some((bytes.len(), *boundary)) } else { None }
        })
        .collect();
    // An FPDU of 256 bytes is 264 long.
    assert_eq!(sent, [(528, true), (528, true)]);
}

/// The lengths of what the link has taken, call by call, and whether each ends a segment.
fn calls_of_the_link(bench: &mut Bench) -> Vec<(usize, bool)> {
    let of = |call| if let Call::Sent(bytes, boundary) = call { Some((bytes.len(), boundary)) } else { None };
    bench.host.calls.drain(..).filter_map(of).collect()
}

#[test]
fn a_tcp_segment_is_filled_as_far_as_possible() {
    let bench = |segment| {
        let framing = Framing { segment: Some(segment), ..FRAMING };
        Bench::with(Terms { framing, ..terms() }, Sizes::default())
    };
    let mut exact = bench(2 * 264);
    exact.post(wr(1, Op::Write, 242 * 2));
    assert_eq!(calls_of_the_link(&mut exact), [(528, true)]);
    // What the link has of an FPDU already does not count.
    let mut begun = bench(600);
    begun.host.link.out.set_room(100);
    begun.post(wr(1, Op::Write, 242 * 3));
    begun.host.link.out.set_room(usize::MAX);
    begun.step(reason::WRITABLE);
    assert_eq!(calls_of_the_link(&mut begun), [(100, true), (164 + 264, true), (264, true)]);
}

/// What is left of one message and the beginning of the next are one segment; a message that needs no cutting
/// is not cut.
#[test]
fn a_message_begins_in_the_segment_where_the_one_before_it_ends() {
    let framing = Framing { segment: Some(264), ..FRAMING };
    let mut bench = Bench::of_depth(8, Terms { framing, ..terms() }, Sizes::default());
    // 242 and 10 bytes: 264 and 32 of the stream.
    (1..=3).for_each(|id| bench.host.queues.sends.push_back(wr(id, Op::Write, 252)));
    bench.step(reason::POSTED);
    // Of the second message, 212 bytes (232 of the stream) go with those 32; the 40 that are left take 60. Of
    // the third 184 (204), and 68 (88).
    assert_eq!(calls_of_the_link(&mut bench), [264, 264, 264, 88].map(|len| (len, true)));
    (4..=5).for_each(|id| bench.host.queues.sends.push_back(wr(id, Op::Write, 150)));
    bench.step(reason::POSTED);
    assert_eq!(calls_of_the_link(&mut bench), [(172, true), (172, true)]);
}

/// A call of the link is a system call.
#[test]
fn one_call_gives_the_link_64_fpdus_or_about_512_kib() {
    let mut bench = Bench::ready();
    bench.post(wr(1, Op::Write, 242 * 130));
    assert_eq!(calls_of_the_link(&mut bench), [64 * 264, 64 * 264, 2 * 264].map(|len| (len, false)));
    let framing = Framing { mulpdu: 65535, ..FRAMING };
    let mut bench = Bench::of_depth(16, Terms { framing, ..terms() }, Sizes::default());
    bench.receive(&empty_write());
    bench.calls();
    // An FPDU is 60,020 bytes long: with the ninth it is more than 512 KiB.
    (1..=10).for_each(|id| bench.host.queues.sends.push_back(wr(id, Op::Write, 60_000)));
    bench.step(reason::POSTED);
    assert_eq!(calls_of_the_link(&mut bench), [(9 * 60_020, false), (60_020, false)]);
}

/// What is behind them goes out as it is when its turn comes.
#[test]
fn no_more_than_64_fpdus_are_made_before_the_link_takes_them() {
    let framing = Framing { crc: true, ..FRAMING };
    let mut bench = Bench::opened(Terms { framing, ..terms() }, Sizes::default());
    bench.receive(&fpdu_with(true, &tagged(Opcode::Write, true, 1, 0), &[]));
    bench.calls();
    bench.host.memory.bytes.fill(1);
    bench.host.link.out.set_room(0);
    bench.post(wr(1, Op::Write, 242 * 65));
    bench.host.memory.bytes.fill(2);
    bench.host.link.out.set_room(usize::MAX);
    bench.step(reason::WRITABLE);
    let first: Vec<_> = segments(&sent(&bench.calls())).iter().map(|(_, payload)| payload[0]).collect();
    assert_eq!(first, [&[1; 64][..], &[2]].concat(), "a CRC covers a copy, which is made with the FPDU");
}

#[test]
fn what_the_link_has_not_taken_is_not_complete() {
    let mut bench = Bench::ready();
    let body = memory(&bench, 8);
    bench.host.link.out.set_room(20);
    bench.host.queues.sends.push_back(wr(1, Op::Write, 8));
    bench.post(wr(2, Op::Write, 8));
    let fpdu = write(0x900, 0x5000, &body);
    assert_eq!(bench.calls(), [Call::Sent(fpdu[..20].to_vec(), false)]);
    bench.host.link.out.set_room(usize::MAX);
    bench.step(reason::POSTED);
    assert_eq!(bench.calls(), [], "the link is called again once it has reported room");
    bench.host.link.out.set_room(fpdu.len() - 20 + 5);
    bench.step(reason::WRITABLE);
    let calls = bench.calls();
    assert_eq!(sent(&calls), [&fpdu[20..], &fpdu[..5]].concat());
    assert!(matches!(&calls[..], [Call::Sent(..), Call::SendDone(c)] if c.wr_id == 1));
    bench.host.link.out.set_room(usize::MAX);
    bench.step(reason::WRITABLE);
    let calls = bench.calls();
    assert_eq!(sent(&calls), fpdu[5..]);
    assert!(matches!(&calls[..], [Call::Sent(..), Call::SendDone(c)] if c.wr_id == 2));
}

#[test]
fn a_request_is_complete_with_its_last_fpdu() {
    let mut bench = Bench::ready();
    // The first FPDU of a write of 600 bytes is 264 long.
    bench.host.link.out.set_room(264 + 264);
    bench.post(wr(1, Op::Write, 600));
    assert_eq!(bench.sends_done(), []);
    bench.host.link.out.set_room(usize::MAX);
    bench.step(reason::WRITABLE);
    assert_eq!(bench.sends_done(), [(1, 0)]);
}

#[test]
fn a_used_up_budget_asks_for_another_step() {
    let mut bench = Bench::ready();
    bench.budget = Budget { send: Quota::of_bytes(1), receive: Quota::of_bytes(usize::MAX) };
    // One call gives the link up to 64 FPDUs.
    let len = 242 * 80;
    assert!(bench.post(wr(1, Op::Write, len)).again);
    assert!(!bench.step(reason::AGAIN).again);
    let payload: usize = segments(&sent(&bench.calls())).iter().map(|(_, payload)| payload.len()).sum();
    assert_eq!(payload, len as usize);
}

#[test]
fn a_full_completion_queue_holds_completions_back_in_order() {
    let mut bench = Bench::ready();
    bench.host.queues.send_cq.room = 1;
    (1..=2).for_each(|id| bench.host.queues.sends.push_back(wr(id, Op::Write, 8)));
    bench.post(SendWr { signaled: false, ..wr(3, Op::Write, 8) });
    assert_eq!(bench.sends_done(), [(1, 0)]);
    bench.host.queues.send_cq.room = 1;
    bench.step(reason::ROOM);
    let calls = bench.calls();
    assert!(matches!(&calls[..], [Call::SendDone(c), Call::Released] if c.wr_id == 2), "{calls:?}");
}

// ---- what is wrong with a request --------------------------------------------------------------------------------------------------

#[test]
fn what_precedes_a_request_with_wrong_memory_goes_out() {
    let wrong_key = Local::Memory { addr: BASE, lkey: 0xbad };
    let gone = Local::Memory { addr: BASE + 4096, lkey: STAG };
    for local in [wrong_key, gone] {
        let mut bench = Bench::ready();
        let body = memory(&bench, 8);
        bench.host.memory.mapped_to = BASE + 4096;
        bench.host.queues.sends.push_back(wr(1, Op::Send, 8));
        bench.host.queues.sends.push_back(SendWr { local: local.clone(), ..wr(2, Op::Send, 8) });
        bench.post(wr(3, Op::Send, 8));
        let calls = bench.calls();
        assert_eq!(sent(&calls), send(1, &body), "{local:?}");
        assert_eq!(
            sends_done(&calls),
            [(1, 0), (2, status::LOC_PROT_ERR), (3, status::WR_FLUSH_ERR)],
            "{local:?}"
        );
        assert!(calls.contains(&Call::Closed(Some(Vec::new()))), "{local:?}");
    }
}

#[test]
fn a_broken_link_ends_the_connection() {
    let mut bench = Bench::ready();
    bench.host.link.send_errors.push_back(broken(libc::EPIPE));
    bench.post(wr(1, Op::Send, 8));
    let calls = bench.calls();
    assert!(
        matches!(&calls[..], [Call::Closed(None), Call::SendDone(c), Call::Ended] if c.status == status::WR_FLUSH_ERR),
        "{calls:?}"
    );
}

#[test]
fn what_has_arrived_is_taken_before_a_broken_link_is_told() {
    let mut bench = Bench::ready();
    bench.host.link.send_errors.push_back(broken(libc::EPIPE));
    bench.host.queues.receives.push_back(receive(1, 100));
    bench.host.link.arrives(send(1, b"hello"));
    bench.post(wr(2, Op::Send, 8));
    let calls = bench.calls();
    assert_eq!(completed(&calls, None), [(1, 0), (2, status::WR_FLUSH_ERR)]);
    assert_eq!(calls.last(), Some(&Call::Ended));
}

#[test]
fn a_fault_that_another_part_may_have_caused_is_not_blamed_on_the_first() {
    let mut bench = Bench::ready();
    // The kernel names no part; alone the first FPDU goes out.
    bench.host.link.send_errors.push_back(LinkError::Memory(0, Unreachable::Fault));
    bench.host.queues.sends.push_back(wr(1, Op::Send, 8));
    bench.post(wr(2, Op::Send, 8));
    assert_eq!(bench.sends_done(), [(1, 0), (2, 0)]);
}

// ---- answers -----------------------------------------------------------------------------------------------------------------------

fn answer(last: bool, at: u64, body: &[u8]) -> Vec<u8> {
    fpdu(&tagged(Opcode::ReadResponse, last, 0x700, 0x8000 + at), body)
}

#[test]
fn a_read_of_the_peer_is_answered_in_segments() {
    let mut bench = Bench::ready();
    let body = memory(&bench, 300);
    bench.receive(&read(1, &read_request(STAG, BASE, 300)));
    let expected = [answer(false, 0, &body[..242]), answer(true, 242, &body[242..])].concat();
    let source = Access { stag: STAG, addr: BASE, len: 300, rights: REMOTE_READ };
    assert_eq!(bench.calls(), [Call::Flushed(source, 0), Call::Sent(expected, false)]);
    bench.receive(&read(2, &read_request(0x999, 1, 0)));
    assert_eq!(bench.calls(), [Call::Sent(answer(true, 0, &[]), false)], "an empty one touches no memory");
}

#[test]
fn answers_and_requests_take_turns_message_by_message() {
    let mut bench = Bench::ready();
    bench.host.link.out.set_room(0);
    // Of twenty FPDUs each; 64 are made before the link blocks.
    (1..=6).for_each(|id| bench.host.queues.sends.push_back(wr(id, Op::Send, 4760)));
    bench.step(reason::POSTED);
    bench.receive(&[read(1, &read_request(STAG, BASE, 300)), read(2, &read_request(STAG, BASE, 8))].concat());
    bench.host.link.out.set_room(usize::MAX);
    bench.step(reason::WRITABLE);
    let segments = segments(&sent(&bench.calls()));
    let message = |opcode, len| vec![opcode; len];
    let (send, answer) = (Opcode::Send, Opcode::ReadResponse);
    let expected =
        [message(send, 80), message(answer, 2), message(send, 20), message(answer, 1), message(send, 20)];
    let order: Vec<_> = segments.iter().map(|(header, _)| header.opcode()).collect();
    assert_eq!(order, expected.concat());
}

#[test]
fn no_answer_comes_between_a_write_and_its_immediate_data() {
    let mut bench = Bench::ready();
    bench.host.link.out.set_room(264);
    bench.host.queues.sends.push_back(wr(1, Op::Write, 242));
    // The FPDUs of the write are as many as are made before the link takes them, the immediate data is not
    // among them.
    bench.post(wr(2, Op::WriteWithImm, 242 * 64));
    bench.receive(&read(1, &read_request(STAG, BASE, 8)));
    bench.calls();
    bench.host.link.out.set_room(usize::MAX);
    bench.step(reason::WRITABLE);
    let order: Vec<_> = segments(&sent(&bench.calls())).iter().map(|(header, _)| header.opcode()).collect();
    assert_eq!(order, [&[Opcode::Write; 64][..], &[Opcode::Immediate, Opcode::ReadResponse]].concat());
}

/// Also when so many reads were made that their number needs more bits than are left beside the mark.
#[test]
fn the_sink_of_a_read_is_the_stag_of_no_region() {
    for msn in [1, 0xff_ffff, 0x100_0000, 0xff00_0001, u32::MAX] {
        assert!(crate::iwarp::conn::send::sink(msn) >= FIRST_SINK, "{msn:#x}");
    }
}

#[test]
fn an_answer_waits_for_what_it_must_find_durable_and_later_ones_wait_behind_it() {
    let mut bench = Bench::ready();
    let body = memory(&bench, 8);
    bench.host.durable = Durable::Later;
    bench.receive(&read(1, &read_request(STAG, BASE, 8)));
    bench.host.durable = Durable::Now;
    bench.receive(&read(2, &read_request(STAG, BASE, 4)));
    assert_eq!(sent(&bench.calls()), [0; 0]);
    bench.post(wr(1, Op::Send, 8));
    assert_eq!(sent(&bench.calls()), send(1, &body), "our own requests do not wait");
    bench.conn.durable(&mut bench.host, 7, true);
    bench.step(reason::DURABLE);
    assert_eq!(bench.calls(), [], "another flush");
    bench.conn.durable(&mut bench.host, 0, true);
    bench.step(reason::DURABLE);
    assert_eq!(sent(&bench.calls()), [answer(true, 0, &body), answer(true, 0, &body[..4])].concat());
}

#[test]
fn a_flush_that_fails_ends_the_connection() {
    let mut bench = Bench::ready();
    bench.host.durable = Durable::Later;
    bench.receive(&read(1, &read_request(STAG, BASE, 8)));
    bench.calls();
    bench.conn.durable(&mut bench.host, 0, false);
    bench.assert_refused_with(&Terminate::new(TermCode::LOCAL_CATASTROPHIC));
    bench.conn.durable(&mut bench.host, 0, true);
    bench.step(reason::DURABLE);
    assert_eq!(bench.calls(), []);
}

#[test]
fn the_peer_is_told_that_memory_that_it_reads_is_gone() {
    let mut bench = Bench::ready();
    bench.host.memory.mapped_to = BASE + 4;
    bench.receive(&read(1, &read_request(STAG, BASE, 8)));
    bench.assert_refused_with(&Terminate::new(TermCode::RDMAP_PROT_BOUNDS));

    let framing = Framing { crc: true, ..FRAMING };
    let mut bench = Bench::opened(Terms { framing, ..terms() }, Sizes::default());
    bench.host.memory.mapped_to = BASE + 4;
    let request = read_request(STAG, BASE, 8).encode();
    bench.receive(&fpdu_with(true, &untagged(Opcode::ReadRequest, true, 1, 0), &request));
    let mut body = [0; Terminate::MAX_LEN];
    let len = Terminate::new(TermCode::RDMAP_PROT_BOUNDS).encode(&mut body);
    let last = fpdu_with(true, &untagged(Opcode::Terminate, true, 1, 0), &body[..len]);
    bench.assert_ended_with(Some(last));
}
