// SPDX-License-Identifier: BSD-3-Clause
//! Single stores of eight bytes that cannot cause a signal.
//!
//! The kernel stores, and reports EFAULT where a store of this process would cause a signal.
//! get_robust_list(2) stores the pointer of the last set_robust_list(2), which may be any number below -4095,
//! with a single eight-byte instruction (`put_user`) that handles page faults. 216 ns, and 100 ns to restore
//! the list at the end of a run of words.

use std::cell::Cell;

use crate::sys::{Errno, again, errno};

/// The list of a thread's robust mutexes, which the kernel walks when the thread ends (linux/futex.h).
#[repr(C)]
struct RobustList {
    next: *const Self,
    futex_offset: libc::c_long,
    pending: *const Self,
}

/// Linux 6.18 returns a pointer above `-MAX_ERRNO` as an error, and stores nothing (IS_ERR in linux/err.h).
const MAX_ERRNO: u64 = 4095;

thread_local! {
    /// The robust list that the C library has registered for this thread. `None`: not queried yet.
    static ROBUST_LIST: Cell<Option<*const RobustList>> = const { Cell::new(None) };
}

/// Stores eight bytes through the kernel. It replaces the thread's list of robust mutexes, which is restored
/// at the end. The kernel does not use the pointer while the thread lives.
///
/// If the thread is killed in between, the kernel takes the last word for the address of a list. It reads
/// that list and stops at an unmapped address; a futex word in it that contains the thread's ID is marked as
/// abandoned, like a mutex of a thread that ends. It does not walk the thread's real list, so this is used
/// only while that is empty.
pub(crate) struct WordStore {
    own: *const RobustList,
}

impl WordStore {
    /// `None` if the thread holds a robust mutex, or a sandbox forbids the calls.
    pub(crate) fn new() -> Option<Self> {
        let own = ROBUST_LIST.get().or_else(|| {
            let (mut list, mut len) = (std::ptr::null::<RobustList>(), 0usize);
            // SAFETY: the kernel stores a pointer and a length in the two variables.
            let got = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut list, &raw mut len) };
            if got != 0 || (len != size_of::<RobustList>() && !list.is_null()) {
                return None;
            }
            ROBUST_LIST.set(Some(list));
            Some(list)
        })?;
        // SAFETY: the C library keeps the list of a thread in memory that lives as long as the thread; only
        // the thread changes it.
        let is_empty = own.is_null() || unsafe { (*own).next == own && (*own).pending.is_null() };
        is_empty.then_some(Self { own })
    }

    fn set(list: *const RobustList) -> Result<(), Errno> {
        // SAFETY: the kernel only keeps the address until the thread ends or sets another one.
        let call = || unsafe { libc::syscall(libc::SYS_set_robust_list, list, size_of::<RobustList>()) };
        let ret = again(call);
        if ret == 0 { Ok(()) } else { Err(errno()) }
    }

    /// Stores a word. EFAULT if there is no writable memory; EPERM if the kernel would take the word for an
    /// error.
    ///
    /// # Safety
    ///
    /// The caller must hold a grant to write the eight bytes at `addr`.
    pub(crate) unsafe fn store(&self, addr: u64, word: u64) -> Result<(), Errno> {
        if word > u64::MAX - MAX_ERRNO {
            return Err(libc::EPERM);
        }
        Self::set(word as *const RobustList)?;
        let mut len = 0usize;
        // SAFETY: the kernel stores the length in `len` and eight bytes at `addr`, which the caller may
        // write, or fails if there is no writable memory.
        let call = || unsafe { libc::syscall(libc::SYS_get_robust_list, 0, addr, &raw mut len) };
        if again(call) == 0 { Ok(()) } else { Err(errno()) }
    }
}

impl Drop for WordStore {
    fn drop(&mut self) {
        // Cannot fail: the kernel accepted this list before.
        let _ = Self::set(self.own);
    }
}
