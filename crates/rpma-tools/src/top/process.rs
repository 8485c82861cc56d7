// SPDX-License-Identifier: BSD-3-Clause
//! The counters of a process, and their rates.

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::connection::{self, Connections};
use super::latency::{self, Buckets, Latency};
use super::text::{self, Sample};
use super::traffic::{By, Totals, Traffic, rates, rounded, whole};
use crate::output::printable;

/// The counters of a process at one time.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    at: Instant,
    pub(super) pid: u32,
    version: String,
    connections: By,
    opened: f64,
    ended: By,
    totals: Totals,
    completions: By,
    /// By operation.
    latencies: BTreeMap<String, Buckets>,
    regions: f64,
    region_bytes: f64,
    flushes: By,
    msyncs: f64,
    msync_seconds: f64,
    packets_dropped: By,
    packets_forwarded: f64,
    each: Connections,
}

/// A row of the table, and an object of `--json`. Values that refer to an interval are absent in the first
/// row of a process.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) pid: u32,
    /// The name of the process, as long as it runs.
    pub(super) command: Option<String>,
    pub(super) path: PathBuf,
    pub(super) library: String,
    /// The length of the interval; None if there are no rates yet.
    pub(super) seconds: Option<f64>,
    pub(super) connections: BTreeMap<String, u64>,
    pub(super) opened: u64,
    pub(super) ended: BTreeMap<String, u64>,
    pub(super) operations: BTreeMap<String, u64>,
    pub(super) bytes: BTreeMap<String, u64>,
    pub(super) received: u64,
    pub(super) served: BTreeMap<String, u64>,
    pub(super) served_bytes: BTreeMap<String, u64>,
    pub(super) completions: BTreeMap<String, u64>,
    pub(super) ops_per_second: By,
    pub(super) bytes_per_second: By,
    #[serde(flatten)]
    pub(super) traffic: Option<Traffic>,
    pub(super) latency_us: BTreeMap<String, Latency>,
    /// The latency of all operations together.
    pub(super) latency_all_us: Option<Latency>,
    #[serde(skip)]
    pub(super) latencies_all: Buckets,
    pub(super) regions: u64,
    pub(super) region_bytes: u64,
    pub(super) flushes_served: BTreeMap<String, u64>,
    pub(super) msyncs: u64,
    pub(super) msync_seconds: f64,
    /// Packets of RoCE, by reason.
    pub(super) packets_dropped: BTreeMap<String, u64>,
    pub(super) packets_forwarded: u64,
    pub(super) each_connection: Vec<connection::Row>,
}

fn with_label(samples: &[Sample], name: &str, label: &str) -> By {
    let named = samples.iter().filter(|sample| sample.name == name);
    named.filter_map(|sample| Some((sample.label(label)?.to_owned(), sample.value))).collect()
}

fn alone(samples: &[Sample], name: &str) -> f64 {
    samples.iter().find(|sample| sample.name == name).map_or(0.0, |sample| sample.value)
}

