// SPDX-License-Identifier: BSD-3-Clause
//! The results: the table, and the file to attach to an issue.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::host::Host;
use super::measure;
use super::plan::Pair;
use crate::output::date;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAIL",
            Self::Skipped => "skip",
        }
    }
}

/// One case of a pair.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    /// What was tried, or why it failed or was skipped.
    pub(super) text: String,
}

/// The results of a pair. One that is skipped has a single row.
pub(super) struct Tested {
    pub(super) pair: Pair,
    pub(super) rows: Vec<Row>,
    pub(super) measured: Vec<measure::Row>,
    /// What the processes of failed cases have printed.
    pub(super) log: String,
}

impl Tested {
    pub(super) fn count(&self, outcome: Outcome) -> usize {
        self.rows.iter().filter(|row| row.outcome == outcome).count()
    }

    fn name(&self) -> String {
        format!("{:<14} {:<14}", self.pair.initiator.name(), self.pair.responder.name())
    }
}

pub(super) struct Report {
    pub(super) this: Host,
    /// None if both ends are on this host.
    pub(super) other: Option<Host>,
    pub(super) began: SystemTime,
    pub(super) time: Duration,
    pub(super) short: bool,
    pub(super) tested: Vec<Tested>,
    pub(super) interrupted: bool,
    /// Addresses and names that are replaced in all texts, each with its replacement.
    pub(super) private: Vec<(String, String)>,
}

impl Report {
    pub(super) fn count(&self, outcome: Outcome) -> usize {
        self.tested.iter().map(|tested| tested.count(outcome)).sum()
    }

    /// The last line: the counts.
    pub(super) fn summary(&self) -> String {
        let of = |outcome| self.count(outcome);
        let interrupted = if self.interrupted { ", interrupted" } else { "" };
        format!(
            "{} passed, {} failed, {} skipped{interrupted}",
            of(Outcome::Passed),
            of(Outcome::Failed),
            of(Outcome::Skipped)
        )
    }

    /// The table, with the reasons of what has failed and of what was skipped, and the performance.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{:<14} {:<14} {:>6} {:>6} {:>7}\n",
            "initiator", "responder", "passed", "failed", "skipped"
        );
        for tested in &self.tested {
            let of = |outcome| tested.count(outcome);
            let (passed, failed, skipped) = (of(Outcome::Passed), of(Outcome::Failed), of(Outcome::Skipped));
            let _ = writeln!(text, "{} {passed:>6} {failed:>6} {skipped:>7}", tested.name());
        }
        text.push('\n');
        for outcome in [Outcome::Failed, Outcome::Skipped] {
            text += &self.rows(|row| row.outcome == outcome);
        }
        if self.tested.iter().any(|tested| !tested.measured.is_empty()) {
            let _ = writeln!(text, "\n{:<14} {:<14} {}", "initiator", "responder", measure::heading());
            for tested in &self.tested {
                for row in &tested.measured {
                    let _ = writeln!(text, "{} {}", tested.name(), row.line());
                }
            }
        }
        self.without_names(text)
    }

    fn rows(&self, wanted: impl Fn(&Row) -> bool) -> String {
        let mut text = String::new();
        for tested in &self.tested {
            for Row { name, outcome, text: why } in tested.rows.iter().filter(|row| wanted(row)) {
                let _ = writeln!(text, "{:<4} {} {name}  {why}", outcome.word(), tested.name());
            }
        }
        text
    }

    /// The file.
    pub(super) fn file(&self) -> String {
        let mut text = format!(
            "rpma selftest {}, report 1\n{}, {} s{}\n\n\
             It contains the results below, device, firmware, kernel and versions of both ends, the variables\n\
             RPMA_* and SOFTVERBS_*, and messages of failed cases; no names and addresses of hosts{}.\n\n",
            env!("CARGO_PKG_VERSION"),
            date(self.began),
            self.time.as_secs(),
            if self.short { ", short" } else { "" },
            if self.this.name.is_some() { " but those of --names" } else { "" },
        );
        text +=
            &format!("this host, initiator{}\n", if self.other.is_some() { "" } else { " and responder" });
        text += &self.this.lines();
        if let Some(other) = &self.other {
            text += &format!("\nthe other host, responder\n{}", other.lines());
        }
        text += &format!("\n{}\n{}\n\nall cases\n", self.table(), self.summary());
        text += &self.rows(|_| true);
        for tested in self.tested.iter().filter(|tested| !tested.log.is_empty()) {
            text += &format!("\nmessages: {}\n{}\n", tested.name().trim_end(), tested.log);
        }
        self.without_names(text)
    }

    fn without_names(&self, text: String) -> String {
        self.private.iter().fold(text, |text, (name, instead)| replaced(&text, name, instead))
    }
}

