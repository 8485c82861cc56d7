// SPDX-License-Identifier: BSD-3-Clause
//! Owners of verbs objects.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;

use rdma_sys::*;

use super::{Failed, by_code, by_pointer, released};
use crate::cancel;
use crate::provider::{Api, hot};

/// Queries the attributes of a device.
///
/// # Safety
/// `ctx` must be a live context of `api`.
pub(crate) unsafe fn query_device(api: Api, ctx: *mut ibv_context) -> Result<ibv_device_attr_ex, Failed> {
    let mut attr = MaybeUninit::<ibv_device_attr_ex>::zeroed();
    // SAFETY: the caller guarantees a live `ctx`; `attr` is writable, and all zero is a valid value of it.
    unsafe {
        by_code("ibv_query_device_ex", api.ibv_query_device_ex(ctx, ptr::null(), attr.as_mut_ptr()))?;
        Ok(attr.assume_init())
    }
}

/// A protection domain.
pub(crate) struct ProtDomain {
    api: Api,
    pd: *mut ibv_pd,
}

impl ProtDomain {
    /// # Safety
    /// `ctx` must be a live context of `api` and outlive the domain.
    pub(crate) unsafe fn alloc(api: Api, ctx: *mut ibv_context) -> Result<Self, Failed> {
        // A provider may fail without setting errno, so an earlier value must not remain there. SAFETY: errno
        // belongs to the calling thread; the caller guarantees a live `ctx`.
        let pd = unsafe {
            *libc::__errno_location() = 0;
            by_pointer("ibv_alloc_pd", api.ibv_alloc_pd(ctx))?
        };
        Ok(Self { api, pd })
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.pd
    }

    pub(crate) fn close(self) -> Result<(), Failed> {
        ManuallyDrop::new(self).release()
    }

    fn release(&self) -> Result<(), Failed> {
        // SAFETY: the domain is ours and released once: `close` forgets it, otherwise drop is the last use.
        by_code("ibv_dealloc_pd", unsafe { self.api.ibv_dealloc_pd(self.pd) })
    }
}

impl Drop for ProtDomain {
    fn drop(&mut self) {
        released(self.release());
    }
}

/// A registered memory region.
pub(crate) struct MemRegion {
    mr: *mut ibv_mr,
    api: Api,
}

impl MemRegion {
    /// # Safety
    /// `pd` must be a live protection domain of `api`, and the memory registrable by the caller.
    pub(crate) unsafe fn register(
        api: Api,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> Result<Self, Failed> {
        // SAFETY: the caller guarantees a live `pd` and memory that it may register.
        let mr = by_pointer("ibv_reg_mr", unsafe { api.ibv_reg_mr(pd, addr, length, access) })?;
        Ok(Self { mr, api })
    }

    pub(crate) fn api(&self) -> Api {
        self.api
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_mr {
        self.mr
    }

    /// The region's base address.
    #[inline]
    pub(crate) fn addr(&self) -> *mut c_void {
        // SAFETY: a region that is not deregistered is readable, and its fields are constant.
        unsafe { (*self.mr).addr }
    }

    /// The region's length in bytes.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        // SAFETY: a region that is not deregistered is readable, and its fields are constant.
        unsafe { (*self.mr).length }
    }

    /// The key for local use.
    #[inline]
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: a region that is not deregistered is readable, and its fields are constant.
        unsafe { (*self.mr).lkey }
    }

    /// The key for remote use.
    #[inline]
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: a region that is not deregistered is readable, and its fields are constant.
        unsafe { (*self.mr).rkey }
    }

    pub(crate) fn close(self) -> Result<(), Failed> {
        ManuallyDrop::new(self).release()
    }

    fn release(&self) -> Result<(), Failed> {
        // SAFETY: the region is ours and released once: `close` forgets it, otherwise drop is the last use.
        by_code("ibv_dereg_mr", unsafe { self.api.ibv_dereg_mr(self.mr) })
    }
}

impl Drop for MemRegion {
    fn drop(&mut self) {
        released(self.release());
    }
}

/// A completion channel.
pub struct CompChannel {
    api: Api,
    channel: *mut ibv_comp_channel,
}

impl CompChannel {
    /// # Safety
    /// `ctx` must be a live context of `api` and outlive the channel.
    pub unsafe fn create(api: Api, ctx: *mut ibv_context) -> Result<Self, Failed> {
        // SAFETY: the caller guarantees a live `ctx` that outlives the channel.
        let channel = by_pointer("ibv_create_comp_channel", unsafe { api.ibv_create_comp_channel(ctx) })?;
        Ok(Self { api, channel })
    }

    pub fn as_ptr(&self) -> *mut ibv_comp_channel {
        self.channel
    }

    pub fn close(self) -> Result<(), Failed> {
        ManuallyDrop::new(self).release()
    }

