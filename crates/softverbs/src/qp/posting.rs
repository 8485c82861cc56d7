// SPDX-License-Identifier: BSD-3-Clause
//! Posting to the send queue, and which requests go out together.
//!
//! A post drives its connection, so a request is with the kernel when the call returns. A request that is small on the wire and is followed
//! by another one at once need not be: a system call for each of the two would be most of the time. Whether one will be followed is guessed
//! from the ones before it, signalled and unsignalled ones apart: a program that waits for each completion is known by that. After some
//! that were, such a request is left in the ring. The request behind it, a full batch, an empty poll, or a program that asks for an event takes it
//! along; failing that, the engine does a moment later.
//!
//! A program that takes completions and posts a request behind each of them is known sooner: as long as it has completions to take, and
//! has posted behind them at once before, its requests wait for the one behind the last completion.
//!
//! So a program that does something else for once, and waits neither by polling nor for an event, waits for that moment. It is at most an
//! eighth of the time for which the guesses have been right, and never more than 100 us: what is lost by wrong guesses stays a small share of
//! what the right ones have saved. With completions to take it is these 100 us.
#![forbid(unsafe_code)]

use once_cell::race::OnceBox;
use std::sync::Weak;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{CONNECTED, Qp};
use crate::access::Access;
use crate::conn::reason;
use crate::conn::wr::{Op, SendWr};
use crate::flight::Flight;
use crate::limits::{
    BURST, CLOSE_NS, CLOSE_RUN, FULL_WAIT, MAX_PATIENCE_NS, MIN_PATIENCE_NS, PATIENCE_SHARE, SMALL,
};
use crate::probes;
use crate::progress::{By, Driven};
use crate::strict::Strict;
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
    /// How many they were before the last one that was not.
    before: AtomicU32,
    since: AtomicU64,
}

