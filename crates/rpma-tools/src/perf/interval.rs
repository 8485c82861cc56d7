// SPDX-License-Identifier: BSD-3-Clause
//! The interval of a change between two sets of repeated measurements (Hodges and Lehmann).
//!
//! The estimate of the change is the median of all ratios of a new and an old value; the interval takes as
//! many of the sorted ratios as the distribution of the rank sum (Mann and Whitney) requires. It assumes no
//! distribution of the values; of ten repeats, two during which the host was busy do not widen it.

/// The confidence that an interval has at least.
pub(super) const CONFIDENCE: f64 = 0.95;

/// A change as a ratio: 1.1 is 10 % more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) estimate: f64,
    /// `None`: too few values for the confidence.
    pub(super) interval: Option<(f64, f64)>,
}

/// The change from the old values to the new ones; `None` without values, or if one of them is not positive.
pub(super) fn change(old: &[f64], new: &[f64]) -> Option<Change> {
    if old.is_empty() || new.is_empty() || !old.iter().chain(new).all(|value| *value > 0.0) {
        return None;
    }
    let mut ratios: Vec<f64> = old.iter().flat_map(|old| new.iter().map(move |new| new / old)).collect();
    ratios.sort_by(f64::total_cmp);
    let interval =
        outside(old.len(), new.len()).map(|outside| (ratios[outside], ratios[ratios.len() - 1 - outside]));
    Some(Change { estimate: median_of_sorted(&ratios), interval })
}

/// Whether this many old and new values have an interval.
pub(super) fn has_interval(old: usize, new: usize) -> bool {
    outside(old, new).is_some()
}

/// The number of ratios below the interval, and above it.
fn outside(old: usize, new: usize) -> Option<usize> {
    // ways[new][sum]: in how many orders of the old and `new` new values `sum` pairs have the new value above
    // the old one. The largest value is an old one or a new one (the recurrence of Mann and Whitney).
    let pairs = old * new;
    let mut ways = vec![vec![0.0; pairs + 1]; new + 1];
    ways.iter_mut().for_each(|ways| ways[0] = 1.0);
    for _ in 0..old {
        for count in 1..=new {
            for sum in (0..=pairs).rev() {
                let is_old = if sum >= count { ways[count][sum - count] } else { 0.0 };
                ways[count][sum] = is_old + ways[count - 1][sum];
            }
        }
    }
    let all: f64 = ways[new].iter().sum();
    let mut tail = 0.0;
    let outside = ways[new].iter().take_while(|ways| {
        tail += **ways;
        tail / all <= (1.0 - CONFIDENCE) / 2.0
    });
    outside.count().checked_sub(1)
}

/// The median; 0 without values.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    median_of_sorted(&values)
}

fn median_of_sorted(values: &[f64]) -> f64 {
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_the_lengths_of_published_tables() {
        // The critical values of the two-sided test at 0.05 (Mann and Whitney); the interval leaves out as
        // many.
        for (old, new, critical) in [
            (4, 4, Some(0)),
            (5, 3, Some(0)),
            (3, 5, Some(0)),
            (5, 5, Some(2)),
            (6, 6, Some(5)),
            (5, 10, Some(8)),
            (10, 10, Some(23)),
            (20, 20, Some(127)),
            (3, 3, None),
            (1, 30, None),
            (2, 7, None),
        ] {
            assert_eq!(outside(old, new), critical, "{old} {new}");
        }
        assert!(has_interval(4, 4) && !has_interval(1, 1));
    }

    #[test]
    fn a_change_and_its_interval() {
        let old = [100.0, 101.0, 99.0, 100.0, 100.0];
        let twice: Vec<f64> = old.iter().map(|value| value * 2.0).collect();
        let found = change(&old, &twice).unwrap();
        let (low, high) = found.interval.unwrap();
        assert!(found.estimate == 2.0 && low > 1.97 && high < 2.03, "{found:?}");
        let same = change(&old, &old).unwrap().interval.unwrap();
        assert!(same.0 < 1.0 && same.1 > 1.0, "{same:?}");
        // One repeat of five on a busy host: no change is found. Two of ten: the interval is as narrow as
        // before.
        let (low, high) = change(&old, &[100.0, 101.0, 20.0, 100.0, 100.0]).unwrap().interval.unwrap();
        assert!(low <= 1.0 && (1.0..1.03).contains(&high), "{low} {high}");
        let old = [old, old].concat();
        let disturbed = [old[..8].to_vec(), vec![20.0, 20.0]].concat();
        let (low, high) = change(&old, &disturbed).unwrap().interval.unwrap();
        assert!(low > 0.98 && low <= 1.0 && (1.0..1.03).contains(&high), "{low} {high}");
        assert_eq!(change(&[1.0], &[3.0]), Some(Change { estimate: 3.0, interval: None }));
        for (old, new) in [(&[][..], &[1.0][..]), (&[1.0], &[]), (&[0.0], &[1.0]), (&[1.0], &[0.0])] {
            assert_eq!(change(old, new), None);
        }
    }

    #[test]
    fn equal_values_are_seldom_a_change() {
        // Values from the same distribution, with a seed: the interval holds 1 in at least 95 % of the
        // trials.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1.0 + (state >> 40) as f64 / f64::from(1 << 24)
        };
        let trials = 2000;
        let holds = (0..trials).filter(|_| {
            let (old, new): (Vec<f64>, Vec<f64>) = (0..5).map(|_| (random(), random())).unzip();
            let (low, high) = change(&old, &new).unwrap().interval.unwrap();
            low <= 1.0 && high >= 1.0
        });
        let share = holds.count() as f64 / f64::from(trials);
        assert!((0.95..1.0).contains(&share), "{share}");
    }

    #[test]
    fn medians() {
        assert_eq!([median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0]), median(&[])], [2.0, 2.5, 0.0]);
    }
}
