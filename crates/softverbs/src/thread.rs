// SPDX-License-Identifier: BSD-3-Clause
//! The threads of this crate.

use std::ffi::CStr;

use crate::sys::{self, Errno};

/// What a thread runs.
type Body = Box<dyn FnOnce() + Send>;

/// Starts a detached thread with this name. It runs no signal handler of the program. EAGAIN,
/// ENOMEM.
///
/// `std::thread` keeps values with destructors for each thread, on the side of the creator, too, and glibc
/// aborts the process when it has no memory to note a destructor. The threads of this crate use nothing of
/// that.
pub(crate) fn spawn(name: &'static CStr, body: Body) -> Result<(), Errno> {
    extern "C" fn start(arg: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: `arg` is the box that `spawn` has given to this thread alone.
        let (name, body) = *unsafe { Box::from_raw(arg.cast::<(&CStr, Body)>()) };
        let _ = rustix::thread::set_name(name);
        sys::runs_no_handlers();
        body();
        std::ptr::null_mut()
    }
    const STACK: usize = 256 * 1024;
    let arg = Box::into_raw(Box::new((name, body)));
    // SAFETY: all-zero is memory for attributes, which pthread_attr_init initialises before anything else is
    // done with them. `start` takes over `arg`, unless no thread was created.
    let failed = sys::without_signals(|| unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread: libc::pthread_t = std::mem::zeroed();
        let mut failed = libc::pthread_attr_init(&mut attr);
        if failed == 0 {
            libc::pthread_attr_setdetachstate(&mut attr, libc::PTHREAD_CREATE_DETACHED);
            libc::pthread_attr_setstacksize(&mut attr, STACK);
            failed = libc::pthread_create(&mut thread, &attr, start, arg.cast());
            libc::pthread_attr_destroy(&mut attr);
        }
        failed
    });
    if failed == 0 {
        return Ok(());
    }
    // SAFETY: no thread was created, so the box is still this function's.
    drop(unsafe { Box::from_raw(arg) });
    Err(failed)
}
