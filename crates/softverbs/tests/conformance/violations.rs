// SPDX-License-Identifier: BSD-3-Clause
//! The table of ULPDUs that a peer must not send, with the Terminate message for each.

use super::peer::*;

/// Memory of the end under test, which the rows access.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    /// [`Memory::len`] bytes that a peer may read, write and change by atomic operations.
    pub stag: u32,
    pub addr: u64,
    pub len: u64,
    /// Memory without remote rights.
    pub bare: (u32, u64),
    /// Memory of another protection domain.
    pub foreign: (u32, u64),
}

/// The parts of a Terminate message besides its code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quote {
    Nothing,
    /// The length and the DDP header of the segment.
    Ddp,
    /// The Read Request, too.
    Read,
}

pub(crate) struct Row {
    pub name: &'static str,
    /// Valid ULPDUs.
    pub before: Vec<Vec<u8>>,
    /// The invalid ULPDU after them.
    pub bad: Vec<u8>,
    /// Layer and error type, error code.
    pub code: [u8; 2],
    /// The same for a peer that has not made a permitted access yet: it learns nothing about an STag.
    pub before_access: [u8; 2],
    pub quote: Quote,
    /// Receives are posted with these lengths; their completions then have these statuses.
    pub receives: Vec<(u32, u32)>,
}

const SUCCESS: u32 = 0;
const LOC_LEN_ERR: u32 = 1;
const FLUSH_ERR: u32 = 5;

impl Row {
    fn new(name: &'static str, bad: Vec<u8>, code: [u8; 2], quote: Quote) -> Self {
        Self { name, before: Vec::new(), bad, code, before_access: code, quote, receives: Vec::new() }
    }

    /// Sets the code that is sent until an access was permitted.
    fn before_access(mut self, code: [u8; 2]) -> Self {
        self.before_access = code;
        self
    }

    fn after(mut self, before: &[Vec<u8>]) -> Self {
        self.before = before.to_vec();
        self
    }

    fn receives(mut self, receives: &[(u32, u32)]) -> Self {
        self.receives = receives.to_vec();
        self
    }

    /// The ULPDU of the Terminate message.
    pub(crate) fn terminate(&self, code: [u8; 2]) -> Vec<u8> {
        let flags = match self.quote {
            Quote::Nothing => 0,
            Quote::Ddp => 0xc0,
            Quote::Read => 0xe0,
        };
        let mut body = vec![code[0], code[1], flags, 0];
        if self.quote != Quote::Nothing {
            let header = if self.bad[0] & 0x80 != 0 { 14 } else { 18 };
            body.extend(u16::try_from(self.bad.len()).unwrap().to_be_bytes());
            body.extend_from_slice(&self.bad[..header]);
            if self.quote == Quote::Read {
                body.extend_from_slice(&self.bad[header..header + 28]);
            }
        }
        untagged([0x41, 0x47], 0, [2, 1, 0], &body)
    }
}

fn ddp(name: &'static str, bad: Vec<u8>, code: [u8; 2]) -> Row {
    Row::new(name, bad, code, Quote::Ddp)
}

fn read(name: &'static str, bad: Vec<u8>, code: [u8; 2]) -> Row {
    Row::new(name, bad, code, Quote::Read)
}

fn write(stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    tagged([0xc1, 0x40], stag, to, payload)
}

fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    untagged([0x41, 0x43], 0, [0, msn, 0], payload)
}

