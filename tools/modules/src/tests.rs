// SPDX-License-Identifier: BSD-3-Clause
//! Crates made up for the purpose, and the cycles that are found in them.

use std::io;
use std::path::Path;

use crate::source::Source;
use crate::{Report, check};

/// Checks the crate that has these files, of which the first one is the root.
fn report(files: &[(&str, &str)]) -> Report {
    let read = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| text.to_string()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    check(&Source::load(Path::new(files[0].0), &read).unwrap())
}

/// The lines that are printed about a crate whose modules `one` and `two` are in the module `all`.
fn lines(all: &str, one: &str, two: &str) -> Vec<String> {
    let all = format!("mod one; mod two; {all}");
    report(&[("lib.rs", "mod all;"), ("all/mod.rs", &all), ("all/one.rs", one), ("all/two.rs", two)]).lines
}

fn cycle(one: &str, two: &str) -> Vec<String> {
    vec![
        "a cycle of 2 files:".to_owned(),
        format!("  all/one.rs:{one} of all/two.rs"),
        format!("  all/two.rs:{two} of all/one.rs"),
    ]
}

#[test]
fn a_cycle_of_files_is_named_with_its_lines() {
    let one = "\nuse super::two::Two;\npub struct One(Two);";
    let two = "pub struct Two;\nfn f() { crate::all::one::One::new() }";
    let found = report(&[
        ("src/lib.rs", "mod all;"),
        ("src/all.rs", "mod one; mod two;"),
        ("src/all/one.rs", one),
        ("src/all/two.rs", two),
    ]);
    assert_eq!(
        found.lines,
        [
            "a cycle of 2 files:",
            "  src/all/one.rs:2: imports super::two::Two of src/all/two.rs",
            "  src/all/two.rs:2: imports crate::all::one::One::new of src/all/one.rs"
        ]
    );
    // The module `all`, and four files of which two are in the cycle.
    assert_eq!((found.passed, found.failed), (3, 2));
}

#[test]
fn a_cycle_of_modules_is_found_where_no_file_is_part_of_one() {
    let found = report(&[
        ("lib.rs", "mod left; mod right;"),
        ("left/mod.rs", "mod top; mod ground;"),
        ("left/top.rs", "use crate::right::Right;"),
        ("left/ground.rs", "pub struct Ground;"),
        ("right.rs", "pub struct Right(crate::left::ground::Ground);"),
    ]);
    assert_eq!(
        found.lines,
        [
            "a cycle of 2 modules:",
            "  left/top.rs:1: left imports crate::right::Right of right",
            "  right.rs:1: right imports crate::left::ground::Ground of left"
        ]
    );
    assert_eq!((found.passed, found.failed), (5, 2));
}

#[test]
fn each_node_of_a_cycle_is_named_once() {
    let edges = [(1, 2), (2, 3), (3, 1), (3, 4), (4, 3), (4, 5), (6, 6), (0, 1)];
    assert_eq!(crate::cycles::find(edges), vec![vec![1, 2, 3], vec![4, 3], vec![6]]);
}

#[test]
fn a_re_export_is_followed_to_the_definition() {
    let one = "use super::Two; pub struct One;";
    let two = "use super::Uno; pub struct Two;";
    let all = "pub use self::one::One as Uno; pub use two::*;";
    assert_eq!(lines(all, one, two), cycle("1: imports super::Two", "1: imports super::Uno"));
}

#[test]
fn a_path_may_begin_with_an_imported_module() {
    let one = "use super::{two as other}; fn one() { other::two() }";
    let two = "use crate::all; pub fn two() -> all::one::One {}";
    assert_eq!(lines("", one, two), cycle("1: imports other::two", "1: imports all::one::One"));
}

#[test]
fn the_arguments_of_a_macro_are_read() {
    let one = "pub fn one() {} fn f() { assert_eq!(x.two, super::two::two(1)); }";
    let two = "pub fn two() {} macro_rules! m { () => { $crate::all::one::one() } }";
    assert_eq!(lines("", one, two), cycle("1: imports super::two::two", "1: imports crate::all::one::one"));
}

#[test]
fn what_a_macro_defines_is_in_its_file() {
    let one = "define!(One); use super::two::Two;";
    let two = "define!(Two); use super::one::One;";
    assert_eq!(lines("", one, two), cycle("1: imports super::two::Two", "1: imports super::one::One"));
}

#[test]
fn parents_and_children_may_name_one_another() {
    let all = "pub use one::One; pub struct Shared; fn f(_: One) {}";
    let one = "use super::Shared; use crate::all::two::Two; pub struct One;";
    let two = "use super::*; pub struct Two(Shared);";
    assert_eq!(lines(all, one, two), [""; 0]);
}

#[test]
fn a_path_to_a_module_is_no_import() {
    assert_eq!(lines("", "use super::two; pub struct One;", "pub use super::one;"), [""; 0]);
}

#[test]
fn what_no_product_is_built_with_is_left_out() {
    let one = "use super::two::Two; pub struct One;";
    for condition in ["test", "all(test, not(loom))", "any(test, fuzzing)", "not(not(loom))"] {
        for two in [
            "use super::one::One;",
            "mod tests { use super::super::one::One; }",
            "fn f(_: super::one::One) {}",
        ] {
            let two = format!("pub struct Two; #[cfg({condition})] {two}");
            assert_eq!(lines("", one, &two), [""; 0], "{two}");
        }
    }
    for condition in ["not(test)", "unix", "any(test, unix)", "not(all(test, loom))", "feature = \"soft\""] {
        let two = format!("pub struct Two; #[cfg({condition})] use super::one::One;");
        assert_eq!(lines("", one, &two).len(), 3, "{two}");
    }
}

#[test]
fn other_crates_and_local_names_are_no_imports() {
    let one = "use super::two::Two; pub struct One;";
    let two = "use one::One; use ::all::one; use std::fmt; pub struct Two; pub(in super::one) fn f(one: u8) { one }";
    assert_eq!(lines("", one, two), [""; 0]);
}
