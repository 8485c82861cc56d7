// SPDX-License-Identifier: BSD-3-Clause
//! Fork handlers: the child closes the parent's sockets.
//!
//! Otherwise a child that does not execute another program would keep every connection of its parent open,
//! and a peer would not detect the parent's end. Such a child cannot use them anyway: the engine runs in the
//! parent only.
//!
//! A table contains the numbers of all sockets. In the child a handler of pthread_atfork(3) replaces each
//! socket by /dev/null under the same number. Rule: **no number of the parent's sockets is free in the
//! child** until an object of the parent is deleted there. So if the child wrongly deletes one, that closes
//! /dev/null and not a file which the child has opened since; nor does it affect the parent's connection or
//! the epoll sets, which both processes share. The library itself never drops values of the parent
//! (`process.rs`): the kernel copies descriptors before memory, and the memory page by page, while the other
//! threads of the parent run. Only what they do under the lock of [`undivided`], which the fork holds, is the
//! same in all copies.
//!
//! The memory that a connection shares with a peer on the same host is not mapped in the child
//! (MADV_DONTFORK); code that accesses it first compares the [`generation`].
//!
//! Events of the device belong to the process that has opened it: a child has none, not even those of the
//! port, until it opens the device itself (`ffi/verbs/events.rs`). With an adapter, a child that reads the
//! descriptor of its parent's context takes the events of its parent, so no program does that.
//!
//! vfork(2) and posix_spawn(3) call no handlers; the program that they execute does not inherit the sockets,
//! which are close-on-exec.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cancel::whole;
use crate::lock::lock_until;
use crate::process::PerProcess;

/// Descriptors in one part of the table.
const PART: usize = 64 * 512;
/// Parts of the table: 33 million descriptors, more than a process may have.
const PARTS: usize = 1024;
/// How long a fork waits for the lock before it proceeds without.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// Whether this thread holds the lock, and is not forking.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
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
    IS_INSIDE.set(true);
    let result = change();
    IS_INSIDE.set(false);
    result
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
    // A signal handler that has interrupted the holder of the lock may fork, or wait for a thread that does.
    // So the fork must not wait for its own thread, nor forever for another one; a socket that is being
    // created or closed may then stay open in the child.
    if !IS_INSIDE.get() {
        let held = whole(|| lock_until(CHANGING.get(), Instant::now() + LOCK_TIMEOUT));
        FORKING.set(held.map(ManuallyDrop::new));
    }
}

extern "C" fn after() {
    drop(FORKING.take().map(ManuallyDrop::into_inner));
}

/// Opens /dev/null, not with open(2), which is a cancellation point. `None`: there is no free descriptor.
fn open_placeholder() -> Option<RawFd> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path is a C string literal, which the kernel only reads.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), flags, 0) };
    RawFd::try_from(fd).ok().filter(|&fd| fd >= 0)
}

