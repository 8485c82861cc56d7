// SPDX-License-Identifier: BSD-3-Clause
//! Which file imports which: the paths of a crate, followed through imports and re-exports to the file that
//! defines the item.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use crate::source::{Definition, Module, Source};

/// What a path leads to, by the index of the module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    ItemOf(usize),
}

/// The first place where one file imports another.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// The imports among the files of a crate, by importing and imported file.
pub(crate) fn of_files(source: &Source) -> BTreeMap<(&Path, &Path), Place> {
    let mut imports = BTreeMap::new();
    for (importer, imported, place) in all(source) {
        let files = (source.modules[importer].file.as_path(), source.modules[imported].file.as_path());
        imports.entry(files).or_insert(place);
    }
    imports
}

/// The imports among the top-level modules of a crate, with the file of each place.
pub(crate) fn of_modules(source: &Source) -> BTreeMap<(&str, &str), (&Path, Place)> {
    let mut imports = BTreeMap::new();
    for (importer, imported, place) in all(source) {
        if let (Some(from), Some(to)) = (top_level(source, importer), top_level(source, imported)) {
            if from != to {
                imports.entry((from, to)).or_insert((source.modules[importer].file.as_path(), place));
            }
        }
    }
    imports
}

/// The files of a crate.
pub(crate) fn files(source: &Source) -> BTreeSet<&Path> {
    source.modules.iter().map(|module| module.file.as_path()).collect()
}

/// The top-level modules of a crate.
pub(crate) fn modules(source: &Source) -> BTreeSet<&str> {
    (0..source.modules.len()).filter_map(|module| top_level(source, module)).collect()
}

/// The name of the top-level module that a module is in; none for the root of the crate.
fn top_level(source: &Source, module: usize) -> Option<&str> {
    let [.., top, _root] = ancestors(source, module).collect::<Vec<_>>()[..] else { return None };
    Some(&source.modules[top].name)
}

/// Each import of one file by another that counts, by the indexes of their modules.
fn all(source: &Source) -> Vec<(usize, usize, Place)> {
    let mut imports = Vec::new();
    for (importer, module) in source.modules.iter().enumerate() {
        for mention in &module.mentions {
            for target in resolve(source, importer, &mention.path, &mut HashSet::new()) {
                let Target::ItemOf(imported) = target else { continue };
                let file = &source.modules[imported].file;
                let of_parent = ancestors(source, importer).any(|above| source.modules[above].file == *file);
                let of_child = ancestors(source, imported).any(|above| above == importer);
                if !(of_parent || of_child && mention.is_re_export) {
                    let place = Place { line: mention.line, path: mention.path.join("::") };
                    imports.push((importer, imported, place));
                }
            }
        }
    }
    imports
}

/// A module and those that it is in, up to the root.
fn ancestors(source: &Source, module: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(module), |&module| source.modules[module].parent)
}

/// What `path` leads to from `module`: several targets if the name is that of a module and of a function,
/// none if it is that of another crate. `seen` has the names that are being looked up.
fn resolve<'a>(
    source: &'a Source,
    module: usize,
    path: &'a [String],
    seen: &mut HashSet<(usize, &'a str)>,
) -> Vec<Target> {
    let Some((first, mut rest)) = path.split_first() else { return Vec::new() };
    let mut targets = match first.as_str() {
        "crate" => vec![Target::Module(0)],
        "self" => vec![Target::Module(module)],
        "super" => source.modules[module].parent.map(Target::Module).into_iter().collect(),
        name => look_up(source, module, name, seen),
    };
    while let Some((name, more)) = rest.split_first() {
        rest = more;
        targets = targets
            .into_iter()
            .flat_map(|target| match target {
                Target::Module(module) if name == "super" => {
                    source.modules[module].parent.map(Target::Module).into_iter().collect()
                }
                Target::Module(module) => {
                    let found = look_up(source, module, name, seen);
                    // A macro defines it, or it is re-exported from another crate.
                    if found.is_empty() { vec![Target::ItemOf(module)] } else { found }
                }
                // A variant or an associated item.
                Target::ItemOf(_) => vec![target],
            })
            .collect();
    }
    targets
}

/// What a name stands for in a module.
fn look_up<'a>(
    source: &'a Source,
    module: usize,
    name: &'a str,
    seen: &mut HashSet<(usize, &'a str)>,
) -> Vec<Target> {
    if !seen.insert((module, name)) {
        return Vec::new();
    }
    let Module { names, globs, .. } = &source.modules[module];
    let found = match names.get(name) {
        Some(definitions) => definitions
            .iter()
            .flat_map(|definition| match definition {
                Definition::Module(child) => vec![Target::Module(*child)],
                Definition::Item => vec![Target::ItemOf(module)],
                Definition::Import(path) => resolve(source, module, path, seen),
            })
            .collect(),
        None => globs
            .iter()
            .flat_map(|glob| resolve(source, module, glob, seen))
            .collect::<Vec<_>>()
            .into_iter()
            .flat_map(|target| match target {
                Target::Module(other) => look_up(source, other, name, seen),
                Target::ItemOf(_) => Vec::new(),
            })
            .collect(),
    };
    seen.remove(&(module, name));
    found
}
