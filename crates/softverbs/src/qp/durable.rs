// SPDX-License-Identifier: BSD-3-Clause
//! A peer's read of a region for persistent flush is answered when what that peer wrote there is durable.
//!
//! Persistent memory and memory files are as quick as a system call, so the thread that took the read sees to it at once. A disk is
//! not: once it was slow, the worker waits for it, and this thread goes on with other connections. The answer stands in its turn
//! among the answers, held back until the worker releases it.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Qp;
use super::tx::Failure;
use crate::limits::SLOW_MEDIA_US;
use crate::memory::Dirty;
use crate::sys::Errno;
use crate::{lock, worker};
use iwarp::rdmap::{ReadRequest, TermCode};

/// Why a read got no place among the answers.
pub(super) enum Refused {
    /// The peer has more reads open than it was told it may.
    TooMany,
    /// What it wrote cannot be made durable.
    NotDurable,
}

impl Qp {
    /// Takes a read that is answered when `dirty` is durable.
    pub(super) fn answer_durable(
        self: &Arc<Self>,
        request: ReadRequest,
        dirty: Vec<Dirty>,
    ) -> Result<(), Refused> {
        let later = !dirty.is_empty() && self.slow_media.load(Ordering::Relaxed);
        if !later {
            self.make_durable(&dirty).map_err(|_| Refused::NotDurable)?;
        }
        let number = lock(&self.tx).answer(request, !later).ok_or(Refused::TooMany)?;
        if later {
            let qp = self.clone();
            worker::run(Box::new(move || qp.release_answer(number, &dirty)));
        }
        Ok(())
    }

    fn release_answer(self: &Arc<Self>, number: u64, dirty: &[Dirty]) {
        let durable = self.make_durable(dirty);
        let mut tx = lock(&self.tx);
        match durable {
            Ok(()) => tx.release_answer(number),
            Err(_) => tx.fail(Failure::Response(TermCode::LOCAL_CATASTROPHIC)),
        }
        self.flush_tx(&mut tx);
    }

    fn make_durable(&self, dirty: &[Dirty]) -> Result<(), Errno> {
        if dirty.is_empty() {
            return Ok(());
        }
        let began = Instant::now();
        // All of them, whatever fails: they are not asked for again.
        let result = dirty.iter().map(Dirty::make_durable).fold(Ok(()), Result::and);
        self.slow_media.store(began.elapsed() > Duration::from_micros(SLOW_MEDIA_US), Ordering::Relaxed);
        result
    }
}
