// SPDX-License-Identifier: BSD-3-Clause
//! The traffic of a process or of a connection, in both directions.
//!
//! An operation goes in the direction of its request, bytes go in the direction of the data: a read is an
//! operation out, and its bytes come in.

use serde::Serialize;
use std::collections::BTreeMap;

/// Counters by the value of their label.
pub(super) type By = BTreeMap<String, f64>;

/// The counters of a process or of a connection, by operation.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    /// Requests posted.
    pub(super) operations: By,
    pub(super) bytes: By,
    /// Messages received.
    pub(super) received: f64,
    /// One-sided operations of the peer.
    pub(super) served: By,
    pub(super) served_bytes: By,
}

/// Operations and bytes in both directions, of which [`Totals`] has the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Traffic {
    /// Requests that were posted to send queues.
    pub(super) out_ops_per_second: f64,
    /// Messages that were received, and one-sided operations of the peer.
    pub(super) in_ops_per_second: f64,
    pub(super) out_bytes_per_second: f64,
    pub(super) in_bytes_per_second: f64,
}

/// The sum; 0.0 for no values, unlike the -0.0 of std.
pub(super) fn sum<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// Rounds to three decimal places.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl Totals {
    /// The sums of both directions.
    fn sums(&self) -> [f64; 4] {
        let of = |values: &By, operations: &[&str]| sum(operations.iter().filter_map(|op| values.get(*op)));
        let all_but = |values: &By, operation: &str| {
            sum(values.iter().filter(|(op, _)| *op != operation).map(|(_, value)| value))
        };
        [
            all_but(&self.operations, "recv"),
            self.received + sum(self.served.values()),
            of(&self.bytes, &["write", "send", "atomic_write", "atomic"]) + of(&self.served_bytes, &["read"]),
            of(&self.bytes, &["read", "recv"]) + of(&self.served_bytes, &["write", "atomic"]),
        ]
    }

    /// The traffic since `before`, which was read `seconds` earlier.
    pub(super) fn since(&self, before: &Self, seconds: f64) -> Traffic {
        let (now, before) = (self.sums(), before.sums());
        let rate = |at: usize| rounded((now[at] - before[at]).max(0.0) / seconds);
        Traffic {
            out_ops_per_second: rate(0),
            in_ops_per_second: rate(1),
            out_bytes_per_second: rate(2),
            in_bytes_per_second: rate(3),
        }
    }
}

impl Traffic {
    pub(super) fn add(&mut self, other: &Self) {
        self.out_ops_per_second += other.out_ops_per_second;
        self.in_ops_per_second += other.in_ops_per_second;
        self.out_bytes_per_second += other.out_bytes_per_second;
        self.in_bytes_per_second += other.in_bytes_per_second;
    }

    pub(super) fn bytes(&self) -> f64 {
        self.out_bytes_per_second + self.in_bytes_per_second
    }
}

/// The rate of each counter since `before`.
pub(super) fn rates(now: &By, before: &By, seconds: f64) -> By {
    let rate = |(op, count): (&String, &f64)| {
        let more = (count - before.get(op).copied().unwrap_or(0.0)).max(0.0);
        (op.clone(), rounded(more / seconds))
    };
    now.iter().map(rate).collect()
}

pub(super) fn whole(counters: &By) -> BTreeMap<String, u64> {
    counters.iter().map(|(label, count)| (label.clone(), *count as u64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(values: &[(&str, f64)]) -> By {
        values.iter().map(|(op, value)| ((*op).to_owned(), *value)).collect()
    }

    #[test]
    fn bytes_go_where_the_data_go() {
        let before = Totals::default();
        let now = Totals {
            operations: by(&[("read", 2.0), ("write", 4.0), ("recv", 100.0), ("flush_visibility", 6.0)]),
            bytes: by(&[("read", 200.0), ("write", 40.0), ("recv", 6.0)]),
            received: 8.0,
            served: by(&[("read", 10.0), ("write", 20.0), ("atomic", 2.0)]),
            served_bytes: by(&[("read", 1000.0), ("write", 2000.0), ("atomic", 16.0)]),
        };
        let traffic = now.since(&before, 2.0);
        let expected = Traffic {
            out_ops_per_second: 6.0,
            in_ops_per_second: 20.0,
            out_bytes_per_second: 520.0,
            in_bytes_per_second: 1111.0,
        };
        assert_eq!((traffic, traffic.bytes()), (expected, 1631.0));
        assert_eq!(before.since(&now, 2.0), Traffic::default());
        let mut twice = traffic;
        twice.add(&traffic);
        assert_eq!(twice.in_bytes_per_second, 2222.0);
    }

    #[test]
    fn rates_and_whole_numbers() {
        let rates = rates(&by(&[("a", 3.0), ("b", 1.0)]), &by(&[("a", 1.0), ("b", 2.0)]), 2.0);
        assert_eq!(rates, by(&[("a", 1.0), ("b", 0.0)]));
        assert_eq!(whole(&by(&[("a", 3.0)]))["a"], 3);
    }
}
