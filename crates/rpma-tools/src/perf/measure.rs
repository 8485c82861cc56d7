// SPDX-License-Identifier: BSD-3-Clause
//! Measures one case once: runs its threads, and takes the processor times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Failure;
use super::options::Case;
use super::protocol::Cpu;
use super::repeats::Sample;
use super::session::Session;
use super::workload::{Channel, Clock, Tally};
use crate::cpu;
use crate::interrupt::{self, Wake};

/// How often the progress is reported.
const TICK: Duration = Duration::from_millis(100);
/// The fraction of a case that is not counted, at its beginning.
const WARM_UP: u32 = 10;
const LONGEST_WARM_UP: Duration = Duration::from_millis(300);

/// How each case is measured.
pub(super) struct Plan {
    pub(super) duration: Duration,
    pub(super) timeout: Duration,
    pub(super) poll: bool,
}

/// The processor times of both sides at one moment.
struct Times {
    client: Cpu,
    server: Cpu,
}

impl Times {
    fn take(session: &mut Session, began: Instant) -> Result<Self, Failure> {
        let server = session.server_cpu()?;
        let (used, at) = (cpu::used().as_nanos() as u64, began.elapsed().as_nanos() as u64);
        Ok(Self { client: Cpu { used, at }, server })
    }
}

/// Measures one case once. Returns a sample if there is any result, and a failure if it was not measured to
/// the end.
pub(super) fn measure(
    session: &mut Session,
    case: &Case,
    plan: &Plan,
    tell: &dyn Fn(Duration),
) -> (Option<Sample>, Option<Failure>) {
    let channels: Result<Vec<Channel>, Failure> =
        (0..case.threads).map(|index| session.channel(case, index)).collect();
    let mut channels = match channels {
        Ok(channels) => channels,
        Err(why) => return (None, Some(why)),
    };
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let start = began + (plan.duration / WARM_UP).min(LONGEST_WARM_UP);
    let clock =
        Clock { start, end: start + plan.duration, stop: &stop, timeout: plan.timeout, poll: plan.poll };

    let (results, watched) = thread::scope(|scope| {
        let threads: Result<Vec<_>, _> = channels
            .iter_mut()
            .map(|channel| thread::Builder::new().spawn_scoped(scope, || channel.run(&clock)))
            .collect();
        let threads = match threads {
            Ok(threads) => threads,
            Err(why) => {
                stop.store(true, Ordering::Relaxed);
                return (Vec::new(), Err(Failure::Own(format!("a thread cannot be started: {why}"))));
            }
        };
        let watched = watch(session, &clock, tell, || threads.iter().any(|thread| thread.is_finished()));
        if watched.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        let results = threads.into_iter().map(|thread| thread.join()).collect();
        (results, watched)
    });

    let (mut tally, mut failure) = (Tally::new(), None);
    for result in results {
        match result {
            Ok((one, result)) => {
                tally.add(&one);
                failure = failure.or(result.err().map(Failure::Peer));
            }
            Err(_) => failure = failure.or(Some(Failure::Own("a thread has panicked".to_owned()))),
        }
    }
    // The failure of a thread is more informative than its consequences.
    let (times, failure) = match (watched, failure) {
        (Ok(times), failure) => (Some(times), failure),
        (Err(Failure::Interrupted), _) => (None, Some(Failure::Interrupted)),
        (Err(why), failure) => (None, failure.or(Some(why))),
    };
    let cpu = times.map(|[first, last]| (last.client.since(&first.client), last.server.since(&first.server)));
    let sample = Sample { tally, cpu: cpu.unwrap_or_default(), complete: failure.is_none() };
    (Some(sample).filter(|sample| sample.complete || sample.tally.operations > 0), failure)
}

/// Reports the progress and takes the times at the beginning and at the end. Returns early on Ctrl-C, or if a
/// thread ends early.
fn watch(
    session: &mut Session,
    clock: &Clock<'_>,
    tell: &dyn Fn(Duration),
    ended: impl Fn() -> bool,
) -> Result<[Times; 2], Failure> {
    let began = Instant::now();
    let sleep = |until: Instant| {
        while Instant::now() < until {
            if interrupt::wait(&[], Some(until.min(Instant::now() + TICK))).map_err(|why| why.to_string())?
                == Wake::Interrupted
            {
                return Err(Failure::Interrupted);
            }
            tell(began.elapsed());
            if Instant::now() < clock.end && ended() {
                return Err(Failure::Peer("a thread has ended too early".to_owned()));
            }
        }
        Ok(())
    };
    sleep(clock.start)?;
    let first = Times::take(session, began)?;
    sleep(clock.end)?;
    Ok([first, Times::take(session, began)?])
}
