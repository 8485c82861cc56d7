// SPDX-License-Identifier: BSD-3-Clause
//! What `benches/run` writes, as far as it is drawn.

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Table {
    pub time: String,
    pub kernel: String,
    pub cpu: Option<String>,
    pub cpus: u32,
    pub rows: Vec<Row>,
}

#[derive(Deserialize)]
pub(crate) struct Row {
    pub name: String,
    pub unit: String,
    pub failed: bool,
    /// The share of the CPUs that others used meanwhile, of the repetition that had most of it.
    pub others: f64,
    /// Nothing of a row that has failed.
    pub median: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub ratio: Option<Spread>,
    pub target: Option<Target>,
    pub held: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub(crate) struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

#[derive(Deserialize)]
pub(crate) struct Target {
    pub op: String,
    pub bound: f64,
}

/// From which share on `benches/run` marks a row.
const DISTURBED: f64 = 0.10;

/// Where a row is on the scale.
#[derive(Debug, PartialEq)]
pub(crate) struct Place {
    pub at: Spread,
    /// And whether it is the most that is permitted.
    pub target: Option<(f64, bool)>,
    /// What is said of it beside the drawing.
    pub text: String,
}

impl Row {
    /// The ratio to the reference; of a row without one, the value as a share of its target, if it has one.
    pub(crate) fn place(&self) -> Option<Place> {
        let most = |target: &Target| target.op == "<=";
        let sign = |target: &Target| if most(target) { "\u{2264}" } else { "\u{2265}" };
        let mark = if self.others > DISTURBED { "*" } else { "" };
        let target = self.target.as_ref();
        if let Some(ratio) = self.ratio {
            let wanted = target.map(|t| format!(" ({} {})", sign(t), t.bound)).unwrap_or_default();
            return Some(Place {
                at: ratio,
                target: target.map(|t| (t.bound, most(t))),
                text: format!("{:.2}{wanted}{mark}", ratio.median),
            });
        }
        let (median, min, max) = (self.median?, self.min?, self.max?);
        let target = target.filter(|target| target.bound > 0.0)?;
        let share = |value: f64| value / target.bound;
        Some(Place {
            at: Spread { median: share(median), min: share(min), max: share(max) },
            target: Some((1.0, most(target))),
            text: format!("{} {} ({} {}){mark}", short(median), self.unit, sign(target), target.bound),
        })
    }
}

/// With three digits that say something.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        v if v >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(json: &str) -> Row {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_row_with_a_reference_is_at_its_ratio() {
        let row = row(
            r#"{"name": "a", "unit": "us", "failed": false, "others": 0.11, "median": 3, "min": 2, "max": 5,
            "reference": {"median": 2}, "ratio": {"median": 1.5, "min": 1, "max": 2.5},
            "target": {"op": "<=", "of": "ratio", "bound": 1.2}, "held": false}"#,
        );
        let place = row.place().unwrap();
        assert_eq!(place.at, Spread { median: 1.5, min: 1.0, max: 2.5 });
        assert_eq!((place.target, place.text.as_str()), (Some((1.2, true)), "1.50 (\u{2264} 1.2)*"));
    }

    #[test]
    fn one_without_is_at_its_share_of_the_target() {
        let row = row(
            r#"{"name": "a", "unit": "KiB", "failed": false, "others": 0.1, "median": 32, "min": 16, "max": 64,
            "target": {"op": "<=", "of": "value", "bound": 64}, "held": true}"#,
        );
        let place = row.place().unwrap();
        assert_eq!(place.at, Spread { median: 0.5, min: 0.25, max: 1.0 });
        assert_eq!((place.target, place.text.as_str()), (Some((1.0, true)), "32.0 KiB (\u{2264} 64)"));
    }

    #[test]
    fn one_that_failed_is_nowhere() {
        let failed = r#"{"name": "a", "unit": "us", "failed": true, "others": 0, "target": {"op": "<=", "of": "ratio", "bound": 1.2}}"#;
        assert_eq!(row(failed).place(), None);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 1234.0, 12.34, 0.1234, 0.001].map(short), ["0", "1234", "12.3", "0.123", "1e-3"]);
    }
}
