// SPDX-License-Identifier: BSD-3-Clause
//! Synchronous identifiers (rdma_create_id(3) with a NULL channel, rdma_create_ep(3)): the hidden channel of
//! each, and how its functions wait.
//!
//! The hidden channel is created when the identifier listens, connects or accepts; resolving takes no time
//! and needs none. Until then the field `channel` of the C structure is NULL. A program may poll the
//! descriptor of the channel and get events from it. The field `event` holds the last event, which the
//! identifier acknowledges when the next one replaces it.

use rdma_sys::{rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_event_channel};
use std::ptr::{addr_of, addr_of_mut, null_mut};

use super::channel::{create_hidden, is_hidden, queue_of, rdma_destroy_event_channel};
use super::event::{rdma_ack_cm_event, take_event, try_take_event};
use super::handle::IdObject;
use crate::sys::Errno;
use rdma_cm_event_type::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE,
};

/// Whether an identifier is synchronous, so that its functions wait.
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed.
pub(super) unsafe fn waits(id: *mut rdma_cm_id) -> bool {
    // SAFETY: the caller guarantees that `id` has not been destroyed. Its channel is NULL, hidden, or one of
    // the program, which must outlive the identifier (rdma_destroy_event_channel(3)).
    unsafe { is_hidden(addr_of!((*id).channel).read()) }
}

/// Creates the hidden channel of a synchronous identifier before its first operation with events. Does
/// nothing if the identifier has a channel. EMFILE, ENFILE, ENOMEM.
///
/// # Safety
///
/// As for [`waits`].
pub(super) unsafe fn prepare(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `id` has not been destroyed, and programs start operations of one
    // identifier on one thread at a time, so no other thread writes this field. The channel has just been
    // created.
    unsafe {
        if addr_of!((*id).channel).read().is_null() {
            let channel = create_hidden()?;
            IdObject::own(id).cm.set_channel(queue_of(channel));
            addr_of_mut!((*id).channel).write(channel);
        }
    }
    Ok(())
}

/// Destroys a hidden channel. Does nothing for a channel of the program or NULL.
///
/// # Safety
///
/// `channel` must be NULL or not have been destroyed; if it is hidden, its identifier must not use it
/// afterwards.
pub(super) unsafe fn drop_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the caller guarantees that `channel`, which is not NULL here, has not been destroyed, and that
    // its identifier does not use it afterwards.
    unsafe {
        if !channel.is_null() && is_hidden(channel) {
            rdma_destroy_event_channel(channel);
        }
    }
}

/// Acknowledges the last event of an identifier and sets its field `event` to NULL.
///
/// # Safety
///
/// As for [`waits`]; the program must not use that event afterwards.
pub(super) unsafe fn forget_event(id: *mut rdma_cm_id) {
    // SAFETY: the requirements of `keep_event` are those of this function, which the caller meets.
    unsafe { keep_event(id, null_mut()) };
}

/// Makes `event` the last event of an identifier, and acknowledges the previous one.
///
/// # Safety
///
/// As for [`forget_event`].
pub(super) unsafe fn keep_event(id: *mut rdma_cm_id, event: *mut rdma_cm_event) {
    // SAFETY: the caller guarantees that `id` has not been destroyed and that the program does not use the
    // previous event, which only this function stores there and which has therefore not been acknowledged.
    unsafe {
        let last = addr_of!((*id).event).read();
        addr_of_mut!((*id).event).write(event);
        if !last.is_null() {
            rdma_ack_cm_event(last);
        }
    }
}

/// Waits for the outcome of rdma_connect or rdma_accept if the identifier is synchronous, else returns at
/// once. The error of a failed operation is ECONNREFUSED for a rejection, otherwise the errno of the event.
/// EINTR: a signal handler has run, and the operation continues. The thread can be cancelled while it waits.
///
/// # Safety
///
/// As for [`forget_event`]; the operation must have been started after [`prepare`].
pub(super) unsafe fn outcome(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the requirements of `next` are those of this function, which the caller meets.
    match unsafe { next(id, is_outcome) }? {
        None | Some((RDMA_CM_EVENT_ESTABLISHED, _)) => Ok(()),
        Some((RDMA_CM_EVENT_REJECTED, _)) => Err(libc::ECONNREFUSED),
        Some((_, status)) => Err(status.abs()),
    }
}

