// SPDX-License-Identifier: BSD-3-Clause
//! The screen of `rpma top` as a value: keys change it, and it is drawn as lines.

use super::detail;
use super::history::History;
use super::keys::Key;
use super::latency::{self, Buckets, Latency};
use super::process;
use super::table::{self, CONNECTIONS, Column, Listed, PROCESSES, Style, Table, short};
use super::traffic::Traffic;

/// Lines that are not rows of the table: three of the total, an empty one, the heading, and the keys.
const FIXED: usize = 6;
const KEYS: &str = "q quit  Tab other table  s sort  r reverse  Enter details  ? help";
const HELP: [&str; 14] = [
    "q          quit",
    "Tab        processes or connections",
    "Up, Down   select a row; also k and j, and Page Up and Page Down",
    "Enter      all counters of the selected row; Esc goes back",
    "s          sort by the next column; r reverses the order",
    "?          this text",
    "",
    "OUT/s      requests that the process posts to send queues, per second",
    "IN/s       messages received, and writes, reads and atomic operations of",
    "           peers, per second; one-sided ones with software RDMA only",
    "OUT MB/s   written, sent, and read by peers; IN MB/s the other direction",
    "p99 us     from posting a signalled request to taking its completion",
    "LINK       tcp, udp, shared_memory, direct_copy (shared memory, and copies",
    "           from process to process) or device (an adapter)",
];

/// How a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Bold,
    Reverse,
}

/// A line of the screen.
pub(super) type Line = (String, Look);

/// The effect of a key outside of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Draw,
    Quit,
    /// Ctrl-Z: the process stops.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Processes,
    Connections,
}

/// A process, or one of its connections.
type Selected = (u32, Option<u64>);

/// The sum of all processes.
#[derive(Default)]
struct Total {
    traffic: Traffic,
    latency: Option<Latency>,
    processes: usize,
    open: u64,
}

/// The state of the screen.
pub(super) struct View {
    has_unicode: bool,
    rows: Vec<process::Row>,
    total: Total,
    history: History,
    page: Page,
    /// The column that each page is sorted by; None: by process and connection.
    sorted: [Option<usize>; 2],
    reversed: bool,
    selected: Option<Selected>,
    shows_detail: bool,
    shows_help: bool,
    /// The number of rows that fit.
    height: usize,
}

impl View {
    pub(super) fn new(has_unicode: bool) -> Self {
        Self {
            has_unicode,
            rows: Vec::new(),
            total: Total::default(),
            history: History::default(),
            page: Page::Connections,
            sorted: [None; 2],
            reversed: false,
            selected: None,
            shows_detail: false,
            shows_help: false,
            height: 1,
        }
    }

    /// Takes the rows of the next interval.
    pub(super) fn update(&mut self, rows: Vec<process::Row>) {
        let mut total = Total { processes: rows.len(), ..Total::default() };
        let mut latencies = Buckets::new();
        for row in &rows {
            total.open += row.connections.get("open").copied().unwrap_or(0);
            if let Some(traffic) = &row.traffic {
                total.traffic.add(traffic);
            }
            if !row.latencies_all.is_empty() {
                latency::add(&mut latencies, row.latencies_all.clone());
            }
        }
        total.latency = Latency::of(&latencies);
        if rows.iter().any(|row| row.traffic.is_some()) {
            self.history.add(total.traffic.bytes());
        }
        (self.rows, self.total) = (rows, total);
    }

    pub(super) fn key(&mut self, key: Key) -> Next {
        match key {
            Key::Quit => return Next::Quit,
            Key::Stop => return Next::Stop,
            Key::Help => self.shows_help = !self.shows_help,
            Key::Back if self.shows_help => self.shows_help = false,
            Key::Back => self.shows_detail = false,
            Key::Enter if self.shows_help || self.shows_detail => {
                (self.shows_help, self.shows_detail) = (false, false);
            }
            Key::Enter => {
                self.step(0);
                self.shows_detail = self.selected.is_some();
            }
            Key::Other => {
                self.page = if self.page == Page::Processes { Page::Connections } else { Page::Processes };
                (self.selected, self.shows_detail, self.shows_help) = (None, false, false);
            }
            Key::Up => self.step(-1),
            Key::Down => self.step(1),
            Key::PageUp => self.step(-(self.height as isize)),
            Key::PageDown => self.step(self.height as isize),
            Key::Sort => {
                let (sorted, columns) = match self.page {
                    Page::Processes => (&mut self.sorted[0], PROCESSES.len()),
                    Page::Connections => (&mut self.sorted[1], CONNECTIONS.len()),
                };
                *sorted = Some(sorted.map_or(0, |at| at + 1)).filter(|at| *at < columns);
            }
            Key::Reverse => self.reversed = !self.reversed,
        }
        Next::Draw
    }