/// Accesses to memory.
pub(crate) fn accesses(memory: &Memory) -> Vec<Row> {
    let Memory { stag, addr, len, bare, foreign } = *memory;
    let end = addr + len;
    vec![
        ddp("Write: unknown STag", write(stag ^ 0x5a5a_0000, addr, b"unknown!"), [0x11, 0]),
        ddp("Write: another key byte", write(stag ^ 1, addr, b"unknown!"), [0x11, 0]),
        ddp("Write: STag 0", write(0, addr, b"unknown!"), [0x11, 0]),
        ddp("Write: other protection domain", write(foreign.0, foreign.1, b"foreign!"), [0x11, 2])
            .before_access([0x11, 0]),
        ddp("Write: right missing", write(bare.0, bare.1, b"no right"), [0x11, 0]),
        ddp("Write: begins before the region", write(stag, addr - 1, b"outside!"), [0x11, 1])
            .before_access([0x11, 0]),
        ddp("Write: ends behind the region", write(stag, end - 7, b"outside!"), [0x11, 1])
            .before_access([0x11, 0]),
        ddp("Write: a byte behind the region", write(stag, end, b"o"), [0x11, 1]).before_access([0x11, 0]),
        ddp("Write: tagged offset wraps", write(stag, u64::MAX - 3, b"wrapping"), [0x11, 3])
            .before_access([0x11, 0]),
        ddp("Write: the second segment is outside", write(stag, end - 4, b"outside!"), [0x11, 1])
            .after(&[tagged([0x81, 0x40], stag, end - 12, &[7; 8])]),
        read("Read: unknown STag", read_request(1, 8, stag ^ 0x5a5a_0000, addr), [0x01, 0]),
        read("Read: another key byte", read_request(1, 8, stag ^ 1, addr), [0x01, 0]),
        read("Read: other protection domain", read_request(1, 8, foreign.0, foreign.1), [0x01, 3])
            .before_access([0x01, 0]),
        read("Read: right missing", read_request(1, 8, bare.0, bare.1), [0x01, 2]).before_access([0x01, 0]),
        read("Read: begins before the region", read_request(1, 8, stag, addr - 1), [0x01, 1])
            .before_access([0x01, 0]),
        read("Read: ends behind the region", read_request(1, 8, stag, end - 7), [0x01, 1])
            .before_access([0x01, 0]),
        read("Read: far more than the region", read_request(1, u32::MAX, stag, addr), [0x01, 1])
            .before_access([0x01, 0]),
        read("Read: tagged offset wraps", read_request(1, 8, stag, u64::MAX - 3), [0x01, 4])
            .before_access([0x01, 0]),
        ddp("Read Response without a request", tagged([0xc1, 0x42], stag, addr, b"response"), [0x11, 0]),
        ddp("empty Read Response without a request", tagged([0xc1, 0x42], 1, 0, b""), [0x11, 0]),
        ddp("Send with Invalidate", untagged([0x41, 0x44], stag, [0, 1, 0], b""), [0x01, 9])
            .receives(&[(64, FLUSH_ERR)]),
        ddp(
            "Send with Invalidate of a foreign STag",
            untagged([0x41, 0x44], foreign.0, [0, 1, 0], b"x"),
            [0x01, 9],
        )
        .receives(&[(64, FLUSH_ERR)]),
        ddp("Send with SE and Invalidate", untagged([0x41, 0x46], foreign.0, [0, 1, 0], b"x"), [0x01, 9])
            .receives(&[(64, FLUSH_ERR)]),
        // The lower layer checks first.
        ddp("Send with Invalidate without receive", untagged([0x41, 0x44], stag, [0, 1, 0], b"x"), [0x12, 2]),
    ]
}

/// Atomic operations (RFC 7306).
pub(crate) fn atomics(memory: &Memory) -> Vec<Row> {
    let Memory { stag, addr, len, bare, foreign } = *memory;
    let add = |stag, to| atomic_request(1, 0, stag, to, [1, 0, 0, u64::MAX]);
    let with = |control: [u8; 2], numbers, len: usize| {
        let mut body = add(stag, addr)[18..].to_vec();
        body.resize(len, 0);
        untagged(control, 0, numbers, &body)
    };
    let response = |numbers, len: usize| untagged([0x41, 0x4b], 0, numbers, &[0; 16][..len]);
    vec![
        ddp("Atomic: unknown STag", add(stag ^ 0x5a5a_0000, addr), [0x01, 0]),
        ddp("Atomic: STag 0", add(0, addr), [0x01, 0]),
        ddp("Atomic: other protection domain", add(foreign.0, foreign.1), [0x01, 3]).before_access([0x01, 0]),
        ddp("Atomic: right missing", add(bare.0, bare.1), [0x01, 2]).before_access([0x01, 0]),
        ddp("Atomic: begins before the region", add(stag, addr - 8), [0x01, 1]).before_access([0x01, 0]),
        ddp("Atomic: ends behind the region", add(stag, addr + len - 4), [0x01, 1]).before_access([0x01, 0]),
        ddp("Atomic: tagged offset wraps", add(stag, u64::MAX - 3), [0x01, 4]).before_access([0x01, 0]),
        ddp("Atomic: not aligned", add(stag, addr + 4), [0x02, 7]),
        ddp("Atomic: by a byte", add(stag, addr + 1), [0x02, 7]),
        ddp("Atomic: operation 1", atomic_request(1, 1, stag, addr, [1; 4]), [0x02, 6]),
        ddp("Atomic: operation 15", atomic_request(1, 15, stag, addr, [1; 4]), [0x02, 6]),
        ddp("Atomic Request: QN 0", with([0x41, 0x4a], [0, 1, 0], 52), [0x12, 1]),
        ddp("Atomic Request: QN 3", with([0x41, 0x4a], [3, 1, 0], 52), [0x12, 1]),
        ddp("Atomic Request: MSN 0", with([0x41, 0x4a], [1, 0, 0], 52), [0x12, 3]),
        ddp("Atomic Request: the MSN of a read", add(stag, addr), [0x12, 3])
            .after(&[read_request(1, 0, 0, 0)]),
        ddp("Atomic Request: MO", with([0x41, 0x4a], [1, 1, 8], 52), [0x12, 4]),
        ddp("Atomic Request in two segments", with([0x01, 0x4a], [1, 1, 0], 52), [0x12, 5]),
        ddp("Atomic Request too long", with([0x41, 0x4a], [1, 1, 0], 53), [0x12, 5]),
        ddp("Atomic Request too short", with([0x41, 0x4a], [1, 1, 0], 51), [0x02, 7]),
        ddp("Atomic Response without a request", response([3, 1, 0], 12), [0x12, 2]),
        ddp("Atomic Response: QN 1", response([1, 1, 0], 12), [0x12, 1]),
        ddp("Atomic Response: MSN 2 first", response([3, 2, 0], 12), [0x12, 3]),
        ddp("Atomic Response too long", response([3, 1, 0], 13), [0x12, 5]),
        ddp("Atomic Response too short", response([3, 1, 0], 11), [0x02, 7]),
    ]
}

