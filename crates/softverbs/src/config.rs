// SPDX-License-Identifier: BSD-3-Clause
//! Settings of the software provider: environment variables, read once, in one place.
//!
//! Every knob has a line in [`KNOBS`] with its default and its meaning; the provider's manual page lists the same ones.
#![forbid(unsafe_code)]

use once_cell::sync::Lazy;
use std::time::Duration;

/// One environment variable that softverbs reads.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Name of the environment variable.
    pub name: &'static str,
    /// Value in use when the variable is unset or cannot be read.
    pub default: u64,
    /// Smallest accepted value.
    pub min: u64,
    /// Largest accepted value.
    pub max: u64,
    /// What it does, with the unit.
    pub help: &'static str,
}

const CRC: Knob = Knob {
    name: "SOFTVERBS_CRC",
    default: 0,
    min: 0,
    max: 1,
    help: "1: ask for the MPA CRC32c on every connection; 0: use it only when the peer asks",
};
const SPIN_US: Knob = Knob {
    name: "SOFTVERBS_SPIN_US",
    default: 20,
    min: 0,
    max: 1_000_000,
    help: "microseconds the engine thread looks for more work before it sleeps, unless the program wants its processor; 0: sleep at once",
};
const REPLY_TIMEOUT_MS: Knob = Knob {
    name: "SOFTVERBS_REPLY_TIMEOUT_MS",
    default: 10_000,
    min: 1,
    max: 3_600_000,
    help: "milliseconds a connecting side waits for the listening program to accept or reject",
};
const PEER_TIMEOUT_MS: Knob = Knob {
    name: "SOFTVERBS_PEER_TIMEOUT_MS",
    default: 20_000,
    min: 1_000,
    max: 3_600_000,
    help: "milliseconds without an answer from the peer's host after which a connection counts as lost",
};

/// All settings, in the order the manual lists them.
pub const KNOBS: [Knob; 4] = [CRC, SPIN_US, REPLY_TIMEOUT_MS, PEER_TIMEOUT_MS];

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Config {
    pub crc: bool,
    pub spin: Duration,
    pub reply_timeout: Duration,
    pub peer_timeout: Duration,
}

/// The settings in force, read from the environment at the first call.
pub(crate) fn get() -> &'static Config {
    static CONFIG: Lazy<Config> = Lazy::new(|| Config {
        crc: read(&CRC) != 0,
        spin: Duration::from_micros(read(&SPIN_US)),
        reply_timeout: Duration::from_millis(read(&REPLY_TIMEOUT_MS)),
        peer_timeout: Duration::from_millis(read(&PEER_TIMEOUT_MS)),
    });
    &CONFIG
}

fn read(knob: &Knob) -> u64 {
    match std::env::var(knob.name) {
        Ok(text) => parse(knob, &text),
        Err(_) => knob.default,
    }
}

fn parse(knob: &Knob, text: &str) -> u64 {
    match text.trim().parse::<u64>() {
        Ok(value) if (knob.min..=knob.max).contains(&value) => value,
        _ => {
            log::warn!(
                "{}={text:?} is not a number from {} to {}; using {}",
                knob.name,
                knob.min,
                knob.max,
                knob.default
            );
            knob.default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_in_range_is_taken_and_anything_else_is_the_default() {
        assert_eq!(parse(&SPIN_US, " 7 "), 7);
        assert_eq!(parse(&SPIN_US, "-1"), SPIN_US.default);
        assert_eq!(parse(&SPIN_US, "9999999999"), SPIN_US.default);
        assert_eq!(parse(&CRC, "yes"), CRC.default);
    }
}
