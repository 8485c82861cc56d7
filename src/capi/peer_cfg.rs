// SPDX-License-Identifier: BSD-3-Clause
//! Peer configurations.

use std::ffi::{c_int, c_void};

use super::convert::{delete, given, not_null, out, plain, status};
use rpma_core::peer_cfg::{DESCRIPTOR_SIZE, PeerCfg};

/// Creates a peer configuration: the properties that a peer declares to its remote peer.
///
/// By default, direct write to persistent memory is not declared.
///
/// # Parameters
/// * pcfg_ptr - out: the configuration, to be deleted with rpma_peer_cfg_delete
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - pcfg_ptr is NULL
/// * RPMA_E_NOMEM - out of memory
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_new(pcfg_ptr: *mut *mut PeerCfg) -> c_int {
    // SAFETY: `pcfg_ptr` is NULL or writable.
    status(|| unsafe {
        let pcfg = out(pcfg_ptr, "pcfg_ptr")?;
        pcfg.give(PeerCfg::new()?);
        Ok(())
    })
}

/// Deletes a peer configuration.
///
/// # Parameters
/// * pcfg_ptr - in, out: the configuration; set to NULL. If it is already NULL, the call has no effect.
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - pcfg_ptr is NULL
///
/// # Threads
/// Thread safe for different configurations.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_delete(pcfg_ptr: *mut *mut PeerCfg) -> c_int {
    // SAFETY: `pcfg_ptr` is NULL, or holds NULL or a peer configuration that is live and not in use
    // elsewhere.
    status(|| unsafe { delete(pcfg_ptr, "pcfg_ptr", plain) })
}

/// Declares whether remote writes to this peer's persistent memory bypass its CPU caches.
///
/// The remote peer can flush to persistence only if this is declared. On the software device it may also be
/// declared for shared file mappings: their data are written back to the file before the flush completes.
///
/// The library cannot examine the platform, so the administrator has to. Intel Data Direct I/O (DDIO) places
/// the writes of an adapter in the cache of the processor. Unless the platform saves its caches on power
/// failure (eADR), DDIO must be disabled for the PCIe root port of the adapter, in the setup of the firmware
/// or in the register PERFCTRLSTS of the port, before direct write is declared. Otherwise a flush to
/// persistence completes even though the data can still be lost on power failure.
///
/// # Parameters
/// * pcfg - in: the configuration
/// * supported - in: whether direct write to persistent memory is declared
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - pcfg is NULL
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_set_direct_write_to_pmem(
    pcfg: *mut PeerCfg,
    supported: bool,
) -> c_int {
    // SAFETY: `pcfg` is NULL or a live peer configuration.
    status(|| unsafe {
        given(pcfg, "pcfg")?.set_direct_write_to_pmem(supported);
        Ok(())
    })
}

/// Gets whether direct write to persistent memory is declared.
///
/// # Parameters
/// * pcfg - in: the configuration
/// * supported - out: whether direct write to persistent memory is declared
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
pub unsafe extern "C" fn rpma_peer_cfg_get_direct_write_to_pmem(
    pcfg: *const PeerCfg,
    supported: *mut bool,
) -> c_int {
    // SAFETY: `pcfg` is NULL or a live peer configuration; `supported` is NULL or writable, and a C bool is
    // one byte, as the descriptor is.
    status(|| unsafe {
        let pcfg = given(pcfg, "pcfg")?;
        out(supported.cast(), "supported")?.set(pcfg.descriptor());
        Ok(())
    })
}

/// Writes the descriptor of a peer configuration to a buffer, for the application to send to the remote peer.
///
/// # Parameters
/// * pcfg - in: the configuration
/// * desc - out: a buffer of the size returned by rpma_peer_cfg_get_descriptor_size; any alignment
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
pub unsafe extern "C" fn rpma_peer_cfg_get_descriptor(pcfg: *const PeerCfg, desc: *mut c_void) -> c_int {
    // SAFETY: `pcfg` is NULL or a live peer configuration; `desc` is NULL or writable for the descriptor.
    status(|| unsafe {
        let pcfg = given(pcfg, "pcfg")?;
        out(desc.cast::<[u8; DESCRIPTOR_SIZE]>(), "desc")?.set(pcfg.descriptor());
        Ok(())
    })
}

/// Gets the size of a peer configuration's descriptor.
///
/// # Parameters
/// * pcfg - in: the configuration
/// * desc_size - out: the size in bytes; always 1
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
pub unsafe extern "C" fn rpma_peer_cfg_get_descriptor_size(
    pcfg: *const PeerCfg,
    desc_size: *mut usize,
) -> c_int {
    // SAFETY: `pcfg` is NULL or a live peer configuration; `desc_size` is NULL or writable.
    status(|| unsafe {
        given(pcfg, "pcfg")?;
        out(desc_size, "desc_size")?.set(DESCRIPTOR_SIZE);
        Ok(())
    })
}

/// Creates a peer configuration from a descriptor received from the remote peer.
///
/// # Parameters
/// * desc - in: the descriptor; any alignment. A nonzero first byte declares direct write to persistent
///   memory.
/// * desc_size - in: the size of the descriptor in bytes, at least 1; any further bytes are ignored
/// * pcfg_ptr - out: the configuration, to be deleted with rpma_peer_cfg_delete
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - desc or pcfg_ptr is NULL, or desc_size is 0
/// * RPMA_E_NOMEM - out of memory
///
/// # Threads
/// Thread safe.
///
/// # Security
/// A descriptor is neither encrypted nor authenticated. If it is changed in transit, it may declare direct
/// write to persistent memory for a remote peer that has not declared it: flushes to persistence then
/// complete although the data are not durable. On a network that others can reach, exchange descriptors over
/// a channel that authenticates both peers and protects the data, for example TLS.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_peer_cfg_from_descriptor(
    desc: *const c_void,
    desc_size: usize,
    pcfg_ptr: *mut *mut PeerCfg,
) -> c_int {
    // SAFETY: `desc` is NULL or readable for `desc_size` bytes, and is copied before it is parsed; `pcfg_ptr`
    // is NULL or writable.
    status(|| unsafe {
        not_null(desc, "desc")?;
        let pcfg = out(pcfg_ptr, "pcfg_ptr")?;
        let cfg = match desc_size {
            ..DESCRIPTOR_SIZE => PeerCfg::from_descriptor(&[]),
            _ => PeerCfg::from_descriptor(&desc.cast::<[u8; DESCRIPTOR_SIZE]>().read()),
        };
        pcfg.give(cfg?);
        Ok(())
    })
}
