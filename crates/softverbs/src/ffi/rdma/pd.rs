// SPDX-License-Identifier: BSD-3-Clause
//! The default protection domain: one for the device, for identifiers whose program gives none
//! (rdma_create_qp(3)).

use once_cell::race::OnceBox;
use rdma_sys::ibv_pd;

use crate::ffi::soft0;
use crate::ffi::verbs;

struct Default(*mut ibv_pd);

// SAFETY: the address is set once, before the value is shared, and what it points to is used by functions of
// verbs only, which are thread-safe.
unsafe impl Send for Default {}
// SAFETY: as for Send; a shared reference gives no more access than the address.
unsafe impl Sync for Default {}

impl Drop for Default {
    /// Of two threads that make it at the same time one keeps its own; it drops the other one.
    fn drop(&mut self) {
        // SAFETY: it was returned by ibv_alloc_pd in `default_pd`. The value in `DEFAULT` is never dropped,
        // so nobody has seen this address.
        unsafe { verbs::ibv_dealloc_pd(self.0) };
    }
}

/// Allocated on first use; like the device it is never freed.
pub(super) fn default_pd() -> *mut ibv_pd {
    static DEFAULT: OnceBox<Default> = OnceBox::new();
    // SAFETY: the context is that of the software device, for which ibv_alloc_pd does not fail.
    DEFAULT.get_or_init(|| Box::new(Default(unsafe { verbs::ibv_alloc_pd(soft0::context()) }))).0
}
