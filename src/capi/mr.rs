// SPDX-License-Identifier: BSD-3-Clause
//! Memory regions.

use std::ffi::{c_int, c_void};

use super::convert::{delete, given, not_null, out, plain, status, whole_status};
use rpma_core::descriptor;
use rpma_core::failure::Fail;
use rpma_core::mr::{MrLocal, MrRemote};
use rpma_core::peer::Peer;

/// Registers a memory region for the given usage.
///
/// If the memory cannot be pinned and the device supports on-demand paging, the memory is registered with
/// on-demand paging. A region registered for either type of flush can also be read by remote peers that hold
/// its descriptor, because a flush may be executed as a read.
///
/// The kernel pins no memory that is mapped from a file on a DAX file system: such memory can be registered
/// only with on-demand paging, that is, if rpma_utils_ibv_context_is_odp_capable reports it. Mappings of a
/// whole device (/dev/dax*) and of ordinary files do not need it. The soft provider pins nothing.
///
/// # Parameters
/// * peer - in: the peer
/// * ptr - in: the address of the memory; any alignment
/// * size - in: the size in bytes, not 0
/// * usage - in: a bitwise OR of one or more RPMA_MR_USAGE_* flags
/// * mr_ptr - out: the memory region, to be deregistered with rpma_mr_dereg before the memory is unmapped or
///   freed
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL, size is 0, or usage is 0 or has undefined bits set
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the device could not register the memory; the log message states the reason
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_reg(
    peer: *mut Peer,
    ptr: *mut c_void,
    size: usize,
    usage: c_int,
    mr_ptr: *mut *mut MrLocal,
) -> c_int {
    // SAFETY: `peer` is NULL or a live peer; the memory at `ptr` stays mapped until it is deregistered;
    // `mr_ptr` is NULL or writable. The peer outlives the region.
    whole_status(|| unsafe {
        let peer = given(peer, "peer")?;
        not_null(ptr, "ptr")?;
        if size == 0 {
            return Err(Fail::Invalid("size is 0"));
        }
        let mr = out(mr_ptr, "mr_ptr")?;
        mr.give(MrLocal::register(peer.domain(), ptr, size, usage)?);
        Ok(())
    })
}

/// Deregisters a memory region.
///
/// Once the call has returned 0, no remote peer can read or write the memory through this region.
///
/// # Parameters
/// * mr_ptr - in, out: the memory region; set to NULL, also on failure. If it is already NULL, the call has
///   no effect.
///
/// # Return value
/// 0 on success, or a negative error code. The memory region object is deleted in either case.
///
/// # Errors
/// * RPMA_E_INVAL - mr_ptr is NULL
/// * RPMA_E_PROVIDER - the memory region could not be deregistered. With the soft provider: a peer process on
///   this host was stopped (by SIGSTOP or a debugger) in the middle of a copy to or from the region and did
///   not continue within 5 seconds. Do not reuse the memory: the peer may still finish this one copy. All
///   other remote access is denied. The region stays registered until the process ends, so rpma_peer_delete
///   fails.
///
/// # Threads
/// Thread safe for different regions.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_dereg(mr_ptr: *mut *mut MrLocal) -> c_int {
    // SAFETY: `mr_ptr` is NULL, or holds NULL or a memory region that is live and not in use elsewhere.
    whole_status(|| unsafe { delete(mr_ptr, "mr_ptr", MrLocal::close) })
}

/// Writes the descriptor of a memory region to a buffer, for the application to send to the remote peer.
///
/// Any remote peer that holds the descriptor and has a connection to this peer may access the region as its
/// usage allows.
///
/// # Parameters
/// * mr - in: the memory region
/// * desc - out: a buffer of the size returned by rpma_mr_get_descriptor_size; any alignment
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
pub unsafe extern "C" fn rpma_mr_get_descriptor(mr: *const MrLocal, desc: *mut c_void) -> c_int {
    // SAFETY: `mr` is NULL or a live memory region; `desc` is NULL or writable for the descriptor.
    status(|| unsafe {
        let mr = given(mr, "mr")?;
        out(desc.cast::<[u8; descriptor::SIZE]>(), "desc")?.set(mr.descriptor());
        Ok(())
    })
}

/// Gets the size of a memory region's descriptor.
///
/// # Parameters
/// * mr - in: the memory region
/// * desc_size - out: the size in bytes; always 21
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
pub unsafe extern "C" fn rpma_mr_get_descriptor_size(mr: *const MrLocal, desc_size: *mut usize) -> c_int {
    // SAFETY: `mr` is NULL or a live memory region; `desc_size` is NULL or writable.
    status(|| unsafe {
        given(mr, "mr")?;
        out(desc_size, "desc_size")?.set(descriptor::SIZE);
        Ok(())
    })
}

/// Gets the address of a memory region.
///
/// # Parameters
/// * mr - in: the memory region
/// * ptr - out: the address of the first byte
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
pub unsafe extern "C" fn rpma_mr_get_ptr(mr: *const MrLocal, ptr: *mut *mut c_void) -> c_int {
    // SAFETY: `mr` is NULL or a live memory region; `ptr` is NULL or writable.
    status(|| unsafe {
        let mr = given(mr, "mr")?;
        out(ptr, "ptr")?.set(mr.addr());
        Ok(())
    })
}

