// SPDX-License-Identifier: BSD-3-Clause
//! Device lookup and string conversion.

use std::ffi::{c_char, c_int};

use rdma_sys::ibv_context;

use super::convert::{not_null, out, string, whole_status};
use rpma_core::abi::arg::{ConnEventArg, IbvContextTypeArg};
use rpma_core::error;
use rpma_core::failure;
use rpma_core::utils;
use rpma_core::version;

/// Gets the device context for an address.
///
/// With RPMA_UTIL_IBV_CONTEXT_LOCAL it is the device of the local interface that has this address; with
/// RPMA_UTIL_IBV_CONTEXT_REMOTE it is the device through which the remote address is reached. The environment
/// variable RPMA_PROVIDER selects the provider: "auto" (the default) uses an RDMA device if one serves the
/// address and the software device soft0 otherwise, in which case one log message of level NOTICE states the
/// choice and the reason; "rdma-core" uses RDMA devices only; "soft" uses the software device only. All
/// objects created from the context use the same provider.
///
/// # Parameters
/// * addr - in: an IPv4 or IPv6 address or a host name
/// * type - in: whether the address is local or remote
/// * ibv_ctx_ptr - out: the device context; the provider owns it, and it must not be closed
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - addr or ibv_ctx_ptr is NULL, or type is not a valid value
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the address could not be translated, bound, or resolved within
///   RPMA_DEFAULT_TIMEOUT_MS; no RDMA device serves it and "rdma-core" is selected, in which case the log
///   states what is missing; or RPMA_PROVIDER has an unknown value or names a provider that is not part of
///   this build
///
/// # Threads
/// Thread safe if RPMA_PROVIDER is "soft". Otherwise not thread safe: librdmacm, which does not guarantee
/// thread safety, is called as well.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_utils_get_ibv_context(
    addr: *const c_char,
    r#type: IbvContextTypeArg,
    ibv_ctx_ptr: *mut *mut ibv_context,
) -> c_int {
    // SAFETY: `addr` is NULL or a C string; `ibv_ctx_ptr` is NULL or writable.
    whole_status(|| unsafe {
        let addr = string(addr, "addr")?;
        let found = out(ibv_ctx_ptr, "ibv_ctx_ptr")?;
        found.set(utils::ibv_context(addr, r#type)?);
        Ok(())
    })
}

/// Gets whether a device supports on-demand paging.
///
/// Memory that cannot be pinned, such as a file on a DAX file system, can be registered only on such a
/// device.
///
/// # Parameters
/// * ibv_ctx - in: the device context
/// * is_odp_capable - out: 1 if on-demand paging is supported for both reads and writes, 0 otherwise; also
///   set to 0 if the call fails with RPMA_E_PROVIDER
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_PROVIDER - the device could not be queried
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_utils_ibv_context_is_odp_capable(
    ibv_ctx: *mut ibv_context,
    is_odp_capable: *mut c_int,
) -> c_int {
    // SAFETY: `ibv_ctx` is NULL or an open device context; `is_odp_capable` is NULL or
    // writable. The context is not borrowed, because C code uses it at the same time.
    whole_status(|| unsafe {
        not_null(ibv_ctx, "ibv_ctx")?;
        let capable = out(is_odp_capable, "is_odp_capable")?;
        capable.set(0);
        capable.set(utils::is_odp_capable(ibv_ctx)?.into());
        Ok(())
    })
}

/// Gets the string for a connection event.
///
/// # Parameters
/// * conn_event - in: a connection event, or any other number
///
/// # Return value
/// A constant string that must not be freed; never NULL.
///
/// # Errors
/// None; a string is also returned for a number that is not a connection event.
///
/// # Threads
/// Thread safe.
#[unsafe(no_mangle)]
pub extern "C" fn rpma_utils_conn_event_2str(conn_event: ConnEventArg) -> *const c_char {
    utils::conn_event_text(conn_event).as_ptr()
}

/// Gets the string for an error code.
///
/// # Parameters
/// * ret - in: the value returned by a function of this library, or any other number
///
/// # Return value
/// A constant string that must not be freed; never NULL.
///
/// # Errors
/// None; a string is also returned for a number that is not an error code.
///
/// # Threads
/// Thread safe.
#[unsafe(no_mangle)]
pub extern "C" fn rpma_err_2str(ret: c_int) -> *const c_char {
    error::text(ret).as_ptr()
}

/// Gets the reason why the calling thread's last failed call failed.
///
/// The text names the function that failed and the reason, for example the failed provider call with its
/// arguments and errno: "rpma_peer_new: ibv_alloc_pd(context=0x55e0) failed: Cannot allocate memory (errno
/// 12)". It is meant for people: programs must not depend on its wording. It is available regardless of the
/// logging thresholds. RPMA_E_NO_COMPLETION and RPMA_E_NO_EVENT do not count as failures. Since LIBRPMA_1.4.
///
/// Some calls succeed but report that the connection or a request has failed; the text then describes that
/// failure. These are rpma_conn_next_event with RPMA_CONN_REJECTED, RPMA_CONN_UNREACHABLE, RPMA_CONN_LOST, or
/// RPMA_CONN_CLOSED after an error; with the soft provider also rpma_cq_get_wc with an unsuccessful
/// completion, for which the text names the operation, its length and addresses, wr_id, the address of the
/// remote peer and the status.
///
/// # Return value
/// A string without a newline that must not be freed; never NULL. It is empty if no call of this thread has
/// failed, and stays valid until the thread's next failed call or its end.
///
/// # Errors
/// None.
///
/// # Threads
/// Thread safe: each thread has its own text.
#[unsafe(no_mangle)]
pub extern "C" fn rpma_err_last() -> *const c_char {
    failure::last()
}

/// Gets the version of the library that is running.
///
/// LIBRPMA_VERSION is the version of the header that the program was compiled with. With RPMA_LOG=notice the
/// library also logs the file that it was loaded from. Since LIBRPMA_1.4.
///
/// # Return value
/// A constant string "MAJOR.MINOR.PATCH" that must not be freed; never NULL.
///
/// # Errors
/// None.
///
/// # Threads
/// Thread safe.
#[unsafe(no_mangle)]
pub extern "C" fn rpma_version() -> *const c_char {
    version::VERSION.as_ptr()
}
