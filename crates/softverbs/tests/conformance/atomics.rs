// SPDX-License-Identifier: BSD-3-Clause
//! Atomic operations (RFC 7306), byte by byte, in both roles.

use super::common::*;
use super::peer::*;
use rdma_sys::*;

/// The fields of a request of 52 bytes: operation, data and its mask, comparand and its mask.
type Asked = (u8, [u64; 4]);

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The response of the provider.
fn response(msn: u32, request_id: u32, original: u64) -> Vec<u8> {
    untagged([0x41, 0x4b], 0, [3, msn, 0], &[&request_id.to_be_bytes()[..], &original.to_be_bytes()].concat())
}

#[test]
fn requests_of_a_peer_change_words_and_return_the_previous_values() {
    const ALL: u64 = u64::MAX;
    // Request, the word before it, and after it.
    let rows: [(&str, Asked, u64, u64); 9] = [
        ("add", (0, [5, 0, 0, ALL]), 7, 12),
        ("add past the end", (0, [2, 0, 0, ALL]), ALL, 1),
        ("add in two halves", (0, [0x1_0000_0001, 1 << 31, 0, ALL]), 0x2_ffff_ffff, 0x3_0000_0000),
        ("add: the comparand is ignored", (0, [1, 0, 99, 0]), 1, 2),
        ("swap", (2, [0x1122_3344_5566_7788, ALL, 7, ALL]), 7, 0x1122_3344_5566_7788),
        ("no swap", (2, [99, ALL, 8, ALL]), 7, 7),
        ("swap some bits", (2, [ALL, 0xff00, 7, ALL]), 7, 0xff07),
        ("compare some bits", (2, [99, ALL, 0xaa07, 0xff]), 0xbb07, 99),
        ("compare and swap nothing", (2, [99, 0, 5, 0]), 7, 7),
    ];
    let listening = Listening::new();
    for (crc, pieces) in [(false, Pieces::Whole), (true, Pieces::Whole), (false, Pieces::Bytes)] {
        let (mut wire, end) = listening.establish(crc, &mut terms(20, 12, true, b""));
        let mut memory = words(&[0; 4]);
        let mr = end.register(&mut memory, LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC);
        // SAFETY: the region is still registered.
        let (stag, addr) = unsafe { ((*mr).rkey, (*mr).addr as u64) };
        for (i, (name, (operation, fields), before, after)) in rows.into_iter().enumerate() {
            let msn = i as u32 + 1;
            wire.send_ulpdu(&tagged([0xc1, 0x40], stag, addr + 8, &before.to_ne_bytes()), pieces);
            wire.send_ulpdu(&atomic_request(msn, operation, stag, addr + 8, fields), pieces);
            assert_eq!(wire.ulpdu(), Some(response(msn, !msn, before)), "{name}");
            // SAFETY: the eight bytes are within `memory`, and nothing changes it any more.
            let now = unsafe { (memory.as_ptr().add(8) as *const u64).read_unaligned() };
            assert_eq!(now, after, "{name}");
        }
        // Responses have the order of the requests, whatever their kind.
        let next = rows.len() as u32 + 1;
        wire.send_ulpdu(&read_request(next, 0, 0, 0), pieces);
        wire.send_ulpdu(&atomic_request(next + 1, 0, stag, addr, [1, 0, 0, ALL]), pieces);
        wire.send_ulpdu(&read_request(next + 2, 0, 0, 0), pieces);
        let nothing = Some(tagged([0xc1, 0x42], SINK.0, SINK.1, b""));
        assert_eq!(wire.ulpdu(), nothing);
        assert_eq!(wire.ulpdu(), Some(response(next, !(next + 1), 0)));
        assert_eq!(wire.ulpdu(), nothing);
        drop(wire);
        assert_eq!(next_event(end.events).0, DISCONNECTED);
        dereg(mr);
        end.destroy();
        assert_eq!(memory[..8], 1u64.to_ne_bytes());
        assert!(memory[16..].iter().all(|byte| *byte == 0), "other words were changed");
    }
}

