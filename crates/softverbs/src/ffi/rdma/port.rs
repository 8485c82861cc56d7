// SPDX-License-Identifier: BSD-3-Clause
//! The local and remote port of an identifier (rdma_get_src_port(3), rdma_get_dst_port(3)), from the
//! addresses in its C structure.

use libc::sockaddr_storage;
use rdma_sys::rdma_cm_id;
use std::ptr::addr_of;

use crate::cm::addr::read;

/// The port of an address, in network byte order; 0 if the family is unset.
///
/// # Safety
///
/// `storage` must point to a sockaddr_storage.
unsafe fn port_of(storage: *const sockaddr_storage) -> u16 {
    // SAFETY: the caller guarantees a sockaddr_storage, which is as long as an address of any family.
    unsafe { read(storage.cast()) }.map_or(0, |addr| addr.port().to_be())
}

/// Returns the local port of an identifier in network byte order; 0 if it is neither bound nor resolved.
///
/// # Safety
///
/// As for rdma_get_src_port(3).
pub unsafe fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: rdma_get_src_port(3) requires that `id` is an identifier that has not been destroyed; only the
    // address of a field is computed here.
    unsafe { port_of(addr_of!((*id).route.addr.__bindgen_anon_1.src_storage)) }
}

/// Returns the remote port of an identifier in network byte order; 0 if it has no remote address.
///
/// # Safety
///
/// As for rdma_get_dst_port(3).
pub unsafe fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: rdma_get_dst_port(3) requires that `id` is an identifier that has not been destroyed; only the
    // address of a field is computed here.
    unsafe { port_of(addr_of!((*id).route.addr.__bindgen_anon_2.dst_storage)) }
}
