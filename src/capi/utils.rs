// SPDX-License-Identifier: BSD-3-Clause
//! Device look-up and texts.

use std::ffi::{c_char, c_int};

use rdma_sys::ibv_context;

use super::convert::{given, out, status, string};
use rpma::abi::arg::{ConnEventArg, IbvContextTypeArg};
use rpma::error;
use rpma::utils;

/// Finds the device that serves an address.
///
/// With RPMA_UTIL_IBV_CONTEXT_LOCAL the device is the one of the local interface that has the address; with
/// RPMA_UTIL_IBV_CONTEXT_REMOTE it is the one through which the remote address is reached. The environment
/// variable RPMA_PROVIDER selects where devices are looked for: "auto" (the default) takes an RDMA device if one
/// serves the address and the software device soft0 otherwise, with one log line of level NOTICE that says which
/// and why; "rdma-core" takes RDMA devices only; "soft" takes the software device only. Everything that is made from
/// the context stays with its provider.
///
/// # Parameters
/// * addr - in: an IPv4 or IPv6 address or a host name
/// * type - in: which end of a connection the address is
/// * ibv_ctx_ptr - out: the context; it belongs to the provider and must not be closed
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - addr or ibv_ctx_ptr is NULL, or type is neither of its values
/// * RPMA_E_PROVIDER - the address cannot be translated, bound, or resolved within RPMA_DEFAULT_TIMEOUT_MS; with
///   "rdma-core", no RDMA device serves it, and the log says what is missing; RPMA_PROVIDER has an unknown value or
///   names a provider that this build was made without
///
/// # Threads
/// Not thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_utils_get_ibv_context(
    addr: *const c_char,
    r#type: IbvContextTypeArg,
    ibv_ctx_ptr: *mut *mut ibv_context,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let addr = string(addr)?;
        let found = out(ibv_ctx_ptr)?;
        found.set(utils::ibv_context(addr, r#type)?);
        Ok(())
    })
}

/// Tells whether a device can register memory with on-demand paging.
///
/// Memory that cannot be pinned, such as a file on a DAX file system, can only be registered on such a device.
///
/// # Parameters
/// * ibv_ctx - in: the context of the device
/// * is_odp_capable - out: 1 if it can, for reads and for writes; 0 if not, also when the call fails after its
///   arguments were accepted
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_PROVIDER - the device cannot be queried
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_utils_ibv_context_is_odp_capable(
    ibv_ctx: *mut ibv_context,
    is_odp_capable: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promises. The context is not borrowed: it is C's, and is only checked for NULL here.
    status(|| unsafe {
        given(ibv_ctx.cast::<u8>())?;
        let capable = out(is_odp_capable)?;
        capable.set(0);
        capable.set(utils::is_odp_capable(ibv_ctx)?.into());
        Ok(())
    })
}

/// Gives the text for a connection event.
///
/// # Parameters
/// * conn_event - in: an event, or any other number
///
/// # Return value
/// A constant string that must not be freed; never NULL.
///
/// # Errors
/// None; a number that is no event has a text too.
///
/// # Threads
/// Thread safe.
#[unsafe(no_mangle)]
pub extern "C" fn rpma_utils_conn_event_2str(conn_event: ConnEventArg) -> *const c_char {
    utils::conn_event_text(conn_event).as_ptr()
}

/// Gives the text for an error code.
///
/// # Parameters
/// * ret - in: what a function of this library returned, or any other number
///
/// # Return value
/// A constant string that must not be freed; never NULL.
///
/// # Errors
/// None; a number that is no error code has a text too.
///
/// # Threads
/// Thread safe.
#[unsafe(no_mangle)]
pub extern "C" fn rpma_err_2str(ret: c_int) -> *const c_char {
    error::text(ret).as_ptr()
}
