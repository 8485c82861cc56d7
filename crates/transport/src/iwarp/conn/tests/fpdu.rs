// SPDX-License-Identifier: BSD-3-Clause
//! The parts of an FPDU that the link is given.

use super::host::{BASE, STAG, tagged};
use crate::access::Access;
use crate::direct::Part;
use crate::iwarp::conn::fpdu::{Fpdu, MAX_PARTS, Origin, Payload};
use crate::iwarp::wire::rdmap::Opcode;
use crate::limits::MAX_SGE;

/// The lengths of the parts: an empty one would take one of the places that a system call has for them.
fn parts(fpdu: &Fpdu) -> Vec<usize> {
    let len = |part| match part {
        Part::Bytes(bytes) => bytes.len(),
        Part::Memory(access) => access.len,
    };
    fpdu.rest().map(len).collect()
}

#[test]
fn an_fpdu_of_as_many_entries_as_there_may_be_has_the_most_parts() {
    let header = tagged(Opcode::Write, true, STAG, 0);
    let ranges = vec![Access { stag: STAG, addr: BASE, len: 1, rights: 0 }; MAX_SGE];
    let fpdu = Fpdu::new(&header, Payload::Gathered(ranges), MAX_SGE, false, Origin::Control);
    assert_eq!(parts(&fpdu).len(), MAX_PARTS);
}

#[test]
fn what_the_link_has_taken_is_no_part() {
    let header = tagged(Opcode::Write, true, STAG, 0);
    let range = |len| Access { stag: STAG, addr: BASE, len, rights: 0 };
    // The ULPDU has 14 bytes of header, so that 6 bytes of payload need 2 bytes of pad.
    for (payload, whole) in [
        (Payload::None, vec![16, 4]),
        (Payload::Copied(vec![7; 6]), vec![16, 6, 6]),
        (Payload::Memory(range(6)), vec![16, 6, 6]),
        (Payload::Gathered(vec![range(4), range(2)]), vec![16, 4, 2, 6]),
    ] {
        let len = if matches!(payload, Payload::None) { 0 } else { 6 };
        let mut fpdu = Fpdu::new(&header, payload, len, false, Origin::Control);
        assert_eq!(fpdu.len(), whole.iter().sum());
        for sent in 0..=fpdu.len() {
            fpdu.sent = sent;
            let mut expected = whole.clone();
            let mut skip = sent;
            expected.retain_mut(|part| {
                let skipped = skip.min(*part);
                skip -= skipped;
                *part -= skipped;
                *part > 0
            });
            assert_eq!(parts(&fpdu), expected, "{sent} bytes sent");
        }
    }
}
