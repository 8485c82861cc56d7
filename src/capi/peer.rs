// SPDX-License-Identifier: BSD-3-Clause
//! Peers.

use std::ffi::c_int;

use rdma_sys::ibv_context;

use super::convert::{given, out, status, take};
use rpma::peer::Peer;

/// Makes a peer: the object that memory, endpoints and connections on a device are made from.
///
/// # Parameters
/// * ibv_ctx - in: the context of the device, from rpma_utils_get_ibv_context or opened by the application; it must
///   outlive the peer
/// * peer_ptr - out: the peer, to be deleted with rpma_peer_delete
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the device cannot be queried, or gives no protection domain; or RPMA_NATIVE in the environment is
///   not what librpma_providers(7) says
/// * RPMA_E_UNKNOWN - the device gives no protection domain and no reason
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_new(ibv_ctx: *mut ibv_context, peer_ptr: *mut *mut Peer) -> c_int {
    // SAFETY: the caller's promises. The context is not borrowed: it is C's, and is only checked for NULL here.
    status(|| unsafe {
        given(ibv_ctx.cast::<u8>())?;
        let peer = out(peer_ptr)?;
        peer.give(Peer::new(ibv_ctx)?);
        Ok(())
    })
}

/// Deletes a peer.
///
/// Everything that was made from it must have been deleted before.
///
/// # Parameters
/// * peer_ptr - in, out: the peer; NULL afterwards, also on failure. A peer that is NULL already is left alone.
///
/// # Return value
/// 0, or a negative error code. The peer is gone in either case.
///
/// # Errors
/// * RPMA_E_INVAL - peer_ptr is NULL
/// * RPMA_E_PROVIDER - the protection domain cannot be freed, for example because it is still in use
///
/// # Threads
/// Thread safe for different peers.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_delete(peer_ptr: *mut *mut Peer) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { take(peer_ptr) }?.map_or(Ok(()), |object| object.close()))
}
