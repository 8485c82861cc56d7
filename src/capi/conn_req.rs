// SPDX-License-Identifier: BSD-3-Clause
//! Connection requests.

use std::ffi::{c_char, c_int, c_void};

use super::convert::{given, out, status, string, take};
use rpma::abi::rpma_conn_private_data;
use rpma::conn::Conn;
use rpma::conn_cfg::{self, ConnCfg};
use rpma::conn_req::ConnReq;
use rpma::error::Error;
use rpma::mr::MrLocal;
use rpma::peer::Peer;
use rpma::post;

/// Makes a request for a connection to a remote peer.
///
/// Nothing is sent to the remote peer before rpma_conn_req_connect.
///
/// # Parameters
/// * peer - in: the peer; it must outlive the request and its connection
/// * addr - in: the remote IPv4 or IPv6 address or host name
/// * port - in: the port number or service name
/// * cfg - in: the configuration for the connection, or NULL for the default one
/// * req_ptr - out: the request, to be consumed by rpma_conn_req_connect or deleted by rpma_conn_req_delete
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - peer, addr, port or req_ptr is NULL, or the configuration combines a shared completion channel with
///   a shared receive queue that has its own completion queue
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the address cannot be translated, address or route not be resolved in time, or a queue or queue
///   pair not be created, for example because the peer is not on the device that leads to the address
///
/// # Threads
/// Not thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_new(
    peer: *mut Peer,
    addr: *const c_char,
    port: *const c_char,
    cfg: *const ConnCfg,
    req_ptr: *mut *mut ConnReq,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let peer = given(peer)?;
        let addr = string(addr)?;
        let port = string(port)?;
        let req = out(req_ptr)?;
        let cfg = cfg.as_ref().unwrap_or(&conn_cfg::DEFAULT);
        req.give(ConnReq::new(peer.domain(), addr, port, cfg)?);
        Ok(())
    })
}

/// Deletes a connection request. One that came in is rejected.
///
/// # Parameters
/// * req_ptr - in, out: the request; NULL afterwards, also on failure. One that is NULL already is left alone.
///
/// # Return value
/// 0, or a negative error code: the first, if several things fail. The request is gone in either case.
///
/// # Errors
/// * RPMA_E_INVAL - req_ptr is NULL
/// * RPMA_E_PROVIDER - the rejection cannot be sent, or something not be destroyed
///
/// # Threads
/// Not thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_delete(req_ptr: *mut *mut ConnReq) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { take(req_ptr) }?.map_or(Ok(()), |object| object.close()))
}

/// Sends a connection request, or accepts one that came in.
///
/// The connection can be used once rpma_conn_next_event has delivered RPMA_CONN_ESTABLISHED.
///
/// # Parameters
/// * req_ptr - in, out: the request, which is used up; NULL afterwards, also on failure
/// * pdata - in: private data for the other end, or NULL for none; copied. How many of the 255 bytes that len allows
///   can be sent is up to the provider (56 for a request on InfiniBand, 251 on the software device).
/// * conn_ptr - out: the connection, to be deleted with rpma_conn_delete
///
/// # Return value
/// 0, or a negative error code with conn_ptr left as it was. Unless req_ptr or the request is NULL, the request is gone
/// in either case; one that came in has then been rejected or its connection broken off.
///
/// # Errors
/// * RPMA_E_INVAL - req_ptr, the request or conn_ptr is NULL, or pdata is given with NULL data or length 0
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the request cannot be sent or accepted, or something that the connection needs not be created
///
/// # Threads
/// Thread safe for different requests.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_connect(
    req_ptr: *mut *mut ConnReq,
    pdata: *const rpma_conn_private_data,
    conn_ptr: *mut *mut Conn,
) -> c_int {
    // SAFETY: the caller's promises. A request that was taken is dropped on every early return, which rejects it.
    status(|| unsafe {
        let req = take(req_ptr)?.ok_or(Error::Inval)?;
        let pdata = if pdata.is_null() { None } else { Some(pdata.read()) };
        let conn = out(conn_ptr)?;
        conn.give(req.connect(pdata)?);
        Ok(())
    })
}

/// Posts a receive before the connection exists, so that the first message finds it.
///
/// # Parameters
/// * req - in: the request
/// * dst - in: the region for the message, registered with RPMA_MR_USAGE_RECV
/// * offset - in: where in the region, in bytes
/// * len - in: the room in bytes, at most UINT32_MAX
/// * op_context - in: comes back as wr_id of the completion
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - req or dst is NULL, or len is too large
/// * RPMA_E_PROVIDER - the receive queue does not take it
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_req_recv(
    req: *mut ConnReq,
    dst: *mut MrLocal,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { post::req_recv(given(req)?, given(dst)?, offset, len, op_context) })
}

/// Tells the private data that came with a request.
///
/// # Parameters
/// * req - in: the request
/// * pdata - out: the data and their length; NULL and 0 if there are none, as for every request that this end made. The
///   data belong to the request, and to its connection once rpma_conn_req_connect succeeded. The transport may pad
///   them with zeros, so the length may be larger than what was sent.
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
pub unsafe extern "C" fn rpma_conn_req_get_private_data(
    req: *const ConnReq,
    pdata: *mut rpma_conn_private_data,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let req = given(req)?;
        out(pdata)?.set(req.private_data());
        Ok(())
    })
}
