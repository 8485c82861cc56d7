// SPDX-License-Identifier: BSD-3-Clause
//! Connections.

use std::ffi::c_int;
use std::ptr;

use super::convert::{delete, given, out, status, whole_status};
use rpma_core::abi::{rpma_conn_event, rpma_conn_private_data};
use rpma_core::conn::Conn;
use rpma_core::cq::Cq;
use rpma_core::peer_cfg::PeerCfg;

/// Deletes a connection, whether or not it has been disconnected.
///
/// The completion queues, file descriptors and private data of the connection are released with it; a shared
/// receive queue is not.
///
/// # Parameters
/// * conn_ptr - in, out: the connection; set to NULL, also on failure. If it is already NULL, the call has no
///   effect.
///
/// # Return value
/// 0 on success, or a negative error code: if more than one step fails, the first error. The connection is
/// deleted in either case.
///
/// # Errors
/// * RPMA_E_INVAL - conn_ptr is NULL, or the memory that the connection uses for flushes cannot be unmapped
/// * RPMA_E_PROVIDER - a verbs or connection manager resource could not be destroyed
///
/// # Threads
/// Thread safe for different connections.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_delete(conn_ptr: *mut *mut Conn) -> c_int {
    // SAFETY: `conn_ptr` is NULL, or holds NULL or a connection that is live and not in use elsewhere.
    whole_status(|| unsafe { delete(conn_ptr, "conn_ptr", Conn::close) })
}

/// Disconnects a connection.
///
/// Both peers receive RPMA_CONN_CLOSED from rpma_conn_next_event. Outstanding work requests complete; those
/// that have not been executed complete in error.
///
/// # Parameters
/// * conn - in: the connection
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - conn is NULL
/// * RPMA_E_PROVIDER - the provider call failed
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_disconnect(conn: *mut Conn) -> c_int {
    // SAFETY: `conn` is NULL or a live connection.
    whole_status(|| unsafe { Ok(given(conn, "conn")?.disconnect()?) })
}

/// Gets the next event of a connection.
///
/// Blocks until an event is available, unless the file descriptor of the event channel (see
/// rpma_conn_get_event_fd) is in non-blocking mode. RPMA_CONN_CLOSED may be delivered twice.
///
/// # Parameters
/// * conn - in: the connection
/// * event - out: the event
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NO_EVENT - the file descriptor is in non-blocking mode and no event is pending
/// * RPMA_E_NOMEM - out of memory for the private data delivered with the event; the event is lost
/// * RPMA_E_PROVIDER - the event could not be read or acknowledged; if it could not be acknowledged, the
///   private data of the connection are lost
/// * RPMA_E_UNKNOWN - the connection manager delivered an event that is not expected on a connection
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_next_event(conn: *mut Conn, event: *mut rpma_conn_event) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `event` is NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        let event = out(event, "event")?;
        event.set(conn.next_event()?);
        Ok(())
    })
}

/// Gets the file descriptor of a connection's event channel, which becomes readable when a connection event
/// is pending.
///
/// The application may poll it and set it to non-blocking mode. The connection owns it.
///
/// # Parameters
/// * conn - in: the connection
/// * fd - out: the file descriptor
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_event_fd(conn: *const Conn, fd: *mut c_int) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `fd` is NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        out(fd, "fd")?.set(conn.event_fd());
        Ok(())
    })
}

/// Gets the private data sent by the remote peer.
///
/// On the active side the private data are available once RPMA_CONN_ESTABLISHED has been delivered; on the
/// passive side, from the start.
///
/// # Parameters
/// * conn - in: the connection
/// * pdata - out: the private data and their length; NULL and 0 if there are none. The connection owns the
///   data. The transport may pad them with zeros, so the length may be larger than the length that was sent.
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Security
/// Private data are neither encrypted nor authenticated: anyone on the path between the two hosts can read
/// and change them, and anyone who can connect can send any data. Check their length and every value in them
/// before use. The page of rpma_mr_remote_from_descriptor states what follows if somebody else reads or
/// changes a descriptor; on a network that others can reach, exchange descriptors over a channel that
/// authenticates both peers and protects the data, for example TLS.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_private_data(
    conn: *const Conn,
    pdata: *mut rpma_conn_private_data,
) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `pdata` is NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        out(pdata, "pdata")?.copy(conn.private_data());
        Ok(())
    })
}

