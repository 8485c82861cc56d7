// SPDX-License-Identifier: BSD-3-Clause
//! Constants and layouts of the C interface. `include/librpma.h` is generated from here and from `capi`.
//!
//! The names are those of the C interface. No enum is ever constructed from a value passed in from C: such
//! values arrive as plain integers ([`arg`]) and are checked where they are used.

#![forbid(unsafe_code)]
#![expect(non_camel_case_types, reason = "the names are those of the C interface")]

use std::ffi::{c_int, c_uint, c_void};

use rdma_sys::ibv_wc_status::Type as ibv_wc_status;

/// The first number of LIBRPMA_VERSION.
pub const LIBRPMA_VERSION_MAJOR: c_int = 1;
/// The second number of LIBRPMA_VERSION.
pub const LIBRPMA_VERSION_MINOR: c_int = 4;
/// The third number of LIBRPMA_VERSION.
pub const LIBRPMA_VERSION_PATCH: c_int = 0;

/// An unknown error occurred.
pub const RPMA_E_UNKNOWN: c_int = -100000;
/// The operation is not supported.
pub const RPMA_E_NOSUPP: c_int = -100001;
/// A provider call failed; the log message states which one and why.
pub const RPMA_E_PROVIDER: c_int = -100002;
/// Out of memory.
pub const RPMA_E_NOMEM: c_int = -100003;
/// An argument is invalid.
pub const RPMA_E_INVAL: c_int = -100004;
/// No completion is ready.
pub const RPMA_E_NO_COMPLETION: c_int = -100005;
/// No connection event or connection request is ready.
pub const RPMA_E_NO_EVENT: c_int = -100006;
/// A temporary failure. Kept for source compatibility; no function returns it.
pub const RPMA_E_AGAIN: c_int = -100007;
/// The completion queue shares its completion channel.
pub const RPMA_E_SHARED_CHANNEL: c_int = -100008;
/// The connection has no shared completion channel.
pub const RPMA_E_NOT_SHARED_CHNL: c_int = -100009;

/// The default timeout of address resolution and of route resolution, in milliseconds.
pub const RPMA_DEFAULT_TIMEOUT_MS: c_int = 1000;

/// Kept for source compatibility; no function uses it.
pub const RPMA_W_WAIT_FOR_COMPLETION: c_int = 1;

/// Memory usage: source of RDMA reads by remote peers.
pub const RPMA_MR_USAGE_READ_SRC: c_int = 1;
/// Memory usage: local destination of rpma_read.
pub const RPMA_MR_USAGE_READ_DST: c_int = 2;
/// Memory usage: local source of rpma_write.
pub const RPMA_MR_USAGE_WRITE_SRC: c_int = 4;
/// Memory usage: destination of RDMA writes by remote peers.
pub const RPMA_MR_USAGE_WRITE_DST: c_int = 8;
/// Memory usage: target of flushes of type RPMA_FLUSH_TYPE_VISIBILITY by remote peers.
pub const RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY: c_int = 16;
/// Memory usage: target of flushes of type RPMA_FLUSH_TYPE_PERSISTENT by remote peers.
pub const RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT: c_int = 32;
/// Memory usage: source buffer of rpma_send.
pub const RPMA_MR_USAGE_SEND: c_int = 64;
/// Memory usage: destination buffer of rpma_recv.
pub const RPMA_MR_USAGE_RECV: c_int = 128;

/// Flag: a completion is generated only when the operation fails.
pub const RPMA_F_COMPLETION_ON_ERROR: c_int = 1;
/// Flag: a completion is always generated.
pub const RPMA_F_COMPLETION_ALWAYS: c_int = 3;

/// The required alignment of the remote offset of an atomic write, in bytes.
pub const RPMA_ATOMIC_WRITE_ALIGNMENT: c_int = 8;

/// Whether the address given to rpma_utils_get_ibv_context is local or remote.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rpma_util_ibv_context_type {
    /// the address of an interface of this host
    RPMA_UTIL_IBV_CONTEXT_LOCAL = 0,
    /// the address of a remote host
    RPMA_UTIL_IBV_CONTEXT_REMOTE = 1,
}

/// Connection events.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rpma_conn_event {
    /// no event; never delivered
    RPMA_CONN_UNDEFINED = -1,
    /// the connection is established
    RPMA_CONN_ESTABLISHED = 0,
    /// the connection is closed
    RPMA_CONN_CLOSED = 1,
    /// the connection was lost
    RPMA_CONN_LOST = 2,
    /// the remote peer rejected the connection request, or nothing is listening at the address
    RPMA_CONN_REJECTED = 3,
    /// the remote peer did not respond in time
    RPMA_CONN_UNREACHABLE = 4,
}

/// The domain that the data written before a flush must reach.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rpma_flush_type {
    /// the persistence domain: persistent memory or storage
    RPMA_FLUSH_TYPE_PERSISTENT = 0,
    /// the visibility domain: visible to the remote host
    RPMA_FLUSH_TYPE_VISIBILITY = 1,
}

