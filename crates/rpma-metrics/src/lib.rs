// SPDX-License-Identifier: BSD-3-Clause
//! Counters of what a process does with RDMA, for `RPMA_METRICS`: connections, operations, completions,
//! latencies, regions; and the thread that serves them.
//!
//! Software RDMA counts in its instruments of a queue pair, whether its program uses librpma or verbs;
//! librpma counts what a device does in a provider of its own. A process that does not count has no
//! [`Process`].
//!
//! The first call of [`process`] that finds the variable starts the thread. A child of fork(2) has counters
//! of its own, from zero on, and a thread of its own from its first call on.

// Locks that check their order.
#[cfg(lock_order)]
extern crate lock_order as std;

mod counters;
pub mod flushes;
mod serve;
pub mod setting;
mod socket;
mod text;
mod thread;

use std::fmt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use once_cell::race::OnceBox;

use counters::Counters;
use setting::Setting;

pub use counters::{Connection, Event, Kind};

/// Logs a warning.
pub type Warn = fn(fmt::Arguments<'_>);

/// The counters of a process, and where they are served.
pub struct Process {
    pid: u32,
    /// What it has counted.
    pub counters: Counters,
    warn: Warn,
    setting: Setting,
    /// Where it listens.
    socket: OnceBox<PathBuf>,
}

/// Points to a box that is never freed, or is null. That of the parent in a child of fork(2), until it
/// creates a peer.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// The process if it counts, whatever its peers are.
fn present() -> Option<&'static Process> {
    // SAFETY: a pointer in `PROCESS` comes from `Box::into_raw` in `process` and is never freed once it is
    // there.
    let process = unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
    process.filter(|process| process.pid == std::process::id())
}

/// Whether the variable is not set, or not as it should be: then it is not looked at again.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// The process if it is to count. The first call that finds it so starts serving; `warn` is then called for
/// what goes wrong.
#[inline]
pub fn process(warn: Warn) -> Option<&'static Process> {
    if IS_OFF.load(Ordering::Relaxed) { None } else { present().or_else(|| begin(warn)) }
}

/// The process if it counts.
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
            // SAFETY: `new` is in `PROCESS`, where nothing is freed.
            let process: &'static Process = unsafe { &*new };
            serve::start(process);
            Some(process)
        }
        Err(_) => {
            // SAFETY: `new` comes from `Box::into_raw` and was not shared.
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
