// SPDX-License-Identifier: BSD-3-Clause
//! Finds and wraps the long lines of comments in Rust, C, C++, scripts and makefiles (110 columns), and of
//! Markdown (150).
//!
//! rustfmt does not check the width of comments. A paragraph with a long line is refilled; all others stay
//! unchanged, as does text that is aligned by hand: code, tables, headings, diagrams. Lines that cannot be
//! wrapped, such as a comment after code, are only reported.

mod comment;
mod lexer;
mod paragraph;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, io};

const USAGE: &str = "\
usage: wrap [--check] [PATH...]

Wraps the comments of the tracked Rust, C and C++ files, scripts and makefiles in PATH (the current directory)
at 110 columns, and the paragraphs of the Markdown files at 150; a tab has 8 columns. With --check it changes
nothing, and prints each line that is too long. The last line is \"N passed, M failed\", in files. Exits with 0
only if no line is too long.
";

/// Generated files, which are as long as their generator makes them, and files whose comments a test reads.
const EXEMPT: [&str; 3] = ["crates/rdma-sys/bindings/", "include/librpma.h", "c-tests/cpp/rejected/"];

/// The kind of text that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Rust,
    C,
    /// Comments are lines that begin with a number sign.
    Script,
    Markdown,
}

impl Kind {
    fn of(path: &Path, text: &[u8]) -> Option<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension {
            Some("rs") => Some(Self::Rust),
            Some("c" | "h" | "cpp" | "hpp") => Some(Self::C),
            Some("md") => Some(Self::Markdown),
            Some("py" | "toml" | "yml") => Some(Self::Script),
            None if text.starts_with(b"#") => Some(Self::Script),
            _ => None,
        }
    }

    /// The last column that text may have.
    pub(crate) fn width(self) -> usize {
        if self == Self::Markdown { 150 } else { 110 }
    }
}

fn main() -> ExitCode {
    let mut paths: Vec<String> = env::args().skip(1).collect();
    if paths.iter().any(|arg| arg == "-h" || arg == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let check = paths.first().is_some_and(|arg| arg == "--check");
    if check {
        paths.remove(0);
    }
    if paths.iter().any(|path| path.starts_with('-')) {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    }
    match run(&paths, check) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("wrap: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether no line is too long afterwards.
fn run(paths: &[String], check: bool) -> io::Result<bool> {
    let (mut passed, mut failed) = (0, 0);
    for path in tracked(paths)? {
        let text = fs::read(&path)?;
        let Some(kind) = Kind::of(&path, &text) else { continue };
        if EXEMPT.iter().any(|prefix| path.starts_with(prefix)) {
            continue;
        }
        let text = String::from_utf8(text).map_err(io::Error::other)?;
        let wrapped = comment::wrap(&text, kind);
        if !check && wrapped != text {
            fs::write(&path, &wrapped)?;
        }
        let long = comment::too_long(if check { &text } else { &wrapped }, kind);
        for (line, columns) in &long {
            println!("{}:{line}: {columns} columns", path.display());
        }
        *if long.is_empty() { &mut passed } else { &mut failed } += 1;
    }
    println!("{passed} passed, {failed} failed");
    Ok(passed > 0 && failed == 0)
}

/// The files that git tracks there.
fn tracked(paths: &[String]) -> io::Result<Vec<PathBuf>> {
    let output = Command::new("git").args(["ls-files", "-z", "--"]).args(paths).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let names = String::from_utf8(output.stdout).map_err(io::Error::other)?;
    Ok(names.split_terminator('\0').map(PathBuf::from).filter(|path| path.is_file()).collect())
}
