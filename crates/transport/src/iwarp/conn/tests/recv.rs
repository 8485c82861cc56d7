// SPDX-License-Identifier: BSD-3-Clause
//! What comes from the link: what is placed, completed and answered, in which order, and what is refused.

use crate::iwarp::wire::codes::{QN_REQUEST, QN_SEND};
use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{Opcode, TermCode, encode_immediate};
use crate::iwarp::wire::terminate::Terminate;

use super::host::*;
use crate::access::{Access, Denied, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE};
use crate::iwarp::conn::{Framing, Sizes, Terms};
use crate::step::{Awaits, Budget, Quota, reason};
use crate::wr::{Completion, Extra, Local, Op, RecvWr, SendWr, opcode, status};

fn at(addr: u64, len: usize, rights: u32) -> Access {
    Access { stag: STAG, addr, len, rights }
}

fn received(wr_id: u64, byte_len: u32) -> Completion {
    Completion { wr_id, opcode: opcode::RECV, byte_len, qp_num: QP, ..Completion::default() }
}

fn immediate(msn: u32, of_send: bool) -> Vec<u8> {
    let mut body = encode_immediate(*b"imme");
    if of_send {
        body[4..].copy_from_slice(b"Send");
    }
    fpdu(&untagged(Opcode::Immediate, true, msn, 0), &body)
}

// ---- messages ----------------------------------------------------------------------------------------------------------------------

#[test]
fn a_write_is_placed() {
    let mut bench = Bench::ready();
    bench.receive(&write(STAG, BASE + 16, b"8 bytes."));
    assert_eq!(bench.calls(), [Call::Placed(at(BASE + 16, 8, REMOTE_WRITE)), Call::Settled]);
    assert_eq!(bench.host.bytes(BASE + 16, 8), b"8 bytes.");
    bench.receive(&empty_write());
    assert_eq!(bench.calls(), [], "an empty one touches no memory");
    assert_eq!(bench.host.served, [(1, 8), (0, 0), (0, 0)]);
}

#[test]
fn small_writes_are_placed_in_one_batch_in_order() {
    let mut bench = Bench::ready();
    bench.receive(&[write(STAG, BASE, b"12345678"), write(STAG, BASE + 4, b"abcdefgh")].concat());
    let placed = [BASE, BASE + 4].map(|addr| Call::Placed(at(addr, 8, REMOTE_WRITE)));
    assert_eq!(bench.calls(), [&placed[..], &[Call::Settled]].concat());
    assert_eq!(bench.host.bytes(BASE, 12), b"1234abcdefgh");
}

#[test]
fn a_send_is_placed_and_then_completes_its_receive() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 100);
    bench.post_receive(2, 100);
    let addr = receive_addr(1);
    bench.receive(&send(1, b"hello"));
    let expected = [Call::Placed(at(addr, 5, LOCAL_WRITE)), Call::Settled, Call::RecvDone(received(1, 5))];
    assert_eq!(bench.calls(), expected);
    let solicited = fpdu(&untagged(Opcode::SendSe, true, 2, 0), &[]);
    bench.receive(&solicited);
    assert_eq!(bench.calls(), [Call::RecvDone(Completion { solicited: true, ..received(2, 0) })]);
}

#[test]
fn the_segments_of_a_send_fill_one_receive() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 300);
    let body: Vec<u8> = (0..=255).cycle().take(300).collect();
    let segment =
        |last, from: usize, to| fpdu(&untagged(Opcode::Send, last, 1, from as u32), &body[from..to]);
    bench.receive(&segment(false, 0, 100));
    assert_eq!(bench.receives_done(), []);
    bench.receive(&[segment(false, 100, 200), segment(true, 200, 300)].concat());
    assert_eq!(bench.calls().last(), Some(&Call::RecvDone(received(1, 300))));
    assert_eq!(bench.host.bytes(receive_addr(1), 300), body);
}

#[test]
fn immediate_data_of_a_send_comes_with_its_receive() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 100);
    bench.receive(&immediate(1, true));
    assert_eq!(bench.calls(), [], "it takes no receive of its own");
    bench.receive(&send(2, b"hello"));
    let expected = Completion { extra: Extra::Imm(*b"imme"), ..received(1, 5) };
    assert_eq!(bench.calls().last(), Some(&Call::RecvDone(expected)));
}

