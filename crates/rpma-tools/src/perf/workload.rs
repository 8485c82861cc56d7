// SPDX-License-Identifier: BSD-3-Clause
//! The measured work: a thread that keeps operations outstanding on its connection.

use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::options::{Case, Operation};
use super::protocol::{CREDIT, Persist, Persisted};
use crate::interrupt::{self, Wake};
use crate::library::{Connection, Done, Flush, Memory, Notify, Queue, Range, RemoteMemory};

/// How long to poll before sleeping, unless `--poll` is given.
const SPIN: Duration = Duration::from_micros(100);
/// How often an idle thread checks whether the connection has ended, or whether it must stop.
const LOOK: Duration = Duration::from_millis(50);
/// How long to wait for the event of a connection whose requests failed.
const EVENT_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum latency of the histogram in nanoseconds: a minute.
const LONGEST: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// The beginning and end of a case.
pub(super) struct Clock<'a> {
    /// Operations that complete before are not counted.
    pub(super) start: Instant,
    pub(super) end: Instant,
    /// Set to stop early.
    pub(super) stop: &'a AtomicBool,
    pub(super) timeout: Duration,
    /// Whether to poll all the time.
    pub(super) poll: bool,
}

/// The measurements of a thread.
pub(super) struct Tally {
    /// In nanoseconds.
    pub(super) latencies: Histogram<u64>,
    pub(super) operations: u64,
    pub(super) time: Duration,
    /// When the last counted operation completed.
    last: Option<Instant>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("these bounds are allowed");
        Self { latencies, operations: 0, time: Duration::ZERO, last: None }
    }

    /// Adds what another thread has measured at the same time.
    pub(super) fn add(&mut self, other: &Self) {
        let time = self.time.max(other.time);
        self.follow(other);
        self.time = time;
    }

    /// Adds what was measured afterwards.
    pub(super) fn follow(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.latencies.add(&other.latencies);
        self.operations += other.operations;
        self.time += other.time;
    }
}

/// The buffers for messages to the server, and for its answers.
pub(super) struct Mail {
    pub(super) requests: Memory,
    pub(super) answers: Memory,
}

impl Mail {
    pub(super) const REQUEST: usize = Persist::LEN;

    pub(super) fn answer(&self, number: usize) -> Range<'_> {
        Range { memory: &self.answers, offset: number * Persisted::LEN, len: Persisted::LEN }
    }
}

/// A connection with its memory. The order of the fields ends the connection first.
pub(super) struct Channel {
    pub(super) connection: Connection,
    pub(super) work: Work,
}

/// The memory that the operations of a connection use.
pub(super) struct Work {
    pub(super) remote: RemoteMemory,
    pub(super) local: Memory,
    pub(super) mail: Option<Mail>,
    /// How many messages of `send` the server has receives for; no limit for other operations.
    pub(super) credit: usize,
    pub(super) case: Case,
    /// The number of slots in the memory, which the operations use in turn.
    pub(super) slots: usize,
    pub(super) stride: usize,
    /// The offset of this channel's slots in the server's memory.
    pub(super) first: usize,
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.connection.disconnect();
    }
}

/// The outstanding operations, by number.
struct Flight {
    posted: Vec<Instant>,
    /// The number of completions that each operation still waits for.
    waits: Vec<u8>,
    free: Vec<usize>,
}

impl Channel {
    /// Runs until the end, but for at least one operation, or until a failure; returns the measurements in
    /// either case.
    pub(super) fn run(&mut self, clock: &Clock<'_>) -> (Tally, Result<(), String>) {
        let Self { connection, work } = self;
        let mut tally = Tally::new();
        let result = measure(connection, work, clock, &mut tally);
        let until = Instant::now().min(clock.end).max(tally.last.unwrap_or(clock.start));
        tally.time = until.saturating_duration_since(clock.start);
        let result = result.map_err(|why| {
            // The end of the connection is a better reason than failed requests.
            let event = connection.next_event(Instant::now() + EVENT_TIMEOUT);
            event.ok().flatten().map_or(why, |event| event.to_string())
        });
        (tally, result)
    }
}

fn measure(
    connection: &Connection,
    work: &mut Work,
    clock: &Clock<'_>,
    tally: &mut Tally,
) -> Result<(), String> {
    let (queue, depth) = (connection.queue()?, work.case.depth);
    let mut last = Instant::now();
    let mut flight =
        Flight { posted: vec![last; depth], waits: vec![0; depth], free: (0..depth).rev().collect() };
    let mut done = Vec::new();
    loop {
        let now = Instant::now();
        if clock.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        // At least one operation is measured, however long it takes.
        if now < clock.end || tally.operations == 0 {
            while work.credit > 0 {
                let Some(number) = flight.free.pop() else { break };
                flight.posted[number] = Instant::now();
                flight.waits[number] = work.post(connection, number)?;
            }
        } else if flight.free.len() == depth {
            return Ok(());
        }
        done.clear();
        queue.poll(&mut done)?;
        let now = Instant::now();
        if done.is_empty() {
            if idle(connection, &queue, clock, now, last)? {
                return Ok(());
            }
            continue;
        }
        last = now;
        for done in &done {
            let Some((number, completes)) = work.taken(connection, done)? else { continue };
            let wrong = "a completion belongs to no request";
            let waits = flight.waits.get_mut(number).filter(|waits| **waits > 0).ok_or(wrong)?;
            *waits -= 1;
            if *waits == 0 {
                flight.free.push(number);
            }
            if completes && now >= clock.start && (now <= clock.end || tally.operations == 0) {
                tally.last = Some(now);
                let time = now.duration_since(flight.posted[number]).as_nanos();
                tally.latencies.saturating_record(u64::try_from(time).unwrap_or(u64::MAX));
                tally.operations += 1;
            }
        }
    }
}

