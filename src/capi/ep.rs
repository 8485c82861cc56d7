// SPDX-License-Identifier: BSD-3-Clause
//! Endpoints.

use std::ffi::{c_char, c_int};

use super::convert::{delete, given, out, status, string, whole_status};
use rpma_core::conn_cfg::{self, ConnCfg};
use rpma_core::conn_req::ConnReq;
use rpma_core::ep::{Ep, Unacknowledged};
use rpma_core::error::Error;
use rpma_core::peer::Peer;

/// Creates an endpoint that listens for incoming connection requests.
///
/// # Parameters
/// * peer - in: the peer; it must outlive the endpoint and the connections accepted through it
/// * addr - in: a local IPv4 or IPv6 address or host name
/// * port - in: the port number or service name
/// * ep_ptr - out: the listening endpoint, to be deleted with rpma_ep_shutdown
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the address could not be translated or bound, or listening on it failed
///
/// # Threads
/// Thread safe for a peer of the soft provider. Not thread safe on other devices, for which librdmacm does
/// not guarantee it.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_ep_listen(
    peer: *mut Peer,
    addr: *const c_char,
    port: *const c_char,
    ep_ptr: *mut *mut Ep,
) -> c_int {
    // SAFETY: `peer` is NULL or a live peer; `addr` and `port` are each NULL or a C string; `ep_ptr` is NULL
    // or writable. The peer outlives the endpoint.
    whole_status(|| unsafe {
        let peer = given(peer, "peer")?;
        let addr = string(addr, "addr")?;
        let port = string(port, "port")?;
        let ep = out(ep_ptr, "ep_ptr")?;
        ep.give(Ep::listen(*peer.domain(), addr, port)?);
        Ok(())
    })
}

/// Stops listening and deletes the endpoint. Connections accepted through it, and connection requests that
/// rpma_ep_next_conn_req has returned, are not affected.
///
/// # Parameters
/// * ep_ptr - in, out: the endpoint; set to NULL, also on failure. If it is already NULL, the call has no
///   effect.
///
/// # Return value
/// 0 on success, or a negative error code. The endpoint is deleted in either case.
///
/// # Errors
/// * RPMA_E_INVAL - ep_ptr is NULL
/// * RPMA_E_PROVIDER - the listening rdma_cm identifier could not be destroyed
///
/// # Threads
/// Thread safe for different endpoints of the soft provider. Not thread safe on other devices, for which
/// librdmacm does not guarantee it.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_ep_shutdown(ep_ptr: *mut *mut Ep) -> c_int {
    // SAFETY: `ep_ptr` is NULL, or holds NULL or an endpoint that is live and not in use elsewhere.
    whole_status(|| unsafe { delete(ep_ptr, "ep_ptr", Ep::close) })
}

/// Gets the next incoming connection request.
///
/// Blocks until a request is pending, unless the file descriptor of the endpoint (see rpma_ep_get_fd) is in
/// non-blocking mode.
///
/// # Parameters
/// * ep - in: the endpoint
/// * cfg - in: the connection configuration, or NULL for the default configuration
/// * req_ptr - out: the connection request, to be accepted with rpma_conn_req_connect or rejected with
///   rpma_conn_req_delete; NULL if the event that delivered it could not be acknowledged
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged, except as stated above. A
/// connection request that was received but could not be set up has been rejected.
///
/// # Errors
/// * RPMA_E_INVAL - ep or req_ptr is NULL; the event on the endpoint is not a connection request; or the
///   configuration combines a shared completion channel with a shared receive queue that has its own
///   completion queue
/// * RPMA_E_NO_EVENT - the file descriptor is in non-blocking mode and no connection request is pending
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - a completion queue or the queue pair could not be created, for example because a queue
///   is longer than the device allows, or the event could not be read or acknowledged
///
/// # Threads
/// Thread safe for an endpoint of the soft provider: each request is returned to exactly one thread. Not
/// thread safe on other devices, for which librdmacm does not guarantee it.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_ep_next_conn_req(
    ep: *mut Ep,
    cfg: *const ConnCfg,
    req_ptr: *mut *mut ConnReq,
) -> c_int {
    // SAFETY: `ep` is NULL or a live endpoint; `cfg` is NULL or a live connection configuration; `req_ptr` is
    // NULL or writable. The peer of `ep` and the shared receive queue of `cfg` outlive the request.
    status(|| unsafe {
        let ep = given(ep, "ep")?;
        let req = out(req_ptr, "req_ptr")?;
        match ep.next_conn_req(cfg.as_ref().unwrap_or(&conn_cfg::DEFAULT))? {
            Ok(found) => {
                req.give(found);
                Ok(())
            }
            Err(Unacknowledged) => {
                req.set(std::ptr::null_mut());
                Err(Error::Provider.into())
            }
        }
    })
}

/// Gets the file descriptor of an endpoint's event channel, which becomes readable when a connection request
/// is pending.
///
/// The application may poll it and set it to non-blocking mode. The endpoint owns it.
///
/// # Parameters
/// * ep - in: the endpoint
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
pub unsafe extern "C" fn rpma_ep_get_fd(ep: *const Ep, fd: *mut c_int) -> c_int {
    // SAFETY: `ep` is NULL or a live endpoint; `fd` is NULL or writable.
    status(|| unsafe {
        let ep = given(ep, "ep")?;
        out(fd, "fd")?.set(ep.fd());
        Ok(())
    })
}
