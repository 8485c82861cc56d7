// SPDX-License-Identifier: BSD-3-Clause
//! Messages that a peer may send: each opcode, every length, in arbitrary TCP segments.

use super::bystander::Bystander;
use super::common::*;
use super::peer::*;

pub(crate) const LEN: usize = 1 << 18;
const RECV: u32 = 128;
const RECV_RDMA_WITH_IMM: u32 = 129;
pub(crate) const IMM: [u8; 8] = *b"abcd\0\0\0\0";
/// The same value in a completion.
const VALUE: Option<u32> = Some(0x6162_6364);

pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + 1) as u8).collect()
}

/// The ULPDUs of a peer, and their expected effects.
struct Row {
    name: String,
    ulpdus: Vec<Vec<u8>>,
    /// Receives: posted length, received length, opcode and immediate data.
    receives: Vec<(usize, usize, u32, Option<u32>)>,
    /// The expected bytes of the receive buffers.
    inbox: Vec<u8>,
    /// The expected bytes at the beginning of the region.
    memory: Vec<u8>,
    /// The expected payloads of the Read Responses.
    answers: Vec<Vec<u8>>,
}

fn row(name: impl Into<String>, ulpdus: Vec<Vec<u8>>) -> Row {
    let name = name.into();
    Row { name, ulpdus, receives: Vec::new(), inbox: Vec::new(), memory: Vec::new(), answers: Vec::new() }
}

/// Divides a message into segments with `at_a_time` bytes of payload. `segment` encodes one, given its
/// payload, its offset, and whether it is the last.
fn cut(body: &[u8], at_a_time: usize, segment: impl Fn(&[u8], usize, bool) -> Vec<u8>) -> Vec<Vec<u8>> {
    let parts = body.chunks(at_a_time).enumerate();
    parts.map(|(i, part)| segment(part, i * at_a_time, i * at_a_time + part.len() == body.len())).collect()
}

fn writes(stag: u32, addr: u64, body: &[u8], at_a_time: usize) -> Vec<Vec<u8>> {
    cut(body, at_a_time, |part, at, last| {
        tagged([if last { 0xc1 } else { 0x81 }, 0x40], stag, addr + at as u64, part)
    })
}

fn sends(opcode: u8, msn: u32, body: &[u8], at_a_time: usize) -> Vec<Vec<u8>> {
    cut(body, at_a_time, |part, at, last| {
        untagged([if last { 0x41 } else { 0x01 }, 0x40 | opcode], 0, [0, msn, at as u32], part)
    })
}

fn empty(stag: u32, addr: u64) -> Vec<Row> {
    let nothing = |opcode| (8, 0, opcode, None);
    let immediate = |control| untagged([0x41, control], 0, [0, 1, 0], &IMM);
    vec![
        row("Write of nothing", vec![tagged([0xc1, 0x40], stag, addr, b"")]),
        row("Write of nothing, STag 0", vec![tagged([0xc1, 0x40], 0, 0, b"")]),
        row(
            "Write of nothing, unknown STag, last address",
            vec![tagged([0xc1, 0x40], u32::MAX, u64::MAX, b"")],
        ),
        Row {
            receives: vec![nothing(RECV)],
            ..row("Send of nothing", vec![untagged([0x41, 0x43], 0, [0, 1, 0], b"")])
        },
        Row {
            receives: vec![(0, 0, RECV, None)],
            ..row("Send with SE of nothing into nothing", vec![untagged([0x41, 0x45], 0, [0, 1, 0], b"")])
        },
        Row {
            receives: vec![(8, 0, RECV_RDMA_WITH_IMM, VALUE)],
            ..row(
                "Immediate Data of a Write of nothing",
                vec![tagged([0xc1, 0x40], 9, 9, b""), immediate(0x48)],
            )
        },
        Row {
            receives: vec![(8, 0, RECV_RDMA_WITH_IMM, VALUE)],
            ..row("Immediate Data with SE alone", vec![immediate(0x49)])
        },
        Row {
            answers: vec![Vec::new(); 2],
            ..row(
                "Reads of nothing",
                vec![read_request(1, 0, stag, addr), read_request(2, 0, u32::MAX, u64::MAX)],
            )
        },
    ]
}

