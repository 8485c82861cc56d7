// SPDX-License-Identifier: BSD-3-Clause
//! Connection configurations.

use std::ffi::c_int;

use super::convert::{given, out, status, take};
use rpma::conn_cfg::ConnCfg;
use rpma::error::Error;
use rpma::srq::Srq;

/// Makes a connection configuration.
///
/// Its values at first: timeout RPMA_DEFAULT_TIMEOUT_MS, completion, send and receive queue 10 entries each, no
/// separate receive completion queue, no shared completion channel, no shared receive queue.
///
/// # Parameters
/// * cfg_ptr - out: the configuration, to be deleted with rpma_conn_cfg_delete; NULL if out of memory
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg_ptr is NULL
/// * RPMA_E_NOMEM - out of memory
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_new(cfg_ptr: *mut *mut ConnCfg) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { out(cfg_ptr)?.give_or_null(ConnCfg::new()) })
}

/// Deletes a connection configuration. Connections made with it are not affected.
///
/// # Parameters
/// * cfg_ptr - in, out: the configuration; NULL afterwards. One that is NULL already is left alone.
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg_ptr is NULL
///
/// # Threads
/// Thread safe for different configurations.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_delete(cfg_ptr: *mut *mut ConnCfg) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { take(cfg_ptr) }.map(drop))
}

/// Sets how long resolving an address and resolving a route may each take.
///
/// On the software device it is the time that making the TCP connection may take.
///
/// # Parameters
/// * cfg - in: the configuration
/// * timeout_ms - in: the time in milliseconds, not negative
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL, or timeout_ms is negative
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_timeout(cfg: *mut ConnCfg, timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { given(cfg)?.set_timeout(timeout_ms) })
}

/// Tells how long resolving an address and resolving a route may each take.
///
/// # Parameters
/// * cfg - in: the configuration
/// * timeout_ms - out: the time in milliseconds
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
pub unsafe extern "C" fn rpma_conn_cfg_get_timeout(cfg: *const ConnCfg, timeout_ms: *mut c_int) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cfg = given(cfg)?;
        out(timeout_ms)?.set(cfg.timeout());
        Ok(())
    })
}

/// Sets the size of a connection's main completion queue.
///
/// It must have room for every completion that can be outstanding: of the send queue, and of the receive queue unless
/// a separate receive completion queue takes those.
///
/// # Parameters
/// * cfg - in: the configuration
/// * cq_size - in: the number of entries; values above INT_MAX mean INT_MAX
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_cq_size(cfg: *mut ConnCfg, cq_size: u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        given(cfg)?.set_cq_size(cq_size);
        Ok(())
    })
}

/// Tells the size of a connection's main completion queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * cq_size - out: the number of entries
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
pub unsafe extern "C" fn rpma_conn_cfg_get_cq_size(cfg: *const ConnCfg, cq_size: *mut u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cfg = given(cfg)?;
        out(cq_size)?.set(cfg.cq_size());
        Ok(())
    })
}

/// Sets the size of a connection's send queue.
///
/// An entry is free again when the completion of its request, or of a later one, has been taken.
///
/// # Parameters
/// * cfg - in: the configuration
/// * sq_size - in: the number of requests that may be outstanding
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_sq_size(cfg: *mut ConnCfg, sq_size: u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        given(cfg)?.set_sq_size(sq_size);
        Ok(())
    })
}

/// Tells the size of a connection's send queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * sq_size - out: the number of requests
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
pub unsafe extern "C" fn rpma_conn_cfg_get_sq_size(cfg: *const ConnCfg, sq_size: *mut u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cfg = given(cfg)?;
        out(sq_size)?.set(cfg.sq_size());
        Ok(())
    })
}

/// Sets the size of a connection's receive queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * rq_size - in: the number of receives that may be outstanding
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_rq_size(cfg: *mut ConnCfg, rq_size: u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        given(cfg)?.set_rq_size(rq_size);
        Ok(())
    })
}

/// Tells the size of a connection's receive queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * rq_size - out: the number of receives
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
pub unsafe extern "C" fn rpma_conn_cfg_get_rq_size(cfg: *const ConnCfg, rq_size: *mut u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cfg = given(cfg)?;
        out(rq_size)?.set(cfg.rq_size());
        Ok(())
    })
}

/// Sets the size of a connection's separate receive completion queue.
///
/// Without one, completions of receives come through the main completion queue. With a shared receive queue that has
/// a completion queue of its own, the value is not used.
///
/// # Parameters
/// * cfg - in: the configuration
/// * rcq_size - in: the number of entries, values above INT_MAX mean INT_MAX; 0 for no separate queue
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_rcq_size(cfg: *mut ConnCfg, rcq_size: u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        given(cfg)?.set_rcq_size(rcq_size);
        Ok(())
    })
}

/// Tells the size of a connection's separate receive completion queue.
///
/// # Parameters
/// * cfg - in: the configuration
/// * rcq_size - out: the number of entries, or 0
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
pub unsafe extern "C" fn rpma_conn_cfg_get_rcq_size(cfg: *const ConnCfg, rcq_size: *mut u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cfg = given(cfg)?;
        out(rcq_size)?.set(cfg.rcq_size());
        Ok(())
    })
}

/// Sets whether a connection's completion queues share one completion channel.
///
/// With a shared channel, rpma_conn_wait waits for completions of both queues, and rpma_cq_wait is not possible.
///
/// # Parameters
/// * cfg - in: the configuration
/// * shared - in: whether the channel is shared
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - cfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_conn_cfg_set_compl_channel(cfg: *mut ConnCfg, shared: bool) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        given(cfg)?.set_shared_comp_channel(shared);
        Ok(())
    })
}

/// Tells whether a connection's completion queues share one completion channel.
///
/// # Parameters
/// * cfg - in: the configuration
/// * shared - out: whether the channel is shared
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
pub unsafe extern "C" fn rpma_conn_cfg_get_compl_channel(cfg: *const ConnCfg, shared: *mut bool) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cfg = given(cfg)?;
        out(shared)?.set(cfg.shared_comp_channel());
        Ok(())
    })
}

/// Sets the shared receive queue that a connection takes its receives from.
///
/// # Parameters
/// * cfg - in: the configuration
/// * srq - in: the queue; it stays the caller's and must outlive the connections made with this configuration. It
///   can be replaced but not removed again.
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
pub unsafe extern "C" fn rpma_conn_cfg_set_srq(cfg: *mut ConnCfg, srq: *mut Srq) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cfg = given(cfg)?;
        if srq.is_null() {
            return Err(Error::Inval);
        }
        cfg.set_srq(srq);
        Ok(())
    })
}

/// Tells the shared receive queue that a connection takes its receives from.
///
/// # Parameters
/// * cfg - in: the configuration
/// * srq_ptr - out: the queue, which is not the caller's to delete through this pointer; NULL if none is set
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
pub unsafe extern "C" fn rpma_conn_cfg_get_srq(cfg: *const ConnCfg, srq_ptr: *mut *mut Srq) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cfg = given(cfg)?;
        out(srq_ptr)?.set(cfg.srq());
        Ok(())
    })
}
