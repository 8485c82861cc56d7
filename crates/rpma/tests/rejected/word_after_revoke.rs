// SPDX-License-Identifier: BSD-3-Clause
//! A word of exposed memory cannot be used once the memory is revoked, and unmapped.

use std::sync::atomic::Ordering;

use rpma::{Exposed, Result};

fn last(memory: Exposed) -> Result<u64> {
    let word = memory.word(0)?;
    let _ = memory.revoke();
    Ok(word.load(Ordering::Relaxed))
}

fn main() {}
