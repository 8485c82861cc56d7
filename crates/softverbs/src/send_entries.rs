// SPDX-License-Identifier: BSD-3-Clause
//! The entries of a send queue that are in use.
//!
//! In software RDMA an unsignalled request frees its entry when the connection has completed it, and a
//! signalled one when its completion is polled: a program whose completion queue is as
//! long as its send queue can never overrun it.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::instrument::Instruments;
use transport::wr::{Completion, opcode};

/// The entries of one send queue.
pub(crate) struct SendEntries {
    max: u32,
    in_use: AtomicU32,
    /// Those of the queue pair, which count completions that the program takes.
    instruments: Option<Arc<Instruments>>,
}

impl SendEntries {
    pub(crate) fn new(max: u32, instruments: Option<Arc<Instruments>>) -> Self {
        Self { max, in_use: AtomicU32::new(0), instruments }
    }

    /// Takes an entry for a request that is posted.
    pub(crate) fn take(&self) -> bool {
        let before = self.in_use.fetch_add(1, Ordering::Acquire);
        if before >= self.max {
            self.in_use.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Frees what [`Self::take`] took: the request was not posted.
    pub(crate) fn untake(&self) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether no request is outstanding, and no completion either that the program has not taken.
    #[inline]
    pub(crate) fn are_free(&self) -> bool {
        self.in_use.load(Ordering::Relaxed) == 0
    }

    /// How many requests can be posted.
    pub(crate) fn room(&self) -> usize {
        self.max.saturating_sub(self.in_use.load(Ordering::Acquire)) as usize
    }

    /// An unsignalled request is complete.
    pub(crate) fn release(&self) {
        self.in_use.fetch_sub(1, Ordering::Release);
    }

    /// The program has taken the oldest completion, of a request or, where the queue pair has instruments, of
    /// a receive. True if [`Self::tell`] has something to report, when the caller holds no lock.
    #[inline]
    pub(crate) fn taken(&self, completion: &Completion) -> bool {
        if completion.opcode & opcode::RECV == 0 {
            self.in_use.fetch_sub(1, Ordering::Relaxed);
        }
        self.instruments.as_ref().is_some_and(|instruments| instruments.taken(completion))
    }

    /// Reports what [`Self::taken`] has found.
    #[cold]
    pub(crate) fn tell(&self) {
        if let Some(instruments) = &self.instruments {
            instruments.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_free_when_its_request_is_over() {
        let entries = SendEntries::new(4, None);
        for _ in 0..3 {
            assert_eq!(((0..9).filter(|_| entries.take()).count(), entries.room()), (4, 0));
            (0..4).for_each(|_| entries.release());
        }
        assert!(entries.take());
        entries.untake();
        assert!(entries.room() == 4 && entries.are_free());
    }
}