#[test]
fn immediate_data_of_a_write_completes_a_receive_behind_what_was_written() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 0);
    bench.receive(
        &[
            write(STAG, BASE, b"another write"),
            fpdu(&tagged(Opcode::Write, false, STAG, BASE), b"hello"),
            fpdu(&tagged(Opcode::Write, true, STAG, BASE + 5), b"world!"),
            immediate(1, false),
        ]
        .concat(),
    );
    let expected =
        Completion { extra: Extra::Imm(*b"imme"), opcode: opcode::RECV_RDMA_WITH_IMM, ..received(1, 11) };
    let calls = bench.calls();
    assert_eq!(calls[calls.len() - 2..], [Call::Settled, Call::RecvDone(expected)]);
    assert_eq!(bench.host.bytes(BASE, 11), b"helloworld!");
    assert_eq!(bench.host.served[0], (2, 24));
}

#[test]
fn a_read_response_is_placed_where_the_read_said_and_then_completes_it() {
    let mut bench = Bench::ready();
    bench.post(wr(1, Op::Read, 10));
    bench.calls();
    bench.receive(&response(1, false, 0, b"12345"));
    assert_eq!(bench.calls(), [Call::Placed(at(BASE, 5, LOCAL_WRITE)), Call::Settled]);
    bench.receive(&response(1, true, 5, b"67890"));
    let calls = bench.calls();
    assert_eq!(calls[..2], [Call::Placed(at(BASE + 5, 5, LOCAL_WRITE)), Call::Settled]);
    assert!(matches!(calls[2..], [Call::SendDone(c)] if c.wr_id == 1 && c.status == status::SUCCESS));
}

#[test]
fn a_batch_ends_before_an_answer_that_rests_on_it() {
    let mut bench = Bench::ready();
    let request = read_request(STAG, BASE, 8);
    bench.receive(&[write(STAG, BASE, b"8 bytes."), read(1, &request)].concat());
    let answer = fpdu(&tagged(Opcode::ReadResponse, true, 0x700, 0x8000), b"8 bytes.");
    let expected = [
        Call::Placed(at(BASE, 8, REMOTE_WRITE)),
        Call::Settled,
        Call::Flushed(at(BASE, 8, REMOTE_READ), 0),
        Call::Sent(answer, false),
    ];
    assert_eq!(bench.calls(), expected);
}

#[test]
fn what_the_link_has_taken_completes_before_what_arrived_later_is_looked_at() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 100);
    bench.host.link.arrives(send(1, b"hello"));
    bench.host.queues.sends.push_back(wr(2, Op::Send, 4));
    bench.step(reason::POSTED | reason::READABLE);
    assert_eq!(completed(&bench.calls(), None), [(2, status::SUCCESS), (1, status::SUCCESS)]);
}

/// Without a CRC its value is ignored.
#[test]
fn a_message_does_not_wait_for_its_trailer() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 100);
    bench.post_receive(2, 100);
    let trailer = 4;
    let message = send(1, b"8 bytes.");
    let (body, rest) = message.split_at(message.len() - trailer);
    bench.receive(body);
    assert_eq!(bench.receives_done(), [(1, 0)]);
    let empty = send(2, b"");
    let (body, _) = empty.split_at(empty.len() - trailer);
    bench.receive(&[rest, body].concat());
    assert_eq!(bench.receives_done(), [(2, 0)]);
}

/// All kinds of messages.
fn conversation() -> Vec<u8> {
    let body: Vec<u8> = (0..200).collect();
    [
        write(STAG, BASE, &body[..100]),
        send(1, &body[100..]),
        immediate(2, true),
        send(3, b"with immediate data"),
        fpdu(&tagged(Opcode::Write, false, STAG, BASE + 500), &body[..13]),
        fpdu(&tagged(Opcode::Write, true, STAG, BASE + 513), &body[..66]),
        immediate(4, false),
        read(1, &read_request(STAG, BASE, 20)),
        response(1, true, 0, &body[..32]),
        send(5, &[]),
    ]
    .concat()
}

#[test]
fn it_does_not_matter_how_the_bytes_are_cut() {
    let whole = conversation();
    let run = |pieces: &[&[u8]], sizes| {
        let mut bench = Bench::with(terms(), sizes);
        (1..=4).for_each(|id| bench.host.queues.receives.push_back(receive(id, 200)));
        bench.post(wr(9, Op::Read, 32));
        bench.calls();
        pieces.iter().for_each(|piece| {
            bench.receive(piece);
        });
        let done = |call: Call| match call {
            Call::RecvDone(c) | Call::SendDone(c) => Some(c),
            _ => None,
        };
        let calls = bench.calls();
        let sent = sent(&calls);
        (calls.into_iter().filter_map(done).collect::<Vec<_>>(), sent, bench.host.memory.bytes)
    };
    let expected = run(&[&whole], Sizes::default());
    assert_eq!(expected.0.len(), 5);
    let small = Sizes { buffer: 128, direct: 8, behind_direct: 16, ..Sizes::default() };
    for sizes in [Sizes::default(), small] {
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert!(run(&bytes, sizes) == expected);
        for at in 1..whole.len() {
            assert!(run(&[&whole[..at], &whole[at..]], sizes) == expected, "cut at {at}");
        }
    }
}

