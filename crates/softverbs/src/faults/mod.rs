// SPDX-License-Identifier: BSD-3-Clause
//! The fault lab: failures that a program seldom meets, injected by rules that the environment has.
//!
//! A rule names an event, what becomes of it, and which one of these events is meant ([`spec`]). Where such an event happens, the plan of
//! the process is asked ([`plan()`]) and says what is to fail; whoever asks does it, and says so in the log. A process without rules has no
//! plan, and what has none asks nobody.
#![forbid(unsafe_code)]

mod plan;
mod spec;

use once_cell::race::OnceBox;

use crate::{NOTICE, config};
pub(crate) use plan::{Fault, Plan};
pub(crate) use spec::{Action, Event};

/// The plan of this process, if it has one. The first call says in the log whether it has, or what is wrong with its rules.
pub(crate) fn plan() -> Option<&'static Plan> {
    static PLAN: OnceBox<Option<Plan>> = OnceBox::new();
    let text = config::get().faults.as_deref()?;
    PLAN.get_or_init(|| {
        Box::new(match spec::parse(text) {
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
    let spec = spec::parse(rules).unwrap_or_else(|wrong| panic!("{rules}: {wrong}"));
    Box::leak(Box::new(Plan::new(spec)))
}