/// The order of untagged messages, and their buffers.
pub(crate) fn order(memory: &Memory) -> Vec<Row> {
    let Memory { stag, addr, .. } = *memory;
    let flushed = &[(64, FLUSH_ERR)][..];
    let first_of_two = [untagged([0x01, 0x43], 0, [0, 1, 0], b"first of ")];
    let second = |control: u8, msn, mo| untagged([0x41, control], 0, [0, msn, mo], b"two");
    let good_read = read_request(1, 0, 0, 0);
    let read_with = |control: [u8; 2], numbers, len: usize| {
        let mut body = read_request(1, 8, stag, addr)[18..].to_vec();
        body.resize(len, 0);
        untagged(control, 0, numbers, &body)
    };
    vec![
        ddp("Send without receive", send(1, b"nowhere"), [0x12, 2]),
        ddp("empty Send without receive", send(1, b""), [0x12, 2]),
        ddp("second Send without receive", send(2, b"nowhere"), [0x12, 2])
            .after(&[send(1, b"there")])
            .receives(&[(64, SUCCESS)]),
        ddp(
            "Immediate Data without receive",
            untagged([0x41, 0x48], 0, [0, 1, 0], b"imme\0\0\0\0"),
            [0x12, 2],
        ),
        ddp("Send longer than the receive", send(1, &[1; 65]), [0x12, 5])
            .receives(&[(64, LOC_LEN_ERR), (64, FLUSH_ERR)]),
        ddp(
            "Send longer than the receive by its second segment",
            untagged([0x41, 0x43], 0, [0, 1, 60], b"12345"),
            [0x12, 5],
        )
        .after(&[untagged([0x01, 0x43], 0, [0, 1, 0], &[1; 60])])
        .receives(&[(64, LOC_LEN_ERR)]),
        ddp("Send into a receive without memory", send(1, b"x"), [0x12, 5]).receives(&[(0, LOC_LEN_ERR)]),
        ddp("Send: MSN 0", send(0, b"x"), [0x12, 3]).receives(flushed),
        ddp("Send: MSN 2 first", send(2, b"x"), [0x12, 3]).receives(flushed),
        ddp("Send: MSN twice", send(1, b"x"), [0x12, 3])
            .after(&[send(1, b"x")])
            .receives(&[(64, SUCCESS), (64, FLUSH_ERR)]),
        ddp("Send: MSN changes within the message", second(0x43, 2, 9), [0x12, 3])
            .after(&first_of_two)
            .receives(flushed),
        ddp("Send: MO of the first segment", untagged([0x41, 0x43], 0, [0, 1, 1], b"x"), [0x12, 4])
            .receives(flushed),
        ddp("Send: MO with a gap", second(0x43, 1, 10), [0x12, 4]).after(&first_of_two).receives(flushed),
        ddp("Send: MO again", second(0x43, 1, 0), [0x12, 4]).after(&first_of_two).receives(flushed),
        ddp("Send: another opcode within the message", second(0x45, 1, 9), [0x02, 6])
            .after(&first_of_two)
            .receives(flushed),
        ddp("Send: QN 1", untagged([0x41, 0x43], 0, [1, 1, 0], b"x"), [0x12, 1]).receives(flushed),
        ddp("Send: QN 3", untagged([0x41, 0x43], 0, [3, 1, 0], b"x"), [0x12, 1]).receives(flushed),
        ddp("Send: QN ffffffff", untagged([0x41, 0x43], 0, [u32::MAX, 1, 0], b"x"), [0x12, 1])
            .receives(flushed),
        ddp("Read Request: QN 0", read_with([0x41, 0x41], [0, 1, 0], 28), [0x12, 1]).receives(flushed),
        ddp("Read Request: QN 2", read_with([0x41, 0x41], [2, 1, 0], 28), [0x12, 1]),
        ddp("Read Request: MSN 0", read_with([0x41, 0x41], [1, 0, 0], 28), [0x12, 3]),
        ddp("Read Request: MSN 2 first", read_with([0x41, 0x41], [1, 2, 0], 28), [0x12, 3]),
        ddp("Read Request: MSN twice", good_read.clone(), [0x12, 3]).after(&[good_read]),
        ddp("Read Request: MO", read_with([0x41, 0x41], [1, 1, 4], 28), [0x12, 4]),
        ddp("Read Request in two segments", read_with([0x01, 0x41], [1, 1, 0], 28), [0x12, 5]),
        ddp("Read Request too long", read_with([0x41, 0x41], [1, 1, 0], 29), [0x12, 5]),
        ddp("Read Request too short", read_with([0x41, 0x41], [1, 1, 0], 27), [0x02, 7]),
        ddp("Immediate Data too long", untagged([0x41, 0x48], 0, [0, 1, 0], &[0; 9]), [0x12, 5])
            .receives(flushed),
        ddp("Immediate Data too short", untagged([0x41, 0x48], 0, [0, 1, 0], &[0; 7]), [0x02, 7])
            .receives(flushed),
        ddp("Immediate Data: MSN", untagged([0x41, 0x49], 0, [0, 2, 0], &[0; 8]), [0x12, 3])
            .receives(flushed),
    ]
}

