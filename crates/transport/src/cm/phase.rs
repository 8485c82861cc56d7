// SPDX-License-Identifier: BSD-3-Clause
//! The phase of an identifier in the life of a connection: it decides which call is permitted and which event
//! is due. A plain value without socket or lock.
//!
//! ```text
//! Idle ── listen ─▶ Listening
//!   └──── connect ─▶ Connecting ──┬─ ESTABLISHED ─▶ Connected ── DISCONNECTED ─▶ Ended
//! Requested ─ accept ─▶ Accepting ┘      (REJECTED, UNREACHABLE, CONNECT_ERROR) ─▶ Ended
//!      └───── reject ─▶ Ended
//! ```
//!
//! The peer may use a new connection and close it before the call that establishes it here has returned. The
//! end is then reported after ESTABLISHED ([`Phase::BrokenEarly`]). Each identifier reports at most one
//! outcome and one end, and nothing after it was destroyed.

use crate::units::Errno;

/// An event that changes the phase: the outcome of an attempt or a request, or the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// `RDMA_CM_EVENT_ESTABLISHED`
    Established,
    /// `RDMA_CM_EVENT_REJECTED`
    Rejected,
    /// `RDMA_CM_EVENT_UNREACHABLE`
    Unreachable,
    /// `RDMA_CM_EVENT_CONNECT_ERROR`
    ConnectError,
    /// `RDMA_CM_EVENT_DISCONNECTED`
    Disconnected,
}

impl EventKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Established, Self::Rejected, Self::Unreachable, Self::ConnectError, Self::Disconnected];
}

/// The types of what an identifier holds in a phase: listener, attempt and request, or placeholders in a
/// test.
pub trait Held {
    /// A listener.
    type Listener;
    /// A connection attempt.
    type Attempt;
    /// A connect request.
    type Request;
}

/// The phase of an identifier.
pub enum Phase<H: Held> {
    /// Neither listening nor connecting; may be bound or resolved.
    Idle,
    /// The program has called rdma_listen(3).
    Listening(H::Listener),
    /// The program has called rdma_connect(3). `None` until the attempt has been started.
    Connecting(Option<H::Attempt>),
    /// The identifier of a connect request that the program has neither accepted nor rejected.
    Requested(H::Request),
    /// The program has called rdma_accept(3). If the peer has announced an RTR, its arrival establishes the
    /// connection.
    Accepting {
        /// The peer has announced an RTR.
        awaits: bool,
    },
    /// ESTABLISHED has been reported, and no end.
    Connected,
    /// The connection ended before its ESTABLISHED event was queued.
    BrokenEarly,
    /// The connection or the attempt has ended, the request was rejected, or the identifier is being
    /// destroyed.
    Ended,
}

/// The result of rdma_disconnect(3).
#[derive(Debug, PartialEq, Eq)]
pub enum Disconnect {
    /// There is a connection; its end will be reported.
    Ends,
    /// The connection had already ended, and its end has been reported.
    HasEnded,
}

impl<H: Held> Phase<H> {
    /// EINVAL: the identifier is not idle.
    pub fn idle(&self) -> Result<(), Errno> {
        if matches!(self, Self::Idle) { Ok(()) } else { Err(libc::EINVAL) }
    }

    /// rdma_listen(3). Returns `listener` as the error if the identifier is not idle.
    pub fn listen(&mut self, listener: H::Listener) -> Result<(), H::Listener> {
        if self.idle().is_err() {
            return Err(listener);
        }
        *self = Self::Listening(listener);
        Ok(())
    }

    /// rdma_connect(3) begins. EINVAL: the identifier is not idle.
    pub fn connect(&mut self) -> Result<(), Errno> {
        self.idle()?;
        *self = Self::Connecting(None);
        Ok(())
    }

    /// Stores the started attempt, unless its outcome has already been reported.
    pub fn started(&mut self, attempt: H::Attempt) {
        if let Self::Connecting(none @ None) = self {
            *none = Some(attempt);
        }
    }

    /// The attempt could not be started, so it has no outcome, and the program may try again.
    pub fn not_started(&mut self) {
        if matches!(self, Self::Connecting(None)) {
            *self = Self::Idle;
        }
    }

    /// EINVAL: there is no connect request to accept or reject.
    pub fn requested(&self) -> Result<(), Errno> {
        if matches!(self, Self::Requested(_)) { Ok(()) } else { Err(libc::EINVAL) }
    }

