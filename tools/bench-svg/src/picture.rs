// SPDX-License-Identifier: BSD-3-Clause
//! The drawing: a line for each row, on one logarithmic scale.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::table::{Place, Row, Table};

const WIDTH: u32 = 1000;
/// Of a row.
const LINE: u32 = 17;
const NAMES: u32 = 170;
const NUMBERS: u32 = 150;
const ABOVE: u32 = 64;
const BELOW: u32 = 52;
const FONT: &str = "sans-serif";
/// What is farther away is drawn at the edge.
const EDGES: (f64, f64) = (0.01, 100.0);

/// Blue and orange can be told apart by everybody.
const HELD: RGBColor = RGBColor(0, 114, 178);
const NOT_HELD: RGBColor = RGBColor(213, 94, 0);
const NO_TARGET: RGBColor = RGBColor(110, 110, 110);

type Drawn = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) fn picture(table: &Table) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let height = ABOVE + LINE * table.rows.len() as u32 + BELOW;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        head(&area, table)?;
        let scale = Scale::of(&table.rows);
        lines(&area, &scale, height)?;
        for (n, row) in table.rows.iter().enumerate() {
            line(&area, &scale, (ABOVE + LINE * n as u32) as i32, row)?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// Where a ratio is, from left to right.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Whole powers of ten, with all that is to be seen between them.
    fn of(rows: &[Row]) -> Self {
        let places = rows.iter().filter_map(Row::place);
        let numbers = places.flat_map(|place| {
            let target = place.target.map_or(place.at.median, |(bound, _)| bound);
            [place.at.min, place.at.max, target]
        });
        let inside = |number: f64| number.clamp(EDGES.0, EDGES.1);
        let (low, high) =
            numbers.map(inside).fold((1.0, 1.0), |(low, high): (f64, f64), n| (low.min(n), high.max(n)));
        let low = 10f64.powf(low.log10().floor().min(-1.0));
        Self { low, high: 10f64.powf(high.log10().ceil().max(1.0)) }
    }

    fn x(&self, ratio: f64) -> i32 {
        let (low, high) = (self.low.log10(), self.high.log10());
        let share = (ratio.clamp(self.low, self.high).log10() - low) / (high - low);
        (f64::from(NAMES) + share * f64::from(WIDTH - NAMES - NUMBERS)).round() as i32
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
        let (low, high) = (self.low * 0.99, self.high * 1.01);
        steps.into_iter().filter(move |step| (low..=high).contains(step))
    }
}

fn text(area: &Area<'_>, (x, y): (i32, i32), at: HPos, size: u32, colour: RGBColor, text: &str) -> Drawn {
    let style = (FONT, size).into_font().color(&colour).pos(Pos::new(at, VPos::Center));
    area.draw(&Text::new(text.to_owned(), (x, y), style))?;
    Ok(())
}

fn head(area: &Area<'_>, table: &Table) -> Drawn {
    let day = table.time.split('T').next().unwrap_or_default();
    let cpu = table.cpu.as_deref().unwrap_or("unknown processor");
    let where_ = format!("{day}, {}, {} CPUs, Linux {}", cpu.trim(), table.cpus, table.kernel);
    text(
        area,
        (NAMES as i32, 14),
        HPos::Left,
        15,
        BLACK,
        "make bench: each row's ratio to its reference, beside its target",
    )?;
    text(area, (NAMES as i32, 32), HPos::Left, 11, NO_TARGET, &where_)?;
    let mut x = NAMES as i32;
    let count = |held| table.rows.iter().filter(|row| row.held == held && !row.failed).count();
    for (colour, name, n) in [
        (HELD, "target held", count(Some(true))),
        (NOT_HELD, "not held", count(Some(false))),
        (NO_TARGET, "no target", count(None)),
    ] {
        area.draw(&Circle::new((x + 4, 50), 4, colour.filled()))?;
        text(area, (x + 13, 50), HPos::Left, 11, BLACK, &format!("{name}: {n}"))?;
        x += 110;
    }
    text(
        area,
        (x, 50),
        HPos::Left,
        11,
        BLACK,
        "| target, shaded where it holds; lines: lowest to highest; *: others used more than 10 % of the CPUs",
    )
}

