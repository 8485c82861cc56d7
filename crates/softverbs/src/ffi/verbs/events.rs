// SPDX-License-Identifier: BSD-3-Clause
//! Asynchronous events of queue pairs, shared receive queues, completion queues and the port
//! (ibv_get_async_event(3)).
//!
//! There is one event queue per process, with the descriptor `async_fd` of the context. It is created when
//! the program opens the device or first waits for an event. Before that no one can wait for an event, and
//! events are dropped. Destroying an object withdraws its events, so an event never refers to a destroyed
//! object. A child after fork(2) has none until it does one of the two itself; then its events are those of
//! its own objects, and those of the port since it opened the device.
//!
//! The queue is bounded: the program determines how many events of objects there are, and of the port, whose
//! events others can cause, it has one of each type.

use libc::c_int;
use rdma_sys::{ibv_async_event, ibv_context, ibv_event_type, ibv_srq};
use std::ptr::addr_of_mut;
use std::sync::Arc;

use super::PORT;
use crate::cancel::Whole;
use crate::channel::EventQueue;
use crate::lock;
use crate::process::PerProcess;
use crate::sys::{Errno, set_errno};

/// An event: its type, and the address of the C structure of its object; 0 is the port.
pub(super) struct Occurrence {
    kind: ibv_event_type::Type,
    object: usize,
}

type Queue = EventQueue<Occurrence>;

static QUEUE: PerProcess<Arc<Queue>> = PerProcess::new();

/// The event queue of this process, if it exists.
fn queue() -> Option<Arc<Queue>> {
    lock(QUEUE.existing()?).clone()
}

/// Creates the event queue and its descriptor, unless they exist. EMFILE, ENFILE, ENOMEM.
///
/// # Safety
///
/// `context` must be the context of the software device.
pub(super) unsafe fn open(context: *mut ibv_context) -> Result<Arc<Queue>, Errno> {
    let mut existing = lock(QUEUE.get());
    let queue = match &*existing {
        Some(queue) => queue.clone(),
        None => existing.insert(Arc::new(EventQueue::new()?)).clone(),
    };
    // SAFETY: the caller guarantees that this is the context of the software device, which is never freed.
    // Every thread of the process writes the same value, and a program reads the field only after a function
    // that opens the device for it has returned.
    unsafe { addr_of_mut!((*context).async_fd).write(queue.fd()) };
    Ok(queue)
}

/// Queues an event for the C structure at address `object`; drops it if no event queue exists.
pub(super) fn raise(kind: ibv_event_type::Type, object: usize) {
    if let Some(queue) = queue() {
        queue.push(Occurrence { kind, object });
    }
}

/// Queues an event of the port, in place of an unread one of the same type; drops it if no event queue
/// exists.
pub(super) fn raise_port(kind: ibv_event_type::Type) {
    if let Some(queue) = queue() {
        // No object has this address.
        queue.push_latest(Occurrence { kind, object: 0 }, |queued| (queued.kind, queued.object) == (kind, 0));
    }
}

/// Discards the events of an object that is being destroyed.
pub(super) fn withdraw(object: usize) {
    if let Some(queue) = queue() {
        drop(queue.withdraw(|occurrence| occurrence.object == object));
    }
}

/// Gets the next event of the device, and waits for one unless the descriptor `async_fd` has O_NONBLOCK.
/// Possible events: IBV_EVENT_QP_FATAL (the connection of a queue pair failed: neither side has closed it),
/// on a RoCE device IBV_EVENT_QP_ACCESS_ERR and IBV_EVENT_QP_REQ_ERR (a request of the peer was refused),
/// IBV_EVENT_COMM_EST (the first request of the peer has arrived in RTR) and IBV_EVENT_SQ_DRAINED,
/// IBV_EVENT_QP_LAST_WQE_REACHED (a queue pair takes no more receives from its shared receive queue),
/// IBV_EVENT_SRQ_LIMIT_REACHED, on a RoCE device IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE and
/// IBV_EVENT_PORT_ERR (addresses and interfaces of the host have changed), and in adapter mode
/// IBV_EVENT_CQ_ERR (a completion queue was overrun). Returns 0, or -1 and errno: EAGAIN (O_NONBLOCK and no
/// event), EINTR (a signal handler has run), EMFILE, ENFILE, ENOMEM.
///
/// # Safety
///
/// As for ibv_get_async_event(3).
pub unsafe fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    let _whole = Whole::new();
    // SAFETY: ibv_get_async_event(3) requires an open context; callers pass only the context of the software
    // device here.
    match unsafe { open(context) }.and_then(|queue| queue.take()) {
        Ok(Occurrence { kind, object }) => {
            // SAFETY: all-zero is a valid ibv_async_event: it holds only integers and nullable pointers.
            let mut found: ibv_async_event = unsafe { std::mem::zeroed() };
            found.event_type = kind;
            match object {
                0 => found.element.port_num = c_int::from(PORT),
                object => found.element.srq = object as *mut ibv_srq,
            }
            // SAFETY: ibv_get_async_event(3) requires that `event` is valid for writes.
            unsafe { event.write(found) };
            0
        }
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}

/// Acknowledges an event, for which nothing is to be done: destroying an object does not wait for
/// acknowledgements.
///
/// # Safety
///
/// As for ibv_ack_async_event(3).
pub unsafe fn ibv_ack_async_event(_event: *mut ibv_async_event) {}
