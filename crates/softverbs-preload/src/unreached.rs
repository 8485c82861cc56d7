// SPDX-License-Identifier: BSD-3-Clause
//! A warning for programs that this library does not reach: they load libibverbs with dlopen(3) and look its
//! functions up with dlsym(3), which finds those of libibverbs unless `libsoftverbs-dl.so` is loaded, too.
//! Such a program finds no device, and nothing else says why.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{messages, real};

const LIBIBVERBS: &CStr = c"libibverbs.so.1";
const AUDIT: &[u8] = b"libsoftverbs-dl.so";

/// The program or one of its libraries is linked with libibverbs, so its calls reach this library.
static IS_LINKED: AtomicBool = AtomicBool::new(false);

fn is_loaded() -> bool {
    // SAFETY: the name is a C string. The library is not loaded by this call, and a reference to one that is
    // loaded is given back.
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

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
