// SPDX-License-Identifier: BSD-3-Clause
//! The librpma that are installed on this host, and the packages of files.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::library::SONAME;
use crate::prefix;

/// The output of a program, if it exits with status 0.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The package that a file belongs to, with its version, according to the package managers.
pub(crate) fn package(path: &Path) -> Option<String> {
    let by_dpkg = |path: &str| {
        let owner = output("dpkg-query", &["-S", path])?;
        let package = owner.split_once(": ")?.0.split(',').next()?.to_owned();
        Some(format!("{package} {}", output("dpkg-query", &["-W", "-f", "${Version}", &package])?))
    };
    let path = path.to_str()?;
    // dpkg may have the path from before /lib became a link to /usr/lib.
    by_dpkg(path)
        .or_else(|| by_dpkg(path.strip_prefix("/usr")?))
        .or_else(|| output("rpm", &["-qf", "--qf", "%{NAME} %{VERSION}-%{RELEASE}", path]))
}

/// The library files that are in the cache of the dynamic linker, in LD_LIBRARY_PATH or in the usual places.
pub(crate) fn installed(own: Option<&Path>) -> BTreeSet<PathBuf> {
    let cache = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"]
        .iter()
        .find_map(|program| output(program, &["-p"]));
    let cached = cache.unwrap_or_default();
    let cached = cached.lines().filter(|line| line.trim_start().starts_with(SONAME));
    let cached = cached.filter_map(|line| Some(PathBuf::from(line.split_once(" => ")?.1)));
    let search = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual =
        ["/usr", "/usr/local", "/"].into_iter().flat_map(|prefix| prefix::lib_dirs(Path::new(prefix)));
    let dirs = env::split_paths(&search).filter(|dir| !dir.as_os_str().is_empty()).chain(usual);
    let in_dirs = dirs.map(|dir| dir.join(SONAME));
    cached.chain(in_dirs).chain(own.map(Path::to_owned)).filter_map(|path| path.canonicalize().ok()).collect()
}
