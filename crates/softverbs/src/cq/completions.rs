// SPDX-License-Identifier: BSD-3-Clause
//! The completions of a queue, with what a poll of each of them acts on. Its holder has locked it.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use super::Time;
use crate::progress::ring::Ring;
use crate::progress::watch::Watch;
use crate::sys::Errno;
use reserve::try_deque;
use transport::wr::{Completion, SendWr, status};

/// A completion in the ring, and the index of its owner.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub completion: Completion,
    pub owner: u32,
}

/// Observes the polls of the completions of a queue pair.
pub(crate) trait PollObserver: Send + Sync {
    /// The program has polled this completion, the oldest one of a request or of a receive. True if
    /// [`Self::report`] has something to log, once the caller holds no lock.
    fn polled(&self, completion: &Completion) -> bool;
    /// Logs what [`Self::polled`] has found.
    fn report(&self);
}

/// What a poll of the completions of a [`Producer`](super::Producer) acts on.
#[derive(Default)]
pub(super) struct Owner {
    /// The send queue of whose entries a completion keeps one until it is polled.
    pub sends: Option<Arc<Ring<SendWr>>>,
    pub observer: Option<Arc<dyn PollObserver>>,
    /// Completions still in the ring, once the producer is gone.
    pub left: Option<usize>,
}

/// What follows a poll when the lock of the ring is released.
#[derive(Default)]
pub(super) struct Unlocked {
    /// Observers that have something to report.
    pub observers: Vec<Arc<dyn PollObserver>>,
    /// Owners to be dropped.
    pub owners: Vec<Owner>,
    /// The first failed completion; one that was not flushed, if there is any.
    pub failed: Option<Completion>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Armed {
    No,
    Solicited,
    Any,
}

/// A watch that holds sockets of connections of a queue.
#[derive(Clone)]
pub(super) struct Watched {
    pub watch: Arc<Watch>,
    /// The queue pairs that send to the completion queue and have their sockets in the watch; one more if
    /// this is the home of the queue.
    pub users: usize,
}

pub(super) struct Completions {
    /// Has memory for `capacity` of them.
    pub entries: VecDeque<Entry>,
    /// The number of entries that the queue has.
    pub capacity: usize,
    /// When each of `entries` was added, if the program asks for that.
    pub times: Option<VecDeque<Time>>,
    /// The number of the newest completions, which no event has announced.
    pub unannounced: usize,
    pub armed: Armed,
    /// By index; those that are free for another producer are listed.
    pub owners: Vec<Owner>,
    pub free_owners: Vec<u32>,
    /// The watches that hold the sockets of all connections of the queue. A thread that uses them without the
    /// lock has a reference, and a change makes a copy then.
    pub watches: Arc<Vec<Watched>>,
}

impl Completions {
    /// ENOMEM.
    pub(super) fn new(capacity: usize) -> Result<Self, Errno> {
        let entries = try_deque(capacity).ok_or(libc::ENOMEM)?;
        let (times, unannounced, armed) = (None, 0, Armed::No);
        let (owners, free_owners) = (Vec::new(), Vec::new());
        let watches = Arc::default();
        Ok(Self { entries, capacity, times, unannounced, armed, owners, free_owners, watches })
    }

    pub(super) fn use_watch(&mut self, watch: &Arc<Watch>) {
        let watches = Arc::make_mut(&mut self.watches);
        match watches.iter_mut().find(|watched| Arc::ptr_eq(&watched.watch, watch)) {
            Some(watched) => watched.users += 1,
            None => watches.push(Watched { watch: watch.clone(), users: 1 }),
        }
    }

    /// Returns a watch without users, to be dropped without the lock.
    pub(super) fn release_watch(&mut self, watch: &Arc<Watch>) -> Option<Watched> {
        let watches = Arc::make_mut(&mut self.watches);
        let at = watches.iter().position(|watched| Arc::ptr_eq(&watched.watch, watch))?;
        watches[at].users -= 1;
        (watches[at].users == 0).then(|| watches.remove(at))
    }

    /// Records from now on when completions are added; those in the queue have the time 0. ENOMEM.
    pub(super) fn record_times(&mut self) -> Result<(), Errno> {
        let mut times = try_deque(self.capacity).ok_or(libc::ENOMEM)?;
        times.resize(self.entries.len(), 0);
        self.times = Some(times);
        Ok(())
    }

    /// Changes the number of entries; the completions stay. EINVAL if there are more of them, ENOMEM.
    pub(super) fn resize(&mut self, capacity: usize) -> Result<(), Errno> {
        if self.entries.len() > capacity {
            return Err(libc::EINVAL);
        }
        let mut entries = try_deque(capacity).ok_or(libc::ENOMEM)?;
        if let Some(old) = &mut self.times {
            let mut times = try_deque(capacity).ok_or(libc::ENOMEM)?;
            times.append(old);
            *old = times;
        }
        entries.append(&mut self.entries);
        (self.entries, self.capacity) = (entries, capacity);
        Ok(())
    }

    /// Takes the oldest completion, and when it was added; 0 if the program does not ask for that.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Entry, Time)> {
        let entry = self.entries.pop_front()?;
        let time = self.times.as_mut().and_then(VecDeque::pop_front).unwrap_or(0);
        Some((entry, time))
    }

    /// A completion was polled, and it has failed, is observed, or its producer is gone.
    #[cold]
    pub(super) fn polled(&mut self, Entry { completion, owner: index }: Entry, after: &mut Unlocked) {
        if completion.status != status::SUCCESS
            && after.failed.is_none_or(|first| first.status == status::WR_FLUSH_ERR)
        {
            after.failed = Some(completion);
        }
        let owner = &mut self.owners[index as usize];
        if let Some(observer) = owner.observer.as_ref().filter(|observer| observer.polled(&completion)) {
            after.observers.push(observer.clone());
        }
        if let Some(left) = &mut owner.left {
            *left -= 1;
            after.owners.extend(self.reuse(index));
        }
    }

    /// Frees the index of an owner with no completions left, and returns the owner: it is dropped without the
    /// lock.
    pub(super) fn reuse(&mut self, owner: u32) -> Option<Owner> {
        let gone = self.owners[owner as usize].left == Some(0);
        gone.then(|| {
            // There is room for all indices.
            self.free_owners.push(owner);
            std::mem::take(&mut self.owners[owner as usize])
        })
    }
}
