// SPDX-License-Identifier: BSD-3-Clause
//! Violations end the connection with their Terminate message, and nothing after them is carried out.

use super::bystander::Bystander;
use super::common::*;
use super::peer::*;
use super::violations::{self, Memory, Row};
use rdma_sys::*;
use std::net::Shutdown;

const LEN: usize = 4096;

/// An end with the memory of the tables, filled with 7.
struct Ground {
    bytes: Vec<u8>,
    regions: [*mut ibv_mr; 3],
    other: End,
    pub memory: Memory,
}

impl Ground {
    fn of(end: &End) -> Self {
        let mut bytes = vec![7; 4 * LEN];
        let (other, _) = End::new(1);
        // The first part is not registered.
        let mut parts = bytes.chunks_mut(LEN).skip(1);
        let mut part = |end: &End, access| end.register(parts.next().unwrap(), access);
        let all = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
        let regions = [part(end, all), part(end, LOCAL_WRITE), part(&other, all)];
        // SAFETY: the regions are still registered.
        let place = |mr: *mut ibv_mr| unsafe { ((*mr).rkey, (*mr).addr as u64) };
        let ((stag, addr), bare, foreign) = (place(regions[0]), place(regions[1]), place(regions[2]));
        Self { bytes, regions, other, memory: Memory { stag, addr, len: LEN as u64, bare, foreign } }
    }

    fn check_and_destroy(self, end: End, name: &str) {
        assert!(self.bytes.iter().all(|byte| *byte == 7), "{name}: memory was written");
        self.regions.into_iter().for_each(dereg);
        end.destroy();
        self.other.destroy_unconnected();
    }
}

/// The variants in which each row is run.
#[derive(Clone, Copy, Debug)]
struct Variant {
    crc: bool,
    pieces: Pieces,
    admitted: bool,
}

fn variants() -> impl Iterator<Item = Variant> {
    (0..8).map(|bits| Variant {
        crc: bits & 1 != 0,
        pieces: if bits & 2 != 0 { Pieces::Bytes } else { Pieces::Whole },
        admitted: bits & 4 != 0,
    })
}

fn check(listening: &Listening, rows: fn(&Memory) -> Vec<Row>, at: usize, variant: Variant) -> &'static str {
    let (mut wire, end) = listening.establish(variant.crc, &mut terms(20, 12, false, b""));
    let ground = Ground::of(&end);
    let row = rows(&ground.memory).swap_remove(at);
    let name = format!("{}, {variant:?}", row.name);
    let mut inbox = vec![0u8; 1024];
    let receives = end.register(&mut inbox, LOCAL_WRITE);
    for (i, (len, _)) in row.receives.iter().enumerate() {
        let mut entry = sge(receives, 64 * i, *len as usize);
        assert_eq!(end.post_recv(i as u64, Some(&mut entry)), 0, "{name}");
    }
    let Memory { stag, addr, .. } = ground.memory;
    if variant.admitted {
        wire.send_ulpdu(&tagged([0xc1, 0x40], stag, addr, &[7; 8]), Pieces::Whole);
    }
    let answers = row.before.iter().filter(|ulpdu| ulpdu[1] == 0x41).count();
    for ulpdu in &row.before {
        wire.send_ulpdu(ulpdu, variant.pieces);
    }
    for _ in 0..answers {
        assert_eq!(wire.ulpdu(), Some(tagged([0xc1, 0x42], SINK.0, SINK.1, b"")), "{name}");
    }
    // Nothing after the bad segment may have an effect.
    let behind = tagged([0xc1, 0x40], stag, addr, b"too late");
    let both = [fpdu(&row.bad, variant.crc), fpdu(&behind, variant.crc)].concat();
    wire.send(&both, variant.pieces);
    let code = if variant.admitted { row.code } else { row.before_access };
    let expected = row.terminate(code);
    let got = wire.ulpdu();
    assert!(got.as_ref() == Some(&expected), "{name}:\nanswered {got:02x?}\ninstead of {expected:02x?}");
    assert_eq!(wire.ulpdu(), None, "{name}: something follows the Terminate message");
    assert_eq!(next_event(end.events).0, DISCONNECTED, "{name}");
    for (i, (_, status)) in row.receives.iter().enumerate() {
        let wc = end.poll();
        assert_eq!((wc.wr_id, wc.status), (i as u64, *status), "{name}");
    }
    assert_eq!(end.try_poll(), None, "{name}: another completion");
    dereg(receives);
    ground.check_and_destroy(end, &name);
    row.name
}

fn check_all(rows: fn(&Memory) -> Vec<Row>) {
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    let count = rows(&Memory { addr: 4096, ..Memory::default() }).len();
    for at in 0..count {
        let mut name = "";
        for variant in variants() {
            name = check(&listening, rows, at, variant);
        }
        bystander.goes_on(name);
    }
    println!("{count} rows, {} connections", count * variants().count());
}

