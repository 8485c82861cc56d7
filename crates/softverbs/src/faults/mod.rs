// SPDX-License-Identifier: BSD-3-Clause
//! Fault injection: rare failures, by rules in the environment or, for single connections, of the program.
//!
//! A rule has a kind of event, a fault, and the events at which to inject it ([`fault_rules`]). At each event
//! the plan of the process ([`plan()`]) decides whether it fails; the caller injects the fault and logs it. A
//! process without rules has no plan. A queue pair, and a connection attempt, that is made in
//! [`Faults::inject`] has those rules instead.
#![forbid(unsafe_code)]

mod plan;

use std::cell::Cell;

use once_cell::race::OnceBox;

use crate::{NOTICE, config};
pub(crate) use fault_rules::{Action, Event};
pub(crate) use plan::{Fault, Plan};

thread_local! {
    /// The rules of [`Faults::inject`] on this thread.
    static INJECTED: Cell<Option<&'static Plan>> = const { Cell::new(None) };
}

/// Rules for the connections of one test, in the place of those of the process.
pub struct Faults(&'static Plan);

impl Faults {
    /// The rules of a text as in `SOFTVERBS_FAULTS`, with this seed. Rules whose events belong to no queue
    /// pair of this side (`accept`, `msync`) are not valid here. The rules stay in memory until the process
    /// ends: queue pairs refer to them.
    ///
    /// # Errors
    /// The part of the text that is wrong, and what is expected there.
    pub fn new(seed: u64, rules: &str) -> Result<Self, String> {
        let spec = fault_rules::parse(rules).map_err(|wrong| wrong.to_string())?;
        let is_of_process = |rule: &&fault_rules::Rule| matches!(rule.event, Event::Accept | Event::Msync);
        if let Some(rule) = spec.rules.iter().find(is_of_process) {
            return Err(format!("{:?}: only SOFTVERBS_FAULTS can have this rule", rule.text));
        }
        Ok(Self(Box::leak(Box::new(Plan::new(fault_rules::Spec { seed, ..spec })))))
    }

    /// Calls `body`: the queue pairs and the connection attempts that it makes on this thread have these
    /// rules.
    pub fn inject<T>(&self, body: impl FnOnce() -> T) -> T {
        struct Restore(Option<&'static Plan>);
        impl Drop for Restore {
            fn drop(&mut self) {
                INJECTED.set(self.0);
            }
        }
        let _restore = Restore(INJECTED.replace(Some(self.0)));
        body()
    }
}

/// The plan that holds for what this thread makes, if there is one.
pub(crate) fn plan() -> Option<&'static Plan> {
    INJECTED.get().or_else(of_process)
}

/// The plan of this process, if it has one. The first call logs the rules, or the error in them.
fn of_process() -> Option<&'static Plan> {
    static PLAN: OnceBox<Option<Plan>> = OnceBox::new();
    let text = config::get().faults.as_deref()?;
    PLAN.get_or_init(|| {
        Box::new(match fault_rules::parse(text) {
            Ok(spec) => {
                let plan = Plan::new(spec);
                (!plan.is_empty()).then(|| {
                    log::info!(target: NOTICE, "SOFTVERBS_FAULTS: faults are injected: {text}");
                    plan
                })
            }
            Err(wrong) => {
                log::warn!("SOFTVERBS_FAULTS={text:?}: {wrong}; no fault is injected");
                None
            }
        })
    })
    .as_ref()
}

/// A plan with these rules, for tests.
#[cfg(test)]
pub(crate) fn plan_of(rules: &str) -> &'static Plan {
    let spec = fault_rules::parse(rules).unwrap_or_else(|wrong| panic!("{rules}: {wrong}"));
    Box::leak(Box::new(Plan::new(spec)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injected_rules_hold_until_the_end_of_the_body() {
        let seen = || plan().and_then(|plan| plan.event(Event::Write)).map(|fault| fault.to_string());
        let outer = Faults::new(1, "write:delay=1ms@every=1").unwrap();
        let inner = Faults::new(1, "").unwrap();
        let before = seen();
        outer.inject(|| {
            assert_eq!(seen().unwrap(), "write:delay=1ms@every=1: fault 1, at event 1");
            assert_eq!(inner.inject(seen), None);
            let panicked = std::panic::catch_unwind(|| inner.inject(|| panic!("a test")));
            assert!(panicked.is_err());
            assert_eq!(seen().unwrap(), "write:delay=1ms@every=1: fault 2, at event 2");
            assert!(std::thread::spawn(seen).join().unwrap().is_none(), "another thread has others");
        });
        assert_eq!(seen(), before);
        assert!(Faults::new(1, "write:slow@n=1").is_err_and(|text| text.contains("slow")));
        for text in ["accept:reject@n=1", "msync:EIO@n=1"] {
            assert!(Faults::new(1, text).is_err_and(|wrong| wrong.contains(text)));
        }
    }

    use fault_rules::parse;
    use rdma_sys::ibv_wc_status::*;

    #[test]
    fn the_statuses_of_rules_are_those_of_verbs() {
        for (name, number) in [
            ("LOC_LEN", IBV_WC_LOC_LEN_ERR),
            ("LOC_QP_OP", IBV_WC_LOC_QP_OP_ERR),
            ("LOC_PROT", IBV_WC_LOC_PROT_ERR),
            ("BAD_RESP", IBV_WC_BAD_RESP_ERR),
            ("REM_INV_REQ", IBV_WC_REM_INV_REQ_ERR),
            ("REM_ACCESS", IBV_WC_REM_ACCESS_ERR),
            ("REM_OP", IBV_WC_REM_OP_ERR),
            ("RETRY_EXC", IBV_WC_RETRY_EXC_ERR),
            ("RNR_RETRY_EXC", IBV_WC_RNR_RETRY_EXC_ERR),
            ("REM_ABORT", IBV_WC_REM_ABORT_ERR),
            ("FATAL", IBV_WC_FATAL_ERR),
            ("GENERAL", IBV_WC_GENERAL_ERR),
        ] {
            let spec = parse(&format!("wc:{name}@n=1")).unwrap();
            assert_eq!(spec.rules[0].action, Action::Status(number), "{name}");
        }
    }
}
