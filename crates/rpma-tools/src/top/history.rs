// SPDX-License-Identifier: BSD-3-Clause
//! The bytes per second of the last intervals, as a sparkline.

use std::collections::VecDeque;

/// The maximum number of intervals that are kept.
const MOST: usize = 500;
/// From the lowest to the highest value.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const PLAIN_BARS: [char; 8] = ['_', '.', '-', ':', '=', '+', '*', '#'];

/// The last values.
#[derive(Default)]
pub(super) struct History(VecDeque<f64>);

impl History {
    pub(super) fn add(&mut self, value: f64) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// The highest value of the last `width`.
    pub(super) fn highest(&self, width: usize) -> f64 {
        self.last(width).fold(0.0, f64::max)
    }

    fn last(&self, width: usize) -> impl Iterator<Item = f64> {
        self.0.iter().copied().skip(self.0.len().saturating_sub(width))
    }

    /// The last `width` values in proportion to the highest of them; the latest one is on the right.
    pub(super) fn line(&self, width: usize, has_unicode: bool) -> String {
        let bars = if has_unicode { BARS } else { PLAIN_BARS };
        let highest = self.highest(width);
        let bar = |value: f64| {
            let height = if highest > 0.0 { value / highest * (bars.len() - 1) as f64 } else { 0.0 };
            bars[(height.round() as usize).min(bars.len() - 1)]
        };
        self.last(width).map(bar).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_values_in_proportion() {
        let mut history = History::default();
        assert_eq!((history.line(5, true), history.highest(5)), (String::new(), 0.0));
        history.add(0.0);
        assert_eq!(history.line(5, true), "▁");
        for value in [100.0, 0.0, 1.0, 3.5, 7.0] {
            history.add(value);
        }
        assert_eq!((history.line(4, true), history.highest(4)), ("▁▂▅█".to_owned(), 7.0));
        assert_eq!(history.line(4, false), "_.=#");
        assert_eq!(history.line(6, true), "▁█▁▁▁▁");
        (0..2 * MOST).for_each(|_| history.add(1.0));
        assert_eq!(history.line(usize::MAX, true).chars().count(), MOST);
    }
}
