// SPDX-License-Identifier: BSD-3-Clause
//! A queue pair of type UD to which anybody sends anything: the input says what the program, its peers and
//! the link do. What must hold meanwhile is asserted by the harness, transport::testing::ud.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| transport::testing::ud::run(bytes));