/// Replaces an address or a path where it is whole: 10.0.0.1 is no part of 10.0.0.12, nor /home/a of
/// /home/ab.
fn replaced(text: &str, name: &str, instead: &str) -> String {
    let (separator, is_part): (char, fn(char) -> bool) = match name.parse() {
        Ok(IpAddr::V4(_)) => ('.', |c| c.is_ascii_digit()),
        Ok(IpAddr::V6(_)) => (':', |c| c.is_ascii_hexdigit()),
        Err(_) => ('.', |c| c.is_alphanumeric() || "_-".contains(c)),
    };
    let goes_on = |rest: &mut dyn Iterator<Item = char>| match rest.next() {
        Some(c) if c == separator => rest.next().is_some_and(is_part),
        next => next.is_some_and(is_part),
    };
    let (mut out, mut done) = (String::new(), 0);
    for (at, _) in text.match_indices(name) {
        let end = at + name.len();
        let is_whole = !goes_on(&mut text[..at].chars().rev()) && !goes_on(&mut text[end..].chars());
        out += &text[done..at];
        out += if is_whole { instead } else { name };
        done = end;
    }
    out + &text[done..]
}

#[cfg(test)]
mod tests {
    use super::super::end::Carrier;
    use super::*;

    fn report() -> Report {
        let row =
            |name: &str, outcome, text: &str| Row { name: name.to_owned(), outcome, text: text.to_owned() };
        let ours = Carrier::Roce.ours();
        Report {
            this: Host::this("127.0.0.1".parse().unwrap(), None, false),
            other: None,
            began: SystemTime::UNIX_EPOCH,
            time: Duration::from_secs(3),
            short: false,
            tested: vec![Tested {
                pair: Pair { initiator: ours, responder: Carrier::Roce.c(), skipped: None },
                rows: vec![
                    row("write", Outcome::Passed, "10 ranges"),
                    row("read", Outcome::Failed, "10.9.8.7 does not answer"),
                    row("send", Outcome::Skipped, "why"),
                ],
                measured: Vec::new(),
                log: "a message of 10.9.8.7".to_owned(),
            }],
            interrupted: false,
            private: vec![("10.9.8.7".to_owned(), "RESPONDER".to_owned())],
        }
    }

    #[test]
    fn a_table_counts_and_gives_reasons() {
        let table = report().table();
        assert!(table.contains("\nsoft RoCE      soft RoCE, C        1      1       1\n"), "{table}");
        assert!(
            table.contains("\nFAIL soft RoCE      soft RoCE, C   read  RESPONDER does not answer\n"),
            "{table}"
        );
        assert!(table.contains("\nskip ") && !table.contains("10 ranges"), "{table}");
        assert_eq!(report().summary(), "1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_file_names_no_host() {
        let file = report().file();
        assert!(!file.contains("10.9.8.7"), "{file}");
        for wanted in ["\nok   soft", "1970-01-01T00:00:00Z, 3 s\n", "messages: soft RoCE", "  kernel   "] {
            assert!(file.contains(wanted), "{wanted}: {file}");
        }
    }

    #[test]
    fn only_whole_names_are_replaced() {
        let of = |text, name| replaced(text, name, "X");
        let text = "10.0.0.1 10.0.0.12 110.0.0.1 1.10.0.0.1 10.0.0.1.5 a:10.0.0.1:7204. 10.0.0.1.";
        let expected = "X 10.0.0.12 110.0.0.1 1.10.0.0.1 10.0.0.1.5 a:X:7204. X.";
        assert_eq!(of(text, "10.0.0.1"), expected);
        assert_eq!(
            of("[fd00::1]:7 fd00::12 fd00::1: 2:fd00::1 afd00::1", "fd00::1"),
            "[X]:7 fd00::12 X: 2:fd00::1 afd00::1"
        );
        assert_eq!(
            of("/root /root/a:/root=/rooted /root.old /a/root", "/root"),
            "X X/a:X=/rooted /root.old /a/root"
        );
    }
}
