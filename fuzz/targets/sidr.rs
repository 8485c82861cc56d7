// SPDX-License-Identifier: BSD-3-Clause
//! Connection management of a process to which anybody sends anything, mostly requests for the queue pair of
//! a datagram service and answers to them. What must hold meanwhile is asserted by the harness,
//! transport::testing::sidr.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| transport::testing::sidr::run(bytes));
