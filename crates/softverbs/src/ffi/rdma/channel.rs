// SPDX-License-Identifier: BSD-3-Clause
//! Event channels: rdma_create_event_channel(3), and the hidden channels of synchronous identifiers.
//!
//! A channel is an event queue with a pollable descriptor. The identifiers that use it share the queue, so an
//! event that is queued while the channel is being destroyed does not access freed memory.

use rdma_sys::rdma_event_channel;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::channel::EventQueue;
use crate::cm::id::Channel;
use crate::ffi::object::Object;
use crate::sys::{Errno, set_errno};

/// The data behind the C structure of a channel.
pub(super) struct ChannelOwn {
    queue: Channel,
    /// The channel belongs to a synchronous identifier, not to the program.
    hidden: bool,
}

type ChannelObject = Object<rdma_event_channel, ChannelOwn>;

fn create(hidden: bool) -> Result<*mut rdma_event_channel, Errno> {
    let queue = EventQueue::new()?;
    let c = rdma_event_channel { fd: queue.fd() };
    Ok(ChannelObject::create(c, ChannelOwn { queue: Arc::new(queue), hidden }))
}

/// Creates a channel for the events of one synchronous identifier. EMFILE, ENFILE, ENOMEM.
pub(super) fn create_hidden() -> Result<*mut rdma_event_channel, Errno> {
    create(true)
}

/// Whether the channel of an identifier makes it a synchronous one: a hidden channel, or NULL as long as none
/// is needed.
///
/// # Safety
///
/// `channel` must be NULL, or a channel of softverbs that has not been destroyed.
pub(super) unsafe fn is_hidden(channel: *mut rdma_event_channel) -> bool {
    // SAFETY: `channel` is not NULL, so the caller guarantees that it is a channel of softverbs that has not
    // been destroyed.
    channel.is_null() || unsafe { ChannelObject::own(channel) }.hidden
}

/// Creates an event channel, which the caller destroys with [`rdma_destroy_event_channel`]. Its descriptor
/// `fd` is readable while an event is queued, and may be set to O_NONBLOCK. NULL and errno: EMFILE, ENFILE,
/// ENOMEM.
///
/// # Safety
///
/// As for rdma_create_event_channel(3).
pub unsafe fn rdma_create_event_channel() -> *mut rdma_event_channel {
    create(false).unwrap_or_else(|e| {
        set_errno(e);
        null_mut()
    })
}

/// Destroys an event channel and closes its descriptor. Events that were not fetched are discarded.
///
/// # Safety
///
/// As for rdma_destroy_event_channel(3): all identifiers of the channel must have been destroyed or migrated.
pub unsafe fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: rdma_destroy_event_channel(3) requires that `channel` was returned by rdma_create_event_channel
    // and is not used afterwards.
    unsafe { ChannelObject::free(channel) };
}

/// The event queue of a channel; `None` for NULL.
///
/// # Safety
///
/// `channel` must be NULL, or come from [`rdma_create_event_channel`] and not have been destroyed.
pub(super) unsafe fn queue_of(channel: *mut rdma_event_channel) -> Option<Channel> {
    // SAFETY: the requirements of the callee are those of this function, and the reference is dropped before
    // it returns, while the channel has not been destroyed.
    unsafe { borrowed_queue(channel) }.cloned()
}

/// As [`queue_of`], but borrowed: a thread that is cancelled in the middle would leak a reference count.
///
/// # Safety
///
/// As for [`queue_of`]; the channel must not be destroyed while the reference is in use.
pub(super) unsafe fn borrowed_queue<'a>(channel: *mut rdma_event_channel) -> Option<&'a Channel> {
    // SAFETY: `channel` is not NULL here, so the caller guarantees that it is a channel of softverbs that is
    // not destroyed while the reference is in use.
    (!channel.is_null()).then(|| unsafe { &ChannelObject::own(channel).queue })
}
