// SPDX-License-Identifier: BSD-3-Clause
//! The end of `rpma run --fail-on-misuse`: the misuses, a summary line, and the exit status.

use clap::ValueEnum;
use rpma_metrics::findings::Totals;
use std::env;

use super::FAILED;
use super::child::End;

/// The program has succeeded, but strict mode has found misuses.
const MISUSED: u8 = 123;

/// The form in which misuses are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Annotations {
    /// As of GitHub Actions if GITHUB_ACTIONS=true, otherwise plain lines
    Auto,
    /// As commands of GitHub Actions, which shows them beside the job
    Github,
    /// Plain lines
    Off,
}

impl Annotations {
    fn are_githubs(self) -> bool {
        match self {
            Self::Auto => env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true"),
            Self::Github => true,
            Self::Off => false,
        }
    }
}

/// The lines to print, and the exit status.
pub(super) fn of(totals: &Totals, end: End, annotations: Annotations) -> (Vec<String>, u8) {
    let mut lines: Vec<String> = totals.texts.iter().map(|text| misuse(text, annotations)).collect();
    let more = totals.misuses.saturating_sub(totals.texts.len() as u64);
    if more > 0 {
        lines.push(format!("rpma run: {} not shown here", counted(more, "misuse", "misuses")));
    }
    if totals.processes == 0 {
        lines.push(
            "rpma run: no findings were collected: the program was not started with libsoftverbs.so of this release"
                .to_owned(),
        );
    } else if totals.queue_pairs == 0 {
        lines.push("rpma run: the program has created no queue pair of soft0".to_owned());
    }
    lines.push(summary(totals));
    let status = match end.status() {
        0 if totals.processes == 0 => FAILED,
        0 if totals.misuses > 0 => MISUSED,
        status => status,
    };
    (lines, status)
}

fn misuse(text: &str, annotations: Annotations) -> String {
    if annotations.are_githubs() {
        // The characters that have a meaning in such a command.
        let text = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
        format!("::error title=RDMA misuse::{text}")
    } else {
        format!("rpma run: misuse: {text}")
    }
}

fn summary(totals: &Totals) -> String {
    let misuses = counted(totals.misuses, "misuse", "misuses");
    let faults = counted(totals.faults, "fault", "faults");
    let operations = counted(totals.operations, "operation", "operations");
    format!("rpma run: {misuses}, {faults} injected, {operations}")
}

fn counted(count: u64, one: &str, many: &str) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{text} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(misuses: u64, texts: &[&str]) -> Totals {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        Totals { processes: 1, queue_pairs: 1, operations: 12_000, faults: 2, misuses, texts }
    }

    #[test]
    fn the_last_line_counts() {
        let totals = totals(3, &[]);
        assert_eq!(summary(&totals), "rpma run: 3 misuses, 2 faults injected, 12,000 operations");
        let one = Totals { operations: 1, faults: 1, misuses: 1, ..totals };
        assert_eq!(summary(&one), "rpma run: 1 misuse, 1 fault injected, 1 operation");
        assert_eq!(counted(0, "x", "y"), "0 y");
        assert_eq!(counted(1_234_567, "x", "y"), "1,234,567 y");
        assert_eq!((counted(999, "", "").as_str(), counted(1000, "", "").as_str()), ("999 ", "1,000 "));
    }

    #[test]
    fn misuses_fail_a_program_that_succeeds_and_no_other() {
        let status = |misuses, end| of(&totals(misuses, &[]), end, Annotations::Off).1;
        assert_eq!(status(0, End::Exited(0)), 0);
        assert_eq!(status(1, End::Exited(0)), MISUSED);
        assert_eq!(status(1, End::Exited(3)), 3);
        assert_eq!(status(1, End::Killed(libc::SIGTERM)), 143);
        let nothing = Totals { processes: 0, queue_pairs: 0, ..totals(0, &[]) };
        let (lines, status) = of(&nothing, End::Exited(0), Annotations::Off);
        assert!(status == FAILED && lines[0].contains("no findings were collected"), "{lines:?}");
        assert_eq!(of(&nothing, End::Exited(7), Annotations::Off).1, 7);
        let unused = Totals { queue_pairs: 0, ..totals(0, &[]) };
        let (lines, status) = of(&unused, End::Exited(0), Annotations::Off);
        assert!(status == 0 && lines[0].contains("no queue pair of soft0"), "{lines:?}");
    }

    #[test]
    fn a_misuse_is_a_line_or_an_annotation() {
        let totals = totals(40, &["a[7]: all 100% of it"]);
        let (lines, _) = of(&totals, End::Exited(0), Annotations::Off);
        assert_eq!(
            lines,
            [
                "rpma run: misuse: a[7]: all 100% of it",
                "rpma run: 39 misuses not shown here",
                "rpma run: 40 misuses, 2 faults injected, 12,000 operations"
            ]
        );
        let (lines, _) = of(&totals, End::Exited(0), Annotations::Github);
        assert_eq!(lines[0], "::error title=RDMA misuse::a[7]: all 100%25 of it");
    }
}
