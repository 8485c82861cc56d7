// SPDX-License-Identifier: BSD-3-Clause
//! Settings of the software provider: environment variables, each of which is read only once.
//!
//! [`KNOBS`] lists every variable with its default, range and meaning. librpma_providers(7) is generated from
//! it, and docs/configuration.md has the same table.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use once_cell::race::OnceBox;

use crate::policy::mode::Mode;
use crate::sys;
use ::transport::roce::wire::PathMtu;

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
    /// The names of the values, from 0 on; empty if they are numbers.
    pub words: &'static [&'static str],
    /// The placeholder in the manual page for a value that is a text, without default and range; else empty.
    pub text: &'static str,
    /// Meaning and unit, as the manual page prints them.
    pub help: &'static str,
}

impl Knob {
    /// The default as a program would set it.
    pub fn shown_default(&self) -> String {
        if !self.text.is_empty() {
            return "none".to_owned();
        }
        let word = usize::try_from(self.default).ok().and_then(|at| self.words.get(at));
        word.map_or_else(|| self.default.to_string(), |word| (*word).to_owned())
    }
}

const CRC: Knob = Knob {
    name: "SOFTVERBS_CRC",
    default: 0,
    min: 0,
    max: 1,
    words: &[],
    text: "",
    help: "1: request MPA CRC32c on every connection; 0: use it only if the remote peer requests it",
};
const SPIN_US: Knob = Knob {
    name: "SOFTVERBS_SPIN_US",
    default: 20,
    min: 0,
    max: 1_000_000,
    words: &[],
    text: "",
    help: "microseconds for which the softverbs thread polls for more work before it sleeps, unless the program needs the processor; 0: sleep immediately",
};
const REPLY_TIMEOUT_MS: Knob = Knob {
    name: "SOFTVERBS_REPLY_TIMEOUT_MS",
    default: 10_000,
    min: 1,
    max: 3_600_000,
    words: &[],
    text: "",
    help: "milliseconds for which a connecting program waits until the remote program accepts or rejects the connection request",
};
const PEER_TIMEOUT_MS: Knob = Knob {
    name: "SOFTVERBS_PEER_TIMEOUT_MS",
    default: 20_000,
    min: 1_000,
    max: 3_600_000,
    words: &[],
    text: "",
    help: "milliseconds without a response from the remote host after which a connection is considered lost",
};

const MAX_PENDING: Knob = Knob {
    name: "SOFTVERBS_MAX_PENDING",
    default: 4096,
    min: 1,
    max: 1_000_000,
    words: &[],
    text: "",
    help: "pending connections of the process: those that the program has not fetched yet, with or without a complete request; never more than a quarter of its descriptors, or half of the remaining ones",
};
const MAX_PENDING_LISTENER: Knob = Knob {
    name: "SOFTVERBS_MAX_PENDING_LISTENER",
    default: 2048,
    min: 1,
    max: 1_000_000,
    words: &[],
    text: "",
    help: "pending connections of an endpoint; never more than half of those of the process",
};
const MAX_PENDING_ADDRESS: Knob = Knob {
    name: "SOFTVERBS_MAX_PENDING_ADDRESS",
    default: 1024,
    min: 1,
    max: 1_000_000,
    words: &[],
    text: "",
    help: "pending connections from an IPv4 address, or from an IPv6 network of 64 bits",
};

const LOCAL: Knob = Knob {
    name: "SOFTVERBS_LOCAL",
    default: 1,
    min: 0,
    max: 1,
    words: &[],
    text: "",
    help: "connections between two processes of one user on one host that may inspect each other; 1 or auto, at both ends: shared memory instead of TCP or UDP, and direct copies from process to process where the kernel permits them; ring: shared memory without direct copies; 0: TCP or UDP",
};

/// The value of [`LOCAL`] that can be set only by name.
const RING: u64 = 2;

/// The value `auto` is the last one, and no [`Transport`].
const TRANSPORT: Knob = Knob {
    name: "SOFTVERBS_TRANSPORT",
    default: 0,
    min: 0,
    max: 2,
    words: &["iwarp", "roce", "auto"],
    text: "",
    help: "iwarp: soft0 is an iWARP device, over TCP; roce: a RoCE v2 device, over UDP port 4791, whose queue pairs rdma_cm or the programs themselves connect; auto, which rpma run sets: roce, or iwarp with a warning if another user or the kernel uses that port. Both ends of a connection must use the same transport",
};

/// The words after the first one are those of `enum ibv_mtu`, in its order.
const MTU: Knob = Knob {
    name: "SOFTVERBS_MTU",
    default: 0,
    min: 0,
    max: 5,
    words: &["auto", "256", "512", "1024", "2048", "4096"],
    text: "",
    help: "with the transport roce, the active MTU that the port reports, which many programs take as the path MTU of their connections; auto: the largest that every interface of the host permits, other than loopback",
};

