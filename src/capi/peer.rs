// SPDX-License-Identifier: BSD-3-Clause
//! Peers.

use std::ffi::c_int;

use rdma_sys::ibv_context;

use super::convert::{delete, not_null, out, whole_status};
use rpma_core::peer::Peer;

/// Creates a peer for a device: the object from which memory regions, endpoints and connections are created.
///
/// # Parameters
/// * ibv_ctx - in: the device context, from rpma_utils_get_ibv_context or opened by the application; it must
///   outlive the peer
/// * peer_ptr - out: the peer, to be deleted with rpma_peer_delete
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the device could not be queried, the protection domain could not be allocated, or the
///   environment variable RPMA_NATIVE has an invalid value (see librpma_providers(7))
/// * RPMA_E_UNKNOWN - the protection domain could not be allocated and the device reported no reason
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_new(ibv_ctx: *mut ibv_context, peer_ptr: *mut *mut Peer) -> c_int {
    // SAFETY: `ibv_ctx` is NULL or an open device context that outlives the peer; `peer_ptr` is NULL or
    // writable. The context is not borrowed, because C code uses it at the same time.
    whole_status(|| unsafe {
        not_null(ibv_ctx, "ibv_ctx")?;
        let peer = out(peer_ptr, "peer_ptr")?;
        peer.give(Peer::new(ibv_ctx)?);
        Ok(())
    })
}

/// Deletes a peer.
///
/// All objects created from the peer must have been deleted before.
///
/// # Parameters
/// * peer_ptr - in, out: the peer; set to NULL, also on failure. If it is already NULL, the call has no
///   effect.
///
/// # Return value
/// 0 on success, or a negative error code. The peer is deleted in either case.
///
/// # Errors
/// * RPMA_E_INVAL - peer_ptr is NULL
/// * RPMA_E_PROVIDER - the protection domain could not be deallocated, for example because it is still in use
///
/// # Threads
/// Thread safe for different peers.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_delete(peer_ptr: *mut *mut Peer) -> c_int {
    // SAFETY: `peer_ptr` is NULL, or holds NULL or a peer that is live and not in use elsewhere.
    whole_status(|| unsafe { delete(peer_ptr, "peer_ptr", Peer::close) })
}
