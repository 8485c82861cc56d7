// SPDX-License-Identifier: BSD-3-Clause
//! Strict mode: what software RDMA permits and an adapter refuses is refused, or reported.
//!
//! Each rule stands where the thing happens that it is about; this is what they share: the mode, and one log
//! line for each place at which a rule is broken. A place is a rule and an object, so that a program that
//! repeats a violation a million times a second gets one line.
#![forbid(unsafe_code)]

use std::fmt::Arguments;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use crate::config::Strict;

/// What adapters ask of programs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// Private data of a connect request, of its acceptance, and of its rejection.
    RequestData,
    AcceptData,
    RejectData,
    /// Places of a send queue.
    SendQueue,
    /// Entries of a completion queue.
    CompletionQueue,
    /// IBV_SEND_INLINE with an operation that has no data to send.
    Inline,
    /// A message without a receive.
    Receive,
    /// Memory of a request in flight: its bytes, and its region.
    Bytes,
    Region,
    /// The end of a connection, by this side, with requests in flight that have no completion of their own.
    Disconnect,
    /// A wait for a completion that nothing can bring.
    Wait,
}

/// The rules that were broken at one object, or by calls that have none.
#[derive(Debug, Default)]
pub(crate) struct Places(AtomicU32);

impl Places {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether a rule is broken here for the first time.
    pub(crate) fn is_first(&self, rule: Rule) -> bool {
        let bit = 1 << rule as u32;
        self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Logs, the first time, what nothing can refuse: on an adapter it goes well or not.
    pub(crate) fn remark(&self, rule: Rule, what: Arguments<'_>, remedy: Arguments<'_>) {
        let verdict = match rule {
            Rule::Wait => "this may never return",
            _ => "this may fail on an adapter",
        };
        if self.is_first(rule) {
            log::warn!("SOFTVERBS_STRICT: {verdict}: {what}; {remedy}");
        }
    }

    /// Logs, the first time, what was done and what it takes to do it right. Whether this was the first time.
    pub(crate) fn report(
        &self,
        mode: Strict,
        rule: Rule,
        what: Arguments<'_>,
        remedy: Arguments<'_>,
    ) -> bool {
        let verdict = match mode {
            Strict::Off => return false,
            Strict::Warn => "an adapter would refuse this",
            Strict::Adapter => "refused, as by an adapter",
        };
        let first = self.is_first(rule);
        if first {
            log::warn!("SOFTVERBS_STRICT: {verdict}: {what}; {remedy}");
        }
        first
    }
}

/// The mode of this process.
pub(crate) fn mode() -> Strict {
    crate::config::get().strict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_reported_once_a_place() {
        let (here, there) = (Places::new(), Places::new());
        assert!(here.is_first(Rule::RequestData) && !here.is_first(Rule::RequestData));
        assert!(here.is_first(Rule::AcceptData) && there.is_first(Rule::RequestData));
        assert!(!here.is_first(Rule::AcceptData) && !here.is_first(Rule::RequestData));
    }
}
