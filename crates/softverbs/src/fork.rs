// SPDX-License-Identifier: BSD-3-Clause
//! Fork handlers: the child closes the parent's sockets.
//!
//! Otherwise a child that does not execute another program would keep every connection of its parent open,
//! and a peer would not detect the parent's end. Such a child cannot use them anyway: the engine runs in the
//! parent only.
//!
//! A table has the numbers of all sockets. In the child a handler of pthread_atfork(3) replaces each socket
//! by /dev/null under the same number: if the child wrongly deletes an object of the parent, that closes
//! /dev/null and not a file which the child has opened since. Nor does such a deletion affect the parent's
//! connection or the epoll sets, which both processes share.
//!
//! The memory that a connection shares with a peer on the same host is not mapped in the child
//! (MADV_DONTFORK); code that accesses it first compares the [`generation`].
//!
//! Events of the device belong to the process that has opened it: a child has none, also of the port, until
//! it opens the device itself (`ffi/verbs/events.rs`). With an adapter, a child that reads the descriptor of
//! its parent's context takes the events of its parent, so no program does that.
//!
//! vfork(2) and posix_spawn(3) call no handlers; the program that they execute does not inherit the sockets,
//! which are close-on-exec.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{MutexGuard, TryLockError};

use crate::process::PerProcess;

/// Descriptors in one part of the table.
const PART: usize = 64 * 512;
/// Parts of the table: 33 million descriptors, more than a process may have.
const PARTS: usize = 1024;
/// The number of times that a fork tries to get the lock before it proceeds without.
const TRIES: u32 = 1000;

type Part = [AtomicU64; PART / 64];

/// One bit for each descriptor, set for sockets of this library. Parts are allocated on first use and never
/// freed.
static TABLE: [AtomicPtr<Part>; PARTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PARTS];

/// Held while the table and the open sockets differ, and during a fork.
static CHANGING: PerProcess<()> = PerProcess::new();

/// The number of forks between the process that loaded the library and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The generation of this process. A fork increments it in the child: objects with another generation belong
/// to the parent.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// The number of forks of this process and its ancestors: changes in the parent, too.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Changes with each fork, in both processes.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> libc::c_int;
}

type Held = ManuallyDrop<MutexGuard<'static, Option<()>>>;

thread_local! {
    /// The lock, held during this thread's fork. Without a destructor: the C library aborts the process if it
    /// has no memory to register one.
    static FORKING: Cell<Option<Held>> = const { Cell::new(None) };
}

/// Creates or closes a socket, with [`note`] or [`forget`], atomically with respect to forks.
pub(crate) fn undivided<T>(change: impl FnOnce() -> T) -> T {
    static HANDLERS: AtomicBool = AtomicBool::new(false);
    if !HANDLERS.swap(true, Ordering::AcqRel) {
        // SAFETY: the handlers are functions of this library, which is never unloaded (-z nodelete), and may
        // run on any thread.
        unsafe { pthread_atfork(Some(before), Some(after), Some(in_child)) };
    }
    let _changing = crate::lock(CHANGING.get());
    change()
}

fn word(fd: RawFd, make: bool) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    let slot = TABLE.get(fd / PART)?;
    let mut part = slot.load(Ordering::Acquire);
    if part.is_null() {
        if !make {
            return None;
        }
        // The caller holds the lock, so no other thread allocates one at the same time.
        part = Box::into_raw(Box::new([const { AtomicU64::new(0) }; PART / 64]));
        slot.store(part, Ordering::Release);
    }
    let bit = fd % PART;
    // SAFETY: `part` comes from Box::into_raw above and is never freed.
    Some((unsafe { &(*part)[bit / 64] }, 1 << (bit % 64)))
}

/// Adds a socket to the table; within [`undivided`].
pub(crate) fn note(fd: RawFd) {
    if let Some((word, bit)) = word(fd, true) {
        word.fetch_or(bit, Ordering::Release);
    }
}

/// Removes a socket that is about to be closed; within [`undivided`].
pub(crate) fn forget(fd: RawFd) {
    if let Some((word, bit)) = word(fd, false) {
        word.fetch_and(!bit, Ordering::Release);
    }
}

extern "C" fn before() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // A signal handler may fork, also one that has interrupted the holder of the lock. So the fork must not
    // wait forever; a socket that is being created or closed may then stay open in the child.
    for _ in 0..TRIES {
        match CHANGING.get().try_lock() {
            Ok(guard) => return FORKING.set(Some(ManuallyDrop::new(guard))),
            Err(TryLockError::Poisoned(guard)) => {
                return FORKING.set(Some(ManuallyDrop::new(guard.into_inner())));
            }
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}

extern "C" fn after() {
    drop(FORKING.take().map(ManuallyDrop::into_inner));
}

/// Makes only async-signal-safe calls, as other threads of the parent may have held any lock, and no
/// cancellation points.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path is a C string literal, which the kernel only reads.
    let nothing = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), flags, 0) };
    for (number, slot) in TABLE.iter().enumerate() {
        let part = slot.load(Ordering::Acquire);
        if part.is_null() {
            continue;
        }
        // SAFETY: a part that is in the table is never freed.
        for (index, word) in unsafe { (*part).iter() }.enumerate() {
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let fd = number * PART + index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                // SAFETY: `fd` is the inherited copy of a socket of the parent, which no code in this process
                // may use.
                unsafe {
                    if nothing < 0 || libc::syscall(libc::SYS_dup3, nothing, fd, libc::O_CLOEXEC) < 0 {
                        libc::syscall(libc::SYS_close, fd);
                    }
                }
            }
        }
    }
    if nothing >= 0 {
        // SAFETY: the descriptor was opened above, and nothing else uses it.
        unsafe { libc::syscall(libc::SYS_close, nothing) };
    }
    after();
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{PoisonError, RwLock, RwLockReadGuard};

    use super::*;

    /// Held for writing by a test that forks.
    static FORKING: RwLock<()> = RwLock::new(());

    /// Prevents forks by tests until this is dropped. After a fork each process draws new evidence, so
    /// pending offers of shared memory become invalid.
    pub(crate) fn no_forks() -> RwLockReadGuard<'static, ()> {
        FORKING.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of `f` in a child; false also if the child is killed. `f` must be suitable for a child of a
    /// multithreaded process.
    pub(crate) fn in_child(f: impl FnOnce() -> bool) -> bool {
        let _alone = FORKING.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the child only calls `f` and _exit; with glibc malloc is usable after fork(2), and the
        // caller guarantees that `f` takes no lock of other threads.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(i32::from(!f())),
                child => {
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &mut status, 0), child);
                    status == 0
                }
            }
        }
    }

    #[test]
    fn the_table_has_descriptors_from_note_to_forget() {
        let fd = (PART + 70) as RawFd;
        let is_set = || word(fd, false).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0);
        assert!(!is_set());
        undivided(|| note(fd));
        assert!(is_set());
        undivided(|| forget(fd));
        assert!(!is_set());
        undivided(|| note(RawFd::MAX));
        undivided(|| forget(-1));
    }
}
