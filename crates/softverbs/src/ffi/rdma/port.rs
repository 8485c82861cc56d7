// SPDX-License-Identifier: BSD-3-Clause
//! The ports of an identifier.

use libc::sockaddr_storage;
use rdma_sys::rdma_cm_id;
use std::ptr::addr_of;

use crate::cm::addr::read;

/// The port of an address, in network byte order; 0 if there is no address.
///
/// # Safety
///
/// `storage` must be readable.
unsafe fn port_of(storage: *const sockaddr_storage) -> u16 {
    // SAFETY: a sockaddr_storage is as long as an address of any family.
    unsafe { read(storage.cast()) }.map_or(0, |addr| addr.port().to_be())
}

/// The local port of an identifier, in network byte order; 0 before it has one.
///
/// # Safety
///
/// As for rdma_get_src_port(3).
pub unsafe fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: `id` is an identifier that has not been destroyed (rdma_get_src_port(3)).
    unsafe { port_of(addr_of!((*id).route.addr.__bindgen_anon_1.src_storage)) }
}

/// The port of the peer of an identifier, in network byte order; 0 before it has one.
///
/// # Safety
///
/// As for rdma_get_dst_port(3).
pub unsafe fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: `id` is an identifier that has not been destroyed (rdma_get_dst_port(3)).
    unsafe { port_of(addr_of!((*id).route.addr.__bindgen_anon_2.dst_storage)) }
}
