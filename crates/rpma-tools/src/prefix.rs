// SPDX-License-Identifier: BSD-3-Clause
//! The prefix that this program belongs to, and the libraries in it.

use std::env;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name of the directory in which a multiarch distribution has its libraries.
pub(crate) fn multiarch() -> String {
    let arch = match env::consts::ARCH {
        "powerpc64" => "powerpc64le",
        arch => arch,
    };
    format!("{arch}-linux-gnu")
}

/// The directories of a prefix in which libraries may be.
pub(crate) fn lib_dirs(prefix: &Path) -> [PathBuf; 3] {
    [prefix.join("lib"), prefix.join("lib").join(multiarch()), prefix.join("lib64")]
}

/// The possible places of a library in a prefix: once installed, a directory `softverbs` that the dynamic
/// linker does not search; in the prefix that `make` builds, the library directory itself.
fn places(prefix: &Path, file: &str) -> impl Iterator<Item = PathBuf> {
    lib_dirs(prefix).into_iter().flat_map(move |dir| [dir.join("softverbs").join(file), dir.join(file)])
}

/// The path with which this program was executed; that of std needs /proc, which a chroot may lack.
fn executed() -> Option<PathBuf> {
    // SAFETY: getauxval only reads the values that the kernel passed to the process.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    if name.is_null() {
        return None;
    }
    // SAFETY: the value of AT_EXECFN is the address of a C string that lives as long as the process
    // (getauxval(3)).
    let name = unsafe { CStr::from_ptr(name) };
    Path::new(OsStr::from_bytes(name.to_bytes())).canonicalize().ok()
}

/// The parent of this program's directory.
pub(crate) fn own() -> Option<PathBuf> {
    let exe = env::current_exe().ok().or_else(executed)?;
    Some(exe.parent()?.parent()?.to_owned())
}

/// A library of the prefix that this program belongs to.
pub(crate) fn library(file: &str) -> Option<PathBuf> {
    places(&own()?, file).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `make install`, the packages of Debian and of others, and the prefix that `make` leaves.
    #[test]
    fn a_library_is_looked_for_where_it_is_installed() {
        const LIBRARY: &str = "libsoftverbs.so";
        let places: Vec<PathBuf> = places(Path::new("/usr"), LIBRARY).collect();
        for place in ["lib/softverbs", "lib64/softverbs", "lib"] {
            assert!(places.contains(&Path::new("/usr").join(place).join(LIBRARY)), "{place}: {places:?}");
        }
        #[cfg(target_arch = "x86_64")]
        assert!(places.contains(&"/usr/lib/x86_64-linux-gnu/softverbs/libsoftverbs.so".into()), "{places:?}");
    }
}
