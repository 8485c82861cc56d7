// SPDX-License-Identifier: BSD-3-Clause
//! What the system's random source gives to the code under test: with `--cfg getrandom_backend="custom"` the
//! same numbers for each input, so that STags, and with them coverage and findings, do not differ from run to
//! run.

use std::sync::atomic::{AtomicU64, Ordering};

const SEED: u64 = 0x5eed_5eed_5eed_5eed;
static STATE: AtomicU64 = AtomicU64::new(SEED);

/// An input begins.
#[allow(dead_code, reason = "a target without STags need not begin anew")]
pub fn restart() {
    STATE.store(SEED, Ordering::Relaxed);
}

/// # Safety
///
/// As getrandom asks for: `dest` is writable for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_v03_custom(dest: *mut u8, len: usize) -> Result<(), getrandom::Error> {
    for at in 0..len {
        let mut state = STATE.load(Ordering::Relaxed);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        STATE.store(state, Ordering::Relaxed);
        // SAFETY: `at` is less than `len`, up to which `dest` is writable.
        unsafe { dest.add(at).write((state >> 32) as u8) };
    }
    Ok(())
}
