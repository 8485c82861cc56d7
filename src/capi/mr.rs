// SPDX-License-Identifier: BSD-3-Clause
//! Memory regions.

use std::ffi::{c_int, c_void};

use super::convert::{given, out, status, take};
use rpma::descriptor;
use rpma::error::Error;
use rpma::mr::{MrLocal, MrRemote};
use rpma::peer::Peer;

/// Registers memory, so that a device may access it as the usage says.
///
/// If the memory cannot be pinned and the device can page on demand, it is registered with on-demand paging. A
/// region for either type of flush can also be read by remote peers that hold its descriptor, because a flush may
/// be carried out as a read.
///
/// # Parameters
/// * peer - in: the peer
/// * ptr - in: the first byte; any alignment
/// * size - in: the length in bytes, not 0
/// * usage - in: one or more of RPMA_MR_USAGE_*, or-ed
/// * mr_ptr - out: the region, to be deregistered with rpma_mr_dereg before the memory is unmapped or freed
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - a pointer is NULL, size is 0, or usage is 0 or has other bits
/// * RPMA_E_NOMEM - out of memory
/// * RPMA_E_PROVIDER - the device refuses the memory; the log line has its reason
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_reg(
    peer: *mut Peer,
    ptr: *mut c_void,
    size: usize,
    usage: c_int,
    mr_ptr: *mut *mut MrLocal,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let peer = given(peer)?;
        if ptr.is_null() || size == 0 {
            return Err(Error::Inval);
        }
        let mr = out(mr_ptr)?;
        mr.give(MrLocal::register(peer.domain(), ptr, size, usage)?);
        Ok(())
    })
}

/// Deregisters memory.
///
/// Once it returns, no remote peer reads or writes the memory through this region any more.
///
/// # Parameters
/// * mr_ptr - in, out: the region; NULL afterwards, also on failure. One that is NULL already is left alone.
///
/// # Return value
/// 0, or a negative error code. The region is gone in either case.
///
/// # Errors
/// * RPMA_E_INVAL - mr_ptr is NULL
/// * RPMA_E_PROVIDER - the device refuses
///
/// # Threads
/// Thread safe for different regions.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_dereg(mr_ptr: *mut *mut MrLocal) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { take(mr_ptr) }?.map_or(Ok(()), |object| object.close()))
}

/// Writes the descriptor of a region, for the application to send to the other end.
///
/// Whoever has the descriptor and a connection to this peer may access the region as its usage says.
///
/// # Parameters
/// * mr - in: the region
/// * desc - out: room for as many bytes as rpma_mr_get_descriptor_size tells; any alignment
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
pub unsafe extern "C" fn rpma_mr_get_descriptor(mr: *const MrLocal, desc: *mut c_void) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let mr = given(mr)?;
        out(desc.cast::<[u8; descriptor::SIZE]>())?.set(mr.descriptor());
        Ok(())
    })
}

/// Tells the length of a region's descriptor.
///
/// # Parameters
/// * mr - in: the region
/// * desc_size - out: the length in bytes; 21
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
pub unsafe extern "C" fn rpma_mr_get_descriptor_size(mr: *const MrLocal, desc_size: *mut usize) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        given(mr)?;
        out(desc_size)?.set(descriptor::SIZE);
        Ok(())
    })
}

/// Tells the address of a region.
///
/// # Parameters
/// * mr - in: the region
/// * ptr - out: the first byte
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
pub unsafe extern "C" fn rpma_mr_get_ptr(mr: *const MrLocal, ptr: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let mr = given(mr)?;
        out(ptr)?.set(mr.addr());
        Ok(())
    })
}

/// Tells the size of a region.
///
/// # Parameters
/// * mr - in: the region
/// * size - out: the length in bytes
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
pub unsafe extern "C" fn rpma_mr_get_size(mr: *const MrLocal, size: *mut usize) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let mr = given(mr)?;
        out(size)?.set(mr.size());
        Ok(())
    })
}

/// Advises the device about how a part of a region will be used.
///
/// Useful for regions with on-demand paging: pages that are fetched before they are accessed make the first access
/// faster.
///
/// # Parameters
/// * mr - in: the region
/// * offset - in: the start of the part, in bytes from the start of the region
/// * len - in: the length of the part in bytes, at most UINT32_MAX
/// * advice - in: one of IB_UVERBS_ADVISE_MR_ADVICE_*
/// * flags - in: 0, or IB_UVERBS_ADVISE_MR_FLAG_FLUSH to wait until it is done
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - mr is NULL, len is too large, or the device finds the part or the advice invalid
/// * RPMA_E_NOSUPP - the device takes no advice
/// * RPMA_E_PROVIDER - the device refuses for another reason
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_advise(
    mr: *mut MrLocal,
    offset: usize,
    len: usize,
    advice: c_int,
    flags: u32,
) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { given(mr) }?.advise(offset, len, advice, flags))
}

/// Makes a remote region from a descriptor that came from the other end.
///
/// # Parameters
/// * desc - in: the descriptor; any alignment
/// * desc_size - in: its length in bytes, at least 21; what follows is ignored
/// * mr_ptr - out: the remote region, to be deleted with rpma_mr_remote_delete
///
/// # Return value
/// 0, or a negative error code with the output left as it was.
///
/// # Errors
/// * RPMA_E_INVAL - desc or mr_ptr is NULL, desc_size is too small, the descriptor declares no usage, or its region
///   would run past the end of the 64-bit address space
/// * RPMA_E_NOMEM - out of memory
///
/// # Threads
/// Thread safe.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_remote_from_descriptor(
    desc: *const c_void,
    desc_size: usize,
    mr_ptr: *mut *mut MrRemote,
) -> c_int {
    // SAFETY: the caller's promises. The descriptor is copied before it is looked at.
    status(|| unsafe {
        given(desc.cast::<u8>())?;
        let mr = out(mr_ptr)?;
        let mut copy = [0; descriptor::SIZE];
        let len = desc_size.min(descriptor::SIZE);
        desc.cast::<u8>().copy_to_nonoverlapping(copy.as_mut_ptr(), len);
        mr.give(MrRemote::from_descriptor(&copy[..len])?);
        Ok(())
    })
}

/// Tells the size of a remote region.
///
/// # Parameters
/// * mr - in: the remote region
/// * size - out: the length in bytes
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
pub unsafe extern "C" fn rpma_mr_remote_get_size(mr: *const MrRemote, size: *mut usize) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let mr = given(mr)?;
        out(size)?.set(mr.size());
        Ok(())
    })
}

/// Tells which types of flush a remote region can be the target of.
///
/// # Parameters
/// * mr - in: the remote region
/// * flush_type - out: 0, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, or both or-ed
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
pub unsafe extern "C" fn rpma_mr_remote_get_flush_type(mr: *const MrRemote, flush_type: *mut c_int) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe {
        let mr = given(mr)?;
        out(flush_type)?.set(mr.flush_type());
        Ok(())
    })
}

/// Deletes a remote region. The memory itself is not affected.
///
/// # Parameters
/// * mr_ptr - in, out: the remote region; NULL afterwards. One that is NULL already is left alone.
///
/// # Return value
/// 0, or a negative error code.
///
/// # Errors
/// * RPMA_E_INVAL - mr_ptr is NULL
///
/// # Threads
/// Thread safe for different regions.
///
/// # Safety
/// The pointers keep the promises of [`crate::capi`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpma_mr_remote_delete(mr_ptr: *mut *mut MrRemote) -> c_int {
    // SAFETY: the caller's promises.
    status(|| unsafe { take(mr_ptr) }.map(drop))
}
