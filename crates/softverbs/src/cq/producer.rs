// SPDX-License-Identifier: BSD-3-Clause
//! A queue pair, from the view of a completion queue.
#![forbid(unsafe_code)]

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Cq;
use super::completions::{Owner, PollObserver};
use crate::lock;
use crate::progress::ring::Ring;
use crate::sys::Errno;
use transport::wr::{Completion, SendWr};

/// A queue pair as it adds the completions of its requests, or those of its receives.
pub(crate) struct Producer {
    cq: Arc<Cq>,
    pub(super) owner: u32,
}

impl Producer {
    /// Each completion keeps an entry of `sends` in use until it is polled. ENOMEM.
    pub(crate) fn new(
        cq: Arc<Cq>,
        sends: Option<Arc<Ring<SendWr>>>,
        observer: Option<Arc<dyn PollObserver>>,
    ) -> Result<Self, Errno> {
        let new = Owner { sends, observer, left: None };
        let mut guard = lock(&cq.ring);
        let ring = &mut *guard;
        let owner = match ring.free_owners.pop() {
            Some(owner) => {
                ring.owners[owner as usize] = new;
                owner
            }
            None => {
                let owner = ring.owners.len() as u32;
                ring.owners.try_reserve(1).map_err(|_| libc::ENOMEM)?;
                ring.free_owners.try_reserve(ring.owners.len() + 1).map_err(|_| libc::ENOMEM)?;
                ring.owners.push(new);
                owner
            }
        };
        drop(guard);
        Ok(Self { cq, owner })
    }

    /// Adds a completion. False if the ring is full: the caller keeps the completion and is driven with
    /// [`ROOM`](transport::step::reason::ROOM) after a poll.
    #[inline]
    pub(crate) fn push(&self, completion: Completion) -> bool {
        self.cq.push(completion, self.owner)
    }

    /// Removes the completions of this producer from the queue, as when they are polled.
    pub(crate) fn discard(&self) {
        let mut guard = lock(&self.cq.ring);
        let ring = &mut *guard;
        let mut after = None;
        // Each is taken, and those of others are added again.
        let (count, announced) = (ring.entries.len(), ring.entries.len() - ring.unannounced);
        for position in 0..count {
            let Some((entry, time)) = ring.pop() else { break };
            if entry.owner != self.owner {
                ring.entries.push_back(entry);
                if let Some(times) = &mut ring.times {
                    times.push_back(time);
                }
                continue;
            }
            ring.unannounced -= usize::from(position >= announced);
            let owner = &ring.owners[self.owner as usize];
            if let Some(sends) = &owner.sends {
                sends.free(1);
            }
            if let Some(observer) = owner.observer.as_ref().filter(|one| one.polled(&entry.completion)) {
                after = Some(observer.clone());
            }
        }
        self.cq.note_count(ring);
        if ring.entries.is_empty() {
            self.cq.has_more.store(false, Ordering::Relaxed);
        }
        drop(guard);
        if let Some(observer) = after {
            observer.report();
        }
        self.cq.give_room();
    }

    /// Whether it is the queue at this address.
    pub(crate) fn is_at(&self, cq: usize) -> bool {
        Arc::as_ptr(&self.cq).addr() == cq
    }
}

impl Deref for Producer {
    type Target = Cq;

    fn deref(&self) -> &Cq {
        &self.cq
    }
}

impl Drop for Producer {
    /// What was added stays in the queue, and so does its owner.
    fn drop(&mut self) {
        let mut ring = lock(&self.cq.ring);
        let left = ring.entries.iter().filter(|entry| entry.owner == self.owner).count();
        ring.owners[self.owner as usize].left = Some(left);
        let gone = ring.reuse(self.owner);
        drop(ring);
        drop(gone);
    }
}
