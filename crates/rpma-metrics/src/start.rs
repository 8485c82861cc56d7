// SPDX-License-Identifier: BSD-3-Clause
//! Starts the metrics of this process, if `RPMA_METRICS` enables them, and ends them.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use once_cell::race::OnceBox;

use crate::counters::Counters;
use crate::serve;
use crate::setting;
use crate::state::{Process, Warn};

/// Points to a box that is never freed, or is null. In a child of fork(2) it is the parent's until the child
/// creates a queue pair or peer.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// The value of `PROCESS`, which may be the parent's, if metrics are enabled.
fn present() -> Option<&'static Process> {
    // SAFETY: a pointer in `PROCESS` comes from `Box::into_raw` in `begin` and is never freed once it is
    // there.
    let process = unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
    process.filter(|process| process.pid == std::process::id())
}

/// Whether the variable is unset or invalid, so that it need not be read again.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// The process if metrics are enabled. The first call starts serving; failures are reported with `warn`.
#[inline]
pub fn process(warn: Warn) -> Option<&'static Process> {
    if IS_OFF.load(Ordering::Relaxed) { None } else { present().or_else(|| begin(warn)) }
}

/// The process if it has started to count.
#[inline]
pub fn counting() -> Option<&'static Process> {
    if IS_OFF.load(Ordering::Relaxed) { None } else { present() }
}

#[cold]
fn begin(warn: Warn) -> Option<&'static Process> {
    let pid = std::process::id();
    let value = setting::variable(c"RPMA_METRICS");
    let Some(setting) = value.as_ref().and_then(|value| setting::parse(value, pid)) else {
        // Logged once, by the first thread.
        if let Some(value) = value.filter(|_| !IS_OFF.swap(true, Ordering::Relaxed)) {
            let (value, expected) = (value.to_string_lossy(), setting::EXPECTED);
            warn(format_args!(
                "RPMA_METRICS: \"{value}\" is not known; expected: {expected}. Nothing is counted"
            ));
        }
        IS_OFF.store(true, Ordering::Relaxed);
        return None;
    };
    let seen = PROCESS.load(Ordering::Acquire);
    let new = Box::into_raw(Box::new(Process {
        pid,
        counters: Counters::new(),
        warn,
        setting,
        socket: OnceBox::new(),
    }));
    match PROCESS.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: `new` comes from `Box::into_raw` and is in `PROCESS` now, whose values are never freed.
            let process: &'static Process = unsafe { &*new };
            serve::start(process);
            Some(process)
        }
        Err(_) => {
            // SAFETY: `new` comes from `Box::into_raw`, and no other thread has seen it: the exchange failed.
            drop(unsafe { Box::from_raw(new) });
            present()
        }
    }
}

/// The process exits, or the library is unloaded.
pub fn at_exit() {
    if let Some(process) = present() {
        serve::finish(process);
    }
}
