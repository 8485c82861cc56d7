// SPDX-License-Identifier: BSD-3-Clause
//! The settings to measure: operations, sizes, depths and threads, and all combinations of them.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The maximum number of bytes of an operation.
pub(super) const MAX_SIZE: usize = 64 << 20;
/// The maximum number of outstanding operations on a connection.
pub(super) const MAX_DEPTH: usize = 512;
/// The maximum number of threads, each of which has a connection.
pub(super) const MAX_THREADS: usize = 64;
/// The maximum number of repeats of a case.
pub(super) const MAX_REPEATS: usize = 30;
/// The size of an atomic write.
const ATOMIC: usize = 8;

/// The operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Operation {
    /// rpma_write, until its completion
    Write,
    /// rpma_read
    Read,
    /// rpma_write and rpma_flush to visibility, until the completion of the flush
    WriteFlush,
    /// rpma_send; the server takes the messages
    Send,
    /// rpma_atomic_write of 8 bytes
    AtomicWrite,
    /// rpma_write and rpma_flush to persistence: the appliance persistency method
    Apm,
    /// rpma_write and a message, which the server answers when the data are durable: the general purpose
    /// server persistency method
    Gpspm,
}

impl Operation {
    /// Its number in private data, never 0.
    pub(super) fn code(self) -> u8 {
        self as u8 + 1
    }

    pub(super) fn of_code(code: u8) -> Option<Self> {
        Self::value_variants().iter().copied().find(|operation| operation.code() == code)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::WriteFlush => "write-flush",
            Self::Send => "send",
            Self::AtomicWrite => "atomic-write",
            Self::Apm => "apm",
            Self::Gpspm => "gpspm",
        }
    }
}

/// A combination of settings, measured as one line of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) operation: Operation,
    pub(super) size: usize,
    /// Outstanding operations on each connection.
    pub(super) depth: usize,
    /// The number of threads, each of which has a connection.
    pub(super) threads: usize,
}

/// Numbers in the given order, without duplicates: `8`, `4k`, `64,1M`, `8..1M` for all powers of two between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbers(Vec<usize>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => numbers.push(number(part)?),
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first == 0 || first > last {
                        return Err(format!("\"{part}\" is not a range"));
                    }
                    numbers.extend(
                        std::iter::successors(Some(first), |n| n.checked_mul(2)).take_while(|&n| n <= last),
                    );
                }
            }
        }
        let mut seen = Vec::new();
        numbers.retain(|n| {
            !seen.contains(n) && {
                seen.push(*n);
                true
            }
        });
        Ok(Self(numbers))
    }
}

fn number(text: &str) -> Result<usize, String> {
    let wrong = || format!("\"{text}\" is not a number such as 64, 4k or 1M");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: usize = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        _ => return Err(wrong()),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)
}

/// Parses numbers from 1 to a limit.
fn numbers(text: &str, limit: usize) -> Result<Numbers, String> {
    let numbers: Numbers = text.parse()?;
    match numbers.0.iter().find(|n| !(1..=limit).contains(*n)) {
        Some(n) => Err(format!("{n} is not between 1 and {limit}")),
        None => Ok(numbers),
    }
}

pub(super) fn sizes(text: &str) -> Result<Numbers, String> {
    numbers(text, MAX_SIZE)
}

pub(super) fn depths(text: &str) -> Result<Numbers, String> {
    numbers(text, MAX_DEPTH)
}

pub(super) fn threads(text: &str) -> Result<Numbers, String> {
    numbers(text, MAX_THREADS)
}

/// Parses the size of the server's memory.
pub(super) fn memory(text: &str) -> Result<usize, String> {
    const LIMIT: usize = 1 << 40;
    match number(text)? {
        n if (4096..=LIMIT).contains(&n) => Ok(n),
        n => Err(format!("{n} is not between 4096 and {LIMIT}")),
    }
}

/// The limit of `--fail-over`, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percent(pub(super) f64);

/// Parses `10%` or `10`.
pub(super) fn percent(text: &str) -> Result<Percent, String> {
    match text.strip_suffix('%').unwrap_or(text).parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(Percent(percent)),
        _ => Err("it must be a percentage between 0% and 100%, for example 10%".to_owned()),
    }
}

/// Parses a number of repeats.
pub(super) fn repeats(text: &str) -> Result<usize, String> {
    match number(text)? {
        n if (1..=MAX_REPEATS).contains(&n) => Ok(n),
        n => Err(format!("{n} is not between 1 and {MAX_REPEATS}")),
    }
}

/// All combinations. An atomic write has only one size.
pub(super) fn cases(
    operations: &[Operation],
    sizes: &Numbers,
    depths: &Numbers,
    threads: &Numbers,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for &operation in operations {
        let sizes = if operation == Operation::AtomicWrite { &[ATOMIC] } else { sizes.0.as_slice() };
        for &size in sizes {
            for &threads in &threads.0 {
                for &depth in &depths.0 {
                    let case = Case { operation, size, depth, threads };
                    if !cases.contains(&case) {
                        cases.push(case);
                    }
                }
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<usize> {
        sizes(text).unwrap().0
    }

    #[test]
    fn numbers_and_ranges() {
        assert_eq!(of("64"), [64]);
        assert_eq!(of("4k,1M,64"), [4096, 1 << 20, 64]);
        assert_eq!(of("8..64"), [8, 16, 32, 64]);
        assert_eq!(of("24..100,24"), [24, 48, 96]);
        assert_eq!(of("64M"), [MAX_SIZE]);
        let wrong = [
            "",
            "0",
            "x",
            "-1",
            "1.5",
            "k",
            "4kk",
            "4g",
            "8..",
            "..8",
            "9..8",
            "1,,2",
            "65M",
            "0..4",
            "99999999999999999999",
            "18014398509481985k",
        ];
        for text in wrong {
            assert!(sizes(text).is_err(), "{text}");
        }
        assert!(depths("513").is_err() && threads("65").is_err() && depths("1..512").is_ok());
        assert!(memory("4095").is_err() && memory("1M") == Ok(1 << 20));
    }

    #[test]
    fn percents_and_repeats() {
        assert_eq!((percent("10%"), percent("2.5")), (Ok(Percent(10.0)), Ok(Percent(2.5))));
        for text in ["", "%", "0", "0%", "100%", "-1%", "nan", "inf", "ten", "10 %", "10%%"] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert_eq!((repeats("1"), repeats("30")), (Ok(1), Ok(30)));
        assert!(repeats("0").is_err() && repeats("31").is_err() && repeats("x").is_err());
    }

    #[test]
    fn every_combination_once() {
        let one = depths("1").unwrap();
        let all = cases(
            &[Operation::Write, Operation::AtomicWrite, Operation::Write],
            &sizes("8,64").unwrap(),
            &depths("1,4").unwrap(),
            &one,
        );
        assert_eq!(all.len(), 4 + 2);
        assert!(all[4..].iter().all(|case| case.operation == Operation::AtomicWrite && case.size == 8));
    }

    #[test]
    fn names_are_those_of_the_command_line_and_of_json() {
        for operation in Operation::value_variants() {
            assert_eq!(operation.to_possible_value().unwrap().get_name(), operation.name());
            assert_eq!(serde_json::to_string(operation).unwrap(), format!("\"{}\"", operation.name()));
            assert_eq!(Operation::of_code(operation.code()), Some(*operation));
        }
        assert_eq!(Operation::of_code(0), None);
    }
}
