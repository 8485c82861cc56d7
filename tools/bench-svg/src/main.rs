// SPDX-License-Identifier: BSD-3-Clause
//! Draws what `make bench` has measured: the ratio of each row to its reference beside its target.
//!
//! `cargo run -p bench-svg -- build/bench.json docs/bench.svg`. The same numbers give the same bytes.

mod picture;
mod table;

use std::process::ExitCode;
use std::{env, fs};

use table::Table;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (Some(from), Some(to), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        eprintln!("usage: bench-svg FROM.json TO.svg\n\nDraws what benches/run has written.");
        return ExitCode::from(2);
    };
    match draw(&from, &to) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench-svg: {why}");
            ExitCode::FAILURE
        }
    }
}

fn draw(from: &str, to: &str) -> Result<(), String> {
    let text = fs::read_to_string(from).map_err(|why| format!("{from}: {why}"))?;
    let table: Table = serde_json::from_str(&text).map_err(|why| format!("{from}: {why}"))?;
    let svg = picture::picture(&table).map_err(|why| format!("{from}: {why}"))?;
    fs::write(to, svg).map_err(|why| format!("{to}: {why}"))
}
