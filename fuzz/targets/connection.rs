// SPDX-License-Identifier: BSD-3-Clause
//! A connection from its handshake to its end, with the real table of memory regions and without a socket:
//! the input says what the program, the peer, the network and the clock do. What must hold meanwhile is
//! asserted by the harness, transport::testing::connection.
#![no_main]

mod random;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    random::restart();
    softverbs::fuzzing::connection(bytes);
});
