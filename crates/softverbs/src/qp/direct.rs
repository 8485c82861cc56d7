// SPDX-License-Identifier: BSD-3-Clause
//! The fast path of a write, an atomic write or a read that can be carried out directly, and of a short
//! message to a peer on this host: from the post to its completion without the ring, the send queue and a
//! step.
//!
//! It is taken by a single request that finds the queue pair idle. If it cannot be carried out, for whatever
//! reason, the request goes into the ring like any other one, in the same place.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Qp;
use super::driver::{Host, Session};
use super::linked::{Linked, Transport};
use super::posting::clock;
use crate::policy::coalesce::Post;
use crate::progress::ring::Claim;
use crate::progress::turn::Entry;
use crate::progress::{By, Driven};
use crate::sys::Errno;
use crate::{lock, probes};
use transport::iwarp::conn::Offered;
use transport::step::reason;
use transport::wr::{Local, Op, SendWr};

/// The longest copy on the fast path: work that other threads leave meanwhile is driven after it.
const LONGEST: u32 = 256 << 10;
/// The longest message on it. Longer ones are left to a step, with its budget.
const LONGEST_MESSAGE: u32 = 4096;

/// A request that was not carried out.
pub(super) struct Refused<'a> {
    post: Post,
    fallback: Fallback<'a>,
}

/// Where a refused request goes.
enum Fallback<'a> {
    /// Into the ring, at this entry. The caller has the turn.
    AtEntry(Claim<'a, SendWr>),
    /// Into the ring, behind others.
    Queued,
    /// Into the ring, to wait for the next one.
    Deferred(Duration),
    /// Nowhere: the connection has queued it, and the link has accepted a part of it.
    Begun,
}

impl Qp {
    /// Whether [`Self::offer`] is worth trying for a request.
    #[inline]
    pub(super) fn is_direct(&self, wr: &SendWr) -> bool {
        let is_short = match wr.op {
            Op::Send => {
                let is_plain = matches!(wr.local, Local::Memory { .. } | Local::Inline(_));
                is_plain && wr.len <= LONGEST_MESSAGE
            }
            _ => wr.len <= LONGEST && self.may_be_direct(wr) && !wr.is_atomic(),
        };
        is_short
            && self.tries_direct.load(Ordering::Relaxed)
            && self.sends.is_empty()
            && !self.is_left_behind()
    }

    /// Whether a request may be carried out directly, as far as its operation and the last word show.
    #[inline]
    pub(super) fn may_be_direct(&self, wr: &SendWr) -> bool {
        wr.transferable() && (!wr.is_of_word() || self.words.are_mapped())
    }

    /// Offers a single request to be carried out directly, and completes it. `is_reported`: the program
    /// learns of its completion.
    #[inline]
    pub(super) fn offer(&self, wr: &SendWr, is_reported: bool) -> Result<(), Refused<'_>> {
        probes::post(self.num, wr);
        let post = Post {
            len: wr.len,
            signaled: is_reported,
            alone: self.sends.is_unused(),
            is_armed: self.send_cq.is_armed(),
            more: self.send_cq.has_more() || self.recv_cq.has_more(),
            queued: 1,
        };
        let carried_out = match self.coalescer.begins(&post, clock) {
            None => self.carry_out_in_turn(wr),
            Some(delay) => Err(Fallback::Deferred(delay)),
        };
        carried_out.map_err(|fallback| Refused { post, fallback })?;
        self.coalescer.returns(&post, clock);
        Ok(())
    }

    /// Takes the turn if the queue pair is idle, and carries out a request; gives it back if the request is
    /// complete, or cannot have the next entry of the ring.
    #[inline]
    fn carry_out_in_turn(&self, wr: &SendWr) -> Result<(), Fallback<'_>> {
        if !self.turn.enter_at_rest() {
            return Err(Fallback::Queued);
        }
        let Some(entry) = self.sends.claim() else {
            self.leave();
            return Err(Fallback::Queued);
        };
        let carried_out = match self.carry_out(wr) {
            Offered::Complete => Ok(()),
            Offered::Taken => Err(Fallback::Begun),
            Offered::Refused => return Err(Fallback::AtEntry(entry)),
        };
        entry.taken();
        self.leave();
        carried_out
    }

    /// Posts a request that was refused. Results as those of
    /// [`Posting::post`](super::posting::Posting::post).
    #[cold]
    #[inline(never)]
    pub(super) fn post_refused(
        &self,
        wr: SendWr,
        Refused { post, fallback }: Refused<'_>,
    ) -> Result<(), Errno> {
        let remote = wr.transferable().then(|| wr.remote(0));
        match (fallback, self.engine.get()) {
            (Fallback::Begun, _) => {}
            (Fallback::AtEntry(entry), _) => {
                entry.push(wr);
                self.leave();
            }
            (Fallback::Deferred(delay), Some(engine)) => {
                self.push(wr, false)?;
                self.defer(engine, &post, delay);
                return Ok(());
            }
            // While the connection begins there may be no engine yet to leave it to.
            (Fallback::Queued | Fallback::Deferred(_), _) => {
                self.push(wr, false)?;
            }
        }
        if let Some(remote) = remote {
            self.await_settled(remote);
        }
        self.drive(reason::POSTED, By::Program);
        self.coalescer.returns(&post, clock);
        Ok(())
    }

    /// Leaves the turn, or drives the connection if another thread has left a reason.
    #[inline]
    fn leave(&self) {
        if !self.turn.leave() {
            self.run(Entry::Taken, By::Program);
        }
    }

    /// Offers a request to the connection. The caller has the turn.
    #[inline]
    fn carry_out(&self, wr: &SendWr) -> Offered {
        let mut session = lock(&self.session);
        if self.turn.is_closed() {
            return Offered::Refused;
        }
        let Session { transport: Transport::Iwarp(Linked { conn, link }), batch, process, .. } =
            &mut *session
        else {
            return Offered::Refused;
        };
        conn.carry_out(&mut Host::new(self, link, batch, *process), wr)
    }
}
