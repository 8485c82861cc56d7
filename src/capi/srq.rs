// SPDX-License-Identifier: BSD-3-Clause
//! Shared receive queues and their configurations.

use std::ffi::c_int;
use std::ptr;

use super::convert::{given, out, status, take};
use rpma::cq::Cq;
use rpma::peer::Peer;
use rpma::srq::{self, Srq, SrqCfg};

/// Makes a configuration for shared receive queues.
///
/// Its values at first: receive queue 20 entries, completion queue of its own 20 entries.
///
/// # Parameters
/// * cfg_ptr - out: the configuration, to be deleted with rpma_srq_cfg_delete; NULL if out of memory
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
pub unsafe extern "C" fn rpma_srq_cfg_new(cfg_ptr: *mut *mut SrqCfg) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { out(cfg_ptr)?.give_or_null(SrqCfg::new()) })
}

/// Deletes a configuration for shared receive queues. Queues made with it are not affected.
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
pub unsafe extern "C" fn rpma_srq_cfg_delete(cfg_ptr: *mut *mut SrqCfg) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { take(cfg_ptr) }.map(drop))
}

/// Sets the size of a shared receive queue.
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
pub unsafe extern "C" fn rpma_srq_cfg_set_rq_size(cfg: *mut SrqCfg, rq_size: u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        given(cfg)?.set_rq_size(rq_size);
        Ok(())
    })
}

/// Tells the size of a shared receive queue.
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
pub unsafe extern "C" fn rpma_srq_cfg_get_rq_size(cfg: *const SrqCfg, rq_size: *mut u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cfg = given(cfg)?;
        out(rq_size)?.set(cfg.rq_size());
        Ok(())
    })
}

/// Sets the size of a shared receive queue's own completion queue.
///
/// Without one, completions of receives come through the queues of the connection that the message came over.
///
/// # Parameters
/// * cfg - in: the configuration
/// * rcq_size - in: the number of entries, values above INT_MAX mean INT_MAX; 0 for no queue of its own
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
pub unsafe extern "C" fn rpma_srq_cfg_set_rcq_size(cfg: *mut SrqCfg, rcq_size: u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        given(cfg)?.set_rcq_size(rcq_size);
        Ok(())
    })
}

/// Tells the size of a shared receive queue's own completion queue.
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
pub unsafe extern "C" fn rpma_srq_cfg_get_rcq_size(cfg: *const SrqCfg, rcq_size: *mut u32) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let cfg = given(cfg)?;
        out(rcq_size)?.set(cfg.rcq_size());
        Ok(())
    })
}

/// Makes a shared receive queue: one queue of receives for several connections.
///
/// # Parameters
/// * peer - in: the peer; it must outlive the queue
/// * cfg - in: the configuration, or NULL for the default one
/// * srq_ptr - out: the queue, to be deleted with rpma_srq_delete; NULL if out of memory
///
/// # Return value
/// 0, or a negative error code. Except as said above, the output is left as it was on failure.
///
/// # Errors
/// * RPMA_E_INVAL - peer or srq_ptr is NULL
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - a queue cannot be created
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_new(peer: *mut Peer, cfg: *mut SrqCfg, srq_ptr: *mut *mut Srq) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let peer = given(peer)?;
        let made = out(srq_ptr)?;
        made.give_or_null(Srq::new(peer.domain(), cfg.as_ref().unwrap_or(&srq::DEFAULT)))
    })
}

/// Deletes a shared receive queue.
///
/// The connections that use it must have been deleted before.
///
/// # Parameters
/// * srq_ptr - in, out: the queue; NULL afterwards, also on failure. One that is NULL already is left alone.
///
/// # Return value
/// 0, or a negative error code: the first, if several things fail. The queue is gone in either case.
///
/// # Errors
/// * RPMA_E_INVAL - srq_ptr is NULL
/// * RPMA_E_PROVIDER - something cannot be destroyed
///
/// # Threads
/// Thread safe for different queues.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_srq_delete(srq_ptr: *mut *mut Srq) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { take(srq_ptr) }?.map_or(Ok(()), |object| object.close()))
}

/// Tells a shared receive queue's own completion queue.
///
/// # Parameters
/// * srq - in: the shared receive queue
/// * rcq_ptr - out: its completion queue, which belongs to it; NULL if it has none
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
pub unsafe extern "C" fn rpma_srq_get_rcq(srq: *const Srq, rcq_ptr: *mut *mut Cq) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let srq = given(srq)?;
        let rcq = srq.rcq().map_or(ptr::null(), ptr::from_ref);
        out(rcq_ptr)?.set(rcq.cast_mut());
        Ok(())
    })
}
