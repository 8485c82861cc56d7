// SPDX-License-Identifier: BSD-3-Clause
//! The initiator: its MPA Request, and its reaction to replies.

use super::bystander::Bystander;
use super::common::*;
use super::peer::*;
use rdma_sys::rdma_cm_event_type::{RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_REJECTED};
use std::net::{Shutdown, TcpListener};
use std::time::Duration;

/// A reply, its event, and the bytes that the peer receives after the request.
struct Row {
    name: &'static str,
    reply: Vec<u8>,
    event: u32,
    private_data: Vec<u8>,
    after: After,
}

enum After {
    /// An FPDU: the announced one, or a probe.
    EmptyWrite,
    /// A Terminate message with this code, then the end of the stream.
    Terminate([u8; 2]),
    /// The end of the stream.
    End,
}

fn established(name: &'static str, reply: &str, private_data: &[u8]) -> Row {
    Row { event: ESTABLISHED, after: After::EmptyWrite, ..failed(name, reply, private_data, ESTABLISHED) }
}

fn failed(name: &'static str, reply: &str, private_data: &[u8], event: u32) -> Row {
    let reply = hex(&format!("'MPA ID Rep Frame' {reply}"));
    Row { name, reply, event, private_data: private_data.to_vec(), after: After::End }
}

fn terminated(name: &'static str, reply: &str, code: [u8; 2]) -> Row {
    let after = After::Terminate(code);
    Row { after, ..failed(name, reply, b"", RDMA_CM_EVENT_CONNECT_ERROR) }
}

/// The answers to a request with IRD 20 and ORD 12, which announces a Write.
fn rows() -> Vec<Row> {
    let long = "p".repeat(508);
    let mut rows = vec![
        established("enhanced, with what was announced", "10 02 0004 8008 8008", b""),
        established("with CRCs, which were not requested", "50 02 0004 8008 8008", b""),
        established("no first message", "10 02 0004 0008 0008", b""),
        established("without announcement the other flags are ignored", "10 02 0004 4008 4008", b""),
        established("another first message is permitted, too", "10 02 0004 c008 c008", b""),
        established("depths 0", "10 02 0004 8000 8000", b""),
        established("depths of the request", "10 02 0004 800c 8014", b""),
        established("the maximum number of reads", "10 02 0004 8080 8080", b""),
        established("depths are left to the programs", "10 02 0004 bfff bfff", b""),
        established("reserved flags", "1f 02 0004 8008 8008", b""),
        established("revision 1", "00 01 0003 'abc'", b"abc"),
        established("revision 1 with CRCs", "40 01 0000", b""),
        established("revision 1 has no enhanced flag", "10 01 0004 'abcd'", b"abcd"),
        established("revision 2, nothing enhanced", "00 02 0001 'x'", b"x"),
        established("one byte of private data", "10 02 0005 8008 8008 'p'", b"p"),
        established("the maximum of private data", &format!("10 02 0200 8008 8008 '{long}'"), &[b'p'; 255]),
        failed("rejected", "30 02 0004 0000 0000", b"", RDMA_CM_EVENT_REJECTED),
        failed("rejected with a reason", "30 02 0006 0000 0000 'no'", b"no", RDMA_CM_EVENT_REJECTED),
        failed("rejected by revision 1", "20 01 0002 'no'", b"no", RDMA_CM_EVENT_REJECTED),
        failed("rejected with CRCs", "70 02 0004 8008 8008", b"", RDMA_CM_EVENT_REJECTED),
        failed("markers", "90 02 0004 8008 8008", b"", RDMA_CM_EVENT_REJECTED),
        failed("markers of revision 1", "80 01 0000", b"", RDMA_CM_EVENT_REJECTED),
        failed("revision 0", "00 00 0000", b"", RDMA_CM_EVENT_CONNECT_ERROR),
        failed("revision 3", "10 03 0004 8008 8008", b"", RDMA_CM_EVENT_CONNECT_ERROR),
        failed("too much private data", "10 02 0201 8008 8008", b"", RDMA_CM_EVENT_CONNECT_ERROR),
        failed("no room for the enhanced block", "10 02 0003 800800", b"", RDMA_CM_EVENT_CONNECT_ERROR),
        failed("no enhanced block", "10 02 0000", b"", RDMA_CM_EVENT_CONNECT_ERROR),
        terminated("first message by Send only", "10 02 0004 c008 0008", [0x20, 7]),
        terminated("first message by Read only", "10 02 0004 8008 4008", [0x20, 7]),
        terminated("first message by nothing", "10 02 0004 8008 0008", [0x20, 7]),
        terminated("more reads than the maximum", "10 02 0004 8008 8081", [0x20, 6]),
        terminated("more reads than the maximum, without announcement", "10 02 0004 0008 3ffe", [0x20, 6]),
        terminated("more reads than the maximum, with CRCs", "50 02 0004 8008 8081", [0x20, 6]),
    ];
    for (name, wrong) in [
        ("the key of a request", hex("'MPA ID Req Frame' 10 02 0004 8008 8008")),
        ("another protocol", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("one wrong byte", b"m".to_vec()),
    ] {
        rows.push(Row { reply: wrong, ..failed(name, "", b"", RDMA_CM_EVENT_CONNECT_ERROR) });
    }
    rows
}

/// Connects to a raw responder: the end, and the wire, on which the request was checked.
fn ask(listener: &TcpListener, private_data: &[u8]) -> (End, Wire) {
    let port = listener.local_addr().unwrap().port();
    let end = connect_with(c"127.0.0.1", port, 16, &mut terms(20, 12, true, private_data));
    let mut wire = Wire::new(listener.accept().unwrap().0);
    let mut expected = hex(&format!("'MPA ID Req Frame' 10 02 {:04x} 8014 800c", private_data.len() + 4));
    expected.extend_from_slice(private_data);
    assert_eq!(wire.take(expected.len()), expected, "the request");
    (end, wire)
}

fn check(listener: &TcpListener, row: &Row, pieces: Pieces) {
    let name = row.name;
    let (end, mut wire) = ask(listener, b"");
    wire.send(&row.reply, pieces);
    let (event, status, private_data) = next_event(end.events);
    assert_eq!((event, private_data), (row.event, row.private_data.clone()), "{name}: the event");
    assert_eq!(status < 0, event != ESTABLISHED, "{name}: status {status}");
    wire.crc = row.reply.get(16).is_some_and(|flags| flags & 0x40 != 0);
    match row.after {
        After::EmptyWrite => {
            assert_eq!(wire.ulpdu(), Some(tagged([0xc1, 0x40], 1, 0, b"")), "{name}");
            drop(wire);
            assert_eq!(next_event(end.events).0, DISCONNECTED, "{name}");
        }
        After::Terminate([layer, code]) => {
            let expected = untagged([0x41, 0x47], 0, [2, 1, 0], &[layer, code, 0, 0]);
            assert_eq!(wire.ulpdu(), Some(expected), "{name}: the Terminate message");
            assert_eq!(wire.ulpdu(), None, "{name}");
        }
        After::End => assert_eq!(wire.take_rest(), [], "{name}: the end of the stream"),
    }
    end.destroy();
}

#[test]
fn replies_are_processed_according_to_revision_and_flags() {
    let mut bystander = Bystander::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rows = rows();
    for row in &rows {
        for pieces in [Pieces::Whole, Pieces::Bytes] {
            check(&listener, row, pieces);
        }
        bystander.goes_on(row.name);
    }
    println!("{} replies", rows.len() * 2);
}

#[test]
fn private_data_of_any_length_go_into_a_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for len in [0, 1, 250, 251] {
        let (end, wire) = ask(&listener, &vec![b'q'; len]);
        drop(wire);
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_REJECTED, "{len} bytes");
        end.destroy();
    }
}

