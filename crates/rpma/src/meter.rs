// SPDX-License-Identifier: BSD-3-Clause
//! Metrics of connections and operations, for the recorder of the crate `metrics`. Without the feature these
//! functions do nothing.

#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "nothing is counted"))]

#[cfg(feature = "metrics")]
use std::time::Instant;

#[cfg(feature = "metrics")]
use metrics::{Counter, Gauge, Histogram, Unit};

use crate::call::Call;
use crate::closed::Closed;
use crate::error::ErrorKind;

/// When an operation was made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Began(#[cfg(feature = "metrics")] Option<Instant>);

impl Began {
    #[inline(always)]
    pub(crate) fn now() -> Self {
        Self(
            #[cfg(feature = "metrics")]
            Some(Instant::now()),
        )
    }
}

/// The metrics of a connection: those of the recorder that was installed when it was made.
pub(crate) struct Meter {
    #[cfg(feature = "metrics")]
    calls: [Done; Call::ALL.len()],
    #[cfg(feature = "metrics")]
    open: Gauge,
    #[cfg(feature = "metrics")]
    is_incoming: bool,
}

/// What is counted of operations that succeed.
#[cfg(feature = "metrics")]
struct Done {
    operations: Counter,
    bytes: Counter,
    seconds: Histogram,
}

/// Events that are counted after the connection is unlocked: the recorder looks up their labels.
#[derive(Default)]
pub(crate) struct Counts {
    #[cfg(feature = "metrics")]
    rare: Vec<Rare>,
}

#[cfg(feature = "metrics")]
enum Rare {
    Established { is_incoming: bool },
    NotEstablished { is_incoming: bool, kind: ErrorKind },
    Ended { is_incoming: bool, how: Closed },
    Failed { call: Call, kind: ErrorKind },
}

impl Meter {
    pub(crate) fn new(is_incoming: bool) -> Self {
        #[cfg(feature = "metrics")]
        {
            let calls = Call::ALL.map(|call| {
                let op = call.name();
                Done {
                    operations: metrics::counter!("rpma_conn_operations_total", "op" => op),
                    bytes: metrics::counter!("rpma_conn_bytes_total", "op" => op),
                    seconds: metrics::histogram!("rpma_conn_operation_seconds", "op" => op),
                }
            });
            let open = metrics::gauge!("rpma_conns", "incoming" => incoming(is_incoming));
            Self { calls, open, is_incoming }
        }
        #[cfg(not(feature = "metrics"))]
        Self {}
    }

    /// A request has succeeded.
    #[cfg(feature = "metrics")]
    pub(crate) fn done(&self, call: Call, bytes: usize, Began(began): Began) {
        let done = &self.calls[call as usize];
        done.operations.increment(1);
        done.bytes.increment(bytes as u64);
        if let Some(began) = began {
            done.seconds.record(began.elapsed());
        }
    }

    /// An operation has failed.
    pub(crate) fn failed(&self, call: Call, kind: ErrorKind, counts: &mut Counts) {
        #[cfg(feature = "metrics")]
        counts.rare.push(Rare::Failed { call, kind });
    }

    pub(crate) fn established(&self, counts: &mut Counts) {
        #[cfg(feature = "metrics")]
        {
            self.open.increment(1);
            counts.rare.push(Rare::Established { is_incoming: self.is_incoming });
        }
    }

    /// The attempt failed.
    pub(crate) fn not_established(&self, kind: ErrorKind, counts: &mut Counts) {
        #[cfg(feature = "metrics")]
        counts.rare.push(Rare::NotEstablished { is_incoming: self.is_incoming, kind });
    }

    /// An established connection has ended.
    pub(crate) fn ended(&self, how: Closed, counts: &mut Counts) {
        #[cfg(feature = "metrics")]
        {
            self.open.decrement(1);
            counts.rare.push(Rare::Ended { is_incoming: self.is_incoming, how });
        }
    }
}

impl Counts {
    pub(crate) fn run(self) {
        #[cfg(feature = "metrics")]
        for rare in self.rare {
            rare.count();
        }
    }
}

/// A connection attempt failed before there was a connection.
pub(crate) fn not_begun(kind: ErrorKind) {
    #[cfg(feature = "metrics")]
    Rare::NotEstablished { is_incoming: false, kind }.count();
}

#[cfg(feature = "metrics")]
impl Rare {
    fn count(self) {
        let counter = match self {
            Self::Established { is_incoming } => {
                metrics::counter!("rpma_conns_established_total", "incoming" => incoming(is_incoming))
            }
            Self::NotEstablished { is_incoming, kind } => {
                let (incoming, kind) = (incoming(is_incoming), label(kind));
                metrics::counter!("rpma_conns_failed_total", "incoming" => incoming, "kind" => kind)
            }
            Self::Ended { is_incoming, how } => {
                let how = match how {
                    Closed::Closed => "closed",
                    Closed::Lost => "lost",
                };
                metrics::counter!("rpma_conns_ended_total", "incoming" => incoming(is_incoming), "how" => how)
            }
            Self::Failed { call, kind } => {
                let (op, kind) = (call.name(), label(kind));
                metrics::counter!("rpma_conn_operation_errors_total", "op" => op, "kind" => kind)
            }
        };
        counter.increment(1);
    }
}

#[cfg(feature = "metrics")]
fn incoming(is_incoming: bool) -> &'static str {
    if is_incoming { "true" } else { "false" }
}

#[cfg(feature = "metrics")]
fn label(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NoDevice => "no_device",
        ErrorKind::Rejected => "rejected",
        ErrorKind::Unreachable => "unreachable",
        ErrorKind::Closed => "closed",
        ErrorKind::Lost => "lost",
        ErrorKind::OutOfRange { .. } => "out_of_range",
        ErrorKind::NotPermitted => "not_permitted",
        ErrorKind::NotDurable => "not_durable",
        ErrorKind::Invalid => "invalid",
        ErrorKind::NotSupported => "not_supported",
        ErrorKind::OutOfMemory => "out_of_memory",
        ErrorKind::Provider => "provider",
        ErrorKind::Status(_) => "status",
    }
}

/// Gives the recorder the units and descriptions of all metrics.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    {
        use metrics::{describe_counter, describe_gauge, describe_histogram};
        describe_counter!("rpma_conn_operations_total", Unit::Count, "Operations that succeeded.");
        describe_counter!("rpma_conn_bytes_total", Unit::Bytes, "What they transferred.");
        describe_histogram!(
            "rpma_conn_operation_seconds",
            Unit::Seconds,
            "From the call that makes an operation until its completion is polled."
        );
        describe_counter!("rpma_conn_operation_errors_total", Unit::Count, "Operations that failed.");
        describe_gauge!("rpma_conns", Unit::Count, "Established connections.");
        describe_counter!("rpma_conns_established_total", Unit::Count, "Connections that were established.");
        describe_counter!("rpma_conns_failed_total", Unit::Count, "Connection attempts that failed.");
        describe_counter!("rpma_conns_ended_total", Unit::Count, "Established connections that ended.");
    }
}