#[test]
fn work_requests_become_atomic_requests_and_store_the_response() {
    let (to, rkey) = (0x0102_0304_0506_0708u64, 0x1122_3344u32);
    let listening = Listening::new();
    for crc in [false, true] {
        let (mut wire, end) = listening.establish(crc, &mut terms(20, 8, true, b""));
        wire.send_ulpdu(&tagged([0xc1, 0x40], 1, 0, b""), Pieces::Whole);
        let mut memory = vec![7u8; 64];
        let mr = end.register(&mut memory, LOCAL_WRITE);
        let add = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
        let swap = ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
        for (i, opcode) in [add, swap, add].into_iter().enumerate() {
            let mut wr = request(opcode, i as u64, SIGNALED);
            wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
                remote_addr: to,
                compare_add: 0xaabb_ccdd,
                swap: 0x5566,
                rkey,
            };
            // The destination of the second result is not aligned.
            assert_eq!(end.post(&mut wr, Some(&mut sge(mr, 16 * i + i % 2, 8))), 0);
            let msn = i as u32 + 1;
            let ulpdu = wire.ulpdu().unwrap();
            let (operation, fields) = match opcode == add {
                true => (0, [0xaabb_ccdd, 0, 0, u64::MAX]),
                false => (2, [0x5566, u64::MAX, 0xaabb_ccdd, u64::MAX]),
            };
            let mut expected = atomic_request(msn, operation, rkey, to, fields);
            // The requester chooses the request identifier.
            let id: [u8; 4] = ulpdu[22..26].try_into().unwrap();
            expected[22..26].copy_from_slice(&id);
            assert_eq!(ulpdu, expected);
            let original = 0x1111_2222_3333_4440 + i as u64;
            wire.send_ulpdu(&response(msn, u32::from_be_bytes(id), original), Pieces::Whole);
            let wc = end.poll();
            let kind = if opcode == add { 4 } else { 3 };
            assert_eq!((wc.wr_id, wc.status, wc.opcode, wc.byte_len), (i as u64, 0, kind, 8));
            assert_eq!(memory[16 * i + i % 2..][..8], original.to_ne_bytes());
        }
        dereg(mr);
        drop(wire);
        assert_eq!(next_event(end.events).0, DISCONNECTED);
        end.destroy();
        let changed = memory.iter().filter(|byte| **byte != 7).count();
        assert_eq!(changed, 24);
    }
}

/// A peer without RFC 7306 refuses the opcode, in the format of the standard or in siw's.
#[test]
fn a_peer_without_atomic_operations_ends_the_connection_and_the_completion_has_the_reason() {
    const REM_INV_REQ_ERR: u32 = 9;
    for control in [[0x02, 6, 0, 0], [0x20, 6, 0, 0]] {
        let listening = Listening::new();
        let (mut wire, end) = listening.establish(false, &mut terms(20, 8, true, b""));
        wire.send_ulpdu(&tagged([0xc1, 0x40], 1, 0, b""), Pieces::Whole);
        let mut memory = vec![7u8; 8];
        let mr = end.register(&mut memory, LOCAL_WRITE);
        let mut wr = request(ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, 1, SIGNALED);
        assert_eq!(end.post(&mut wr, Some(&mut sge(mr, 0, 8))), 0);
        assert!(wire.ulpdu().is_some());
        wire.send_ulpdu(&untagged([0x41, 0x47], 0, [2, 1, 0], &control), Pieces::Whole);
        let wc = end.poll();
        assert_eq!((wc.wr_id, wc.status), (1, REM_INV_REQ_ERR));
        assert_eq!(next_event(end.events).0, DISCONNECTED);
        dereg(mr);
        end.destroy();
        assert_eq!(memory, [7; 8]);
    }
}