#[test]
fn the_buffer_grows_when_it_is_filled_and_not_before() {
    let mut bench = Bench::with(terms(), Sizes { first: 128, buffer: 1000, ..Sizes::default() });
    bench.receive(&write(STAG, BASE, b"short"));
    assert_eq!(bench.conn.recv.buffer_len(), 128);
    bench.receive(&write(STAG, BASE, &[7; 60]).repeat(3));
    assert_eq!(bench.conn.recv.buffer_len(), 512);
    bench.receive(&write(STAG, BASE, &[8; 60]).repeat(100));
    assert_eq!(bench.conn.recv.buffer_len(), 1000);
    assert_eq!(bench.host.bytes(BASE, 60), [8; 60]);
}

/// However little memory a connection may use: a payload that is placed in one piece must fit.
#[test]
fn the_buffer_is_never_too_small_for_what_is_looked_at_as_a_whole() {
    let mut bench = Bench::with(terms(), Sizes { first: 0, buffer: 0, ..Sizes::default() });
    let message = fpdu(&untagged(Opcode::Send, true, 1, 0), &[7; 64]);
    bench.post_receive(1, 64);
    bench.receive(&message);
    let placed = Call::Placed(at(receive_addr(1), 64, LOCAL_WRITE));
    assert_eq!(bench.calls(), [placed, Call::Settled, Call::RecvDone(received(1, 64))]);
}

#[test]
fn the_buffer_holds_the_longest_fpdu_where_crcs_are_checked() {
    let framing = Framing { crc: true, ..FRAMING };
    let first = fpdu_with(true, &tagged(Opcode::Write, true, STAG, BASE), b"first");
    let second = fpdu_with(true, &tagged(Opcode::Write, true, STAG, BASE), &[7; 65535 - 14]);
    let sizes = Sizes { buffer: 128, ..Sizes::default() };
    let mut bench = Bench::opened(Terms { framing, ..terms() }, sizes);
    bench.receive(&[first, second.clone()].concat());
    assert!(!bench.conn.is_over());
    assert_eq!(bench.host.bytes(BASE, 65535 - 14), [7; 65535 - 14]);
    let room = bench.conn.recv.buffer_len();
    assert!((second.len()..second.len() + 8).contains(&room), "and not much more than that: {room}");
    let bench = Bench::opened(Terms { framing, ..terms() }, Sizes::default());
    assert_eq!(bench.conn.recv.buffer_len(), 2 * Sizes::default().buffer, "two of the usual length");
}

#[test]
fn what_is_left_of_a_long_payload_goes_straight_to_its_place() {
    let sizes = Sizes { buffer: 128, direct: 64, behind_direct: 16, ..Sizes::default() };
    let mut bench = Bench::with(terms(), sizes);
    let body: Vec<u8> = (0..=255).cycle().take(1000).collect();
    bench.receive(&[write(STAG, BASE, &body), write(STAG, BASE + 2000, b"behind")].concat());
    let calls = bench.calls();
    assert!(calls.iter().any(|call| matches!(call, Call::PlacedDirectly(to) if to.len > 800)), "{calls:?}");
    assert_eq!(bench.host.bytes(BASE, 1000), body);
    assert_eq!(bench.host.bytes(BASE + 2000, 6), b"behind");
}

#[test]
fn crcs_are_checked_and_a_wrong_one_places_nothing() {
    let framing = Framing { crc: true, ..FRAMING };
    let mut bench = Bench::opened(Terms { framing, ..terms() }, Sizes::default());
    let header = tagged(Opcode::Write, true, STAG, BASE);
    let mut fpdu = fpdu_with(true, &header, b"12345678");
    bench.receive(&fpdu);
    assert_eq!(bench.host.bytes(BASE, 8), b"12345678");
    bench.calls();
    fpdu[20] ^= 1;
    bench.receive(&fpdu);
    assert_eq!(bench.host.bytes(BASE, 8), b"12345678");
    let calls = bench.calls();
    let mut body = [0; Terminate::MAX_LEN];
    let len = Terminate::new(TermCode::MPA_CRC).encode(&mut body);
    let last = fpdu_with(true, &untagged(Opcode::Terminate, true, 1, 0), &body[..len]);
    assert_eq!(calls, [Call::Closed(Some(last)), Call::Ended]);
}

