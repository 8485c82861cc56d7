// SPDX-License-Identifier: BSD-3-Clause
//! An identifier of rdma_cm, and the events that its program may see.

use crate::cm::{EventKind, Held, Phase};
use crate::iwarp::wire::mpa::Frame;

pub(super) enum Placeholders {}

impl Held for Placeholders {
    type Listener = ();
    type Attempt = ();
    type Request = Frame;
}

/// An identifier, and the events that its program has seen.
pub(super) struct Identifier {
    pub phase: Phase<Placeholders>,
    pub events: Vec<EventKind>,
    pub is_destroyed: bool,
}

impl Identifier {
    pub(super) fn new(phase: Phase<Placeholders>) -> Self {
        Self { phase, events: Vec::new(), is_destroyed: false }
    }

    pub(super) fn report(&mut self, kind: EventKind) {
        let kinds = self.phase.report(kind);
        assert!(!self.is_destroyed || kinds.is_empty(), "an event after the end of the identifier");
        self.events.extend(kinds);
    }

    /// The connection of the identifier has ended.
    pub(super) fn ended(&mut self) {
        if let Some(kind) = self.phase.ended() {
            self.report(kind);
        }
    }

    pub(super) fn saw(&self, kind: EventKind) -> bool {
        self.events.contains(&kind)
    }

    pub(super) fn destroy(&mut self) {
        self.phase.destroy();
        self.is_destroyed = true;
    }

    /// At most one outcome, then at most one end, and an end only after ESTABLISHED.
    pub(super) fn check(&self) {
        let failures = [EventKind::Rejected, EventKind::Unreachable, EventKind::ConnectError];
        let legal = match self.events[..] {
            [] | [EventKind::Established] | [EventKind::Established, EventKind::Disconnected] => true,
            [kind] => failures.contains(&kind),
            _ => false,
        };
        assert!(legal, "{:?}", self.events);
    }
}