fn lines(area: &Area<'_>, scale: &Scale, height: u32) -> Drawn {
    let (top, bottom) = (ABOVE as i32, (height - BELOW) as i32);
    for tick in scale.ticks() {
        let (x, strong) = (scale.x(tick), tick == 1.0);
        let colour = NO_TARGET.mix(if strong { 0.9 } else { 0.25 });
        area.draw(&PathElement::new([(x, top), (x, bottom)], colour.stroke_width(1)))?;
        text(area, (x, bottom + 11), HPos::Center, 11, BLACK, &tick.to_string())?;
    }
    let what =
        "ratio to the reference, logarithmic; of a row without one: its value as a share of the target";
    let middle = (NAMES + (WIDTH - NAMES - NUMBERS) / 2) as i32;
    text(area, (middle, bottom + 32), HPos::Center, 11, BLACK, what)
}

fn line(area: &Area<'_>, scale: &Scale, top: i32, row: &Row) -> Drawn {
    let (bottom, y) = (top + LINE as i32, top + LINE as i32 / 2);
    let right = (WIDTH - NUMBERS) as i32;
    text(area, (NAMES as i32 - 8, y), HPos::Right, 11, BLACK, &row.name)?;
    let Some(Place { at, target, text: says }) = row.place() else {
        let says = if row.failed { "failed".to_owned() } else { row.unit.clone() };
        let colour = if row.failed { NOT_HELD } else { NO_TARGET };
        return text(area, (right + 8, y), HPos::Left, 11, colour, &says);
    };
    let colour = match row.held {
        Some(true) => HELD,
        Some(false) => NOT_HELD,
        None => NO_TARGET,
    };
    if let Some((bound, most)) = target {
        let x = scale.x(bound);
        let good = if most { (NAMES as i32, x) } else { (x, right) };
        let shade = Rectangle::new([(good.0, top + 2), (good.1, bottom - 2)], HELD.mix(0.08).filled());
        area.draw(&shade)?;
        area.draw(&PathElement::new([(x, top + 2), (x, bottom - 2)], BLACK.stroke_width(2)))?;
    }
    area.draw(&PathElement::new([(scale.x(at.min), y), (scale.x(at.max), y)], colour.stroke_width(2)))?;
    area.draw(&Circle::new((scale.x(at.median), y), 4, colour.filled()))?;
    text(area, (right + 8, y), HPos::Left, 11, colour, &says)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r#"{"time": "2026-01-02T03:04:05Z", "kernel": "6.1", "cpu": null, "cpus": 2, "rows": [
        {"name": "fast", "unit": "us", "failed": false, "others": 0, "median": 1, "min": 1, "max": 1,
         "ratio": {"median": 0.5, "min": 0.4, "max": 0.9}, "target": {"op": "<=", "bound": 1.2}, "held": true},
        {"name": "slow", "unit": "GB/s", "failed": false, "others": 0, "median": 1, "min": 1, "max": 1,
         "ratio": {"median": 0.5, "min": 0.4, "max": 0.9}, "target": {"op": ">=", "bound": 0.95}, "held": false},
        {"name": "none", "unit": "ticks", "failed": false, "others": 0, "median": 0, "min": 0, "max": 0,
         "target": {"op": "<=", "bound": 1}, "held": true},
        {"name": "broken", "unit": "us", "failed": true, "others": 0, "target": {"op": "<=", "bound": 1}}]}"#;

    fn drawn(table: &str) -> String {
        picture(&serde_json::from_str(table).unwrap()).unwrap()
    }

    #[test]
    fn every_row_is_named_and_said_to_hold_or_not() {
        let svg = drawn(TABLE);
        for word in [
            "fast",
            "slow",
            "none",
            "broken",
            "failed",
            "target held: 2",
            "not held: 1",
            "2026-01-02",
            "2 CPUs",
        ] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        // a circle in the legend, and one for each row that has that colour
        let circles =
            |colour: &str| svg.lines().filter(|l| l.contains("<circle") && l.contains(colour)).count();
        assert_eq!((circles("#0072B2"), circles("#D55E00")), (3, 2), "{svg}");
    }

    #[test]
    fn no_rows_are_a_picture_too() {
        let svg = drawn(r#"{"time": "", "kernel": "", "cpu": null, "cpus": 1, "rows": []}"#);
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    }

    #[test]
    fn the_scale_is_logarithmic_and_what_is_outside_is_at_its_edge() {
        let scale = Scale { low: 0.01, high: 100.0 };
        let [left, a, middle, b, right] = [0.01, 0.1, 1.0, 10.0, 100.0].map(|ratio| scale.x(ratio));
        assert_eq!((middle - left, b - a), (right - middle, middle - left));
        assert_eq!((scale.x(0.0), scale.x(1e9)), (left, right));
        assert_eq!((left, right), (NAMES as i32, (WIDTH - NUMBERS) as i32));
        assert_eq!(scale.ticks().count(), 13);
    }
}
