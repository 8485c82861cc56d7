// SPDX-License-Identifier: BSD-3-Clause
//! The results, as lines of a table and as JSON, which `--compare` reads.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

use super::change::Comparison;
use super::interval;
use super::options::{Case, MAX_REPEATS};
use super::origin::Origin;
use super::repeats::{Repeat, Repeats, Sample};

/// The value of `format`; other formats are rejected.
pub(super) const FORMAT: &str = "rpma perf 1";

/// The complete result.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) format: String,
    pub(super) server: String,
    /// When and where it was measured; absent in results of earlier versions.
    #[serde(flatten)]
    pub(super) origin: Option<Origin>,
    /// The version of the library on this side.
    pub(super) library: String,
    pub(super) provider: Option<String>,
    /// The kind of the server's memory: `memory` or `file`.
    pub(super) memory: String,
    pub(super) duration_s: f64,
    /// How often each case was to be measured.
    #[serde(default = "once")]
    pub(super) repeat: usize,
    /// Whether Ctrl-C ended it.
    pub(super) interrupted: bool,
    /// The failure that ended it, if any.
    pub(super) failure: Option<String>,
    pub(super) results: Vec<Row>,
    /// Present with `--compare`.
    #[serde(flatten, skip_deserializing)]
    pub(super) comparison: Option<Comparison>,
}

