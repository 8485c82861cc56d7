// SPDX-License-Identifier: BSD-3-Clause
//! Endpoints.

use std::ffi::{c_char, c_int};

use super::convert::{given, out, status, string, take};
use rpma::conn_cfg::{self, ConnCfg};
use rpma::conn_req::ConnReq;
use rpma::ep::{Ep, Unacknowledged};
use rpma::error::Error;
use rpma::peer::Peer;

/// Makes an endpoint that listens for connection requests.
///
/// # Parameters
/// * peer - in: the peer; it must outlive the endpoint and the connections accepted through it
/// * addr - in: a local IPv4 or IPv6 address or host name
/// * port - in: the port number or service name
/// * ep_ptr - out: the endpoint, to be deleted with rpma_ep_shutdown
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the address cannot be translated, bound or listened on
///
/// # Threads
/// Not thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_ep_listen(
    peer: *mut Peer,
    addr: *const c_char,
    port: *const c_char,
    ep_ptr: *mut *mut Ep,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let peer = given(peer)?;
        let addr = string(addr)?;
        let port = string(port)?;
        let ep = out(ep_ptr)?;
        ep.give(Ep::listen(peer.domain(), addr, port)?);
        Ok(())
    })
}

/// Stops listening and deletes the endpoint. Connections accepted through it are not affected.
///
/// # Parameters
/// * ep_ptr - in, out: the endpoint; NULL afterwards, also on failure. One that is NULL already is left alone.
///
/// # Return value
/// 0, or a negative error code. The endpoint is gone in either case.
///
/// # Errors
/// * RPMA_E_INVAL - ep_ptr is NULL
/// * RPMA_E_PROVIDER - the listening identifier cannot be destroyed
///
/// # Threads
/// Not thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_ep_shutdown(ep_ptr: *mut *mut Ep) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { take(ep_ptr) }?.map_or(Ok(()), |object| object.close()))
}

/// Takes the next connection request.
///
/// Waits for one, unless the descriptor of rpma_ep_get_fd has been made non-blocking.
///
/// # Parameters
/// * ep - in: the endpoint
/// * cfg - in: the configuration for the connection, or NULL for the default one
/// * req_ptr - out: the request, to be consumed by rpma_conn_req_connect or refused by rpma_conn_req_delete; NULL
///   if the event that announced it cannot be acknowledged
///
/// # Return value
/// 0, or a negative error code. Except as said above, the output is left as it was on failure. A request that was
/// taken but for which resources are missing has been rejected.
///
/// # Errors
/// * RPMA_E_INVAL - ep or req_ptr is NULL; something else than a request happened on the endpoint; or the
///   configuration combines a shared completion channel with a shared receive queue that has its own completion
///   queue
/// * RPMA_E_NO_EVENT - the descriptor is non-blocking and no request waits
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - a queue or queue pair cannot be created, or an event not be read or acknowledged
///
/// # Threads
/// Not thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_ep_next_conn_req(
    ep: *mut Ep,
    cfg: *const ConnCfg,
    req_ptr: *mut *mut ConnReq,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let ep = given(ep)?;
        let req = out(req_ptr)?;
        match ep.next_conn_req(cfg.as_ref().unwrap_or(&conn_cfg::DEFAULT))? {
            Ok(found) => {
                req.give(found);
                Ok(())
            }
            Err(Unacknowledged) => {
                req.set(std::ptr::null_mut());
                Err(Error::Provider)
            }
        }
    })
}

/// Tells the descriptor that is readable when a connection request waits.
///
/// It may be polled and made non-blocking; it belongs to the endpoint.
///
/// # Parameters
/// * ep - in: the endpoint
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
pub unsafe extern "C" fn rpma_ep_get_fd(ep: *const Ep, fd: *mut c_int) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let ep = given(ep)?;
        out(fd)?.set(ep.fd());
        Ok(())
    })
}
