// SPDX-License-Identifier: BSD-3-Clause
//! Shared receive queues.

use std::ffi::c_void;
use std::ptr;

use super::{Failed, Memory, Peer, newer};

/// A `struct rpma_srq` without a completion queue of its own: a message completes in the queue of the
/// connection that received it.
pub(crate) struct SharedReceives {
    peer: Peer,
    raw: *mut c_void,
}

// SAFETY: another thread than the one that created a shared receive queue may use and delete it (THREADS of
// librpma.h).
unsafe impl Send for SharedReceives {}
// SAFETY: a shared reference permits only rpma_srq_recv, which is thread safe (THREADS of librpma.h).
unsafe impl Sync for SharedReceives {}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        if let Some(delete) = self.peer.0.library.functions.rpma_srq_delete {
            // SAFETY: `raw` was returned by rpma_srq_new and is deleted only here.
            unsafe { delete(&mut self.raw) };
        }
    }
}

impl SharedReceives {
    /// rpma_srq_new(3) for up to `entries` receives.
    pub(crate) fn new(peer: &Peer, entries: u32) -> Result<Self, Failed> {
        let (library, functions) = (peer.0.library, &peer.0.library.functions);
        let new = newer(functions.rpma_srq_new, "rpma_srq_new")?;
        let new_config = newer(functions.rpma_srq_cfg_new, "rpma_srq_cfg_new")?;
        let delete_config = newer(functions.rpma_srq_cfg_delete, "rpma_srq_cfg_delete")?;
        let set_size = newer(functions.rpma_srq_cfg_set_rq_size, "rpma_srq_cfg_set_rq_size")?;
        let set_queue = newer(functions.rpma_srq_cfg_set_rcq_size, "rpma_srq_cfg_set_rcq_size")?;
        let (mut config, mut raw) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `config` and `raw` are writable, the peer is alive, and the configuration is until it is
        // deleted here.
        let created = unsafe {
            library.check(new_config(&mut config))?;
            let created = library
                .check(set_size(config, entries))
                .and_then(|()| library.check(set_queue(config, 0)))
                .and_then(|()| library.check(new(peer.0.raw, config, &mut raw)));
            delete_config(&mut config);
            created
        };
        created.map(|()| Self { peer: peer.clone(), raw })
    }

    /// rpma_srq_recv(3); the memory must live until the completion, or the queue's end.
    pub(crate) fn receive(&self, to: &Memory, offset: usize, len: usize, number: u64) -> Result<(), Failed> {
        let library = self.peer.0.library;
        let receive = newer(library.functions.rpma_srq_recv, "rpma_srq_recv")?;
        let context = ptr::without_provenance(number as usize);
        // SAFETY: the queue and the region are alive; the range is checked by the device.
        library.check(unsafe { receive(self.raw, to.raw(), offset, len, context) })
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.raw
    }
}
