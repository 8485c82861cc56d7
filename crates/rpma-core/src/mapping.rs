// SPDX-License-Identifier: BSD-3-Clause
//! Whole pages of memory for the library's own registrations.
//!
//! They are not from the heap: a child does not inherit registered pages when a program forks, so it would
//! lose other heap data on such a page.

use std::ffi::c_void;
use std::ptr;

use crate::error::{Error, Result};

/// The page size. Not from rustix, whose function cannot fail: the failure of this call has a documented
/// error.
pub(crate) fn page_size() -> Option<usize> {
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).ok().filter(|page| *page != 0)
}

/// A private mapping, unmapped when dropped.
pub(crate) struct Mapping {
    addr: *mut c_void,
    len: usize,
}

impl Mapping {
    /// Maps at least `len` bytes, initially zero.
    pub(crate) fn new(len: usize) -> Result<Self> {
        let Some(page) = page_size() else {
            log_at!(RPMA_LOG_LEVEL_FATAL, "the page size of this system is unknown");
            return Err(Error::Provider);
        };
        let len = len.checked_next_multiple_of(page).ok_or(Error::NoMem)?;
        // Not mmap64, which rustix calls: the tests that let calls fail replace mmap.
        // SAFETY: a new anonymous mapping replaces no existing one.
        let addr = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if addr == libc::MAP_FAILED { Err(Error::NoMem) } else { Ok(Self { addr, len }) }
    }

    pub(crate) fn addr(&self) -> *mut c_void {
        self.addr
    }

    pub(crate) fn close(self) -> Result<()> {
        std::mem::ManuallyDrop::new(self).release()
    }

    fn release(&self) -> Result<()> {
        // SAFETY: this object owns the mapping and unmaps it once: either in `close`, which then forgets the
        // object, or in drop.
        if unsafe { libc::munmap(self.addr, self.len) } == 0 { Ok(()) } else { Err(Error::Inval) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // munmap fails only for a wrong address or length, and both are from mmap.
        let _ = self.release();
    }
}
