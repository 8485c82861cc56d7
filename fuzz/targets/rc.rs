// SPDX-License-Identifier: BSD-3-Clause
//! A reliable RoCE connection whose peer, or an attacker on the path, sends arbitrary packets: the input
//! determines the actions of the program, the peer, the network and the clock. The harness,
//! transport::testing::rc, asserts the invariants.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transport::roce::rc::Rc;

fuzz_target!(|bytes: &[u8]| transport::testing::rc::run::<Rc>(bytes));
