// SPDX-License-Identifier: BSD-3-Clause
//! Tables of processes and of connections, for a terminal of any width and for text without a limit.

use super::connection;
use super::process;
use super::traffic::{Traffic, sum};

/// The text for unknown values.
const UNKNOWN: &str = "-";
/// The columns of text; the others are numbers.
const TEXTS: [&str; 7] = ["COMMAND", "PEER", "DEVICE", "TRANSPORT", "LINK", "STATE", "ERROR"];
/// The width at which text is cut if it does not fit.
const SHORTEST: usize = 8;

/// A value of a row, with its order and its format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Text(&'a str),
    /// An identifier.
    Number(u64),
    /// Operations per second.
    Rate(Option<f64>),
    /// With this number of decimal places.
    Value(Option<f64>, usize),
}

/// A column of a table with rows of type `T`.
pub(super) struct Column<T: 'static> {
    pub(super) name: &'static str,
    /// The columns with the highest value are left out first; those with 0 stay.
    rank: u8,
    pub(super) cell: for<'a> fn(&'a T) -> Cell<'a>,
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// With all digits, for programs.
    Exact,
    /// With a unit, for people.
    Short,
}

/// A table as lines.
pub(super) struct Table {
    pub(super) heading: String,
    pub(super) lines: Vec<String>,
}

impl Cell<'_> {
    fn text(self, style: Style) -> String {
        match self {
            Self::Text("") => UNKNOWN.to_owned(),
            Self::Text(text) => text.to_owned(),
            Self::Number(number) => number.to_string(),
            Self::Rate(None) | Self::Value(None, _) => UNKNOWN.to_owned(),
            Self::Rate(Some(rate)) => match style {
                Style::Exact => format!("{rate:.0}"),
                Style::Short => short(rate),
            },
            Self::Value(Some(value), digits) => format!("{value:.digits$}"),
        }
    }

    /// The order of rows: text and identifiers from the first one on, rates and values from the highest one
    /// on.
    pub(super) fn order(self, other: Self) -> std::cmp::Ordering {
        let value = |cell: Self| match cell {
            Self::Rate(value) | Self::Value(value, _) => value.unwrap_or(-1.0),
            _ => 0.0,
        };
        match (self, other) {
            (Self::Text(this), Self::Text(other)) => this.cmp(other),
            (Self::Number(this), Self::Number(other)) => this.cmp(&other),
            (this, other) => value(other).total_cmp(&value(this)),
        }
    }
}

/// A number with at most five characters.
pub(super) fn short(number: f64) -> String {
    match number {
        n if n < 9999.5 => format!("{n:.0}"),
        n if n < 99_950.0 => format!("{:.1}k", n / 1e3),
        n if n < 999_500.0 => format!("{:.0}k", n / 1e3),
        n if n < 9_995_000.0 => format!("{:.2}M", n / 1e6),
        n if n < 99_950_000.0 => format!("{:.1}M", n / 1e6),
        n => format!("{:.0}M", n / 1e6),
    }
}

fn mega(value: Option<f64>) -> Cell<'static> {
    Cell::Value(value.map(|bytes| bytes / 1e6), 2)
}

fn out_ops(traffic: Option<Traffic>) -> Cell<'static> {
    Cell::Rate(traffic.map(|traffic| traffic.out_ops_per_second))
}

fn in_ops(traffic: Option<Traffic>) -> Cell<'static> {
    Cell::Rate(traffic.map(|traffic| traffic.in_ops_per_second))
}

fn out_bytes(traffic: Option<Traffic>) -> Cell<'static> {
    mega(traffic.map(|traffic| traffic.out_bytes_per_second))
}

fn in_bytes(traffic: Option<Traffic>) -> Cell<'static> {
    mega(traffic.map(|traffic| traffic.in_bytes_per_second))
}

fn rate(row: &process::Row, ops: &[&str]) -> Cell<'static> {
    let of = || sum(ops.iter().filter_map(|op| row.ops_per_second.get(*op)));
    Cell::Rate(row.seconds.map(|_| of()))
}

macro_rules! columns {
    ($row:ident: $type:ty, $($name:literal $rank:literal $cell:expr,)*) => {
        &[$(Column { name: $name, rank: $rank, cell: |$row: &$type| $cell }),*]
    };
}

pub(super) const PROCESSES: &[Column<process::Row>] = columns! { row: process::Row,
    "PID" 0 Cell::Number(row.pid.into()),
    "COMMAND" 0 Cell::Text(row.command.as_deref().unwrap_or(UNKNOWN)),
    "CONN" 1 Cell::Number(row.connections.get("open").copied().unwrap_or(0)),
    "OUT/s" 0 out_ops(row.traffic),
    "IN/s" 0 in_ops(row.traffic),
    "OUT MB/s" 0 out_bytes(row.traffic),
    "IN MB/s" 0 in_bytes(row.traffic),
    "p50 us" 2 Cell::Value(row.latency_all_us.map(|latency| latency.p50), 1),
    "p99 us" 0 Cell::Value(row.latency_all_us.map(|latency| latency.p99), 1),
    "WRITE/s" 4 rate(row, &["write"]),
    "READ/s" 4 rate(row, &["read"]),
    "SEND/s" 4 rate(row, &["send"]),
    "RECV/s" 6 rate(row, &["recv"]),
    "ATOMIC/s" 6 rate(row, &["atomic_write", "atomic"]),
    "FLUSH/s" 5 rate(row, &["flush_visibility", "flush_persistent"]),
    "REGIONS" 5 Cell::Number(row.regions),
    "MiB" 3 Cell::Value(Some(row.region_bytes as f64 / f64::from(1 << 20)), 2),
};

