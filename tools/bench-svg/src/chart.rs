// SPDX-License-Identifier: BSD-3-Clause
//! The picture: a line for each row, on a logarithmic scale.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

use crate::row::{Op, Row, Table};

const WIDTH: i32 = 1000;
/// The height of a row.
const LINE: i32 = 17;
/// The width of the names at the left, and of the numbers at the right.
const NAMES: i32 = 170;
const NUMBERS: i32 = 150;
const RIGHT: i32 = WIDTH - NUMBERS;
/// The height of the legend, and of the scale.
const ABOVE: i32 = 64;
const BELOW: i32 = 52;
const TICKS: [f64; 13] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
// Blue and orange are distinguishable for everybody.
const HELD: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const NOT_HELD: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
const NO_TARGET: RGBColor = RGBColor(0x6e, 0x6e, 0x6e);

type Drawn = Result<(), Box<dyn Error>>;

pub(crate) fn svg(table: &Table) -> Result<String, Box<dyn Error>> {
    let bottom = ABOVE + LINE * table.rows.len() as i32;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH as u32, (bottom + BELOW) as u32));
        let canvas = Canvas(root.into_drawing_area());
        canvas.0.fill(&WHITE)?;
        canvas.head(table)?;
        let scale = Scale::of(&table.rows);
        canvas.ticks(&scale, bottom)?;
        for (top, row) in (ABOVE..).step_by(LINE as usize).zip(&table.rows) {
            canvas.row(&scale, top, row)?;
        }
        canvas.0.present()?;
    }
    Ok(svg)
}

/// Whole powers of ten around all ratios from the first to the last tick; others are drawn at the edge.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(rows: &[Row]) -> Self {
        let (mut low, mut high) = (1.0f64, 1.0f64);
        for place in rows.iter().filter_map(Row::place) {
            let target = place.target.unwrap_or(place.at.median);
            low = low.min(place.at.min).min(target);
            high = high.max(place.at.max).max(target);
        }
        Self {
            low: low.max(TICKS[0]).log10().floor().min(-1.0),
            high: high.min(TICKS[TICKS.len() - 1]).log10().ceil().max(1.0),
        }
    }

    fn x(&self, ratio: f64) -> i32 {
        let ratio = ratio.clamp(10f64.powf(self.low), 10f64.powf(self.high));
        let share = (ratio.log10() - self.low) / (self.high - self.low);
        (f64::from(NAMES) + share * f64::from(RIGHT - NAMES)).round() as i32
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let range = 10f64.powf(self.low) * 0.99..10f64.powf(self.high) * 1.01;
        TICKS.into_iter().filter(move |tick| range.contains(tick))
    }
}

struct Canvas<'a>(DrawingArea<SVGBackend<'a>, Shift>);

