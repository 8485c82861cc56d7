// SPDX-License-Identifier: BSD-3-Clause
//! Finds the cycles of imports among the top-level modules of a crate, and among its files.

mod cycles;
mod imports;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};

use source::Source;

const USAGE: &str = "\
usage: modules [--list] [SRC...]

Names the top-level modules of a crate, and the files of a crate, that import one another in a cycle, with a line
\"FILE:LINE: imports PATH of FILE\" for each import of it. Looks at the crates whose sources are in SRC, by default at
all of the workspace: src, crates/*/src and tools/*/src.

A file imports another one if a path in it, in a `use`, in code or in the arguments of a macro, leads to an item
that the other one defines. Re-exports are followed to the definition. These do not count:
- a file that names an item of its parent module, or of one further up: there is what the children share
- a module that declares a child, or re-exports an item of one
- a path to a module: only the items that are named through it count
- what only tests, models or fuzz targets compile, by #[cfg(test)], cfg(loom), cfg(fuzzing) or cfg(miri)
Calls of methods name no file, so they are not seen.

With --list it prints all imports instead. The last line is \"N passed, M failed\", in modules and files: one fails
that is part of a cycle. Exits with 0 only if none is.
";

fn main() -> ExitCode {
    let mut paths: Vec<String> = env::args().skip(1).collect();
    if paths.iter().any(|arg| arg == "-h" || arg == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let list = paths.first().is_some_and(|arg| arg == "--list");
    if list {
        paths.remove(0);
    }
    if paths.iter().any(|path| path.starts_with('-')) {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    }
    match run(&paths, list) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("modules: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether there is no cycle.
fn run(paths: &[String], list: bool) -> io::Result<bool> {
    let directories = if paths.is_empty() { workspace()? } else { paths.iter().map(PathBuf::from).collect() };
    let (mut passed, mut failed) = (0, 0);
    for root in roots(&directories)? {
        let source = Source::load(&root, &|file| fs::read_to_string(file))?;
        if list {
            for ((from, to), place) in imports::of_files(&source) {
                println!("{}:{}: {} of {}", from.display(), place.line, place.path, to.display());
            }
            continue;
        }
        let report = check(&source);
        for line in report.lines {
            println!("{line}");
        }
        passed += report.passed;
        failed += report.failed;
    }
    if !list {
        println!("{passed} passed, {failed} failed");
    }
    Ok(list || passed > 0 && failed == 0)
}

/// The directories with the sources of the crates of the workspace.
fn workspace() -> io::Result<Vec<PathBuf>> {
    let mut directories = vec![PathBuf::from("src")];
    for parent in ["crates", "tools"] {
        for entry in fs::read_dir(parent)? {
            directories.push(entry?.path().join("src"));
        }
    }
    directories.retain(|directory| directory.is_dir());
    directories.sort();
    Ok(directories)
}

/// The roots of the crates whose sources are there: a library, a program, or both.
fn roots(directories: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut roots = Vec::new();
    for directory in directories {
        let found: Vec<_> = ["lib.rs", "main.rs"]
            .iter()
            .map(|name| directory.join(name))
            .filter(|root| root.is_file())
            .collect();
        if found.is_empty() {
            return Err(io::Error::other(format!("{}: neither lib.rs nor main.rs", directory.display())));
        }
        roots.extend(found);
    }
    Ok(roots)
}

/// What a check has found in a crate.
struct Report {
    lines: Vec<String>,
    passed: usize,
    failed: usize,
}

fn check(source: &Source) -> Report {
    let (modules, files) = (imports::modules(source), imports::files(source));
    let (of_modules, of_files) = (imports::of_modules(source), imports::of_files(source));
    let mut report = Report { lines: Vec::new(), passed: modules.len() + files.len(), failed: 0 };
    report.add("modules", &cycles::find(of_modules.keys().copied()), |from, to| {
        let (file, place) = &of_modules[&(from, to)];
        format!("{}:{}: {from} imports {} of {to}", file.display(), place.line, place.path)
    });
    report.add("files", &cycles::find(of_files.keys().copied()), |from, to| {
        let place = &of_files[&(from, to)];
        format!("{}:{}: imports {} of {}", from.display(), place.line, place.path, to.display())
    });
    report
}

impl Report {
    /// Adds cycles; `import` describes that of one node by another.
    fn add<N: Copy + Ord>(&mut self, kind: &str, cycles: &[Vec<N>], import: impl Fn(N, N) -> String) {
        for cycle in cycles {
            self.lines.push(format!("a cycle of {} {kind}:", cycle.len()));
            let behind = cycle.iter().cycle().skip(1);
            self.lines.extend(cycle.iter().zip(behind).map(|(&from, &to)| format!("  {}", import(from, to))));
        }
        let failed = cycles.iter().flatten().collect::<BTreeSet<_>>().len();
        self.passed -= failed;
        self.failed += failed;
    }
}
