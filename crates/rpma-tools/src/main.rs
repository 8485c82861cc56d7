// SPDX-License-Identifier: BSD-3-Clause
//! The program `rpma`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rpma_tools::run()
}
