// SPDX-License-Identifier: BSD-3-Clause
//! The messages of work requests, byte by byte.

use super::bystander::Bystander;
use super::common::*;
use super::messages::{IMM, LEN, bytes};
use super::peer::*;
use rdma_sys::*;

/// A work request (name, opcode, flags, length) and its ULPDUs.
type Posted<'a> = (&'a str, u32, u32, usize, Vec<Vec<u8>>);

#[test]
fn work_requests_become_messages() {
    const ZERO: usize = 0;
    let mut bystander = Bystander::start();
    let listening = Listening::new();
    for crc in [false, true] {
        let (mut wire, end) = listening.establish(crc, &mut terms(20, 12, true, b""));
        wire.send_ulpdu(&tagged([0xc1, 0x40], 1, 0, b""), Pieces::Whole);
        let mut source = bytes(LEN);
        let mr = end.register(&mut source, LOCAL_WRITE);
        let (to, rkey) = (0x0102_0304_0506_0708u64, 0x1122_3344u32);
        let (send, immediate) = (ibv_wr_opcode::IBV_WR_SEND, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM);
        let (write, with_immediate) =
            (ibv_wr_opcode::IBV_WR_RDMA_WRITE, ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM);
        let read = ibv_wr_opcode::IBV_WR_RDMA_READ;
        let solicited = 4;
        let queue = |control: u8, msn| untagged([0x41, control], 0, [0, msn, 0], b"");
        let with = |header: Vec<u8>, body: &[u8]| [&header[..], body].concat();
        // The sink STag is not that of the region: it is valid for this read only, and its offsets begin at
        // 0.
        let reads = |msn, stag: u32, size: u32, rkey: u32| {
            let fields = [
                &stag.to_be_bytes()[..],
                &0u64.to_be_bytes(),
                &size.to_be_bytes(),
                &rkey.to_be_bytes(),
                &to.to_be_bytes(),
            ];
            untagged([0x41, 0x41], 0, [1, msn, 0], &fields.concat())
        };
        // The immediate data of a Send precede it, and are marked in the bytes that adapters leave zero.
        let rows: [Posted; 13] = [
            ("Write of nothing", write, 0, ZERO, vec![tagged([0xc1, 0x40], 1, to, b"")]),
            ("Write", write, 0, 5, vec![tagged([0xc1, 0x40], rkey, to, &source[..5])]),
            ("Send of nothing", send, 0, ZERO, vec![queue(0x43, 1)]),
            ("Send", send, 0, 7, vec![with(queue(0x43, 2), &source[..7])]),
            ("Send with SE of nothing", send, solicited, ZERO, vec![queue(0x45, 3)]),
            ("Send with SE", send, solicited, 9, vec![with(queue(0x45, 4), &source[..9])]),
            (
                "Send with immediate data, of nothing",
                immediate,
                0,
                ZERO,
                vec![with(queue(0x48, 5), b"abcdSend"), queue(0x43, 6)],
            ),
            (
                "Send with immediate data and SE",
                immediate,
                solicited,
                3,
                vec![with(queue(0x49, 7), b"abcdSend"), with(queue(0x45, 8), &source[..3])],
            ),
            (
                "Write with immediate data, of nothing",
                with_immediate,
                0,
                ZERO,
                vec![tagged([0xc1, 0x40], 1, to, b""), with(queue(0x48, 9), &IMM)],
            ),
            (
                "Write with immediate data and SE",
                with_immediate,
                solicited,
                4,
                vec![tagged([0xc1, 0x40], rkey, to, &source[..4]), with(queue(0x49, 10), &IMM)],
            ),
            ("Read of nothing", read, 0, ZERO, vec![reads(1, 1, 0, 1)]),
            ("Read", read, 0, 64, vec![reads(2, 0xff00_0002, 64, rkey)]),
            ("Send once more", send, 0, 1, vec![with(queue(0x43, 11), &source[..1])]),
        ];
        for (i, (name, opcode, flags, len, expected)) in rows.iter().enumerate() {
            let mut wr = request(*opcode, i as u64, SIGNALED | flags);
            wr.wr.rdma.remote_addr = to;
            wr.wr.rdma.rkey = rkey;
            wr.__bindgen_anon_1.imm_data = 0x6162_6364u32.to_be();
            assert_eq!(end.post(&mut wr, Some(&mut sge(mr, 0, *len))), 0, "{name}");
            for ulpdu in expected {
                let got = wire.ulpdu();
                assert!(got.as_ref() == Some(ulpdu), "{name}:\nsent {got:02x?}\ninstead of {ulpdu:02x?}");
            }
            if *opcode == read {
                let stag = if *len == 0 { 1 } else { 0xff00_0002 };
                wire.send_ulpdu(&tagged([0xc1, 0x42], stag, 0, &source[..*len]), Pieces::Whole);
            }
            let wc = end.poll();
            assert_eq!((wc.wr_id, wc.status), (i as u64, 0), "{name}");
        }
        dereg(mr);
        drop(wire);
        assert_eq!(next_event(end.events).0, DISCONNECTED);
        end.destroy();
        bystander.goes_on("what is sent");
    }
}

/// Messages of more than one ULPDU: offsets increase, and only the last segment has the flag.
#[test]
fn long_work_requests_become_segments() {
    let listening = Listening::new();
    for crc in [false, true] {
        let (mut wire, end) = listening.establish(crc, &mut terms(20, 12, true, b""));
        wire.send_ulpdu(&tagged([0xc1, 0x40], 1, 0, b""), Pieces::Whole);
        let mut source = bytes(LEN);
        let mr = end.register(&mut source, LOCAL_WRITE);
        let mut wr = request(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 1, SIGNALED);
        wr.wr.rdma.remote_addr = 0xffff_ff00;
        wr.wr.rdma.rkey = 0x99;
        assert_eq!(end.post(&mut wr, Some(&mut sge(mr, 0, LEN))), 0);
        assert_eq!(
            end.post(&mut request(ibv_wr_opcode::IBV_WR_SEND, 2, SIGNALED), Some(&mut sge(mr, 0, LEN))),
            0
        );
        for tagged_message in [true, false] {
            let mut got = Vec::new();
            while got.len() < LEN {
                let ulpdu = wire.ulpdu().expect("a segment");
                let at = got.len() as u32;
                let (header, control) = if tagged_message { (14, 0x81) } else { (18, 0x01) };
                got.extend_from_slice(&ulpdu[header..]);
                let control = control | if got.len() == LEN { 0x40 } else { 0 };
                let expected = if tagged_message {
                    tagged([control, 0x40], 0x99, 0xffff_ff00 + u64::from(at), b"")
                } else {
                    untagged([control, 0x43], 0, [0, 1, at], b"")
                };
                assert_eq!(ulpdu[..header], expected, "CRC {crc}, at {at}");
            }
            assert!(got == source, "CRC {crc}: other bytes");
        }
        assert_eq!((end.poll().wr_id, end.poll().wr_id), (1, 2));
        dereg(mr);
        drop(wire);
        assert_eq!(next_event(end.events).0, DISCONNECTED);
        end.destroy();
    }
}
