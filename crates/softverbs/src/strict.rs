// SPDX-License-Identifier: BSD-3-Clause
//! Strict mode: rejects or reports calls and requests that software RDMA permits and an adapter refuses.
//!
//! Each rule is checked in the code that it concerns. This file has the common parts: the mode, and one log
//! line for each rule and object, so that a program that repeats a violation a million times a second gets
//! one line.
#![forbid(unsafe_code)]

use std::fmt::Arguments;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use crate::config::Strict;

/// The requirements of adapters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// The length of private data in a connection request, an acceptance and a rejection.
    RequestData,
    AcceptData,
    RejectData,
    /// The number of entries of a send queue.
    SendQueue,
    /// The number of entries of a completion queue.
    CompletionQueue,
    /// IBV_SEND_INLINE with an operation that has no data to send.
    Inline,
    /// A message without a receive.
    Receive,
    /// Memory of a request in flight: the bytes must not change, the region must stay registered.
    Bytes,
    Region,
    /// This side closes a connection with unsignalled requests in flight.
    Disconnect,
    /// A wait for a completion that cannot come.
    Wait,
}

/// The rules already broken at one object, or by calls without an object.
#[derive(Debug, Default)]
pub(crate) struct Places(AtomicU32);

impl Places {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether this is the first violation of the rule here.
    pub(crate) fn is_first(&self, rule: Rule) -> bool {
        let bit = 1 << rule as u32;
        self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Warns once about a violation that no call can reject; on an adapter the result is undefined.
    pub(crate) fn remark(&self, rule: Rule, what: Arguments<'_>, remedy: Arguments<'_>) {
        let verdict = match rule {
            Rule::Wait => "this may never return",
            _ => "this may fail on an adapter",
        };
        if self.is_first(rule) {
            log::warn!("SOFTVERBS_STRICT: {verdict}: {what}; {remedy}");
        }
    }

    /// Logs the first violation of a rule here, with the remedy. Returns whether this was the first.
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
