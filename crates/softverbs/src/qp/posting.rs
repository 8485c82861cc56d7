// SPDX-License-Identifier: BSD-3-Clause
//! Posting to the send queue, and which requests go out together.
//!
//! A post drives its connection, so a request has reached the kernel when the call returns, unless it waits
//! for the next one ([`coalesce`](crate::policy::coalesce)).
#![forbid(unsafe_code)]

use once_cell::race::OnceBox;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Qp;
use crate::instrument::NotPosted;
use crate::policy::coalesce::Post;
use crate::progress::engine::Engine;
use crate::progress::{By, Driven};
use crate::sys::Errno;
use crate::{lock, probes};
use transport::access::Access;
use transport::step::reason;
use transport::wr::{Op, SendWr};

/// How long a post to a full send queue waits for another thread that is sending the requests before it: a
/// few time slices of a scheduler. Over RoCE also for the acknowledgement of an unsignalled request, whose
/// entry is then free; softverbs(7) states this limit.
const FULL_WAIT: Duration = Duration::from_millis(20);

/// Nanoseconds since the first call.
pub(super) fn clock() -> u64 {
    static START: OnceBox<Instant> = OnceBox::new();
    START.get_or_init(|| Box::new(Instant::now())).elapsed().as_nanos() as u64
}

/// Requests that one call posts to the send queue. They are sent with the last one or, if that is not posted,
/// when this is dropped.
pub(crate) struct Posting<'a> {
    qp: &'a Qp,
    /// Requests were posted but not sent yet.
    posted: bool,
    /// Bytes of the longest payload that is sent, or of the longest read that may be direct.
    len: u32,
    signaled: bool,
    /// When the first one was posted, no earlier one was outstanding, nor had a completion to be polled.
    alone: bool,
    /// The remote range of the last request, if it may be carried out directly.
    remote: Option<Access>,
}

impl Qp {
    /// EINVAL before there is a connection.
    #[inline]
    pub(super) fn check_connected(&self) -> Result<(), Errno> {
        if self.state.takes_sends() { Ok(()) } else { Err(libc::EINVAL) }
    }

