// SPDX-License-Identifier: BSD-3-Clause
//! An unreliable RoCE connection whose peer, or somebody on the path, sends anything: the input says what the
//! program, the peer, the network and the clock do. What must hold meanwhile is asserted by the harness,
//! transport::testing::rc.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transport::roce::uc::Uc;

fuzz_target!(|bytes: &[u8]| transport::testing::rc::run::<Uc>(bytes));
