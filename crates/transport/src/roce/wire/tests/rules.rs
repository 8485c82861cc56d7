// SPDX-License-Identifier: BSD-3-Clause
//! Tables and arithmetic.

use super::super::{
    DEFAULT_PKEY, Malformed, Opcode, Operation, PathMtu, Psn, Syndrome, is_same_partition, pad_len,
    rnr_delay_us,
};

#[test]
fn exactly_the_assigned_opcodes_are_parsed() {
    let rc = (0x00..=0x14).chain([0x16, 0x17, 0x1c, 0x1d]);
    let expected: Vec<u8> = rc.chain(0x20..=0x2b).chain([0x64, 0x65, 0x81]).collect();
    for number in 0..=255 {
        match Opcode::from_u8(number) {
            Ok(opcode) => {
                assert!(expected.contains(&number), "{opcode}");
                assert_eq!(opcode.to_u8(), number);
            }
            Err(error) => {
                assert!(!expected.contains(&number), "{number:#04x}");
                assert_eq!(error, Malformed::Opcode(number));
            }
        }
    }
}

#[test]
fn the_service_is_in_the_upper_bits() {
    assert_eq!(Opcode::from_u8(0x0a), Ok(Opcode::Rc(Operation::WriteOnly)));
    assert_eq!(Opcode::from_u8(0x2a), Ok(Opcode::Uc(Operation::WriteOnly)));
    assert_eq!(Opcode::from_u8(0x64), Ok(Opcode::Ud(Operation::SendOnly)));
    assert_eq!(Opcode::from_u8(0x81), Ok(Opcode::Cnp));
    assert_eq!(Opcode::Rc(Operation::WriteOnly).operation(), Some(Operation::WriteOnly));
    assert_eq!(Opcode::Uc(Operation::WriteOnly).operation(), Some(Operation::WriteOnly));
    assert_eq!(Opcode::Ud(Operation::SendOnly).operation(), Some(Operation::SendOnly));
    assert_eq!(Opcode::Cnp.operation(), None);
    assert_eq!(Opcode::Uc(Operation::SendFirst).to_string(), "UC SendFirst");
}

/// Each property of all operations, as the numbers of those that have it.
#[test]
fn properties_of_operations() {
    let with = |property: fn(Operation) -> bool| -> Vec<u8> {
        let with = Operation::ALL.iter().filter(|operation| property(**operation));
        with.map(|operation| *operation as u8).collect()
    };
    let responses = [0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12];
    assert_eq!(with(Operation::is_response), responses);
    assert_eq!(
        with(Operation::is_request),
        with(|_| true).into_iter().filter(|number| !responses.contains(number)).collect::<Vec<u8>>()
    );
    assert_eq!(with(Operation::is_send), [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x16, 0x17]);
    assert_eq!(with(Operation::is_write), [0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b]);
    assert_eq!(with(Operation::is_read_response), [0x0d, 0x0e, 0x0f, 0x10]);
    assert_eq!(with(Operation::is_atomic), [0x13, 0x14]);
    let (first, middle) = ([0x00, 0x06, 0x0d], [0x01, 0x07, 0x0e]);
    let last = [0x02, 0x03, 0x08, 0x09, 0x0f, 0x16];
    let only = [0x04, 0x05, 0x0a, 0x0b, 0x0c, 0x10, 0x11, 0x12, 0x13, 0x14, 0x17, 0x1c, 0x1d];
    let sorted = |one: &[u8], other: &[u8]| {
        let mut both = [one, other].concat();
        both.sort_unstable();
        both
    };
    assert_eq!(with(Operation::is_first), first);
    assert_eq!(with(Operation::is_middle), middle);
    assert_eq!(with(Operation::is_last), last);
    assert_eq!(with(Operation::is_only), only);
    assert_eq!(with(Operation::is_first_or_only), sorted(&first, &only));
    assert_eq!(with(Operation::is_last_or_only), sorted(&last, &only));
    assert_eq!(with(Operation::has_immediate), [0x03, 0x05, 0x09, 0x0b]);
    assert_eq!(with(Operation::has_invalidate), [0x16, 0x17]);
    assert_eq!(
        with(|operation| !operation.has_payload()),
        [0x0c, 0x11, 0x12, 0x13, 0x14, 0x1c],
        "without payload"
    );
}

