// SPDX-License-Identifier: BSD-3-Clause
//! The responder: MPA Requests and the replies to them.

use super::bystander::Bystander;
use super::common::*;
use super::peer::*;
use softverbs::rdma as cm;

/// Depths that the accepting program offers.
pub(crate) const IRD: u8 = 20;
pub(crate) const ORD: u8 = 12;
/// The depths in a reply to a peer with an IRD of 8, and to one without an IRD or with more than our ORD.
pub(crate) const DEPTHS_8: &str = "0014 0008";
const DEPTHS: &str = "0014 000c";

/// The reaction to a request that the program would accept with the private data `ok`.
pub(crate) enum Answer {
    /// This reply, and the connection is established.
    Established(String),
    /// This reply; the connection is established once this FPDU has been sent.
    After(String, Vec<u8>),
    /// This reply, then the end of the stream, without an event for the program.
    Rejected(String),
    /// The end of the stream, without an event for the program.
    Closed,
}
pub(crate) use Answer::{After, Closed, Established, Rejected};

pub(crate) struct Row {
    name: String,
    pub request: Vec<u8>,
    answer: Answer,
    /// The event's private data, responder_resources (the peer's ORD) and initiator_depth (its IRD).
    event: (Vec<u8>, u8, u8),
}

pub(crate) fn row(name: impl Into<String>, request: &str, answer: Answer, event: (&[u8], u8, u8)) -> Row {
    let request = hex(&format!("'MPA ID Req Frame' {request}"));
    Row { name: name.into(), request, answer, event: (event.0.to_vec(), event.1, event.2) }
}

pub(crate) fn reply(text: impl std::fmt::Display) -> String {
    format!("'MPA ID Rep Frame' {text}")
}

pub(crate) fn empty_write() -> Vec<u8> {
    tagged([0xc1, 0x40], 1, 0, b"")
}

/// Revisions, flags and lengths.
fn frames() -> Vec<Row> {
    let mut rows = Vec::new();
    for (revision, crc) in [(1, "00"), (1, "40"), (2, "00"), (2, "40")] {
        rows.push(row(
            format!("revision {revision}, flags {crc}, nothing enhanced"),
            &format!("{crc} 0{revision} 0000"),
            Established(reply(format!("{crc} 0{revision} 0002 'ok'"))),
            (b"", 0, 0),
        ));
    }
    for (flags, answered) in [("10", "10"), ("50", "50")] {
        rows.push(row(
            format!("enhanced, flags {flags}"),
            &format!("{flags} 02 0004 0008 0009"),
            Established(reply(format!("{answered} 02 0006 {DEPTHS_8} 'ok'"))),
            (b"", 9, 8),
        ));
    }
    rows.push(row(
        "revision 1 has no enhanced flag: these are private data",
        "10 01 0004 'abcd'",
        Established(reply("00 01 0002 'ok'")),
        (b"abcd", 0, 0),
    ));
    rows.push(row(
        "reserved flags and the reject flag of a request are ignored",
        "3f 02 0004 0008 0009",
        Established(reply(format!("10 02 0006 {DEPTHS_8} 'ok'"))),
        (b"", 9, 8),
    ));
    // The peer requires markers, which the provider cannot insert.
    for (flags, answered) in [("80", "20"), ("c0", "60")] {
        let name = format!("markers, flags {flags}");
        rows.push(row(
            name,
            &format!("{flags} 01 0000"),
            Rejected(reply(format!("{answered} 01 0000"))),
            (b"", 0, 0),
        ));
    }
    rows.push(row(
        "markers, enhanced",
        "90 02 0004 0008 0008",
        Rejected(reply("30 02 0004 0000 0000")),
        (b"", 0, 0),
    ));
    for revision in ["00", "03", "ff"] {
        rows.push(row(
            format!("revision {revision}"),
            &format!("10 {revision} 0004 0008 0008"),
            Closed,
            (b"", 0, 0),
        ));
    }
    for len in 0..4 {
        let request = format!("10 02 000{len} {}", "00".repeat(len));
        rows.push(row(
            format!("{len} bytes where the enhanced block has four"),
            &request,
            Closed,
            (b"", 0, 0),
        ));
    }
    rows
}

/// Private data of each relevant length; rdma_cm passes up to 255 bytes to a program.
fn private_data() -> Vec<Row> {
    let mut rows = Vec::new();
    let data = |len: usize| vec![b'p'; len.min(255)];
    for len in [0, 1, 3, 4, 251, 252, 255, 256, 511, 512] {
        rows.push(row(
            format!("{len} bytes of private data"),
            &format!("00 01 {len:04x} '{}'", "p".repeat(len)),
            Established(reply("00 01 0002 'ok'")),
            (&data(len), 0, 0),
        ));
    }
    for len in [0, 1, 251, 252, 507, 508] {
        rows.push(row(
            format!("{len} bytes of private data behind the enhanced block"),
            &format!("10 02 {:04x} 0008 0009 '{}'", len + 4, "p".repeat(len)),
            Established(reply(format!("10 02 0006 {DEPTHS_8} 'ok'"))),
            (&data(len), 9, 8),
        ));
    }
    for len in [513, 514, 1024, 65535] {
        let name = format!("{len} bytes of private data are too many");
        rows.push(row(name, &format!("10 02 {len:04x} 0008 0008"), Closed, (b"", 0, 0)));
    }
    rows
}