fn lengths(stag: u32, addr: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for len in [1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 8191, 8193] {
        let body = bytes(len);
        rows.push(Row {
            memory: body.clone(),
            ..row(format!("Write of {len}"), writes(stag, addr, &body, len))
        });
        rows.push(Row {
            receives: vec![(len, len, RECV, None)],
            inbox: body.clone(),
            ..row(format!("Send of {len}"), sends(3, 1, &body, len))
        });
        rows.push(Row {
            receives: vec![(len + 1, len, RECV, None)],
            inbox: body.clone(),
            ..row(format!("Send with SE of {len} in segments"), sends(5, 1, &body, len.div_ceil(3)))
        });
        rows.push(Row {
            receives: vec![(0, len, RECV_RDMA_WITH_IMM, VALUE)],
            memory: body.clone(),
            ..row(
                format!("Write of {len} in segments with immediate data"),
                [
                    writes(stag, addr, &body, len.div_ceil(3)),
                    vec![untagged([0x41, 0x48], 0, [0, 1, 0], &IMM)],
                ]
                .concat(),
            )
        });
        rows.push(Row {
            memory: body.clone(),
            answers: vec![body.clone(), body[len / 2..].to_vec()],
            ..row(
                format!("Write and Reads of {len}"),
                [
                    writes(stag, addr, &body, len),
                    vec![
                        read_request(1, len as u32, stag, addr),
                        read_request(2, (len - len / 2) as u32, stag, addr + len as u64 / 2),
                    ],
                ]
                .concat(),
            )
        });
    }
    rows
}

/// Messages in ULPDUs of the maximum length.
fn longest(stag: u32, addr: u64) -> Vec<Row> {
    let (write, send) = (MAX_ULPDU - 14, MAX_ULPDU - 18);
    let mut rows = Vec::new();
    for count in [1, 2] {
        let body = bytes(write * count);
        rows.push(Row {
            memory: body.clone(),
            ..row(format!("Write in {count} ULPDU of 65535"), writes(stag, addr, &body, write))
        });
        let body = bytes(send * count);
        rows.push(Row {
            receives: vec![(LEN, body.len(), RECV, None)],
            inbox: body.clone(),
            ..row(format!("Send in {count} ULPDU of 65535"), sends(3, 1, &body, send))
        });
    }
    let body = bytes(LEN);
    rows.push(Row {
        memory: body.clone(),
        answers: vec![body.clone()],
        ..row(
            "Write in ULPDUs of 65535, and Read",
            [writes(stag, addr, &body, write), vec![read_request(1, LEN as u32, stag, addr)]].concat(),
        )
    });
    rows
}

/// Fields that a receiver must ignore.
fn ignored(stag: u32, addr: u64) -> Vec<Row> {
    vec![
        Row {
            memory: b"reserved".to_vec(),
            ..row("reserved bits of a tagged header", vec![tagged([0xfd, 0x70], stag, addr, b"reserved")])
        },
        Row {
            receives: vec![(64, 8, RECV, None)],
            inbox: b"reserved".to_vec(),
            ..row(
                "reserved bits of an untagged header",
                vec![untagged([0x7d, 0x73], 0xffff_ffff, [0, 1, 0], b"reserved")],
            )
        },
    ]
}

fn check(
    listening: &Listening,
    rows: fn(u32, u64) -> Vec<Row>,
    at: usize,
    crc: bool,
    pieces: Pieces,
) -> String {
    let (mut wire, end) = listening.establish(crc, &mut terms(20, 12, true, b""));
    let (mut memory, mut inbox) = (vec![0u8; LEN], vec![0u8; LEN]);
    let region = end.register(&mut memory, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ);
    let receives = end.register(&mut inbox, LOCAL_WRITE);
    // SAFETY: the region is still registered.
    let row = unsafe { rows((*region).rkey, (*region).addr as u64) }.swap_remove(at);
    let name = format!("{}, CRC {crc}, {pieces:?}", row.name);
    for (i, (len, ..)) in row.receives.iter().enumerate() {
        assert_eq!(end.post_recv(i as u64, Some(&mut sge(receives, 0, *len))), 0, "{name}");
    }
    let fpdus: Vec<u8> = row.ulpdus.iter().flat_map(|ulpdu| fpdu(ulpdu, crc)).collect();
    wire.send(&fpdus, pieces);
    for answer in &row.answers {
        let mut got = Vec::new();
        loop {
            let ulpdu = wire.ulpdu().unwrap_or_else(|| panic!("{name}: the end instead of an answer"));
            let last = ulpdu[0] == 0xc1;
            let to = SINK.1 + got.len() as u64;
            let header = tagged([if last { 0xc1 } else { 0x81 }, 0x42], SINK.0, to, b"");
            assert_eq!(ulpdu[..14], header, "{name}: the header of a Read Response");
            got.extend_from_slice(&ulpdu[14..]);
            if last {
                break;
            }
        }
        assert!(got == *answer, "{name}: {} bytes in the response", got.len());
    }
    wire.barrier(row.answers.len() as u32 + 1);
    for (i, (_, byte_len, opcode, imm)) in row.receives.iter().enumerate() {
        let expected =
            Wc { wr_id: i as u64, status: 0, opcode: *opcode, byte_len: *byte_len as u32, imm: *imm };
        assert_eq!(end.poll(), expected, "{name}");
    }
    assert_eq!(end.try_poll(), None, "{name}: another completion");
    for (what, got, expected) in [("memory", &memory, &row.memory), ("receive", &inbox, &row.inbox)] {
        assert!(got[..expected.len()] == expected[..], "{name}: other bytes in the {what}");
        assert!(got[expected.len()..].iter().all(|byte| *byte == 0), "{name}: too many bytes in the {what}");
    }
    drop(wire);
    assert_eq!(next_event(end.events).0, DISCONNECTED, "{name}");
    dereg(region);
    dereg(receives);
    end.destroy();
    row.name
}

