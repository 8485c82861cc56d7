// SPDX-License-Identifier: BSD-3-Clause
//! Native atomic write and native flush: the two verbs operations that can be posted only through an extended
//! queue pair. rdma-core 44 has the former, rdma-core 45 both.
//!
//! The constants and the layout are declared here, so that a library built with older headers can use the
//! operations where they are available. That is determined at run time: a device has a capability bit for
//! each, and a provider that does not support an operation refuses to create a queue pair for it. The members
//! of the extended queue pair for an operation, which an older libibverbs lacks, are accessed only if the
//! queue pair was created for that operation.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;

use libc::EOPNOTSUPP;
use rdma_sys::{ibv_qp, ibv_qp_ex};

/// Bits of `device_cap_flags_ex`: a device can flush to visibility, to persistence, and write 8 bytes
/// atomically.
pub(crate) const DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
pub(crate) const DEVICE_FLUSH_PERSISTENT: u64 = 1 << 39;
pub(crate) const DEVICE_ATOMIC_WRITE: u64 = 1 << 40;

/// Access rights of a region: the target of a native flush to visibility, to persistence.
pub(crate) const ACCESS_FLUSH_GLOBAL: u32 = 1 << 8;
pub(crate) const ACCESS_FLUSH_PERSISTENT: u32 = 1 << 9;

/// Bits of `send_ops_flags`: a queue pair for the operation.
pub(crate) const QP_WITH_FLUSH: u64 = 1 << 11;
pub(crate) const QP_WITH_ATOMIC_WRITE: u64 = 1 << 12;

/// The domain that a flush reaches: `IBV_FLUSH_GLOBAL` or `IBV_FLUSH_PERSISTENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlushKind {
    Visibility = 1,
    Persistent = 2,
}

/// `IBV_FLUSH_RANGE`: flushes only the given range of the region.
const FLUSH_RANGE: u8 = 0;

type AtomicWrite = unsafe extern "C" fn(*mut ExtendedQp, u32, u64, *const c_void);
type Flush = unsafe extern "C" fn(*mut ExtendedQp, u32, u64, usize, u8, u8);

/// The beginning of `struct ibv_qp_ex`, up to the last member that is used here, which the installed header
/// may lack.
#[repr(C)]
struct ExtendedQp {
    qp_base: ibv_qp,
    comp_mask: u64,
    wr_id: u64,
    wr_flags: c_uint,
    /// Operations that are not called.
    others: [Option<unsafe extern "C" fn()>; 17],
    wr_start: Option<unsafe extern "C" fn(*mut Self)>,
    wr_complete: Option<unsafe extern "C" fn(*mut Self) -> c_int>,
    wr_abort: Option<unsafe extern "C" fn(*mut Self)>,
    wr_atomic_write: Option<AtomicWrite>,
    wr_flush: Option<Flush>,
}

const _: () = {
    assert!(offset_of!(ExtendedQp, wr_id) == offset_of!(ibv_qp_ex, wr_id));
    assert!(offset_of!(ExtendedQp, wr_flags) == offset_of!(ibv_qp_ex, wr_flags));
    assert!(offset_of!(ExtendedQp, others) == offset_of!(ibv_qp_ex, wr_atomic_cmp_swp));
    assert!(offset_of!(ExtendedQp, wr_start) == offset_of!(ibv_qp_ex, wr_start));
    assert!(offset_of!(ExtendedQp, wr_complete) == offset_of!(ibv_qp_ex, wr_complete));
    assert!(offset_of!(ExtendedQp, wr_abort) == offset_of!(ibv_qp_ex, wr_abort));
    assert!(offset_of!(ExtendedQp, wr_atomic_write) == offset_of!(ExtendedQp, wr_abort) + size_of::<usize>());
    // The structure of the installed header ends before the two operations, between them or after them.
    let header = size_of::<ibv_qp_ex>();
    assert!(
        header == offset_of!(ExtendedQp, wr_atomic_write)
            || header == offset_of!(ExtendedQp, wr_flush)
            || header >= size_of::<ExtendedQp>()
    );
};