/// Versions and opcodes.
pub(crate) fn headers(memory: &Memory) -> Vec<Row> {
    let Memory { stag, addr, .. } = *memory;
    let to_memory = |control| tagged(control, stag, addr, b"versions");
    let to_receive = |control| untagged(control, 0, [0, 1, 0], b"versions");
    let flushed = &[(64, FLUSH_ERR)][..];
    let mut rows = vec![
        ddp("tagged: DDP version 0", to_memory([0xc0, 0x40]), [0x11, 4]),
        ddp("tagged: DDP version 2", to_memory([0xc2, 0x40]), [0x11, 4]),
        ddp("tagged: DDP version 3", to_memory([0xc3, 0x40]), [0x11, 4]),
        ddp("untagged: DDP version 0", to_receive([0x40, 0x43]), [0x12, 6]).receives(flushed),
        ddp("untagged: DDP version 2", to_receive([0x42, 0x43]), [0x12, 6]).receives(flushed),
        ddp("untagged: DDP version 3", to_receive([0x43, 0x43]), [0x12, 6]).receives(flushed),
        ddp("tagged: RDMAP version 0", to_memory([0xc1, 0x00]), [0x02, 5]),
        ddp("tagged: RDMAP version 2", to_memory([0xc1, 0x80]), [0x02, 5]),
        ddp("untagged: RDMAP version 0", to_receive([0x41, 0x03]), [0x02, 5]).receives(flushed),
        ddp("untagged: RDMAP version 3", to_receive([0x41, 0xc3]), [0x02, 5]).receives(flushed),
        ddp("untagged Write", to_receive([0x41, 0x40]), [0x02, 6]).receives(flushed),
        ddp("untagged Read Response", to_receive([0x41, 0x42]), [0x02, 6]).receives(flushed),
    ];
    for opcode in 0xc..=0xf {
        rows.push(
            ddp("untagged: unknown opcode", to_receive([0x41, 0x40 | opcode]), [0x02, 6]).receives(flushed),
        );
        rows.push(ddp("tagged: unknown opcode", to_memory([0xc1, 0x40 | opcode]), [0x02, 6]));
    }
    for opcode in [1, 3, 4, 5, 6, 7, 8, 9, 0xa, 0xb] {
        rows.push(ddp("tagged: opcode of an untagged message", to_memory([0xc1, 0x40 | opcode]), [0x02, 6]));
    }
    // A ULPDU without room for its header cannot be quoted.
    for len in [0, 1, 2, 13] {
        rows.push(Row::new(
            "tagged: shorter than its header",
            to_memory([0xc1, 0x40])[..len].to_vec(),
            [0x20, 3],
            Quote::Nothing,
        ));
    }
    for len in [1, 2, 14, 17] {
        rows.push(Row::new(
            "untagged: shorter than its header",
            to_receive([0x41, 0x43])[..len].to_vec(),
            [0x20, 3],
            Quote::Nothing,
        ));
    }
    rows
}
