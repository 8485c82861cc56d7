// SPDX-License-Identifier: BSD-3-Clause
//! Which thread receives: the engine, or threads of the program that poll.
//!
//! The sockets of the port are an epoll set, like those of a completion queue, with the same
//! [`Attention`](crate::progress::attention::Attention): the kernel wakes the engine for them, or, once polls
//! of the program have repeatedly received datagrams, the engine checks the set at ticks only. No thread of
//! the program sleeps on the set, and there is no shared memory with a peer.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Port;
use crate::lock;
use crate::progress::By;
use crate::progress::attention::{Orders, Tick};
use crate::progress::source::{Source, Ticking};

impl Port {
    /// The program polls and has not requested an event.
    #[inline]
    pub(crate) fn polls(&self) {
        // Only the first poll writes, so that polling threads do not contend for the cache line.
        if !self.polls.load(Ordering::Relaxed) {
            self.polls.store(true, Ordering::Relaxed);
        }
    }

    /// Receives without blocking, in a polling thread of the program. False: another thread is receiving.
    /// While all queue pairs share memory with their peers, the engine alone receives.
    pub(crate) fn poll(&self) -> bool {
        if !self.table.has_any_at_port() {
            return true;
        }
        let Ok(receiver) = self.receiver.try_lock() else { return false };
        if self.receive_polled(receiver) {
            self.attention.polled(self);
        }
        true
    }

    /// Whether the engine has ticked since the last call.
    pub(super) fn takes_tick(&self) -> bool {
        self.ticked.load(Ordering::Relaxed) && self.ticked.swap(false, Ordering::Relaxed)
    }

    /// A thread may now sleep until a completion arrives: the kernel wakes the engine from now on, also for
    /// datagrams that are already queued.
    pub(crate) fn arm(&self) {
        self.attention.arm(self);
    }
}

impl Orders for Port {
    fn wake_engine(&self, wanted: bool) -> bool {
        let events = if wanted { libc::EPOLLIN as u32 } else { 0 };
        self.engine.watch(self.token, self.sockets.set.fd(), events).is_ok()
    }

    fn tick(&self) {
        // The port lives as long as its process.
        if let Some(this) = self.this.upgrade() {
            self.engine.tick(this);
        }
    }

    fn request_notifications(&self) {}
}

impl Ticking for Port {
    fn tick(self: Arc<Self>) -> Tick {
        self.ticked.store(true, Ordering::Relaxed);
        self.attention.tick(&*self, || self.receive(lock(&self.receiver), By::Engine))
    }
}

impl Source for Port {
    fn ready(self: Arc<Self>, _events: u32) {
        let polls = self.polls.swap(false, Ordering::Relaxed);
        let receiver = lock(&self.receiver);
        if self.receive(receiver, By::Engine) {
            if polls {
                // A poll would have received this if the engine had not been faster.
                self.attention.would_poll(&*self);
            } else {
                self.attention.waits_otherwise();
            }
        }
    }

    fn timeout(self: Arc<Self>) {
        self.order_timeout();
        self.retry_deferred();
    }
}
