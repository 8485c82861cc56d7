// SPDX-License-Identifier: BSD-3-Clause
//! `--plot`: latency and bandwidth by size, as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::iter;
use std::path::{Path, PathBuf};

use super::options::Case;
use super::origin::Origin;
use super::report::{Latency, Report, Row};

const WIDTH: u32 = 1200;
const HEIGHT: u32 = 540;
/// The distance between the names of two curves.
const NAME_HEIGHT: i32 = 15;
/// The width of a character in a name.
const NAME_WIDTH: f64 = 7.0;
/// The maximum number of sizes below a chart, for which there is room.
const TICKS: usize = 10;
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

/// The value that a curve shows.
type Value<'a> = &'a dyn Fn(&Row) -> Option<f64>;
type Drawn = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The file of the picture.
pub(super) struct Plot {
    path: PathBuf,
    file: File,
}

impl Plot {
    /// Creates the file before the measurements, so that a wrong path is reported at once. Rejects a name
    /// that does not end in .svg, which is the only format.
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        if !path.extension().is_some_and(|end| end.eq_ignore_ascii_case("svg")) {
            return Err(format!(
                "{}: --plot draws SVG, so the name must end in .svg; rsvg-convert makes a PNG of it",
                path.display()
            ));
        }
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
        let curves = curves(&report.results);
        let title = format!("rpma perf {}, {provider} {}", report.server, report.library);
        let title = iter::once(title).chain(common(&curves)).collect::<Vec<_>>().join(", ");
        let mut root = root.titled(&title, (FONT, 20))?;
        if let Some(Origin { date, host, kernel }) = &report.origin {
            root = root.titled(&format!("{date}, host {host}, {kernel}"), (FONT, 13))?;
        }
        let halves = root.split_evenly((1, 2));
        let median = |row: &Row| row.latency_us.as_ref().map(|latency: &Latency| latency.p50);
        let rare = |row: &Row| row.latency_us.as_ref().map(|latency: &Latency| latency.p99);
        chart(
            &halves[0],
            "latency: median, and 99th percentile dashed",
            "us",
            &curves,
            &median,
            Some(&rare),
        )?;
        chart(&halves[1], "bandwidth", "MB/s", &curves, &|row| Some(row.bytes_per_second / 1e6), None)?;
        root.present()?;
    }
    Ok(svg)
}

/// Groups rows that differ only in their size, sorted by size.
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

/// The settings that all curves have in common: the title names them.
fn common(curves: &[Vec<&Row>]) -> Vec<String> {
    let same = |of: fn(&Case) -> String| {
        let mut values: Vec<String> = curves.iter().map(|curve| of(&curve[0].case)).collect();
        values.dedup();
        if values.len() == 1 { values.pop() } else { None }
    };
    [same(depth), same(threads)].into_iter().flatten().collect()
}

fn depth(case: &Case) -> String {
    format!("depth {}", case.depth)
}

fn threads(case: &Case) -> String {
    format!("{} thread{}", case.threads, if case.threads == 1 { "" } else { "s" })
}

/// The label of a curve: the operation, and the settings that not all curves have in common.
fn name(case: &Case, common: &[String]) -> String {
    let settings = [depth(case), threads(case)].into_iter().filter(|setting| !common.contains(setting));
    iter::once(case.operation.name().to_owned()).chain(settings).collect::<Vec<_>>().join(", ")
}

/// Moves heights apart, keeping their order, so that the names there do not overlap.
fn apart(heights: &mut [(i32, usize)]) {
    heights.sort_unstable();
    let mut free = i32::MIN;
    for (height, _) in heights {
        *height = free.max(*height);
        free = *height + NAME_HEIGHT;
    }
}

/// Formats a number of bytes for people.
fn bytes(number: f64) -> String {
    match number {
        n if n >= 1048576.0 => format!("{:.0}M", n / 1048576.0),
        n if n >= 1024.0 => format!("{:.0}k", n / 1024.0),
        n => format!("{n:.0}"),
    }
}

