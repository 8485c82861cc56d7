// SPDX-License-Identifier: BSD-3-Clause
//! The table.

use super::process::Row;

const HEADINGS: [&str; 14] = [
    "PID", "COMMAND", "CONN", "WRITE/s", "READ/s", "SEND/s", "RECV/s", "ATOMIC/s", "FLUSH/s", "MB/s",
    "p50 us", "p99 us", "REGIONS", "MiB",
];
/// The column of text; the others are numbers.
const TEXT: usize = 1;
/// The text for unknown values.
const UNKNOWN: &str = "-";

/// Formats a heading and a line for each row, in columns.
pub(super) fn of(rows: &[Row]) -> String {
    let lines: Vec<Vec<String>> =
        std::iter::once(HEADINGS.map(str::to_owned).to_vec()).chain(rows.iter().map(cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column == TEXT { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// The sum; 0.0 for no values, unlike the -0.0 of std.
fn sum<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

fn cells(row: &Row) -> Vec<String> {
    let rate = |ops: &[&str]| match row.seconds {
        Some(_) => {
            format!("{:.0}", sum(ops.iter().filter_map(|op| row.ops_per_second.get(*op))))
        }
        None => UNKNOWN.to_owned(),
    };
    let bytes = sum(row.bytes_per_second.values());
    let latency = |value: Option<f64>| value.map_or(UNKNOWN.to_owned(), |value| format!("{value:.1}"));
    vec![
        row.pid.to_string(),
        row.command.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
        row.connections.get("open").copied().unwrap_or(0).to_string(),
        rate(&["write"]),
        rate(&["read"]),
        rate(&["send"]),
        rate(&["recv"]),
        rate(&["atomic_write"]),
        rate(&["flush_visibility", "flush_persistent"]),
        row.seconds.map_or(UNKNOWN.to_owned(), |_| format!("{:.2}", bytes / 1e6)),
        latency(row.latency_all_us.map(|latency| latency.p50)),
        latency(row.latency_all_us.map(|latency| latency.p99)),
        row.regions.to_string(),
        format!("{:.2}", row.region_bytes as f64 / f64::from(1 << 20)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::process::Counters;
    use super::*;
    use std::path::Path;
    use std::time::{Duration, Instant};

    #[test]
    fn columns() {
        let began = Instant::now();
        let text = |writes: u32, flushes: u32| {
            format!(
                "rpma_info{{pid=\"4194305\",version=\"1\"}} 1\nrpma_connections{{state=\"open\"}} 3\nrpma_regions 2\nrpma_region_bytes 1572864\n\
                 rpma_operations_total{{op=\"write\"}} {writes}\nrpma_operations_total{{op=\"flush_persistent\"}} {flushes}\n\
                 rpma_bytes_total{{op=\"write\"}} {}\n",
                writes * 1000
            )
        };
        let before = Counters::of(&text(0, 0), began).unwrap();
        let now = Counters::of(&text(4000, 10), began + Duration::from_secs(2)).unwrap();
        let table = of(&[now.row(Path::new("a"), Some(&before)), before.row(Path::new("b"), None)]);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..5], ["PID", "COMMAND", "CONN", "WRITE/s", "READ/s"]);
        let rates = ["4194305", "-", "3", "2000", "0", "0", "0", "0", "5", "2.00", "-", "-", "2", "1.50"];
        assert_eq!(lines[1], rates);
        assert_eq!(lines[2], ["4194305", "-", "3", "-", "-", "-", "-", "-", "-", "-", "-", "-", "2", "1.50"]);
        assert_eq!(of(&[]).lines().count(), 1);
    }
}
