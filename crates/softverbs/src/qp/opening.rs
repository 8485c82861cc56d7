// SPDX-License-Identifier: BSD-3-Clause
//! The first moments of a connection, until the peer has sent an FPDU.
//!
//! The standard has the initiator speak first: the responder may send when it has received an FPDU. Kernels keep that loosely, and lose
//! what comes when they do not expect it:
//!
//! - A responder in the kernel sends its MPA Reply before it listens for FPDUs. What arrives in between lies in its socket until more
//!   arrives. So an initiator that hears nothing *knocks*: it sends an empty Write, again and again at growing intervals. Until then it
//!   sends less than the socket takes at first; else there would be no room left to knock.
//! - An initiator in the kernel takes bytes that follow the Reply at once for a malformed Reply. So a responder whose peer did not announce
//!   an FPDU lets a moment pass; it cannot wait for one, as the peer's program may be waiting for ours.
//!
//! A responder answers an announced first FPDU with an empty Write, so that an initiator of our own need not wait to know.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use super::tx::Tx;
use super::{Owner, Qp, READY};
use crate::engine::{Engine, Source};
use crate::limits::{FIRST_KNOCK_MS, KNOCKS, RESPONDER_PAUSE_MS, UNHEARD_BYTES};
use crate::lock;

/// Which side asked for the connection, and whether it announced (RFC 6581) to send an FPDU at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    initiator: bool,
    announced: bool,
}

impl Role {
    /// We asked, and the peer knows that an FPDU comes at once.
    pub(crate) const INITIATOR_ANNOUNCED: Role = Role { initiator: true, announced: true };
    /// We asked.
    pub(crate) const INITIATOR: Role = Role { initiator: true, announced: false };
    /// The peer asked, and announced an FPDU: the connection is established when that is there.
    pub(crate) const RESPONDER_TOLD: Role = Role { initiator: false, announced: true };
    /// The peer asked.
    pub(crate) const RESPONDER: Role = Role { initiator: false, announced: false };
}

/// What is still to be done for a peer that has not been heard. Kept by its queue pair, for as long as that lives.
pub(super) struct Opening {
    qp: Weak<Qp>,
    engine: Arc<Engine>,
    role: Role,
    rounds: AtomicU32,
}

impl Qp {
    /// Begins to send on a new connection.
    pub(super) fn open(self: &Arc<Self>, tx: &mut MutexGuard<'_, Tx>, engine: &Arc<Engine>, role: Role) {
        if role.initiator {
            tx.limit(UNHEARD_BYTES);
        } else {
            tx.limit(0);
        }
        if role == Role::INITIATOR_ANNOUNCED {
            tx.queue_empty_write();
        }
        self.flush_tx(tx);
        if role == Role::RESPONDER_TOLD {
            return;
        }
        let opening =
            Opening { qp: Arc::downgrade(self), engine: engine.clone(), role, rounds: AtomicU32::new(0) };
        self.opening.get_or_init(|| Arc::new(opening)).wait();
    }

    /// The peer's first FPDU is there. `announced`: the peer said that it would come, and the connection waited for it.
    pub(super) fn first_fpdu(self: &Arc<Self>, announced: bool) {
        self.heard.store(true, Ordering::Relaxed);
        let mut tx = lock(&self.tx);
        if announced {
            tx.queue_empty_write();
        }
        tx.limit(usize::MAX);
        self.flush_tx(&mut tx);
        drop(tx);
        let owner = if announced { self.owner.get().and_then(Weak::upgrade) } else { None };
        if let Some(owner) = owner {
            Owner::established(&*owner);
        }
    }
}

impl Opening {
    /// Comes back after the time that belongs to the round.
    fn wait(self: &Arc<Self>) {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        let delay = if self.role.initiator { FIRST_KNOCK_MS << round } else { RESPONDER_PAUSE_MS };
        let source: Arc<dyn Source> = self.clone();
        self.engine.schedule(Duration::from_millis(delay), &source);
    }
}

impl Source for Opening {
    /// No descriptor leads here.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        let Some(qp) = self.qp.upgrade() else { return };
        if qp.heard.load(Ordering::Relaxed) || qp.state.load(Ordering::Acquire) != READY {
            return;
        }
        let mut tx = lock(&qp.tx);
        if self.role.initiator {
            tx.knock();
        }
        tx.limit(usize::MAX);
        qp.flush_tx(&mut tx);
        drop(tx);
        if self.role.initiator && self.rounds.load(Ordering::Relaxed) < KNOCKS {
            self.wait();
        }
    }
}
