// SPDX-License-Identifier: BSD-3-Clause
//! Reports for `tracing`: a span for each connection, with events for its phases and for operations that
//! fail. An operation that succeeds reports nothing. Without the feature these functions do nothing.

#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "nothing is reported"))]

use std::fmt::Display;
use std::net::SocketAddr;

use crate::error::Error;

/// The span of a connection.
#[derive(Clone)]
pub(crate) struct Trace {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

/// Events to be reported when the connection is unlocked.
#[derive(Default)]
pub(crate) struct Events {
    #[cfg(feature = "tracing")]
    events: Vec<(tracing::Span, Event)>,
}

#[cfg(feature = "tracing")]
enum Event {
    Established,
    NotEstablished(String),
    Closed,
    Lost(String),
    Failed(String),
    Flushed(String),
    Discarded(usize),
}

impl Trace {
    /// A span inside of the current one of this thread.
    pub(crate) fn new(peer: Option<SocketAddr>, is_incoming: bool) -> Self {
        #[cfg(feature = "tracing")]
        {
            let span =
                tracing::info_span!("connection", peer = tracing::field::Empty, incoming = is_incoming);
            if let Some(peer) = peer {
                span.record("peer", tracing::field::display(peer));
            }
            Self { span }
        }
        #[cfg(not(feature = "tracing"))]
        Self {}
    }

    pub(crate) fn established(&self, events: &mut Events) {
        #[cfg(feature = "tracing")]
        events.add(self, Event::Established);
    }

    /// The attempt failed.
    pub(crate) fn not_established(&self, error: &Error, events: &mut Events) {
        #[cfg(feature = "tracing")]
        events.add(self, Event::NotEstablished(error.to_string()));
    }

    pub(crate) fn closed(&self, events: &mut Events) {
        #[cfg(feature = "tracing")]
        events.add(self, Event::Closed);
    }

    pub(crate) fn lost(&self, reason: &str, events: &mut Events) {
        #[cfg(feature = "tracing")]
        events.add(self, Event::Lost(reason.to_owned()));
    }

    /// An operation failed by itself.
    pub(crate) fn failed(&self, error: &Error, events: &mut Events) {
        #[cfg(feature = "tracing")]
        events.add(self, Event::Failed(error.to_string()));
    }

    /// An operation failed with the connection.
    pub(crate) fn flushed(&self, error: &Error, events: &mut Events) {
        #[cfg(feature = "tracing")]
        events.add(self, Event::Flushed(error.to_string()));
    }

    /// Operations were dropped before they were posted.
    pub(crate) fn discarded(&self, count: usize, events: &mut Events) {
        #[cfg(feature = "tracing")]
        events.add(self, Event::Discarded(count));
    }
}

#[cfg(feature = "tracing")]
impl Events {
    fn add(&mut self, Trace { span }: &Trace, event: Event) {
        self.events.push((span.clone(), event));
    }
}

impl Events {
    pub(crate) fn run(self) {
        #[cfg(feature = "tracing")]
        for (span, event) in self.events {
            match event {
                Event::Established => tracing::debug!(parent: &span, "established"),
                Event::NotEstablished(reason) => tracing::warn!(parent: &span, reason, "not established"),
                Event::Closed => tracing::debug!(parent: &span, "closed"),
                Event::Lost(reason) => tracing::warn!(parent: &span, reason, "lost"),
                Event::Failed(error) => tracing::warn!(parent: &span, error, "an operation failed"),
                Event::Flushed(error) => tracing::debug!(parent: &span, error, "an operation was flushed"),
                Event::Discarded(count) => {
                    tracing::warn!(parent: &span, count, "operations that waited for room were discarded");
                }
            }
        }
    }
}

/// An attempt failed before there was a connection.
pub(crate) fn not_begun(to: impl Display, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(peer = %to, reason = %error, "not established");
}

/// The call in the current span of this thread, for another thread.
#[cfg(any(feature = "tokio", feature = "async-io"))]
pub(crate) fn in_span<T>(call: impl FnOnce() -> T) -> impl FnOnce() -> T {
    #[cfg(feature = "tracing")]
    {
        let span = tracing::Span::current();
        move || span.in_scope(call)
    }
    #[cfg(not(feature = "tracing"))]
    call
}
