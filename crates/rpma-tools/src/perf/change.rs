// SPDX-License-Identifier: BSD-3-Clause
//! The change of one case since an earlier result.

use serde::Serialize;

use super::options::Case;

/// One case that both results have.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    #[serde(flatten)]
    pub(super) case: Case,
    pub(super) ops_per_second: Pair,
    pub(super) bytes_per_second: Pair,
    pub(super) p50_us: Option<Pair>,
    pub(super) p99_us: Option<Pair>,
}

/// The old and new value. `percent` is `None` if the old one is 0.
#[derive(Debug, Serialize)]
pub(super) struct Pair {
    old: f64,
    new: f64,
    percent: Option<f64>,
}

impl Pair {
    pub(super) fn new(old: f64, new: f64) -> Self {
        let percent = (old != 0.0).then(|| ((new / old - 1.0) * 1e3).round() / 10.0);
        Self { old, new, percent }
    }

    pub(super) fn text(&self, digits: usize) -> String {
        let percent = self.percent.map_or("-".to_owned(), |percent| format!("{percent:+.1}%"));
        format!(" {:>10.digits$} {:>10.digits$} {percent:>8}", self.old, self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn per_cents() {
        assert_eq!(Pair::new(200.0, 150.0).percent, Some(-25.0));
        assert_eq!(Pair::new(3.0, 4.0).percent, Some(33.3));
        assert_eq!(Pair::new(0.0, 4.0).percent, None);
        assert_eq!(Pair::new(2.0, 3.0).text(1), "        2.0        3.0   +50.0%");
    }
}
