// SPDX-License-Identifier: BSD-3-Clause
//! The counters of a connection, and their rates.

use serde::Serialize;
use std::collections::BTreeMap;

use super::latency::{self, Buckets, Latency};
use super::text::Sample;
use super::traffic::{Totals, Traffic, whole};
use crate::output::printable;

/// The counters of a connection at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    labels: BTreeMap<String, String>,
    totals: Totals,
    latencies: Buckets,
}

/// The connections of a process, by number.
pub(super) type Connections = BTreeMap<u64, Connection>;

/// A connection as a row of the table, and in the objects of `--json`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) conn: u64,
    pub(super) peer: String,
    pub(super) provider: String,
    pub(super) device: String,
    pub(super) transport: String,
    pub(super) link: String,
    pub(super) state: String,
    /// The status of the first failed completion.
    pub(super) error: Option<String>,
    pub(super) operations: BTreeMap<String, u64>,
    pub(super) bytes: BTreeMap<String, u64>,
    pub(super) received: u64,
    pub(super) served: BTreeMap<String, u64>,
    pub(super) served_bytes: BTreeMap<String, u64>,
    /// Absent if it was not listed before.
    #[serde(flatten)]
    pub(super) traffic: Option<Traffic>,
    pub(super) latency_us: Option<Latency>,
}

/// All connections of a process.
pub(super) fn of(samples: &[Sample]) -> Connections {
    let mut connections = Connections::new();
    for sample in samples {
        let Some(name) = sample.name.strip_prefix("rpma_connection_") else { continue };
        let Some(number) = sample.label("conn").and_then(|conn| conn.parse().ok()) else { continue };
        let connection = connections.entry(number).or_default();
        if let Some(peer) = sample.label("peer") {
            connection.labels.entry("peer".to_owned()).or_insert_with(|| printable(peer));
        }
        let op = sample.label("op").unwrap_or_default().to_owned();
        let Totals { operations, bytes, received, served, served_bytes } = &mut connection.totals;
        match name {
            "info" => {
                for (label, value) in &sample.labels {
                    connection.labels.insert(label.clone(), printable(value));
                }
            }
            "operations_total" => drop(operations.insert(op, sample.value)),
            "bytes_total" => drop(bytes.insert(op, sample.value)),
            "received_total" => *received = sample.value,
            "served_total" => drop(served.insert(op, sample.value)),
            "served_bytes_total" => drop(served_bytes.insert(op, sample.value)),
            "seconds_bucket" => {
                if let Some(limit) = sample.label("le").and_then(|limit| limit.parse().ok()) {
                    connection.latencies.push((limit, sample.value));
                }
            }
            _ => {}
        }
    }
    connections
}

impl Connection {
    /// The row. `since`: the previous sample and its age in seconds, from which the rates are computed.
    pub(super) fn row(&self, number: u64, since: Option<(&Self, f64)>) -> Row {
        let label = |name: &str| self.labels.get(name).cloned().unwrap_or_default();
        let Totals { operations, bytes, received, served, served_bytes } = &self.totals;
        let recent = since.map(|(before, _)| latency::since(&self.latencies, &before.latencies));
        Row {
            conn: number,
            peer: label("peer"),
            provider: label("provider"),
            device: label("device"),
            transport: label("transport"),
            link: label("link"),
            // Earlier versions list open connections only.
            state: self.labels.get("state").cloned().unwrap_or_else(|| "open".to_owned()),
            error: self.labels.get("error").filter(|error| !error.is_empty()).cloned(),
            operations: whole(operations),
            bytes: whole(bytes),
            received: *received as u64,
            served: whole(served),
            served_bytes: whole(served_bytes),
            traffic: since.map(|(before, seconds)| self.totals.since(&before.totals, seconds)),
            latency_us: recent.and_then(|recent| Latency::of(&recent)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn a_row_has_the_labels_and_rates_of_its_connection() {
        let text = |reads: u32| {
            format!(
                "rpma_connection_info{{conn=\"7\",peer=\"[::1]:1\",provider=\"soft\",device=\"soft0\",transport=\"roce\",link=\"udp\",state=\"lost\",error=\"rem_access_err\"}} 1\n\
                 rpma_connection_operations_total{{conn=\"7\",peer=\"[::1]:1\",op=\"read\"}} {reads}\n\
                 rpma_connection_bytes_total{{conn=\"7\",peer=\"[::1]:1\",op=\"read\"}} {}\n\
                 rpma_connection_received_total{{conn=\"7\",peer=\"[::1]:1\",op=\"recv\"}} 5\n\
                 rpma_connection_served_total{{conn=\"7\",peer=\"[::1]:1\",op=\"write\"}} {reads}\n\
                 rpma_connection_served_bytes_total{{conn=\"7\",peer=\"[::1]:1\",op=\"write\"}} 80\n\
                 rpma_connection_seconds_bucket{{conn=\"7\",peer=\"[::1]:1\",le=\"1e-6\"}} {reads}\n\
                 rpma_connection_seconds_bucket{{conn=\"7\",peer=\"[::1]:1\",le=\"+Inf\"}} {reads}\n\
                 rpma_connection_operations_total{{conn=\"8\",peer=\"a\\\\x\",op=\"read\"}} 1\n",
                10 * reads
            )
        };
        let (before, now) = (text(100), text(300));
        let [before, now] = [before, now].map(|text| of(&text::parse(&text).unwrap()));
        assert_eq!(now.keys().collect::<Vec<_>>(), [&7, &8]);
        let row = now[&7].row(7, Some((&before[&7], 2.0)));
        assert_eq!([&row.peer, &row.provider, &row.device], ["[::1]:1", "soft", "soft0"]);
        assert_eq!([&row.transport, &row.link, &row.state], ["roce", "udp", "lost"]);
        assert_eq!(
            (row.error.as_deref(), row.operations["read"], row.received),
            (Some("rem_access_err"), 300, 5)
        );
        let traffic = row.traffic.unwrap();
        assert_eq!((traffic.out_ops_per_second, traffic.in_ops_per_second), (100.0, 100.0));
        assert_eq!((traffic.in_bytes_per_second, traffic.out_bytes_per_second), (1000.0, 0.0));
        assert_eq!(row.latency_us, Some(Latency { p50: 0.5, p99: 0.99 }));
        // One that was not listed before has no rates: when its counts began is not known.
        let first = now[&7].row(7, None);
        assert_eq!((first.traffic, first.latency_us), (None, None));
        assert_eq!(now[&8].row(8, None).state, "open");
    }
}