#[test]
fn psns_are_24_bits() {
    assert_eq!(Psn::new(0xffff_ffff).get(), 0xff_ffff);
    assert_eq!(Psn::new(0xff_ffff).next(), Psn::new(0));
    assert_eq!(Psn::new(0xff_fffe).add(5), Psn::new(3));
    assert_eq!(Psn::new(7).add(u32::MAX), Psn::new(6));
    assert_eq!(Psn::new(0xab).to_string(), "0000ab");
}

#[test]
fn the_distance_of_psns_has_a_sign() {
    let distance = |psn: u32, from: u32| Psn::new(psn).distance(Psn::new(from));
    assert_eq!(distance(5, 5), 0);
    assert_eq!(distance(6, 5), 1);
    assert_eq!(distance(5, 6), -1);
    assert_eq!(distance(0, 0xff_ffff), 1);
    assert_eq!(distance(0xff_ffff, 0), -1);
    assert_eq!(distance(0x7f_ffff, 0), 0x7f_ffff);
    assert_eq!(distance(0x80_0000, 0), -0x80_0000);
    assert_eq!(distance(0x80_0001, 0), -0x7f_ffff);
    assert_eq!(distance(0x00_0010, 0x80_0011), 0x7f_ffff);
}

#[test]
fn path_mtus() {
    let bytes = PathMtu::ALL.map(PathMtu::bytes);
    assert_eq!(bytes, [256, 512, 1024, 2048, 4096]);
    assert_eq!(PathMtu::ALL.map(PathMtu::code), [1, 2, 3, 4, 5]);
    assert_eq!(PathMtu::from_code(3), Some(PathMtu::Mtu1024));
    assert!([0, 6, 255].into_iter().all(|code| PathMtu::from_code(code).is_none()));
}

#[test]
fn the_path_mtu_leaves_room_for_headers() {
    for (interface, expected) in [
        (0, None),
        (351, None),
        (352, Some(PathMtu::Mtu256)),
        (1119, Some(PathMtu::Mtu512)),
        (1120, Some(PathMtu::Mtu1024)),
        (1500, Some(PathMtu::Mtu1024)),
        (4191, Some(PathMtu::Mtu2048)),
        (4192, Some(PathMtu::Mtu4096)),
        (65_536, Some(PathMtu::Mtu4096)),
    ] {
        assert_eq!(PathMtu::of_interface(interface), expected, "{interface}");
    }
}

#[test]
fn packets_are_padded_to_words() {
    let pads: Vec<u8> = (0..6).map(pad_len).collect();
    assert_eq!(pads, [0, 3, 2, 1, 0, 3]);
}

#[test]
fn one_side_must_be_a_full_member() {
    assert!(is_same_partition(DEFAULT_PKEY, 0xffff));
    assert!(is_same_partition(0xffff, 0x7fff));
    assert!(is_same_partition(0x7fff, 0xffff));
    assert!(!is_same_partition(0x7fff, 0x7fff));
    assert!(!is_same_partition(0xffff, 0x8001));
    assert!(!is_same_partition(0x8001, 0x0002));
}

#[test]
fn every_syndrome_is_kept() {
    for byte in 0..=255 {
        let syndrome = Syndrome::from_u8(byte);
        assert_eq!(syndrome.to_u8(), byte);
        let is_reserved = byte >= 0x80 || (0x40..0x60).contains(&byte);
        assert_eq!(matches!(syndrome, Syndrome::Reserved(_)), is_reserved, "{byte:#04x}");
    }
}

/// Hundredths of a millisecond.
#[test]
fn rnr_delays() {
    let expected = [
        65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536,
        2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    for (code, expected) in (0..).zip(expected) {
        assert_eq!(rnr_delay_us(code), expected * 10, "code {code}");
        assert_eq!(rnr_delay_us(code | 0xe0), expected * 10, "only 5 bits count");
    }
}
