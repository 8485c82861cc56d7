// SPDX-License-Identifier: BSD-3-Clause
//! `rpma top`: shows the activity of processes that serve their counters.

mod connection;
mod detail;
mod history;
mod keys;
mod latency;
mod process;
mod screen;
mod source;
mod table;
mod text;
mod traffic;
mod view;

use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use crate::interrupt::{self, Wake};
use crate::output::print;
use crate::seconds::seconds;
use process::{Counters, Row};
use screen::Screen;
pub(crate) use source::directories;
use table::{CONNECTIONS, Listed, PROCESSES, Style, Table};
use view::{Next, View};

/// Exit statuses: a table was printed, or the key q was pressed, no process serves its counters, any other
/// error; and Ctrl-C, as in a shell.
const PRINTED: u8 = 0;
const NONE: u8 = 1;
const FAILED: u8 = 2;
const INTERRUPTED: u8 = 130;

/// Show connections, operations, latencies and memory regions of processes that use librpma or soft0
///
/// A process serves its counters if RPMA_METRICS=unix: is in its environment, also under rpma run. On a
/// terminal it shows a total and one table, of connections or of processes; `?` lists the keys. Otherwise
/// both tables are printed again and again. Rates and latencies are those since the previous table. The exit
/// status is 0: a table was printed, or q was pressed, 1: no process serves its counters, 2: the arguments
/// are wrong, or the output cannot be written, 130: Ctrl-C, after a last table.
#[derive(Args)]
pub(crate) struct Top {
    /// Sockets and files of RPMA_METRICS, and directories with such sockets; by default the directories in
    /// which RPMA_METRICS=unix: creates them
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The time between two tables
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds::<50>)]
    interval: Duration,
    /// Print both tables once, after one interval
    #[arg(short = '1', long)]
    once: bool,
    /// Print one JSON object per line instead
    #[arg(long)]
    json: bool,
}

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    /// Seconds since the epoch.
    time: f64,
    processes: &'a [Row],
}

/// The counters of all processes, by path.
type Moment = BTreeMap<PathBuf, Counters>;

impl Top {
    pub(crate) fn run(&self) -> ExitCode {
        match self.try_run() {
            Ok(code) => ExitCode::from(code),
            Err(why) => {
                eprintln!("rpma top: {why}");
                ExitCode::from(FAILED)
            }
        }
    }

    fn try_run(&self) -> Result<u8, String> {
        interrupt::catch().map_err(|why| format!("signals cannot be caught: {why}"))?;
        let (mut before, failures) = self.look();
        if before.is_empty() {
            for why in &failures {
                eprintln!("rpma top: {why}");
            }
            eprintln!(
                "rpma top: no process serves its counters; start one with RPMA_METRICS=unix: in its environment, or name its socket or file"
            );
            return Ok(NONE);
        }
        let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        if is_terminal && !self.once && !self.json {
            return self.show(before);
        }
        let mut next = Instant::now();
        loop {
            // After a delay of more than an interval, missed tables are not made up for.
            next = (next + self.interval).max(Instant::now());
            let woken = interrupt::wait(&[], Some(next)).map_err(|why| why.to_string())?;
            let (now, _) = self.look();
            self.print(&rows(&now, &before))?;
            if woken == Wake::Interrupted {
                return Ok(INTERRUPTED);
            }
            if self.once {
                return Ok(PRINTED);
            }
            before = now;
        }
    }