#[test]
fn accesses_that_are_not_permitted() {
    check_all(violations::accesses);
}

#[test]
fn atomic_operations_that_are_not_permitted() {
    check_all(violations::atomics);
}

#[test]
fn messages_out_of_order_or_without_a_buffer() {
    check_all(violations::order);
}

#[test]
fn undefined_headers() {
    check_all(violations::headers);
}

/// Each byte of an FPDU counts: the length (as long as it stays within what was sent), the ULPDU, the pad,
/// the CRC itself.
#[test]
fn a_wrong_crc() {
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    let count = 2 + 14 + 5 + 3 + 4;
    for at in 1..count {
        for pieces in [Pieces::Whole, Pieces::Bytes] {
            let (mut wire, end) = listening.establish(true, &mut terms(20, 12, true, b""));
            let ground = Ground::of(&end);
            let Memory { stag, addr, .. } = ground.memory;
            let mut bytes = fpdu(&tagged([0xc1, 0x40], stag, addr, b"wrong"), true);
            assert_eq!(bytes.len(), count);
            bytes[at] ^= 4;
            wire.send(&bytes, pieces);
            // If the length has grown, the next FPDU completes it.
            wire.send(&fpdu(&tagged([0xc1, 0x40], stag, addr, b"too late"), true), pieces);
            let name = format!("byte {at} of the FPDU is wrong, {pieces:?}");
            assert_eq!(wire.ulpdu(), Some(untagged([0x41, 0x47], 0, [2, 1, 0], &[0x20, 2, 0, 0])), "{name}");
            assert_eq!(wire.ulpdu(), None, "{name}");
            assert_eq!(next_event(end.events).0, DISCONNECTED, "{name}");
            ground.check_and_destroy(end, &name);
        }
    }
    bystander.goes_on("wrong CRCs");
}

/// Responses that do not match the Read of the end under test.
#[test]
fn read_responses_without_a_matching_read() {
    const READ: u32 = 64;
    const WR_FLUSH_ERR: u32 = 5;
    type Response = fn(u32, u64) -> Vec<Vec<u8>>;
    let body = |len: usize| vec![9u8; len];
    // Responses of which the last one is refused, with this code.
    let rows: [(&str, Response, [u8; 2]); 11] = [
        (
            "the STag of the next Read",
            |stag, to| vec![tagged([0xc1, 0x42], stag + 1, to, &[9; 64])],
            [0x11, 0],
        ),
        ("an RDMA Write to the sink", |stag, to| vec![tagged([0xc1, 0x40], stag, to, &[9; 64])], [0x11, 0]),
        ("another STag", |stag, to| vec![tagged([0xc1, 0x42], stag ^ 1, to, &[9; 64])], [0x11, 0]),
        ("another tagged offset", |stag, to| vec![tagged([0xc1, 0x42], stag, to + 1, &[9; 64])], [0x11, 1]),
        ("too long", |stag, to| vec![tagged([0xc1, 0x42], stag, to, &[9; 65])], [0x11, 1]),
        ("too short", |stag, to| vec![tagged([0xc1, 0x42], stag, to, &[9; 63])], [0x11, 1]),
        ("empty", |stag, to| vec![tagged([0xc1, 0x42], stag, to, b"")], [0x11, 1]),
        (
            "complete but not the last segment",
            |stag, to| vec![tagged([0x81, 0x42], stag, to, &[9; 64])],
            [0x11, 1],
        ),
        (
            "a gap between segments",
            |stag, to| {
                vec![tagged([0x81, 0x42], stag, to, &[9; 32]), tagged([0xc1, 0x42], stag, to + 33, &[9; 31])]
            },
            [0x11, 1],
        ),
        (
            "the first segment again",
            |stag, to| {
                vec![tagged([0x81, 0x42], stag, to, &[9; 32]), tagged([0xc1, 0x42], stag, to, &[9; 32])]
            },
            [0x11, 1],
        ),
        (
            "twice",
            |stag, to| {
                vec![tagged([0xc1, 0x42], stag, to, &[9; 64]), tagged([0xc1, 0x42], stag, to, &[9; 64])]
            },
            [0x11, 0],
        ),
    ];
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    for (name, responses, code) in rows {
        for variant in variants() {
            let name = format!("{name}, {variant:?}");
            let (mut wire, end) = listening.establish(variant.crc, &mut terms(20, 12, true, b""));
            wire.send_ulpdu(&tagged([0xc1, 0x40], 1, 0, b""), Pieces::Whole);
            let mut sink = body(3 * READ as usize);
            let mr = end.register(&mut sink[READ as usize..2 * READ as usize], LOCAL_WRITE);
            let mut wr = request(ibv_wr_opcode::IBV_WR_RDMA_READ, 4, SIGNALED);
            wr.wr.rdma.remote_addr = 0x9000;
            wr.wr.rdma.rkey = 0x77;
            assert_eq!(end.post(&mut wr, Some(&mut sge(mr, 0, READ as usize))), 0);
            // The sink of the first Read.
            let (stag, to) = (0xff00_0001u32, 0u64);
            let numbers = [
                &stag.to_be_bytes()[..],
                &to.to_be_bytes(),
                &READ.to_be_bytes(),
                &hex("00000077 0000000000009000"),
            ];
            let asked = untagged([0x41, 0x41], 0, [1, 1, 0], &numbers.concat());
            assert_eq!(wire.ulpdu(), Some(asked), "{name}: the Read Request");
            let sent = responses(stag, to);
            for ulpdu in &sent {
                wire.send_ulpdu(ulpdu, variant.pieces);
            }
            let bad = sent.last().unwrap();
            let len = u16::try_from(bad.len()).unwrap().to_be_bytes();
            let quoted = [&[code[0], code[1], 0xc0, 0][..], &len, &bad[..14]].concat();
            assert_eq!(wire.ulpdu(), Some(untagged([0x41, 0x47], 0, [2, 1, 0], &quoted)), "{name}");
            assert_eq!(wire.ulpdu(), None, "{name}");
            assert_eq!(next_event(end.events).0, DISCONNECTED, "{name}");
            let status = if code == [0x11, 0] && sent.len() == 2 { 0 } else { WR_FLUSH_ERR };
            let wc = end.poll();
            assert_eq!((wc.wr_id, wc.status), (4, status), "{name}");
            assert!(sink.iter().all(|byte| *byte == 9), "{name}");
            dereg(mr);
            end.destroy();
        }
        bystander.goes_on(name);
    }
}

