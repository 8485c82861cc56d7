// SPDX-License-Identifier: BSD-3-Clause
//! Completion queues with their completion channel, which may be shared.

use std::ffi::c_int;

use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_wc};

use crate::abi::rpma_log_level;
use crate::alloc;
use crate::error::{Error, Result, first_error};
use crate::log;
use crate::provider::Api;
use crate::provider::handles::{CompChannel, CompQueue, channel_fd, next_cq_event, provider_error};

/// A completion queue.
pub struct Cq {
    queue: CompQueue,
    /// The completion channel; alive as long as this object.
    channel: *mut ibv_comp_channel,
    /// The channel's owner, unless the connection owns it for all its queues.
    own_channel: Option<CompChannel>,
    api: Api,
}

impl Cq {
    /// Creates a completion queue of `size` entries and arms it.
    ///
    /// # Safety
    /// `ctx` must be a live context of `api`; a shared channel must belong to it and outlive the queue.
    pub unsafe fn new(
        api: Api,
        ctx: *mut ibv_context,
        size: u32,
        shared: Option<&CompChannel>,
    ) -> Result<Box<Self>> {
        let cqe = c_int::try_from(size).unwrap_or(c_int::MAX);
        let own_channel = match shared {
            Some(_) => None,
            // SAFETY: the caller guarantees a live `ctx` of `api`.
            None => Some(
                unsafe { CompChannel::create(api, ctx) }
                    .map_err(|failed| provider_error!(failed, "context={ctx:p}"))?,
            ),
        };
        let channel = shared.or(own_channel.as_ref()).map_or(std::ptr::null_mut(), CompChannel::as_ptr);
        // SAFETY: the caller guarantees a live `ctx` and a shared channel that outlives the queue; an own
        // channel is a field declared after the queue.
        let queue = unsafe { CompQueue::create(api, ctx, cqe, channel) }
            .map_err(|failed| provider_error!(failed, "context={ctx:p}, cqe={cqe}"))?;
        queue.request_notification().map_err(|failed| provider_error!(failed, ""))?;
        alloc::boxed(Self { queue, channel, own_channel, api })
    }

    pub fn close(self) -> Result<()> {
        let Self { queue, own_channel, .. } = self;
        let queue = queue.close().map_err(|failed| provider_error!(failed, ""));
        let channel = match own_channel {
            Some(channel) => channel.close().map_err(|failed| provider_error!(failed, "")),
            None => Ok(()),
        };
        first_error([queue, channel])
    }

    pub fn as_ptr(&self) -> *mut ibv_cq {
        self.queue.as_ptr()
    }

    /// The file descriptor that is readable when a completion event is pending.
    pub fn fd(&self) -> c_int {
        // SAFETY: the channel is alive as long as this object.
        unsafe { channel_fd(self.channel) }
    }

    /// Waits for a completion event on this queue's own channel, and rearms the queue.
    #[inline]
    pub fn wait(&self) -> Result<()> {
        if self.own_channel.is_none() {
            return Err(Error::SharedChannel);
        }
        // SAFETY: the channel is alive as long as this object.
        unsafe { next_cq_event(self.api, self.channel, |_| self.rearm()) }.unwrap_or(Err(Error::NoCompletion))
    }

    /// Acknowledges one event of this queue and requests notification of the next.
    #[inline]
    pub fn rearm(&self) -> Result<()> {
        // SAFETY: the queue is alive, and the caller has taken one event of it.
        unsafe { self.api.ibv_ack_cq_events(self.as_ptr(), 1) };
        self.queue.request_notification().map_err(|failed| provider_error!(failed, ""))
    }

    /// Polls for up to `num_entries` completions; returns their number, which is at least one.
    ///
    /// # Safety
    /// `wc` must have room for `num_entries` completions, which must be positive.
    #[inline]
    pub unsafe fn poll(&self, num_entries: c_int, wc: *mut ibv_wc) -> Result<c_int> {
        // SAFETY: the caller guarantees room for `num_entries` completions at `wc`.
        let got = unsafe { self.queue.poll(num_entries, wc) };
        // One comparison for 1..=num_entries.
        if (got.wrapping_sub(1) as u32) < num_entries as u32 {
            Ok(got)
        } else if got == 0 && !log::enabled(rpma_log_level::RPMA_LOG_LEVEL_DEBUG) {
            // The usual result for a polling program; nothing to log.
            Err(Error::NoCompletion)
        } else {
            Err(no_completions(got, num_entries))
        }
    }
}

/// The error for a poll that returned no valid number of completions.
#[cold]
fn no_completions(got: c_int, num_entries: c_int) -> Error {
    if got == 0 {
        log_debug!("the completion queue is empty");
        Error::NoCompletion
    } else if got < 0 {
        // Not an errno: verbs.h only defines that a negative number is a failure.
        log_error!("ibv_poll_cq(num_entries={num_entries}) failed: it returned {got}");
        Error::Provider
    } else {
        log_error!("ibv_poll_cq(num_entries={num_entries}) returned {got} completions");
        Error::Unknown
    }
}
