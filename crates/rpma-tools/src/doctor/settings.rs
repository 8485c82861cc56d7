// SPDX-License-Identifier: BSD-3-Clause
//! The settings: the environment variables of the library and of soft0.

use std::env;

use super::report::Report;

/// The provider that RPMA_PROVIDER requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Auto,
    RdmaCore,
    Soft,
}

/// The environment variables of the library and of soft0.
const KNOWN: [&str; 20] = [
    "RPMA_LOG",
    "RPMA_METRICS",
    "RPMA_NATIVE",
    "RPMA_PROVIDER",
    "SOFTVERBS_CRC",
    "SOFTVERBS_FAULTS",
    "SOFTVERBS_FINDINGS",
    "SOFTVERBS_LOCAL",
    "SOFTVERBS_LOG",
    "SOFTVERBS_MAX_PENDING",
    "SOFTVERBS_MAX_PENDING_ADDRESS",
    "SOFTVERBS_MAX_PENDING_LISTENER",
    "SOFTVERBS_MTU",
    "SOFTVERBS_ONLY",
    "SOFTVERBS_PEER_TIMEOUT_MS",
    "SOFTVERBS_POLICY",
    "SOFTVERBS_REPLY_TIMEOUT_MS",
    "SOFTVERBS_SPIN_US",
    "SOFTVERBS_STRICT",
    "SOFTVERBS_TRANSPORT",
];

/// The edit distance of two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let here = (corner + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], here);
        }
    }
    row[b.len()]
}

fn nearest<'a>(word: &str, known: &[&'a str]) -> &'a str {
    known.iter().copied().min_by_key(|known| distance(word, known)).unwrap_or("")
}

/// The value of RPMA_PROVIDER; reports unknown values and variables.
pub(super) fn wanted(report: &mut Report) -> Wanted {
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if (name.starts_with("RPMA_") || name.starts_with("SOFTVERBS_")) && !KNOWN.contains(&name.as_ref()) {
            let meant = nearest(&name, &KNOWN);
            report.warn(
                "settings",
                format!("{name} is not a variable of the library; the nearest known one is {meant}"),
                format!("unset {name}"),
            );
        }
    }
    if let Some(value) = env::var_os("SOFTVERBS_STRICT") {
        let value = value.to_string_lossy();
        if let Some(meant) = not_strict(&value) {
            report.warn(
                "settings",
                format!("SOFTVERBS_STRICT is \"{value}\", which is treated as off; it must be one of off, warn, adapter"),
                format!("export SOFTVERBS_STRICT={meant}"),
            );
        }
    }
    if let Some(rules) = env::var_os("SOFTVERBS_FAULTS").filter(|rules| !rules.is_empty()) {
        let rules = rules.to_string_lossy();
        let text = match fault_rules::parse(&rules) {
            Ok(_) => format!("software RDMA injects faults: SOFTVERBS_FAULTS is \"{rules}\""),
            Err(wrong) => format!("SOFTVERBS_FAULTS is \"{rules}\", which injects nothing: {wrong}"),
        };
        report.warn("settings", text, "unset SOFTVERBS_FAULTS");
    }
    if let Some(policy) = env::var_os("SOFTVERBS_POLICY").filter(|policy| policy != "adaptive") {
        let policy = policy.to_string_lossy();
        let text = if is_policy(&policy) {
            format!(
                "software RDMA makes no predictions and is slow: SOFTVERBS_POLICY, which is for tests, is \"{policy}\""
            )
        } else {
            format!(
                "SOFTVERBS_POLICY is \"{policy}\", which is treated as adaptive; it must be one of adaptive, never, always, random:SEED"
            )
        };
        report.warn("settings", text, "unset SOFTVERBS_POLICY");
    }
    let value = env::var_os("RPMA_PROVIDER").unwrap_or_default();
    let (wanted, wrong) = parse(&value.to_string_lossy());
    if let Some(meant) = wrong {
        let value = value.to_string_lossy();
        report.fail(
            "settings",
            format!("RPMA_PROVIDER is \"{value}\"; it must be one of auto, rdma-core, soft"),
            format!("export RPMA_PROVIDER={meant}"),
        );
    }
    wanted
}

/// The mode that was probably meant, if SOFTVERBS_STRICT is invalid.
fn not_strict(value: &str) -> Option<&'static str> {
    const MODES: [&str; 3] = ["adapter", "warn", "off"];
    (!MODES.contains(&value.trim())).then(|| nearest(value, &MODES))
}

/// Whether this is a value of SOFTVERBS_POLICY.
fn is_policy(value: &str) -> bool {
    match value.trim() {
        "adaptive" | "never" | "always" => true,
        other => other.strip_prefix("random:").is_some_and(|seed| seed.parse::<u64>().is_ok()),
    }
}

/// The provider, and the value that was probably meant if `value` is invalid.
pub(super) fn parse(value: &str) -> (Wanted, Option<&'static str>) {
    match value {
        "" | "auto" => (Wanted::Auto, None),
        "rdma-core" => (Wanted::RdmaCore, None),
        "soft" => (Wanted::Soft, None),
        other => (Wanted::Auto, Some(nearest(other, &["auto", "rdma-core", "soft"]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_are_those_of_the_sources() {
        let softverbs = include_str!("../../../softverbs/src/config.rs");
        let quoted = |line: &'static str| line.trim().strip_prefix("name: \"")?.strip_suffix("\",");
        let names: Vec<&str> = softverbs.lines().filter_map(quoted).collect();
        assert!(names.len() >= 8, "{names:?}");
        let rpma = include_str!("../../../rpma-core/src/config.rs");
        let names = names.into_iter().chain(
            rpma.split("c\"")
                .filter_map(|rest| rest.split_once('"'))
                .map(|(name, _)| name)
                .filter(|name| name.starts_with("RPMA_")),
        );
        for name in names {
            assert!(KNOWN.contains(&name), "{name}");
        }
        assert!(KNOWN.is_sorted());
    }

    #[test]
    fn a_value_that_is_none_is_near_to_one() {
        assert_eq!(parse("auto"), (Wanted::Auto, None));
        assert_eq!(parse("soft"), (Wanted::Soft, None));
        assert_eq!(parse("sofd").1, Some("soft"));
        assert_eq!(parse("rdmacore").1, Some("rdma-core"));
        assert_eq!((not_strict("adapter"), not_strict(" warn "), not_strict("off")), (None, None, None));
        assert!(["adaptive", " never ", "always", "random:7"].into_iter().all(is_policy));
        assert!(!["", "random", "random:x", "Never"].into_iter().any(is_policy));
        assert_eq!((not_strict("adaptor"), not_strict("warning")), (Some("adapter"), Some("warn")));
        assert_eq!(nearest("RPMA_PROVDER", &KNOWN), "RPMA_PROVIDER");
        assert_eq!((distance("", "abc"), distance("kitten", "sitting")), (3, 3));
    }
}