/// The operation that a struct rpma_completion reports.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rpma_op {
    /// rpma_read, and rpma_flush
    RPMA_OP_READ = 0,
    /// rpma_write, rpma_write_with_imm, rpma_write_atomic and rpma_atomic_write
    RPMA_OP_WRITE = 1,
    /// kept for source compatibility; a flush is reported as RPMA_OP_READ
    RPMA_OP_FLUSH = 2,
    /// rpma_send and rpma_send_with_imm
    RPMA_OP_SEND = 3,
    /// rpma_recv
    RPMA_OP_RECV = 4,
    /// a receive consumed by an rpma_write_with_imm of the remote peer
    RPMA_OP_RECV_RDMA_WITH_IMM = 5,
}

/// The severity of a log message; as a threshold, the least severe level that is logged.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rpma_log_level {
    /// as a threshold: nothing is logged
    RPMA_LOG_DISABLED = -1,
    /// the library cannot continue
    RPMA_LOG_LEVEL_FATAL = 0,
    /// an operation failed
    RPMA_LOG_LEVEL_ERROR = 1,
    /// an unexpected condition that did not cause the call to fail
    RPMA_LOG_LEVEL_WARNING = 2,
    /// a normal but significant event
    RPMA_LOG_LEVEL_NOTICE = 3,
    /// informational message
    RPMA_LOG_LEVEL_INFO = 4,
    /// debugging detail
    RPMA_LOG_LEVEL_DEBUG = 5,
}

/// The threshold to set with rpma_log_set_threshold or to get with rpma_log_get_threshold.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rpma_log_threshold {
    /// the main threshold: which messages are passed to the log function
    RPMA_LOG_THRESHOLD = 0,
    /// the auxiliary threshold: which messages the built-in function also prints to stderr
    RPMA_LOG_THRESHOLD_AUX = 1,
    /// the number of thresholds; not a threshold itself
    RPMA_LOG_THRESHOLD_MAX = 2,
}

/// Private data exchanged by the peers while a connection is established.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rpma_conn_private_data {
    /// the data, or NULL if there are none
    pub ptr: *mut c_void,
    /// the length in bytes, or 0 if there are none
    pub len: u8,
}

/// A completion reported by rpma_cq_get_completion and rpma_conn_completion_get.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rpma_completion {
    /// the op_context of the operation
    pub op_context: *mut c_void,
    /// the operation; only set when op_status is IBV_WC_SUCCESS
    pub op: rpma_op,
    /// the number of bytes transferred; only set when op_status is IBV_WC_SUCCESS
    pub byte_len: u32,
    /// IBV_WC_SUCCESS, or the reason why the operation failed
    pub op_status: ibv_wc_status,
    /// the wc_flags of the work completion; only set when op_status is IBV_WC_SUCCESS
    pub flags: c_uint,
    /// the immediate data in host byte order; only set for a receive with IBV_WC_WITH_IMM in flags
    pub imm: u32,
}

/// The completion structure of release 0.9: the first 24 bytes of the current one.
///
/// cbindgen:ignore
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rpma_completion_0_9 {
    /// the op_context of the operation
    pub op_context: *mut c_void,
    /// the operation
    pub op: rpma_op,
    /// the number of bytes transferred
    pub byte_len: u32,
    /// IBV_WC_SUCCESS, or the reason why the operation failed
    pub op_status: ibv_wc_status,
}

/// The integer types in which enum arguments arrive from C: they may hold any value, so they are not the
/// enums above.
///
/// cbindgen:ignore
pub mod arg {
    use std::ffi::{c_int, c_uint};

    /// `enum rpma_util_ibv_context_type`
    pub type IbvContextTypeArg = c_uint;
    /// `enum rpma_conn_event`
    pub type ConnEventArg = c_int;
    /// `enum rpma_flush_type`
    pub type FlushTypeArg = c_uint;
    /// `enum rpma_log_level`
    pub type LogLevelArg = c_int;
    /// `enum rpma_log_threshold`
    pub type LogThresholdArg = c_uint;

    /// A C function of type `rpma_log_function`; used only behind a pointer.
    #[repr(C)]
    pub struct rpma_log_function {
        _opaque: [u8; 0],
    }
}

const _: () = {
    assert!(size_of::<rpma_conn_private_data>() == 2 * size_of::<*mut c_void>());
    assert!(size_of::<rpma_util_ibv_context_type>() == 4 && size_of::<rpma_conn_event>() == 4);
    assert!(size_of::<rpma_flush_type>() == 4 && size_of::<rpma_op>() == 4);
    assert!(size_of::<rpma_log_level>() == 4 && size_of::<rpma_log_threshold>() == 4);
};

#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<rpma_completion>() == 32);
    assert!(offset_of!(rpma_completion, op) == 8);
    assert!(offset_of!(rpma_completion, byte_len) == 12);
    assert!(offset_of!(rpma_completion, op_status) == 16);
    assert!(offset_of!(rpma_completion, flags) == 20);
    assert!(offset_of!(rpma_completion, imm) == 24);
    assert!(size_of::<rpma_completion_0_9>() == 24);
    assert!(offset_of!(rpma_completion_0_9, op) == 8);
    assert!(offset_of!(rpma_completion_0_9, byte_len) == 12);
    assert!(offset_of!(rpma_completion_0_9, op_status) == 16);
};
