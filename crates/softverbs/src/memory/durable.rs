// SPDX-License-Identifier: BSD-3-Clause
//! Flushes to persistence: the modified pages of registered memory are written back to the mapped file.
//!
//! The duration depends on the medium, so a separate thread calls msync(2); a thread that drives connections
//! calls it only if that one cannot be started. A read of a region for flush to persistence covers the whole
//! region, a FLUSH of RoCE its range, regardless of what modified it: this or another connection, through
//! this or another region of the same mapping, or the program itself. Flushes that are queued while one is in
//! progress and whose ranges overlap or adjoin share one msync(2).
//!
//! The kernel reports a failed write-back once, to the first caller, and then considers the pages written. So
//! a failure fails all flushes that shared the call, and all later flushes of regions with that memory, over
//! this connection or any other ([`lose_writes`]). Injected faults are such failures. Only the programs can
//! recover: they must write the data again, to memory that is registered anew.
//!
//! The first flush starts the thread, one per process like the engine. It blocks all signals.
#![forbid(unsafe_code)]

use std::sync::{Arc, Condvar, Mutex};

use super::table::lose_writes;
use crate::faults::{self, Action, Event, Fault};
use crate::process::PerProcess;
use crate::sys::{self, Errno};
use crate::{lock, probes, thread};
use rpma_metrics::flushes;

/// Called with the outcome: whether the range is durable.
type Done = Box<dyn FnOnce(bool) + Send>;

struct Job {
    start: u64,
    end: u64,
    done: Done,
    /// The injected fault.
    fault: Option<Fault<'static>>,
}

impl Job {
    /// The pages of a range.
    fn new(start: u64, len: u64, done: Done) -> Self {
        let mask = sys::page_size() - 1;
        let end = start.saturating_add(len).saturating_add(mask) & !mask;
        Self { start: start & !mask, end, done, fault: None }
    }

    fn len(&self) -> u64 {
        self.end - self.start
    }
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Vec<Job>>,
    more: Condvar,
}

/// A child after fork(2) has no such thread and starts another.
static QUEUE: PerProcess<Arc<Queue>> = PerProcess::new();

/// Makes a range durable and calls `done` on the thread for flushes, or on this thread if that one cannot be
/// started. If the range is unmapped in the meantime, the outcome is a failure.
pub(crate) fn make_durable(start: u64, len: u64, done: Done) {
    let mut job = Job::new(start, len, done);
    // Decided here, in the order of the flushes: how many of them share a call depends on timing.
    job.fault = faults::plan().and_then(|plan| plan.event(Event::Msync));
    probes::flush(job.start, job.len());
    match queue() {
        Some(queue) => {
            lock(&queue.jobs).push(job);
            queue.more.notify_one();
        }
        None => carry_out(vec![job], &sync),
    }
}

fn queue() -> Option<Arc<Queue>> {
    let mut running = lock(QUEUE.get());
    if running.is_none() {
        *running = start();
    }
    running.clone()
}

fn start() -> Option<Arc<Queue>> {
    let queue = Arc::new(Queue::default());
    let work = queue.clone();
    match thread::spawn(c"softverbs-sync", Box::new(move || work.run())) {
        Ok(()) => Some(queue),
        Err(e) => {
            let text = std::io::Error::from_raw_os_error(e);
            log::error!("cannot start the thread for flushes to persistence: {text}");
            None
        }
    }
}