/// Closes the parent's socket with this number, or /dev/null; not with close(2), as above.
fn close(fd: RawFd) {
    // SAFETY: the descriptor is a copy that the child has inherited and no code of it may use, or it was
    // opened by the handler.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Makes `fd` another descriptor of the file `by`. False if the limit of descriptors does not permit that.
fn replace(fd: RawFd, by: RawFd) -> bool {
    // SAFETY: `fd` is the inherited copy of a socket of the parent, which no code in this process may use.
    unsafe { libc::syscall(libc::SYS_dup3, by, fd, libc::O_CLOEXEC) >= 0 }
}

/// Makes only async-signal-safe calls, as other threads of the parent may have held any lock, and no
/// cancellation points.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    let mut placeholder = open_placeholder();
    let mut is_kept = false;
    for (number, slot) in TABLE.iter().enumerate() {
        let part = slot.load(Ordering::Acquire);
        if part.is_null() {
            continue;
        }
        // SAFETY: a part that is in the table is never freed.
        for (index, word) in unsafe { (*part).iter() }.enumerate() {
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let fd = (number * PART + index * 64 + bits.trailing_zeros() as usize) as RawFd;
                bits &= bits - 1;
                if placeholder.is_none() {
                    // The parent uses all descriptors, so the number of this one is the only free one.
                    close(fd);
                    placeholder = open_placeholder();
                }
                match placeholder {
                    // As above, or the fork did not get the lock and the parent created this socket after the
                    // descriptors were copied.
                    Some(same) if same == fd => is_kept = true,
                    Some(other) if replace(fd, other) => {}
                    // No file will have this number: the limit of descriptors is lower.
                    _ => close(fd),
                }
            }
        }
    }
    if let Some(fd) = placeholder.filter(|_| !is_kept) {
        close(fd);
    }
    after();
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::AsRawFd;
    use std::path::Path;
    use std::sync::atomic::AtomicI32;
    use std::sync::{PoisonError, RwLock, RwLockReadGuard};

    use super::*;
    use crate::socket::Socket;
    use crate::sys;

    /// Held for writing by a test that forks.
    static FORKING: RwLock<()> = RwLock::new(());

    /// Prevents forks by tests until this is dropped. After a fork each process draws new evidence, so
    /// pending offers of shared memory become invalid.
    pub(crate) fn no_forks() -> RwLockReadGuard<'static, ()> {
        FORKING.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` in a child, which is killed after a minute. Whether `f` has returned true. It must be
    /// suitable for a child of a multithreaded process.
    pub(crate) fn in_child(f: impl FnOnce() -> bool) -> bool {
        let _alone = FORKING.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the child only calls alarm, `f` and _exit; with glibc malloc is usable after fork(2), and
        // the caller guarantees that `f` takes no lock of other threads.
        unsafe {
            match libc::fork() {
                0 => {
                    libc::alarm(60);
                    libc::_exit(i32::from(!f()))
                }
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

    fn is_placeholder(fd: RawFd) -> bool {
        std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|file| file == Path::new("/dev/null"))
    }

    /// The result of `f` in a child of this process, which has one thread.
    fn in_grandchild(f: impl FnOnce() -> bool) -> bool {
        // SAFETY: as in `in_child`.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(i32::from(!f())),
                child => {
                    let mut status = 0;
                    libc::waitpid(child, &mut status, 0) == child && status == 0
                }
            }
        }
    }

    /// A thread of the parent opened a socket between the copy of the descriptors and that of the memory.
    #[test]
    fn a_socket_that_a_child_has_not_inherited_frees_no_number() {
        assert!(in_child(|| {
            let free = sys::event_flag().unwrap();
            let open = Socket::noted(sys::event_flag).unwrap();
            let (free, open) = ({ free }.as_raw_fd(), open.as_raw_fd());
            undivided(|| note(free));
            in_grandchild(|| is_placeholder(free) && is_placeholder(open))
        }));
    }

    #[test]
    fn a_parent_without_free_descriptors_leaves_no_free_number_to_its_child() {
        assert!(in_child(|| {
            let sockets = [(); 3].map(|()| Socket::noted(sys::event_flag).unwrap());
            let numbers = sockets.each_ref().map(|socket| socket.as_raw_fd());
            let most = numbers[2] as libc::rlim_t + 1;
            // SAFETY: the kernel only reads the structure, and the descriptor is open. Its copies stay open.
            unsafe {
                libc::setrlimit(libc::RLIMIT_NOFILE, &libc::rlimit { rlim_cur: most, rlim_max: most });
                while libc::dup(numbers[0]) >= 0 {}
            }
            in_grandchild(|| numbers.iter().all(|&fd| is_placeholder(fd)))
        }));
    }

    #[test]
    fn a_fork_waits_until_a_socket_is_noted() {
        static FD: AtomicI32 = AtomicI32::new(-1);
        let (inside, is_inside) = std::sync::mpsc::channel();
        let creates = std::thread::spawn(move || {
            undivided(|| {
                inside.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(300));
                let socket = Socket::note(sys::event_flag().unwrap());
                FD.store(socket.as_raw_fd(), Ordering::Release);
                socket
            })
        });
        is_inside.recv().unwrap();
        assert!(in_child(|| is_placeholder(FD.load(Ordering::Acquire))));
        drop(creates.join().unwrap());
    }

    /// As a signal handler does that has interrupted this thread.
    #[test]
    fn a_fork_by_the_thread_that_opens_a_socket_does_not_wait() {
        assert!(in_child(|| {
            let began = Instant::now();
            undivided(|| in_grandchild(|| true)) && began.elapsed() < LOCK_TIMEOUT
        }));
    }
}
