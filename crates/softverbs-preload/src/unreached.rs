// SPDX-License-Identifier: BSD-3-Clause
//! A warning at exit for programs that bypass this library: they load libibverbs with dlopen(3) and look up
//! its functions with dlsym(3), which finds those of libibverbs unless `libsoftverbs-dl.so` is loaded as
//! well. Such a program does not find `soft0`, and nothing else would tell the user why.
//!
//! A program counts as bypassing if it was not linked with libibverbs, has loaded it since, and has called no
//! function of this library.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{messages, real};

/// The beginning of the name of its file.
const LIBIBVERBS: &[u8] = b"libibverbs.so.1";
const AUDIT: &[u8] = b"libsoftverbs-dl.so";

/// The program or one of its libraries is linked with libibverbs, so its calls are bound to this library.
static IS_LINKED: AtomicBool = AtomicBool::new(false);

/// Whether libibverbs is loaded. Unlike dlopen(3) with RTLD_NOLOAD, this does not search the file system.
fn is_loaded() -> bool {
    // SAFETY: `is_libibverbs` has the signature of a callback and does not use its last argument.
    unsafe { libc::dl_iterate_phdr(Some(is_libibverbs), ptr::null_mut()) != 0 }
}

/// Returns 1, which ends the iteration, for libibverbs.
unsafe extern "C" fn is_libibverbs(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid object whose name is null or a C string, and keeps both until the
    // callback returns.
    let name = unsafe {
        let name = (*info).dlpi_name;
        if name.is_null() {
            return 0;
        }
        CStr::from_ptr(name)
    };
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next();
    c_int::from(file.is_some_and(|file| file.starts_with(LIBIBVERBS)))
}

extern "C" fn at_load() {
    IS_LINKED.store(is_loaded(), Ordering::Relaxed);
}

extern "C" fn at_exit() {
    if IS_LINKED.load(Ordering::Relaxed) || messages::has_begun() || real::was_called() || !is_loaded() {
        return;
    }
    let is_audited = softverbs::config::variable("LD_AUDIT")
        .is_some_and(|libraries| libraries.as_encoded_bytes().windows(AUDIT.len()).any(|name| name == AUDIT));
    if !is_audited {
        messages::warn(
            "libibverbs was loaded with dlopen, and dlsym has found its functions, not those of soft0; \
             'rpma run --dlsym' makes it find soft0",
        );
    }
}

// SAFETY: the loader calls what this section points to once, when the library is loaded; the function only
// calls dl_iterate_phdr, which is permitted in a constructor.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

// SAFETY: the loader calls what this section points to once, while the C library is still usable.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