fn is_outcome(kind: rdma_cm_event_type::Type) -> bool {
    matches!(
        kind,
        RDMA_CM_EVENT_ESTABLISHED
            | RDMA_CM_EVENT_REJECTED
            | RDMA_CM_EVENT_UNREACHABLE
            | RDMA_CM_EVENT_ADDR_ERROR
            | RDMA_CM_EVENT_CONNECT_ERROR
    )
}

/// Waits for the end of the connection if the identifier is synchronous. Only to be called if an event is
/// certain to report the end. EINTR and cancellation as for [`outcome`].
///
/// # Safety
///
/// As for [`forget_event`].
pub(super) unsafe fn end(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the requirements of `next` are those of this function, which the caller meets.
    unsafe { next(id, |kind| matches!(kind, RDMA_CM_EVENT_DISCONNECTED | RDMA_CM_EVENT_CONNECT_ERROR)) }
        .map(drop)
}

/// Waits for an event whose kind `of` selects, and makes it the last event of the identifier. Events queued
/// before it are acknowledged. Returns kind and status, or `None` if the identifier is not synchronous.
///
/// # Safety
///
/// As for [`forget_event`].
unsafe fn next(
    id: *mut rdma_cm_id,
    of: fn(rdma_cm_event_type::Type) -> bool,
) -> Result<Option<(rdma_cm_event_type::Type, i32)>, Errno> {
    // SAFETY: the caller guarantees that `id` has not been destroyed and that the program does not use its
    // last event; the channel lives as long as `id`. The new event has just been taken and is not shared.
    unsafe {
        if !waits(id) {
            return Ok(None);
        }
        loop {
            forget_event(id);
            let event = take_event(addr_of!((*id).channel).read())?;
            keep_event(id, event);
            let kind = addr_of!((*event).event).read();
            if of(kind) {
                return Ok(Some((kind, addr_of!((*event).status).read())));
            }
        }
    }
}

/// Takes the queued events of a synchronous identifier whose connection has ended; the last one becomes the
/// last event of the identifier.
///
/// # Safety
///
/// As for [`forget_event`].
pub(super) unsafe fn drain(id: *mut rdma_cm_id) {
    // SAFETY: the caller guarantees that `id` has not been destroyed and that the program does not use its
    // last event; the channel lives as long as `id`.
    unsafe {
        if waits(id) {
            while let Some(event) = try_take_event(addr_of!((*id).channel).read()) {
                keep_event(id, event);
            }
        }
    }
}

/// Moves an identifier to another channel; see [`super::rdma_migrate_id`], also for the errors.
///
/// # Safety
///
/// As for rdma_migrate_id(3).
pub(super) unsafe fn migrate(id: *mut rdma_cm_id, to: *mut rdma_event_channel) -> Result<(), Errno> {
    // SAFETY: rdma_migrate_id(3) requires that `id` is an identifier of softverbs and `to` NULL or an event
    // channel of softverbs, neither of which has been destroyed. Only functions of rdma_cm write the field
    // `channel`; its former value is not used by the identifier after `cm.migrate`.
    unsafe {
        let cm = &IdObject::own(id).cm;
        let from = addr_of!((*id).channel).read();
        if to.is_null() && is_hidden(from) {
            return Err(libc::EINVAL);
        }
        let to = if to.is_null() && cm.may_report() { create_hidden()? } else { to };
        cm.migrate(queue_of(to));
        addr_of_mut!((*id).channel).write(to);
        if is_hidden(from) {
            forget_event(id);
            drop_channel(from);
        }
    }
    Ok(())
}
