// SPDX-License-Identifier: BSD-3-Clause
//! Identifiers without a queue pair: their options and addresses.

use libc::{c_int, c_void};
use rdma_sys::*;
use softverbs::rdma as cm;
use std::ptr::null_mut;

pub(crate) const ID: c_int = 0;
pub(crate) const IB: c_int = 1;
pub(crate) const TOS: c_int = 0;
pub(crate) const REUSEADDR: c_int = 1;
pub(crate) const AFONLY: c_int = 2;
pub(crate) const ACK_TIMEOUT: c_int = 3;
pub(crate) const IB_PATH: c_int = 1;

pub(crate) type Id = *mut rdma_cm_id;

pub(crate) fn new_id() -> Id {
    let mut id = null_mut();
    // SAFETY: the pointer outlives the call.
    let ret = unsafe { cm::rdma_create_id(null_mut(), &mut id, null_mut(), rdma_port_space::RDMA_PS_TCP) };
    assert_eq!(ret, 0);
    id
}

pub(crate) fn destroy(id: Id) {
    // SAFETY: each identifier is destroyed exactly once.
    unsafe { cm::rdma_destroy_ep(id) };
}

/// Sets an option to the bytes of a value.
pub(crate) fn set<T>(id: Id, level: c_int, name: c_int, mut value: T) -> c_int {
    // SAFETY: the identifier is not destroyed yet, and the value outlives the call.
    unsafe { cm::rdma_set_option(id, level, name, (&raw mut value).cast::<c_void>(), size_of::<T>()) }
}

pub(crate) fn address(host: &str, port: u16) -> libc::sockaddr_storage {
    // SAFETY: all-zero is a valid sockaddr_storage, which is large enough for both families.
    unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        match host.parse().unwrap() {
            std::net::IpAddr::V4(v4) => {
                let sin = (&raw mut storage).cast::<libc::sockaddr_in>();
                (*sin).sin_family = libc::AF_INET as u16;
                (*sin).sin_port = port.to_be();
                (*sin).sin_addr.s_addr = u32::from(v4).to_be();
            }
            std::net::IpAddr::V6(v6) => {
                let sin6 = (&raw mut storage).cast::<libc::sockaddr_in6>();
                (*sin6).sin6_family = libc::AF_INET6 as u16;
                (*sin6).sin6_port = port.to_be();
                (*sin6).sin6_addr.s6_addr = v6.octets();
            }
        }
        storage
    }
}

pub(crate) fn bind(id: Id, host: &str) {
    let mut local = address(host, 0);
    // SAFETY: the identifier is not destroyed yet, and the address outlives the call.
    assert_eq!(unsafe { cm::rdma_bind_addr(id, (&raw mut local).cast()) }, 0);
}

pub(crate) fn src_port(id: Id) -> u16 {
    // SAFETY: the identifier is not destroyed yet.
    u16::from_be(unsafe { cm::rdma_get_src_port(id) })
}
