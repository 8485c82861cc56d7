// SPDX-License-Identifier: BSD-3-Clause
//! Counters of what a process does, for `RPMA_METRICS`: connections, operations, completions, latencies,
//! regions.
//!
//! What counts is a provider of its own, which passes every call on to the real one
//! ([`crate::provider::metered`]). Objects are made of it only if the variable is set when their peer is
//! created, so that those of other processes have no branch for it: a flush stores its type in the request,
//! and a connection request where to post, and that is all.
//!
//! The first peer starts the thread that serves the counters ([`serve`]). A child of fork(2) has counters of
//! its own, from zero on, and a thread of its own from its first peer on.

mod counters;
mod serve;
mod setting;
mod socket;
mod text;
mod thread;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use once_cell::race::OnceBox;

use crate::text::Lossy;
use counters::Counters;
use setting::Setting;

pub use counters::{Connection, Kind};

/// The counters of a process, and where they are served.
pub struct Process {
    pid: u32,
    pub counters: Counters,
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

/// The process if it is to count. The first call that finds it so starts serving.
#[inline]
pub fn process() -> Option<&'static Process> {
    if IS_OFF.load(Ordering::Relaxed) { None } else { present().or_else(begin) }
}

#[cold]
fn begin() -> Option<&'static Process> {
    let pid = std::process::id();
    let value = setting::variable(c"RPMA_METRICS");
    let Some(setting) = value.as_ref().and_then(|value| setting::parse(value, pid)) else {
        // Said once, by whoever is first.
        if let Some(value) = value.filter(|_| !IS_OFF.swap(true, Ordering::Relaxed)) {
            let (value, expected) = (Lossy(value.as_bytes()), setting::EXPECTED);
            log_warning!("RPMA_METRICS: \"{value}\" is not known; expected: {expected}. Nothing is counted");
        }
        IS_OFF.store(true, Ordering::Relaxed);
        return None;
    };
    let seen = PROCESS.load(Ordering::Acquire);
    let new =
        Box::into_raw(Box::new(Process { pid, counters: Counters::new(), setting, socket: OnceBox::new() }));
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