/// Each set of first messages, of which the reply chooses one, with each kind of depth.
fn first_messages() -> Vec<Row> {
    // IRD and ORD of the peer; the values in the event; ours in the reply.
    let depths: [(u16, u16, (u8, u8), &str); 5] = [
        (8, 9, (9, 8), DEPTHS_8),
        (0, 0, (0, 0), "0014 0000"),
        (12, 200, (200, 12), DEPTHS),
        (300, 1000, (255, 255), DEPTHS),
        // Not negotiated.
        (0x3fff, 0x3fff, (255, 255), DEPTHS),
    ];
    let mut rows = Vec::new();
    for (ird, ord, (told_ord, told_ird), answered) in depths {
        for kinds in 0..16u16 {
            let (announced, send, write, read) =
                (kinds & 8 != 0, kinds & 4 != 0, kinds & 2 != 0, kinds & 1 != 0);
            let flags = |a: bool, b: bool| u16::from(a) << 15 | u16::from(b) << 14;
            let request =
                format!("10 02 0004 {:04x} {:04x}", ird | flags(announced, send), ord | flags(write, read));
            // A Write if the peer supports it, else a Read, else a Send. If the peer supports none, a Write:
            // a reply must name one.
            let (by_write, by_read) = (write || !(read || send), read && !write);
            let by_send = send && !write && !read;
            let bits = hex(answered).iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
            let bits = bits | u32::from(flags(announced, announced && by_send)) << 16;
            let bits = bits | u32::from(flags(announced && by_write, announced && by_read));
            let text = reply(format!("10 02 0006 {bits:08x} 'ok'"));
            let first = if by_write {
                empty_write()
            } else if by_read {
                read_request(1, 0, 1, 0)
            } else {
                untagged([0x41, 0x43], 0, [0, 1, 0], b"")
            };
            let answer = if announced { After(text, first) } else { Established(text) };
            let name = format!(
                "IRD {ird}, ORD {ord}, announced: {announced}, by Send: {send}, by Write: {write}, by Read: {read}"
            );
            rows.push(row(name, &request, answer, (b"", told_ord, told_ird)));
        }
    }
    rows
}

/// Accepts the request that was just sent, and checks its event.
pub(crate) fn accept(listening: &Listening, row: &Row) -> End {
    let (id, event) = take_request_event(listening);
    assert_eq!(event, row.event, "{}: the event of the program", row.name);
    accept_with(id, 16, &mut terms(IRD, ORD, true, b"ok"))
}

/// The request event: the identifier, private data and the peer's depths.
pub(crate) fn take_request_event(listening: &Listening) -> (*mut rdma_sys::rdma_cm_id, (Vec<u8>, u8, u8)) {
    // SAFETY: the channel is not destroyed yet; the event is acknowledged exactly once.
    unsafe {
        let mut event = std::ptr::null_mut();
        assert_eq!(cm::rdma_get_cm_event(listening.events, &mut event), 0);
        let conn = (*event).param.conn;
        let mut data = vec![0; usize::from(conn.private_data_len)];
        std::ptr::copy_nonoverlapping(conn.private_data.cast(), data.as_mut_ptr(), data.len());
        let id = (*event).id;
        cm::rdma_ack_cm_event(event);
        (id, (data, conn.responder_resources, conn.initiator_depth))
    }
}

pub(crate) fn end_of(end: End, wire: Wire, name: &str) {
    drop(wire);
    assert_eq!(next_event(end.events).0, DISCONNECTED, "{name}");
    end.destroy();
}

fn check(listening: &Listening, row: &Row, pieces: Pieces) {
    let name = &row.name;
    let mut wire = listening.wire();
    wire.send(&row.request, pieces);
    match &row.answer {
        Closed => assert_eq!(wire.take_rest(), [], "{name}: closed without an answer"),
        Rejected(text) => assert_eq!(wire.take_rest(), hex(text), "{name}: the rejecting reply"),
        Established(text) => {
            let end = accept(listening, row);
            let expected = hex(text);
            assert_eq!(wire.take(expected.len()), expected, "{name}: the reply");
            assert_eq!(next_event(end.events).0, ESTABLISHED, "{name}");
            wire.crc = expected[16] & 0x40 != 0;
            wire.barrier(1);
            end_of(end, wire, name);
        }
        After(text, first) => {
            let end = accept(listening, row);
            let expected = hex(text);
            assert_eq!(wire.take(expected.len()), expected, "{name}: the reply");
            let is_send = first[1] == 0x43;
            if is_send {
                assert_eq!(end.post_recv(5, None), 0);
            }
            wire.send_ulpdu(first, pieces);
            assert_eq!(next_event(end.events).0, ESTABLISHED, "{name}");
            // It sends an empty Write, and answers a Read.
            assert_eq!(wire.ulpdu(), Some(empty_write()), "{name}");
            let is_read = first[1] == 0x41;
            if is_read {
                let response = tagged([0xc1, 0x42], SINK.0, SINK.1, b"");
                assert_eq!(wire.ulpdu(), Some(response), "{name}");
            }
            wire.barrier(if is_read { 2 } else { 1 });
            if is_send {
                assert_eq!(
                    end.poll(),
                    Wc { wr_id: 5, status: 0, opcode: 128, byte_len: 0, imm: None },
                    "{name}"
                );
            }
            end_of(end, wire, name);
        }
    }
}

fn check_all(rows: &[Row], all_pieces: &[Pieces]) {
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    for row in rows {
        for pieces in all_pieces {
            check(&listening, row, *pieces);
        }
        bystander.goes_on(&row.name);
    }
    println!("{} requests", rows.len() * all_pieces.len());
}

#[test]
fn requests_are_answered_according_to_revision_and_flags() {
    check_all(&frames(), &[Pieces::Whole, Pieces::Bytes]);
}

#[test]
fn private_data_of_any_length_reach_the_program() {
    check_all(&private_data(), &[Pieces::Whole, Pieces::Bytes]);
}

#[test]
fn one_of_the_offered_first_messages_is_chosen() {
    check_all(&first_messages(), &[Pieces::Whole]);
}
