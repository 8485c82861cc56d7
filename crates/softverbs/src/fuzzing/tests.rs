// SPDX-License-Identifier: BSD-3-Clause
//! The harness itself, on inputs that look random, and inputs that have found something.

use super::connection;

/// Few of the rounds of the fuzzer, but in every run of the tests.
#[test]
fn random_inputs() {
    let mut state = 0x5eed_5eed_5eed_5eedu64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..3_000 {
        let len = next() % 400;
        let mut bytes: Vec<u8> = (0..len).map(|_| (next() >> 32) as u8).collect();
        if let Some(first) = bytes.first_mut() {
            // A frame that is in order.
            *first = (*first & 0x13) | 8;
        }
        connection(&bytes);
    }
}

/// Inputs that found something wrong, be it here or in what is under test.
#[test]
fn found_inputs() {
    // A receive longer than its region, and a message that fits.
    connection(&[
        0x0b, 0x3f, 0x30, 0x7c, 0xd6, 0x0b, 0xd6, 0x0a, 0xf8, 0x0b, 0xe4, 0xc2, 0x14, 0x72, 0xa9, 0xb4, 0x2b,
        0x41, 0x20, 0x49, 0x12, 0x44, 0x20, 0x52, 0x65, 0x1f, 0xf0, 0xe5, 0xe5,
    ]);
    // A segment that fits into a receive, and in the same batch one that does not: the receive completed
    // before the first was placed.
    connection(&[
        0x0a, 0x31, 0x2d, 0xd2, 0xf2, 0xf2, 0xf2, 0xf2, 0x98, 0x98, 0x98, 0xf2, 0x76, 0xf2, 0x79, 0x7e, 0x5d,
        0x23, 0x53, 0x53, 0x53, 0x53, 0x89, 0x23, 0x53, 0x53, 0x53, 0x53, 0x53, 0x53, 0x53, 0x53, 0x53, 0x53,
        0x53, 0x30, 0xf2, 0xf2,
    ]);
}
