// SPDX-License-Identifier: BSD-3-Clause
//! Fault injection: rare failures, by rules in the environment.
//!
//! A rule has a kind of event, a fault, and the events at which to inject it ([`fault_rules`]). At each event
//! the plan of the process ([`plan()`]) decides whether it fails; the caller injects the fault and logs it. A
//! process without rules has no plan.
#![forbid(unsafe_code)]

mod plan;

use once_cell::race::OnceBox;

use crate::{NOTICE, config};
pub(crate) use fault_rules::{Action, Event};
pub(crate) use plan::{Fault, Plan};

/// The plan of this process, if it has one. The first call logs the rules, or the error in them.
pub(crate) fn plan() -> Option<&'static Plan> {
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
