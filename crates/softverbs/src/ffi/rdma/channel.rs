// SPDX-License-Identifier: BSD-3-Clause
//! Event channels.

use rdma_sys::rdma_event_channel;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::channel::EventQueue;
use crate::cm::id::Channel;
use crate::ffi::object::Object;
use crate::sys::{Errno, set_errno};

pub(super) struct ChannelOwn {
    queue: Channel,
    /// It belongs to a synchronous identifier, not to the program.
    hidden: bool,
}

type ChannelObject = Object<rdma_event_channel, ChannelOwn>;

fn create(hidden: bool) -> Result<*mut rdma_event_channel, Errno> {
    let queue = EventQueue::new()?;
    let c = rdma_event_channel { fd: queue.fd() };
    Ok(ChannelObject::create(c, ChannelOwn { queue: Arc::new(queue), hidden }))
}

/// A channel for the events of one synchronous identifier. EMFILE, ENFILE, ENOMEM.
pub(super) fn create_hidden() -> Result<*mut rdma_event_channel, Errno> {
    create(true)
}

/// Whether a channel belongs to a synchronous identifier: its own one, or NULL as long as it needs none.
///
/// # Safety
///
/// `channel` must be NULL, or a channel of softverbs that has not been destroyed.
pub(super) unsafe fn is_hidden(channel: *mut rdma_event_channel) -> bool {
    // SAFETY: `channel` is not NULL, so it has not been destroyed.
    channel.is_null() || unsafe { ChannelObject::own(channel) }.hidden
}

/// Creates an event channel. Its descriptor is readable while an event is queued, and may be switched to
/// O_NONBLOCK. EMFILE, ENFILE, ENOMEM.
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

/// Destroys an event channel.
///
/// # Safety
///
/// As for rdma_destroy_event_channel(3): all identifiers of the channel must have been destroyed or migrated.
pub unsafe fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: `channel` was returned by rdma_create_event_channel and is not used afterwards
    // (rdma_destroy_event_channel(3)).
    unsafe { ChannelObject::free(channel) };
}

/// The event queue of a channel; `None` for NULL.
///
/// # Safety
///
/// `channel` must be NULL, or come from [`rdma_create_event_channel`] and not have been destroyed.
pub(super) unsafe fn queue_of(channel: *mut rdma_event_channel) -> Option<Channel> {
    // SAFETY: as above, and the reference ends with this function.
    unsafe { borrowed_queue(channel) }.cloned()
}

/// As [`queue_of`], without a count of its own, for a thread that may be cancelled.
///
/// # Safety
///
/// As for [`queue_of`]; the channel must not be destroyed as long as the reference is used.
pub(super) unsafe fn borrowed_queue<'a>(channel: *mut rdma_event_channel) -> Option<&'a Channel> {
    // SAFETY: `channel` is not NULL, so it comes from rdma_create_event_channel and has not been destroyed.
    (!channel.is_null()).then(|| unsafe { &ChannelObject::own(channel).queue })
}
