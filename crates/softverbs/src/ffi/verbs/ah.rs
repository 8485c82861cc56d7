// SPDX-License-Identifier: BSD-3-Clause
//! Address handles. Datagrams need them, which iWARP does not have.

use libc::{c_int, c_void};
use rdma_sys::{ibv_ah, ibv_ah_attr, ibv_context, ibv_grh, ibv_pd, ibv_wc};

use super::{PORT, null_with, or_null, transport};
use crate::sys::{Errno, set_errno};

/// Creates an address handle for the peer with a GID; also for a GID of this host.
///
/// EOPNOTSUPP on an iWARP device. EINVAL: no global route, an index without a GID, or a GID that is no
/// address; a message of level warn says which.
///
/// # Safety
///
/// As for ibv_create_ah(3).
pub unsafe fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: `pd` was returned by ibv_alloc_pd and has not been deallocated; `attr` points to an
    // ibv_ah_attr (ibv_create_ah(3)), which holds only integers and is copied.
    or_null(unsafe { transport().create_ah(pd, &attr.read()) })
}

/// Destroys an address handle. EINVAL on an iWARP device, which has none.
///
/// # Safety
///
/// As for ibv_destroy_ah(3).
pub unsafe fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: `ah` was returned by ibv_create_ah and is not used afterwards (ibv_destroy_ah(3)).
    unsafe { transport().destroy_ah(ah) }
}

/// Creates an address handle for the sender of a datagram. EOPNOTSUPP and EINVAL as for [`ibv_create_ah`]
/// and [`ibv_init_ah_from_wc`].
///
/// # Safety
///
/// As for ibv_create_ah_from_wc(3).
pub unsafe fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut c_void,
    grh: *mut c_void,
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: as required of the caller; `pd` has not been deallocated, and its `context` never changes.
    match unsafe { sender(port, wc, grh) } {
        // SAFETY: `pd` was returned by ibv_alloc_pd and has not been deallocated (ibv_create_ah_from_wc(3)).
        Ok(attr) => or_null(unsafe { transport().create_ah(pd, &attr) }),
        Err(e) => null_with(e),
    }
}

/// Stores the attributes of an address handle for the sender of a datagram: 0, or -1 and errno. EOPNOTSUPP on
/// an iWARP device. EINVAL: there is no such port, the completion is not that of a datagram, or the address
/// that it was sent to is no longer one of this host.
///
/// # Safety
///
/// As for ibv_init_ah_from_wc(3).
pub unsafe fn ibv_init_ah_from_wc(
    _context: *mut ibv_context,
    port: u8,
    wc: *mut c_void,
    grh: *mut c_void,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: as required of the caller.
    match unsafe { sender(port, wc, grh) } {
        Ok(found) => {
            // SAFETY: `attr` is valid for writes (ibv_init_ah_from_wc(3)).
            unsafe { attr.write(found) };
            0
        }
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}

/// # Safety
///
/// `wc` must point to a work completion, and `grh` to the first 40 bytes of the receive, if the completion
/// has IBV_WC_GRH.
unsafe fn sender(port: u8, wc: *mut c_void, grh: *mut c_void) -> Result<ibv_ah_attr, Errno> {
    if port != PORT {
        return Err(libc::EINVAL);
    }
    // SAFETY: all-zero is a valid ibv_grh.
    let mut header: ibv_grh = unsafe { std::mem::zeroed() };
    // SAFETY: `wc` points to a work completion, which is copied. With IBV_WC_GRH `grh` points to a GRH, in a
    // buffer of the program that need not be aligned.
    let wc = unsafe {
        let wc = wc.cast::<ibv_wc>().read();
        if wc.wc_flags & 1 != 0 {
            header = grh.cast::<ibv_grh>().read_unaligned();
        }
        wc
    };
    transport().sender(&wc, &header)
}

/// Stores the hardware address that packets to the destination of `attr` are sent to, and that there is no
/// VLAN: 0, or an errno value. EOPNOTSUPP on an iWARP device.
///
/// # Safety
///
/// `attr` must point to an `ibv_ah_attr`, `mac` be valid for writes of 6 bytes and `vid` for a number, or be
/// NULL.
pub unsafe fn ibv_resolve_eth_l2_from_gid(
    _context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    mac: *mut u8,
    vid: *mut u16,
) -> c_int {
    /// As libibverbs has it without a VLAN.
    const NO_VLAN: u16 = 0xffff;
    // SAFETY: `attr` points to an ibv_ah_attr, which holds only integers; it is copied.
    let attr = unsafe { attr.read() };
    match transport().resolve(&attr) {
        Ok(found) => {
            // SAFETY: `mac` is valid for writes of 6 bytes, and `vid` for a number unless it is NULL.
            unsafe {
                mac.cast::<[u8; 6]>().write(found);
                if !vid.is_null() {
                    vid.write(NO_VLAN);
                }
            }
            0
        }
        Err(e) => e,
    }
}
