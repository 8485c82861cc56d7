// SPDX-License-Identifier: BSD-3-Clause
//! Atomic changes of eight aligned bytes that cannot cause a signal in this process.
//!
//! The operation is a compare-and-swap of the processor, so it is atomic against those of all other
//! connections, processes and threads. No system call does one of eight bytes (futex(2) has four). So a child
//! process does it, which exists for this alone and shares the memory of this process, as a child of vfork(2)
//! does, but not its signal handlers: where this process would get SIGSEGV or SIGBUS, the child ends. An
//! operation takes 25 to 40 us, most of it to start and end the child (0.4 us without a child), and longer
//! with many open descriptors, as for posix_spawn(3). Memory with a [`Backing`](super::Backing) cannot fault,
//! so there this process does it.
//!
//! If a child that shares the memory is not possible (a limit, a sandbox, valgrind), this process does the
//! operation, immediately after the kernel has checked the page. Then the memory must not be unmapped between
//! the two, as for words ([`super::place`]).

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::table::acquire;
use crate::sys;
use transport::access::{Access, Accessor, Unchanged};

/// Computes the new value from the current one.
type Change<'a> = &'a dyn Fn(u64) -> u64;

/// Changes the eight bytes of an access, a number in host byte order, and returns the previous value.
pub(crate) fn change(access: Access, by: impl Into<Accessor>, change: Change<'_>) -> Result<u64, Unchanged> {
    let grant = acquire(access, by).map_err(Unchanged::Denied)?;
    if access.len != 8 || grant.addr() % 8 != 0 {
        return Err(Unchanged::Misaligned);
    }
    if grant.is_backed() {
        // SAFETY: the grant permits to write these aligned bytes, which the library has mapped.
        return Ok(unsafe { compare_and_swap(grant.addr(), change) });
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
    // The operation follows the check directly, so that the memory can be unmapped between them only within a
    // minimal time.
    sys::make_writable(addr).map_err(|_| Unchanged::Fault)?;
    // SAFETY: the caller holds a grant for these aligned bytes, and the kernel has found their page mapped
    // and writable.
    Ok(unsafe { compare_and_swap(addr, change) })
}

/// # Safety
///
/// The eight bytes at `addr` must be aligned, and the caller must hold a grant to write them. If they are not
/// mapped, the process gets a signal.
unsafe fn compare_and_swap(addr: u64, change: Change<'_>) -> u64 {
    // SAFETY: the caller guarantees alignment and a grant; the word is used only as an atomic, so concurrent
    // changes by others are no data race.
    let word = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
    let mut original = word.load(Ordering::SeqCst);
    loop {
        match word.compare_exchange(original, change(original), Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return original,
            Err(now) => original = now,
        }
    }
}

/// The child has not run, or does not share this memory.
const NOT_RUN: u32 = 0;
/// It has begun; if the child has ended, the memory access has killed it.
const BEGUN: u32 = 1;
const DONE: u32 = 2;

/// The task of the child, and its progress.
struct Task<'a> {
    addr: u64,
    change: Change<'a>,
    stage: AtomicU32,
    original: AtomicU64,
}

/// More than a signal frame, which has up to 11 KiB with the vector registers.
const STACK: usize = 64 * 1024;

/// Runs the task in a child, waits for its end and returns its wait status (wait4(2)); `None` if there is no
/// child. This thread is suspended while the child runs, so the child may use its thread-local data: it has
/// the same thread pointer.
fn run_in_child(task: &Task<'_>) -> Option<libc::c_int> {
    let mut stack = Vec::<u8>::new();
    stack.try_reserve_exact(STACK).ok()?;
    let top = (stack.as_mut_ptr() as usize + STACK) & !15;
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` and `before` are signal sets. The child runs `run` on the separate stack `stack`; stack
    // and task live until the child has ended, as clone with CLONE_VFORK returns only after that. No handler
    // of the program runs in the child: all signals are blocked there except the two for which it sets
    // handlers, and without CLONE_SIGHAND that does not affect this process.
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
    // SAFETY: the kernel stores the status in the variable. The child sends no signal at its end, so only a
    // wait with __WALL or __WCLONE finds it. waitpid(3) of the C library would be a cancellation point.
    let wait = || unsafe { libc::syscall(libc::SYS_wait4, pid, &raw mut status, libc::__WALL, 0usize) };
    (sys::again(wait) == libc::c_long::from(pid)).then_some(status)
}

/// Runs in the child. Calls nothing that takes a lock, allocates, or changes state of the C library.
extern "C" fn run(task: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the argument of clone(2), the task of the thread that waits for this process; it outlives the
    // process.
    let task = unsafe { &*task.cast::<Task<'_>>() };
    if end_at_faults() {
        task.stage.store(BEGUN, Ordering::Relaxed);
        // SAFETY: the waiting thread holds the grant and has checked the alignment. If the bytes are not
        // mapped, only this process ends.
        let original = unsafe { compare_and_swap(task.addr, task.change) };
        task.original.store(original, Ordering::Relaxed);
        task.stage.store(DONE, Ordering::Release);
    }
    end()
}

/// The kernel's `struct sigaction`, on x86-64 and on AArch64.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[repr(C)]
struct Sigaction {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

/// Makes SIGSEGV and SIGBUS end this process without a core dump, which would end all processes with this
/// memory. Not with sigaction(3): programs and tools interpose it and record the handler in memory that the
/// child shares.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn end_at_faults() -> bool {
    /// Without it the x86-64 kernel delivers no signal. The handler never returns.
    const SA_RESTORER: libc::c_ulong = 0x0400_0000;
    extern "C" fn fault(_signal: libc::c_int) {
        end();
    }
    let handler = fault as extern "C" fn(libc::c_int) as usize;
    let action = Sigaction { handler, flags: SA_RESTORER, restorer: handler, mask: 0 };
    let faults = 1u64 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1);
    let set = |signal: libc::c_int| {
        // SAFETY: the kernel reads the action. Its handler only calls exit_group(2), so it may interrupt any
        // code.
        let ret = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const action, 0usize, size_of::<u64>())
        };
        ret == 0
    };
    // SAFETY: the kernel only reads the set, which lives until the call returns.
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
        // SAFETY: the call only ends this process: functions that the program has registered with atexit(3)
        // do not run.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    }
}

#[cfg(test)]
mod tests;
