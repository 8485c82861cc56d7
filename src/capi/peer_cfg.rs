// SPDX-License-Identifier: BSD-3-Clause
//! Peer configurations.

use std::ffi::{c_int, c_void};

use super::convert::{given, out, status, take};
use rpma::peer_cfg::{DESCRIPTOR_SIZE, PeerCfg};

/// Makes a peer configuration: what one end of a connection declares about itself to the other.
///
/// A new configuration declares no direct write to persistent memory.
///
/// # Parameters
/// * pcfg_ptr - out: the configuration, to be deleted with rpma_peer_cfg_delete
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - pcfg_ptr is NULL
/// * RPMA_E_NOMEM - out of memory
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_new(pcfg_ptr: *mut *mut PeerCfg) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let pcfg = out(pcfg_ptr)?;
        pcfg.give(PeerCfg::new()?);
        Ok(())
    })
}

/// Deletes a peer configuration.
///
/// # Parameters
/// * pcfg_ptr - in, out: the configuration; NULL afterwards. One that is NULL already is left alone.
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - pcfg_ptr is NULL
///
/// # Threads
/// Thread safe for different configurations.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_delete(pcfg_ptr: *mut *mut PeerCfg) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { take(pcfg_ptr) }.map(drop))
}

/// Declares whether what is written to this end's persistent memory remotely bypasses its CPU caches.
///
/// Only with this declaration can the other end flush to persistence. On the software device it may be declared for
/// shared mappings of files, too: they are written back to the file before the flush completes.
///
/// # Parameters
/// * pcfg - in: the configuration
/// * supported - in: whether direct write to persistent memory is declared
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - pcfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_set_direct_write_to_pmem(
    pcfg: *mut PeerCfg,
    supported: bool,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        given(pcfg)?.set_direct_write_to_pmem(supported);
        Ok(())
    })
}

/// Tells whether direct write to persistent memory is declared.
///
/// # Parameters
/// * pcfg - in: the configuration
/// * supported - out: the declaration
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
pub unsafe extern "C" fn rpma_peer_cfg_get_direct_write_to_pmem(
    pcfg: *const PeerCfg,
    supported: *mut bool,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let pcfg = given(pcfg)?;
        out(supported)?.set(pcfg.direct_write_to_pmem());
        Ok(())
    })
}

/// Writes the descriptor of a configuration, for the application to send to the other end.
///
/// # Parameters
/// * pcfg - in: the configuration
/// * desc - out: room for as many bytes as rpma_peer_cfg_get_descriptor_size tells; any alignment
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
pub unsafe extern "C" fn rpma_peer_cfg_get_descriptor(pcfg: *const PeerCfg, desc: *mut c_void) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let pcfg = given(pcfg)?;
        out(desc.cast::<[u8; DESCRIPTOR_SIZE]>())?.set(pcfg.descriptor());
        Ok(())
    })
}

/// Tells the length of a configuration's descriptor.
///
/// # Parameters
/// * pcfg - in: the configuration
/// * desc_size - out: the length in bytes; 1
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
pub unsafe extern "C" fn rpma_peer_cfg_get_descriptor_size(
    pcfg: *const PeerCfg,
    desc_size: *mut usize,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        given(pcfg)?;
        out(desc_size)?.set(DESCRIPTOR_SIZE);
        Ok(())
    })
}

/// Makes a configuration from a descriptor that came from the other end.
///
/// # Parameters
/// * desc - in: the descriptor; any alignment. Any byte but 0 declares direct write to persistent memory.
/// * desc_size - in: its length in bytes, at least 1; what follows the first byte is ignored
/// * pcfg_ptr - out: the configuration, to be deleted with rpma_peer_cfg_delete
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - desc or pcfg_ptr is NULL, or desc_size is 0
/// * RPMA_E_NOMEM - out of memory
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_from_descriptor(
    desc: *const c_void,
    desc_size: usize,
    pcfg_ptr: *mut *mut PeerCfg,
) -> c_int {
    // SAFETY: the caller's promises. The descriptor is copied before it is looked at.
    status(|| unsafe {
        given(desc.cast::<u8>())?;
        let pcfg = out(pcfg_ptr)?;
        let mut copy = [0; DESCRIPTOR_SIZE];
        let len = desc_size.min(DESCRIPTOR_SIZE);
        desc.cast::<u8>().copy_to_nonoverlapping(copy.as_mut_ptr(), len);
        pcfg.give(PeerCfg::from_descriptor(&copy[..len])?);
        Ok(())
    })
}
