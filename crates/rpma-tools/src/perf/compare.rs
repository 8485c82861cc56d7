// SPDX-License-Identifier: BSD-3-Clause
//! `--compare`: the changes since an earlier result, and whether they are within the limit of `--fail-over`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::change::{Better, Change, Comparison, Gate, Outcome, Pair};
use super::interval;
use super::options::Percent;
use super::report::{COLUMNS, FORMAT, Report, Row, columns};

/// Reads an earlier result of a supported format.
pub(super) fn read(path: &Path) -> Result<Report, String> {
    let named = |why: String| format!("{}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|why| named(why.to_string()))?;
    let report: Report = serde_json::from_str(&text)
        .map_err(|why| named(format!("it is not what rpma perf --json prints: {why}")))?;
    match report.format.as_str() {
        FORMAT => Ok(report),
        other => Err(named(format!("its format is \"{other}\", not \"{FORMAT}\""))),
    }
}

/// An error in the arguments: repeats with which no case could be worse than a limit.
pub(super) fn can_decide(old: &Report, repeat: usize) -> Result<(), String> {
    let fewest = old.results.iter().map(|row| row.rates().len()).min().unwrap_or(0);
    if interval::has_interval(fewest, repeat) {
        return Ok(());
    }
    Err(format!(
        "--fail-over needs repeats: a combination was measured {fewest} times before, and would be {repeat} times now; use --repeat 5 for both"
    ))
}

/// Compares the cases that both results have.
pub(super) fn compare(old: &Report, new: &[Row], limit: Option<Percent>) -> Comparison {
    let of = |row: &Row| old.results.iter().find(|old| old.case == row.case);
    let changes: Vec<Change> = new.iter().filter_map(|new| Some(change(of(new)?, new))).collect();
    let fail_over = limit.map(|limit| {
        let gates: Vec<Gate> = changes.iter().map(|change| change.gate(limit)).collect();
        let count = |of: Gate| gates.iter().filter(|gate| **gate == of).count();
        let (failed, undecided) = (count(Gate::Failed), count(Gate::Undecided));
        Outcome { limit_percent: limit.0, failed, undecided }
    });
    Comparison { changes, fail_over }
}

/// The table.
pub(super) fn lines(comparison: &Comparison, name: &str) -> String {
    let mut lines = format!("\ncompared with {name}:\n");
    if comparison.changes.is_empty() {
        lines += "it has none of these cases";
        return lines;
    }
    let interval = format!("{:.0}% interval", interval::CONFIDENCE * 100.0);
    let _ = write!(
        lines,
        "{COLUMNS} {:<6} {:>11} {:>11} {:>8} {interval:>18}  verdict",
        "value", "old", "new", "change"
    );
    for change in &comparison.changes {
        let mut line = |value: &str, pair: &Pair, digits| {
            let text = pair.text(digits);
            let _ = write!(lines, "\n{} {value:<6} {}", columns(&change.case), text.trim_end());
        };
        line("ops/s", &change.ops_per_second, 0);
        for (value, pair) in [("p50 us", &change.p50_us), ("p99 us", &change.p99_us)] {
            if let Some(pair) = pair {
                line(value, pair, 1);
            }
        }
    }
    if let Some(Outcome { limit_percent, failed, undecided }) = comparison.fail_over {
        let all = comparison.changes.len();
        let _ = write!(lines, "\n{failed} of {all} combinations worse by more than {limit_percent}%");
        if undecided > 0 {
            let _ = write!(lines, ", {undecided} undecided: more repeats narrow the interval");
        }
    }
    lines
}

fn change(old: &Row, new: &Row) -> Change {
    let bytes = |rates: Vec<f64>| -> Vec<f64> {
        rates.iter().map(|rate| (rate * new.case.size as f64).round()).collect()
    };
    let latency = |old: Vec<f64>, new: Vec<f64>| {
        let is_known = !old.is_empty() && !new.is_empty();
        is_known.then(|| Pair::new(&old, &new, Better::Lower))
    };
    Change {
        case: new.case,
        ops_per_second: Pair::new(&old.rates(), &new.rates(), Better::Higher),
        bytes_per_second: Pair::new(&bytes(old.rates()), &bytes(new.rates()), Better::Higher),
        p50_us: latency(old.medians(), new.medians()),
        p99_us: latency(old.p99s(), new.p99s()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{repeated, report, row};
    use super::*;

    fn five(operations: u64, nanos: u64) -> Row {
        repeated(&[operations, operations + 1, operations - 1, operations, operations], nanos)
    }

    #[test]
    fn rows_of_both_are_compared() {
        let changed = compare(&report(vec![row(1000, 10_000)]), &[row(2000, 5000)], None);
        let text = lines(&changed, "old.json");
        assert!(text.contains("+100.0%") && text.contains("-50.0%") && !changed.is_empty(), "{text}");
        let ends: Vec<&str> = text.lines().skip(3).map(|line| &line[line.len() - 22..]).collect();
        assert_eq!(ends, ["                  -  -"; 3], "{text}");
        let none = compare(&report(vec![]), &[row(1, 1)], None);
        assert!(none.is_empty() && lines(&none, "x").contains("none of these"));
    }

    #[test]
    fn what_is_within_the_interval_is_no_change() {
        let same = compare(&report(vec![five(1000, 10_000)]), &[five(1000, 10_000)], Some(Percent(10.0)));
        let text = lines(&same, "old.json");
        assert_eq!(text.lines().filter(|line| line.ends_with("  no change")).count(), 3, "{text}");
        assert!(
            !same.has_failed() && text.ends_with("\n0 of 1 combinations worse by more than 10%"),
            "{text}"
        );
    }

    #[test]
    fn a_case_that_is_worse_than_the_limit_fails() {
        let compared = |operations, nanos| {
            compare(&report(vec![five(1000, 10_000)]), &[five(operations, nanos)], Some(Percent(10.0)))
        };
        for (operations, nanos, fails) in
            [(1500, 10_000, false), (950, 10_500, false), (500, 10_000, true), (1000, 12_000, true)]
        {
            let text = lines(&compared(operations, nanos), "old.json");
            assert_eq!(compared(operations, nanos).has_failed(), fails, "{text}");
            let last = format!("\n{} of 1 combinations worse by more than 10%", u32::from(fails));
            assert!(text.ends_with(&last), "{text}");
        }
        let json = serde_json::to_value(compared(500, 10_000)).unwrap();
        assert_eq!(
            (&json["fail_over"]["failed"], &json["changes"][0]["ops_per_second"]["verdict"]),
            (&1.into(), &"worse".into())
        );
    }

    #[test]
    fn a_wide_interval_decides_nothing() {
        let wide = repeated(&[600, 800, 1000, 1100, 700], 10_000);
        let text = lines(&compare(&report(vec![five(1000, 10_000)]), &[wide], Some(Percent(10.0))), "x");
        assert!(
            text.ends_with("worse by more than 10%, 1 undecided: more repeats narrow the interval"),
            "{text}"
        );
    }

    #[test]
    fn a_limit_needs_repeats() {
        let old = report(vec![five(1000, 10_000)]);
        assert_eq!(can_decide(&old, 5), Ok(()));
        let why = can_decide(&old, 1).unwrap_err();
        assert!(why.contains("5 times before") && why.contains("1 times now"), "{why}");
        assert!(
            can_decide(&report(vec![row(1000, 1)]), 5).is_err() && can_decide(&report(vec![]), 5).is_err()
        );
    }
}
