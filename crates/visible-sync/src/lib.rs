// SPDX-License-Identifier: BSD-3-Clause
//! The synchronization of std, made visible to helgrind and DRD.
//!
//! Both tools derive from the calls of libpthread what happens before what. The locks of std are words that
//! threads wait for in the kernel, and an atomic operation is an ordinary access to these tools; so each
//! exchange of data between threads looks like a race. With `--cfg visible_sync`, `rpma` and `softverbs` take
//! this crate under the names `std` and `once_cell`, with no other change to their source: locks are those of
//! libpthread, and an atomic operation announces the order that it establishes, as its `Ordering` says and no
//! further. See tools/check-threads.
//!
//! What this cannot say exactly errs towards too much order, which can hide a race but not invent one: fences
//! order one another as if each was an acquire-release operation on the same word, and a store does not end
//! the release sequence of an earlier one. ThreadSanitizer, which sees the atomics themselves, does not need
//! this crate.
#![cfg_attr(
    visible_sync,
    feature(coerce_unsized, unsize, dispatch_from_dyn, layout_for_ptr, legacy_receiver_trait),
    allow(missing_docs, internal_features, reason = "the names and contracts are those of std")
)]
#![cfg(visible_sync)]

pub use std::*;

mod arc;
mod atomic_types;
mod locks;
pub mod race;
mod requests;

pub mod sync {
    pub use crate::arc::{Arc, Weak};
    pub use crate::locks::{Condvar, Mutex, MutexGuard, OnceLock};
    pub use std::sync::*;

    pub mod atomic {
        pub use crate::atomic_types::*;
        pub use std::sync::atomic::Ordering;
    }
}
