// SPDX-License-Identifier: BSD-3-Clause
//! Peers of librpma.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::{Context, Failed, Library};

pub(super) struct PeerHandle {
    pub(super) library: &'static Library,
    pub(super) raw: *mut c_void,
}

impl Drop for PeerHandle {
    fn drop(&mut self) {
        // SAFETY: `raw` was returned by rpma_peer_new and is deleted only here, after all objects that were
        // created from it.
        unsafe { (self.library.functions.rpma_peer_delete)(&mut self.raw) };
    }
}

// SAFETY: another thread than the one that created a peer may use and delete it (THREADS of librpma.h).
unsafe impl Send for PeerHandle {}
// SAFETY: memory registration and connection set-up, the calls that the tools make with a shared peer, are
// made by a single thread.
unsafe impl Sync for PeerHandle {}

/// A `struct rpma_peer`.
#[derive(Clone)]
pub(crate) struct Peer(pub(super) Arc<PeerHandle>);

impl Peer {
    /// rpma_peer_new(3).
    pub(crate) fn new(library: &'static Library, context: Context) -> Result<Self, Failed> {
        let mut raw = ptr::null_mut();
        // SAFETY: the context was returned by rpma_utils_get_ibv_context, which never closes one; `raw` is
        // writable.
        library.check(unsafe { (library.functions.rpma_peer_new)(context.0, &mut raw) })?;
        Ok(Self(Arc::new(PeerHandle { library, raw })))
    }
}