/// A connection with its process.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) pid: u32,
    pub(super) command: Option<String>,
    pub(super) connection: connection::Row,
}

impl Listed {
    /// The connections of all processes.
    pub(super) fn all(rows: &[process::Row]) -> Vec<Self> {
        let of = |row: &process::Row, connection: &connection::Row| Self {
            pid: row.pid,
            command: row.command.clone(),
            connection: connection.clone(),
        };
        rows.iter().flat_map(|row| row.each_connection.iter().map(move |each| of(row, each))).collect()
    }
}

pub(super) const CONNECTIONS: &[Column<Listed>] = columns! { row: Listed,
    "PID" 0 Cell::Number(row.pid.into()),
    "COMMAND" 5 Cell::Text(row.command.as_deref().unwrap_or(UNKNOWN)),
    "PEER" 0 Cell::Text(&row.connection.peer),
    "DEVICE" 4 Cell::Text(&row.connection.device),
    "TRANSPORT" 6 Cell::Text(&row.connection.transport),
    "LINK" 3 Cell::Text(&row.connection.link),
    "STATE" 1 Cell::Text(&row.connection.state),
    "OUT/s" 0 out_ops(row.connection.traffic),
    "IN/s" 0 in_ops(row.connection.traffic),
    "OUT MB/s" 0 out_bytes(row.connection.traffic),
    "IN MB/s" 0 in_bytes(row.connection.traffic),
    "p99 us" 0 Cell::Value(row.connection.latency_us.map(|latency| latency.p99), 1),
    "ERROR" 2 Cell::Text(row.connection.error.as_deref().unwrap_or(UNKNOWN)),
};

/// Formats rows in columns, for a terminal of this width or with all columns.
pub(super) fn of<T>(columns: &[Column<T>], rows: &[T], style: Style, width: Option<usize>) -> Table {
    let gap = if width.is_some() { 1 } else { 2 };
    let mut shown: Vec<Shown> = columns.iter().map(|column| Shown::of(column, rows, style)).collect();
    if let Some(width) = width {
        fit(&mut shown, gap, width);
    }
    let mut lines = (0..=rows.len()).map(|line| {
        let cells: Vec<String> = shown.iter().map(|column| column.cell(line)).collect();
        let line = cells.join(&" ".repeat(gap));
        line.trim_end().chars().take(width.unwrap_or(usize::MAX)).collect::<String>()
    });
    Table { heading: lines.next().unwrap_or_default(), lines: lines.collect() }
}

/// A column with its cells, of which the first one is the name.
struct Shown {
    cells: Vec<String>,
    is_text: bool,
    rank: u8,
    width: usize,
}

impl Shown {
    fn of<T>(column: &Column<T>, rows: &[T], style: Style) -> Self {
        let name = std::iter::once(column.name.to_owned());
        let cells: Vec<String> = name.chain(rows.iter().map(|row| (column.cell)(row).text(style))).collect();
        let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        let is_text = TEXTS.contains(&column.name);
        Self { cells, is_text, rank: column.rank, width }
    }

