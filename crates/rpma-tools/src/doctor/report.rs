// SPDX-License-Identifier: BSD-3-Clause
//! The findings, and their output.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;

/// From best to worst; the numeric value is the exit status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    #[default]
    Ok,
    Warn,
    Fail,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }

    /// The escape sequences around the word on a terminal.
    fn coloured(self) -> String {
        let colour = match self {
            Self::Ok => 32,
            Self::Warn => 33,
            Self::Fail => 31,
        };
        format!("\x1b[{colour}m{:<4}\x1b[0m", self.word())
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) status: Status,
    /// The name of the check.
    pub(super) check: String,
    pub(super) text: String,
    /// The command that fixes it: a single one, which a shell can execute as it is.
    pub(super) fix: Option<String>,
    /// Advice where no single command fixes it.
    pub(super) hint: Option<String>,
}

/// How to fix a problem.
pub(super) enum Remedy {
    Command(String),
    Hint(String),
}

impl Remedy {
    pub(super) fn hint(text: impl Into<String>) -> Self {
        Self::Hint(text.into())
    }
}

impl<T: Into<String>> From<T> for Remedy {
    fn from(command: T) -> Self {
        let command = command.into();
        let is_one =
            |command: &str| !["   ", "; ", " or ", "&&"].iter().any(|between| command.contains(between));
        debug_assert!(is_one(&command), "{command}");
        Self::Command(command)
    }
}

/// All findings, in the order of the checks.
#[derive(Default)]
pub(super) struct Report {
    pub(super) findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Whole<'a> {
    version: &'a str,
    status: Status,
    findings: &'a [Finding],
}

impl Report {
    fn add(&mut self, status: Status, check: &str, text: impl Into<String>, remedy: Option<Remedy>) {
        let (fix, hint) = match remedy {
            None => (None, None),
            Some(Remedy::Command(command)) => (Some(command), None),
            Some(Remedy::Hint(text)) => (None, Some(text)),
        };
        self.findings.push(Finding { status, check: check.to_owned(), text: text.into(), fix, hint });
    }

    pub(super) fn ok(&mut self, check: &str, text: impl Into<String>) {
        self.add(Status::Ok, check, text, None);
    }

    pub(super) fn warn(&mut self, check: &str, text: impl Into<String>, remedy: impl Into<Remedy>) {
        self.add(Status::Warn, check, text, Some(remedy.into()));
    }

    pub(super) fn fail(&mut self, check: &str, text: impl Into<String>, remedy: impl Into<Remedy>) {
        self.add(Status::Fail, check, text, Some(remedy.into()));
    }

    /// A failure where `is_needed`, otherwise a warning.
    pub(super) fn bad(
        &mut self,
        is_needed: bool,
        check: &str,
        text: impl Into<String>,
        remedy: impl Into<Remedy>,
    ) {
        let status = if is_needed { Status::Fail } else { Status::Warn };
        self.add(status, check, text, Some(remedy.into()));
    }

    fn status(&self) -> Status {
        self.findings.iter().map(|finding| finding.status).max().unwrap_or_default()
    }

    fn write(&self, out: &mut impl Write, coloured: bool) -> io::Result<()> {
        for Finding { status, check, text, fix, hint } in &self.findings {
            let word = if coloured { status.coloured() } else { format!("{:<4}", status.word()) };
            writeln!(out, "{word}  {check:<11} {text}")?;
            if let Some(fix) = fix {
                writeln!(out, "{:17} fix: {fix}", "")?;
            }
            if let Some(hint) = hint {
                writeln!(out, "{:17} hint: {hint}", "")?;
            }
        }
        Ok(())
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let whole =
            Whole { version: env!("CARGO_PKG_VERSION"), status: self.status(), findings: &self.findings };
        serde_json::to_writer_pretty(&mut *out, &whole)?;
        writeln!(out)
    }

    /// The exit status is that of the worst finding.
    pub(super) fn print(&self, json: bool) -> ExitCode {
        let mut out = io::stdout().lock();
        let coloured = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let written = if json { self.write_json(&mut out) } else { self.write(&mut out, coloured) };
        match written.and_then(|()| out.flush()) {
            Ok(()) => ExitCode::from(self.status() as u8),
            Err(why) => {
                eprintln!("rpma doctor: the report could not be written: {why}");
                ExitCode::from(Status::Fail as u8)
            }
        }
    }
}

/// The findings of a check in one text, for tests.
#[cfg(test)]
pub(super) fn text_of(check: impl FnOnce(&mut Report)) -> String {
    let mut report = Report::default();
    check(&mut report);
    let mut out = Vec::new();
    report.write(&mut out, false).unwrap();
    String::from_utf8(out).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_json_say_the_same() {
        let mut report = Report::default();
        report.ok("library", "1.4.0");
        assert_eq!(report.status(), Status::Ok);
        report.warn("memlock", "8 MiB", "ulimit -l unlimited");
        assert_eq!(report.status(), Status::Warn);
        report.fail("device", "none", Remedy::hint("buy an adapter"));
        assert_eq!(report.status(), Status::Fail);
        let mut out = Vec::new();
        report.write(&mut out, false).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ok    library     1.4.0");
        assert_eq!(lines[1], "warn  memlock     8 MiB");
        assert_eq!(lines[2].trim_start(), "fix: ulimit -l unlimited");
        assert_eq!(lines[4].trim_start(), "hint: buy an adapter");
        let mut out = Vec::new();
        report.write_json(&mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["status"], "fail");
        assert_eq!(value["findings"][1]["status"], "warn");
        assert_eq!(value["findings"][1]["check"], "memlock");
        assert_eq!(value["findings"][1]["fix"], "ulimit -l unlimited");
        assert!(value["findings"][0]["fix"].is_null() && value["findings"][0]["hint"].is_null());
        assert!(value["findings"][2]["fix"].is_null());
        assert_eq!(value["findings"][2]["hint"], "buy an adapter");
    }
}
