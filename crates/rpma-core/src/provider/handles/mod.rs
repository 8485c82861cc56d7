// SPDX-License-Identifier: BSD-3-Clause
//! Owning wrappers of provider objects.
//!
//! A wrapper is the only owner of its object: `close` releases it and reports a failure, dropping it releases
//! it and logs one. Objects that must be released first are fields declared earlier, which fixes the
//! tear-down order. Objects are otherwise only passed back to the provider; the few fields that are read are
//! public in `verbs.h` or in librdmacm's headers, and are read through the raw pointer each time.

mod cm;
mod peer_name;
mod verbs;

use std::ffi::{CStr, c_int};
use std::fmt;

use rpma_log::Subject;
use rpma_log::text::Lossy;

pub(crate) use cm::{
    AddrInfo, CmEvent, CmId, EventChannel, QpCaps, QueuePair, Side, cm_event_name, identifier,
};
pub(crate) use peer_name::PeerName;
pub(crate) use verbs::{
    CompChannel, CompQueue, MemRegion, ProtDomain, SharedRecvQueue, channel_fd, next_cq_event, query_device,
};

use crate::error::Errno;
use crate::failure;

/// A provider call that failed.
#[derive(Clone, Copy)]
pub struct Failed {
    /// The function.
    pub call: &'static str,
    /// Its reason.
    pub why: Why,
}

/// Why a provider call failed.
#[derive(Clone, Copy)]
pub enum Why {
    /// An error number.
    Errno(Errno),
    /// An error of address translation, `EAI_*`.
    AddrInfo(c_int),
}

impl Failed {
    fn errno(call: &'static str, errno: Errno) -> Self {
        Self { call, why: Why::Errno(errno) }
    }

    /// The error number, if that is the reason.
    pub fn raw_errno(&self) -> Option<c_int> {
        match self.why {
            Why::Errno(Errno(number)) => Some(number),
            Why::AddrInfo(_) => None,
        }
    }
}

impl Failed {
    /// The subject of a message about the failure.
    pub fn subject(&self) -> Subject<'static> {
        Subject { operation: Some(self.call), errno: self.raw_errno(), ..Subject::default() }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => errno.fmt(f),
            Self::AddrInfo(code) => {
                // SAFETY: gai_strerror accepts any number and returns a string of the C library that is never
                // freed.
                let text = unsafe { CStr::from_ptr(libc::gai_strerror(*code)) };
                Lossy(text.to_bytes()).fmt(f)
            }
        }
    }
}

/// Logs a failed provider call with its main arguments; the value is `Error::Provider`.
macro_rules! provider_error {
    ($failed:expr, $($arguments:tt)+) => {{
        let failed: $crate::provider::handles::Failed = $failed;
        log_error!(about failed.subject(); "{}({}) failed: {}", failed.call, format_args!($($arguments)+), failed.why);
        $crate::error::Error::Provider
    }};
}
pub(crate) use provider_error;

/// For `ibv_*` calls: 0, or the errno that they return.
fn by_code(call: &'static str, ret: c_int) -> Result<(), Failed> {
    if ret == 0 { Ok(()) } else { Err(Failed::errno(call, Errno(ret))) }
}

/// For `rdma_*` calls: 0, or anything else with errno set.
fn by_errno(call: &'static str, ret: c_int) -> Result<(), Failed> {
    if ret == 0 { Ok(()) } else { Err(Failed::errno(call, Errno::last())) }
}

/// For calls that return a pointer: NULL with errno set is a failure.
fn by_pointer<T>(call: &'static str, pointer: *mut T) -> Result<*mut T, Failed> {
    if pointer.is_null() { Err(Failed::errno(call, Errno::last())) } else { Ok(pointer) }
}

/// Logs the failure of a release whose result cannot be returned.
fn released(result: Result<(), Failed>) {
    if let Err(failed) = result {
        failure::aside(|| log_error!("{}() failed during cleanup: {}", failed.call, failed.why));
    }
}
