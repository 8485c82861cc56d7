// SPDX-License-Identifier: BSD-3-Clause
//! Posting to the send queue, and which requests go out together.
//!
//! A post drives its connection, so a request is with the kernel when the call returns, unless it waits for
//! the next one ([`coalesce`](crate::policy::coalesce)).
#![forbid(unsafe_code)]

use once_cell::race::OnceBox;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{CONNECTED, Qp};
use crate::policy::coalesce::{BURST, Kind, SMALL};
use crate::probes;
use crate::progress::{By, Driven};
use crate::sys::Errno;
use transport::access::Access;
use transport::step::reason;
use transport::wr::{Op, SendWr};

/// How long a post to a full send queue waits for another thread that is sending the requests before it: a
/// few time slices of a scheduler.
const FULL_WAIT: Duration = Duration::from_millis(20);

/// Nanoseconds since the first call.
fn clock() -> u64 {
    static START: OnceBox<Instant> = OnceBox::new();
    START.get_or_init(|| Box::new(Instant::now())).elapsed().as_nanos() as u64
}

/// Work requests on their way into the send queue; sent when dropped.
pub(crate) struct Posting<'a> {
    qp: &'a Qp,
    posted: bool,
    kind: Kind,
    /// Earlier requests are over, and the program has taken their completions.
    over: bool,
    /// The remote range of the last request, if it may be carried out as a direct copy.
    remote: Option<Access>,
}

impl Qp {
    /// Begins to post to the send queue; EINVAL before there is a connection.
    pub(crate) fn posting(&self) -> Result<Posting<'_>, Errno> {
        match self.state.load(Ordering::Acquire) {
            CONNECTED => {
                let over = self.entries.are_free();
                Ok(Posting { qp: self, posted: false, kind: Kind::Unsignalled, over, remote: None })
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// A read or an atomic operation is posted with IBV_SEND_INLINE. EINVAL in strict mode.
    #[cold]
    pub(crate) fn check_inline(&self, wr_id: u64) -> Result<(), Errno> {
        self.instruments.as_ref().map_or(Ok(()), |instruments| instruments.check_inline(wr_id))
    }

    /// How many requests can be posted.
    fn room(&self) -> usize {
        let room = self.entries.room();
        self.instruments.as_ref().map_or(room, |instruments| instruments.room().min(room))
    }

    /// Takes a place in a full queue: requests that were only left in the ring, or that another thread is
    /// sending now, still have theirs. That they wait was not the program's decision, so it gets no error for
    /// it: the sending thread may have to wait for a processor itself.
    #[cold]
    fn take_place_of_others(&self) -> bool {
        let began = Instant::now();
        loop {
            let stepped = self.drive(reason::POSTED, By::Program);
            if self.entries.take() {
                return true;
            }
            if stepped || began.elapsed() > FULL_WAIT {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Waits briefly if the request that was just posted can then be a direct copy. Here and not in a step,
    /// for which others would wait.
    fn await_settled(&self, remote: Access) {
        if let Some(peer_notify) = self.peer_notify.get().and_then(Weak::upgrade) {
            peer_notify.await_settled(remote);
        }
    }
}

impl Posting<'_> {
    /// Adds all of these requests or, if the queue does not have room for all, none: ENOMEM.
    pub(crate) fn post_all(&mut self, wrs: Vec<SendWr>) -> Result<(), Errno> {
        let qp = self.qp;
        if qp.room() < wrs.len() {
            qp.drive(reason::POSTED, By::Program);
            if qp.room() < wrs.len() {
                if let Some(instruments) = qp.instruments.as_ref().filter(|_| qp.entries.room() >= wrs.len())
                {
                    instruments.refuse();
                }
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
        self.add(wr, true)
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
        if !qp.entries.take() && !qp.take_place_of_others() {
            return Err(libc::ENOMEM);
        }
        self.posted = true;
        self.remote = wr.transferable().then(|| wr.remote(0));
        probes::post(qp.num, &wr);
        let push = |wr| qp.sends.push(wr);
        let pushed = match &qp.instruments {
            None => push(wr),
            Some(instruments) => instruments.post(wr, qp.accessor(), denied, push),
        };
        pushed.map_err(|_| {
            qp.entries.untake();
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
        let delay = qp
            .coalescer
            .begins(kind, over, || qp.send_cq.has_more() || qp.recv_cq.has_more(), clock)
            .filter(|_| qp.sends.len() < BURST && !awaited);
        // While the connection begins there may be no engine yet to leave it to.
        match (delay, qp.engine.get()) {
            (Some((delay, now)), Some(engine)) => {
                let list = qp.turn.defer(reason::POSTED);
                qp.send_cq.note_deferred();
                qp.recv_cq.note_deferred();
                // Most requests only go into the ring, which takes less time than a look at the clock.
                let mut returned = now;
                if let Some(this) = if list { qp.this.upgrade() } else { None } {
                    engine.list_later(this, delay);
                    returned = clock();
                }
                qp.coalescer.returns(returned);
            }
            _ => {
                if let Some(remote) = self.remote {
                    qp.await_settled(remote);
                }
                qp.drive(reason::POSTED, By::Program);
                if !matches!(kind, Kind::Large) {
                    qp.coalescer.returns(clock());
                }
            }
        }
    }
}
