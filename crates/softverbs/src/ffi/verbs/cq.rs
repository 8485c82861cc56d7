// SPDX-License-Identifier: BSD-3-Clause
//! Completion queues.

use libc::{c_int, c_void};
use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq};
use std::sync::Arc;

use super::channel::ChannelObject;
use super::null_with;
use crate::cq::Cq;
use crate::ffi::context::{next_number, owns};
use crate::ffi::object::Object;
use crate::limits::*;
use crate::lock;

pub(crate) struct CqOwn {
    pub(crate) queue: Arc<Cq>,
    channel: *mut ibv_comp_channel,
}

pub(crate) type CqObject = Object<ibv_cq, CqOwn>;

/// Creates a completion queue with `cqe` entries (1 to 2^20); its events go to `channel` unless that is NULL. EINVAL, ENOMEM.
///
/// # Safety
///
/// As for ibv_create_cq(3).
pub unsafe fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let entries = u32::try_from(cqe).unwrap_or(0);
    if !owns(context) || entries == 0 || entries > MAX_CQE || comp_vector != 0 {
        return null_with(libc::EINVAL);
    }
    // SAFETY: `channel` is NULL, or was returned by ibv_create_comp_channel and has not been destroyed (ibv_create_cq(3)).
    let events = (!channel.is_null()).then(|| unsafe { ChannelObject::own(channel) });
    let queue = match Cq::new(entries, events.map(|own| own.queue.clone())) {
        Ok(queue) => Arc::new(queue),
        Err(e) => return null_with(e),
    };
    if let Some(own) = events {
        let mut users = lock(&own.users);
        if users.try_reserve(1).is_err() {
            return null_with(libc::ENOMEM);
        }
        users.push(queue.clone());
    }
    // SAFETY: all-zero is a valid ibv_cq: an unlocked mutex, no events.
    let mut cq: ibv_cq = unsafe { std::mem::zeroed() };
    cq.context = context;
    cq.channel = channel;
    cq.cq_context = cq_context;
    cq.handle = next_number();
    cq.cqe = cqe;
    let cq = CqObject::create(cq, CqOwn { queue: queue.clone(), channel });
    queue.set_handle(cq as usize);
    cq
}

/// Destroys a completion queue and withdraws its events from the channel. EBUSY while queue pairs use it.
///
/// # Safety
///
/// As for ibv_destroy_cq(3).
pub unsafe fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: `cq` was returned by ibv_create_cq and has not been destroyed (ibv_destroy_cq(3)).
    let own = unsafe { CqObject::own(cq) };
    if !own.queue.is_unused() {
        return libc::EBUSY;
    }
    if let Some(channel) = own.queue.channel() {
        channel.withdraw(|handle| *handle == cq as usize);
        // SAFETY: the channel cannot be destroyed before the queue is removed from its `users`, which is done here.
        lock(&unsafe { ChannelObject::own(own.channel) }.users).retain(|user| !Arc::ptr_eq(user, &own.queue));
    }
    // SAFETY: the program does not use `cq` any more (ibv_destroy_cq(3)), no queue pair refers to it, and its events are withdrawn.
    unsafe { CqObject::free(cq) };
    0
}
