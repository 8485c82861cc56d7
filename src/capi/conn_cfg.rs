// SPDX-License-Identifier: BSD-3-Clause
//! Connection configurations.

use std::ffi::c_int;

use super::convert::{delete, given, not_null, out, plain, status};
use rpma_core::conn_cfg::ConnCfg;
use rpma_core::srq::Srq;

/// Creates a connection configuration.
///
/// The default values are: timeout RPMA_DEFAULT_TIMEOUT_MS; completion queue, send queue and receive queue of
/// 10 entries each; no separate receive completion queue; no shared completion channel; no shared receive
/// queue.
///
/// # Parameters
/// * cfg_ptr - out: the configuration, to be deleted with rpma_conn_cfg_delete; set to NULL on RPMA_E_NOMEM
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg_ptr is NULL
/// * RPMA_E_NOMEM - out of memory
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_new(cfg_ptr: *mut *mut ConnCfg) -> c_int {
    // SAFETY: `cfg_ptr` is NULL or writable.
    status(|| unsafe { out(cfg_ptr, "cfg_ptr")?.give_or_null(ConnCfg::new()) })
}

/// Deletes a connection configuration. Connections created with it are not affected.
///
/// # Parameters
/// * cfg_ptr - in, out: the configuration; set to NULL. If it is already NULL, the call has no effect.
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg_ptr is NULL
///
/// # Threads
/// Thread safe for different configurations.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_delete(cfg_ptr: *mut *mut ConnCfg) -> c_int {
    // SAFETY: `cfg_ptr` is NULL, or holds NULL or a connection configuration that is live and not in use
    // elsewhere.
    status(|| unsafe { delete(cfg_ptr, "cfg_ptr", plain) })
}

/// Sets the timeout that applies to address resolution and, separately, to route resolution.
///
/// On the software device it limits the time to establish the TCP connection. SOFTVERBS_REPLY_TIMEOUT_MS
/// limits the time that the remote program may then take to accept or reject the request (see
/// librpma_providers(7)).
///
/// # Parameters
/// * cfg - in: the configuration
/// * timeout_ms - in: the timeout in milliseconds, not negative
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL, or timeout_ms is negative
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_timeout(cfg: *mut ConnCfg, timeout_ms: c_int) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration.
    status(|| unsafe { given(cfg, "cfg")?.set_timeout(timeout_ms) })
}

/// Gets the timeout that applies to address resolution and, separately, to route resolution.
///
/// # Parameters
/// * cfg - in: the configuration
/// * timeout_ms - out: the timeout in milliseconds
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
pub unsafe extern "C" fn rpma_conn_cfg_get_timeout(cfg: *const ConnCfg, timeout_ms: *mut c_int) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration; `timeout_ms` is NULL or writable.
    status(|| unsafe {
        let cfg = given(cfg, "cfg")?;
        out(timeout_ms, "timeout_ms")?.set(cfg.timeout());
        Ok(())
    })
}

/// Sets the size of a connection's main completion queue.
///
/// It must hold all completions that can be outstanding: those of the send queue, and those of the receive
/// queue unless a separate receive completion queue is used. On most devices the connection ends if a
/// completion queue overflows. librpma(7) describes how the queues of a connection depend on each other.
///
/// # Parameters
/// * cfg - in: the configuration
/// * cq_size - in: the number of entries; values above INT_MAX are treated as INT_MAX
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_cq_size(cfg: *mut ConnCfg, cq_size: u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration.
    status(|| unsafe {
        given(cfg, "cfg")?.set_cq_size(cq_size);
        Ok(())
    })
}

/// Gets the size of a connection's main completion queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * cq_size - out: the number of entries
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
pub unsafe extern "C" fn rpma_conn_cfg_get_cq_size(cfg: *const ConnCfg, cq_size: *mut u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration; `cq_size` is NULL or writable.
    status(|| unsafe {
        let cfg = given(cfg, "cfg")?;
        out(cq_size, "cq_size")?.set(cfg.cq_size());
        Ok(())
    })
}

/// Sets the size of a connection's send queue.
///
/// An entry is released when the completion of its work request, or of a later one, has been collected.
/// Operations posted with RPMA_F_COMPLETION_ON_ERROR occupy entries as well.
///
/// # Parameters
/// * cfg - in: the configuration
/// * sq_size - in: the maximum number of outstanding work requests
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_sq_size(cfg: *mut ConnCfg, sq_size: u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration.
    status(|| unsafe {
        given(cfg, "cfg")?.set_sq_size(sq_size);
        Ok(())
    })
}

