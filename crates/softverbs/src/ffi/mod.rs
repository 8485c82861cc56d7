// SPDX-License-Identifier: BSD-3-Clause
//! The C structures and functions of verbs and rdma_cm.

mod completion;
pub(crate) mod context;
mod object;
mod ops;
pub mod rdma;
mod send_flags;
pub(crate) mod soft0;
pub mod verbs;
mod work_request;

pub use ops::{flushes_by, post_denied};
pub use rdma::event_reason;
pub use verbs::{ending, not_counted};

/// EOPNOTSUPP, and why in the log.
fn unsupported(why: &str) -> crate::sys::Errno {
    log::warn!("not supported: {why}");
    libc::EOPNOTSUPP
}
