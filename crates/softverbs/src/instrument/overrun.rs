// SPDX-License-Identifier: BSD-3-Clause
//! Completions that find no room, in strict mode.
//!
//! Software RDMA keeps such a completion until the program has polled. On an adapter the completion queue is
//! in error then, and so are its queue pairs.

use super::strict::{self, Rule, Strict};
use crate::cq::Cq;

/// How an overrun of a completion queue is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overrun {
    /// The connection keeps the completion until there is room.
    Permitted,
    /// The queue is in error, and the connection ends.
    First,
    /// The queue was in error already, and this connection ends, too.
    Another,
}

/// A completion of this queue pair found the queue full: reports it.
pub(super) fn check(cq: &Cq, num: u32, mode: Strict) -> Overrun {
    if mode == Strict::Off || cq.ignores_overruns() {
        return Overrun::Permitted;
    }
    let entries = cq.entries();
    let first = strict::report(
        cq.logged(),
        mode,
        Rule::CompletionQueue,
        format_args!(
            "queue pair {num}: a completion found all {entries} entries of its completion queue taken"
        ),
        format_args!(
            "create the queue with as many entries as requests and receives are outstanding (ibv_create_cq, \
             rpma_conn_cfg_set_cq_size, rpma_conn_cfg_set_rcq_size), or take completions earlier (ibv_poll_cq, rpma_cq_get_wc)"
        ),
    );
    match mode {
        Strict::Adapter if first => Overrun::First,
        Strict::Adapter => Overrun::Another,
        _ => Overrun::Permitted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overrun_is_an_error_on_an_adapter() {
        let is_reported = |cq: &Cq| !cq.logged().is_first(Rule::CompletionQueue as u32);
        let cq = Cq::new(2, None).unwrap();
        assert_eq!(check(&cq, 1, Strict::Off), Overrun::Permitted);
        assert!(!is_reported(&cq));
        let cq = Cq::new(2, None).unwrap();
        assert_eq!(check(&cq, 1, Strict::Warn), Overrun::Permitted);
        assert!(is_reported(&cq));
        let cq = Cq::new(2, None).unwrap();
        assert_eq!(check(&cq, 1, Strict::Adapter), Overrun::First);
        assert_eq!(check(&cq, 2, Strict::Adapter), Overrun::Another);
        let cq = Cq::new(2, None).unwrap();
        cq.ignore_overruns();
        assert_eq!(check(&cq, 1, Strict::Adapter), Overrun::Permitted);
    }
}