impl Work {
    /// Posts an operation; returns its number of completions.
    fn post(&mut self, connection: &Connection, number: usize) -> Result<u8, String> {
        let Self { remote, local, mail, credit, case, .. } = self;
        let place = number % self.slots * self.stride;
        let there = self.first + place;
        let here = Range { memory: local, offset: place, len: case.size };
        let notify = Notify::Always(number as u64);
        let flush = |kind| {
            connection.write(remote, there, here, Notify::OnError)?;
            connection.flush(remote, there, case.size, kind, notify)
        };
        match (case.operation, mail) {
            (Operation::Write, _) => connection.write(remote, there, here, notify)?,
            (Operation::Read, _) => connection.read(here, remote, there, notify)?,
            (Operation::WriteFlush, _) => flush(Flush::Visibility)?,
            (Operation::Apm, _) => flush(Flush::Persistent)?,
            (Operation::Send, _) => {
                *credit -= 1;
                connection.send(here, notify)?;
            }
            (Operation::AtomicWrite, _) => {
                connection.atomic_write(remote, there, (number as u64).to_ne_bytes(), notify)?;
            }
            (Operation::Gpspm, Some(mail)) => {
                connection.write(remote, there, here, Notify::OnError)?;
                let offset = number * Mail::REQUEST;
                let request = Persist { number: number as u32, len: case.size as u32, offset: there as u64 };
                mail.requests.put(offset, &request.encode());
                let request = Range { memory: &mail.requests, offset, len: Mail::REQUEST };
                connection.send(request, notify)?;
                return Ok(2);
            }
            (Operation::Gpspm, None) => return Err("there is no buffer for messages".to_owned()),
        }
        Ok(1)
    }

    /// The number of the operation to which a completion belongs, and whether the operation is done; `None`
    /// for a credit.
    fn taken(&mut self, connection: &Connection, done: &Done) -> Result<Option<(usize, bool)>, String> {
        let number = done.number as usize;
        let has_answer = self.case.operation == Operation::Gpspm;
        let (Some(mail), Some(len)) = (&self.mail, done.received) else {
            return Ok(Some((number, !has_answer)));
        };
        let mut bytes = [0; Persisted::LEN];
        let place = mail.answer(number);
        place.memory.get(place.offset, &mut bytes);
        connection.receive(place, number as u64)?;
        if !has_answer {
            self.credit += CREDIT;
            return Ok(None);
        }
        let answer = bytes.get(..len).and_then(Persisted::decode).ok_or("an answer is too short")?;
        if answer.errno != 0 {
            let why = std::io::Error::from_raw_os_error(answer.errno as i32);
            return Err(format!("the server could not make the data durable: {why}"));
        }
        Ok(Some((answer.number as usize, true)))
    }
}

/// Called if nothing has completed: continues to poll, or sleeps. Returns whether the program was
/// interrupted.
fn idle(
    connection: &Connection,
    queue: &Queue<'_>,
    clock: &Clock<'_>,
    now: Instant,
    last: Instant,
) -> Result<bool, String> {
    let waited = now.duration_since(last);
    if waited < SPIN {
        std::hint::spin_loop();
        return Ok(false);
    }
    if waited >= clock.timeout {
        return Err(silent(clock.timeout));
    }
    let fds = [connection.event_fd()?, queue.fd()];
    let (fds, until) = if clock.poll { (&fds[..1], now) } else { (&fds[..], now + LOOK) };
    match interrupt::wait(fds, Some(until)).map_err(|why| why.to_string())? {
        Wake::Interrupted => Ok(true),
        Wake::Timeout => Ok(false),
        Wake::Ready => {
            if let Some(event) = connection.next_event(now)? {
                return Err(event.to_string());
            }
            let ready = interrupt::wait(&[queue.fd()], Some(now)).map_err(|why| why.to_string())?;
            if ready == Wake::Ready {
                queue.rearm()?;
            }
            Ok(ready == Wake::Interrupted)
        }
    }
}

/// The message for an expired time limit.
pub(super) fn silent(timeout: Duration) -> String {
    format!("no answer within {} s", timeout.as_secs_f64())
}