impl Canvas<'_> {
    fn text(&self, at: (i32, i32), side: HPos, colour: RGBColor, size: i32, text: &str) -> Drawn {
        let style = ("sans-serif", size).into_font().color(&colour).pos(Pos::new(side, VPos::Center));
        Ok(self.0.draw(&Text::new(text, at, style))?)
    }

    fn dot(&self, at: (i32, i32), colour: RGBColor) -> Drawn {
        Ok(self.0.draw(&Circle::new(at, 4, colour.filled()))?)
    }

    fn line(&self, from: (i32, i32), to: (i32, i32), style: impl Into<ShapeStyle>) -> Drawn {
        Ok(self.0.draw(&PathElement::new([from, to], style))?)
    }

    fn head(&self, table: &Table) -> Drawn {
        let date = table.time.split('T').next().unwrap_or_default();
        let cpu = table.cpu.as_deref().map_or("unknown processor", str::trim);
        let host = format!("{date}, {cpu}, {} CPUs, Linux {}", table.cpus, table.kernel);
        let title = "make bench: each row's ratio to its reference, beside its target";
        self.text((NAMES, 14), HPos::Left, BLACK, 15, title)?;
        self.text((NAMES, 32), HPos::Left, NO_TARGET, 11, &host)?;
        let mut x = NAMES;
        for (colour, name, held) in [
            (HELD, "target held", Some(true)),
            (NOT_HELD, "not held", Some(false)),
            (NO_TARGET, "no target", None),
        ] {
            let count = table.rows.iter().filter(|row| row.held == held && !row.failed).count();
            self.dot((x + 4, 50), colour)?;
            self.text((x + 13, 50), HPos::Left, BLACK, 11, &format!("{name}: {count}"))?;
            x += 110;
        }
        let rest = "| target, shaded where it holds; lines: lowest to highest; *: others used more than 10 % of the CPUs";
        self.text((x, 50), HPos::Left, BLACK, 11, rest)
    }

    fn ticks(&self, scale: &Scale, bottom: i32) -> Drawn {
        for tick in scale.ticks() {
            let (x, opacity) = (scale.x(tick), if tick == 1.0 { 0.9 } else { 0.25 });
            self.line((x, ABOVE), (x, bottom), NO_TARGET.mix(opacity))?;
            self.text((x, bottom + 11), HPos::Center, BLACK, 11, &tick.to_string())?;
        }
        let caption =
            "ratio to the reference, logarithmic; of a row without one: its value as a share of the target";
        self.text(((NAMES + RIGHT) / 2, bottom + 32), HPos::Center, BLACK, 11, caption)
    }

    fn row(&self, scale: &Scale, top: i32, row: &Row) -> Drawn {
        let (y, bottom) = (top + LINE / 2, top + LINE);
        self.text((NAMES - 8, y), HPos::Right, BLACK, 11, &row.name)?;
        let numbers = (RIGHT + 8, y);
        let Some(place) = row.place() else {
            let (text, colour) =
                if row.failed { ("failed", NOT_HELD) } else { (row.unit.as_str(), NO_TARGET) };
            return self.text(numbers, HPos::Left, colour, 11, text);
        };
        let colour = match row.held {
            Some(true) => HELD,
            Some(false) => NOT_HELD,
            None => NO_TARGET,
        };
        if let (Some(ratio), Some(target)) = (place.target, &row.target) {
            let x = scale.x(ratio);
            let (left, right) = if target.op == Op::Le { (NAMES, x) } else { (x, RIGHT) };
            self.0.draw(&Rectangle::new([(left, top + 2), (right, bottom - 2)], HELD.mix(0.08).filled()))?;
            self.line((x, top + 2), (x, bottom - 2), BLACK.stroke_width(2))?;
        }
        self.line((scale.x(place.at.min), y), (scale.x(place.at.max), y), colour.stroke_width(2))?;
        self.dot((scale.x(place.at.median), y), colour)?;
        self.text(numbers, HPos::Left, colour, 11, &place.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::row;

    fn table(rows: Vec<Row>) -> Table {
        Table { time: "2026-01-02T03:04:05Z".to_owned(), kernel: "6.1".to_owned(), cpu: None, cpus: 2, rows }
    }

    #[test]
    fn the_scale_is_logarithmic_and_others_are_at_its_edge() {
        let wide = row(r#""name": "a", "unit": "us", "others": 0,
            "ratio": {"min": 0.001, "median": 1, "max": 1000}"#);
        let scale = Scale::of(&[wide]);
        let [left, a, middle, b, right] = [0.01, 0.1, 1.0, 10.0, 100.0].map(|ratio| scale.x(ratio));
        assert_eq!((middle - left, b - a), (right - middle, middle - left));
        assert_eq!((scale.x(0.0), scale.x(1e9), left, right), (left, right, NAMES, RIGHT));
        assert_eq!(scale.ticks().count(), TICKS.len());
    }

    #[test]
    fn every_row_is_named_and_counted() {
        let ratio = r#""unit": "us", "others": 0, "ratio": {"min": 0.4, "median": 0.5, "max": 0.9}"#;
        let rows = [
            format!(r#""name": "fast", {ratio}, "held": true, "target": {{"op": "<=", "bound": 1.2}}"#),
            format!(r#""name": "slow", {ratio}, "held": false, "target": {{"op": ">=", "bound": 0.95}}"#),
            r#""name": "broken", "unit": "us", "others": 0"#.to_owned(),
        ];
        let mut rows = rows.map(|rest| row(&rest));
        rows[2].failed = true;
        let svg = svg(&table(rows.into())).unwrap();
        for word in
            ["fast", "slow", "broken", "failed", "target held: 1", "not held: 1", "2026-01-02", "2 CPUs"]
        {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        // one in the legend, and one for the row
        let circles =
            |colour| svg.lines().filter(|line| line.contains("<circle") && line.contains(colour)).count();
        assert_eq!((circles("#0072B2"), circles("#D55E00")), (2, 2));
    }

    #[test]
    fn no_rows_are_a_picture_too() {
        let svg = svg(&table(Vec::new())).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
