// SPDX-License-Identifier: BSD-3-Clause
//! The threads of this crate.

use std::ffi::CStr;

use crate::sys::{self, Errno};

/// The main function of a thread.
type Body = Box<dyn FnOnce() + Send>;

/// Starts a detached thread with this name and with all signals blocked. EAGAIN, ENOMEM.
///
/// `std::thread` uses thread-locals with destructors, in the creator, too, and glibc aborts the process if it
/// has no memory to register one. This function uses none.
pub(crate) fn spawn(name: &'static CStr, body: Body) -> Result<(), Errno> {
    extern "C" fn start(arg: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: `arg` is the box that `spawn` has passed to this thread only.
        let (name, body) = *unsafe { Box::from_raw(arg.cast::<(&CStr, Body)>()) };
        let _ = rustix::thread::set_name(name);
        sys::mark_library_thread();
        body();
        std::ptr::null_mut()
    }
    const STACK: usize = 256 * 1024;
    let arg = Box::into_raw(Box::new((name, body)));
    // SAFETY: pthread_attr_init initialises the zeroed attributes before their first use. `start` becomes the
    // owner of `arg`, unless no thread was created.
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
    // SAFETY: no thread was created, so this function still owns the box.
    drop(unsafe { Box::from_raw(arg) });
    Err(failed)
}
