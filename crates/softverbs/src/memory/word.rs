// SPDX-License-Identifier: BSD-3-Clause
//! Single stores of eight bytes that cannot cause a signal.
//!
//! The kernel stores, and reports EFAULT where a store of this process would cause a signal. Two system calls
//! store a value of the thread with a single eight-byte instruction (`put_user`) that handles page faults:
//!
//! - arch_prctl(ARCH_GET_GS) on x86-64: the base of the segment GS, which an instruction sets without a
//!   system call. A base is a canonical address, as are small numbers; no other value can be set. 96 ns.
//! - get_robust_list(2): the pointer of the last set_robust_list(2), which may be any number below -4095. 216
//!   ns, and 100 ns to restore the list at the end of a run of words.

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

/// Stores eight bytes through the kernel.
pub(crate) struct WordStore {
    base: Option<base::BaseStore>,
    list: Option<Option<ListStore>>,
}

impl WordStore {
    pub(crate) fn new() -> Self {
        Self { base: base::BaseStore::new(), list: None }
    }

    /// Without the segment base.
    #[cfg(test)]
    pub(crate) fn with_list() -> Self {
        Self { base: None, list: None }
    }

    /// Stores a word. EFAULT if there is no writable memory; EPERM or ENOSYS if a sandbox forbids the calls,
    /// EPERM also if the thread holds a robust mutex, or if the kernel would take the word for an error.
    ///
    /// # Safety
    ///
    /// The caller must hold a grant to write the eight bytes at `addr`.
    #[inline]
    pub(crate) unsafe fn store(&mut self, addr: u64, word: u64) -> Result<(), Errno> {
        if let Some(base) = self.base.as_mut().filter(|_| base::is_canonical(word)) {
            // SAFETY: as for this function.
            match unsafe { base.store(addr, word) } {
                stored @ (Ok(()) | Err(libc::EFAULT)) => return stored,
                // A sandbox chooses the error.
                Err(_) => self.base = None,
            }
        }
        let list = self.list.get_or_insert_with(ListStore::new).as_ref().ok_or(libc::EPERM)?;
        // SAFETY: as for this function.
        unsafe { list.store(addr, word) }
    }
}

#[cfg(target_arch = "x86_64")]
mod base {
    use core::arch::asm;
    use once_cell::race::OnceBool;

    use crate::sys::{Errno, again, errno};

    const ARCH_GET_GS: libc::c_int = 0x1004;
    /// Bit of AT_HWCAP2: programs may use the instructions (Linux 5.9).
    const HWCAP2_FSGSBASE: libc::c_ulong = 1 << 1;
    /// Bits of an address, without sign.
    const ADDRESS_BITS: u32 = 47;

    /// Whether a segment base can have this value.
    #[inline]
    pub(super) fn is_canonical(word: u64) -> bool {
        let high = (word as i64) >> ADDRESS_BITS;
        high == 0 || high == -1
    }

    /// The GS base of this thread, in which nothing else is kept: it is 0 again at the end.
    pub(super) struct BaseStore(());

    impl BaseStore {
        /// `None` if the processor or the kernel lacks the instructions, or the program uses the segment.
        #[inline]
        pub(super) fn new() -> Option<Self> {
            static IS_SUPPORTED: OnceBool = OnceBool::new();
            let query = || {
                // SAFETY: getauxval takes no pointers.
                !cfg!(miri) && unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE != 0
            };
            // SAFETY: the instruction is supported.
            (IS_SUPPORTED.get_or_init(query) && unsafe { get() } == 0).then_some(Self(()))
        }

        /// # Safety
        ///
        /// As for [`super::WordStore::store`]; the word must be canonical.
        #[inline]
        pub(super) unsafe fn store(&mut self, addr: u64, word: u64) -> Result<(), Errno> {
            // SAFETY: the caller has checked that the word is canonical, and `new` that the instruction is
            // supported.
            unsafe { set(word) };
            // SAFETY: the kernel stores the base at `addr`, which the caller may write, or fails if there is
            // no writable memory.
            let call = || unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_GS, addr) };
            if again(call) == 0 { Ok(()) } else { Err(errno()) }
        }
    }

    impl Drop for BaseStore {
        fn drop(&mut self) {
            // SAFETY: 0 is canonical, and `new` has checked that the instruction is supported.
            unsafe { set(0) };
        }
    }

    /// # Safety
    ///
    /// The processor and the kernel must support the instruction.
    unsafe fn get() -> u64 {
        let base;
        // SAFETY: it only reads the register.
        unsafe { asm!("rdgsbase {}", out(reg) base, options(nostack, preserves_flags)) };
        base
    }

    /// # Safety
    ///
    /// The value must be canonical, and the processor and the kernel must support the instruction.
    unsafe fn set(base: u64) {
        // SAFETY: the instruction does not fault, as the caller has checked. The base was 0, so no code of
        // this thread addresses memory by the segment; a signal handler in between that uses it sets it and
        // restores it itself.
        unsafe { asm!("wrgsbase {}", in(reg) base, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod base {
    use crate::sys::Errno;

    pub(super) enum BaseStore {}

    impl BaseStore {
        pub(super) fn new() -> Option<Self> {
            None
        }

        pub(super) unsafe fn store(&mut self, _addr: u64, _word: u64) -> Result<(), Errno> {
            match *self {}
        }
    }

    pub(super) fn is_canonical(_word: u64) -> bool {
        false
    }
}

/// The thread's list of robust mutexes, which is restored at the end. The kernel does not use the pointer
/// while the thread lives.
///
/// If the thread is killed in between, the kernel takes the last word for the address of a list. It reads
/// that list and stops at an unmapped address; a futex word in it that contains the thread's ID is marked as
/// abandoned, like a mutex of a thread that ends. It does not walk the thread's real list, so this is used
/// only while that is empty.
struct ListStore {
    own: *const RobustList,
}

impl ListStore {
    /// `None` if the thread holds a robust mutex, or a sandbox forbids the calls.
    fn new() -> Option<Self> {
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

    /// # Safety
    ///
    /// As for [`WordStore::store`].
    unsafe fn store(&self, addr: u64, word: u64) -> Result<(), Errno> {
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

impl Drop for ListStore {
    fn drop(&mut self) {
        // Cannot fail: the kernel accepted this list before.
        let _ = Self::set(self.own);
    }
}