    /// rdma_accept(3). `awaits` tells whether the peer of a request has announced an RTR. Returns the request
    /// and that answer. EINVAL: there is no request.
    pub fn accept(&mut self, awaits: impl FnOnce(&H::Request) -> bool) -> Result<(H::Request, bool), Errno> {
        let request = self.answer()?;
        let awaits = awaits(&request);
        *self = Self::Accepting { awaits };
        Ok((request, awaits))
    }

    /// The reply that accepts the request could not be sent: the call fails, and no event follows.
    pub fn not_accepted(&mut self) {
        *self = Self::Ended;
    }

    /// The reply that accepts a request for datagrams has been sent: there is no connection, and no event
    /// follows.
    pub fn answered(&mut self) {
        *self = Self::Ended;
    }

    /// rdma_reject(3). Returns the request. EINVAL: there is none.
    pub fn reject(&mut self) -> Result<H::Request, Errno> {
        self.answer()
    }

    fn answer(&mut self) -> Result<H::Request, Errno> {
        match std::mem::replace(self, Self::Ended) {
            Self::Requested(request) => Ok(request),
            other => {
                *self = other;
                Err(libc::EINVAL)
            }
        }
    }

    /// An event of this kind is due. Returns the kinds to queue, in this order; none if the end has been
    /// reported or the identifier is being destroyed.
    pub fn report(&mut self, kind: EventKind) -> &'static [EventKind] {
        const ESTABLISHED: &[EventKind] = &[EventKind::Established];
        const BOTH: &[EventKind] = &[EventKind::Established, EventKind::Disconnected];
        match (kind, &self) {
            (EventKind::Established, Self::Connecting(_) | Self::Accepting { .. }) => {
                *self = Self::Connected;
                ESTABLISHED
            }
            (EventKind::Established, Self::BrokenEarly) => {
                *self = Self::Ended;
                BOTH
            }
            (EventKind::Disconnected, Self::Connected) => {
                *self = Self::Ended;
                &[EventKind::Disconnected]
            }
            // The queue pair did not take the connection, or the connection ended before the RTR.
            (EventKind::ConnectError, Self::Connecting(_) | Self::Accepting { .. } | Self::BrokenEarly) => {
                *self = Self::Ended;
                &[EventKind::ConnectError]
            }
            // Over RoCE the peer may also withdraw its request, or not confirm the reply.
            (EventKind::Rejected, Self::Connecting(_) | Self::Requested(_) | Self::Accepting { .. }) => {
                *self = Self::Ended;
                &[EventKind::Rejected]
            }
            (EventKind::Unreachable, Self::Connecting(_) | Self::Accepting { .. }) => {
                *self = Self::Ended;
                &[EventKind::Unreachable]
            }
            _ => &[],
        }
    }

    /// The connection has ended. Returns the event that is now due.
    pub fn ended(&mut self) -> Option<EventKind> {
        match self {
            Self::Connected => Some(EventKind::Disconnected),
            Self::Accepting { awaits: true } => Some(EventKind::ConnectError),
            Self::Connecting(_) | Self::Accepting { awaits: false } => {
                *self = Self::BrokenEarly;
                None
            }
            _ => None,
        }
    }

    /// rdma_disconnect(3). EINVAL: the identifier never had a connection.
    pub fn disconnect(&self) -> Result<Disconnect, Errno> {
        match self {
            Self::Accepting { .. } | Self::Connected | Self::BrokenEarly => Ok(Disconnect::Ends),
            Self::Ended => Ok(Disconnect::HasEnded),
            _ => Err(libc::EINVAL),
        }
    }

    /// rdma_destroy_id(3). Returns the phase with what must be closed. No further event is reported.
    pub fn destroy(&mut self) -> Self {
        std::mem::replace(self, Self::Ended)
    }

    /// Whether an event may become due without another call by the program.
    pub fn may_report(&self) -> bool {
        match self {
            Self::Listening(_)
            | Self::Connecting(_)
            | Self::Accepting { .. }
            | Self::Connected
            | Self::BrokenEarly => true,
            Self::Idle | Self::Requested(_) | Self::Ended => false,
        }
    }

    /// Its listener, if it is listening.
    pub fn listener(&self) -> Option<&H::Listener> {
        match self {
            Self::Listening(listener) => Some(listener),
            _ => None,
        }
    }

    /// Whether the connection is established, and has not ended.
    pub fn is_connected(&self) -> bool {
        matches!(self, Self::Connected)
    }

    /// Whether the identifier has requested or accepted a connection, even one that has ended.
    pub fn has_begun(&self) -> bool {
        !matches!(self, Self::Idle | Self::Listening(_) | Self::Requested(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Names {}

    impl Held for Names {
        type Listener = &'static str;
        type Attempt = &'static str;
        type Request = &'static str;
    }

    type Named = Phase<Names>;

    fn all() -> [Named; 9] {
        [
            Phase::Idle,
            Phase::Listening("listener"),
            Phase::Connecting(None),
            Phase::Requested("request"),
            Phase::Accepting { awaits: true },
            Phase::Accepting { awaits: false },
            Phase::Connected,
            Phase::BrokenEarly,
            Phase::Ended,
        ]
    }

    fn name(phase: &Named) -> &'static str {
        match phase {
            Phase::Idle => "idle",
            Phase::Listening(_) => "listening",
            Phase::Connecting(None) => "connecting",
            Phase::Connecting(Some(_)) => "started",
            Phase::Requested(_) => "requested",
            Phase::Accepting { awaits: true } => "awaiting",
            Phase::Accepting { awaits: false } => "accepting",
            Phase::Connected => "connected",
            Phase::BrokenEarly => "broken early",
            Phase::Ended => "ended",
        }
    }

    /// The phases in which a call is permitted, each with the phase after it. A refused call must change
    /// nothing.
    fn permitted<T, E>(call: impl Fn(&mut Named) -> Result<T, E>) -> Vec<(&'static str, &'static str)> {
        let mut permitted = Vec::new();
        for mut phase in all() {
            let before = name(&phase);
            match call(&mut phase) {
                Ok(_) => permitted.push((before, name(&phase))),
                Err(_) => assert_eq!(name(&phase), before),
            }
        }
        permitted
    }

    #[test]
    fn each_call_is_permitted_in_its_phases_only() {
        assert_eq!(permitted(|phase| phase.listen("another")), [("idle", "listening")]);
        assert_eq!(permitted(Phase::connect), [("idle", "connecting")]);
        assert_eq!(permitted(|phase| phase.accept(|_| true)), [("requested", "awaiting")]);
        assert_eq!(permitted(|phase| phase.accept(|_| false)), [("requested", "accepting")]);
        assert_eq!(permitted(Phase::reject), [("requested", "ended")]);
        let ended: Vec<_> =
            permitted(|phase| phase.disconnect()).into_iter().map(|(before, _)| before).collect();
        assert_eq!(ended, ["awaiting", "accepting", "connected", "broken early", "ended"]);
    }

    #[test]
    fn each_event_is_reported_once_and_in_its_phase_only() {
        let reported = |kind| {
            let mut reported = Vec::new();
            for mut phase in all() {
                let before = name(&phase);
                let kinds = phase.report(kind);
                assert_eq!(kinds.is_empty(), name(&phase) == before, "{before}");
                if !kinds.is_empty() {
                    reported.push((before, name(&phase), kinds.len()));
                    assert_eq!(kinds[0], kind);
                }
            }
            reported
        };
        assert_eq!(
            reported(EventKind::Established),
            [
                ("connecting", "connected", 1),
                ("awaiting", "connected", 1),
                ("accepting", "connected", 1),
                ("broken early", "ended", 2)
            ]
        );
        assert_eq!(reported(EventKind::Disconnected), [("connected", "ended", 1)]);
        let before = |kind| reported(kind).into_iter().map(|(before, ..)| before).collect::<Vec<_>>();
        assert_eq!(before(EventKind::Rejected), ["connecting", "requested", "awaiting", "accepting"]);
        assert_eq!(before(EventKind::Unreachable), ["connecting", "awaiting", "accepting"]);
        let failed: Vec<_> =
            reported(EventKind::ConnectError).into_iter().map(|(before, ..)| before).collect();
        assert_eq!(failed, ["connecting", "awaiting", "accepting", "broken early"]);
    }

    #[test]
    fn the_outcome_may_be_reported_before_the_attempt_is_stored() {
        let mut phase = Named::Idle;
        phase.connect().unwrap();
        phase.report(EventKind::Rejected);
        phase.started("attempt");
        assert_eq!(name(&phase), "ended");
        let mut phase = Named::Idle;
        phase.connect().unwrap();
        phase.started("attempt");
        assert_eq!(name(&phase), "started");
        let mut phase = Named::Idle;
        phase.connect().unwrap();
        phase.not_started();
        assert_eq!(name(&phase), "idle", "the program may try again");
    }

    #[test]
    fn a_destroyed_identifier_reports_nothing() {
        for mut phase in all() {
            phase.destroy();
            assert!(!phase.may_report() && phase.ended().is_none());
            for kind in EventKind::ALL {
                assert_eq!(phase.report(kind), &[]);
            }
        }
    }
}
