// SPDX-License-Identifier: BSD-3-Clause
//! Connection management of a process that receives arbitrary messages, mostly requests for the queue pair of
//! a datagram service and replies to them. The harness, transport::testing::sidr, asserts the invariants.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| transport::testing::sidr::run(bytes));
