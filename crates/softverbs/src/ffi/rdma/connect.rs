// SPDX-License-Identifier: BSD-3-Clause
//! Listening, connecting, accepting, rejecting and disconnecting.
//!
//! Each function converts its arguments and calls the function of [`crate::cm::calls`] with the same name;
//! for a synchronous identifier it then waits for the event.

use libc::{c_int, c_void};
use rdma_sys::{ibv_event_type, rdma_cm_id, rdma_conn_param};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::Arc;

use super::finish;
use super::handle::IdObject;
use super::param::{read_param, read_private_data};
use super::qp::connection_of;
use super::sync;
use crate::cm::addr;
use crate::cm::carrier::Carrier;
use crate::cm::id::Id;
use crate::ffi::context::owns;
use crate::qp::{Qp, numbers};
use crate::sys::Errno;

/// Listens for connect requests, which are reported as events; with a synchronous identifier
/// [`super::rdma_get_request`] fetches them. `backlog` is that of listen(2); if it is not positive, 1024. It
/// limits the connections that the kernel has completed and the library has not yet accepted.
///
/// Returns 0, or -1 and errno. EINVAL: the identifier is not bound, or is listening, connecting or connected.
/// EADDRINUSE, EADDRNOTAVAIL: another identifier shares the address, or the port of a wildcard address
/// (RDMA_OPTION_ID_REUSEADDR), which a listener must have exclusively. EMFILE, ENFILE, ENOMEM. If a system
/// call fails, also with EADDRINUSE because of another process, the identifier is no longer bound.
///
/// # Safety
///
/// As for rdma_listen(3).
pub unsafe fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let result = (|| {
        // SAFETY: rdma_listen(3) requires that `id` is an identifier of softverbs that has not been
        // destroyed.
        let own = unsafe { &IdObject::own(id).cm };
        own.can_listen()?;
        // SAFETY: rdma_listen(3) requires that `id` is not destroyed during the call, nor used to connect or
        // listen by another thread.
        unsafe { sync::prepare(id) }?;
        own.listen(backlog)
    })();
    finish(result)
}

/// Requests a connection with the parameters `param`; NULL selects the defaults of librdmacm. An event
/// reports the outcome: ESTABLISHED, REJECTED (no program listens there, or it has rejected the request),
/// UNREACHABLE (no route, or no response in time) or CONNECT_ERROR. A synchronous identifier waits for the
/// outcome: errno is ECONNREFUSED if the request is rejected, ETIMEDOUT, EHOSTUNREACH or ENETUNREACH if the
/// peer is unreachable, otherwise that of the event; EINTR if a signal handler has run, and then the attempt
/// continues.
///
/// The queue pair is that of rdma_create_qp(3), or one that the program has created with ibv_create_qp(3) and
/// stored in the field `qp` of the identifier, or the one with the number `qp_num` of the parameters. If it
/// has had a connection before, the outcome is CONNECT_ERROR with EISCONN. A refused TCP connection is
/// retried for up to 62 ms before the request counts as rejected, since the remote program may be about to
/// listen.
///
/// An identifier for datagrams (RDMA_PS_UDP) needs no queue pair. ESTABLISHED has the queue pair number, the
/// Q_Key and the path of the service in `param.ud`; UNREACHABLE has the status of the SIDR_REP, or
/// -ETIMEDOUT.
///
/// Returns 0, or -1 and errno. EINVAL: the identifier has no queue pair or no remote address, or is
/// listening, connecting or connected, or the private data exceeds 251 bytes (in adapter mode, 56; for
/// datagrams, 180). EMFILE, ENFILE, ENOMEM. After one of these errors no event follows.
///
/// # Safety
///
/// As for rdma_connect(3).
pub unsafe fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let result = (|| {
        // SAFETY: rdma_connect(3) requires that `id` is an identifier of softverbs that has not been
        // destroyed.
        let own = unsafe { &IdObject::own(id).cm };
        let carrier = if own.is_for_datagrams() { Carrier::Resolve } else { Carrier::Request };
        // SAFETY: rdma_connect(3) requires that `param` is NULL or points to connection parameters whose
        // private data is readable.
        let mut param = unsafe { read_param(param, carrier) }?;
        // SAFETY: rdma_connect(3) requires that `id` is not destroyed during the call, and that its field
        // `qp` is NULL or a queue pair that has not been destroyed.
        let qp = unsafe { queue_pair(id, own, &mut param.qp_num) }?;
        own.can_connect()?;
        // SAFETY: rdma_connect(3) requires that `id` is not destroyed during the call, and that its field
        // `qp` is NULL or a queue pair that has not been destroyed.
        unsafe { sync::prepare(id) }?;
        own.connect(qp, param.into(), |source| {
            // SAFETY: rdma_connect(3) requires that `id` is not destroyed during the call; the program reads
            // this field only after the call has returned.
            unsafe {
                let src = addr_of_mut!((*id).route.addr.__bindgen_anon_1.src_storage);
                src.write(addr::to_storage(source).0);
            }
        })
    })();
    // SAFETY: rdma_connect(3) requires that `id` is not destroyed during the call; the attempt was started
    // after `prepare`.
    finish(result.and_then(|()| unsafe { sync::outcome(id) }))
}

