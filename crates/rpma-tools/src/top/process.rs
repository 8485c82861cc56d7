// SPDX-License-Identifier: BSD-3-Clause
//! The counters of a process, and their rates.

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::text::{self, Sample};

/// Counters by the value of their label.
type By = BTreeMap<String, f64>;

/// The counters of a process at one time.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    at: Instant,
    pub(super) pid: u32,
    version: String,
    connections: By,
    opened: f64,
    ended: By,
    operations: By,
    bytes: By,
    completions: By,
    /// By operation: the number of latencies up to each limit in seconds, in ascending order.
    latencies: BTreeMap<String, Vec<(f64, f64)>>,
    regions: f64,
    region_bytes: f64,
    flushes: By,
    msyncs: f64,
    msync_seconds: f64,
    packets_dropped: By,
    packets_forwarded: f64,
}

/// The percentiles of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// A row of the table, and an object of `--json`. Values that refer to an interval are absent in the first
/// row of a process.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) pid: u32,
    /// The name of the process, as long as it runs.
    pub(super) command: Option<String>,
    pub(super) path: PathBuf,
    library: String,
    /// The length of the interval; None if there are no rates yet.
    pub(super) seconds: Option<f64>,
    pub(super) connections: BTreeMap<String, u64>,
    opened: u64,
    ended: BTreeMap<String, u64>,
    operations: BTreeMap<String, u64>,
    bytes: BTreeMap<String, u64>,
    completions: BTreeMap<String, u64>,
    pub(super) ops_per_second: By,
    pub(super) bytes_per_second: By,
    latency_us: BTreeMap<String, Latency>,
    /// The latency of all operations together.
    pub(super) latency_all_us: Option<Latency>,
    pub(super) regions: u64,
    pub(super) region_bytes: u64,
    flushes_served: BTreeMap<String, u64>,
    msyncs: u64,
    msync_seconds: f64,
    /// Packets of RoCE, by reason.
    packets_dropped: BTreeMap<String, u64>,
    packets_forwarded: u64,
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
        let mut latencies: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.name == "rpma_operation_seconds_bucket") {
            let limit = sample.label("le").and_then(|limit| limit.parse().ok());
            if let (Some(op), Some(limit)) = (sample.label("op"), limit) {
                latencies.entry(op.to_owned()).or_default().push((limit, sample.value));
            }
        }
        Ok(Self {
            at,
            pid,
            version: info.label("version").unwrap_or_default().to_owned(),
            connections: with_label(&samples, "rpma_connections", "state"),
            opened: alone(&samples, "rpma_connections_opened_total"),
            ended: with_label(&samples, "rpma_connections_ended_total", "reason"),
            operations: with_label(&samples, "rpma_operations_total", "op"),
            bytes: with_label(&samples, "rpma_bytes_total", "op"),
            completions: with_label(&samples, "rpma_completions_total", "status"),
            latencies,
            regions: alone(&samples, "rpma_regions"),
            region_bytes: alone(&samples, "rpma_region_bytes"),
            flushes: with_label(&samples, "rpma_flushes_served_total", "result"),
            msyncs: alone(&samples, "rpma_msyncs_total"),
            msync_seconds: alone(&samples, "rpma_msync_seconds_total"),
            packets_dropped: with_label(&samples, "rpma_roce_packets_dropped_total", "reason"),
            packets_forwarded: alone(&samples, "rpma_roce_packets_forwarded_total"),
        })
    }

    /// The row of the process, with the rates since `before` if that is the same process.
    pub(super) fn row(&self, path: &Path, before: Option<&Self>) -> Row {
        let before = before.filter(|before| before.pid == self.pid && before.at < self.at);
        let seconds = before.map(|before| (self.at - before.at).as_secs_f64());
        let rates = |now: &By, then: fn(&Self) -> &By| -> By {
            let (Some(before), Some(seconds)) = (before, seconds) else { return By::new() };
            let then = then(before);
            let rate = |(op, count): (&String, &f64)| {
                let more = (count - then.get(op).copied().unwrap_or(0.0)).max(0.0);
                (op.clone(), rounded(more / seconds))
            };
            now.iter().map(rate).collect()
        };
        let mut latency_us = BTreeMap::new();
        let mut all: Vec<(f64, f64)> = Vec::new();
        for (op, buckets) in before.map(|_| &self.latencies).into_iter().flatten() {
            let then = before.and_then(|before| before.latencies.get(op));
            let more = since(buckets, then.map_or(&[], Vec::as_slice));
            if let Some(latency) = latency(&more) {
                latency_us.insert(op.clone(), latency);
            }
            if all.is_empty() {
                all = more;
            } else {
                all.iter_mut().zip(more).for_each(|((_, sum), (_, count))| *sum += count);
            }
        }
        Row {
            pid: self.pid,
            command: command(self.pid),
            path: path.to_owned(),
            library: self.version.clone(),
            seconds: seconds.map(rounded),
            connections: whole(&self.connections),
            opened: self.opened as u64,
            ended: whole(&self.ended),
            operations: whole(&self.operations),
            bytes: whole(&self.bytes),
            completions: whole(&self.completions),
            ops_per_second: rates(&self.operations, |before| &before.operations),
            bytes_per_second: rates(&self.bytes, |before| &before.bytes),
            latency_us,
            latency_all_us: latency(&all),
            regions: self.regions as u64,
            region_bytes: self.region_bytes as u64,
            flushes_served: whole(&self.flushes),
            msyncs: self.msyncs as u64,
            msync_seconds: self.msync_seconds,
            packets_dropped: whole(&self.packets_dropped),
            packets_forwarded: self.packets_forwarded as u64,
        }
    }
}