/// The names are those of [`Strict`], in its order.
const STRICT: Knob = Knob {
    name: "SOFTVERBS_STRICT",
    default: 0,
    min: 0,
    max: 2,
    words: &["off", "warn", "adapter"],
    text: "",
    help: "adapter: reject operations that work here and fail on an adapter; warn: log them, once per queue pair, completion queue or process; off: permit them. The section STRICT MODE of softverbs(7) lists the rules",
};

/// [`crate::faults`] parses the value.
const FAULTS: Knob = Knob {
    name: "SOFTVERBS_FAULTS",
    default: 0,
    min: 0,
    max: 0,
    words: &[],
    text: "rules",
    help: "faults to inject into the connections of the process, for tests: rejected and lost connections, failed and delayed operations. The section FAULT INJECTION of softverbs(7) describes the rules",
};

/// `rpma run --fail-on-misuse` creates the file.
const FINDINGS: Knob = Knob {
    name: "SOFTVERBS_FINDINGS",
    default: 0,
    min: 0,
    max: 0,
    words: &[],
    text: "file",
    help: "set by rpma run --fail-on-misuse: the file in which each process of the run counts its operations, faults and misuses. A process that cannot open it creates no queue pair",
};

/// The seed is a number.
const POLICY: Knob = Knob {
    name: "SOFTVERBS_POLICY",
    default: 0,
    min: 0,
    max: 0,
    words: &["adaptive", "never", "always", "random:SEED"],
    text: "",
    help: "for tests of softverbs: how its heuristics decide, which affects only performance, for example whether a request waits for the next one; adaptive: by prediction; never, always: no or yes each time; random: no or yes in a sequence that the seed determines",
};

/// All settings, in the order of the manual page.
pub const KNOBS: [Knob; 14] = [
    TRANSPORT,
    MTU,
    LOCAL,
    CRC,
    SPIN_US,
    REPLY_TIMEOUT_MS,
    PEER_TIMEOUT_MS,
    MAX_PENDING,
    MAX_PENDING_LISTENER,
    MAX_PENDING_ADDRESS,
    STRICT,
    FAULTS,
    FINDINGS,
    POLICY,
];

/// The protocol of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// iWARP over TCP.
    Iwarp,
    /// RoCE v2 over UDP.
    Roce,
}

/// The treatment of calls and requests that an adapter refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strict {
    /// They succeed.
    Off,
    /// They succeed and are logged.
    Warn,
    /// They fail as on an adapter.
    Adapter,
}

/// The values of the settings.
#[derive(Debug)]
pub(crate) struct Config {
    /// `None`: auto; see [`crate::choice`].
    pub transport: Option<Transport>,
    /// The active MTU that the port reports instead of that of the interfaces.
    pub path_mtu: Option<PathMtu>,
    /// Whether connections between processes of one host use shared memory.
    pub local: bool,
    /// Whether they also copy directly.
    pub direct_copy: bool,
    pub crc: bool,
    pub spin: Duration,
    pub reply_timeout: Duration,
    pub peer_timeout: Duration,
    pub max_pending: usize,
    pub max_pending_listener: usize,
    pub max_pending_address: usize,
    pub strict: Strict,
    /// The rules of fault injection, unparsed.
    pub faults: Option<String>,
    /// The file of the findings of a run.
    pub findings: Option<PathBuf>,
    /// How the heuristics of [`crate::policy`] decide.
    pub policy: Mode,
}

/// The values of the settings; the first call reads the environment.
pub(crate) fn get() -> &'static Config {
    static CONFIG: OnceBox<Config> = OnceBox::new();
    CONFIG.get_or_init(|| {
        let local = read(&LOCAL);
        Box::new(Config {
            transport: transport(read(&TRANSPORT)),
            path_mtu: path_mtu(read(&MTU)),
            local: local != 0,
            direct_copy: local == LOCAL.max,
            crc: read(&CRC) != 0,
            spin: Duration::from_micros(read(&SPIN_US)),
            reply_timeout: Duration::from_millis(read(&REPLY_TIMEOUT_MS)),
            peer_timeout: Duration::from_millis(read(&PEER_TIMEOUT_MS)),
            max_pending: count(&MAX_PENDING),
            max_pending_listener: count(&MAX_PENDING_LISTENER),
            max_pending_address: count(&MAX_PENDING_ADDRESS),
            strict: strict(read(&STRICT)),
            faults: variable(FAULTS.name).map(|text| text.to_string_lossy().into_owned()),
            findings: findings(),
            policy: variable(POLICY.name).map_or(Mode::Adaptive, |text| policy(&text.to_string_lossy())),
        })
    })
}

/// The value of an environment variable; `None` in a privileged process, whose settings its caller must not
/// choose (secure_getenv(3)).
pub fn variable(name: &str) -> Option<OsString> {
    if sys::is_privileged() { None } else { std::env::var_os(name) }
}