impl Queue {
    fn run(&self) {
        loop {
            let mut jobs = lock(&self.jobs);
            while jobs.is_empty() {
                jobs = self.more.wait(jobs).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            let together = take_meeting(&mut jobs);
            drop(jobs);
            carry_out(together, &sync);
        }
    }
}

/// Takes the oldest job and all others whose ranges form one contiguous range with it.
fn take_meeting(jobs: &mut Vec<Job>) -> Vec<Job> {
    let mut taken = vec![jobs.remove(0)];
    let (mut start, mut end) = (taken[0].start, taken[0].end);
    while let Some(i) = jobs.iter().position(|job| job.start <= end && job.end >= start) {
        let job = jobs.remove(i);
        start = start.min(job.start);
        end = end.max(job.end);
        taken.push(job);
    }
    taken
}

/// Makes the ranges durable with one call, or with one call each if some memory is not mapped.
fn carry_out(jobs: Vec<Job>, sync: &dyn Fn(u64, u64) -> Result<(), Errno>) {
    let start = jobs.iter().map(|job| job.start).min().unwrap_or(0);
    let end = jobs.iter().map(|job| job.end).max().unwrap_or(0);
    let all = injected(&jobs).unwrap_or_else(|| sync(start, end));
    let alone = jobs.len() == 1;
    for job in jobs {
        let len = job.len();
        let result = if all == Err(libc::ENOMEM) && !alone { sync(job.start, job.end) } else { all };
        if let Err(e) = result {
            if e != libc::ENOMEM {
                lose_writes(job.start, job.end);
            }
            let text = std::io::Error::from_raw_os_error(e);
            log::error!("cannot make {len} bytes durable: {text}");
        }
        flushes::flushed(result.is_ok());
        probes::flushed(job.start, len, result.err().unwrap_or(0));
        (job.done)(result.is_ok());
    }
}

/// The injected outcome of the call for these flushes, after the injected delay; `None` if no fault is
/// injected.
fn injected(jobs: &[Job]) -> Option<Result<(), Errno>> {
    let mut result = None;
    for Job { start, end, fault, .. } in jobs {
        let Some(fault) = fault else { continue };
        fault.log(format_args!("flush of {} bytes", end - start));
        match fault.action() {
            Action::Delay(delay) => std::thread::sleep(delay),
            Action::Errno(errno) => result = Some(Err(errno)),
            _ => {}
        }
    }
    result
}

fn sync(start: u64, end: u64) -> Result<(), Errno> {
    flushes::synced(|| sys::make_durable(start, end - start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::mpsc;

    fn job(start: u64, end: u64, done: &mpsc::Sender<(u64, bool)>) -> Job {
        let done = done.clone();
        Job { start, end, done: Box::new(move |ok| done.send((start, ok)).unwrap()), fault: None }
    }

    #[test]
    fn adjoining_ranges_share_one_call_and_others_do_not() {
        let (done, results) = mpsc::channel();
        let mut jobs: Vec<Job> =
            [(0, 10), (50, 60), (20, 30), (10, 20), (90, 99)].map(|(a, b)| job(a, b, &done)).into();
        let calls = RefCell::new(Vec::new());
        while !jobs.is_empty() {
            let together = take_meeting(&mut jobs);
            carry_out(together, &|start, end| {
                calls.borrow_mut().push((start, end));
                Ok(())
            });
        }
        assert_eq!(*calls.borrow(), [(0, 30), (50, 60), (90, 99)]);
        assert_eq!(results.try_iter().count(), 5);
    }

    #[test]
    fn an_unmapped_range_does_not_fail_the_others() {
        let (done, results) = mpsc::channel();
        let jobs = [(0, 10), (10, 20), (20, 30)].map(|(a, b)| job(a, b, &done)).into();
        carry_out(jobs, &|start, end| if (start..end).contains(&15) { Err(libc::ENOMEM) } else { Ok(()) });
        assert_eq!(results.try_iter().collect::<Vec<_>>(), [(0, true), (10, false), (20, true)]);
    }

    #[test]
    fn a_medium_that_fails_once_fails_all_that_shared_the_call() {
        let (done, results) = mpsc::channel();
        let jobs = [(0, 10), (10, 20), (20, 30)].map(|(a, b)| job(a, b, &done)).into();
        let calls = RefCell::new(0);
        carry_out(jobs, &|_, _| {
            *calls.borrow_mut() += 1;
            if *calls.borrow() == 1 { Err(libc::EIO) } else { Ok(()) }
        });
        assert_eq!(results.try_iter().collect::<Vec<_>>(), [(0, false), (10, false), (20, false)]);
    }

    #[test]
    fn an_injected_fault_fails_all_flushes_that_share_the_call() {
        let plan = faults::plan_of("msync:EIO@n=2; msync:delay=5ms@n=4");
        let (done, results) = mpsc::channel();
        let mut jobs: Vec<Job> =
            [(0, 10), (10, 20), (50, 60), (90, 99)].map(|(a, b)| job(a, b, &done)).into();
        jobs.iter_mut().for_each(|job| job.fault = plan.event(Event::Msync));
        let calls = RefCell::new(Vec::new());
        let began = std::time::Instant::now();
        while !jobs.is_empty() {
            let together = take_meeting(&mut jobs);
            carry_out(together, &|start, end| {
                calls.borrow_mut().push((start, end));
                Ok(())
            });
        }
        assert!(began.elapsed() >= std::time::Duration::from_millis(5));
        assert_eq!(*calls.borrow(), [(50, 60), (90, 99)]);
        let all: Vec<_> = results.try_iter().collect();
        assert_eq!(all, [(0, false), (10, false), (50, true), (90, true)]);
    }

    #[test]
    fn writes_are_lost_if_the_medium_fails_but_not_if_the_memory_is_unmapped() {
        use super::super::{Region, acquire, deregister, register};
        use transport::access::{Access, FLUSH_PERSISTENT};
        // Addresses that no other test has registered.
        const BASE: u64 = 0x7b00_0000;
        let region = Region { addr: BASE, len: 0x1000, access: FLUSH_PERSISTENT, pd: 1 };
        for (error, is_lost) in [(libc::ENOMEM, false), (libc::EIO, true), (libc::ENOSPC, true)] {
            let stag = register(region).unwrap();
            let (done, results) = mpsc::channel();
            carry_out(vec![job(BASE, BASE + 0x1000, &done)], &|_, _| Err(error));
            assert_eq!(results.try_iter().collect::<Vec<_>>(), [(BASE, false)]);
            let grant = acquire(Access { stag, addr: BASE, len: 1, rights: 0 }, 1).ok().unwrap();
            assert_eq!(grant.writes_lost(), is_lost, "error {error}");
            drop(grant);
            deregister(stag);
        }
    }

    #[test]
    fn all_of_a_range_is_made_durable() {
        let page = sys::page_size();
        let memory = sys::tests::Mapping::new(2 * page as usize);
        let (start, end) = (memory.addr(), memory.addr() + 2 * page);
        assert_eq!(sync(start, end), Ok(()));
        memory.unmap(page as usize, page as usize);
        assert_eq!(sync(start, end), Err(libc::ENOMEM));
        assert_eq!(sync(start, start + page), Ok(()));
    }

    #[test]
    fn whole_pages_are_made_durable() {
        let page = sys::page_size();
        for (start, len, first, end) in [
            (page, page, 1, 2),
            (page, 1, 1, 2),
            (page, page + 1, 1, 3),
            (2 * page - 1, 1, 1, 2),
            (2 * page - 1, 2, 1, 3),
            (3 * page, 2 * page, 3, 5),
        ] {
            let job = Job::new(start, len, Box::new(drop));
            assert_eq!((job.start, job.end, job.len()), (first * page, end * page, (end - first) * page));
        }
    }

    #[test]
    fn the_thread_reports_the_outcome() {
        let memory = sys::tests::Mapping::new(1 << 16);
        let (done, results) = mpsc::channel();
        for _ in 0..3 {
            let done = done.clone();
            let answer = move |ok| done.send((ok, std::thread::current().id())).unwrap();
            make_durable(memory.addr(), 1 << 16, Box::new(answer));
        }
        drop(done);
        let answers: Vec<_> = results.iter().collect();
        assert_eq!(answers.len(), 3);
        let thread = answers[0].1;
        assert_ne!(thread, std::thread::current().id());
        assert!(answers.iter().all(|answer| *answer == (true, thread)));
    }
}
