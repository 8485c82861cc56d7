// SPDX-License-Identifier: BSD-3-Clause
//! Strict mode: rejects or reports calls and requests that software RDMA permits and an adapter refuses.
//!
//! Each rule is checked where its instrument sees its subject. This file has the common parts: the mode, and
//! for each rule and object one log line, which also counts as a misuse ([`super::findings`]).
#![forbid(unsafe_code)]

use std::fmt::Arguments;

use super::findings;
pub(super) use crate::config::Strict;
use crate::logged::Logged;

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
    /// An access that the remote region does not permit.
    Remote,
}

/// Warns once about a violation that no call can reject; on an adapter the result is undefined.
pub(super) fn remark(logged: &Logged, rule: Rule, what: Arguments<'_>, remedy: Arguments<'_>) {
    let verdict = match rule {
        Rule::Wait => "this may never return",
        _ => "this may fail on an adapter",
    };
    if logged.is_first(rule as u32) {
        count(what, remedy);
        log::warn!("SOFTVERBS_STRICT: {verdict}: {what}; {remedy}");
    }
}

/// Counts the first violation of a rule that librpma has logged.
pub(super) fn note(logged: &Logged, rule: Rule, what: Arguments<'_>, remedy: Arguments<'_>) {
    if logged.is_first(rule as u32) {
        count(what, remedy);
    }
}

fn count(what: Arguments<'_>, remedy: Arguments<'_>) {
    if let Some(findings) = findings::attached() {
        findings.misuse(format_args!("{what}; {remedy}"));
    }
}

/// Logs the first violation of a rule, with the remedy. Returns whether this was the first.
pub(super) fn report(
    logged: &Logged,
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
    let first = logged.is_first(rule as u32);
    if first {
        count(what, remedy);
        log::warn!("SOFTVERBS_STRICT: {verdict}: {what}; {remedy}");
    }
    first
}

/// The mode of this process.
pub(super) fn mode() -> Strict {
    crate::config::get().strict
}