/// Gets the size of a memory region.
///
/// # Parameters
/// * mr - in: the memory region
/// * size - out: the size in bytes
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
pub unsafe extern "C" fn rpma_mr_get_size(mr: *const MrLocal, size: *mut usize) -> c_int {
    // SAFETY: `mr` is NULL or a live memory region; `size` is NULL or writable.
    status(|| unsafe {
        let mr = given(mr, "mr")?;
        out(size, "size")?.set(mr.size());
        Ok(())
    })
}

/// Advises the device on the expected use of a part of a memory region.
///
/// This is useful for memory regions with on-demand paging: prefetching pages makes the first access to them
/// faster.
///
/// # Parameters
/// * mr - in: the memory region
/// * offset - in: the start of the part, in bytes from the start of the memory region
/// * len - in: the length of the part in bytes, at most UINT32_MAX
/// * advice - in: one of IB_UVERBS_ADVISE_MR_ADVICE_*
/// * flags - in: 0, or IB_UVERBS_ADVISE_MR_FLAG_FLUSH to block until the advice has been carried out
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - mr is NULL, len is too large, or the device rejected the range or the advice as invalid
/// * RPMA_E_NOSUPP - the device does not support memory advice
/// * RPMA_E_PROVIDER - the device rejected the advice for another reason
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_advise(
    mr: *mut MrLocal,
    offset: usize,
    len: usize,
    advice: c_int,
    flags: u32,
) -> c_int {
    // SAFETY: `mr` is NULL or a live memory region.
    // This is an ioctl(2), which is not a cancellation point.
    status(|| Ok(unsafe { given(mr, "mr") }?.advise(offset, len, advice, flags)?))
}

/// Creates a remote memory region from a descriptor received from the remote peer.
///
/// The call checks only the format of the descriptor and sends nothing. A region that does not exist is
/// detected when it is accessed.
///
/// # Parameters
/// * desc - in: the descriptor; any alignment
/// * desc_size - in: the size of the descriptor in bytes, at least 21; any further bytes are ignored
/// * mr_ptr - out: the remote memory region, to be deleted with rpma_mr_remote_delete
///
/// # Return value
/// 0 on success, or a negative error code; on failure the output is left unchanged.
///
/// # Errors
/// * RPMA_E_INVAL - desc or mr_ptr is NULL, desc_size is too small, the descriptor declares no usage, or the
///   region it describes extends past the end of the 64-bit address space
/// * RPMA_E_NOMEM - out of memory
///
/// # Threads
/// Thread safe.
///
/// # Security
/// A descriptor is neither encrypted nor authenticated: it holds the address, size and key of the region in
/// the clear. Anyone who reads it in transit and can connect to the remote peer can access the region as its
/// usage allows. Anyone who changes it in transit chooses which memory of the remote peer this program reads
/// and writes. On a network that others can reach, exchange descriptors over a channel that authenticates
/// both peers and protects the data, for example TLS. Check the size that rpma_mr_remote_get_size returns
/// before relying on it.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_remote_from_descriptor(
    desc: *const c_void,
    desc_size: usize,
    mr_ptr: *mut *mut MrRemote,
) -> c_int {
    // SAFETY: `desc` is NULL or readable for `desc_size` bytes, and is copied before it is parsed; `mr_ptr`
    // is NULL or writable.
    status(|| unsafe {
        not_null(desc, "desc")?;
        let mr = out(mr_ptr, "mr_ptr")?;
        let region = match desc_size {
            // Too short: rejected regardless of its content.
            ..descriptor::SIZE => MrRemote::from_descriptor(&[0; descriptor::SIZE][..desc_size]),
            _ => MrRemote::from_descriptor(&desc.cast::<[u8; descriptor::SIZE]>().read()),
        };
        mr.give(region?);
        Ok(())
    })
}

/// Gets the size of a remote memory region.
///
/// # Parameters
/// * mr - in: the remote memory region
/// * size - out: the size in bytes
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
pub unsafe extern "C" fn rpma_mr_remote_get_size(mr: *const MrRemote, size: *mut usize) -> c_int {
    // SAFETY: `mr` is NULL or a live remote memory region; `size` is NULL or writable.
    status(|| unsafe {
        let mr = given(mr, "mr")?;
        out(size, "size")?.set(mr.size());
        Ok(())
    })
}

/// Gets the types of flush that a remote memory region supports.
///
/// # Parameters
/// * mr - in: the remote memory region
/// * flush_type - out: 0, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, or a
///   bitwise OR of both
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
pub unsafe extern "C" fn rpma_mr_remote_get_flush_type(mr: *const MrRemote, flush_type: *mut c_int) -> c_int {
    // SAFETY: `mr` is NULL or a live remote memory region; `flush_type` is NULL or writable.
    status(|| unsafe {
        let mr = given(mr, "mr")?;
        out(flush_type, "flush_type")?.set(mr.flush_type());
        Ok(())
    })
}

/// Deletes a remote memory region. The memory itself is not affected.
///
/// # Parameters
/// * mr_ptr - in, out: the remote memory region; set to NULL. If it is already NULL, the call has no effect.
///
/// # Return value
/// 0 on success, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - mr_ptr is NULL
///
/// # Threads
/// Thread safe for different regions.
///
/// # Safety
/// The pointers must satisfy the requirements of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_remote_delete(mr_ptr: *mut *mut MrRemote) -> c_int {
    // SAFETY: `mr_ptr` is NULL, or holds NULL or a remote memory region that is live and not in use
    // elsewhere.
    status(|| unsafe { delete(mr_ptr, "mr_ptr", plain) })
}