    fn cell(&self, line: usize) -> String {
        let width = self.width;
        let cell: String = self.cells[line].chars().take(width).collect();
        if self.is_text { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    }
}

/// Leaves out columns and cuts text until the rest fits.
fn fit(shown: &mut Vec<Shown>, gap: usize, width: usize) {
    let excess = |shown: &[Shown]| {
        let all: usize = shown.iter().map(|column| column.width + gap).sum();
        all.saturating_sub(gap + width)
    };
    while excess(shown) > 0 {
        let highest = shown.iter().map(|column| column.rank).max().filter(|rank| *rank > 0);
        let Some(at) = shown.iter().rposition(|column| Some(column.rank) == highest) else { break };
        shown.remove(at);
    }
    for at in 0..shown.len() {
        let excess = excess(shown);
        let column = &mut shown[at];
        if column.is_text && column.width > SHORTEST {
            column.width = column.width.saturating_sub(excess).max(SHORTEST);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::process::Counters;
    use super::*;
    use std::path::Path;
    use std::time::{Duration, Instant};

    /// Rows of a process with two connections, the second of which has nothing to do.
    pub(in super::super) fn rows() -> Vec<process::Row> {
        let began = Instant::now();
        let text = |writes: u32, flushes: u32| {
            let connection = |number: u32, peer: &str, state: &str, error: &str| {
                format!(
                    "rpma_connection_info{{conn=\"{number}\",peer=\"{peer}\",provider=\"soft\",device=\"soft0\",transport=\"iwarp\",\
                     link=\"tcp\",state=\"{state}\",error=\"{error}\"}} 1\n"
                )
            };
            let bytes = writes * 1000;
            format!(
                "rpma_info{{pid=\"4194305\",version=\"1\"}} 1\nrpma_connections{{state=\"open\"}} 3\nrpma_regions 2\nrpma_region_bytes 1572864\n\
                 rpma_operations_total{{op=\"write\"}} {writes}\nrpma_operations_total{{op=\"flush_persistent\"}} {flushes}\n\
                 rpma_bytes_total{{op=\"write\"}} {bytes}\nrpma_served_total{{op=\"read\"}} {flushes}\n{}{}\
                 rpma_connection_operations_total{{conn=\"9\",peer=\"192.0.2.200:54321\",op=\"write\"}} {writes}\n\
                 rpma_connection_bytes_total{{conn=\"9\",peer=\"192.0.2.200:54321\",op=\"write\"}} {bytes}\n",
                connection(9, "192.0.2.200:54321", "open", ""),
                connection(10, "[2001:db8::1234:5678]:7204", "lost", "retry_exc_err"),
            )
        };
        let before = Counters::of(&text(0, 0), began).unwrap();
        let now = Counters::of(&text(4_000_000, 10), began + Duration::from_secs(2)).unwrap();
        vec![now.row(Path::new("a"), Some(&before)), before.row(Path::new("b"), None)]
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn all_columns_for_programs() {
        let Table { heading, lines } = of(PROCESSES, &rows(), Style::Exact, None);
        let headings = "PID COMMAND CONN OUT/s IN/s OUT MB/s IN MB/s p50 us p99 us WRITE/s READ/s SEND/s RECV/s ATOMIC/s \
                        FLUSH/s REGIONS MiB";
        assert_eq!(words(&heading), words(headings));
        let cells = "4194305 - 3 2000005 5 2000.00 0.00 - - 2000000 0 0 0 0 5 2 1.50";
        assert_eq!(words(&lines[0]), words(cells));
        assert_eq!(words(&lines[1]), words("4194305 - 3 - - - - - - - - - - - - 2 1.50"));
        let Table { heading, lines } = of(CONNECTIONS, &Listed::all(&rows()), Style::Exact, None);
        let headings =
            "PID COMMAND PEER DEVICE TRANSPORT LINK STATE OUT/s IN/s OUT MB/s IN MB/s p99 us ERROR";
        assert_eq!((words(&heading), lines.len()), (words(headings), 4));
        let cells = "4194305 - 192.0.2.200:54321 soft0 iwarp tcp open 2000000 0 2000.00 0.00 - -";
        assert_eq!(words(&lines[0]), words(cells));
        assert!(lines[1].ends_with(" retry_exc_err"), "{}", lines[1]);
        assert!(of(PROCESSES, &[], Style::Exact, None).lines.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let listed = Listed::all(&rows());
        for width in [20, 40, 60, 80, 100, 120, 200] {
            let processes = of(PROCESSES, &rows(), Style::Short, Some(width));
            let connections = of(CONNECTIONS, &listed, Style::Short, Some(width));
            for table in [&processes, &connections] {
                let all = std::iter::once(&table.heading).chain(&table.lines);
                assert!(all.map(|line| line.chars().count()).all(|len| len <= width), "{width}");
            }
            if width >= 80 {
                for name in ["PEER", "STATE", "OUT/s", "IN/s", "OUT MB/s", "IN MB/s", "p99 us"] {
                    assert!(connections.heading.contains(name), "{width}: {}", connections.heading);
                }
                assert!(processes.heading.contains("p99 us"), "{}", processes.heading);
            }
            assert_eq!(connections.heading.contains("ERROR"), width >= 100, "{}", connections.heading);
        }
    }

    #[test]
    fn numbers_for_people_are_short() {
        let cases = [
            (0.4, "0"),
            (9999.4, "9999"),
            (9999.6, "10.0k"),
            (99_949.0, "99.9k"),
            (123_456.0, "123k"),
            (1_234_567.0, "1.23M"),
            (45_678_901.0, "45.7M"),
            (345_678_901.0, "346M"),
        ];
        for (number, text) in cases {
            assert_eq!(short(number), text);
        }
    }

    #[test]
    fn rates_are_sorted_from_the_highest_and_text_from_the_first() {
        use std::cmp::Ordering::Less;
        for (first, second) in [
            (Cell::Rate(Some(2.0)), Cell::Rate(Some(1.0))),
            (Cell::Rate(Some(0.0)), Cell::Rate(None)),
            (Cell::Value(Some(2.0), 1), Cell::Value(Some(1.0), 1)),
            (Cell::Text("a"), Cell::Text("b")),
            (Cell::Number(2), Cell::Number(10)),
        ] {
            assert_eq!(first.order(second), Less, "{first:?} {second:?}");
        }
    }
}
