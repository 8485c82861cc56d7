// SPDX-License-Identifier: BSD-3-Clause
//! The thread that serves the counters.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

const STACK: usize = 256 * 1024;

/// Starts a detached thread with all signals blocked.
///
/// Not `std::thread`, which uses thread-locals with destructors, in the creator, too: glibc aborts the
/// process if it has no memory to register one.
pub(super) fn spawn(body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    extern "C" fn start(arg: *mut c_void) -> *mut c_void {
        // For people alone.
        let _ = rustix::thread::set_name(c"rpma-metrics");
        // SAFETY: `arg` is the box that `spawn` has passed to this thread only.
        let body = unsafe { *Box::from_raw(arg.cast::<Box<dyn FnOnce() + Send>>()) };
        body();
        ptr::null_mut()
    }
    let arg = Box::into_raw(Box::new(body));
    let failed = without_signals(|| {
        let mut attr = MaybeUninit::uninit();
        let mut thread = MaybeUninit::uninit();
        // SAFETY: the attributes are used only between pthread_attr_init and pthread_attr_destroy. `start`
        // becomes the owner of `arg`, unless no thread was created.
        unsafe {
            let mut failed = libc::pthread_attr_init(attr.as_mut_ptr());
            if failed == 0 {
                libc::pthread_attr_setdetachstate(attr.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
                libc::pthread_attr_setstacksize(attr.as_mut_ptr(), STACK);
                failed = libc::pthread_create(thread.as_mut_ptr(), attr.as_ptr(), start, arg.cast());
                libc::pthread_attr_destroy(attr.as_mut_ptr());
            }
            failed
        }
    });
    if failed == 0 {
        return Ok(());
    }
    // SAFETY: no thread was created, so this function still owns the box.
    drop(unsafe { Box::from_raw(arg) });
    Err(io::Error::from_raw_os_error(failed))
}

/// Runs `body` with all signals blocked, and consumes a SIGXFSZ that it caused.
pub(super) fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: sigfillset and pthread_sigmask initialise the sets that they are given, and neither fails with
    // these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = body();
    // SAFETY: `before` was initialised above; the set and the timeout outlive the calls.
    unsafe {
        if libc::sigismember(before.as_ptr(), libc::SIGXFSZ) == 0 {
            let mut one = MaybeUninit::uninit();
            libc::sigemptyset(one.as_mut_ptr());
            libc::sigaddset(one.as_mut_ptr(), libc::SIGXFSZ);
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(one.as_ptr(), ptr::null_mut(), &at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
    }
    result
}