#[test]
fn a_used_up_budget_asks_for_another_step() {
    let mut bench =
        Bench::with(terms(), Sizes { buffer: 128, direct: 8192, behind_direct: 4096, ..Sizes::default() });
    bench.budget = Budget { send: Quota::of_bytes(usize::MAX), receive: Quota::of_bytes(100) };
    let writes: Vec<u8> = (0..10).flat_map(|i| write(STAG, BASE + 100 * i, &[i as u8; 100])).collect();
    let mut stepped = bench.receive(&writes);
    let mut steps = 1;
    while stepped.again {
        assert!(stepped.moved >= 100);
        stepped = bench.step(reason::AGAIN);
        steps += 1;
    }
    assert!(steps > 5, "{steps}");
    assert_eq!(bench.host.bytes(BASE + 900, 100), [9; 100]);
}

// ---- receives that are not there, completions without room ----------------------------------------------------------------------------

#[test]
fn a_message_without_a_receive_waits_for_one() {
    let mut bench = Bench::ready();
    let stepped = bench.receive(&[send(1, b"one"), send(2, b"two"), write(STAG, BASE, b"behind")].concat());
    assert_eq!(stepped.awaits, Awaits::Receive);
    assert_eq!(bench.calls(), []);
    assert_eq!(bench.post_receive(1, 100).awaits, Awaits::Receive);
    assert_eq!(bench.receives_done(), [(1, 0)]);
    bench.host.link.arrives(write(STAG, BASE + 6, b"later"));
    assert_eq!(bench.step(reason::READABLE).awaits, Awaits::Receive);
    assert_ne!(bench.host.bytes(BASE, 6), b"behind", "what follows waits as well");
    assert_eq!(bench.post_receive(2, 100).awaits, Awaits::Nothing);
    assert_eq!(bench.receives_done(), [(2, 0)]);
    assert_eq!(bench.host.bytes(BASE, 11), b"behindlater");
}

#[test]
fn immediate_data_without_a_receive_waits_for_one_too() {
    let mut bench = Bench::ready();
    let stepped = bench.receive(&[write(STAG, BASE, b"hello"), immediate(1, false)].concat());
    assert_eq!(stepped.awaits, Awaits::Receive);
    assert_eq!(bench.host.bytes(BASE, 5), b"hello");
    assert_eq!(bench.post_receive(1, 0).awaits, Awaits::Nothing);
    assert_eq!(bench.receives_done(), [(1, 0)]);
}

#[test]
fn a_message_without_a_receive_ends_a_connection_that_does_not_wait() {
    for message in [send(1, b"one"), immediate(1, false)] {
        let mut bench = Bench::with(Terms { wait_for_receives: false, ..terms() }, Sizes::default());
        bench.receive(&message);
        let (header, payload) = segments(&message).remove(0);
        bench.assert_refused_with(&about(TermCode::DDP_UNTAGGED_NO_BUFFER, &header, payload.len()));
    }
}

#[test]
fn a_connection_that_has_waited_long_enough_ends() {
    let mut bench = Bench::ready();
    let message = send(1, b"one");
    assert_eq!(bench.receive(&message).awaits, Awaits::Receive);
    bench.conn.wait_no_more();
    bench.step(reason::RECEIVE);
    let (header, payload) = segments(&message).remove(0);
    bench.assert_refused_with(&about(TermCode::DDP_UNTAGGED_NO_BUFFER, &header, payload.len()));
}

#[test]
fn a_full_completion_queue_holds_up_the_next_message() {
    let mut bench = Bench::ready();
    (1..=3).for_each(|id| bench.host.queues.receives.push_back(receive(id, 100)));
    bench.host.queues.recv_cq.room = 1;
    let stepped = bench.receive(&[send(1, b"1"), send(2, b"2"), send(3, b"3")].concat());
    assert_eq!(stepped.awaits, Awaits::Room);
    assert_eq!(bench.receives_done(), [(1, 0)]);
    assert_eq!(bench.host.queues.receives.len(), 1, "one receive is the most that is held back");
    bench.host.queues.recv_cq.room = 1;
    assert_eq!(bench.step(reason::ROOM).awaits, Awaits::Room);
    assert_eq!(bench.receives_done(), [(2, 0)]);
    bench.host.queues.recv_cq.room = 9;
    assert_eq!(bench.step(reason::ROOM).awaits, Awaits::Nothing);
    assert_eq!(bench.receives_done(), [(3, 0)]);
}

// ---- refusals ----------------------------------------------------------------------------------------------------------------------

