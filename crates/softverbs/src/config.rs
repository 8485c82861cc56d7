// SPDX-License-Identifier: BSD-3-Clause
//! Settings of the software provider: environment variables, each of which is read only once.
//!
//! [`KNOBS`] lists every variable with its default, range and meaning. librpma_providers(7) is generated from it, and README.md has the
//! same table.
#![forbid(unsafe_code)]

use once_cell::race::OnceBox;
use std::time::Duration;

/// One environment variable that softverbs reads.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Name of the environment variable.
    pub name: &'static str,
    /// Value if the variable is unset or invalid.
    pub default: u64,
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// Meaning and unit, as the manual page prints them.
    pub help: &'static str,
}

const CRC: Knob = Knob {
    name: "SOFTVERBS_CRC",
    default: 0,
    min: 0,
    max: 1,
    help: "1: request MPA CRC32c on every connection; 0: use it only if the remote peer requests it",
};
const SPIN_US: Knob = Knob {
    name: "SOFTVERBS_SPIN_US",
    default: 20,
    min: 0,
    max: 1_000_000,
    help: "microseconds for which the softverbs thread polls for more work before it sleeps, unless the program needs the processor; 0: sleep immediately",
};
const REPLY_TIMEOUT_MS: Knob = Knob {
    name: "SOFTVERBS_REPLY_TIMEOUT_MS",
    default: 10_000,
    min: 1,
    max: 3_600_000,
    help: "milliseconds for which a connecting program waits until the remote program accepts or rejects the connection request",
};
const PEER_TIMEOUT_MS: Knob = Knob {
    name: "SOFTVERBS_PEER_TIMEOUT_MS",
    default: 20_000,
    min: 1_000,
    max: 3_600_000,
    help: "milliseconds without a response from the remote host after which a connection is considered lost",
};

const MAX_PENDING: Knob = Knob {
    name: "SOFTVERBS_MAX_PENDING",
    default: 4096,
    min: 1,
    max: 1_000_000,
    help: "incoming connections of the process that the program has not fetched yet, with or without a complete request; never more than a quarter of its descriptors, or half of those that are left",
};
const MAX_PENDING_LISTENER: Knob = Knob {
    name: "SOFTVERBS_MAX_PENDING_LISTENER",
    default: 2048,
    min: 1,
    max: 1_000_000,
    help: "such connections of an endpoint; never more than half of those of the process",
};
const MAX_PENDING_ADDRESS: Knob = Knob {
    name: "SOFTVERBS_MAX_PENDING_ADDRESS",
    default: 1024,
    min: 1,
    max: 1_000_000,
    help: "such connections from an IPv4 address, or from an IPv6 network of 64 bits",
};

/// All settings, in the order of the manual page.
pub const KNOBS: [Knob; 7] =
    [CRC, SPIN_US, REPLY_TIMEOUT_MS, PEER_TIMEOUT_MS, MAX_PENDING, MAX_PENDING_LISTENER, MAX_PENDING_ADDRESS];

/// The values of the settings.
#[derive(Debug)]
pub(crate) struct Config {
    pub crc: bool,
    pub spin: Duration,
    pub reply_timeout: Duration,
    pub peer_timeout: Duration,
    pub max_pending: usize,
    pub max_pending_listener: usize,
    pub max_pending_address: usize,
}

/// The values of the settings; the first call reads the environment.
pub(crate) fn get() -> &'static Config {
    static CONFIG: OnceBox<Config> = OnceBox::new();
    CONFIG.get_or_init(|| {
        Box::new(Config {
            crc: read(&CRC) != 0,
            spin: Duration::from_micros(read(&SPIN_US)),
            reply_timeout: Duration::from_millis(read(&REPLY_TIMEOUT_MS)),
            peer_timeout: Duration::from_millis(read(&PEER_TIMEOUT_MS)),
            max_pending: count(&MAX_PENDING),
            max_pending_listener: count(&MAX_PENDING_LISTENER),
            max_pending_address: count(&MAX_PENDING_ADDRESS),
        })
    })
}

fn count(knob: &Knob) -> usize {
    usize::try_from(read(knob)).unwrap_or(usize::MAX)
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
