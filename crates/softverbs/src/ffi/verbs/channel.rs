// SPDX-License-Identifier: BSD-3-Clause
//! Completion channels and their events.
//!
//! A channel is an event queue with a pollable descriptor; an event is the address of the completion queue.
//! Destroying a completion queue withdraws its events, so an event never refers to a destroyed queue.

use libc::{c_int, c_uint, c_void};
use rdma_sys::{ibv_comp_channel, ibv_context, ibv_cq};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::{Arc, Mutex};

use super::{null_with, or_null};
use crate::cancel::Whole;
use crate::channel::EventQueue;
use crate::cq::Cq;
use crate::ffi::context::owns;
use crate::ffi::object::Object;
use crate::instrument::Waiting;
use crate::lock;
use crate::progress::sleep::{self, Watches};
use crate::sys::set_errno;

/// The data behind the C structure of a completion channel.
pub(crate) struct ChannelOwn {
    pub(crate) queue: Arc<EventQueue<usize>>,
    /// The completion queues that deliver their events here.
    pub(crate) users: Arc<Mutex<Vec<Arc<Cq>>>>,
}

pub(crate) type ChannelObject = Object<ibv_comp_channel, ChannelOwn>;

/// Creates a completion channel, which the caller destroys with [`ibv_destroy_comp_channel`]. Its descriptor
/// `fd` is readable while an event is queued, and may be set to O_NONBLOCK. NULL and errno: EINVAL (`context`
/// is not the context of the software device), EMFILE, ENFILE, ENOMEM.
///
/// # Safety
///
/// As for ibv_create_comp_channel(3).
pub unsafe fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    if !owns(context) {
        return null_with(libc::EINVAL);
    }
    or_null(EventQueue::new().map(|queue| {
        let channel = ibv_comp_channel { context, fd: queue.fd(), refcnt: 0 };
        ChannelObject::create(channel, ChannelOwn { queue: Arc::new(queue), users: Arc::default() })
    }))
}

/// Destroys a completion channel and closes its descriptor. Returns 0, or EBUSY while completion queues use
/// it.
///
/// # Safety
///
/// As for ibv_destroy_comp_channel(3).
pub unsafe fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: ibv_destroy_comp_channel(3) requires that `channel` was returned by ibv_create_comp_channel and
    // has not been destroyed.
    if !lock(&unsafe { ChannelObject::own(channel) }.users).is_empty() {
        return libc::EBUSY;
    }
    // SAFETY: ibv_destroy_comp_channel(3) requires that the program does not use `channel` afterwards, and
    // `users` is empty, so no completion queue refers to it.
    unsafe { ChannelObject::free(channel) };
    0
}

/// Gets the next event of a completion channel, and waits for one unless the descriptor has O_NONBLOCK.
/// Stores the completion queue in `cq` and its context in `cq_context`; the program acknowledges the event
/// with [`ibv_ack_cq_events`]. While it waits, the thread progresses the connections of these completion
/// queues. Returns 0, or -1 and errno: EAGAIN (O_NONBLOCK and no event), EINTR (a signal handler has run).
///
/// # Safety
///
/// As for ibv_get_cq_event(3).
pub unsafe fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: ibv_get_cq_event(3) requires that `channel` was returned by ibv_create_comp_channel and has not
    // been destroyed.
    let own = unsafe { ChannelObject::own(channel) };
    let _whole = Whole::new();
    let mut watches = Watches::new();
    let few = lock(&own.users).iter().all(|cq| cq.add_watches(&mut watches));
    let waiting = Waiting::begin(&own.queue, &own.users);
    // For more than a few epoll sets, waiting on each costs more than a wake-up by the engine.
    let taken = if few {
        sleep::take(&own.queue, watches, waiting)
    } else {
        drop(watches);
        own.queue.take_keeping(waiting)
    };
    match taken {
        Ok(handle) => {
            let from = handle as *mut ibv_cq;
            // SAFETY: ibv_get_cq_event(3) requires that `cq` and `cq_context` are valid for writes. `from`
            // has not been destroyed, because ibv_destroy_cq withdraws the events of its queue.
            unsafe {
                cq.write(from);
                cq_context.write(addr_of!((*from).cq_context).read());
            }
            0
        }
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}

/// Acknowledges `nevents` events of a completion queue, as libibverbs counts them. [`super::ibv_destroy_cq`]
/// does not wait for acknowledgements.
///
/// # Safety
///
/// As for ibv_ack_cq_events(3).
pub unsafe fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    // SAFETY: ibv_ack_cq_events(3) requires that `cq` was returned by ibv_create_cq and has not been
    // destroyed. As in libibverbs its mutex protects the count; the all-zero mutex and condition variable
    // that `create` has stored are initialised ones on Linux.
    unsafe {
        let mutex: *mut libc::pthread_mutex_t = addr_of_mut!((*cq).mutex).cast();
        let cond: *mut libc::pthread_cond_t = addr_of_mut!((*cq).cond).cast();
        libc::pthread_mutex_lock(mutex);
        let count = addr_of_mut!((*cq).comp_events_completed);
        count.write(count.read().wrapping_add(nevents));
        libc::pthread_cond_signal(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}
