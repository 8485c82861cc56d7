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
