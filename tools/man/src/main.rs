// SPDX-License-Identifier: BSD-3-Clause
//! Writes the manual pages: in section 3 one for each function, from `include/librpma.h` and `examples/`; in
//! sections 1 and 7 those in `man/`.
//!
//! `cargo run -p man -- DIR` writes `DIR/man1/*.1`, `DIR/man3/*.3` and `DIR/man7/*.7`. The output is
//! reproducible: the date of the pages is [`CHANGED`], or `SOURCE_DATE_EPOCH` if that is set.

mod doc;
mod example;
mod function;
mod groups;
mod header;
mod overview;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use example::Examples;
use header::Header;

/// The date of the pages, to be set with each release.
const CHANGED: &str = "2026-11-21";

/// The contents of a page's footer.
pub struct Release {
    /// The library's version.
    pub version: String,
    /// Year, month and day.
    pub date: String,
}

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let (Some(out), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: man DIR\n\nWrites the manual pages to DIR/man1, DIR/man3 and DIR/man7.");
        return ExitCode::from(2);
    };
    match write(&PathBuf::from(out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("man: {why}");
            ExitCode::FAILURE
        }
    }
}

fn write(out: &Path) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let release = Release { version: env!("CARGO_PKG_VERSION").to_owned(), date: date()? };
    let include = root.join("include/librpma.h");
    let header = Header::parse(&read(&include)?).map_err(|why| format!("{}: {why}", include.display()))?;
    let groups = groups::read(&root.join("src/capi"), &header)?;
    let examples = Examples::read(&root.join("examples"))?;

    for group in &groups {
        for function in &group.functions {
            let page = function::page(function, group, &header, examples.of(&function.name)?, &release)?;
            save(out, "man3", &format!("{}.3", function.name), &page)?;
        }
    }
    let programs = read(&root.join("examples/README.md"))?;
    for (section, name) in [
        ("man1", "rpma.1"),
        ("man1", "rpma-doctor.1"),
        ("man1", "rpma-perf.1"),
        ("man1", "rpma-ping.1"),
        ("man1", "rpma-selftest.1"),
        ("man1", "rpma-top.1"),
        ("man1", "rpma-wait.1"),
        ("man7", "librpma.7"),
        ("man7", "librpma_providers.7"),
        ("man7", "softverbs.7"),
    ] {
        let source = root.join(format!("man/{name}.in"));
        let page = overview::page(&read(&source)?, &header, &groups, &programs, &release);
        save(out, section, name, &page.map_err(|why| format!("{}: {why}", source.display()))?)?;
    }
    Ok(())
}

/// The date of the pages, as year, month and day.
fn date() -> Result<String, String> {
    let Some(epoch) = env::var_os("SOURCE_DATE_EPOCH") else { return Ok(CHANGED.to_owned()) };
    let seconds = epoch.to_str().and_then(|text| text.parse().ok());
    let moment = seconds.and_then(|seconds| time::OffsetDateTime::from_unix_timestamp(seconds).ok());
    moment
        .map(|moment| moment.date().to_string())
        .ok_or_else(|| format!("SOURCE_DATE_EPOCH is {epoch:?}, not a time"))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn save(out: &Path, section: &str, name: &str, page: &str) -> Result<(), String> {
    let dir = out.join(section);
    let path = dir.join(name);
    fs::create_dir_all(&dir)
        .and_then(|()| fs::write(&path, page))
        .map_err(|e| format!("{}: {e}", path.display()))
}
