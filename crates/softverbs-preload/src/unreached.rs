// SPDX-License-Identifier: BSD-3-Clause
//! A warning at exit for programs that bypass this library: they load libibverbs with dlopen(3) and look up
//! its functions with dlsym(3), which finds those of libibverbs unless `libsoftverbs-dl.so` is loaded as
//! well. Such a program does not find `soft0`, and nothing else would tell the user why.
//!
//! A program counts as bypassing if it was not linked with libibverbs, has loaded it since, and has called no
//! function of this library.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{messages, real};

const LIBIBVERBS: &CStr = c"libibverbs.so.1";
const AUDIT: &[u8] = b"libsoftverbs-dl.so";

/// The program or one of its libraries is linked with libibverbs, so its calls are bound to this library.
static IS_LINKED: AtomicBool = AtomicBool::new(false);

/// Whether libibverbs is loaded.
fn is_loaded() -> bool {
    // SAFETY: the name is a C string. RTLD_NOLOAD does not load the library, so no constructor runs; the
    // handle is closed once, and the program's own reference keeps the library loaded.
    unsafe {
        let handle = libc::dlopen(LIBIBVERBS.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        !handle.is_null() && libc::dlclose(handle) == 0
    }
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
// calls dlopen with RTLD_NOLOAD, which is permitted in a constructor.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

// SAFETY: the loader calls what this section points to once, while the C library is still usable.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