/// Applies the configuration declared by the remote peer to a connection.
///
/// Required before a flush to persistence, which is supported only if the remote peer has declared direct
/// write to persistent memory.
///
/// # Parameters
/// * conn - in: the connection
/// * pcfg - in: the remote peer's configuration, from rpma_peer_cfg_from_descriptor; its values are copied
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_apply_remote_peer_cfg(conn: *mut Conn, pcfg: *const PeerCfg) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `pcfg` is NULL or a live peer configuration.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        conn.apply_remote_peer_cfg(given(pcfg, "pcfg")?);
        Ok(())
    })
}

/// Gets the queue pair number of a connection, which identifies the connection in work completions.
///
/// # Parameters
/// * conn - in: the connection
/// * qp_num - out: the queue pair number
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_qp_num(conn: *const Conn, qp_num: *mut u32) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `qp_num` is NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        out(qp_num, "qp_num")?.set(conn.qp_num());
        Ok(())
    })
}

/// Gets the main completion queue of a connection.
///
/// # Parameters
/// * conn - in: the connection
/// * cq_ptr - out: the completion queue; the connection owns it
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_cq(conn: *const Conn, cq_ptr: *mut *mut Cq) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `cq_ptr` is NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        out(cq_ptr, "cq_ptr")?.set(ptr::from_ref(conn.cq()).cast_mut());
        Ok(())
    })
}

/// Gets the separate receive completion queue of a connection.
///
/// # Parameters
/// * conn - in: the connection
/// * rcq_ptr - out: the receive completion queue, owned by the connection; NULL if the connection has none,
///   which includes the case where the shared receive queue has its own (see rpma_srq_get_rcq)
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_rcq(conn: *const Conn, rcq_ptr: *mut *mut Cq) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `rcq_ptr` is NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        let rcq = conn.rcq().map_or(ptr::null(), ptr::from_ref);
        out(rcq_ptr, "rcq_ptr")?.set(rcq.cast_mut());
        Ok(())
    })
}

/// Gets the file descriptor of a connection's shared completion channel, which becomes readable when a
/// completion event is pending.
///
/// The application may poll it and set it to non-blocking mode. The connection owns it.
///
/// # Parameters
/// * conn - in: the connection
/// * fd - out: the file descriptor
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NOT_SHARED_CHNL - the connection is not configured with a shared completion channel
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_get_compl_fd(conn: *const Conn, fd: *mut c_int) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `fd` is NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        let fd = out(fd, "fd")?;
        fd.set(conn.compl_fd()?);
        Ok(())
    })
}

/// Waits for a completion event on a connection's shared completion channel.
///
/// Blocks until an event is available, unless the file descriptor of the completion channel (see
/// rpma_conn_get_compl_fd) is in non-blocking mode, and rearms the completion queue that reported the event.
/// The completions are then collected with rpma_cq_get_wc until it returns RPMA_E_NO_COMPLETION, and the
/// first call may already return it.
///
/// # Parameters
/// * conn - in: the connection
/// * flags - in: ignored
/// * cq - out: the completion queue that reported the event; NULL if it could not be rearmed
/// * is_rcq - out: whether cq is the receive completion queue; may be NULL
///
/// # Return value
/// 0 on success, or a negative error code; on failure the outputs are left unchanged, except as stated above.
///
/// # Errors
/// * RPMA_E_INVAL - conn or cq is NULL
/// * RPMA_E_NOT_SHARED_CHNL - the connection is not configured with a shared completion channel
/// * RPMA_E_NO_COMPLETION - no completion event could be read, for example because the file descriptor is in
///   non-blocking mode and no event is pending
/// * RPMA_E_PROVIDER - the completion queue could not be rearmed; is_rcq is set
/// * RPMA_E_UNKNOWN - the event belongs to a completion queue that is not one of this connection's
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_wait(
    conn: *mut Conn,
    flags: c_int,
    cq: *mut *mut Cq,
    is_rcq: *mut bool,
) -> c_int {
    // SAFETY: `conn` is NULL or a live connection; `cq` and `is_rcq` are each NULL or writable.
    status(|| unsafe {
        let conn = given(conn, "conn")?;
        let cq = out(cq, "cq")?;
        // No flags are defined.
        let _ = flags;
        let (queue, is_receive, armed) = conn.wait()?;
        if !is_rcq.is_null() {
            is_rcq.write(is_receive);
        }
        cq.set(armed.map_or(ptr::null_mut(), |()| ptr::from_ref(queue).cast_mut()));
        Ok(armed?)
    })
}