/// Gets the size of a connection's send queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * sq_size - out: the maximum number of outstanding work requests
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
pub unsafe extern "C" fn rpma_conn_cfg_get_sq_size(cfg: *const ConnCfg, sq_size: *mut u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration; `sq_size` is NULL or writable.
    status(|| unsafe {
        let cfg = given(cfg, "cfg")?;
        out(sq_size, "sq_size")?.set(cfg.sq_size());
        Ok(())
    })
}

/// Sets the size of a connection's receive queue.
///
/// It must hold a receive for each message that the remote peer may send before the program posts another
/// one. It is not used with a shared receive queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * rq_size - in: the maximum number of outstanding receive work requests
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_rq_size(cfg: *mut ConnCfg, rq_size: u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration.
    status(|| unsafe {
        given(cfg, "cfg")?.set_rq_size(rq_size);
        Ok(())
    })
}

/// Gets the size of a connection's receive queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * rq_size - out: the maximum number of outstanding receive work requests
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
pub unsafe extern "C" fn rpma_conn_cfg_get_rq_size(cfg: *const ConnCfg, rq_size: *mut u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration; `rq_size` is NULL or writable.
    status(|| unsafe {
        let cfg = given(cfg, "cfg")?;
        out(rq_size, "rq_size")?.set(cfg.rq_size());
        Ok(())
    })
}

/// Sets the size of a connection's separate receive completion queue.
///
/// Without one, receive completions are reported in the main completion queue. The value is ignored if the
/// connection uses a shared receive queue that has its own completion queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * rcq_size - in: the number of entries; values above INT_MAX are treated as INT_MAX; 0 for no separate
///   receive completion queue
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_rcq_size(cfg: *mut ConnCfg, rcq_size: u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration.
    status(|| unsafe {
        given(cfg, "cfg")?.set_rcq_size(rcq_size);
        Ok(())
    })
}

/// Gets the size of a connection's separate receive completion queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * rcq_size - out: the number of entries; 0 if there is no such queue
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
pub unsafe extern "C" fn rpma_conn_cfg_get_rcq_size(cfg: *const ConnCfg, rcq_size: *mut u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration; `rcq_size` is NULL or writable.
    status(|| unsafe {
        let cfg = given(cfg, "cfg")?;
        out(rcq_size, "rcq_size")?.set(cfg.rcq_size());
        Ok(())
    })
}

/// Sets whether a connection's completion queues share one completion channel.
///
/// With a shared completion channel, rpma_conn_wait waits for the completions of both queues, and
/// rpma_cq_wait cannot be used.
///
/// # Parameters
/// * cfg - in: the configuration
/// * shared - in: whether the completion channel is shared
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_compl_channel(cfg: *mut ConnCfg, shared: bool) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration.
    status(|| unsafe {
        given(cfg, "cfg")?.set_shared_comp_channel(shared);
        Ok(())
    })
}

/// Gets whether a connection's completion queues share one completion channel.
///
/// # Parameters
/// * cfg - in: the configuration
/// * shared - out: whether the completion channel is shared
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
pub unsafe extern "C" fn rpma_conn_cfg_get_compl_channel(cfg: *const ConnCfg, shared: *mut bool) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration; `shared` is NULL or writable.
    status(|| unsafe {
        let cfg = given(cfg, "cfg")?;
        out(shared.cast(), "shared")?.set(cfg.shared_comp_channel_c());
        Ok(())
    })
}

/// Sets the shared receive queue of a connection.
///
/// # Parameters
/// * cfg - in: the configuration
/// * srq - in: the shared receive queue; the caller keeps ownership, and it must outlive the connections
///   created with this configuration. It can be replaced but not removed.
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
pub unsafe extern "C" fn rpma_conn_cfg_set_srq(cfg: *mut ConnCfg, srq: *mut Srq) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration; `srq` is NULL or a live shared receive queue.
    status(|| unsafe {
        let cfg = given(cfg, "cfg")?;
        not_null(srq, "srq")?;
        cfg.set_srq(srq);
        Ok(())
    })
}

/// Gets the shared receive queue of a connection.
///
/// # Parameters
/// * cfg - in: the configuration
/// * srq_ptr - out: the shared receive queue, which must not be deleted through this pointer; NULL if none is
///   set
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
pub unsafe extern "C" fn rpma_conn_cfg_get_srq(cfg: *const ConnCfg, srq_ptr: *mut *mut Srq) -> c_int {
    // SAFETY: `cfg` is NULL or a live connection configuration; `srq_ptr` is NULL or writable.
    status(|| unsafe {
        let cfg = given(cfg, "cfg")?;
        out(srq_ptr, "srq_ptr")?.set(cfg.srq());
        Ok(())
    })
}
