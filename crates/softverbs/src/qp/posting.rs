// SPDX-License-Identifier: BSD-3-Clause
//! Posting to the send queue, and which requests go out together.
//!
//! A post drives its connection, so a request is with the kernel when the call returns. A request that is small on the wire and is followed
//! by another one at once need not be: a system call for each of the two would be most of the time. Whether one will be followed is guessed
//! from the ones before it, signalled and unsignalled ones apart: a program that waits for each completion is known by that. After some
//! that were, such a request is left in the ring. The request behind it, a full batch, an empty poll, or a program that asks for an event takes it
//! along; failing that, the engine does a moment later.
//!
//! So a program that does something else for once, and waits neither by polling nor for an event, waits for that moment. It is at most an
//! eighth of the time for which the guesses have been right, and never more than 100 us: what is lost by wrong guesses stays a small share of
//! what the right ones have saved.
#![forbid(unsafe_code)]

use once_cell::race::OnceBox;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{CONNECTED, Qp};
use crate::conn::reason;
use crate::conn::wr::{Op, SendWr};
use crate::limits::{BURST, CLOSE_NS, CLOSE_RUN, MAX_PATIENCE_NS, MIN_PATIENCE_NS, PATIENCE_SHARE, SMALL};
use crate::progress::{By, Driven};
use crate::sys::Errno;

/// Nanoseconds since a moment of its own.
fn clock() -> u64 {
    static START: OnceBox<Instant> = OnceBox::new();
    START.get_or_init(|| Box::new(Instant::now())).elapsed().as_nanos() as u64
}

/// Requests of one kind in a row that were followed closely by the next request.
#[derive(Default)]
struct Run {
    length: AtomicU32,
    since: AtomicU64,
}

impl Run {
    fn followed(&self, closely: bool, now: u64) {
        if closely {
            self.length.fetch_add(1, Ordering::Relaxed);
        } else {
            self.length.store(0, Ordering::Relaxed);
            self.since.store(now, Ordering::Relaxed);
        }
    }

    /// How long the next one may wait.
    fn patience(&self, now: u64) -> Option<Duration> {
        if self.length.load(Ordering::Relaxed) < CLOSE_RUN {
            return None;
        }
        let right = now.saturating_sub(self.since.load(Ordering::Relaxed));
        Some(Duration::from_nanos((right / PATIENCE_SHARE).clamp(MIN_PATIENCE_NS, MAX_PATIENCE_NS)))
    }
}

/// What kind of request the pace knows of.
#[derive(Clone, Copy)]
enum Kind {
    Unsignalled,
    Signalled,
    /// Neither waits nor says anything of others.
    Large,
}

/// How closely small requests have been followed by the next one. Only a guess rests on it, so it needs no order among threads.
pub(super) struct Pace {
    /// The kind of the last request, and when its post returned.
    last: AtomicU8,
    returned: AtomicU64,
    runs: [Run; 2],
}

impl Default for Pace {
    fn default() -> Self {
        Self { last: AtomicU8::new(Kind::Large as u8), returned: AtomicU64::new(0), runs: Default::default() }
    }
}

impl Pace {
    /// A post begins. Gives how long it may wait for the next one.
    fn begins(&self, kind: Kind) -> Option<Duration> {
        let last = self.last.swap(kind as u8, Ordering::Relaxed);
        let (last, this) = (self.runs.get(usize::from(last)), self.runs.get(kind as usize));
        if last.is_none() && this.is_none() {
            return None;
        }
        let now = clock();
        if let Some(run) = last {
            run.followed(now.saturating_sub(self.returned.load(Ordering::Relaxed)) < CLOSE_NS, now);
        }
        this?.patience(now)
    }

    /// The post returns.
    fn returns(&self, kind: Kind) {
        if !matches!(kind, Kind::Large) {
            self.returned.store(clock(), Ordering::Relaxed);
        }
    }
}

/// Work requests on their way into the send queue; sent when dropped.
pub(crate) struct Posting<'a> {
    qp: &'a Qp,
    posted: bool,
    kind: Kind,
}

impl Qp {
    /// Begins to post to the send queue; EINVAL before there is a connection.
    pub(crate) fn posting(&self) -> Result<Posting<'_>, Errno> {
        match self.state.load(Ordering::Acquire) {
            CONNECTED => Ok(Posting { qp: self, posted: false, kind: Kind::Unsignalled }),
            _ => Err(libc::EINVAL),
        }
    }

    /// Takes a place in the send queue, which a signalled request keeps until its completion has been polled.
    fn take_place(&self) -> bool {
        let before = self.in_use.fetch_add(1, Ordering::Acquire);
        if before >= self.max_send_wr {
            self.in_use.fetch_sub(1, Ordering::Relaxed);
        }
        before < self.max_send_wr
    }
}

impl Posting<'_> {
    /// Adds all of these requests or, if the queue does not have room for all, none: ENOMEM.
    pub(crate) fn post_all(&mut self, wrs: Vec<SendWr>) -> Result<(), Errno> {
        let room = || self.qp.max_send_wr.saturating_sub(self.qp.in_use.load(Ordering::Acquire)) as usize;
        if room() < wrs.len() {
            self.qp.drive(reason::POSTED, By::Program);
            if room() < wrs.len() {
                return Err(libc::ENOMEM);
            }
        }
        wrs.into_iter().try_for_each(|wr| self.post(wr))
    }

    /// Adds one request; ENOMEM when the queue is full.
    pub(crate) fn post(&mut self, wr: SendWr) -> Result<(), Errno> {
        self.kind = match self.kind {
            Kind::Large => Kind::Large,
            _ if wr.len > SMALL && wr.op != Op::Read => Kind::Large,
            _ if wr.signaled => Kind::Signalled,
            kind => kind,
        };
        let qp = self.qp;
        if !qp.take_place() {
            // Requests that were only left in the ring, or that another thread is sending now, still have their places.
            if !qp.drive(reason::POSTED, By::Program) {
                std::thread::yield_now();
            }
            if !qp.take_place() {
                return Err(libc::ENOMEM);
            }
        }
        self.posted = true;
        qp.sends.push(wr).map_err(|_| {
            qp.in_use.fetch_sub(1, Ordering::Relaxed);
            libc::ENOMEM
        })
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        if !self.posted {
            return;
        }
        let (qp, kind) = (self.qp, self.kind);
        // A program that has asked for an event may sleep until the request completes.
        let awaited = matches!(kind, Kind::Signalled) && qp.send_cq.is_armed();
        let patience = qp.pace.begins(kind).filter(|_| qp.sends.len() < BURST && !awaited);
        // While the connection begins there may be no engine yet to leave it to.
        match (patience, qp.engine.get()) {
            (Some(patience), Some(engine)) => {
                let list = qp.turn.defer(reason::POSTED);
                qp.send_cq.note_deferred();
                qp.recv_cq.note_deferred();
                if list {
                    if let Some(this) = qp.this.upgrade() {
                        engine.list_later(this, patience);
                    }
                }
            }
            _ => {
                qp.drive(reason::POSTED, By::Program);
            }
        }
        qp.pace.returns(kind);
    }
}
