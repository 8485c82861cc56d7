// SPDX-License-Identifier: BSD-3-Clause
//! The changes of cases since an earlier result.

use serde::{Serialize, Serializer};

use super::interval;
use super::options::{Case, Percent};

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

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Higher,
    Lower,
}

/// Whether the value has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Better,
    Worse,
    /// The interval includes 0 %.
    NoChange,
}

/// A change compared with the limit of `--fail-over`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Passed,
    /// The interval has values on both sides of the limit, or there is none.
    Undecided,
    /// All of the interval is worse than the limit.
    Failed,
}

/// The old and new value, each the median of the repeats.
#[derive(Debug, Serialize)]
pub(super) struct Pair {
    old: f64,
    new: f64,
    /// The change; `None` if a value is 0.
    percent: Option<f64>,
    /// The interval of the change; `None` with too few repeats.
    #[serde(rename = "interval_percent", serialize_with = "percents")]
    interval: Option<(f64, f64)>,
    pub(super) verdict: Option<Verdict>,
    #[serde(skip)]
    better: Better,
}

/// The changes of the cases that both results have.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) changes: Vec<Change>,
    /// With `--fail-over`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fail_over: Option<Outcome>,
}

/// How many cases are worse than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Outcome {
    pub(super) limit_percent: f64,
    pub(super) failed: usize,
    pub(super) undecided: usize,
}

impl Comparison {
    /// Whether a case is worse than the limit.
    pub(super) fn has_failed(&self) -> bool {
        self.fail_over.is_some_and(|outcome| outcome.failed > 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Change {
    /// The rate and the median decide. The 99th percentile does not: on a shared host it is the time that a
    /// thread waits for a processor.
    pub(super) fn gate(&self, limit: Percent) -> Gate {
        let gates =
            [Some(&self.ops_per_second), self.p50_us.as_ref()].map(|pair| pair.map(|pair| pair.gate(limit)));
        [Gate::Failed, Gate::Undecided]
            .into_iter()
            .find(|gate| gates.contains(&Some(*gate)))
            .unwrap_or(Gate::Passed)
    }
}

/// A ratio in percent of change, with one decimal place.
fn percent(ratio: f64) -> f64 {
    ((ratio - 1.0) * 1e3).round() / 10.0
}

fn percents<S: Serializer>(interval: &Option<(f64, f64)>, to: S) -> Result<S::Ok, S::Error> {
    interval.map(|(low, high)| (percent(low), percent(high))).serialize(to)
}

/// A change as text: a factor where percents have too many digits.
fn text(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 10.0 => format!("{:+.1}%", percent(ratio)),
        ratio if ratio < 1e6 => format!("x{ratio:.0}"),
        ratio => format!("x{ratio:.0e}"),
    }
}

impl Pair {
    pub(super) fn new(old: &[f64], new: &[f64], better: Better) -> Self {
        let change = interval::change(old, new);
        let interval = change.and_then(|change| change.interval);
        let verdict = interval.map(|(low, high)| match better {
            _ if low <= 1.0 && high >= 1.0 => Verdict::NoChange,
            Better::Higher if low > 1.0 => Verdict::Better,
            Better::Lower if high < 1.0 => Verdict::Better,
            _ => Verdict::Worse,
        });
        let percent = change.map(|change| percent(change.estimate));
        Self { old: interval::median(old), new: interval::median(new), percent, interval, verdict, better }
    }

    pub(super) fn gate(&self, limit: Percent) -> Gate {
        let Some((low, high)) = self.interval else { return Gate::Undecided };
        let is_worse = |ratio: f64| match self.better {
            Better::Higher => ratio < 1.0 - limit.0 / 100.0,
            Better::Lower => ratio > 1.0 + limit.0 / 100.0,
        };
        match (is_worse(low), is_worse(high)) {
            (true, true) => Gate::Failed,
            (false, false) => Gate::Passed,
            _ => Gate::Undecided,
        }
    }

    /// The columns of the table.
    pub(super) fn text(&self, digits: usize) -> String {
        let ratio = |percent: f64| percent / 100.0 + 1.0;
        let change = self.percent.map_or("-".to_owned(), |percent| text(ratio(percent)));
        let interval =
            self.interval.map_or("-".to_owned(), |(low, high)| format!("{} to {}", text(low), text(high)));
        let verdict = match self.verdict {
            None => "-",
            Some(Verdict::NoChange) => "no change",
            Some(Verdict::Better) => "better",
            Some(Verdict::Worse) => "worse",
        };
        format!("{:>11.digits$} {:>11.digits$} {change:>8} {interval:>18}  {verdict:<9}", self.old, self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(value: f64) -> [f64; 5] {
        [0.99, 1.0, 1.01, 1.0, 1.0].map(|factor| factor * value)
    }

    #[test]
    fn one_value_each_has_a_change_and_no_interval() {
        let pair = |old, new| Pair::new(&[old], &[new], Better::Higher);
        assert_eq!(pair(200.0, 150.0).percent, Some(-25.0));
        assert_eq!(pair(3.0, 4.0).percent, Some(33.3));
        assert_eq!(pair(0.0, 4.0).percent, None);
        assert_eq!((pair(2.0, 3.0).verdict, pair(2.0, 3.0).gate(Percent(10.0))), (None, Gate::Undecided));
        let text = "        2.0         3.0   +50.0%                  -  -        ";
        assert_eq!(pair(2.0, 3.0).text(1), text);
        assert!(pair(1.0, 98_074.0).text(0).contains(" x98074 "));
        assert!(pair(1.0, 3e12).text(0).contains(" x3e12 "));
    }

    #[test]
    fn verdicts_depend_on_which_values_are_better() {
        let pair = |factor: f64, better| Pair::new(&around(1000.0), &around(1000.0 * factor), better);
        for (factor, higher, lower) in [
            (1.0, Verdict::NoChange, Verdict::NoChange),
            (1.5, Verdict::Better, Verdict::Worse),
            (0.5, Verdict::Worse, Verdict::Better),
        ] {
            assert_eq!(pair(factor, Better::Higher).verdict, Some(higher), "{factor}");
            assert_eq!(pair(factor, Better::Lower).verdict, Some(lower), "{factor}");
        }
        let gate = |factor, better| pair(factor, better).gate(Percent(10.0));
        for (factor, higher, lower) in [
            (1.5, Gate::Passed, Gate::Failed),
            (0.5, Gate::Failed, Gate::Passed),
            (0.95, Gate::Passed, Gate::Passed),
            (0.9, Gate::Undecided, Gate::Passed),
            (1.1, Gate::Passed, Gate::Undecided),
        ] {
            assert_eq!(
                (gate(factor, Better::Higher), gate(factor, Better::Lower)),
                (higher, lower),
                "{factor}"
            );
        }
    }

    #[test]
    fn the_interval_is_in_percent() {
        let pair = Pair::new(&around(1.0), &around(2.0), Better::Lower);
        let json = serde_json::to_value(&pair).unwrap();
        assert_eq!(json["verdict"], "worse");
        assert_eq!(json["interval_percent"], serde_json::json!([98.0, 102.0]));
        assert!(pair.text(1).ends_with(" +98.0% to +102.0%  worse    "), "{}", pair.text(1));
    }
}
