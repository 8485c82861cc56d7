// SPDX-License-Identifier: BSD-3-Clause
//! Memory that a peer may write has no byte slice.

use rpma::Exposed;

fn first(memory: &Exposed) -> u8 {
    let bytes: &[u8] = memory;
    bytes[0]
}

fn main() {}