/// The queue pair of an identifier: that of rdma_create_qp(3), one that the program has stored in the C
/// structure, or over iWARP the one with the number `num`. `None`: over RoCE the program changes the states
/// of queue pair `num` itself, or the queue pair is for datagrams; then its number is stored in `num`.
/// EINVAL: there is no queue pair, or it belongs to another device.
///
/// # Safety
///
/// `id` must be the identifier of `own` and not have been destroyed, and its field `qp` must be NULL or a
/// queue pair that has not been destroyed.
unsafe fn queue_pair(id: *mut rdma_cm_id, own: &Id, num: &mut u32) -> Result<Option<Arc<Qp>>, Errno> {
    if own.is_for_datagrams() {
        // SAFETY: the caller guarantees that the field is NULL or a queue pair that has not been destroyed,
        // whose number never changes.
        unsafe {
            let c = addr_of!((*id).qp).read();
            if !c.is_null() {
                *num = addr_of!((*c).qp_num).read();
            }
        }
        return Ok(None);
    }
    if let Some(qp) = own.qp() {
        return Ok(Some(qp));
    }
    // SAFETY: the caller guarantees that the identifier has not been destroyed, and what `stored` requires.
    let (is_stored, stored) = unsafe { (!addr_of!((*id).qp).read().is_null(), stored(id)) };
    let qp = match stored {
        _ if is_stored => stored,
        _ if own.needs_queue_pair() => numbers::find(*num),
        _ if *num != 0 => return Ok(None),
        _ => None,
    };
    qp.map(Some).ok_or(libc::EINVAL)
}

/// The queue pair of softverbs that the program has stored in the C structure.
///
/// # Safety
///
/// `id` must not have been destroyed, and its field `qp` must be NULL or a queue pair that has not been
/// destroyed.
unsafe fn stored(id: *mut rdma_cm_id) -> Option<Arc<Qp>> {
    // SAFETY: the caller guarantees that the field is NULL or a queue pair of some device that has not been
    // destroyed; its `context` never changes, and `owns` finds out whether it belongs to softverbs.
    unsafe {
        let c = addr_of!((*id).qp).read();
        (!c.is_null() && owns(addr_of!((*c).context).read())).then(|| connection_of(c))
    }
}

/// Accepts a connect request with the parameters `param`; NULL selects the defaults of librdmacm. The
/// ESTABLISHED event is queued when the RTR of the initiator arrives, or immediately if the initiator has not
/// announced an RTR; a synchronous identifier waits for it. The queue pair is determined as by
/// [`rdma_connect`].
///
/// An identifier for datagrams (RDMA_PS_UDP) answers with the number of its queue pair, or with `qp_num` of
/// the parameters; no event follows.
///
/// Returns 0, or -1 and errno. EINVAL: no connect request, no queue pair, or more than 251 bytes of private
/// data (in adapter mode, 196; for datagrams, 136). ECONNRESET: the peer has closed the connection. EISCONN:
/// the queue pair has had a connection. EMFILE, ENFILE, ENOMEM. A synchronous identifier also returns the
/// errno of a CONNECT_ERROR event, and EINTR if a signal handler has run.
///
/// # Safety
///
/// As for rdma_accept(3).
pub unsafe fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let result = (|| {
        // SAFETY: rdma_accept(3) requires that `id` is an identifier of softverbs that has not been
        // destroyed.
        let own = unsafe { &IdObject::own(id).cm };
        let carrier = if own.is_for_datagrams() { Carrier::Answer } else { Carrier::Accept };
        // SAFETY: rdma_accept(3) requires that `param` is NULL or points to connection parameters whose
        // private data is readable.
        let mut param = unsafe { read_param(param, carrier) }?;
        // SAFETY: rdma_accept(3) requires that `id` is not destroyed during the call, and that its field `qp`
        // is NULL or a queue pair that has not been destroyed.
        let qp = unsafe { queue_pair(id, own, &mut param.qp_num) }?;
        own.can_accept()?;
        // SAFETY: rdma_accept(3) requires that `id` is not destroyed during the call, and that its field `qp`
        // is NULL or a queue pair that has not been destroyed.
        unsafe { sync::prepare(id) }?;
        own.accept(qp, &param.into())?;
        Ok(own.is_for_datagrams())
    })();
    // SAFETY: rdma_accept(3) requires that `id` is not destroyed during the call; the connection was accepted
    // after `prepare`.
    finish(result.and_then(|is_final| if is_final { Ok(()) } else { unsafe { sync::outcome(id) } }))
}