fn whole(counters: &By) -> BTreeMap<String, u64> {
    counters.iter().map(|(label, count)| (label.clone(), *count as u64)).collect()
}

/// Rounds to three decimal places.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn command(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    // A name may contain control characters, which must not reach the terminal.
    Some(name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}

/// The increase of each bucket; without earlier values, the buckets themselves.
fn since(now: &[(f64, f64)], then: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let earlier = |at: usize| then.get(at).map_or(0.0, |(_, count)| *count);
    now.iter().enumerate().map(|(at, (limit, count))| (*limit, count - earlier(at))).collect()
}

/// The percentiles of a cumulative histogram, in microseconds; None if it is empty.
fn latency(buckets: &[(f64, f64)]) -> Option<Latency> {
    let total = buckets.last().map(|(_, count)| *count).filter(|total| *total > 0.0)?;
    let at = |quantile: f64| {
        let rank = quantile * total;
        let index = buckets.iter().position(|(_, count)| *count >= rank).unwrap_or(buckets.len() - 1);
        let (low, below) = if index == 0 { (0.0, 0.0) } else { buckets[index - 1] };
        let (high, count) = buckets[index];
        // Above the highest limit, only that limit is known.
        let inside = if high.is_finite() && count > below {
            (high - low) * (rank - below) / (count - below)
        } else {
            0.0
        };
        rounded((low + inside) * 1e6)
    };
    Some(Latency { p50: at(0.5), p99: at(0.99) })
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
    fn what_is_above_all_limits_has_the_highest() {
        assert_eq!(
            latency(&[(0.001, 0.0), (f64::INFINITY, 5.0)]),
            Some(Latency { p50: 1000.0, p99: 1000.0 })
        );
        assert_eq!(latency(&[(0.001, 0.0), (f64::INFINITY, 0.0)]), None);
        assert_eq!(latency(&[]), None);
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "up 1\n", "<html>\n", "rpma_info{version=\"1\"} 1\n", "rpma_info{pid=\"x\"} 1\n"] {
            assert!(Counters::of(text, Instant::now()).is_err(), "{text}");
        }
    }
}
