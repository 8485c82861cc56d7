// SPDX-License-Identifier: BSD-3-Clause
//! Draws the results of benches/run.

#![forbid(unsafe_code)]

mod chart;
mod row;

use std::error::Error;
use std::process::ExitCode;
use std::{env, fs};

const USAGE: &str = "\
usage: bench-svg FROM.json TO.svg

Draws the results of benches/run: the ratio of each row to its reference, beside its target. The same results
give the same bytes.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [from, to] = arguments.as_slice() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match draw(from, to) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench-svg: {why}");
            ExitCode::FAILURE
        }
    }
}

fn draw(from: &str, to: &str) -> Result<(), Box<dyn Error>> {
    let table = serde_json::from_str(&fs::read_to_string(from)?)?;
    Ok(fs::write(to, chart::svg(&table)?)?)
}