/// A Terminate message ends the connection and is not answered, whatever its form.
#[test]
fn terminate_messages_are_not_answered() {
    let bodies: [(&str, Vec<u8>); 9] = [
        ("of the standard", hex("1100 c000 001b c140 12345601 0000000010002000")),
        ("of the kernel's software iWARP", hex("1100 0300 000d c140 12345601 0000000010002000")),
        ("without header", hex("2002 0000")),
        ("of an unknown layer", hex("f0ff 0000")),
        ("whose header is missing", hex("1100 c000")),
        ("with a Read Request", [hex("0100 e000"), hex("002e"), read_request(1, 8, 9, 9)].concat()),
        ("too short", hex("2002 00")),
        ("empty", Vec::new()),
        ("too long", vec![0; 53]),
    ];
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    for (name, body) in bodies {
        for (numbers, more) in
            [([2, 1, 0], ""), ([2, 7, 0], " with another MSN"), ([0, 1, 0], " on another queue")]
        {
            let name = format!("Terminate message {name}{more}");
            let (mut wire, end) = listening.establish(false, &mut terms(20, 12, true, b""));
            wire.send_ulpdu(&untagged([0x41, 0x47], 0, numbers, &body), Pieces::Whole);
            wire.stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(wire.ulpdu(), None, "{name}");
            assert_eq!(next_event(end.events).0, DISCONNECTED, "{name}");
            end.destroy();
        }
        bystander.goes_on(name);
    }
}

/// While the peer does not read, responses cannot be sent; the first Read beyond the maximum IRD ends the
/// connection.
#[test]
fn more_reads_than_the_maximum_ird() {
    const SIZE: usize = 1 << 20;
    const READS: u32 = 400;
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    let (mut wire, end) = listening.establish(false, &mut terms(20, 12, true, b""));
    let mut bytes = vec![7u8; SIZE];
    let mr = end.register(&mut bytes, LOCAL_WRITE | REMOTE_READ);
    // SAFETY: the region is still registered.
    let (stag, addr) = unsafe { ((*mr).rkey, (*mr).addr as u64) };
    let reads: Vec<u8> =
        (1..=READS).flat_map(|msn| fpdu(&read_request(msn, SIZE as u32, stag, addr), false)).collect();
    wire.send(&reads, Pieces::Whole);
    assert_eq!(next_event(end.events).0, DISCONNECTED);
    let mut last = Vec::new();
    while let Some(ulpdu) = wire.ulpdu() {
        last = ulpdu;
    }
    assert_eq!(last[..18], untagged([0x41, 0x47], 0, [2, 1, 0], b""), "the last message");
    let body = &last[18..];
    assert_eq!(body[..6], [0x02, 7, 0xc0, 0, 0, 46], "the code, and the length of the segment");
    assert_eq!(body[6..16], hex("4141 00000000 00000001"), "its header");
    let msn = u32::from_be_bytes(*body[16..].first_chunk().unwrap());
    assert!((129..=READS).contains(&msn), "Read {msn} was one too many");
    assert_eq!(body.len(), 24);
    dereg(mr);
    end.destroy();
    bystander.goes_on("too many Reads");
}
