// SPDX-License-Identifier: BSD-3-Clause
//! The C interface: the structures and functions of verbs and rdma_cm.
//!
//! Each function converts its C arguments, calls one function of another module and converts the result back.
//! Structures of the program are accessed field by field through raw pointers, never through references,
//! since the program may access them at any time.

mod completion;
pub(crate) mod context;
mod object;
mod ops;
pub mod rdma;
mod send_flags;
pub(crate) mod soft0;
pub mod verbs;
mod work_request;

pub use ops::{flushes_by, post_at_once, post_denied};
pub use rdma::event_reason;
pub use verbs::{ending, own_memory};

/// Logs at level warn why something is not supported, and returns EOPNOTSUPP.
fn unsupported(why: &str) -> crate::sys::Errno {
    log::warn!("not supported: {why}");
    libc::EOPNOTSUPP
}
