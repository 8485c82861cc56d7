// SPDX-License-Identifier: BSD-3-Clause
//! Shared receive queues and their configurations.

use std::ffi::c_int;
use std::ptr;

use super::convert::{delete, given, out, plain, status, whole_status};
use rpma_core::cq::Cq;
use rpma_core::peer::Peer;
use rpma_core::srq::{self, Srq, SrqCfg};

/// Creates a shared receive queue configuration.
///
/// The default values are: shared receive queue of 20 entries; receive completion queue of 20 entries.
///
/// # Parameters
/// * cfg_ptr - out: the configuration, to be deleted with rpma_srq_cfg_delete; set to NULL on RPMA_E_NOMEM
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
pub unsafe extern "C" fn rpma_srq_cfg_new(cfg_ptr: *mut *mut SrqCfg) -> c_int {
    // SAFETY: `cfg_ptr` is NULL or writable.
    status(|| unsafe { out(cfg_ptr, "cfg_ptr")?.give_or_null(SrqCfg::new()) })
}

/// Deletes a shared receive queue configuration. Shared receive queues created with it are not affected.
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
pub unsafe extern "C" fn rpma_srq_cfg_delete(cfg_ptr: *mut *mut SrqCfg) -> c_int {
    // SAFETY: `cfg_ptr` is NULL, or holds NULL or a shared receive queue configuration that is live and not
    // in use elsewhere.
    status(|| unsafe { delete(cfg_ptr, "cfg_ptr", plain) })
}

/// Sets the size of a shared receive queue.
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
pub unsafe extern "C" fn rpma_srq_cfg_set_rq_size(cfg: *mut SrqCfg, rq_size: u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live shared receive queue configuration.
    status(|| unsafe {
        given(cfg, "cfg")?.set_rq_size(rq_size);
        Ok(())
    })
}

/// Gets the size of a shared receive queue.
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
pub unsafe extern "C" fn rpma_srq_cfg_get_rq_size(cfg: *const SrqCfg, rq_size: *mut u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live shared receive queue configuration; `rq_size` is NULL or writable.
    status(|| unsafe {
        let cfg = given(cfg, "cfg")?;
        out(rq_size, "rq_size")?.set(cfg.rq_size());
        Ok(())
    })
}

/// Sets the size of the receive completion queue of a shared receive queue.
///
/// Without one, receive completions are reported in a completion queue of the connection that received the
/// message.
///
/// # Parameters
/// * cfg - in: the configuration
/// * rcq_size - in: the number of entries; values above INT_MAX are treated as INT_MAX; 0 for no receive
///   completion queue
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
pub unsafe extern "C" fn rpma_srq_cfg_set_rcq_size(cfg: *mut SrqCfg, rcq_size: u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live shared receive queue configuration.
    status(|| unsafe {
        given(cfg, "cfg")?.set_rcq_size(rcq_size);
        Ok(())
    })
}

/// Gets the size of the receive completion queue of a shared receive queue.
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
pub unsafe extern "C" fn rpma_srq_cfg_get_rcq_size(cfg: *const SrqCfg, rcq_size: *mut u32) -> c_int {
    // SAFETY: `cfg` is NULL or a live shared receive queue configuration; `rcq_size` is NULL or writable.
    status(|| unsafe {
        let cfg = given(cfg, "cfg")?;
        out(rcq_size, "rcq_size")?.set(cfg.rcq_size());
        Ok(())
    })
}

/// Creates a shared receive queue, from which several connections can take their receives.
///
/// # Parameters
/// * peer - in: the peer; it must outlive the shared receive queue
/// * cfg - in: the configuration, or NULL for the default configuration
/// * srq_ptr - out: the shared receive queue, to be deleted with rpma_srq_delete; set to NULL on RPMA_E_NOMEM
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged, except as stated above.
///
/// # Errors
/// * RPMA_E_INVAL - peer or srq_ptr is NULL
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the shared receive queue or its completion queue could not be created
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_new(peer: *mut Peer, cfg: *mut SrqCfg, srq_ptr: *mut *mut Srq) -> c_int {
    // SAFETY: `peer` is NULL or a live peer; `cfg` is NULL or a live shared receive queue configuration;
    // `srq_ptr` is NULL or writable. The peer outlives the queue.
    whole_status(|| unsafe {
        let peer = given(peer, "peer")?;
        let made = out(srq_ptr, "srq_ptr")?;
        made.give_or_null(Srq::new(*peer.domain(), cfg.as_ref().unwrap_or(&srq::DEFAULT)))
    })
}

/// Deletes a shared receive queue.
///
/// All connections that use it must have been deleted before.
///
/// # Parameters
/// * srq_ptr - in, out: the shared receive queue; set to NULL, also on failure. If it is already NULL, the
///   call has no effect.
///
/// # Return value
/// 0 on success, or a negative error code: if more than one step fails, the first error. The shared receive
/// queue is deleted in either case.
///
/// # Errors
/// * RPMA_E_INVAL - srq_ptr is NULL
/// * RPMA_E_PROVIDER - a verbs or connection manager resource could not be destroyed
///
/// # Threads
/// Thread safe for different queues.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_delete(srq_ptr: *mut *mut Srq) -> c_int {
    // SAFETY: `srq_ptr` is NULL, or holds NULL or a shared receive queue that is live and not in use
    // elsewhere.
    whole_status(|| unsafe { delete(srq_ptr, "srq_ptr", Srq::close) })
}

/// Gets the receive completion queue of a shared receive queue.
///
/// # Parameters
/// * srq - in: the shared receive queue
/// * rcq_ptr - out: the receive completion queue, owned by the shared receive queue; NULL if it has none
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
pub unsafe extern "C" fn rpma_srq_get_rcq(srq: *const Srq, rcq_ptr: *mut *mut Cq) -> c_int {
    // SAFETY: `srq` is NULL or a live shared receive queue; `rcq_ptr` is NULL or writable.
    status(|| unsafe {
        let srq = given(srq, "srq")?;
        let rcq = srq.rcq().map_or(ptr::null(), ptr::from_ref);
        out(rcq_ptr, "rcq_ptr")?.set(rcq.cast_mut());
        Ok(())
    })
}
