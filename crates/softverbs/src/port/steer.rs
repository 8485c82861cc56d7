// SPDX-License-Identifier: BSD-3-Clause
//! The classic BPF filter that selects the socket of a packet, as a value.
//!
//! Its input is the UDP payload, which has the destination queue pair number at offset [`QPN_AT`]; the first
//! byte of the number is the slot. The filter returns the position of the slot's process. In a query the slot
//! is 0, the second byte is a position, and the third is 0. A message of connection management to queue pair
//! 1 goes to the slot in the communication id of the receiver, a SIDR_REP to that in its request id.
//!
//! REQ and SIDR_REQ have no such id, so any process may receive them. They go to the *default* position, that
//! of the process that has attached the filter, as all other packets whose slot is not in the table. Were the
//! socket left to the kernel, which selects it by a hash of the addresses, a stopped process would get all
//! requests of some hosts, and [`super::order`] could not notice.
#![forbid(unsafe_code)]

use transport::roce::wire::{BTH_LEN, Deth, GSI_QP, QPN_AT};

/// Offset of the MAD in a message of connection management.
const MAD_AT: u32 = (BTH_LEN + Deth::LEN) as u32;
/// Where a message has its attribute.
const ATTRIBUTE_AT: u32 = MAD_AT + 16;
/// Where it has the communication id of the receiver, whose first byte is the slot; not in a REQ.
const COMM_ID_AT: u32 = MAD_AT + 24 + 4;
/// Where a SIDR_REP has the request id of the receiver, whose first byte is the slot.
const REQUEST_ID_AT: u32 = MAD_AT + 24;
/// The attributes of REQ, SIDR_REQ and SIDR_REP.
const REQ: u32 = 0x10;
const SIDR_REQ: u32 = 0x17;
const SIDR_REP: u32 = 0x18;

// Opcodes, with their names in linux/bpf_common.h.
const LOAD_BYTE: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
const LOAD_HALF: u16 = 0x28; // BPF_LD | BPF_H | BPF_ABS
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K
const RETURN_A: u16 = 0x16; // BPF_RET | BPF_A