/// Rejects a connect request; the peer gets `len` bytes of private data with the rejection. Returns 0, also
/// if the peer has already closed the connection, or -1 and errno EINVAL: no connect request, `private_data`
/// is NULL although `len` is not 0, or `len` exceeds 251 (in adapter mode, 148; for datagrams, 136).
///
/// # Safety
///
/// As for rdma_reject(3).
pub unsafe fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int {
    let result = (|| {
        // SAFETY: rdma_reject(3) requires that `id` is an identifier of softverbs that has not been
        // destroyed.
        let own = unsafe { &IdObject::own(id).cm };
        let carrier = if own.is_for_datagrams() { Carrier::Answer } else { Carrier::Reject };
        // SAFETY: rdma_reject(3) requires that `private_data` points to `len` bytes; NULL is checked.
        let private_data = unsafe { read_private_data(private_data, len, carrier) }?;
        own.reject(&private_data)
    })();
    finish(result)
}

/// As [`rdma_reject`]: an MPA Reply cannot carry the reason, an incompatible enhanced connection
/// establishment.
///
/// # Safety
///
/// As for rdma_reject_ece(3).
pub unsafe fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int {
    // SAFETY: the requirements of rdma_reject_ece(3), which the caller meets, are those of rdma_reject(3).
    unsafe { rdma_reject(id, private_data, len) }
}

/// Completes an active connection whose queue pair was created with ibv_create_qp(3). Over iWARP the
/// connection is already established, so nothing is left to do. Returns 0, or -1 and errno EINVAL: the field
/// `qp` of the identifier is not NULL, or it has no connection.
///
/// # Safety
///
/// As for rdma_establish(3).
pub unsafe fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: rdma_establish(3) requires that `id` is an identifier of softverbs that has not been destroyed.
    let (own, qp) = unsafe { (&IdObject::own(id).cm, addr_of!((*id).qp).read()) };
    finish(if qp.is_null() { own.establish() } else { Err(libc::EINVAL) })
}

/// Reports an asynchronous event of the queue pair, such as IBV_EVENT_COMM_EST, to rdma_cm, which ignores it:
/// the first FPDU establishes an iWARP connection. Returns 0, or -1 and errno EINVAL: the identifier has
/// neither requested nor accepted a connection.
///
/// # Safety
///
/// As for rdma_notify(3).
pub unsafe fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type::Type) -> c_int {
    // SAFETY: rdma_notify(3) requires that `id` is an identifier of softverbs that has not been destroyed.
    let own = unsafe { &IdObject::own(id).cm };
    if event == ibv_event_type::IBV_EVENT_COMM_EST {
        own.received_data();
    }
    finish(if own.has_begun() { Ok(()) } else { Err(libc::EINVAL) })
}

/// Disconnects: outstanding work requests complete with IBV_WC_WR_FLUSH_ERR, and both sides get the
/// DISCONNECTED event; a synchronous identifier waits for it. If the connection has already ended, nothing is
/// done. Returns 0, or -1 and errno: EINVAL (the identifier never had a connection), EINTR (a signal handler
/// has run during the wait).
///
/// # Safety
///
/// As for rdma_disconnect(3).
pub unsafe fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: rdma_disconnect(3) requires that `id` is an identifier of softverbs that has not been
    // destroyed.
    let own = unsafe { &IdObject::own(id).cm };
    // SAFETY: rdma_disconnect(3) requires that `id` is not destroyed during the call, and that its field `qp`
    // is NULL or a queue pair that has not been destroyed.
    let stored = if own.is_for_datagrams() { None } else { unsafe { stored(id) } };
    // SAFETY: rdma_disconnect(3) requires that `id` is not destroyed during the call. The event that
    // `sync::end` waits for follows, because `is_reported` is true.
    finish(own.disconnect(stored).and_then(|is_reported| unsafe {
        if is_reported {
            sync::end(id)
        } else {
            sync::drain(id);
            Ok(())
        }
    }))
}
