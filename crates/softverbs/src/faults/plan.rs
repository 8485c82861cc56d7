// SPDX-License-Identifier: BSD-3-Clause
//! Decides which events fail. The decision depends only on the rules, the seed and the number of earlier
//! events of the kind, so a program that repeats its actions gets the same faults.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use fault_rules::{Action, Event, Rule, Spec, Trigger};

/// The rules of a process and their counters.
pub(crate) struct Plan {
    seed: u64,
    rules: Box<[Counted]>,
}

struct Counted {
    rule: Rule,
    events: AtomicU64,
    faults: AtomicU64,
}

/// A fault to inject.
#[derive(Clone, Copy)]
pub(crate) struct Fault<'a> {
    rule: &'a Rule,
    /// The number of faults of this rule, including this one, and the number of the event.
    number: u64,
    event: u64,
}

impl Plan {
    pub(crate) fn new(spec: Spec) -> Self {
        let counted = |rule| Counted { rule, events: AtomicU64::new(0), faults: AtomicU64::new(0) };
        Self { seed: spec.seed, rules: spec.rules.into_iter().map(counted).collect() }
    }

    /// Whether there are no rules.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Counts an event of this kind and returns the fault to inject, if any. If several rules apply, the
    /// first one wins; all of them count the event.
    pub(crate) fn event(&self, event: Event) -> Option<Fault<'_>> {
        let mut fault = None;
        for (Counted { rule, events, faults }, index) in self.rules.iter().zip(0..) {
            if rule.event != event {
                continue;
            }
            let count = events.fetch_add(1, Ordering::Relaxed) + 1;
            if fault.is_none() && fires(rule.trigger, self.seed, index, count) {
                let number = faults.fetch_add(1, Ordering::Relaxed) + 1;
                fault = Some(Fault { rule, number, event: count });
            }
        }
        fault
    }
}

impl Fault<'_> {
    pub(crate) fn action(&self) -> Action {
        self.rule.action
    }

    /// Logs and counts the fault, and the operation into which it is injected.
    pub(crate) fn log(&self, what: fmt::Arguments<'_>) {
        if let Some(findings) = rpma_metrics::findings::attached() {
            findings.fault();
        }
        log::warn!("SOFTVERBS_FAULTS: {self}: {what}");
    }
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: fault {}, at event {}", self.rule.text, self.number, self.event)
    }
}

/// Whether the rule with this index fires at its `count`-th event.
fn fires(trigger: Trigger, seed: u64, index: u64, count: u64) -> bool {
    match trigger {
        Trigger::Chance(p) => chance(seed, index, count) < p,
        Trigger::At(n) => count == n,
        Trigger::Every(n) => count % n == 0,
    }
}

/// A pseudorandom number in [0, 1), independent for each seed, rule and count.
fn chance(seed: u64, index: u64, count: u64) -> f64 {
    let bits = scrambled(seed ^ scrambled(index ^ scrambled(count)));
    // As many bits as a double has.
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The mixing step of SplitMix64, a bijection.
fn scrambled(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fault_rules::parse;

    fn plan(text: &str) -> Plan {
        Plan::new(parse(text).unwrap())
    }

    /// The faults of `count` events of a kind.
    fn faults(plan: &Plan, event: Event, count: u64) -> Vec<String> {
        (0..count).filter_map(|_| plan.event(event)).map(|fault| fault.to_string()).collect()
    }

    fn events(plan: &Plan, event: Event, count: u64) -> Vec<u64> {
        (0..count).filter_map(|_| plan.event(event)).map(|fault| fault.event).collect()
    }

    #[test]
    fn a_count_is_met_once_and_every_count_again_and_again() {
        let plan = plan("peer:kill@op=3; wc:FATAL@n=2; msync:EIO@every=4");
        assert_eq!(faults(&plan, Event::Peer, 100), ["peer:kill@op=3: fault 1, at event 3"]);
        assert_eq!(events(&plan, Event::Wc, 100), [2]);
        assert_eq!(events(&plan, Event::Msync, 13), [4, 8, 12]);
        assert_eq!(faults(&plan, Event::Msync, 3), ["msync:EIO@every=4: fault 4, at event 16"]);
        assert!(faults(&plan, Event::Connect, 100).is_empty());
    }

    #[test]
    fn the_same_seed_meets_the_same_events_whatever_happens_between_them() {
        let text = "seed=7; write:delay=1ms@p=0.1; connect:reject@p=0.3; write:delay=2ms@p=0.1";
        let (a, b) = (plan(text), plan(text));
        let mut of_b = Vec::new();
        for i in 0..1000 {
            // Events of other kinds are counted separately.
            for _ in 0..i % 3 {
                b.event(Event::Connect);
                b.event(Event::Read);
            }
            of_b.extend(b.event(Event::Write).map(|fault| fault.to_string()));
        }
        let of_a = faults(&a, Event::Write, 1000);
        assert_eq!(of_a, of_b);
        let other = plan(&text.replace("seed=7", "seed=8"));
        assert_ne!(of_a, faults(&other, Event::Write, 1000));
        // Two rules with the same probability fire independently.
        let of_rule = |delay: &str| of_a.iter().filter(|line| line.contains(delay)).count();
        assert!(of_rule("delay=1ms") > 50 && of_rule("delay=2ms") > 50, "{of_a:?}");
    }

    #[test]
    fn a_probability_is_one() {
        for (p, least, most) in
            [("0", 0, 0), ("0.001", 50, 200), ("0.5", 49_000, 51_000), ("1", 100_000, 100_000)]
        {
            for seed in [0, 1, u64::MAX] {
                let count =
                    events(&plan(&format!("seed={seed};send:delay=1us@p={p}")), Event::Send, 100_000).len();
                assert!((least..=most).contains(&count), "{count} of 100000 with p={p}, seed={seed}");
            }
        }
    }

    #[test]
    fn the_first_of_two_rules_wins_and_both_count() {
        let plan = plan("read:delay=1ms@n=2; read:delay=2ms@every=2");
        let all = faults(&plan, Event::Read, 4);
        assert_eq!(
            all,
            ["read:delay=1ms@n=2: fault 1, at event 2", "read:delay=2ms@every=2: fault 1, at event 4"]
        );
    }
}