/// A queue pair that was created for native operations.
#[derive(Clone, Copy)]
pub struct NativeQp {
    qp: NonNull<ExtendedQp>,
}

impl NativeQp {
    /// Returns the queue pair and those operations of `ops` (`QP_WITH_*`) that it has; None if it has none.
    ///
    /// # Safety
    /// `qp` must be NULL or a live extended queue pair that was created with `ops` in its `send_ops_flags`.
    pub unsafe fn with(qp: *mut ibv_qp_ex, ops: u64) -> Option<(Self, u64)> {
        let this = Self { qp: NonNull::new(qp.cast::<ExtendedQp>())? };
        let qp = this.qp.as_ptr();
        let mut has = 0;
        // SAFETY: the caller guarantees that `qp` is live and was created with `ops`. A provider that creates
        // a queue pair with an operation belongs to an rdma-core that defines the operation, so the object
        // contains the member of that operation.
        unsafe {
            if ops & QP_WITH_ATOMIC_WRITE != 0 && (&raw const (*qp).wr_atomic_write).read().is_some() {
                has |= QP_WITH_ATOMIC_WRITE;
            }
            if ops & QP_WITH_FLUSH != 0 && (&raw const (*qp).wr_flush).read().is_some() {
                has |= QP_WITH_FLUSH;
            }
        }
        (has != 0).then_some((this, has))
    }

    /// Posts the request that `add` builds. Returns 0 or a positive errno.
    ///
    /// # Safety
    /// The queue pair must be alive, and `add` must build one request.
    #[inline(always)]
    unsafe fn post(self, wr_id: u64, flags: u32, add: impl FnOnce(*mut ExtendedQp)) -> c_int {
        let qp = self.qp.as_ptr();
        // SAFETY: the caller guarantees a live queue pair. The provider excludes other threads from start to
        // completion, so only this thread writes the two fields.
        unsafe {
            let (Some(start), Some(complete)) =
                ((&raw const (*qp).wr_start).read(), (&raw const (*qp).wr_complete).read())
            else {
                return EOPNOTSUPP;
            };
            start(qp);
            (&raw mut (*qp).wr_id).write(wr_id);
            (&raw mut (*qp).wr_flags).write(flags);
            add(qp);
            complete(qp)
        }
    }

    /// Writes 8 bytes to `addr`. Returns 0 or a positive errno.
    ///
    /// # Safety
    /// The queue pair must be alive and have the operation; `value` must be readable for 8 bytes.
    pub unsafe fn atomic_write(
        self,
        wr_id: u64,
        flags: u32,
        rkey: u32,
        addr: u64,
        value: *const u8,
    ) -> c_int {
        // SAFETY: the caller guarantees a live queue pair with atomic write and 8 readable bytes at `value`,
        // which the provider copies before it returns.
        unsafe {
            let Some(atomic_write) = (&raw const (*self.qp.as_ptr()).wr_atomic_write).read() else {
                return EOPNOTSUPP;
            };
            self.post(wr_id, flags, |qp| atomic_write(qp, rkey, addr, value.cast()))
        }
    }

    /// Flushes `len` bytes at `addr`. Returns 0 or a positive errno.
    ///
    /// # Safety
    /// The queue pair must be alive and have the operation.
    pub unsafe fn flush(
        self,
        wr_id: u64,
        flags: u32,
        rkey: u32,
        addr: u64,
        len: u32,
        kind: FlushKind,
    ) -> c_int {
        // SAFETY: the caller guarantees a live queue pair with native flush; `flush` builds one request.
        unsafe {
            let Some(flush) = (&raw const (*self.qp.as_ptr()).wr_flush).read() else { return EOPNOTSUPP };
            self.post(wr_id, flags, |qp| flush(qp, rkey, addr, len as usize, kind as u8, FLUSH_RANGE))
        }
    }
}
