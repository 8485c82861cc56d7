// SPDX-License-Identifier: BSD-3-Clause
//! Events of rdma_cm as C structures: rdma_get_cm_event(3) and rdma_ack_cm_event(3).
//!
//! Each event is a block that belongs to the program until it acknowledges it. The identifier of a connect
//! request is created when the request is fetched.

use libc::{c_int, c_void};
use rdma_sys::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_ud_param};
use std::ptr::{addr_of, null, null_mut};

use super::finish;
use super::handle::{IdObject, new_requested_id};
use crate::cancel::Whole;
use crate::cm::event::Event;
use crate::cm::id::{Channel, is_connect_request};
use crate::ffi::object::Object;
use crate::ffi::verbs;
use crate::limits::MAX_PRIVATE_DATA_IN;
use crate::sys::Errno;

use super::channel::{borrowed_queue, is_hidden};

/// The C structure of an event, with the private data that it points to and the reason of a failure.
type EventObject = Object<rdma_cm_event, (Vec<u8>, Option<String>)>;

/// Why the connection attempt that this event reports has failed, as text. `None`: the event does not report
/// a failed attempt.
///
/// # Safety
///
/// `event` must come from [`rdma_get_cm_event`], and must not be acknowledged while the result is in use.
pub unsafe fn event_reason<'a>(event: *mut rdma_cm_event) -> Option<&'a str> {
    // SAFETY: the caller guarantees that `event` comes from `rdma_get_cm_event`, which returns only objects
    // of this type, and that it is not acknowledged while the result is in use.
    let (_, reason) = unsafe { EventObject::own(event) };
    reason.as_deref()
}

/// Gets the next event of a channel, and waits for one unless its descriptor has O_NONBLOCK. The event
/// belongs to the caller, who frees it with [`rdma_ack_cm_event`]. A connect request has a new identifier,
/// which belongs to the caller, too; it is synchronous if the listener is.
///
/// Returns 0, or -1 and errno: EINVAL (`channel` or `event` is NULL; no event is taken), EAGAIN (O_NONBLOCK
/// and no event), EINTR (a signal handler has run).
///
/// # Safety
///
/// As for rdma_get_cm_event(3).
pub unsafe fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: rdma_get_cm_event(3) requires that `channel` was returned by rdma_create_event_channel and has
    // not been destroyed; NULL is checked.
    let taken = unsafe { take_event(channel) };
    // SAFETY: `event` is not NULL, so rdma_get_cm_event(3) requires that it is valid for writes of a pointer.
    finish(taken.map(|c| unsafe { event.write(c) }))
}

/// Takes the next event; see [`rdma_get_cm_event`]. The thread can be cancelled while it waits.
///
/// # Safety
///
/// `channel` must be NULL, or a channel of softverbs that has not been destroyed.
pub(super) unsafe fn take_event(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Errno> {
    // SAFETY: the caller guarantees that `channel` is NULL or a channel of softverbs that is not destroyed
    // during the call.
    let queue = unsafe { borrowed_queue(channel) }.ok_or(libc::EINVAL)?;
    let _whole = Whole::new();
    let taken = queue.take()?;
    // SAFETY: the channel is not destroyed during the call, and the event was just taken from its queue.
    Ok(unsafe { present(channel, queue, taken) })
}

/// Takes the next event of a channel without waiting. `None`: there is none, or `channel` is NULL.
///
/// # Safety
///
/// As for [`take_event`].
pub(super) unsafe fn try_take_event(channel: *mut rdma_event_channel) -> Option<*mut rdma_cm_event> {
    // SAFETY: the caller guarantees that `channel` is NULL or a channel of softverbs that is not destroyed
    // during the call.
    let queue = unsafe { borrowed_queue(channel) }?;
    let taken = queue.try_take()?;
    // SAFETY: the channel is not destroyed during the call, and the event was just taken from its queue.
    Some(unsafe { present(channel, queue, taken) })
}

/// Creates the C structure of an event, and the identifier of a connect request.
///
/// # Safety
///
/// `channel` must not have been destroyed, and `taken` must come from its queue.
unsafe fn present(channel: *mut rdma_event_channel, queue: &Channel, mut taken: Event) -> *mut rdma_cm_event {
    let id = taken.id as *mut rdma_cm_id;
    match taken.request.take().filter(|_| is_connect_request(&taken)) {
        // SAFETY: `id` is the listening identifier. It has not been destroyed, because rdma_destroy_id
        // withdraws the events of an identifier, and a program must not destroy it while another thread takes
        // an event of it. The caller guarantees that `channel` has not been destroyed.
        Some(request) => unsafe {
            let context = addr_of!((*id).context).read();
            let on = (!is_hidden(channel)).then(|| (channel, queue.clone()));
            // The program may have written to `qp_type` of the C structure.
            let (ps, kind) = (addr_of!((*id).ps).read(), IdObject::own(id).cm.kind());
            event_to_c(taken, new_requested_id(on, context, ps, kind, request.fetch()), id)
        },
        None => event_to_c(taken, id, null_mut()),
    }
}

/// Acknowledges an event and frees it with its private data. Returns 0, or -1 and errno EINVAL: `event` is
/// NULL.
///
/// # Safety
///
/// As for rdma_ack_cm_event(3).
pub unsafe fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `event` is not NULL, and rdma_ack_cm_event(3) requires that rdma_get_cm_event has returned it
    // and that it is acknowledged once and not used afterwards.
    unsafe { EventObject::free(event) };
    0
}

/// Creates the C structure of an event with the given `id` and `listen_id`. [`rdma_ack_cm_event`] frees it.
pub(super) fn event_to_c(
    event: Event,
    id: *mut rdma_cm_id,
    listen_id: *mut rdma_cm_id,
) -> *mut rdma_cm_event {
    let mut private_data = event.private_data;
    // rdma_cm stores the length of private data in 8 bits.
    private_data.truncate(MAX_PRIVATE_DATA_IN);
    // SAFETY: all-zero is a valid rdma_cm_event: it holds only integers and nullable pointers.
    let mut c: rdma_cm_event = unsafe { std::mem::zeroed() };
    c.id = id;
    c.listen_id = listen_id;
    c.event = event.kind;
    c.status = event.status;
    let len = private_data.len() as u8;
    let data = if len == 0 { null() } else { private_data.as_ptr().cast() };
    if let Some(datagrams) = event.datagrams {
        // SAFETY: all-zero is a valid ibv_ah_attr: it holds only integers.
        let no_path = || unsafe { std::mem::zeroed() };
        c.param.ud = rdma_ud_param {
            private_data: if len == 0 { datagrams.context as *const c_void } else { data },
            private_data_len: len,
            ah_attr: datagrams.path.map_or_else(no_path, |path| verbs::datagram_path(&path)),
            qp_num: event.qp_num,
            qkey: datagrams.qkey,
        };
        return EventObject::create(c, (private_data, event.reason));
    }
    c.param.conn = rdma_conn_param {
        private_data: data,
        private_data_len: len,
        responder_resources: event.responder_resources,
        initiator_depth: event.initiator_depth,
        flow_control: 0,
        retry_count: event.retry_count,
        rnr_retry_count: event.rnr_retry_count,
        srq: event.srq.into(),
        qp_num: event.qp_num,
    };
    EventObject::create(c, (private_data, event.reason))
}