/// Checks the Terminate message about the only segment of the peer.
#[track_caller]
fn assert_refused(mut bench: Bench, header: Header, body: &[u8], code: TermCode) {
    let before = bench.host.memory.bytes.clone();
    bench.receive(&fpdu(&header, body));
    bench.assert_refused_with(&about(code, &header, body.len()));
    assert!(bench.host.memory.bytes == before, "something was placed");
}

/// A connection whose peer has made an access that was permitted. Until then it learns nothing about STags
/// from a refusal.
fn known_peer() -> Bench {
    let mut bench = Bench::ready();
    let as_before = bench.host.bytes(BASE, 1).to_vec();
    bench.receive(&write(STAG, BASE, &as_before));
    bench.calls();
    bench
}

#[test]
fn a_write_that_may_not_be_done_is_refused() {
    let end = BASE + SIZE as u64;
    let cases = [
        (0xbad, BASE, TermCode::DDP_TAGGED_INVALID_STAG),
        (BARE, BASE, TermCode::DDP_TAGGED_INVALID_STAG),
        (FOREIGN, BASE, TermCode::DDP_TAGGED_NOT_OF_STREAM),
        (STAG, end - 7, TermCode::DDP_TAGGED_BOUNDS),
        (STAG, BASE - 1, TermCode::DDP_TAGGED_BOUNDS),
        (STAG, u64::MAX - 6, TermCode::DDP_TAGGED_TO_WRAP),
    ];
    for (stag, to, code) in cases {
        let header = tagged(Opcode::Write, true, stag, to);
        assert_refused(known_peer(), header, b"8 bytes.", code);
        assert_refused(Bench::ready(), header, b"8 bytes.", TermCode::DDP_TAGGED_INVALID_STAG);
    }
}

#[test]
fn a_read_that_may_not_be_done_is_refused_and_quoted() {
    let end = BASE + SIZE as u64;
    let cases = [
        (0xbad, BASE, TermCode::RDMAP_PROT_INVALID_STAG),
        (BARE, BASE, TermCode::RDMAP_PROT_ACCESS),
        (FOREIGN, BASE, TermCode::RDMAP_PROT_NOT_OF_STREAM),
        (STAG, end - 7, TermCode::RDMAP_PROT_BOUNDS),
        (STAG, u64::MAX - 6, TermCode::RDMAP_PROT_TO_WRAP),
    ];
    for (stag, addr, code) in cases {
        for (mut bench, code) in [(known_peer(), code), (Bench::ready(), TermCode::RDMAP_PROT_INVALID_STAG)] {
            let request = read_request(stag, addr, 8);
            bench.receive(&read(1, &request));
            let header = untagged(Opcode::ReadRequest, true, 1, 0);
            let terminate = Terminate::about_read(code, &header, &request);
            assert_eq!(terminate.read_request, Some(request));
            bench.assert_refused_with(&terminate);
        }
    }
}

#[test]
fn a_permitted_read_makes_a_peer_known_and_an_access_to_no_bytes_does_not() {
    let cases = [
        (read(1, &read_request(STAG, BASE, 8)), 2, TermCode::RDMAP_PROT_BOUNDS),
        (read(1, &read_request(STAG, BASE, 0)), 2, TermCode::RDMAP_PROT_INVALID_STAG),
        (write(STAG, BASE, b""), 1, TermCode::RDMAP_PROT_INVALID_STAG),
        (send(1, b"8 bytes."), 1, TermCode::RDMAP_PROT_INVALID_STAG),
    ];
    for (first, msn, code) in cases {
        let mut bench = Bench::ready();
        bench.post_receive(1, 100);
        bench.receive(&first);
        bench.conn.step(&mut bench.host, reason::WRITABLE, bench.budget);
        bench.calls();
        let request = read_request(STAG, BASE - 1, 8);
        bench.receive(&read(msn, &request));
        let header = untagged(Opcode::ReadRequest, true, msn, 0);
        bench.assert_refused_with(&Terminate::about_read(code, &header, &request));
    }
}

#[test]
fn more_reads_than_were_agreed_are_refused() {
    let mut bench = Bench::ready();
    bench.host.link.out.set_room(0);
    bench.post(wr(1, Op::Send, 4));
    let request = read_request(STAG, BASE, 8);
    for msn in 1..=u32::from(crate::limits::MAX_READS) {
        bench.receive(&read(msn, &request));
    }
    assert!(!bench.calls().contains(&Call::Ended));
    let msn = u32::from(crate::limits::MAX_READS) + 1;
    bench.receive(&read(msn, &request));
    let header = untagged(Opcode::ReadRequest, true, msn, 0);
    let code = TermCode::RDMAP_OP_CATASTROPHIC_STREAM;
    bench.assert_refused_with(&Terminate::about_read(code, &header, &request));
}

