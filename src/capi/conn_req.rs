// SPDX-License-Identifier: BSD-3-Clause
//! Connection requests.

use std::ffi::{c_char, c_int, c_void};

use super::convert::{delete, given, out, status, string, take, whole_status};
use rpma_core::abi::rpma_conn_private_data;
use rpma_core::conn::Conn;
use rpma_core::conn_cfg::{self, ConnCfg};
use rpma_core::conn_req::ConnReq;
use rpma_core::failure::Fail;
use rpma_core::mr::MrLocal;
use rpma_core::peer::Peer;
use rpma_core::post;

/// Creates a connection request to a remote peer.
///
/// Nothing is sent to the remote peer until rpma_conn_req_connect is called.
///
/// # Parameters
/// * peer - in: the peer; it must outlive the connection request and its connection
/// * addr - in: the IPv4 or IPv6 address or host name of the remote peer
/// * port - in: the port number or service name
/// * cfg - in: the connection configuration, or NULL for the default configuration
/// * req_ptr - out: the connection request, to be consumed by rpma_conn_req_connect or deleted with
///   rpma_conn_req_delete
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - peer, addr, port or req_ptr is NULL, or the configuration combines a shared completion
///   channel with a shared receive queue that has its own completion queue
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the address could not be translated, the address or the route could not be resolved
///   within the timeout, or a completion queue or the queue pair could not be created, for example because
///   the peer uses a device other than the one that reaches the address, or because a queue is longer than
///   the device allows
///
/// # Threads
/// Thread safe for a peer of the soft provider. Not thread safe on other devices, for which librdmacm does
/// not guarantee it.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_new(
    peer: *mut Peer,
    addr: *const c_char,
    port: *const c_char,
    cfg: *const ConnCfg,
    req_ptr: *mut *mut ConnReq,
) -> c_int {
    // SAFETY: `peer` is NULL or a live peer; `cfg` is NULL or a live connection configuration; `addr` and
    // `port` are each NULL or a C string; `req_ptr` is NULL or writable. The peer and the shared receive
    // queue of `cfg` outlive the request.
    whole_status(|| unsafe {
        let peer = given(peer, "peer")?;
        let addr = string(addr, "addr")?;
        let port = string(port, "port")?;
        let req = out(req_ptr, "req_ptr")?;
        let cfg = cfg.as_ref().unwrap_or(&conn_cfg::DEFAULT);
        req.give(ConnReq::new(*peer.domain(), addr, port, cfg)?);
        Ok(())
    })
}

/// Deletes a connection request. An incoming request is rejected.
///
/// # Parameters
/// * req_ptr - in, out: the connection request; set to NULL, also on failure. If it is already NULL, the call
///   has no effect.
///
/// # Return value
/// 0 on success, or a negative error code: if more than one step fails, the first error. The connection
/// request is deleted in either case.
///
/// # Errors
/// * RPMA_E_INVAL - req_ptr is NULL
/// * RPMA_E_PROVIDER - the rejection could not be sent, or a verbs or connection manager resource could not
///   be destroyed
///
/// # Threads
/// Thread safe for different requests of the soft provider. Not thread safe on other devices, for which
/// librdmacm does not guarantee it.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_delete(req_ptr: *mut *mut ConnReq) -> c_int {
    // SAFETY: `req_ptr` is NULL, or holds NULL or a connection request that is live and not in use elsewhere.
    whole_status(|| unsafe { delete(req_ptr, "req_ptr", ConnReq::close) })
}

/// Sends an outgoing connection request, or accepts an incoming one.
///
/// The connection is ready for use once rpma_conn_next_event has delivered RPMA_CONN_ESTABLISHED.
///
/// # Parameters
/// * req_ptr - in, out: the connection request, which is consumed; set to NULL, also on failure
/// * pdata - in: the private data for the remote peer, or NULL for none; copied. len allows up to 255 bytes,
///   but the provider may support fewer (56 for a request on InfiniBand, 251 on the software device).
/// * conn_ptr - out: the connection, to be deleted with rpma_conn_delete
///
/// # Return value
/// 0 on success, or a negative error code; on failure conn_ptr is left unchanged. Unless req_ptr or the
/// connection request is NULL, the request is consumed in either case; on failure an incoming request has
/// been rejected or its connection has been disconnected.
///
/// # Errors
/// * RPMA_E_INVAL - req_ptr, the connection request or conn_ptr is NULL, or pdata is not NULL and holds a
///   NULL pointer or length 0
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the connection request could not be sent or accepted, or a resource of the connection
///   could not be created
///
/// # Threads
/// Thread safe for different requests.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_connect(
    req_ptr: *mut *mut ConnReq,
    pdata: *const rpma_conn_private_data,
    conn_ptr: *mut *mut Conn,
) -> c_int {
    // SAFETY: `req_ptr` is NULL, or holds NULL or a connection request that is live and not in use elsewhere;
    // `pdata` is NULL or readable, as are the data it points to; `conn_ptr` is NULL or writable. The peer of
    // the request outlives the connection. A request that is taken is dropped on every early return, which
    // rejects it.
    whole_status(|| unsafe {
        let req = take(req_ptr, "req_ptr")?.ok_or(Fail::Null("*req_ptr"))?;
        let pdata = if pdata.is_null() { None } else { Some(pdata.read()) };
        let conn = out(conn_ptr, "conn_ptr")?;
        conn.give(req.connect(pdata)?);
        Ok(())
    })
}

/// Posts a receive work request before the connection is established, so that it is in place for the first
/// message.
///
/// # Parameters
/// * req - in: the connection request
/// * dst - in: the local memory region for the message, registered with RPMA_MR_USAGE_RECV
/// * offset - in: the offset of the message buffer in the memory region, in bytes
/// * len - in: the length of the receive buffer in bytes, at most UINT32_MAX
/// * op_context - in: returned as the wr_id of the completion
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - req or dst is NULL, or len is too large
/// * RPMA_E_PROVIDER - the receive work request could not be posted
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_recv(
    req: *mut ConnReq,
    dst: *mut MrLocal,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: `req` is NULL or a live connection request; `dst` is NULL or a live memory region.
    status(|| unsafe { post::req_recv(given(req, "req")?, given(dst, "dst")?, offset, len, op_context) })
}

/// Gets the private data of a connection request.
///
/// # Parameters
/// * req - in: the connection request
/// * pdata - out: the private data and their length; NULL and 0 if there are none, which is the case for
///   every request created with rpma_conn_req_new. The connection request owns the data until
///   rpma_conn_req_connect succeeds; then the connection does. The transport may pad them with zeros, so the
///   length may be larger than the length that was sent.
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
pub unsafe extern "C" fn rpma_conn_req_get_private_data(
    req: *const ConnReq,
    pdata: *mut rpma_conn_private_data,
) -> c_int {
    // SAFETY: `req` is NULL or a live connection request; `pdata` is NULL or writable.
    status(|| unsafe {
        let req = given(req, "req")?;
        out(pdata, "pdata")?.copy(req.private_data());
        Ok(())
    })
}
