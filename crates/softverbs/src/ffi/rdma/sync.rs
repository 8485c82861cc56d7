// SPDX-License-Identifier: BSD-3-Clause
//! Synchronous identifiers (rdma_create_id(3) with a NULL channel, rdma_create_ep(3)): the channel that each
//! has for itself, and how its functions wait.
//!
//! Resolving takes no time, so it needs no channel; one is made when the identifier listens, connects or
//! accepts. The field `channel` of the C structure is NULL until then. A program may poll the descriptor of
//! the channel, and take events from it.

use rdma_sys::{rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_event_channel};
use std::ptr::{addr_of, addr_of_mut, null_mut};

use super::channel::{create_hidden, is_hidden, queue_of, rdma_destroy_event_channel};
use super::event::{rdma_ack_cm_event, take_event, try_take_event};
use super::handle::IdObject;
use crate::sys::Errno;
use rdma_cm_event_type::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE,
};

/// Whether the functions of an identifier wait.
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed.
pub(super) unsafe fn waits(id: *mut rdma_cm_id) -> bool {
    // SAFETY: `id` has not been destroyed. Its channel is NULL, its own, or one of the program, which has not
    // been destroyed before the identifier (rdma_destroy_event_channel(3)).
    unsafe { is_hidden(addr_of!((*id).channel).read()) }
}

/// Makes the channel of a synchronous identifier that is about to have events. Nothing to do for others.
/// EMFILE, ENFILE, ENOMEM.
///
/// # Safety
///
/// As for [`waits`].
pub(super) unsafe fn prepare(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: `id` has not been destroyed, and only one thread at a time makes it begin something. The
    // channel has just been created.
    unsafe {
        if addr_of!((*id).channel).read().is_null() {
            let channel = create_hidden()?;
            IdObject::own(id).cm.set_channel(queue_of(channel));
            addr_of_mut!((*id).channel).write(channel);
        }
    }
    Ok(())
}

/// Destroys the channel of a synchronous identifier. Nothing to do for a channel of the program, and for
/// NULL.
///
/// # Safety
///
/// `channel` must be NULL or not have been destroyed; if it belongs to an identifier, that must not use it
/// any more.
pub(super) unsafe fn drop_channel(channel: *mut rdma_event_channel) {
    // SAFETY: `channel` has not been destroyed, and its identifier does not use it any more.
    unsafe {
        if !channel.is_null() && is_hidden(channel) {
            rdma_destroy_event_channel(channel);
        }
    }
}

/// Acknowledges the last event of an identifier.
///
/// # Safety
///
/// As for [`waits`]; the program must not use that event any more.
pub(super) unsafe fn forget_event(id: *mut rdma_cm_id) {
    // SAFETY: `id` has not been destroyed. The field has NULL or an event that this module has stored there
    // and that has not been acknowledged.
    unsafe { keep_event(id, null_mut()) };
}

/// Makes `event` the last event of an identifier.
///
/// # Safety
///
/// As for [`forget_event`].
pub(super) unsafe fn keep_event(id: *mut rdma_cm_id, event: *mut rdma_cm_event) {
    // SAFETY: as for `forget_event`.
    unsafe {
        let last = addr_of!((*id).event).read();
        addr_of_mut!((*id).event).write(event);
        if !last.is_null() {
            rdma_ack_cm_event(last);
        }
    }
}

/// Waits for the outcome of rdma_connect or rdma_accept, if the identifier is synchronous. The errno of a
/// failure is the one of its event, ECONNREFUSED for a rejection. EINTR; then the operation goes on. The
/// thread may be cancelled while it waits.
///
/// # Safety
///
/// As for [`forget_event`]; the operation must have been started after [`prepare`].
pub(super) unsafe fn outcome(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller guarantees the same.
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
            | RDMA_CM_EVENT_CONNECT_ERROR
    )
}

/// Waits for the end of the connection of a synchronous identifier, which will be reported. As for
/// [`outcome`].
///
/// # Safety
///
/// As for [`forget_event`].
pub(super) unsafe fn end(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller guarantees the same.
    unsafe { next(id, |kind| matches!(kind, RDMA_CM_EVENT_DISCONNECTED | RDMA_CM_EVENT_CONNECT_ERROR)) }
        .map(drop)
}

/// Waits for an event of one of these kinds, which becomes the last one of the identifier; what is queued
/// before it is acknowledged. Returns kind and status, `None` for an identifier with a channel of the
/// program.
///
/// # Safety
///
/// As for [`forget_event`].
unsafe fn next(
    id: *mut rdma_cm_id,
    of: fn(rdma_cm_event_type::Type) -> bool,
) -> Result<Option<(rdma_cm_event_type::Type, i32)>, Errno> {
    // SAFETY: `id` has not been destroyed, nor has its channel. The event has just been taken; nobody else
    // knows it.
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

/// Takes the queued events of a synchronous identifier whose connection has ended; the last one becomes its
/// last event.
///
/// # Safety
///
/// As for [`forget_event`].
pub(super) unsafe fn drain(id: *mut rdma_cm_id) {
    // SAFETY: `id` has not been destroyed, nor has its channel.
    unsafe {
        if waits(id) {
            while let Some(event) = try_take_event(addr_of!((*id).channel).read()) {
                keep_event(id, event);
            }
        }
    }
}

/// See [`super::rdma_migrate_id`].
///
/// # Safety
///
/// As for rdma_migrate_id(3).
pub(super) unsafe fn migrate(id: *mut rdma_cm_id, to: *mut rdma_event_channel) -> Result<(), Errno> {
    // SAFETY: `id` is an identifier of softverbs and `to` NULL or an event channel of softverbs; neither has
    // been destroyed (rdma_migrate_id(3)). `channel` is a field that only functions of rdma_cm write, and its
    // former value is not used after `migrate`.
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