    fn release(&self) -> Result<(), Failed> {
        // SAFETY: the channel is ours and released once: `close` forgets it, otherwise drop is the last use.
        by_code("ibv_destroy_comp_channel", unsafe { self.api.ibv_destroy_comp_channel(self.channel) })
    }
}

impl Drop for CompChannel {
    fn drop(&mut self) {
        released(self.release());
    }
}

/// The descriptor that becomes readable when a completion event is pending.
///
/// # Safety
/// `channel` must be a live completion channel.
pub(crate) unsafe fn channel_fd(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller guarantees a live `channel`, whose file descriptor is constant.
    unsafe { (*channel).fd }
}

/// Calls `then` with the queue of the next completion event; blocks unless the descriptor was made
/// non-blocking. The result is None whatever the reason why no event could be read. The thread may be
/// cancelled while it waits, so the caller must not own anything during the call; in `then` it is not
/// cancelled any more.
///
/// # Safety
/// `channel` must be a live completion channel of `api`.
#[inline]
pub(crate) unsafe fn next_cq_event<T>(
    api: Api,
    channel: *mut ibv_comp_channel,
    then: impl FnOnce(*mut ibv_cq) -> T,
) -> Option<T> {
    let mut cq = MaybeUninit::uninit();
    let mut cq_context = MaybeUninit::uninit();
    // SAFETY: the caller guarantees a live `channel` of `api`; both output pointers outlive the call, and are
    // written if it returns 0.
    unsafe {
        if api.ibv_get_cq_event(channel, cq.as_mut_ptr(), cq_context.as_mut_ptr()) != 0 {
            return None;
        }
        Some(cancel::whole(|| then(cq.assume_init())))
    }
}

/// A completion queue.
pub(crate) struct CompQueue {
    cq: *mut ibv_cq,
    api: Api,
}

impl CompQueue {
    /// # Safety
    /// `ctx` must be a live context of `api` and `channel` one of its channels; both must outlive the queue.
    pub(crate) unsafe fn create(
        api: Api,
        ctx: *mut ibv_context,
        cqe: c_int,
        channel: *mut ibv_comp_channel,
    ) -> Result<Self, Failed> {
        // SAFETY: the caller guarantees a live `ctx` and a `channel` of it, both of which outlive the queue.
        let cq = unsafe { api.ibv_create_cq(ctx, cqe, ptr::null_mut(), channel, 0) };
        Ok(Self { cq: by_pointer("ibv_create_cq", cq)?, api })
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut ibv_cq {
        self.cq
    }

    /// Takes up to `num_entries` completions; returns their number, or a negative number on failure.
    ///
    /// # Safety
    /// `wc` must have room for `num_entries` completions.
    #[inline(always)]
    pub(crate) unsafe fn poll(&self, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
        // SAFETY: `self` keeps the queue alive; the caller guarantees room for `num_entries` completions at
        // `wc`.
        unsafe { hot::poll_cq(self.cq, num_entries, wc) }
    }

    /// Arms the queue: requests an event for the next completion.
    pub(crate) fn request_notification(&self) -> Result<(), Failed> {
        // SAFETY: the queue is alive as long as its owner.
        by_code("ibv_req_notify_cq", unsafe { hot::req_notify_cq(self.cq, 0) })
    }

    pub(crate) fn close(self) -> Result<(), Failed> {
        ManuallyDrop::new(self).release()
    }

    fn release(&self) -> Result<(), Failed> {
        // SAFETY: the queue is ours and released once: `close` forgets it, otherwise drop is the last use.
        by_code("ibv_destroy_cq", unsafe { self.api.ibv_destroy_cq(self.cq) })
    }
}

impl Drop for CompQueue {
    fn drop(&mut self) {
        released(self.release());
    }
}

/// A shared receive queue.
pub(crate) struct SharedRecvQueue {
    srq: *mut ibv_srq,
    api: Api,
}

impl SharedRecvQueue {
    /// # Safety
    /// `pd` must be a live protection domain of `api` and outlive the queue.
    pub(crate) unsafe fn create(api: Api, pd: *mut ibv_pd, max_wr: u32) -> Result<Self, Failed> {
        let mut attr = ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            attr: ibv_srq_attr { max_wr, max_sge: 1, srq_limit: 0 },
        };
        // SAFETY: the caller guarantees a live `pd` that outlives the queue; `attr` outlives the call.
        let srq = by_pointer("ibv_create_srq", unsafe { api.ibv_create_srq(pd, &mut attr) })?;
        Ok(Self { srq, api })
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut ibv_srq {
        self.srq
    }

    pub(crate) fn close(self) -> Result<(), Failed> {
        ManuallyDrop::new(self).release()
    }

    fn release(&self) -> Result<(), Failed> {
        // SAFETY: the queue is ours and released once: `close` forgets it, otherwise drop is the last use.
        by_code("ibv_destroy_srq", unsafe { self.api.ibv_destroy_srq(self.srq) })
    }
}

impl Drop for SharedRecvQueue {
    fn drop(&mut self) {
        released(self.release());
    }
}
