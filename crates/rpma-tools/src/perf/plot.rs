// SPDX-License-Identifier: BSD-3-Clause
//! `--plot`: latency and bandwidth by size, as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::options::Case;
use super::report::{Latency, Report, Row};

const WIDTH: u32 = 1200;
const HEIGHT: u32 = 520;
/// The height of the list of curves: of its border, and of each line.
const LEGEND: (u32, u32) = (20, 20);
const FONT: &str = "sans-serif";
/// One after the other.
const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 190, 207),
    RGBColor(140, 86, 75),
    RGBColor(90, 90, 90),
];

/// What a curve is of.
type Value<'a> = &'a dyn Fn(&Row) -> Option<f64>;
type Drawn = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Where the picture goes.
pub(super) struct Plot {
    path: PathBuf,
    file: File,
}

impl Plot {
    /// Before anything is measured, so that a wrong path is told at once.
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        let file = File::create(path).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(super) fn write(mut self, report: &Report) -> Result<(), String> {
        let picture = picture(report).map_err(|why| why.to_string());
        picture
            .and_then(|svg| self.file.write_all(svg.as_bytes()).map_err(|why| why.to_string()))
            .map_err(|why| format!("{} cannot be written: {why}", self.path.display()))
    }
}

fn picture(report: &Report) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE)?;
        let provider = report.provider.as_deref().unwrap_or("librpma");
        let title = format!("rpma perf {}, {provider} {}", report.server, report.library);
        let root = root.titled(&title, (FONT, 20))?;
        let halves = root.split_evenly((1, 2));
        let curves = curves(&report.results);
        let median = |row: &Row| row.latency_us.as_ref().map(|latency: &Latency| latency.p50);
        let rare = |row: &Row| row.latency_us.as_ref().map(|latency: &Latency| latency.p99);
        chart(&halves[0], "latency: median, and 99 % dashed", "us", &curves, &median, Some(&rare))?;
        chart(&halves[1], "bandwidth", "MB/s", &curves, &|row| Some(row.bytes_per_second / 1e6), None)?;
        root.present()?;
    }
    Ok(svg)
}

/// What differs in nothing but the size, by size.
fn curves(rows: &[Row]) -> Vec<Vec<&Row>> {
    let of = |case: &Case| (case.operation, case.depth, case.threads);
    let mut curves: Vec<Vec<&Row>> = Vec::new();
    for row in rows.iter().filter(|row| row.operations > 0) {
        match curves.iter_mut().find(|curve| curve.iter().any(|other| of(&other.case) == of(&row.case))) {
            Some(curve) => curve.push(row),
            None => curves.push(vec![row]),
        }
    }
    for curve in &mut curves {
        curve.sort_by_key(|row| row.case.size);
    }
    curves
}

fn name(case: &Case) -> String {
    let Case { operation, depth, threads, .. } = case;
    format!("{}, depth {depth}, threads {threads}", operation.name())
}

/// Numbers of bytes as people say them.
fn bytes(number: f64) -> String {
    match number {
        n if n >= 1048576.0 => format!("{:.0}M", n / 1048576.0),
        n if n >= 1024.0 => format!("{:.0}k", n / 1024.0),
        n => format!("{n:.0}"),
    }
}

/// Both scales are logarithmic.
fn chart(
    area: &Area<'_>,
    caption: &str,
    unit: &str,
    curves: &[Vec<&Row>],
    value: Value<'_>,
    dashed: Option<Value<'_>>,
) -> Drawn {
    let points = |curve: &[&Row], of: Value<'_>| -> Vec<(f64, f64)> {
        let positive = |value: &f64| *value > 0.0;
        curve.iter().filter_map(|row| Some((row.case.size as f64, of(row).filter(positive)?))).collect()
    };
    let all: Vec<(f64, f64)> = curves
        .iter()
        .flat_map(|c| [points(c, value), dashed.map_or(Vec::new(), |of| points(c, of))].concat())
        .collect();
    let range = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let low = all.iter().map(of).fold(f64::INFINITY, f64::min);
        let high = all.iter().map(of).fold(0.0, f64::max);
        if all.is_empty() { 1.0..10.0 } else { low / 1.5..high * 1.5 }
    };
    // Above the curves there is room for their names.
    let names = (f64::from(LEGEND.0 + LEGEND.1 * curves.len() as u32) / f64::from(HEIGHT)).min(0.6);
    let values = range(&|p| p.1);
    let values = values.start..values.end * (values.end / values.start).powf(names / (1.0 - names));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(range(&|p| p.0).log_scale().base(2.0), values.log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("bytes")
        .y_desc(unit)
        .x_label_formatter(&|number| bytes(*number))
        .y_label_formatter(&|number| number.to_string())
        .label_style((FONT, 12))
        .draw()?;
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let Some(first) = curve.first() else { continue };
        let drawn = points(curve, value);
        chart
            .draw_series(LineSeries::new(drawn.clone(), colour.stroke_width(2)))?
            .label(name(&first.case))
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(drawn.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        if let Some(of) = dashed {
            chart.draw_series(DashedLineSeries::new(points(curve, of), 8, 5, colour.stroke_width(1)))?;
        }
    }
    if curves.is_empty() {
        return Ok(());
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 12))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{report, row};
    use super::*;

    #[test]
    fn a_picture_names_what_it_shows() {
        let svg = picture(&report(vec![row(1000, 8000)])).unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for word in ["write, depth 1, threads 2", "MB/s", "bandwidth", "4k", "circle"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
    }

    #[test]
    fn names_cover_no_curve() {
        for count in [1, 4, 8] {
            let rows = (1..=count).map(|depth| {
                let mut row = row(1000, 8000 / depth as u64);
                row.case.depth = depth;
                row
            });
            let svg = picture(&report(rows.collect())).unwrap();
            let numbers = |line: &str, name: &str| -> Option<u32> {
                line.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0.parse().ok()
            };
            // The list of names is what one sees through.
            let list =
                svg.lines().find(|line| line.contains("<rect") && line.contains("opacity=\"0.8\"")).unwrap();
            let end = numbers(list, "y").unwrap() + numbers(list, "height").unwrap();
            let highest =
                svg.lines().filter(|line| line.contains("<circle")).filter_map(|line| numbers(line, "cy"));
            assert!(highest.min().unwrap() > end, "{count}: {svg}");
        }
    }

    #[test]
    fn nothing_is_a_picture_too() {
        for results in [vec![], vec![row(0, 0)]] {
            assert!(picture(&report(results)).unwrap().contains("bandwidth"));
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!([bytes(8.0), bytes(4096.0), bytes(1048576.0)], ["8", "4k", "1M"]);
    }
}
