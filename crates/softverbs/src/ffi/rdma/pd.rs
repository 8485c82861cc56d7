// SPDX-License-Identifier: BSD-3-Clause
//! The default protection domain of the device, for identifiers whose program supplies none
//! (rdma_create_qp(3)).
//!
//! It is allocated on first use and, like the device, never deallocated.

use once_cell::race::OnceBox;
use rdma_sys::ibv_pd;

use crate::ffi::soft0;
use crate::ffi::verbs;

struct DefaultPd(*mut ibv_pd);

// SAFETY: the address is set before the value is shared and never changes. Only functions of verbs, which are
// thread-safe, access the object behind it.
unsafe impl Send for DefaultPd {}
// SAFETY: a shared reference gives access to nothing but the address, whose use is sound on any thread for
// the reason given at `Send`.
unsafe impl Sync for DefaultPd {}

impl Drop for DefaultPd {
    /// If two threads create it at the same time, the value of one of them is dropped.
    fn drop(&mut self) {
        // SAFETY: ibv_alloc_pd has returned it in `default_pd`. The value stored in `DEFAULT` is a static and
        // never dropped, so this one was never shared and has no users.
        unsafe { verbs::ibv_dealloc_pd(self.0) };
    }
}

/// The default protection domain, valid until the process ends.
pub(super) fn default_pd() -> *mut ibv_pd {
    static DEFAULT: OnceBox<DefaultPd> = OnceBox::new();
    // SAFETY: `soft0::context` returns an open context, that of the software device, for which ibv_alloc_pd
    // does not fail.
    DEFAULT.get_or_init(|| Box::new(DefaultPd(unsafe { verbs::ibv_alloc_pd(soft0::context()) }))).0
}
