// SPDX-License-Identifier: BSD-3-Clause
//! Completion channels and their events.

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
use crate::lock;
use crate::progress::sleep::{self, Watches};
use crate::stuck::Waiting;
use crate::sys::set_errno;

pub(crate) struct ChannelOwn {
    pub(crate) queue: Arc<EventQueue<usize>>,
    /// The completion queues whose events it delivers.
    pub(crate) users: Arc<Mutex<Vec<Arc<Cq>>>>,
}

pub(crate) type ChannelObject = Object<ibv_comp_channel, ChannelOwn>;

/// Creates a completion channel. Its descriptor is readable while an event is queued, and may be switched to
/// O_NONBLOCK. EINVAL, EMFILE, ENFILE, ENOMEM.
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

/// Destroys a completion channel. EBUSY while completion queues use it.
///
/// # Safety
///
/// As for ibv_destroy_comp_channel(3).
pub unsafe fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: `channel` was returned by ibv_create_comp_channel and has not been destroyed
    // (ibv_destroy_comp_channel(3)).
    if !lock(&unsafe { ChannelObject::own(channel) }.users).is_empty() {
        return libc::EBUSY;
    }
    // SAFETY: the program does not use `channel` any more (ibv_destroy_comp_channel(3)), and no queue refers
    // to it: `users` is empty.
    unsafe { ChannelObject::free(channel) };
    0
}

/// Gets the next event of a completion channel: the completion queue and its context. -1 and errno EAGAIN or
/// EINTR, as a read of the descriptor fails.
///
/// # Safety
///
/// As for ibv_get_cq_event(3).
pub unsafe fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: `channel` was returned by ibv_create_comp_channel and has not been destroyed
    // (ibv_get_cq_event(3)).
    let own = unsafe { ChannelObject::own(channel) };
    let _whole = Whole::new();
    let mut watches = Watches::new();
    let few = lock(&own.users).iter().all(|cq| cq.add_watches(&mut watches));
    let waiting = Waiting::begin(&own.queue, &own.users);
    // Waiting for more than a few sets costs more than being woken by the engine.
    let taken = if few {
        sleep::take(&own.queue, watches, waiting)
    } else {
        drop(watches);
        own.queue.take_keeping(waiting)
    };
    match taken {
        Ok(handle) => {
            let from = handle as *mut ibv_cq;
            // SAFETY: `cq` and `cq_context` point to pointers for the results (ibv_get_cq_event(3)). `from`
            // has not been destroyed: ibv_destroy_cq withdraws the events of the queue.
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

/// Acknowledges events of a completion queue.
///
/// # Safety
///
/// As for ibv_ack_cq_events(3).
pub unsafe fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    // SAFETY: `cq` was returned by ibv_create_cq and has not been destroyed (ibv_ack_cq_events(3)). As in
    // libibverbs, its mutex protects the count; all-zero is an initialised mutex and condition variable.
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