    /// Selects the row that many rows below the selected one, or below the first one.
    fn step(&mut self, by: isize) {
        let all = self.identities();
        let at = self.selected.and_then(|selected| all.iter().position(|other| *other == selected));
        let next = match at {
            // The first key selects the first row.
            None => 0,
            Some(at) => at.saturating_add_signed(by).min(all.len().saturating_sub(1)),
        };
        self.selected = all.get(next).copied();
    }

    /// What the rows of the page are, in their order.
    fn identities(&self) -> Vec<Selected> {
        match self.page {
            Page::Processes => self.processes().iter().map(|row| (row.pid, None)).collect(),
            Page::Connections => {
                self.connections().iter().map(|row| (row.pid, Some(row.connection.conn))).collect()
            }
        }
    }

    fn processes(&self) -> Vec<process::Row> {
        self.in_order(self.rows.clone(), PROCESSES, self.sorted[0])
    }

    fn connections(&self) -> Vec<Listed> {
        self.in_order(Listed::all(&self.rows), CONNECTIONS, self.sorted[1])
    }

    fn in_order<T>(&self, mut rows: Vec<T>, columns: &[Column<T>], sorted: Option<usize>) -> Vec<T> {
        if let Some(column) = sorted.and_then(|at| columns.get(at)) {
            rows.sort_by(|this, other| (column.cell)(this).order((column.cell)(other)));
        }
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    /// Draws the screen: at most `height` lines of at most `width` characters.
    pub(super) fn draw(&mut self, (width, height): (usize, usize)) -> Vec<Line> {
        self.height = height.saturating_sub(FIXED).max(1);
        let mut lines = self.total_lines(width);
        lines.push((String::new(), Look::Plain));
        let is_of = |row: &&process::Row, pid| row.pid == pid;
        let detail = self.selected.filter(|_| self.shows_detail).map(|(pid, conn)| {
            let process = self.rows.iter().find(|row| is_of(row, pid));
            match conn {
                None => process.map(detail::process),
                Some(conn) => process
                    .and_then(|row| Some((row, row.each_connection.iter().find(|each| each.conn == conn)?)))
                    .map(|(row, each)| detail::connection(row, each)),
            }
        });
        if self.shows_help {
            lines.extend(HELP.map(|line| (line.to_owned(), Look::Plain)));
        } else if let Some(detail) = detail {
            let gone = || vec!["It is gone; Esc goes back.".to_owned()];
            lines.extend(detail.unwrap_or_else(gone).into_iter().map(|line| (line, Look::Plain)));
        } else {
            let table = match self.page {
                Page::Processes => table::of(PROCESSES, &self.processes(), Style::Short, Some(width)),
                Page::Connections => table::of(CONNECTIONS, &self.connections(), Style::Short, Some(width)),
            };
            self.draw_table(&mut lines, table);
        }
        lines.truncate(height.saturating_sub(1));
        lines.resize(height.saturating_sub(1), (String::new(), Look::Plain));
        lines.push((self.keys(), Look::Plain));
        for (text, _) in &mut lines {
            *text = text.chars().take(width).collect();
        }
        lines
    }

    fn draw_table(&self, lines: &mut Vec<Line>, table: Table) {
        lines.push((table.heading, Look::Bold));
        let all = self.identities();
        let selected = self.selected.and_then(|selected| all.iter().position(|other| *other == selected));
        // The selected row is visible.
        let first = selected.map_or(0, |at| (at + 1).saturating_sub(self.height));
        if table.lines.is_empty() {
            let what = if self.page == Page::Processes { "no process" } else { "no connection" };
            lines.push((what.to_owned(), Look::Plain));
        }
        for (at, line) in table.lines.into_iter().enumerate().skip(first).take(self.height) {
            lines.push((line, if Some(at) == selected { Look::Reverse } else { Look::Plain }));
        }
    }

    fn total_lines(&self, width: usize) -> Vec<Line> {
        let Total { traffic, latency, processes, open } = &self.total;
        let p99 = latency.map_or("-".to_owned(), |latency| format!("{:.1}", latency.p99));
        let count =
            |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        let what = format!(
            "rpma top: {}, {} open",
            count(*processes as u64, "process", "processes"),
            count(*open, "connection", "connections")
        );
        let total = format!(
            "total: out {}/s {:.2} MB/s  in {}/s {:.2} MB/s  p99 {p99} us",
            short(traffic.out_ops_per_second),
            traffic.out_bytes_per_second / 1e6,
            short(traffic.in_ops_per_second),
            traffic.in_bytes_per_second / 1e6
        );
        let room = width.saturating_sub("MB/s  max 1234567.89".len());
        let line = self.history.line(room, self.has_unicode);
        let highest = self.history.highest(room) / 1e6;
        let spark = format!("MB/s {line} max {highest:.2}");
        vec![(what, Look::Plain), (total, Look::Bold), (spark, Look::Plain)]
    }

    fn keys(&self) -> String {
        if self.shows_help || self.shows_detail {
            return "q quit  Esc back".to_owned();
        }
        let name = match self.page {
            Page::Processes => self.sorted[0].map(|at| PROCESSES[at].name),
            Page::Connections => self.sorted[1].map(|at| CONNECTIONS[at].name),
        };
        match name {
            None => KEYS.to_owned(),
            Some(name) => format!("{KEYS}  by {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::rows;
    use super::*;

    fn view() -> View {
        let mut view = View::new(true);
        view.update(rows());
        view
    }

    fn text(view: &mut View, size: (usize, usize)) -> String {
        view.draw(size).into_iter().map(|(line, _)| line + "\n").collect()
    }

    #[test]
    fn a_screen_has_the_total_the_connections_and_the_keys() {
        let mut view = view();
        let text = text(&mut view, (80, 24));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 24);
        assert_eq!(lines[0], "rpma top: 2 processes, 6 connections open");
        assert_eq!(lines[1], "total: out 2.00M/s 2000.00 MB/s  in 5/s 0.00 MB/s  p99 - us");
        assert_eq!(lines[2], "MB/s █ max 2000.00");
        assert!(lines[4].contains("PEER") && lines[5].contains("192.0.2.200:54321"), "{text}");
        assert!(lines[6].contains("lost") && lines[23].starts_with("q quit"), "{text}");
    }

    #[test]
    fn every_size_is_filled_and_kept() {
        for size in [(80, 24), (20, 5), (1, 1), (132, 50)] {
            for keys in [&[][..], &[Key::Help], &[Key::Enter], &[Key::Other], &[Key::Other, Key::Enter]] {
                let mut view = view();
                keys.iter().for_each(|key| assert_eq!(view.key(*key), Next::Draw));
                let lines = view.draw(size);
                assert_eq!(lines.len(), size.1, "{size:?} {keys:?}");
                assert!(lines.iter().all(|(line, _)| line.chars().count() <= size.0), "{size:?} {keys:?}");
            }
        }
    }

    #[test]
    fn keys_have_their_effects() {
        let mut view = view();
        assert_eq!((view.key(Key::Quit), view.key(Key::Stop)), (Next::Quit, Next::Stop));
        view.key(Key::Help);
        assert!(
            text(&mut view, (80, 24)).contains("Page Down") && !text(&mut view, (80, 24)).contains("PEER")
        );
        view.key(Key::Back);
        assert!(text(&mut view, (80, 24)).contains("PEER"));
        view.key(Key::Other);
        assert!(text(&mut view, (80, 24)).contains("COMMAND"));
        view.key(Key::Other);
        // The details of a connection.
        view.key(Key::Enter);
        let detail = text(&mut view, (80, 24));
        assert!(detail.contains("transport     iwarp") && detail.contains("Esc back"), "{detail}");
        view.key(Key::Back);
        assert!(text(&mut view, (80, 24)).contains("PEER"));
        view.key(Key::Enter);
        view.update(Vec::new());
        assert!(text(&mut view, (80, 24)).contains("It is gone"));
        view.key(Key::Enter);
        assert!(text(&mut view, (80, 24)).contains("no connection"));
    }

    #[test]
    fn rows_are_sorted_and_the_selection_stays() {
        let mut view = view();
        let selected = |view: &mut View| {
            view.draw((120, 24)).into_iter().find(|(_, look)| *look == Look::Reverse).map(|(line, _)| line)
        };
        assert_eq!(selected(&mut view), None);
        // The first key selects the first row.
        view.key(Key::Down);
        view.key(Key::Down);
        assert!(selected(&mut view).unwrap().contains("retry_exc_err"));
        view.key(Key::Reverse);
        assert!(selected(&mut view).unwrap().contains("retry_exc_err"));
        view.key(Key::Reverse);
        for _ in 0..=CONNECTIONS.iter().position(|column| column.name == "STATE").unwrap() {
            view.key(Key::Sort);
        }
        let text = text(&mut view, (120, 24));
        assert!(text.contains("by STATE") && text.lines().nth(5).unwrap().contains(" lost"), "{text}");
        for _ in 0..CONNECTIONS.len() {
            view.key(Key::Sort);
        }
        view.key(Key::PageUp);
        view.key(Key::PageDown);
        assert!(selected(&mut view).is_some());
    }

    #[test]
    fn the_selected_row_is_visible() {
        let mut view = view();
        for _ in 0..4 {
            view.key(Key::Down);
            assert!(view.draw((80, FIXED + 1)).iter().any(|(_, look)| *look == Look::Reverse));
        }
    }
}
