// SPDX-License-Identifier: BSD-3-Clause
//! The version and the file of this library.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use rpma_log::text::{Lossy, c_literal};

/// The version of the package.
pub const VERSION: &CStr = c_literal(concat!(env!("CARGO_PKG_VERSION"), "\0"));

/// Logs version and path once per process: the program may have loaded a different library than its user
/// expects.
pub fn announce() {
    static ANNOUNCED: AtomicBool = AtomicBool::new(false);
    if !ANNOUNCED.swap(true, Ordering::Relaxed) {
        log_notice!("librpma {} ({})", Lossy(VERSION.to_bytes()), Lossy(path().to_bytes()));
    }
}

/// The file that this code was loaded from, as the loader reports it.
fn path() -> &'static CStr {
    // SAFETY: an all-zero Dl_info is valid. dladdr accepts any address; the strings that it returns for an
    // address in this library are valid until the library is unloaded, together with this code.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let here: fn() = announce;
        if libc::dladdr(here as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return c"unknown path";
        }
        CStr::from_ptr(info.dli_fname)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{LIBRPMA_VERSION_MAJOR, LIBRPMA_VERSION_MINOR, LIBRPMA_VERSION_PATCH};

    #[test]
    fn the_macros_are_the_version_of_the_package() {
        let numbers = format!("{LIBRPMA_VERSION_MAJOR}.{LIBRPMA_VERSION_MINOR}.{LIBRPMA_VERSION_PATCH}");
        assert_eq!(VERSION.to_str(), Ok(numbers.as_str()));
        assert!(path().to_str().unwrap().contains("rpma"), "{:?}", path());
    }

    #[test]
    fn the_makefile_has_the_version_of_the_package() {
        let makefile = include_str!("../../../Makefile");
        let version = makefile.lines().find_map(|line| line.strip_prefix("VERSION := "));
        assert_eq!(version, VERSION.to_str().ok());
    }
}