#[test]
fn a_message_that_breaks_the_order_is_refused() {
    let cases = [
        (untagged(Opcode::Send, true, 2, 0), TermCode::DDP_UNTAGGED_MSN_RANGE),
        (untagged(Opcode::Send, true, 1, 4), TermCode::DDP_UNTAGGED_MO),
        (
            Header::Untagged { opcode: Opcode::Send, last: true, inv_stag: 0, qn: QN_REQUEST, msn: 1, mo: 0 },
            TermCode::DDP_UNTAGGED_QN,
        ),
    ];
    for (header, code) in cases {
        let mut bench = Bench::ready();
        bench.host.queues.receives.push_back(receive(1, 100));
        assert_refused(bench, header, b"8 bytes.", code);
    }
}

fn invalidating(opcode: Opcode, last: bool, mo: u32) -> Header {
    Header::Untagged { opcode, last, inv_stag: 0x1122_3344, qn: QN_SEND, msn: 1, mo }
}

/// The window is invalidated after earlier payload was placed, which may have used it, and before the
/// completion.
#[test]
fn a_send_invalidates_when_it_is_whole() {
    for (opcode, solicited) in [(Opcode::SendInv, false), (Opcode::SendSeInv, true)] {
        let mut bench = Bench::ready();
        bench.post_receive(1, 100);
        bench.receive(
            &[write(STAG, BASE, b"first"), fpdu(&invalidating(opcode, false, 0), b"hello")].concat(),
        );
        let placed =
            [Call::Placed(at(BASE, 5, REMOTE_WRITE)), Call::Placed(at(receive_addr(1), 5, LOCAL_WRITE))];
        assert_eq!(bench.calls(), [&placed[..], &[Call::Settled]].concat());
        bench.receive(&fpdu(&invalidating(opcode, true, 5), b"!"));
        let extra = Extra::Invalidated([0x11, 0x22, 0x33, 0x44]);
        let expected = [
            Call::Placed(at(receive_addr(1) + 5, 1, LOCAL_WRITE)),
            Call::Settled,
            Call::Invalidated(0x1122_3344),
            Call::RecvDone(Completion { extra, solicited, ..received(1, 6) }),
        ];
        assert_eq!(bench.calls(), expected);
    }
}

/// The peer gets the same Terminate message for each reason, and the receive does not complete successfully.
#[test]
fn what_cannot_be_invalidated_ends_the_connection() {
    for why in [Denied::Stag, Denied::Pd] {
        let mut bench = Bench::ready();
        bench.host.windows = Err(why);
        bench.post_receive(1, 100);
        let header = invalidating(Opcode::SendInv, true, 0);
        bench.receive(&fpdu(&header, b"8 bytes."));
        let calls = bench.calls();
        let failed = |call: &Call| matches!(call, Call::RecvDone(c) if c.status == status::WR_FLUSH_ERR);
        assert_eq!(calls.iter().filter(|call| failed(call)).count(), 1);
        let terminate = about(TermCode::RDMAP_PROT_CANNOT_INVALIDATE, &header, 8);
        assert!(calls.contains(&Call::Closed(Some(terminate_fpdu(&terminate)))), "{calls:?}");
    }
}

#[test]
fn a_send_that_is_too_long_invalidates_nothing() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 7);
    bench.receive(&fpdu(&invalidating(Opcode::SendInv, true, 0), b"8 bytes."));
    assert!(!bench.calls().contains(&Call::Invalidated(0x1122_3344)));
}

#[test]
fn a_message_that_is_too_long_for_its_receive_fails_it() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 7);
    bench.post_receive(2, 100);
    bench.receive(&send(1, b"8 bytes."));
    let before_end = &bench.host.calls[..bench.host.calls_before_end.unwrap()];
    assert!(
        !before_end.iter().any(|call| matches!(call, Call::RecvDone(_))),
        "the queue pair is not in ERR yet"
    );
    let calls = bench.calls();
    assert_eq!(receives_done(&calls), [(1, status::LOC_LEN_ERR), (2, status::WR_FLUSH_ERR)]);
    let terminate = about(TermCode::DDP_UNTAGGED_TOO_LONG, &untagged(Opcode::Send, true, 1, 0), 8);
    assert!(calls.contains(&Call::Closed(Some(terminate_fpdu(&terminate)))));
}

