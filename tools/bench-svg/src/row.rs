// SPDX-License-Identifier: BSD-3-Clause
//! A row of the results, and its place on the scale.

use serde::Deserialize;

/// The share of the processors used by other programs above which a row is marked, as in benches/run.
const DISTURBED: f64 = 0.10;

#[derive(Deserialize)]
pub(crate) struct Table {
    pub(crate) time: String,
    pub(crate) kernel: String,
    pub(crate) cpu: Option<String>,
    pub(crate) cpus: u32,
    pub(crate) rows: Vec<Row>,
}

#[derive(Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) failed: bool,
    pub(crate) target: Option<Target>,
    pub(crate) held: Option<bool>,
    others: f64,
    ratio: Option<Spread>,
    /// The value; a failed row has none.
    #[serde(flatten)]
    value: Option<Spread>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) op: Op,
    bound: f64,
}

#[derive(Deserialize, PartialEq)]
pub(crate) enum Op {
    #[serde(rename = "<=")]
    Le,
    #[serde(rename = ">=")]
    Ge,
}

/// A row on the scale.
#[derive(Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) at: Spread,
    pub(crate) target: Option<f64>,
    /// The numbers beside it.
    pub(crate) text: String,
}

impl Row {
    /// The place of the ratio or, without a reference, of the value as a share of the target.
    pub(crate) fn place(&self) -> Option<Place> {
        let wanted = self.target.as_ref().map_or(String::new(), |target| {
            format!(" ({} {})", if target.op == Op::Le { '≤' } else { '≥' }, target.bound)
        });
        let mark = if self.others > DISTURBED { "*" } else { "" };
        if let Some(at) = self.ratio {
            let text = format!("{:.2}{wanted}{mark}", at.median);
            return Some(Place { at, target: self.target.as_ref().map(|target| target.bound), text });
        }
        let Spread { min, median, max } = self.value?;
        let bound = self.target.as_ref().map(|target| target.bound).filter(|bound| *bound > 0.0)?;
        let at = Spread { min: min / bound, median: median / bound, max: max / bound };
        let text = format!("{} {}{wanted}{mark}", short(median), self.unit);
        Some(Place { at, target: Some(1.0), text })
    }
}

/// Formats a number with three digits that say something.
fn short(value: f64) -> String {
    match value {
        v if v >= 100.0 || v == 0.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v if v >= 0.01 => format!("{v:.3}"),
        v => format!("{v:.0e}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row with the fields `rest`.
    pub(crate) fn row(rest: &str) -> Row {
        serde_json::from_str(&format!("{{\"failed\": false, {rest}}}")).unwrap()
    }

    #[test]
    fn a_row_with_a_reference_is_at_its_ratio() {
        let row = row(r#""name": "a", "unit": "us", "others": 0.11, "min": 2, "median": 3, "max": 5,
            "ratio": {"min": 1, "median": 1.5, "max": 2.5}, "target": {"op": "<=", "bound": 1.2}"#);
        let at = Spread { min: 1.0, median: 1.5, max: 2.5 };
        assert_eq!(row.place(), Some(Place { at, target: Some(1.2), text: "1.50 (≤ 1.2)*".to_owned() }));
    }

    #[test]
    fn a_row_without_one_is_at_its_share_of_the_target() {
        let row = row(r#""name": "a", "unit": "KiB", "others": 0.1, "min": 16, "median": 32, "max": 64,
            "target": {"op": "<=", "bound": 64}"#);
        let at = Spread { min: 0.25, median: 0.5, max: 1.0 };
        assert_eq!(row.place(), Some(Place { at, target: Some(1.0), text: "32.0 KiB (≤ 64)".to_owned() }));
    }

    #[test]
    fn a_row_without_numbers_or_target_has_no_place() {
        let failed = row(r#""name": "a", "unit": "us", "others": 0, "target": {"op": "<=", "bound": 1}"#);
        let alone = row(r#""name": "a", "unit": "us", "others": 0, "min": 2, "median": 3, "max": 5"#);
        assert_eq!((failed.place(), alone.place()), (None, None));
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 1234.0, 12.34, 0.1234, 0.001].map(short);
        assert_eq!(texts, ["0", "1234", "12.3", "0.123", "1e-3"]);
    }
}