const fn op(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// The filter for a table from slot to position, in which each slot is unique, and the default position.
pub(super) fn filter(table: &[(u8, u8)], default: u8) -> Vec<libc::sock_filter> {
    let mut table = table.to_vec();
    table.sort_unstable();
    let mut filter = vec![
        op(LOAD_BYTE, 0, 0, QPN_AT as u32),
        op(JUMP_EQUAL, 0, 14, 0),
        // Slot 0.
        op(LOAD_BYTE, 0, 0, QPN_AT as u32 + 2),
        op(JUMP_EQUAL, 9, 0, 0),
        op(JUMP_EQUAL, 0, 10, GSI_QP),
        // Connection management.
        op(LOAD_HALF, 0, 0, ATTRIBUTE_AT),
        op(JUMP_EQUAL, 8, 0, REQ),
        op(JUMP_EQUAL, 7, 0, SIDR_REQ),
        op(JUMP_EQUAL, 2, 0, SIDR_REP),
        op(LOAD_BYTE, 0, 0, COMM_ID_AT),
        op(JUMP, 0, 0, 5),
        op(LOAD_BYTE, 0, 0, REQUEST_ID_AT),
        op(JUMP, 0, 0, 3),
        // A query.
        op(LOAD_BYTE, 0, 0, QPN_AT as u32 + 1),
        op(RETURN_A, 0, 0, 0),
        op(RETURN, 0, 0, u32::from(default)),
    ];
    filter.extend(search(&table, default));
    filter
}

/// A binary search for the slot in the accumulator.
fn search(table: &[(u8, u8)], default: u8) -> Vec<libc::sock_filter> {
    match table {
        [] => vec![op(RETURN, 0, 0, u32::from(default))],
        [(slot, position)] => vec![
            op(JUMP_EQUAL, 0, 1, u32::from(*slot)),
            op(RETURN, 0, 0, u32::from(*position)),
            op(RETURN, 0, 0, u32::from(default)),
        ],
        _ => {
            let (low, high) = table.split_at(table.len() / 2);
            let (first_high, low, high) = (u32::from(high[0].0), search(low, default), search(high, default));
            let mut filter = match u8::try_from(low.len()) {
                Ok(len) => vec![op(JUMP_AT_LEAST, len, 0, first_high)],
                // The offset of a conditional jump has 8 bits.
                Err(_) => vec![op(JUMP_AT_LEAST, 0, 1, first_high), op(JUMP, 0, 0, low.len() as u32)],
            };
            filter.extend(low);
            filter.extend(high);
            filter
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter on a packet, as the kernel does.
    fn run(filter: &[libc::sock_filter], packet: &[u8]) -> u32 {
        let (mut at, mut accumulator) = (0, 0u32);
        loop {
            let libc::sock_filter { code, jt, jf, k } = filter[at];
            at += 1;
            let mut branch = |condition: bool| at += usize::from(if condition { jt } else { jf });
            match code {
                LOAD_HALF => match packet.get(k as usize..k as usize + 2) {
                    Some(half) => accumulator = u32::from(half[0]) << 8 | u32::from(half[1]),
                    None => return 0,
                },
                LOAD_BYTE => match packet.get(k as usize) {
                    Some(byte) => accumulator = u32::from(*byte),
                    None => return 0,
                },
                JUMP => at += k as usize,
                JUMP_EQUAL => branch(accumulator == k),
                JUMP_AT_LEAST => branch(accumulator >= k),
                RETURN => return k,
                RETURN_A => return accumulator,
                _ => panic!("operation {code:#x}"),
            }
        }
    }

    fn packet(qpn: u32) -> [u8; 16] {
        let mut packet = [0; 16];
        packet[QPN_AT..QPN_AT + 3].copy_from_slice(&qpn.to_be_bytes()[1..]);
        packet
    }

    #[test]
    fn a_slot_in_the_table_has_its_position_and_others_the_default() {
        let mut random = fastrand::Rng::with_seed(4791);
        for count in (0..=254).step_by(7).chain([1, 2, 3, 254]) {
            let mut slots: Vec<u8> = (1..=254).collect();
            random.shuffle(&mut slots);
            let table: Vec<_> = slots[..count].iter().copied().zip(0..).collect();
            let default = random.u8(..);
            let filter = filter(&table, default);
            assert!(filter.len() <= 4096, "the limit of the kernel (BPF_MAXINSNS)");
            for slot in 1..=255u8 {
                let position = table.iter().find(|(of, _)| *of == slot).map(|(_, position)| *position);
                let low = random.u32(..1 << 16);
                let expected = u32::from(position.unwrap_or(default));
                assert_eq!(
                    run(&filter, &packet(u32::from(slot) << 16 | low)),
                    expected,
                    "{slot} of {table:?}"
                );
            }
        }
    }

    #[test]
    fn a_message_goes_to_the_slot_of_its_communication_id_and_a_request_to_the_default() {
        let filter = filter(&[(9, 3), (200, 1)], 77);
        let message = |attribute: u16, slot: u8| {
            let mut message = [0; 280];
            message[QPN_AT + 2] = 1;
            message[36..38].copy_from_slice(&attribute.to_be_bytes());
            message[if attribute == 0x18 { 44 } else { 48 }] = slot;
            message
        };
        for attribute in [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x18] {
            assert_eq!(run(&filter, &message(attribute, 200)), 1, "{attribute:#x}");
            assert_eq!(run(&filter, &message(attribute, 7)), 77, "{attribute:#x}");
        }
        assert_eq!(run(&filter, &message(0x10, 200)), 77, "a REQ");
        assert_eq!(run(&filter, &message(0x17, 200)), 77, "a SIDR_REQ");
    }

    #[test]
    fn a_query_goes_to_its_position_and_other_numbers_to_the_default() {
        let filter = filter(&[(9, 3), (200, 1)], 77);
        for position in 0..=255 {
            assert_eq!(run(&filter, &packet(position << 8)), position);
        }
        assert_eq!(run(&filter, &packet(2)), 77);
        assert_eq!(run(&filter, &packet(0x0307)), 77);
        assert_eq!(run(&filter, &packet(0xff_0000)), 77);
        assert_eq!(run(&filter, &[0; 5]), 0, "too short: the kernel ends the filter");
    }
}