/// The file of the findings of a run; also before [`get`], which logs, is called.
pub(crate) fn findings() -> Option<PathBuf> {
    variable(FINDINGS.name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn transport(value: u64) -> Option<Transport> {
    match value {
        0 => Some(Transport::Iwarp),
        1 => Some(Transport::Roce),
        _ => None,
    }
}

fn path_mtu(value: u64) -> Option<PathMtu> {
    PathMtu::from_code(u8::try_from(value).ok()?)
}

fn strict(value: u64) -> Strict {
    match value {
        0 => Strict::Off,
        1 => Strict::Warn,
        _ => Strict::Adapter,
    }
}

fn count(knob: &Knob) -> usize {
    usize::try_from(read(knob)).unwrap_or(usize::MAX)
}

fn read(knob: &Knob) -> u64 {
    variable(knob.name).map_or(knob.default, |text| parse(knob, &text.to_string_lossy()))
}

fn parse(knob: &Knob, text: &str) -> u64 {
    if knob.name == LOCAL.name && text.trim() == "auto" {
        return knob.max;
    }
    if knob.name == LOCAL.name && text.trim() == "ring" {
        return RING;
    }
    if !knob.words.is_empty() {
        return word(knob, text);
    }
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

fn word(knob: &Knob, text: &str) -> u64 {
    match knob.words.iter().zip(0..).find(|(word, _)| **word == text.trim()) {
        Some((_, value)) => value,
        None => {
            warn_of_words(knob, text);
            knob.default
        }
    }
}

fn warn_of_words(knob: &Knob, text: &str) {
    let words = knob.words.join(", ");
    log::warn!("{}={text:?} is none of {words}; using {}", knob.name, knob.shown_default());
}

fn policy(text: &str) -> Mode {
    match text.trim() {
        "adaptive" => Mode::Adaptive,
        "never" => Mode::Never,
        "always" => Mode::Always,
        other => {
            let seed = other.strip_prefix("random:").and_then(|seed| seed.parse().ok());
            seed.map(Mode::Random).unwrap_or_else(|| {
                warn_of_words(&POLICY, text);
                Mode::Adaptive
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_in_range_is_accepted_and_anything_else_is_the_default() {
        assert_eq!(parse(&SPIN_US, " 7 "), 7);
        assert_eq!(parse(&SPIN_US, "-1"), SPIN_US.default);
        assert_eq!(parse(&SPIN_US, "9999999999"), SPIN_US.default);
        assert_eq!(parse(&CRC, "yes"), CRC.default);
        assert_eq!((parse(&LOCAL, "auto"), parse(&LOCAL, "0"), parse(&LOCAL, "ring")), (1, 0, RING));
        assert_eq!((parse(&LOCAL, "2"), parse(&CRC, "ring")), (LOCAL.default, CRC.default));
    }
    #[test]
    fn strictness_is_a_word_and_anything_else_is_off() {
        let of = |text| strict(parse(&STRICT, text));
        assert_eq!((of("adapter"), of(" warn "), of("off")), (Strict::Adapter, Strict::Warn, Strict::Off));
        // 0 and 1 were the values before there were words.
        for other in ["", "0", "1", "2", "Adapter", "on"] {
            assert_eq!(of(other), Strict::Off, "{other}");
        }
        assert_eq!((STRICT.shown_default().as_str(), CRC.shown_default().as_str()), ("off", "0"));
        assert_eq!(FAULTS.shown_default(), "none");
    }
    #[test]
    fn a_transport_is_a_word_and_anything_else_is_iwarp() {
        let of = |text| transport(parse(&TRANSPORT, text));
        assert_eq!(
            (of("roce"), of(" roce "), of("iwarp"), of("auto")),
            (Some(Transport::Roce), Some(Transport::Roce), Some(Transport::Iwarp), None)
        );
        for other in ["", "1", "RoCE", "rocev2", "tcp", "Auto"] {
            assert_eq!(of(other), Some(Transport::Iwarp), "{other}");
        }
    }
    #[test]
    fn a_path_mtu_is_a_number_of_bytes_and_anything_else_is_that_of_the_interfaces() {
        let of = |text| path_mtu(parse(&MTU, text)).map(PathMtu::bytes);
        assert_eq!((of("256"), of(" 1024 "), of("4096")), (Some(256), Some(1024), Some(4096)));
        for other in ["", "auto", "3", "1500", "8192"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
    #[test]
    fn a_policy_is_a_word_or_a_seed_and_anything_else_is_adaptive() {
        assert_eq!(policy("adaptive"), Mode::Adaptive);
        assert_eq!((policy(" never "), policy("always")), (Mode::Never, Mode::Always));
        assert_eq!((policy("random:0"), policy("random:7")), (Mode::Random(0), Mode::Random(7)));
        for other in ["", "1", "Never", "random", "random:", "random:x", "random:-1", "random:SEED"] {
            assert_eq!(policy(other), Mode::Adaptive, "{other}");
        }
        assert_eq!(POLICY.shown_default(), "adaptive");
    }
}