impl Run {
    fn followed(&self, closely: bool, now: u64) {
        if closely {
            self.length.fetch_add(1, Ordering::Relaxed);
        } else {
            self.before.store(self.length.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            self.since.store(now, Ordering::Relaxed);
        }
    }

    /// How long the next one may wait. `more`: the program has completions to take, after each of which it may post another one.
    fn patience(&self, now: u64, more: bool) -> Option<Duration> {
        let length = self.length.load(Ordering::Relaxed);
        if length < CLOSE_RUN {
            let posts_behind_each = length > 0 || self.before.load(Ordering::Relaxed) > 0;
            return (more && posts_behind_each).then_some(Duration::from_nanos(MAX_PATIENCE_NS));
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
    /// A post begins; `over`: all earlier requests, and the program has taken their completions. Gives how long it may wait for the next
    /// one, and the time.
    fn begins(&self, kind: Kind, over: bool, more: impl FnOnce() -> bool) -> Option<(Duration, u64)> {
        let last = self.last.swap(kind as u8, Ordering::Relaxed);
        // A program that has its completion has waited for it, however little time that takes.
        let waited = over && last == Kind::Signalled as u8;
        let (last, this) = (self.runs.get(usize::from(last)), self.runs.get(kind as usize));
        if last.is_none() && this.is_none() {
            return None;
        }
        let now = clock();
        if let Some(run) = last {
            let closely = now.saturating_sub(self.returned.load(Ordering::Relaxed)) < CLOSE_NS;
            run.followed(closely && !waited, now);
        }
        this?.patience(now, more()).map(|patience| (patience, now))
    }

    /// The post returns, at this time.
    fn returns(&self, now: u64) {
        self.returned.store(now, Ordering::Relaxed);
    }
}

/// Work requests on their way into the send queue; sent when dropped.
pub(crate) struct Posting<'a> {
    qp: &'a Qp,
    posted: bool,
    kind: Kind,
    /// Earlier requests are over, and the program has taken their completions.
    over: bool,
    /// What the last request accesses of the peer's memory, if it may be carried out past the link.
    remote: Option<Access>,
}

impl Qp {
    /// Begins to post to the send queue; EINVAL before there is a connection.
    pub(crate) fn posting(&self) -> Result<Posting<'_>, Errno> {
        match self.state.load(Ordering::Acquire) {
            CONNECTED => {
                let over = self.slots.are_free();
                Ok(Posting { qp: self, posted: false, kind: Kind::Unsignalled, over, remote: None })
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// As [`Slots::check_inline`](crate::slots::Slots::check_inline).
    #[cold]
    pub(crate) fn check_inline(&self, wr_id: u64) -> Result<(), Errno> {
        self.slots.check_inline(wr_id)
    }

    /// Takes a place in a full queue: requests that were only left in the ring, or that another thread is sending now, still have theirs. That
    /// they wait was not the program's decision, so it gets no error for it: who sends them may have to wait for a processor itself.
    #[cold]
    fn take_place_of_others(&self) -> bool {
        let began = Instant::now();
        loop {
            let stepped = self.drive(reason::POSTED, By::Program);
            if self.slots.take() {
                return true;
            }
            if stepped || began.elapsed() > FULL_WAIT {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Waits a moment, if the request that was just posted can then go past the link. Here and not in a step, which others would wait for.
    fn await_settled(&self, remote: Access) {
        if let Some(ringed) = self.ringed.get().and_then(Weak::upgrade) {
            ringed.await_settled(remote);
        }
    }

    /// Adds a request in strict mode or in the fault lab; `denied`: one that fails with a remote access error.
    #[cold]
    pub(super) fn begin(&self, flight: Option<&Flight>, wr: SendWr, denied: bool) -> Result<(), SendWr> {
        let push = |wr| match &self.gate {
            None => self.sends.push(wr),
            Some(gate) => gate.post(wr, denied, |wr| self.sends.push(wr)),
        };
        match flight {
            None => push(wr),
            Some(flight) => flight.begin(wr, self.party(), push),
        }
    }
}

impl Posting<'_> {
    /// Adds all of these requests or, if the queue does not have room for all, none: ENOMEM.
    pub(crate) fn post_all(&mut self, wrs: Vec<SendWr>) -> Result<(), Errno> {
        let qp = self.qp;
        if qp.slots.room() < wrs.len() {
            qp.drive(reason::POSTED, By::Program);
            if qp.slots.room() < wrs.len() {
                qp.slots.refused();
                return Err(libc::ENOMEM);
            }
        }
        wrs.into_iter().try_for_each(|wr| self.post(wr))
    }

    /// Adds one request; ENOMEM when the queue is full.
    #[inline]
    pub(crate) fn post(&mut self, wr: SendWr) -> Result<(), Errno> {
        self.add(wr, false)
    }

    /// Adds one request for an access that the remote memory does not permit, which fails in strict mode.
    #[cold]
    pub(crate) fn post_denied(&mut self, wr: SendWr) -> Result<(), Errno> {
        self.add(wr, self.qp.strict == Strict::Adapter)
    }

    #[inline]
    fn add(&mut self, wr: SendWr, denied: bool) -> Result<(), Errno> {
        self.kind = match self.kind {
            Kind::Large => Kind::Large,
            _ if wr.len > SMALL && wr.op != Op::Read => Kind::Large,
            _ if wr.signaled => Kind::Signalled,
            kind => kind,
        };
        let qp = self.qp;
        if !qp.slots.take() && !qp.take_place_of_others() {
            qp.slots.refused();
            return Err(libc::ENOMEM);
        }
        self.posted = true;
        self.remote = wr.transferable().then(|| wr.remote(0));
        probes::post(qp.num, &wr);
        let pushed = match (qp.slots.flight(), &qp.gate) {
            (None, None) => qp.sends.push(wr),
            (flight, _) => qp.begin(flight, wr, denied),
        };
        pushed.map_err(|_| {
            qp.slots.untake();
            libc::ENOMEM
        })
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        if !self.posted {
            return;
        }
        let (qp, kind, over) = (self.qp, self.kind, self.over);
        // A program that has asked for an event may sleep until the request completes.
        let awaited = matches!(kind, Kind::Signalled) && qp.send_cq.is_armed();
        let patience = qp
            .pace
            .begins(kind, over, || qp.send_cq.has_more() || qp.recv_cq.has_more())
            .filter(|_| qp.sends.len() < BURST && !awaited);
        // While the connection begins there may be no engine yet to leave it to.
        match (patience, qp.engine.get()) {
            (Some((patience, now)), Some(engine)) => {
                let list = qp.turn.defer(reason::POSTED);
                qp.send_cq.note_deferred();
                qp.recv_cq.note_deferred();
                // Most requests only go into the ring, which takes less time than a look at the clock.
                let mut returned = now;
                if let Some(this) = if list { qp.this.upgrade() } else { None } {
                    engine.list_later(this, patience);
                    returned = clock();
                }
                qp.pace.returns(returned);
            }
            _ => {
                if let Some(remote) = self.remote {
                    qp.await_settled(remote);
                }
                qp.drive(reason::POSTED, By::Program);
                if !matches!(kind, Kind::Large) {
                    qp.pace.returns(clock());
                }
            }
        }
    }
}
