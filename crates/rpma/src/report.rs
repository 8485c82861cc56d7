// SPDX-License-Identifier: BSD-3-Clause
//! What a connection reports: events for `tracing`, and metrics.

#![forbid(unsafe_code)]

use std::net::SocketAddr;

use crate::call::Call;
use crate::closed::Closed;
use crate::error::Error;
use crate::meter::{self, Counts, Meter};
use crate::trace::{self, Events, Trace};

/// The span and the metrics of a connection.
pub(crate) struct Reporter {
    trace: Trace,
    pub(crate) meter: Meter,
}

/// Reports to be made when the connection is unlocked: a subscriber or a recorder may use it.
#[derive(Default)]
pub(crate) struct Reports {
    events: Events,
    counts: Counts,
}

impl Reporter {
    pub(crate) fn new(peer: Option<SocketAddr>, is_incoming: bool) -> Self {
        Self { trace: Trace::new(peer, is_incoming), meter: Meter::new(is_incoming) }
    }

    pub(crate) fn established(&self, reports: &mut Reports) {
        self.trace.established(&mut reports.events);
        self.meter.established(&mut reports.counts);
    }

    /// The attempt failed.
    pub(crate) fn not_established(&self, error: &Error, reports: &mut Reports) {
        self.trace.not_established(error, &mut reports.events);
        self.meter.not_established(error.kind(), &mut reports.counts);
    }

    /// An established connection ended.
    pub(crate) fn ended(&self, how: Closed, reason: &str, reports: &mut Reports) {
        match how {
            Closed::Closed => self.trace.closed(&mut reports.events),
            Closed::Lost => self.trace.lost(reason, &mut reports.events),
        }
        self.meter.ended(how, &mut reports.counts);
    }

    /// An operation failed by itself.
    pub(crate) fn failed(&self, call: Call, error: &Error, reports: &mut Reports) {
        self.trace.failed(error, &mut reports.events);
        self.meter.failed(call, error.kind(), &mut reports.counts);
    }

    /// An operation failed with the connection.
    pub(crate) fn flushed(&self, call: Call, error: &Error, reports: &mut Reports) {
        self.trace.flushed(error, &mut reports.events);
        self.meter.failed(call, error.kind(), &mut reports.counts);
    }

    /// Operations were dropped before they were posted.
    pub(crate) fn discarded(&self, count: usize, reports: &mut Reports) {
        self.trace.discarded(count, &mut reports.events);
    }

    /// An operation that was not posted failed with the connection.
    pub(crate) fn not_posted(&self, call: Call, error: &Error, reports: &mut Reports) {
        self.meter.failed(call, error.kind(), &mut reports.counts);
    }
}

impl Reports {
    pub(crate) fn run(self) {
        self.events.run();
        self.counts.run();
    }
}

/// An attempt failed before there was a connection.
pub(crate) fn not_begun(to: SocketAddr, error: &Error) {
    trace::not_begun(to, error);
    meter::not_begun(error.kind());
}
