// SPDX-License-Identifier: BSD-3-Clause
//! Which librpma a program gets, which others are installed, and which one programs are built with.

use std::path::Path;

use super::report::{Remedy, Report};
use crate::library::{Library, SONAME};
use crate::prefix;
use crate::system::System;
use crate::system::installed::{installed, output, package};

/// The hint for an old release.
const NEWER: &str = "install librpma0 and librpma-dev 1.4 or newer";

/// The library that the other checks use: the one that a program gets, or the one of this prefix if the
/// former is too old.
pub(super) fn check(system: &System, report: &mut Report) -> Option<&'static Library> {
    let linkers = Library::load(SONAME);
    let own = prefix::library(SONAME).and_then(|path| path.canonicalize().ok());
    let used = match &linkers {
        Ok(library) => {
            let found = name(library.path(), library.version());
            match &own {
                Some(own) if own != library.path() => report.warn(
                    "library",
                    format!("programs run with {found}, not with {}", name_of(own)),
                    where_to_look(system, own),
                ),
                _ if library.version().is_none() => report.warn(
                    "library",
                    format!(
                        "{found}: older than 1.4, without the soft provider and without reasons of failures"
                    ),
                    Remedy::hint(NEWER),
                ),
                _ => report.ok("library", found),
            }
            Some(library.path().to_owned())
        }
        Err(why) => {
            match &own {
                Some(own) => report.warn(
                    "library",
                    format!("programs find no {SONAME} ({why}), but there is {}", name_of(own)),
                    where_to_look(system, own),
                ),
                None => {
                    report.fail("library", format!("there is no {SONAME}: {why}"), "apt-get install librpma0")
                }
            }
            None
        }
    };
    let others: Vec<String> = installed(own.as_deref())
        .into_iter()
        .filter(|path| Some(path) != used.as_ref() && Some(path) != own.as_ref())
        .map(|path| name_of(&path))
        .collect();
    if !others.is_empty() {
        report.ok("libraries", format!("also installed: {}", others.join(", ")));
    }
    if let Some(wanted) = own.as_deref().or(used.as_deref()) {
        built_with(wanted, report);
    }
    let newest = |library: &&Library| library.version().is_some();
    let linkers = linkers.ok();
    match own.filter(|_| !linkers.as_ref().is_some_and(newest)).and_then(|own| Library::load(own).ok()) {
        Some(own) => Some(own),
        None => linkers,
    }
}

/// The command that makes the dynamic linker find this file.
fn where_to_look(system: &System, library: &Path) -> String {
    let dir = library.parent().unwrap_or(Path::new("/"));
    if is_configured(system, dir) {
        return "ldconfig  # as root: the directory is among those of ld.so.conf".to_owned();
    }
    format!("export LD_LIBRARY_PATH={}", dir.display())
}

/// Whether /etc/ld.so.conf names a directory.
fn is_configured(system: &System, dir: &Path) -> bool {
    let has = |path: &Path| {
        system.read(path).is_some_and(|text| text.lines().any(|line| Path::new(line.trim()) == dir))
    };
    has(Path::new("/etc/ld.so.conf"))
        || system
            .names("/etc/ld.so.conf.d")
            .iter()
            .any(|name| has(&Path::new("/etc/ld.so.conf.d").join(name)))
}

fn name(path: &Path, version: Option<String>) -> String {
    let path_shown = path.display();
    match (version, package(path)) {
        (Some(version), _) => format!("librpma {version}, {path_shown}"),
        (None, Some(package)) => format!("{package}, {path_shown}"),
        (None, None) => format!("librpma of a release before 1.4, {path_shown}"),
    }
}

fn name_of(path: &Path) -> String {
    match Library::load(path) {
        Ok(library) => name(path, library.version()),
        Err(why) => format!("{} (cannot be loaded: {why})", path.display()),
    }
}

/// Reports a build that pkg-config directs to a library other than `wanted`: that of this prefix or, without
/// one, the library that programs run with.
fn built_with(wanted: &Path, report: &mut Report) {
    let Some(version) = output("pkg-config", &["--modversion", "librpma"]) else { return };
    let Some(dir) = output("pkg-config", &["--variable=libdir", "librpma"]) else { return };
    let found = Path::new(dir.trim()).join(SONAME).canonicalize();
    let text = format!("pkg-config builds with librpma {} of {}", version.trim(), dir.trim());
    if !Library::load(wanted).is_ok_and(|library| library.version().is_some()) {
        return report.warn("build", text, Remedy::hint(NEWER));
    }
    if found.is_ok_and(|found| found == wanted) {
        return report.ok("build", text);
    }
    let text = format!("{text}, not with {}", wanted.display());
    let dir = wanted.parent().unwrap_or(Path::new("/")).join("pkgconfig");
    if dir.join("librpma.pc").exists() {
        report.warn("build", text, format!("export PKG_CONFIG_PATH={}", dir.display()));
    } else {
        report.warn("build", text, Remedy::hint("install librpma-dev of the same release"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Fake;

    #[test]
    fn the_fix_depends_on_where_the_dynamic_linker_looks() {
        let fake = Fake::new(
            "libraries",
            &[
                ("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n"),
                ("/etc/ld.so.conf.d/libc.conf", "# libc\n/usr/local/lib\n"),
            ],
        );
        let fix = |path| where_to_look(&fake.system, Path::new(path));
        assert!(fix("/usr/local/lib/librpma.so.0").starts_with("ldconfig"));
        assert_eq!(fix("/opt/rpma/lib/librpma.so.0"), "export LD_LIBRARY_PATH=/opt/rpma/lib");
    }

    #[test]
    fn a_library_without_a_version_is_an_old_one() {
        let path = Path::new("/there/is/no/librpma.so.0");
        assert!(name(path, Some("1.4.0".into())).starts_with("librpma 1.4.0, /there"));
        assert!(name(path, None).contains("before 1.4"));
        assert!(name_of(path).contains("cannot be loaded"));
    }
}