fn once() -> usize {
    1
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
    /// The values of each repeat that was measured to its end.
    #[serde(default)]
    repeats: Vec<Repeat>,
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

/// Operations per second.
fn rate(sample: &Sample) -> f64 {
    let seconds = sample.tally.time.as_secs_f64();
    if seconds > 0.0 { sample.tally.operations as f64 / seconds } else { 0.0 }
}

/// Adds a measurement to those of the same case.
pub(super) fn add(repeats: &mut Repeats, sample: Sample) {
    let latency = Latency::of(&sample.tally.latencies);
    let repeat = Repeat {
        ops_per_second: rounded(rate(&sample)),
        p50_us: latency.as_ref().map(|latency| latency.p50),
        p99_us: latency.as_ref().map(|latency| latency.p99),
    };
    repeats.add(sample, repeat);
}

impl Row {
    /// `None` if nothing was measured.
    pub(super) fn of(case: &Case, repeats: &Repeats) -> Option<Self> {
        let (sum, each) = repeats.get()?;
        let rate = rate(sum);
        let per_operation =
            |busy: Option<f64>| busy.filter(|_| rate > 0.0).map(|busy| rounded(busy / rate * 1e6));
        Some(Self {
            case: *case,
            complete: sum.complete,
            seconds: rounded(sum.tally.time.as_secs_f64()),
            operations: sum.tally.operations,
            ops_per_second: rounded(rate),
            bytes_per_second: rounded(rate * case.size as f64),
            latency_us: Latency::of(&sum.tally.latencies),
            cpu: Processors {
                client: sum.cpu.0.map(rounded),
                server: sum.cpu.1.map(rounded),
                client_us_per_op: per_operation(sum.cpu.0),
                server_us_per_op: per_operation(sum.cpu.1),
            },
            repeats: each.to_vec(),
        })
    }

    /// A value of each repeat; that of the row if it has no repeats.
    fn values(&self, of_repeat: impl Fn(&Repeat) -> Option<f64>, of_row: Option<f64>) -> Vec<f64> {
        match self.repeats.as_slice() {
            [] => of_row.into_iter().collect(),
            repeats => repeats.iter().take(MAX_REPEATS).filter_map(of_repeat).collect(),
        }
    }

    pub(super) fn rates(&self) -> Vec<f64> {
        self.values(|repeat| Some(repeat.ops_per_second), Some(self.ops_per_second))
    }

    pub(super) fn medians(&self) -> Vec<f64> {
        self.values(|repeat| repeat.p50_us, self.latency_us.as_ref().map(|latency| latency.p50))
    }

    pub(super) fn p99s(&self) -> Vec<f64> {
        self.values(|repeat| repeat.p99_us, self.latency_us.as_ref().map(|latency| latency.p99))
    }

    /// The difference of the slowest and the fastest repeat in percent of their median.
    fn spread(&self) -> Option<f64> {
        let rates = self.rates();
        let (low, high) = rates
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        (rates.len() > 1 && low > 0.0).then(|| (high - low) / interval::median(&rates) * 100.0)
    }

    /// Formats a line of the table, which has a column for the spread of repeats; times are in microseconds.
    pub(super) fn line(&self, repeated: bool) -> String {
        let mut line = format!(
            "{} {:>10} {:>9.1} {:>7.2}",
            columns(&self.case),
            format!("{:.0}", self.ops_per_second),
            self.bytes_per_second / 1e6,
            self.bytes_per_second * 8.0 / 1e9
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
        if repeated {
            let spread = self.spread().map_or("-".to_owned(), |spread| format!("{spread:.1}%"));
            let _ = write!(line, " {spread:>7}");
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
pub(super) fn heading(repeated: bool) -> String {
    format!(
        "{COLUMNS} {:>10} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}{}",
        "ops/s",
        "MB/s",
        "Gb/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "cpu/op",
        "srv/op",
        if repeated { format!(" {:>7}", "spread") } else { String::new() }
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::options::Operation;
    use super::super::workload::Tally;
    use super::*;
    use std::time::Duration;

    fn case() -> Case {
        Case { operation: Operation::Write, size: 4096, depth: 1, threads: 2 }
    }

    fn sample(operations: u64, nanos: u64, complete: bool) -> Sample {
        let mut tally = Tally::new();
        tally.time = Duration::from_secs(2);
        for _ in 0..operations {
            tally.latencies.record(nanos).unwrap();
            tally.operations += 1;
        }
        Sample { tally, cpu: (Some(0.5), None), complete }
    }

    /// Repeats of two seconds, with this many operations.
    pub(in super::super) fn repeated(operations: &[u64], nanos: u64) -> Row {
        let mut repeats = Repeats::default();
        operations.iter().for_each(|count| add(&mut repeats, sample(*count, nanos, true)));
        Row::of(&case(), &repeats).unwrap()
    }

    pub(in super::super) fn row(operations: u64, nanos: u64) -> Row {
        repeated(&[operations], nanos)
    }

    pub(in super::super) fn report(results: Vec<Row>) -> Report {
        Report {
            format: FORMAT.to_owned(),
            server: "h:1".to_owned(),
            origin: Some(Origin::of_test()),
            library: "1.4.0".to_owned(),
            provider: None,
            memory: "memory".to_owned(),
            duration_s: 1.0,
            repeat: 1,
            interrupted: false,
            failure: None,
            results,
            comparison: None,
        }
    }

    #[test]
    fn a_row_has_rates_and_times() {
        let row = row(1000, 8000);
        assert_eq!((row.ops_per_second, row.bytes_per_second), (500.0, 2_048_000.0));
        let latency = row.latency_us.as_ref().unwrap();
        assert!((latency.p50 - 8.0).abs() < 0.01 && (latency.max - 8.0).abs() < 0.01, "{latency:?}");
        assert_eq!((row.cpu.client_us_per_op, row.cpu.server_us_per_op), (Some(1000.0), None));
        let line = row.line(false);
        assert_eq!(line.len(), heading(false).len(), "{line}");
        assert!(
            line.starts_with("write            4096     1       2        500       2.0    0.02 "),
            "{line}"
        );
        assert!(line.ends_with(" 1000.00        -"), "{line}");
        assert!(columns(&row.case).len() == COLUMNS.len());
    }

    #[test]
    fn a_row_of_repeats_is_their_sum() {
        let row = repeated(&[1000, 3000], 8000);
        assert_eq!((row.operations, row.seconds, row.ops_per_second), (4000, 4.0, 1000.0));
        assert_eq!((row.rates(), row.cpu.client), (vec![500.0, 1500.0], Some(0.5)));
        let line = row.line(true);
        assert!(line.len() == heading(true).len() && line.ends_with("  100.0%"), "{line}");
    }

    #[test]
    fn an_interrupted_repeat_counts_in_the_sum_alone() {
        let mut repeats = Repeats::default();
        assert!(Row::of(&case(), &repeats).is_none());
        add(&mut repeats, sample(1000, 8000, true));
        add(&mut repeats, sample(500, 8000, false));
        let row = Row::of(&case(), &repeats).unwrap();
        assert_eq!((row.operations, row.complete, row.rates()), (1500, false, vec![500.0]));
        assert!(row.line(true).ends_with("       -  (after 4 s)"), "{}", row.line(true));
    }

    #[test]
    fn a_row_without_operations() {
        let row = row(0, 0);
        assert!(row.latency_us.is_none() && row.cpu.client_us_per_op.is_none() && row.ops_per_second == 0.0);
        assert_eq!(row.line(true).len(), heading(true).len());
    }

    #[test]
    fn json_comes_back() {
        let report = report(vec![row(10, 1000), row(0, 0)]);
        let text = serde_json::to_string_pretty(&report).unwrap();
        assert!(text.contains("\"operation\": \"write\"") && text.contains("\"latency_us\": null"), "{text}");
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string_pretty(&back).unwrap(), text);
    }

    #[test]
    fn json_of_an_earlier_version_is_read() {
        let text = r#"{"format": "rpma perf 1", "server": "h:1", "library": "1.4.0", "provider": null,
            "memory": "memory", "duration_s": 1, "interrupted": false, "failure": null, "results": [
            {"operation": "write", "size": 4096, "depth": 1, "threads": 2, "complete": true, "seconds": 1,
            "operations": 5, "ops_per_second": 5, "bytes_per_second": 20480, "latency_us": null,
            "cpu": {"client": null, "server": null, "client_us_per_op": null, "server_us_per_op": null}}]}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert!(report.origin.is_none() && report.repeat == 1);
        assert_eq!((report.results[0].rates(), report.results[0].medians()), (vec![5.0], vec![]));
    }
}