#[test]
fn a_receive_into_memory_that_may_not_be_written_fails() {
    let mut bench = Bench::ready();
    bench.host.queues.receives.push_back(RecvWr::one(1, receive_addr(1), 100, BARE));
    bench.receive(&send(1, b"8 bytes."));
    let calls = bench.calls();
    let failed = |call: &Call| matches!(call, Call::RecvDone(c) if c.status == status::LOC_PROT_ERR);
    assert_eq!(calls.iter().filter(|call| failed(call)).count(), 1);
    let terminate = about(TermCode::DDP_CATASTROPHIC, &untagged(Opcode::Send, true, 1, 0), 8);
    assert!(calls.contains(&Call::Closed(Some(terminate_fpdu(&terminate)))));
}

#[test]
fn a_read_response_that_was_not_asked_for_is_refused() {
    let cases = [
        (false, sink(1), 0, true, 8, TermCode::DDP_TAGGED_INVALID_STAG),
        (true, sink(0), 0, true, 8, TermCode::DDP_TAGGED_INVALID_STAG),
        (true, sink(2), 0, true, 8, TermCode::DDP_TAGGED_INVALID_STAG),
        // The key of the region does not matter.
        (true, STAG, 0, true, 8, TermCode::DDP_TAGGED_INVALID_STAG),
        (true, STAG, BASE, true, 8, TermCode::DDP_TAGGED_INVALID_STAG),
        (true, sink(1), 1, true, 8, TermCode::DDP_TAGGED_BOUNDS),
        (true, sink(1), BASE, true, 8, TermCode::DDP_TAGGED_BOUNDS),
        (true, sink(1), u64::MAX, true, 8, TermCode::DDP_TAGGED_BOUNDS),
        (true, sink(1), 0, true, 9, TermCode::DDP_TAGGED_BOUNDS),
        (true, sink(1), 0, true, 7, TermCode::DDP_TAGGED_BOUNDS),
        (true, sink(1), 0, false, 8, TermCode::DDP_TAGGED_BOUNDS),
    ];
    for (is_outstanding, stag, to, last, len, code) in cases {
        let mut bench = Bench::ready();
        if is_outstanding {
            bench.post(wr(1, Op::Read, 8));
            bench.calls();
        }
        assert_refused(bench, tagged(Opcode::ReadResponse, last, stag, to), &vec![1; len], code);
    }
}

/// It stands for a place that only the answer to this read reaches.
#[test]
fn the_sink_of_a_read_cannot_be_written() {
    let mut bench = Bench::ready();
    bench.post(wr(1, Op::Read, 8));
    let before = bench.host.memory.bytes.clone();
    bench.calls();
    bench.receive(&write(sink(1), 0, b"8 bytes."));
    assert_eq!(bench.host.memory.bytes, before);
    let header = tagged(Opcode::Write, true, sink(1), 0);
    let terminate = about(TermCode::DDP_TAGGED_INVALID_STAG, &header, 8);
    let calls = bench.calls();
    assert!(calls.contains(&Call::Closed(Some(terminate_fpdu(&terminate)))), "{calls:?}");
}

/// Nor is it there any more when the read is over, although the next one fills the same memory.
#[test]
fn each_read_has_a_sink_of_its_own() {
    let mut bench = Bench::ready();
    bench.host.queues.sends.push_back(wr(1, Op::Read, 8));
    bench.post(wr(2, Op::Read, 8));
    bench.calls();
    bench.receive(&response(1, true, 0, b"answer 1"));
    assert_eq!(bench.sends_done(), [(1, status::SUCCESS)]);
    let again = tagged(Opcode::ReadResponse, true, sink(1), 0);
    bench.receive(&fpdu(&again, b"answer 1"));
    let terminate = about(TermCode::DDP_TAGGED_INVALID_STAG, &again, 8);
    let calls = bench.calls();
    assert!(calls.contains(&Call::Closed(Some(terminate_fpdu(&terminate)))), "{calls:?}");
}

/// The peer has answered as it should.
#[test]
fn a_read_into_memory_that_may_not_be_written_is_no_fault_of_the_peers() {
    for local in [Local::Memory { addr: BASE, lkey: BARE }, Local::Memory { addr: BASE - 1, lkey: STAG }] {
        let mut bench = Bench::ready();
        bench.host.queues.sends.push_back(SendWr { local, ..wr(1, Op::Read, 8) });
        bench.post(wr(2, Op::Send, 8));
        let before = bench.host.memory.bytes.clone();
        bench.calls();
        bench.receive(&response(1, true, 0, b"8 bytes."));
        assert_eq!(bench.host.memory.bytes, before);
        let calls = bench.calls();
        let failed = |call: &Call| matches!(call, Call::SendDone(c) if (c.wr_id, c.status) == (1, status::LOC_PROT_ERR));
        assert!(calls.iter().any(failed), "{calls:?}");
        assert!(calls.contains(&Call::Closed(Some(Vec::new()))), "{calls:?}");
    }
}

