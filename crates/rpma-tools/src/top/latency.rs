// SPDX-License-Identifier: BSD-3-Clause
//! Percentiles of the latencies between two readings of cumulative histograms.

use serde::Serialize;

use super::traffic::rounded;

/// A cumulative histogram: the number of latencies up to each limit in seconds, in ascending order.
pub(super) type Buckets = Vec<(f64, f64)>;

/// The percentiles of a latency, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// The increase of each bucket; without earlier values, the buckets themselves. The earlier histogram may
/// have fewer limits: there are no latencies between those that it lacks.
pub(super) fn since(now: &[(f64, f64)], then: &[(f64, f64)]) -> Buckets {
    let earlier =
        |limit: f64| then.iter().take_while(|(other, _)| *other <= limit).last().map_or(0.0, |of| of.1);
    now.iter().map(|(limit, count)| (*limit, (count - earlier(*limit)).max(0.0))).collect()
}

/// Adds a histogram with the same limits, or the first one.
pub(super) fn add(to: &mut Buckets, more: Buckets) {
    if to.is_empty() {
        *to = more;
    } else {
        to.iter_mut().zip(more).for_each(|((_, sum), (_, count))| *sum += count);
    }
}

impl Latency {
    /// None if the histogram is empty.
    pub(super) fn of(buckets: &[(f64, f64)]) -> Option<Self> {
        let total = buckets.last().map(|(_, count)| *count).filter(|total| *total > 0.0)?;
        let at = |quantile: f64| {
            let rank = quantile * total;
            let index = buckets.iter().position(|(_, count)| *count >= rank).unwrap_or(buckets.len() - 1);
            let (low, below) = if index == 0 { (0.0, 0.0) } else { buckets[index - 1] };
            let (high, count) = buckets[index];
            // Above the highest limit, only that limit is known.
            let inside = if high.is_finite() && count > below {
                (high - low) * (rank - below) / (count - below)
            } else {
                0.0
            };
            rounded((low + inside) * 1e6)
        };
        Some(Self { p50: at(0.5), p99: at(0.99) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_all_limits_has_the_highest() {
        let highest = Some(Latency { p50: 1000.0, p99: 1000.0 });
        assert_eq!(Latency::of(&[(0.001, 0.0), (f64::INFINITY, 5.0)]), highest);
        assert_eq!(Latency::of(&[(0.001, 0.0), (f64::INFINITY, 0.0)]), None);
        assert_eq!(Latency::of(&[]), None);
    }

    #[test]
    fn limits_are_added_as_latencies_need_them() {
        let then = [(1e-6, 0.0), (2e-6, 3.0), (f64::INFINITY, 3.0)];
        let now = [(0.5e-6, 0.0), (1e-6, 1.0), (2e-6, 4.0), (4e-6, 6.0), (f64::INFINITY, 6.0)];
        let more = [(0.5e-6, 0.0), (1e-6, 1.0), (2e-6, 1.0), (4e-6, 3.0), (f64::INFINITY, 3.0)];
        assert_eq!(since(&now, &then), more);
        assert_eq!(since(&now, &[]), now);
    }

    #[test]
    fn histograms_of_processes_are_added() {
        let mut sum = Buckets::new();
        for _ in 0..2 {
            add(&mut sum, vec![(1e-6, 1.0), (f64::INFINITY, 2.0)]);
        }
        assert_eq!(sum, [(1e-6, 2.0), (f64::INFINITY, 4.0)]);
    }
}