impl Counters {
    /// Parses the counters of a text; an error says why it is not from librpma.
    pub(super) fn of(text: &str, at: Instant) -> Result<Self, String> {
        let samples = text::parse(text).map_err(|line| format!("not a line of counters: {line}"))?;
        let info = samples.iter().find(|sample| sample.name == "rpma_info");
        let info = info.ok_or("it has no counters of librpma")?;
        let pid = info.label("pid").and_then(|pid| pid.parse().ok()).ok_or("it has no process ID")?;
        let mut latencies: BTreeMap<String, Buckets> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.name == "rpma_operation_seconds_bucket") {
            let limit = sample.label("le").and_then(|limit| limit.parse().ok());
            if let (Some(op), Some(limit)) = (sample.label("op"), limit) {
                latencies.entry(op.to_owned()).or_default().push((limit, sample.value));
            }
        }
        let by_op = |name: &str| with_label(&samples, name, "op");
        Ok(Self {
            at,
            pid,
            version: info.label("version").unwrap_or_default().to_owned(),
            connections: with_label(&samples, "rpma_connections", "state"),
            opened: alone(&samples, "rpma_connections_opened_total"),
            ended: with_label(&samples, "rpma_connections_ended_total", "reason"),
            totals: Totals {
                operations: by_op("rpma_operations_total"),
                bytes: by_op("rpma_bytes_total"),
                received: alone(&samples, "rpma_received_total"),
                served: by_op("rpma_served_total"),
                served_bytes: by_op("rpma_served_bytes_total"),
            },
            completions: with_label(&samples, "rpma_completions_total", "status"),
            latencies,
            regions: alone(&samples, "rpma_regions"),
            region_bytes: alone(&samples, "rpma_region_bytes"),
            flushes: with_label(&samples, "rpma_flushes_served_total", "result"),
            msyncs: alone(&samples, "rpma_msyncs_total"),
            msync_seconds: alone(&samples, "rpma_msync_seconds_total"),
            packets_dropped: with_label(&samples, "rpma_roce_packets_dropped_total", "reason"),
            packets_forwarded: alone(&samples, "rpma_roce_packets_forwarded_total"),
            each: connection::of(&samples),
        })
    }

    /// The row of the process, with the rates since `before` if that is the same process.
    pub(super) fn row(&self, path: &Path, before: Option<&Self>) -> Row {
        let before = before.filter(|before| before.pid == self.pid && before.at < self.at);
        let seconds = before.map(|before| (self.at - before.at).as_secs_f64());
        let since = before.zip(seconds);
        let mut latency_us = BTreeMap::new();
        let mut all = Buckets::new();
        for (op, buckets) in before.map(|_| &self.latencies).into_iter().flatten() {
            let then = before.and_then(|before| before.latencies.get(op));
            let more = latency::since(buckets, then.map_or(&[], Vec::as_slice));
            if let Some(latency) = Latency::of(&more) {
                latency_us.insert(op.clone(), latency);
            }
            latency::add(&mut all, more);
        }
        let Totals { operations, bytes, received, served, served_bytes } = &self.totals;
        let rates_of = |now: &By, then: fn(&Totals) -> &By| {
            since.map_or(By::new(), |(before, seconds)| rates(now, then(&before.totals), seconds))
        };
        let each = |(number, connection): (&u64, &connection::Connection)| {
            // A process lists some of its connections only: one may be first seen long after it has begun.
            let since = since.and_then(|(before, seconds)| Some((before.each.get(number)?, seconds)));
            connection.row(*number, since)
        };
        Row {
            pid: self.pid,
            command: command(self.pid),
            path: path.to_owned(),
            library: self.version.clone(),
            seconds: seconds.map(rounded),
            connections: whole(&self.connections),
            opened: self.opened as u64,
            ended: whole(&self.ended),
            operations: whole(operations),
            bytes: whole(bytes),
            received: *received as u64,
            served: whole(served),
            served_bytes: whole(served_bytes),
            completions: whole(&self.completions),
            ops_per_second: rates_of(operations, |totals| &totals.operations),
            bytes_per_second: rates_of(bytes, |totals| &totals.bytes),
            traffic: since.map(|(before, seconds)| self.totals.since(&before.totals, seconds)),
            latency_us,
            latency_all_us: Latency::of(&all),
            latencies_all: all,
            regions: self.regions as u64,
            region_bytes: self.region_bytes as u64,
            flushes_served: whole(&self.flushes),
            msyncs: self.msyncs as u64,
            msync_seconds: self.msync_seconds,
            packets_dropped: whole(&self.packets_dropped),
            packets_forwarded: self.packets_forwarded as u64,
            each_connection: self.each.iter().map(each).collect(),
        }
    }
}

fn command(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(printable(name.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const BEFORE: &str = "rpma_info{pid=\"4194305\",version=\"1.4.0\"} 1\nrpma_connections{state=\"open\"} 2\n\
        rpma_operations_total{op=\"write\"} 100\nrpma_bytes_total{op=\"write\"} 6400\nrpma_regions 1\nrpma_region_bytes 4096\n\
        rpma_operation_seconds_bucket{le=\"1e-6\",op=\"write\"} 90\nrpma_operation_seconds_bucket{le=\"2e-6\",op=\"write\"} 100\n\
        rpma_operation_seconds_bucket{le=\"+Inf\",op=\"write\"} 100\n";

    #[test]
    fn rates_are_those_between_two_moments() {
        let began = Instant::now();
        let before = Counters::of(BEFORE, began).unwrap();
        let first = before.row(Path::new("a"), None);
        assert_eq!((first.pid, first.command.as_deref(), first.seconds), (4_194_305, None, None));
        assert!(first.ops_per_second.is_empty() && first.latency_all_us.is_none());
        assert_eq!((first.connections["open"], first.regions, first.region_bytes), (2, 1, 4096));
        // 100 more: 50 within the first microsecond, 50 within the second.
        let text = BEFORE.replace("} 100\n", "} 200\n").replace("} 6400", "} 12800").replace("} 90", "} 140");
        let now = Counters::of(&text, began + Duration::from_millis(500)).unwrap();
        let row = now.row(Path::new("a"), Some(&before));
        assert_eq!(
            (row.seconds, row.ops_per_second["write"], row.bytes_per_second["write"]),
            (Some(0.5), 200.0, 12800.0)
        );
        assert_eq!(row.latency_all_us, Some(Latency { p50: 1.0, p99: 1.98 }));
        assert_eq!(row.latency_us["write"], Latency { p50: 1.0, p99: 1.98 });
        // Another process at the same path.
        let other = Counters { pid: 7, ..before };
        assert_eq!(now.row(Path::new("a"), Some(&other)).seconds, None);
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "up 1\n", "<html>\n", "rpma_info{version=\"1\"} 1\n", "rpma_info{pid=\"x\"} 1\n"] {
            assert!(Counters::of(text, Instant::now()).is_err(), "{text}");
        }
    }
}