#[test]
fn the_write_whose_memory_is_gone_is_quoted_and_what_came_before_it_is_placed() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 100);
    bench.calls();
    bench.host.memory.mapped_to = BASE + 100;
    bench.host.memory.bytes[..200].fill(0);
    let second = tagged(Opcode::Write, true, STAG, BASE + 96);
    let bytes = [write(STAG, BASE, b"first"), fpdu(&second, b"second"), write(STAG, BASE + 8, b"third")];
    bench.receive(&[bytes.concat(), send(1, b"")].concat());
    assert_eq!(bench.host.bytes(BASE, 13), b"first\0\0\0\0\0\0\0\0");
    let calls = bench.calls();
    let terminate = about(TermCode::DDP_TAGGED_BOUNDS, &second, 6);
    assert!(calls.contains(&Call::Closed(Some(terminate_fpdu(&terminate)))), "{calls:?}");
    let flushed = |call: &Call| matches!(call, Call::RecvDone(c) if c.status == status::WR_FLUSH_ERR);
    assert!(calls.iter().any(flushed), "a completion that rests on it must not succeed");
    let succeeded = |call: &Call| matches!(call, Call::RecvDone(c) if c.status == status::SUCCESS);
    assert!(!calls.iter().any(succeeded));
}

#[test]
fn a_long_payload_whose_memory_is_gone_is_refused() {
    let sizes = Sizes { buffer: 128, direct: 64, behind_direct: 16, ..Sizes::default() };
    let mut bench = Bench::with(terms(), sizes);
    bench.host.memory.mapped_to = BASE + 500;
    let header = tagged(Opcode::Write, true, STAG, BASE);
    bench.receive(&fpdu(&header, &[1; 1000]));
    let calls = bench.calls();
    let terminate = about(TermCode::DDP_TAGGED_BOUNDS, &header, 1000);
    assert!(calls.contains(&Call::Closed(Some(terminate_fpdu(&terminate)))), "{calls:?}");
}

#[test]
fn our_own_memory_that_is_gone_is_no_fault_of_the_peers() {
    let gone = Terminate::new(TermCode::LOCAL_CATASTROPHIC);
    let mut bench = Bench::ready();
    bench.host.queues.receives.push_back(receive(1, 100));
    bench.host.memory.mapped_to = BASE;
    bench.receive(&send(1, b"8 bytes."));
    bench.assert_refused_with(&gone);
    let mut bench = Bench::ready();
    bench.post(wr(1, Op::Read, 8));
    bench.calls();
    bench.host.memory.mapped_to = BASE;
    bench.receive(&response(1, true, 0, b"8 bytes."));
    bench.assert_refused_with(&gone);
}

#[test]
fn what_is_no_fpdu_is_refused() {
    let mut bench = Bench::ready();
    bench.receive(&[0, 3, 1, 2, 3, 0, 0, 0]);
    let calls = bench.calls();
    let [Call::Closed(Some(last)), Call::Ended] = &calls[..] else { panic!("{calls:?}") };
    assert!(last.is_empty() || segments(last)[0].0.opcode() == Opcode::Terminate);
}

#[test]
fn what_came_before_a_refusal_counts() {
    let mut bench = Bench::ready();
    bench.post_receive(1, 100);
    bench.receive(&[send(1, b"hello"), write(STAG, BASE, b"world"), write(0xbad, 0, b"!")].concat());
    assert_eq!(bench.host.bytes(BASE, 5), b"world");
    assert_eq!(bench.receives_done(), [(1, 0)]);
}

/// From the completion on the memory is the program's, also when the receive has failed.
#[test]
fn a_receive_that_fails_is_not_written_any_more() {
    let first = fpdu(&untagged(Opcode::Send, false, 1, 0), &[1; 20]);
    let second = fpdu(&untagged(Opcode::Send, true, 1, 20), &[2; 21]);
    for (lkey, code) in [(STAG, status::LOC_LEN_ERR), (BARE, status::LOC_PROT_ERR)] {
        let mut bench = Bench::ready();
        bench.host.queues.receives.push_back(RecvWr::one(1, receive_addr(1), 40, lkey));
        bench.receive(&[first.clone(), second.clone()].concat());
        let calls = bench.calls();
        let done = calls.iter().position(|call| matches!(call, Call::RecvDone(c) if c.status == code));
        let done = done.unwrap_or_else(|| panic!("{calls:?}"));
        let placed = calls.iter().rposition(|call| matches!(call, Call::Placed(_) | Call::Settled));
        assert!(placed.is_none_or(|placed| placed < done), "{calls:?}");
        assert_eq!(placed.is_some(), lkey == STAG);
    }
}