    /// For the requests of one call.
    #[inline]
    pub(crate) fn posting(&self) -> Posting<'_> {
        Posting { qp: self, posted: false, len: 0, signaled: false, alone: false, remote: None }
    }

    /// Waits for `count` free entries of a full queue: the requests may only wait in the ring, another thread
    /// may be sending them now, or they are not acknowledged yet. The program did not decide that, so it gets
    /// no error for it: the thread that sends may itself wait for a processor.
    #[cold]
    fn await_entries(&self, count: usize) -> bool {
        let began = Instant::now();
        loop {
            let stepped = self.drive(reason::POSTED, By::Program);
            if self.sends.room() >= count {
                return true;
            }
            let waits = !stepped || lock(&self.session).transport.conn().awaits_entries();
            if !waits || began.elapsed() > FULL_WAIT {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Posts a request; `denied`: the remote memory does not permit its access. The result is that of
    /// [`Ring::push`](crate::progress::ring::Ring::push). ENOMEM: the queue is full.
    #[inline]
    pub(super) fn push(&self, wr: SendWr, denied: bool) -> Result<bool, Errno> {
        self.instruments.post(&self.sends, wr, denied, |why| self.push_late(why, denied))
    }

    /// Posts a request that was not posted because the queue was full.
    #[cold]
    fn push_late(&self, mut why: NotPosted, denied: bool) -> Result<bool, Errno> {
        while let NotPosted::Full(wr) = why {
            if !self.await_entries(1) {
                break;
            }
            match self.instruments.post(&self.sends, wr, denied, Err) {
                Ok(alone) => return Ok(alone),
                Err(again) => why = again,
            }
        }
        Err(libc::ENOMEM)
    }

    /// Leaves a post to the next one, or to the engine after a delay.
    pub(super) fn defer(&self, engine: &Engine, post: &Post, delay: Duration) {
        let list = self.turn.defer(reason::POSTED);
        self.send_cq.note_deferred();
        self.recv_cq.note_deferred();
        // Most requests only go into the ring, which takes less time than a look at the clock.
        if let Some(this) = if list { self.this.upgrade() } else { None } {
            engine.list_later(this, delay);
            self.coalescer.returns(post, clock);
        }
    }

    /// Waits briefly if the request that was just posted, with this remote range, can then be carried out
    /// directly. Here and not in a step: other connections would wait for that.
    pub(super) fn await_settled(&self, remote: Access) {
        if let Some(peer_notify) = self.peer_notify() {
            peer_notify.await_settled(remote);
        }
    }
}

impl Posting<'_> {
    /// Posts all of these requests or, if the queue does not have room for all, none: ENOMEM. EINVAL before
    /// there is a connection.
    pub(crate) fn post_all(&mut self, wrs: Vec<SendWr>) -> Result<(), Errno> {
        let qp = self.qp;
        qp.check_connected()?;
        let has_room = qp.sends.room() >= wrs.len() || qp.await_entries(wrs.len());
        if !has_room || !qp.instruments.has_room(wrs.len()) {
            return Err(libc::ENOMEM);
        }
        let count = wrs.len();
        wrs.into_iter().enumerate().try_for_each(|(i, wr)| self.post(wr, i + 1 == count))
    }

    /// Posts a request; `last`: no other one follows. EINVAL before there is a connection, ENOMEM when the
    /// queue is full.
    #[inline]
    pub(crate) fn post(&mut self, wr: SendWr, last: bool) -> Result<(), Errno> {
        let qp = self.qp;
        if last && !self.posted && qp.is_direct(&wr) {
            qp.check_connected()?;
            // By reference: a request is moved only if it is refused.
            return qp.offer(&wr, wr.signaled).or_else(|refused| qp.post_refused(wr, refused));
        }
        self.add(wr, false)?;
        if last {
            self.send();
        }
        Ok(())
    }

    /// Posts the only request, a signalled one. True: the call has executed it, and no work completion is
    /// generated. Errors as those of [`Self::post`].
    #[inline]
    pub(crate) fn post_at_once(&mut self, mut wr: SendWr) -> Result<bool, Errno> {
        let qp = self.qp;
        // The link may accept a part of a message: then it has a completion. And without completions nobody
        // can tell whether the program waits for each request, or whether several could share a system call.
        if wr.op == Op::Send || !qp.coalescer.needs_no_call() || !qp.is_direct(&wr) {
            return self.post(wr, true).map(|()| false);
        }
        qp.check_connected()?;
        let signaled = std::mem::replace(&mut wr.signaled, false);
        let Err(refused) = qp.offer(&wr, signaled) else { return Ok(true) };
        wr.signaled = signaled;
        qp.post_refused(wr, refused).map(|()| false)
    }

    /// Posts the only request, for an access that the remote memory does not permit.
    #[cold]
    pub(crate) fn post_denied(&mut self, wr: SendWr) -> Result<(), Errno> {
        self.add(wr, true)?;
        self.send();
        Ok(())
    }

    #[inline]
    fn add(&mut self, wr: SendWr, denied: bool) -> Result<(), Errno> {
        let qp = self.qp;
        qp.check_connected()?;
        if wr.op != Op::Read || qp.tries_direct.load(Ordering::Relaxed) {
            self.len = self.len.max(wr.len);
        }
        self.signaled |= wr.signaled;
        self.remote = qp.may_be_direct(&wr).then(|| wr.remote(0));
        probes::post(qp.num, &wr);
        let alone = qp.push(wr, denied)?;
        if !self.posted {
            (self.posted, self.alone) = (true, alone);
        }
        Ok(())
    }

    /// Sends what was posted, unless the next request is worth waiting for.
    fn send(&mut self) {
        self.posted = false;
        let qp = self.qp;
        if qp.is_left_behind() {
            return;
        }
        let is_armed = qp.send_cq.is_armed();
        let more = qp.send_cq.has_more() || qp.recv_cq.has_more();
        let Self { len, signaled, alone, .. } = *self;
        let post = Post { len, signaled, alone, is_armed, more, queued: qp.sends.len() };
        // While the connection begins there may be no engine yet to leave it to.
        match (qp.coalescer.begins(&post, clock), qp.engine.get()) {
            (Some(delay), Some(engine)) => qp.defer(engine, &post, delay),
            _ => {
                if let Some(remote) = self.remote {
                    qp.await_settled(remote);
                }
                qp.drive(reason::POSTED, By::Program);
                qp.coalescer.returns(&post, clock);
            }
        }
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        if self.posted {
            self.send();
        }
    }
}
