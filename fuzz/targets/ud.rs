// SPDX-License-Identifier: BSD-3-Clause
//! A queue pair of type UD that receives arbitrary packets: the input determines the actions of the program,
//! its peers and the link. The harness, transport::testing::ud, asserts the invariants.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| transport::testing::ud::run(bytes));
