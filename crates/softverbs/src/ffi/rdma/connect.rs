// SPDX-License-Identifier: BSD-3-Clause
//! Connections: listening, connecting, accepting, rejecting, disconnecting.

use libc::{c_int, c_void};
use rdma_sys::{ibv_event_type, rdma_cm_id, rdma_conn_param};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::Arc;

use super::finish;
use super::handle::IdObject;
use super::param::{Carrier, read_param, read_private_data};
use super::qp::connection_of;
use super::sync;
use crate::cm::addr;
use crate::cm::id::Id;
use crate::ffi::context::owns;
use crate::qp::{Qp, numbers};

/// Listens for connect requests, which are reported as events, or fetched with [`super::rdma_get_request`].
/// EINVAL: the identifier is not bound, or in use. EADDRINUSE, EADDRNOTAVAIL: it shares its address, or the
/// port of a wildcard address, with another one (RDMA_OPTION_ID_REUSEADDR), while a listener has its address
/// alone. EMFILE, ENOMEM: the identifier is not bound any more, as after EADDRINUSE because of another
/// process.
///
/// # Safety
///
/// As for rdma_listen(3).
pub unsafe fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_listen(3)).
        let own = unsafe { &IdObject::own(id).cm };
        own.can_listen()?;
        // SAFETY: `id` has not been destroyed (rdma_listen(3)).
        unsafe { sync::prepare(id) }?;
        own.listen(backlog)
    })();
    finish(result)
}

/// Requests a connection. An event reports the outcome: ESTABLISHED, REJECTED (no program listens there, or
/// it has rejected the request), UNREACHABLE (no route, or no response in time), CONNECT_ERROR. A synchronous
/// identifier waits for it: ECONNREFUSED if it is rejected, ETIMEDOUT, EHOSTUNREACH or ENETUNREACH if it is
/// unreachable, or the errno in the event.
///
/// The queue pair is that of rdma_create_qp, or one that the program has created with ibv_create_qp(3) and
/// stored in the field `qp` of the identifier, or whose number is `qp_num` in the parameters. EINVAL: the
/// identifier has no queue pair or no resolved address, or is in use, or there are more than 251 bytes of
/// private data (in strict mode, 56). EMFILE. If the queue pair has had a connection before, the outcome is
/// CONNECT_ERROR with EISCONN.
///
/// A TCP connection that is refused is tried again for up to 62 ms before that is the outcome: the remote
/// program may be about to listen.
///
/// # Safety
///
/// As for rdma_connect(3).
pub unsafe fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_connect(3)).
        let own = unsafe { &IdObject::own(id).cm };
        // SAFETY: `param` is NULL or points to connection parameters (rdma_connect(3)).
        let param = unsafe { read_param(param, Carrier::Request) }?;
        // SAFETY: `id` has not been destroyed (rdma_connect(3)).
        let qp = unsafe { queue_pair(id, own, param.qp_num) }.ok_or(libc::EINVAL)?;
        own.can_connect()?;
        // SAFETY: `id` has not been destroyed (rdma_connect(3)).
        unsafe { sync::prepare(id) }?;
        own.connect(qp, param.into(), |source| {
            // SAFETY: `id` has not been destroyed (rdma_connect(3)). The program does not read this field
            // during the call.
            unsafe {
                let src = addr_of_mut!((*id).route.addr.__bindgen_anon_1.src_storage);
                src.write(addr::to_storage(source).0);
            }
        })
    })();
    // SAFETY: `id` has not been destroyed, and the attempt was started after `prepare`.
    finish(result.and_then(|()| unsafe { sync::outcome(id) }))
}

/// The queue pair of an identifier: the one of rdma_create_qp, one that the program has stored in the C
/// structure, or one that it has created and names by its number.
///
/// # Safety
///
/// `id` must be the identifier that `own` belongs to, not destroyed, and its field `qp` NULL or a queue pair
/// that has not been destroyed.
unsafe fn queue_pair(id: *mut rdma_cm_id, own: &Arc<Id>, num: u32) -> Option<Arc<Qp>> {
    if let Some(qp) = own.qp() {
        return Some(qp);
    }
    // SAFETY: the caller guarantees that the field is NULL or a queue pair that has not been destroyed.
    let qp = unsafe {
        let c = addr_of!((*id).qp).read();
        if c.is_null() {
            numbers::find(num)
        } else {
            owns(addr_of!((*c).context).read()).then(|| connection_of(c))
        }
    }?;
    own.set_qp(Some(qp.clone()));
    Some(qp)
}

