// SPDX-License-Identifier: BSD-3-Clause
//! `--compare`: the changes since an earlier result.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::change::{Change, Pair};
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

/// The changes of the cases that both have.
pub(super) fn changes(old: &Report, new: &[Row]) -> Vec<Change> {
    let of = |row: &Row| old.results.iter().find(|old| old.case == row.case).cloned();
    new.iter().filter_map(|new| Some(change(&of(new)?, new))).collect()
}

fn change(old: &Row, new: &Row) -> Change {
    let latency = old.latency_us.as_ref().zip(new.latency_us.as_ref());
    Change {
        case: new.case,
        ops_per_second: Pair::new(old.ops_per_second, new.ops_per_second),
        bytes_per_second: Pair::new(old.bytes_per_second, new.bytes_per_second),
        p50_us: latency.map(|(old, new)| Pair::new(old.p50, new.p50)),
        p99_us: latency.map(|(old, new)| Pair::new(old.p99, new.p99)),
    }
}

/// The table.
pub(super) fn lines(changes: &[Change], name: &str) -> String {
    let mut lines = format!("\ncompared with {name}:\n");
    if changes.is_empty() {
        lines += "it has none of these cases";
        return lines;
    }
    lines += COLUMNS;
    for (what, of) in [("ops/s", "old"), ("p50 us", "old"), ("p99 us", "old")] {
        let _ = write!(lines, " {:>10} {:>10} {:>8}", format!("{what} {of}"), "new", "change");
    }
    for change in changes {
        let _ = write!(lines, "\n{}{}", columns(&change.case), change.ops_per_second.text(0));
        for pair in [&change.p50_us, &change.p99_us] {
            lines +=
                &pair.as_ref().map_or(format!(" {:>10} {:>10} {:>8}", "-", "-", "-"), |pair| pair.text(1));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{report, row};
    use super::*;

    #[test]
    fn rows_of_both_are_compared() {
        let changed = changes(&report(vec![row(1000, 10_000)]), &[row(2000, 5000)]);
        let text = lines(&changed, "old.json");
        assert!(text.contains("+100.0%") && text.contains("-50.0%"), "{text}");
        let widths: Vec<usize> = text.lines().skip(2).map(str::len).collect();
        assert_eq!(widths, [widths[0]; 2], "{text}");
        assert!(lines(&changes(&report(vec![]), &[row(1, 1)]), "x").contains("none of these"));
    }
}
