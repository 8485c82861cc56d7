// SPDX-License-Identifier: BSD-3-Clause
//! Peer configurations: the properties that a peer declares.

use std::ffi::c_void;
use std::ptr;

use super::{Connection, Failed, Library};

/// A `struct rpma_peer_cfg`.
struct PeerConfig {
    library: &'static Library,
    raw: *mut c_void,
}

impl Drop for PeerConfig {
    fn drop(&mut self) {
        // SAFETY: `raw` was returned by librpma and is deleted only here.
        unsafe { (self.library.functions.rpma_peer_cfg_delete)(&mut self.raw) };
    }
}

/// The descriptor of a configuration that declares direct write to persistent memory, which permits the other
/// side to flush to persistence.
pub(crate) fn direct_write(library: &'static Library) -> Result<Vec<u8>, Failed> {
    let functions = &library.functions;
    let (mut raw, mut size) = (ptr::null_mut(), 0);
    // SAFETY: `raw` is writable.
    library.check(unsafe { (functions.rpma_peer_cfg_new)(&mut raw) })?;
    let config = PeerConfig { library, raw };
    // SAFETY: the configuration is alive; the buffer has the size that librpma returned.
    unsafe {
        library.check((functions.rpma_peer_cfg_set_direct_write_to_pmem)(config.raw, true))?;
        library.check((functions.rpma_peer_cfg_get_descriptor_size)(config.raw, &mut size))?;
        let mut descriptor = vec![0u8; size];
        library
            .check((functions.rpma_peer_cfg_get_descriptor)(config.raw, descriptor.as_mut_ptr().cast()))?;
        Ok(descriptor)
    }
}

impl Connection {
    /// rpma_conn_apply_remote_peer_cfg(3) of a descriptor.
    pub(crate) fn apply(&self, descriptor: &[u8]) -> Result<(), Failed> {
        let library = self.library();
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer and length are those of the descriptor; `raw` is writable.
        library.check(unsafe {
            (library.functions.rpma_peer_cfg_from_descriptor)(
                descriptor.as_ptr().cast(),
                descriptor.len(),
                &mut raw,
            )
        })?;
        let config = PeerConfig { library, raw };
        // SAFETY: the connection and the configuration are alive.
        library.check(unsafe { (library.functions.rpma_conn_apply_remote_peer_cfg)(self.raw, config.raw) })
    }
}
