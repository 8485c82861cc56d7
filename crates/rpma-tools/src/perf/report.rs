// SPDX-License-Identifier: BSD-3-Clause
//! The results, as lines of a table and as JSON, which `--compare` reads.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

use super::change::Change;
use super::options::Case;
use super::workload::Tally;

/// The value of `format`; other formats are rejected.
pub(super) const FORMAT: &str = "rpma perf 1";

/// The complete result.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) format: String,
    pub(super) server: String,
    /// The version of the library on this side.
    pub(super) library: String,
    pub(super) provider: Option<String>,
    /// The kind of the server's memory: `memory` or `file`.
    pub(super) memory: String,
    pub(super) duration_s: f64,
    /// Whether Ctrl-C ended it.
    pub(super) interrupted: bool,
    /// The failure that ended it, if any.
    pub(super) failure: Option<String>,
    pub(super) results: Vec<Row>,
    /// Present with `--compare`.
    #[serde(default, skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub(super) changes: Option<Vec<Change>>,
}

/// One case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) case: Case,
    /// Whether it was measured to its end.
    pub(super) complete: bool,
    pub(super) seconds: f64,
    pub(super) operations: u64,
    pub(super) ops_per_second: f64,
    pub(super) bytes_per_second: f64,
    /// `None` if no operation completed.
    pub(super) latency_us: Option<Latency>,
    pub(super) cpu: Processors,
}

/// Latency statistics, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Latency {
    pub(super) min: f64,
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p99_9: f64,
    pub(super) p99_99: f64,
    pub(super) max: f64,
}

/// The average number of busy processors, and the processor time per operation. `None`: not known.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Processors {
    pub(super) client: Option<f64>,
    pub(super) server: Option<f64>,
    pub(super) client_us_per_op: Option<f64>,
    pub(super) server_us_per_op: Option<f64>,
}

/// Rounds to three decimal places.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl Latency {
    /// Converts a histogram of nanoseconds.
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let micros = |nanos: u64| rounded(nanos as f64 / 1e3);
        let percentile = |percent| micros(histogram.value_at_percentile(percent));
        (!histogram.is_empty()).then(|| Self {
            min: micros(histogram.min()),
            mean: rounded(histogram.mean() / 1e3),
            p50: percentile(50.0),
            p90: percentile(90.0),
            p99: percentile(99.0),
            p99_9: percentile(99.9),
            p99_99: percentile(99.99),
            max: micros(histogram.max()),
        })
    }
}

impl Row {
    pub(super) fn new(case: &Case, tally: &Tally, cpu: (Option<f64>, Option<f64>), complete: bool) -> Self {
        let (seconds, operations) = (tally.time.as_secs_f64(), tally.operations);
        let rate = if seconds > 0.0 { operations as f64 / seconds } else { 0.0 };
        let per_operation =
            |busy: Option<f64>| busy.filter(|_| rate > 0.0).map(|busy| rounded(busy / rate * 1e6));
        Self {
            case: *case,
            complete,
            seconds: rounded(seconds),
            operations,
            ops_per_second: rounded(rate),
            bytes_per_second: rounded(rate * case.size as f64),
            latency_us: Latency::of(&tally.latencies),
            cpu: Processors {
                client: cpu.0.map(rounded),
                server: cpu.1.map(rounded),
                client_us_per_op: per_operation(cpu.0),
                server_us_per_op: per_operation(cpu.1),
            },
        }
    }

    /// Formats a line of the table; times are in microseconds.
    pub(super) fn line(&self) -> String {
        let mut line = format!(
            "{} {:>10} {:>9.1}",
            columns(&self.case),
            format!("{:.0}", self.ops_per_second),
            self.bytes_per_second / 1e6
        );
        let latency = self.latency_us.as_ref();
        for value in
            [latency.map(|l| l.p50), latency.map(|l| l.p99), latency.map(|l| l.p99_9), latency.map(|l| l.max)]
        {
            let _ = write!(line, " {:>9}", value.map_or("-".to_owned(), |us| format!("{us:.1}")));
        }
        for value in [self.cpu.client_us_per_op, self.cpu.server_us_per_op] {
            let _ = write!(line, " {:>8}", value.map_or("-".to_owned(), |us| format!("{us:.2}")));
        }
        if !self.complete {
            let _ = write!(line, "  (after {} s)", self.seconds);
        }
        line
    }
}

/// The columns that identify a row.
pub(super) fn columns(case: &Case) -> String {
    let Case { operation, size, depth, threads } = case;
    format!("{:<12} {size:>8} {depth:>5} {threads:>7}", operation.name())
}

/// The heading of `columns`.
pub(super) const COLUMNS: &str = "operation       bytes depth threads";

/// The heading of the table.
pub(super) fn heading() -> String {
    format!(
        "{COLUMNS} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
        "ops/s", "MB/s", "p50 us", "p99 us", "p99.9 us", "max us", "cpu/op", "srv/op"
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::options::Operation;
    use super::*;
    use std::time::Duration;

    pub(in super::super) fn row(operations: u64, nanos: u64) -> Row {
        let case = Case { operation: Operation::Write, size: 4096, depth: 1, threads: 2 };
        let mut tally = Tally::new();
        tally.time = Duration::from_secs(2);
        for _ in 0..operations {
            tally.latencies.record(nanos).unwrap();
            tally.operations += 1;
        }
        Row::new(&case, &tally, (Some(0.5), None), true)
    }

    pub(in super::super) fn report(results: Vec<Row>) -> Report {
        Report {
            format: FORMAT.to_owned(),
            server: "h:1".to_owned(),
            library: "1.4.0".to_owned(),
            provider: None,
            memory: "memory".to_owned(),
            duration_s: 1.0,
            interrupted: false,
            failure: None,
            results,
            changes: None,
        }
    }

    #[test]
    fn a_row_has_rates_and_times() {
        let row = row(1000, 8000);
        assert_eq!((row.ops_per_second, row.bytes_per_second), (500.0, 2_048_000.0));
        let latency = row.latency_us.as_ref().unwrap();
        assert!((latency.p50 - 8.0).abs() < 0.01 && (latency.max - 8.0).abs() < 0.01, "{latency:?}");
        assert_eq!((row.cpu.client_us_per_op, row.cpu.server_us_per_op), (Some(1000.0), None));
        let line = row.line();
        assert_eq!(line.len(), heading().len(), "{line}");
        assert!(line.starts_with("write            4096     1       2        500       2.0 "), "{line}");
        assert!(line.ends_with(" 1000.00        -"), "{line}");
        assert!(columns(&row.case).len() == COLUMNS.len());
    }

    #[test]
    fn a_row_without_operations() {
        let row = row(0, 0);
        assert!(row.latency_us.is_none() && row.cpu.client_us_per_op.is_none() && row.ops_per_second == 0.0);
        assert_eq!(row.line().len(), heading().len());
    }

    #[test]
    fn json_comes_back() {
        let report = report(vec![row(10, 1000), row(0, 0)]);
        let text = serde_json::to_string_pretty(&report).unwrap();
        assert!(text.contains("\"operation\": \"write\"") && text.contains("\"latency_us\": null"), "{text}");
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string_pretty(&back).unwrap(), text);
    }
}