    /// Shows the screen until the key q is pressed.
    fn show(&self, mut before: Moment) -> Result<u8, String> {
        let cannot = |why: io::Error| format!("the output cannot be written: {why}");
        let screen = Screen::enter(io::stdin().as_fd(), io::stdout().as_fd()).map_err(cannot)?;
        let mut view = View::new(has_unicode());
        view.update(rows(&before, &Moment::new()));
        let mut next = Instant::now() + self.interval;
        loop {
            screen.show(&view.draw(screen.size())).map_err(cannot)?;
            let woken = interrupt::wait(&[screen.keys()], Some(next)).map_err(|why| why.to_string())?;
            if woken == Wake::Ready {
                let input = screen.read().map_err(cannot)?;
                for next in keys::parse(&input).into_iter().map(|key| view.key(key)) {
                    match next {
                        Next::Draw => {}
                        Next::Quit => return Ok(PRINTED),
                        Next::Stop => screen.stop().map_err(cannot)?,
                    }
                }
                if input.is_empty() {
                    return Ok(PRINTED);
                }
            }
            if woken == Wake::Interrupted || Instant::now() >= next {
                let (now, _) = self.look();
                let rows = rows(&now, &before);
                if woken == Wake::Interrupted {
                    drop(screen);
                    self.print(&rows)?;
                    return Ok(INTERRUPTED);
                }
                view.update(rows);
                before = now;
                next = (next + self.interval).max(Instant::now());
            }
        }
    }

    /// Reads the counters of all processes; also returns errors for paths of the command line.
    fn look(&self) -> (Moment, Vec<String>) {
        let mut moment = Moment::new();
        let mut failures = Vec::new();
        let is_named = !self.paths.is_empty();
        let places = if is_named { self.paths.clone() } else { directories() };
        for place in places {
            let paths = if !is_named || place.is_dir() { source::sockets(&place) } else { vec![place] };
            for path in paths {
                let read = source::read(&path).map_err(|why| why.to_string());
                match read.and_then(|text| Counters::of(&text, Instant::now())) {
                    Ok(counters) => {
                        moment.insert(path, counters);
                    }
                    Err(why) if is_named => failures.push(format!("{}: {why}", path.display())),
                    // The process has ended.
                    Err(_) => {}
                }
            }
        }
        (moment, failures)
    }

    /// Prints in one piece, so that Ctrl-C leaves only whole tables.
    fn print(&self, rows: &[Row]) -> Result<(), String> {
        let text = if self.json {
            let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let time = (time.as_secs_f64() * 1e3).round() / 1e3;
            serde_json::to_string(&Line { time, processes: rows }).map_err(|why| why.to_string())?
        } else {
            let processes = lines(table::of(PROCESSES, rows, Style::Exact, None));
            let connections = Listed::all(rows);
            let connections = match connections.is_empty() {
                true => String::new(),
                false => format!("\n{}", lines(table::of(CONNECTIONS, &connections, Style::Exact, None))),
            };
            format!("{processes}{connections}{}", if self.once { "" } else { "\n" })
        };
        print(text.strip_suffix('\n').unwrap_or(&text))
    }
}

/// The rows of all processes, with the rates since `before`.
fn rows(now: &Moment, before: &Moment) -> Vec<Row> {
    now.iter().map(|(path, counters)| counters.row(path, before.get(path))).collect()
}

fn lines(table: Table) -> String {
    std::iter::once(table.heading).chain(table.lines).map(|line| line + "\n").collect()
}

/// Whether the terminal shows UTF-8, as the locale says.
fn has_unicode() -> bool {
    is_utf8(["LC_ALL", "LC_CTYPE", "LANG"].into_iter().map(std::env::var_os))
}

/// Whether the first of these variables that is set is a locale with UTF-8.
fn is_utf8(mut variables: impl Iterator<Item = Option<OsString>>) -> bool {
    let locale = variables.find_map(|value| value.filter(|value| !value.is_empty())).unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.ends_with("utf-8") || locale.ends_with("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_tells_whether_there_is_unicode() {
        let of = |values: &[&str]| {
            is_utf8(values.iter().map(|value| (*value != "-").then(|| OsString::from(*value))))
        };
        assert!(of(&["-", "", "C.UTF-8"]) && of(&["en_US.utf8", "C"]));
        assert!(!of(&["C", "-", "C.UTF-8"]) && !of(&["-", "-", "-"]) && !of(&[]));
    }
}
