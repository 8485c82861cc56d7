// SPDX-License-Identifier: BSD-3-Clause
//! The performance of a pair: `rpma perf` in a process, whose JSON output is read.

use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

use super::child::{self, Child};
use super::end::End;

/// Operations, sizes and depth of each run: latency, and bandwidth.
pub(super) const RUNS: [[&str; 3]; 2] =
    [["write,read,write-flush,send,apm,gpspm", "64", "1"], ["write,read", "64k", "16"]];
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
struct Output {
    failure: Option<String>,
    results: Vec<Row>,
}

/// A row of the output of `rpma perf --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) operation: String,
    pub(super) size: usize,
    depth: usize,
    ops_per_second: f64,
    bytes_per_second: f64,
    latency_us: Option<Latency>,
}

#[derive(Debug, Deserialize)]
struct Latency {
    p50: f64,
    p99: f64,
}

impl Row {
    pub(super) fn line(&self) -> String {
        let Self { operation, size, depth, ops_per_second, bytes_per_second, latency_us } = self;
        let micros = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        let (p50, p99) = (latency_us.as_ref().map(|l| l.p50), latency_us.as_ref().map(|l| l.p99));
        format!(
            "{operation:<12} {size:>6} {depth:>5} {ops_per_second:>10.0} {:>9.1} {:>9} {:>9}",
            bytes_per_second / 1e6,
            micros(p50),
            micros(p99)
        )
    }
}

/// The heading of [`Row::line`].
pub(super) fn heading() -> String {
    format!(
        "{:<12} {:>6} {:>5} {:>10} {:>9} {:>9} {:>9}",
        "operation", "bytes", "depth", "ops/s", "MB/s", "p50 us", "p99 us"
    )
}

/// What was measured.
pub(super) struct Measured {
    pub(super) rows: Vec<Row>,
    /// The failure that ended it, after these rows.
    pub(super) ended: Result<(), String>,
    /// The log of the initiator.
    pub(super) log: String,
}

impl Measured {
    pub(super) fn failed(why: String) -> Self {
        Self { rows: Vec::new(), ended: Err(why), log: String::new() }
    }
}

/// Measures a run.
pub(super) fn measure(
    end: End,
    c_library: Option<&Path>,
    address: &str,
    [operations, size, depth]: [&str; 3],
    short: bool,
) -> Measured {
    let duration = if short { "0.05" } else { "1" };
    let started = end.command(c_library).and_then(|mut command| {
        command.args(["perf", address, "--json", "-W", "20", "-D", duration]);
        Child::start(command.args(["-o", operations, "-s", size, "-d", depth]))
    });
    let remains = match started {
        Ok(child) => child.end(LIMIT),
        Err(why) => return Measured::failed(why),
    };
    let said = child::reason(&remains.log).unwrap_or("rpma perf has printed nothing").to_owned();
    let output: Option<Output> = serde_json::from_str(&remains.lines.join("\n")).ok();
    let (rows, ended) = match (output, remains.crash) {
        (Some(Output { results, failure: None }), None) => (results, Ok(())),
        (Some(Output { results, failure }), crash) => (results, Err(failure.or(crash).unwrap_or(said))),
        (None, crash) => (Vec::new(), Err(crash.unwrap_or(said))),
    };
    Measured { rows, ended, log: remains.log }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_perf_is_read() {
        let text = r#"{"operation":"write","size":64,"depth":1,"threads":1,"ops_per_second":1000.0,
            "bytes_per_second":64000.0,"latency_us":{"min":1.0,"p50":5.5,"p99":9.25}}"#;
        let row: Row = serde_json::from_str(text).unwrap();
        assert_eq!(row.line().len(), heading().len());
        assert!(row.line().ends_with(" 0.1       5.5       9.2"), "{}", row.line());
    }
}
