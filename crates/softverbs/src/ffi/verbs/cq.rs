// SPDX-License-Identifier: BSD-3-Clause
//! Completion queues: creating, resizing and destroying them.
//!
//! A completion queue is always allocated as an `ibv_cq_ex`; [`super::cq_ex`] fills in the functions of an
//! extended one.

use libc::{c_int, c_void};
use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex};
use std::ptr::addr_of;
use std::sync::Arc;

use super::channel::ChannelObject;
use super::events;
use super::or_null;
use super::section::Section;
use crate::cq::{Cq, Time};
use crate::ffi::context::{next_number, owns};
use crate::ffi::object::Object;
use crate::limits::MAX_CQE;
use crate::lock;
use crate::sys::Errno;
use transport::wr::Completion;

/// The current completion of an extended queue, and when it was added.
#[derive(Default)]
pub(super) struct Current {
    pub(super) completion: Completion,
    pub(super) time: Time,
}

/// The data behind the C structure of a completion queue.
pub(crate) struct CqOwn {
    pub(crate) queue: Arc<Cq>,
    channel: *mut ibv_comp_channel,
    /// Used between `ibv_start_poll` and `ibv_end_poll`.
    pub(super) current: Section<Current>,
}

pub(crate) type CqObject = Object<ibv_cq, CqOwn, ibv_cq_ex>;

/// Creates a completion queue with `cqe` entries (1 to 2^20), which the caller destroys with
/// [`ibv_destroy_cq`]. Its events go to `channel` unless that is NULL. `cq_context` is returned with them.
/// NULL and errno: EINVAL (`cqe` out of range, a completion vector other than 0, `context` not the context of
/// the software device, or a channel of another device), ENOMEM.
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
    let vector = u32::try_from(comp_vector).unwrap_or(u32::MAX);
    // SAFETY: ibv_create_cq(3) requires that `channel` is NULL, or was returned by ibv_create_comp_channel
    // and has not been destroyed.
    or_null(unsafe { create(context, entries, cq_context, channel, vector, |_| ()) })
}

/// Creates a completion queue. `fill` sets the functions of an extended one. EINVAL: the number of entries or
/// the vector is out of range, or the context or the channel belongs to another device. ENOMEM.
///
/// # Safety
///
/// `channel` must be NULL or a completion channel that has not been destroyed.
pub(super) unsafe fn create(
    context: *mut ibv_context,
    entries: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: u32,
    fill: impl FnOnce(&mut ibv_cq_ex),
) -> Result<*mut ibv_cq, Errno> {
    if !owns(context) || entries == 0 || entries > MAX_CQE || comp_vector != 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: `channel` is not NULL, so the caller guarantees that it is a channel of some device that has
    // not been destroyed; its `context` never changes.
    if !channel.is_null() && unsafe { addr_of!((*channel).context).read() } != context {
        return Err(libc::EINVAL);
    }
    // SAFETY: `channel` is not NULL here, has the context of softverbs (checked above), and the caller
    // guarantees that it has not been destroyed.
    let events = (!channel.is_null()).then(|| unsafe { ChannelObject::own(channel) });
    let queue = Arc::new(Cq::new(entries, events.map(|own| own.queue.clone()))?);
    if let Some(own) = events {
        let mut users = lock(&own.users);
        users.try_reserve(1).map_err(|_| libc::ENOMEM)?;
        users.push(queue.clone());
    }
    // SAFETY: all-zero is a valid ibv_cq_ex: an unlocked mutex, no events.
    let mut cq: ibv_cq_ex = unsafe { std::mem::zeroed() };
    cq.context = context;
    cq.channel = channel;
    cq.cq_context = cq_context;
    cq.handle = next_number();
    cq.cqe = entries as c_int;
    fill(&mut cq);
    let cq = CqObject::create(cq, CqOwn { queue: queue.clone(), channel, current: Section::default() });
    queue.set_handle(cq as usize);
    Ok(cq)
}

/// Destroys a completion queue and withdraws its events from the channel. Does not wait until events are
/// acknowledged. Returns 0, or EBUSY while queue pairs use it.
///
/// # Safety
///
/// As for ibv_destroy_cq(3).
pub unsafe fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: ibv_destroy_cq(3) requires that `cq` was returned by ibv_create_cq and has not been destroyed.
    let own = unsafe { CqObject::own(cq) };
    if !own.queue.is_unused() {
        return libc::EBUSY;
    }
    events::withdraw(cq as usize);
    if let Some(channel) = own.queue.channel() {
        channel.withdraw(|handle| *handle == cq as usize);
        // SAFETY: the queue is in `users` of the channel, which therefore has not been destroyed; it is
        // removed only here.
        lock(&unsafe { ChannelObject::own(own.channel) }.users).retain(|user| !Arc::ptr_eq(user, &own.queue));
    }
    // SAFETY: ibv_destroy_cq(3) requires that the program does not use `cq` afterwards; no queue pair refers
    // to it (`is_unused`), and its events are withdrawn.
    unsafe { CqObject::free(cq) };
    0
}

/// How the connection of the queue pair number `qp_num` ended, as text, and whether that was a failure, that
/// is, neither side had closed it. `None`: it has not ended, its queue pair does not use this completion
/// queue, or it ended so long ago that the record was dropped.
///
/// # Safety
///
/// `cq` must be a completion queue of softverbs that has not been destroyed.
pub unsafe fn ending(cq: *mut ibv_cq, qp_num: u32) -> Option<(String, bool)> {
    // SAFETY: the caller guarantees that `cq` is a completion queue of softverbs that has not been destroyed.
    let ending = unsafe { CqObject::own(cq) }.queue.ending(qp_num)?;
    Some((ending.text, ending.is_failure))
}

/// Changes the number of entries of a completion queue to `cqe` (1 to 2^20). Returns 0 or an errno value:
/// EINVAL (out of range, or fewer than the completions in the queue), ENOMEM. After an error the queue is
/// unchanged.
///
/// # Safety
///
/// As for ibv_resize_cq(3).
pub unsafe fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let entries = u32::try_from(cqe).unwrap_or(0);
    if entries == 0 || entries > MAX_CQE {
        return libc::EINVAL;
    }
    // SAFETY: ibv_resize_cq(3) requires that `cq` was returned by ibv_create_cq and has not been destroyed.
    match unsafe { CqObject::own(cq) }.queue.resize(entries) {
        Ok(()) => {
            // SAFETY: ibv_resize_cq(3) requires that `cq` has not been destroyed. Programs only read the
            // field `cqe`.
            unsafe { std::ptr::addr_of_mut!((*cq).cqe).write(cqe) };
            0
        }
        Err(e) => e,
    }
}
