// SPDX-License-Identifier: BSD-3-Clause
//! A thread that waits for slow media, so that neither the engine nor a program that polls has to.
//!
//! It is started by the first job, one a process as the engine is, and blocks all signals. Jobs run one after the other.
#![forbid(unsafe_code)]

use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};

use crate::lock;
use crate::sys;

type Job = Box<dyn FnOnce() + Send>;

static WORKER: Mutex<Option<(u32, Sender<Job>)>> = Mutex::new(None);

/// Runs a job on the worker thread, or here and now if no thread can be had.
pub(crate) fn run(job: Job) {
    match hand_over(job) {
        Ok(()) => {}
        Err(job) => job(),
    }
}

fn hand_over(job: Job) -> Result<(), Job> {
    let pid = std::process::id();
    let mut worker = lock(&WORKER);
    // A fork leaves the child this variable, and the parent the thread.
    if worker.as_ref().is_none_or(|(owner, _)| *owner != pid) {
        *worker = start().map(|jobs| (pid, jobs));
    }
    match &*worker {
        Some((_, jobs)) => jobs.send(job).map_err(|unsent| unsent.0),
        None => Err(job),
    }
}

fn start() -> Option<Sender<Job>> {
    let (jobs, queue) = mpsc::channel::<Job>();
    let thread = std::thread::Builder::new().name("softverbs-sync".into()).stack_size(256 * 1024);
    let work = move || queue.into_iter().for_each(|job| job());
    match sys::without_signals(|| thread.spawn(work)) {
        Ok(_) => Some(jobs),
        Err(e) => {
            log::error!("cannot start the thread that waits for slow media: {e}");
            None
        }
    }
}