/// Accepts a connect request. The ESTABLISHED event is generated when the first FPDU of the initiator
/// arrives, or immediately if the initiator has not announced one; a synchronous identifier waits for it. The
/// queue pair is as for [`rdma_connect`]. EINVAL: there is no connect request or no queue pair, or more than
/// 251 bytes of private data (in strict mode, 196). ECONNRESET: the peer has closed the connection. EMFILE.
///
/// # Safety
///
/// As for rdma_accept(3).
pub unsafe fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_accept(3)).
        let own = unsafe { &IdObject::own(id).cm };
        // SAFETY: `param` is NULL or points to connection parameters (rdma_accept(3)).
        let param = unsafe { read_param(param, Carrier::Accept) }?;
        // SAFETY: `id` has not been destroyed (rdma_accept(3)).
        let qp = unsafe { queue_pair(id, own, param.qp_num) }.ok_or(libc::EINVAL)?;
        own.can_accept()?;
        // SAFETY: `id` has not been destroyed (rdma_accept(3)).
        unsafe { sync::prepare(id) }?;
        own.accept(&qp, &param.into())
    })();
    // SAFETY: `id` has not been destroyed, and the connection was accepted after `prepare`.
    finish(result.and_then(|()| unsafe { sync::outcome(id) }))
}

/// Rejects a connect request. EINVAL: there is no connect request, or more than 251 bytes of private data (in
/// strict mode, 148).
///
/// # Safety
///
/// As for rdma_reject(3).
pub unsafe fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_reject(3)).
        let own = unsafe { &IdObject::own(id).cm };
        // SAFETY: `private_data` points to `len` bytes (rdma_reject(3)).
        let private_data = unsafe { read_private_data(private_data, len, Carrier::Reject) }?;
        own.reject(&private_data)
    })();
    finish(result)
}

/// As [`rdma_reject`]; iWARP cannot tell the peer that it was for its enhanced connection establishment.
///
/// # Safety
///
/// As for rdma_reject_ece(3).
pub unsafe fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int {
    // SAFETY: rdma_reject_ece(3) asks for the same as rdma_reject(3).
    unsafe { rdma_reject(id, private_data, len) }
}

/// Completes an active connection whose queue pair is not the identifier's. With iWARP it is established
/// already, so nothing is left to do. EINVAL: the identifier has a queue pair, or no connection.
///
/// # Safety
///
/// As for rdma_establish(3).
pub unsafe fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_establish(3)).
    let (own, qp) = unsafe { (&IdObject::own(id).cm, addr_of!((*id).qp).read()) };
    finish(if own.is_connected() && qp.is_null() { Ok(()) } else { Err(libc::EINVAL) })
}

/// Takes note of an asynchronous event of the queue pair, which changes nothing: iWARP connections are
/// established by their first message. EINVAL: the identifier has neither requested nor accepted a
/// connection.
///
/// # Safety
///
/// As for rdma_notify(3).
pub unsafe fn rdma_notify(id: *mut rdma_cm_id, _event: ibv_event_type::Type) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_notify(3)).
    let own = unsafe { &IdObject::own(id).cm };
    finish(if own.has_begun() { Ok(()) } else { Err(libc::EINVAL) })
}

/// Disconnects: outstanding work requests complete with a flush error, and both sides get the DISCONNECTED
/// event; a synchronous identifier waits for it. Does nothing if the connection has already ended. EINVAL:
/// the identifier never had a connection.
///
/// # Safety
///
/// As for rdma_disconnect(3).
pub unsafe fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_disconnect(3)).
    let own = unsafe { &IdObject::own(id).cm };
    // SAFETY: `id` has not been destroyed; the end of a connection that was not over is reported.
    finish(own.disconnect().and_then(|is_reported| unsafe {
        if is_reported {
            sync::end(id)
        } else {
            sync::drain(id);
            Ok(())
        }
    }))
}