#[test]
fn a_reply_may_be_split_at_every_byte() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reply = hex("'MPA ID Rep Frame' 10 02 0008 8008 8008 'pong'");
    for at in 1..reply.len() {
        let (end, mut wire) = ask(&listener, b"ping");
        wire.send(&reply[..at], Pieces::Whole);
        std::thread::sleep(Duration::from_millis(2));
        wire.send(&reply[at..], Pieces::Whole);
        assert_eq!(next_event(end.events), (ESTABLISHED, 0, b"pong".to_vec()), "split at {at}");
        drop(wire);
        assert_eq!(next_event(end.events).0, DISCONNECTED, "split at {at}");
        end.destroy();
    }
}

/// A responder whose program sends first may send directly after its reply, even in the same segment.
#[test]
fn bytes_directly_after_a_reply_are_received() {
    let mut bystander = Bystander::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reply = hex("'MPA ID Rep Frame' 10 02 0004 0008 0008");
    let send = fpdu(&untagged([0x41, 0x43], 0, [0, 1, 0], b"early"), false);
    for early in 0..=send.len() {
        let (end, mut wire) = ask(&listener, b"");
        let mut inbox = [0u8; 16];
        let mr = end.register(&mut inbox, LOCAL_WRITE);
        assert_eq!(end.post_recv(3, Some(&mut sge(mr, 0, 16))), 0);
        wire.send(&[&reply[..], &send[..early]].concat(), Pieces::Whole);
        assert_eq!(next_event(end.events).0, ESTABLISHED, "{early} bytes early");
        wire.send(&send[early..], Pieces::Whole);
        assert_eq!(
            end.poll(),
            Wc { wr_id: 3, status: 0, opcode: 128, byte_len: 5, imm: None },
            "{early} bytes early"
        );
        assert_eq!(inbox[..5], *b"early");
        dereg(mr);
        drop(wire);
        assert_eq!(next_event(end.events).0, DISCONNECTED, "{early} bytes early");
        end.destroy();
    }
    bystander.goes_on("early FPDUs");
}

/// The stream ends instead of a reply, or within it.
#[test]
fn a_responder_that_closes_rejects() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let reply = hex("'MPA ID Rep Frame' 10 02 0004 8008 8008");
    for len in [0, 1, 16, 20, 23] {
        let (end, mut wire) = ask(&listener, b"");
        wire.send(&reply[..len], Pieces::Whole);
        wire.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_REJECTED, "after {len} bytes");
        end.destroy();
    }
}
