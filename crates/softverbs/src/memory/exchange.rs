// SPDX-License-Identifier: BSD-3-Clause
//! Changing eight aligned bytes with one atomic operation, which cannot cause a signal in this process.
//!
//! The operation is a compare-and-swap of the processor, so it is atomic against those of all other
//! connections, processes and threads. No system call makes one of eight bytes (futex(2) knows four). So
//! another process makes it, which exists for this alone and shares the memory of this one, as a child of
//! vfork(2) does, but not its signal handlers: where this process would get SIGSEGV or SIGBUS, that one ends.
//! An operation takes 25 to 40 us like this, most of which is the child's beginning and end (0.4 us without a
//! child); with many open descriptors more, as for posix_spawn(3).
//!
//! If there can be no child, or one that does not share the memory (a limit, a sandbox, valgrind), this
//! process makes the operation, immediately after the kernel has checked the page. Then the memory must not
//! go away between the two, as for words ([`super::place`]).

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::table::acquire;
use crate::sys;
use transport::access::{Access, Accessor, Unchanged};

/// What eight bytes become, by what they are.
type Change<'a> = &'a dyn Fn(u64) -> u64;

/// Changes the eight bytes of an access, a number in the byte order of this host, and returns what they were.
pub(crate) fn change(access: Access, by: impl Into<Accessor>, change: Change<'_>) -> Result<u64, Unchanged> {
    let grant = acquire(access, by).map_err(Unchanged::Denied)?;
    if access.len != 8 || grant.addr() % 8 != 0 {
        return Err(Unchanged::Misaligned);
    }
    // SAFETY: the grant permits to write these eight bytes, whose address is aligned.
    unsafe { exchange(grant.addr(), change, true) }
}

/// # Safety
///
/// The caller must hold a grant to write the eight bytes at `addr`, which must be aligned.
unsafe fn exchange(addr: u64, change: Change<'_>, by_child: bool) -> Result<u64, Unchanged> {
    let task = Task { addr, change, stage: AtomicU32::new(NOT_RUN), original: AtomicU64::new(0) };
    if by_child {
        run_in_child(&task);
    }
    match task.stage.load(Ordering::Acquire) {
        DONE => return Ok(task.original.load(Ordering::Relaxed)),
        NOT_RUN => {}
        _ => return Err(Unchanged::Fault),
    }
    // Between the check and the operation there is nothing else, so that the memory has as little time as
    // possible to go away.
    sys::make_writable(addr).map_err(|_| Unchanged::Fault)?;
    // SAFETY: as the caller says, and the kernel has found the page mapped and writable.
    Ok(unsafe { compare_and_swap(addr, change) })
}

/// # Safety
///
/// The eight bytes at `addr` must be aligned, and may be accessed as [`exchange`] says. Whether they are
/// mapped is the caller's business.
unsafe fn compare_and_swap(addr: u64, change: Change<'_>) -> u64 {
    // SAFETY: the address is aligned, and memory that others change meanwhile is what an atomic is for.
    let word = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
    let mut original = word.load(Ordering::SeqCst);
    loop {
        match word.compare_exchange(original, change(original), Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return original,
            Err(now) => original = now,
        }
    }
}

/// The child has not run, or what it has changed is not seen here.
const NOT_RUN: u32 = 0;
/// It has begun; if the child has ended, the memory access has ended it.
const BEGUN: u32 = 1;
const DONE: u32 = 2;

/// What the child is to do, and how far it is.
struct Task<'a> {
    addr: u64,
    change: Change<'a>,
    stage: AtomicU32,
    original: AtomicU64,
}

/// More than the frame of a signal, which is up to 11 KiB long with the registers of large vectors.
const STACK: usize = 64 * 1024;

/// Has the child do it, waits for its end and returns how it has ended (wait4(2)), if there was one. This
/// thread stands still while the child runs, so the child can use what is this thread's: it has the same
/// thread pointer.
fn run_in_child(task: &Task<'_>) -> Option<libc::c_int> {
    let mut stack = Vec::<u8>::new();
    stack.try_reserve_exact(STACK).ok()?;
    let top = (stack.as_mut_ptr() as usize + STACK) & !15;
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` and `before` are signal sets. The child runs `run` on a stack of its own, which lives
    // until the child is over, as does the task: with CLONE_VFORK the call returns after that. Handlers of
    // the program do not run in the child: all signals are blocked there but the two for which it sets
    // handlers of its own, which with its own table of handlers are not this process's.
    let pid = unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let task: *const Task<'_> = task;
        let pid = libc::clone(
            run,
            top as *mut libc::c_void,
            libc::CLONE_VM | libc::CLONE_VFORK,
            task.cast_mut().cast(),
        );
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        pid
    };
    if pid < 0 {
        return None;
    }
    let mut status: libc::c_int = 0;
    // SAFETY: the kernel stores the status in the variable. The child sends no signal at its end, so only who
    // asks for such children finds it. A function of the C library would be a place to cancel the thread.
    let wait = || unsafe { libc::syscall(libc::SYS_wait4, pid, &raw mut status, libc::__WALL, 0usize) };
    (sys::again(wait) == libc::c_long::from(pid)).then_some(status)
}

/// In the child. It calls nothing that takes a lock, allocates or keeps anything.
extern "C" fn run(task: *mut libc::c_void) -> libc::c_int {
    // SAFETY: this is the task of the thread that waits for this process.
    let task = unsafe { &*task.cast::<Task<'_>>() };
    if end_at_faults() {
        task.stage.store(BEGUN, Ordering::Relaxed);
        // SAFETY: the waiting thread holds the grant, and has checked the alignment. If the bytes are not
        // mapped, this process ends.
        let original = unsafe { compare_and_swap(task.addr, task.change) };
        task.original.store(original, Ordering::Relaxed);
        task.stage.store(DONE, Ordering::Release);
    }
    end()
}

/// As the kernel has it, on x86-64 and on AArch64.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[repr(C)]
struct Sigaction {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

/// Has this process end at SIGSEGV and SIGBUS, without dumping core: that would end all processes with this
/// memory. Not by sigaction(3), as programs and tools replace that and remember what they are told, in memory
/// that is the program's, too.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn end_at_faults() -> bool {
    /// Without it the kernel of x86-64 delivers no signal; nobody returns from the handler.
    const SA_RESTORER: libc::c_ulong = 0x0400_0000;
    extern "C" fn fault(_signal: libc::c_int) {
        end();
    }
    let handler = fault as extern "C" fn(libc::c_int) as usize;
    let action = Sigaction { handler, flags: SA_RESTORER, restorer: handler, mask: 0 };
    let faults = 1u64 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1);
    let set = |signal: libc::c_int| {
        // SAFETY: the kernel reads the action, whose handler is a function that may run at any time.
        let ret = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const action, 0usize, size_of::<u64>())
        };
        ret == 0
    };
    // SAFETY: the kernel reads the set.
    let unblock = || unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_UNBLOCK,
            &raw const faults,
            0usize,
            size_of::<u64>(),
        )
    };
    set(libc::SIGSEGV) && set(libc::SIGBUS) && unblock() == 0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn end_at_faults() -> bool {
    false
}

fn end() -> ! {
    loop {
        // SAFETY: ends this process, and nothing else: no function is called that the program has registered
        // for its end.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    }
}

#[cfg(test)]
mod tests;