fn check_all(rows: fn(u32, u64) -> Vec<Row>) {
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    let count = rows(1, 4096).len();
    for at in 0..count {
        let mut name = String::new();
        for (crc, pieces) in
            [(false, Pieces::Whole), (true, Pieces::Whole), (false, Pieces::Bytes), (true, Pieces::Bytes)]
        {
            name = check(&listening, rows, at, crc, pieces);
        }
        bystander.goes_on(&name);
    }
    println!("{count} rows, {} connections", count * 4);
}

#[test]
fn messages_without_payload() {
    check_all(empty);
}

#[test]
fn messages_of_every_length() {
    check_all(lengths);
}

#[test]
fn the_longest_ulpdus() {
    check_all(longest);
}

#[test]
fn reserved_fields_are_ignored() {
    check_all(ignored);
}

/// Without CRCs the field and the pad are ignored; with CRCs the pad may have any value.
#[test]
fn pads_and_unused_crcs_are_ignored() {
    let listening = Listening::new();
    for crc in [false, true] {
        let (mut wire, end) = listening.establish(crc, &mut terms(20, 12, true, b""));
        let mut memory = vec![0u8; 64];
        let region = end.register(&mut memory, LOCAL_WRITE | REMOTE_WRITE);
        // SAFETY: the region is still registered.
        let (stag, addr) = unsafe { ((*region).rkey, (*region).addr as u64) };
        for (i, len) in (1..=4).enumerate() {
            let mut bytes = fpdu(&tagged([0xc1, 0x40], stag, addr + 8 * i as u64, &vec![b'x'; len]), false);
            let pad = 2 + 14 + len;
            let field = bytes.len() - 4;
            bytes[pad..field].fill(0xa5);
            if crc {
                let sum = crc32c(&bytes[..field]);
                bytes[field..].copy_from_slice(&sum.to_le_bytes());
            }
            wire.send(&bytes, Pieces::Whole);
        }
        wire.barrier(1);
        assert_eq!(memory[..32], *b"x\0\0\0\0\0\0\0xx\0\0\0\0\0\0xxx\0\0\0\0\0xxxx\0\0\0\0", "CRC {crc}");
        dereg(region);
        drop(wire);
        assert_eq!(next_event(end.events).0, DISCONNECTED);
        end.destroy();
    }
}

/// MSNs count messages, and each queue has its own.
#[test]
fn messages_of_both_queues_are_counted_separately() {
    let listening = Listening::new();
    for crc in [false, true] {
        let (mut wire, end) = listening.establish(crc, &mut terms(20, 12, true, b""));
        for wr_id in 0..12 {
            assert_eq!(end.post_recv(wr_id, None), 0);
        }
        for msn in 1..=12 {
            let (opcode, body): (u8, &[u8]) = if msn % 2 == 0 { (3, b"") } else { (8, &IMM) };
            wire.send_ulpdu(&untagged([0x41, 0x40 | opcode], 0, [0, msn, 0], body), Pieces::Whole);
            wire.barrier(msn);
        }
        for wr_id in 0..12 {
            assert_eq!(end.poll().wr_id, wr_id);
        }
        drop(wire);
        assert_eq!(next_event(end.events).0, DISCONNECTED);
        end.destroy();
    }
}
