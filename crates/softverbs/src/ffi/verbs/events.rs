// SPDX-License-Identifier: BSD-3-Clause
//! Asynchronous events of queue pairs, shared receive queues and completion queues (ibv_get_async_event(3)).
//!
//! The descriptor of the context exists once a program has opened the device, or asked for it. Before that
//! nobody could have waited for an event, and none is kept.

use libc::c_int;
use once_cell::race::OnceBox;
use rdma_sys::{ibv_async_event, ibv_context, ibv_event_type, ibv_srq};
use std::ptr::addr_of_mut;

use crate::cancel::Whole;
use crate::channel::EventQueue;
use crate::sys::{Errno, set_errno};

/// What has happened, and the address of the C structure that it is about.
pub(super) struct Occurrence {
    kind: ibv_event_type::Type,
    object: usize,
}

static QUEUE: OnceBox<EventQueue<Occurrence>> = OnceBox::new();

/// Creates the descriptor of the context, if it is not there yet. EMFILE, ENFILE, ENOMEM.
///
/// # Safety
///
/// `context` must be that of the software device.
pub(super) unsafe fn open(context: *mut ibv_context) -> Result<&'static EventQueue<Occurrence>, Errno> {
    let queue = QUEUE.get_or_try_init(|| EventQueue::new().map(Box::new))?;
    // SAFETY: the context is never freed. Every thread writes the same value, and a program reads it only
    // after a function that opens the device for it has returned.
    unsafe { addr_of_mut!((*context).async_fd).write(queue.fd()) };
    Ok(queue)
}

/// Queues an event.
pub(super) fn raise(kind: ibv_event_type::Type, object: usize) {
    if let Some(queue) = QUEUE.get() {
        queue.push(Occurrence { kind, object });
    }
}

/// Discards the events of an object that is being destroyed.
pub(super) fn withdraw(object: usize) {
    if let Some(queue) = QUEUE.get() {
        drop(queue.withdraw(|occurrence| occurrence.object == object));
    }
}

/// Waits for the next event, unless the descriptor `async_fd` has O_NONBLOCK. There are IBV_EVENT_QP_FATAL
/// (the connection of a queue pair has failed: neither side has closed it), IBV_EVENT_QP_LAST_WQE_REACHED (a
/// queue pair takes no more receives from its shared receive queue) and IBV_EVENT_SRQ_LIMIT_REACHED; in
/// strict mode also IBV_EVENT_CQ_ERR (a completion queue was overrun). 0, or -1 and errno: EAGAIN or EINTR as
/// a read of the descriptor, EMFILE, ENFILE, ENOMEM.
///
/// # Safety
///
/// As for ibv_get_async_event(3).
pub unsafe fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    let _whole = Whole::new();
    // SAFETY: `context` is that of the software device (ibv_get_async_event(3)).
    match unsafe { open(context) }.and_then(EventQueue::take) {
        Ok(Occurrence { kind, object }) => {
            // SAFETY: all-zero is a valid ibv_async_event.
            let mut found: ibv_async_event = unsafe { std::mem::zeroed() };
            found.event_type = kind;
            found.element.srq = object as *mut ibv_srq;
            // SAFETY: `event` is valid for writes (ibv_get_async_event(3)).
            unsafe { event.write(found) };
            0
        }
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}

/// Does nothing: destroying an object does not wait for the acknowledgement of its events.
///
/// # Safety
///
/// As for ibv_ack_async_event(3).
pub unsafe fn ibv_ack_async_event(_event: *mut ibv_async_event) {}
