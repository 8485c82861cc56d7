// SPDX-License-Identifier: BSD-3-Clause
//! Connections: their life and their queues.

use std::ffi::c_int;
use std::ptr;

use super::convert::{given, out, status, take};
use rpma::abi::{rpma_conn_event, rpma_conn_private_data};
use rpma::conn::Conn;
use rpma::cq::Cq;
use rpma::peer_cfg::PeerCfg;

/// Deletes a connection, whether or not it was disconnected before.
///
/// Its completion queues, descriptors and private data go with it. A shared receive queue does not.
///
/// # Parameters
/// * conn_ptr - in, out: the connection; NULL afterwards, also on failure. One that is NULL already is left alone.
///
/// # Return value
/// 0, or a negative error code: the first, if several things fail. The connection is gone in either case.
///
/// # Errors
/// * RPMA_E_INVAL - conn_ptr is NULL, or the memory of the flush cannot be unmapped
/// * RPMA_E_PROVIDER - something cannot be destroyed
///
/// # Threads
/// Thread safe for different connections.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_delete(conn_ptr: *mut *mut Conn) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { take(conn_ptr) }?.map_or(Ok(()), |object| object.close()))
}

/// Asks for the end of a connection.
///
/// Both ends get RPMA_CONN_CLOSED from rpma_conn_next_event. Requests that are outstanding complete, in error if they
/// are not done yet.
///
/// # Parameters
/// * conn - in: the connection
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL
/// * RPMA_E_PROVIDER - the provider refuses
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_disconnect(conn: *mut Conn) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { given(conn) }?.disconnect())
}

/// Takes the next event of a connection.
///
/// Waits for one, unless the descriptor of rpma_conn_get_event_fd has been made non-blocking. RPMA_CONN_CLOSED may come
/// twice.
///
/// # Parameters
/// * conn - in: the connection
/// * event - out: the event
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NO_EVENT - the descriptor is non-blocking and no event waits
/// * RPMA_E_NOMEM - out of memory for the private data that came with the event; the event is lost
/// * RPMA_E_PROVIDER - an event cannot be read, or not be acknowledged, in which case the connection's private data are
///   gone
/// * RPMA_E_UNKNOWN - an event that means nothing for a connection
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_next_event(conn: *mut Conn, event: *mut rpma_conn_event) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        let event = out(event)?;
        event.set(conn.next_event()?);
        Ok(())
    })
}

/// Tells the descriptor that is readable when a connection event waits.
///
/// It may be polled and made non-blocking; it belongs to the connection.
///
/// # Parameters
/// * conn - in: the connection
/// * fd - out: the file descriptor
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_event_fd(conn: *const Conn, fd: *mut c_int) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        out(fd)?.set(conn.event_fd());
        Ok(())
    })
}

/// Tells the private data that the other end gave.
///
/// At the end that connected they are there once RPMA_CONN_ESTABLISHED was delivered; at the end that accepted, from the
/// start.
///
/// # Parameters
/// * conn - in: the connection
/// * pdata - out: the data and their length; NULL and 0 if there are none. The data belong to the connection. The
///   transport may pad them with zeros, so the length may be larger than what was sent.
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_private_data(
    conn: *const Conn,
    pdata: *mut rpma_conn_private_data,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        out(pdata)?.set(conn.private_data());
        Ok(())
    })
}

/// Takes note of what the remote peer declared about itself.
///
/// Needed before a flush to persistence, which is only possible if the remote peer declared direct write to persistent
/// memory.
///
/// # Parameters
/// * conn - in: the connection
/// * pcfg - in: the remote peer's configuration, from rpma_peer_cfg_from_descriptor; its values are copied
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_apply_remote_peer_cfg(conn: *mut Conn, pcfg: *const PeerCfg) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        conn.apply_remote_peer_cfg(given(pcfg)?);
        Ok(())
    })
}

/// Tells the number of a connection's queue pair, by which work completions name it.
///
/// # Parameters
/// * conn - in: the connection
/// * qp_num - out: the number
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_qp_num(conn: *const Conn, qp_num: *mut u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        out(qp_num)?.set(conn.qp_num());
        Ok(())
    })
}

/// Tells a connection's main completion queue.
///
/// # Parameters
/// * conn - in: the connection
/// * cq_ptr - out: the queue; it belongs to the connection
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_cq(conn: *const Conn, cq_ptr: *mut *mut Cq) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        out(cq_ptr)?.set(ptr::from_ref(conn.cq()).cast_mut());
        Ok(())
    })
}

/// Tells a connection's separate receive completion queue.
///
/// # Parameters
/// * conn - in: the connection
/// * rcq_ptr - out: the queue, which belongs to the connection; NULL if there is none, also if a shared receive queue has
///   one (see rpma_srq_get_rcq)
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_rcq(conn: *const Conn, rcq_ptr: *mut *mut Cq) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        let rcq = conn.rcq().map_or(ptr::null(), ptr::from_ref);
        out(rcq_ptr)?.set(rcq.cast_mut());
        Ok(())
    })
}

/// Tells the descriptor of a connection's shared completion channel, readable when a completion event waits.
///
/// It may be polled and made non-blocking; it belongs to the connection.
///
/// # Parameters
/// * conn - in: the connection
/// * fd - out: the file descriptor
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NOT_SHARED_CHNL - the connection was not configured with a shared completion channel
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_compl_fd(conn: *const Conn, fd: *mut c_int) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        let fd = out(fd)?;
        fd.set(conn.compl_fd()?);
        Ok(())
    })
}

/// Waits for completions on a connection's shared completion channel.
///
/// Waits, unless the descriptor of rpma_conn_get_compl_fd has been made non-blocking, and arms the queue that has
/// completions again. They are then taken with rpma_cq_get_wc until it returns RPMA_E_NO_COMPLETION; that can be at
/// once.
///
/// # Parameters
/// * conn - in: the connection
/// * flags - in: not used
/// * cq - out: the completion queue that has completions; NULL if it cannot be armed again
/// * is_rcq - out: whether it is the receive completion queue; may be NULL
///
/// # Return value
/// 0, or a negative error code. Except as said above, the outputs are left as they were on failure.
///
/// # Errors
/// * RPMA_E_INVAL - conn or cq is NULL
/// * RPMA_E_NOT_SHARED_CHNL - the connection was not configured with a shared completion channel
/// * RPMA_E_NO_COMPLETION - no event can be taken, for example because the descriptor is non-blocking and none waits
/// * RPMA_E_PROVIDER - the queue cannot be armed again; is_rcq is set
/// * RPMA_E_UNKNOWN - the event is of a queue that is not this connection's
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_wait(
    conn: *mut Conn,
    flags: c_int,
    cq: *mut *mut Cq,
    is_rcq: *mut bool,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let conn = given(conn)?;
        let cq = out(cq)?;
        // There are no flags that mean anything here.
        let _ = flags;
        let (queue, is_receive, armed) = conn.wait()?;
        if let Ok(is_rcq) = out(is_rcq) {
            is_rcq.set(is_receive);
        }
        cq.set(armed.map_or(ptr::null_mut(), |()| ptr::from_ref(queue).cast_mut()));
        armed
    })
}