/// Draws a chart with logarithmic scales.
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
    let common = common(curves);
    let names: Vec<String> = curves.iter().map(|curve| name(&curve[0].case, &common)).collect();
    let widest = names.iter().map(String::len).max().unwrap_or(0);
    let mut sizes: Vec<f64> = all.iter().map(|(size, _)| *size).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    // always includes the largest size
    let ticks = sizes.iter().rev().step_by(sizes.len().div_ceil(TICKS).max(1)).copied().collect();
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 16))
        .margin(12)
        // room for the names at the ends of the curves
        .margin_right((NAME_WIDTH * widest as f64) as u32 + 24)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(
            range(&|p| p.0).log_scale().base(2.0).with_key_points(ticks),
            range(&|p| p.1).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("bytes")
        .y_desc(unit)
        .x_label_formatter(&|number| bytes(*number))
        .y_label_formatter(&|number| number.to_string())
        .label_style((FONT, 12))
        .draw()?;
    let mut ends = Vec::new();
    for (i, (curve, colour)) in curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let drawn = points(curve, value);
        if let Some(end) = drawn.last() {
            ends.push((chart.plotting_area().map_coordinate(end).1, i));
        }
        chart.draw_series(LineSeries::new(drawn.clone(), colour.stroke_width(2)))?;
        chart.draw_series(drawn.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        if let Some(of) = dashed {
            chart.draw_series(DashedLineSeries::new(points(curve, of), 8, 5, colour.stroke_width(1)))?;
        }
    }
    apart(&mut ends);
    let (left, top) = (area.get_pixel_range().0.start, area.get_pixel_range().1.start);
    let right = chart.plotting_area().get_pixel_range().0.end;
    for (height, i) in ends {
        let style = (FONT, 13).into_font().color(&COLOURS[i % COLOURS.len()]);
        area.draw(&Text::new(names[i].as_str(), (right - left + 8, height - top - 6), style))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{report, row};
    use super::*;

    /// One after the other.
    fn rows(count: usize) -> Vec<Row> {
        let of_depth = |depth: usize| {
            let mut row = row(1000, 8000 / depth as u64);
            row.case.depth = depth;
            row
        };
        (1..=count).map(of_depth).collect()
    }

    #[test]
    fn a_picture_names_what_it_shows() {
        let svg = picture(&report(vec![row(1000, 8000)])).unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        let origin = "2026-01-02T03:04:05Z, host here, Linux 6\n";
        for word in ["write\n", "depth 1, 2 threads", "MB/s", "bandwidth", "4k", "circle", origin] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        let svg = picture(&report(rows(2))).unwrap();
        for word in ["write, depth 1\n", "write, depth 2\n", "1.4.0, 2 threads\n"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
    }

    #[test]
    fn the_largest_size_has_a_label() {
        for sizes in [3..18, 3..21, 6..7] {
            let largest = bytes(f64::from(1 << (sizes.end - 1)));
            let of_size = |shift: usize| {
                let mut row = row(1000, 8000);
                row.case.size = 1 << shift;
                row
            };
            let svg = picture(&report(sizes.map(of_size).collect())).unwrap();
            assert_eq!(svg.lines().filter(|line| *line == largest).count(), 2, "{largest}");
        }
    }

    #[test]
    fn a_name_of_another_format_is_refused() {
        let directory = std::env::temp_dir().join(format!("rpma-plot-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for name in ["x.png", "x", "x.svg.png", "svg", ".svg"] {
            let path = directory.join(name);
            let why = Plot::create(&path).err().unwrap_or_default();
            assert!(why.contains("must end in .svg") && !path.exists(), "{name}: {why}");
        }
        std::fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn names_cover_nothing() {
        let number = |line: &str, name: &str| -> i32 {
            line.split_once(&format!(" {name}=\"")).unwrap().1.split_once('"').unwrap().0.parse().unwrap()
        };
        for count in [1, 4, 8] {
            let svg = picture(&report(rows(count))).unwrap();
            let lines: Vec<&str> = svg.lines().collect();
            // The left half of the picture.
            let half = (WIDTH / 2) as i32;
            let is_name = |text: &str| text == "write" || text.starts_with("write, ");
            let mut names: Vec<(i32, i32)> = (1..lines.len())
                .filter(|i| is_name(lines[*i]))
                .map(|i| (number(lines[i - 1], "x"), number(lines[i - 1], "y")))
                .filter(|(x, _)| *x < half)
                .collect();
            names.sort_unstable_by_key(|(_, y)| *y);
            assert_eq!(names.len(), count, "{svg}");
            assert!(names.windows(2).all(|two| two[1].1 - two[0].1 >= NAME_HEIGHT), "{names:?}");
            let circles =
                lines.iter().filter(|line| line.starts_with("<circle")).map(|line| number(line, "cx"));
            let right = circles.filter(|x| *x < half).max().unwrap();
            assert!(names.iter().all(|(x, _)| *x > right), "{names:?}");
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
