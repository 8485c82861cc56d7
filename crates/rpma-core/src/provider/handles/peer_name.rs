// SPDX-License-Identifier: BSD-3-Clause
//! The remote peer of an identifier, in messages.

use std::ffi::c_int;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use libc::sockaddr;
use rdma_sys::rdma_cm_id;
use rpma_log::Subject;

/// The remote peer of an identifier, as a prefix for messages: its address and a colon, or nothing if it is
/// not known.
#[derive(Clone, Copy, Debug)]
pub struct PeerName(pub Option<SocketAddr>);

impl PeerName {
    /// # Safety
    /// `id` must be a live identifier.
    pub unsafe fn of(id: *mut rdma_cm_id) -> Self {
        // SAFETY: the caller guarantees a live identifier, whose route has room for an address of either
        // family.
        Self(unsafe { address((&raw const (*id).route.addr.__bindgen_anon_2).cast()) })
    }
}

/// The local address of an identifier, if it has one.
///
/// # Safety
/// `id` must be a live identifier.
pub(super) unsafe fn local(id: *mut rdma_cm_id) -> Option<SocketAddr> {
    // SAFETY: the caller guarantees a live identifier, whose route has room for an address of either family.
    unsafe { address((&raw const (*id).route.addr.__bindgen_anon_1).cast()) }
}

/// # Safety
/// `at` must be readable for an address of the family that it states.
unsafe fn address(at: *const sockaddr) -> Option<SocketAddr> {
    // SAFETY: only the members of the family that the address states are read, which the caller guarantees to
    // be readable.
    unsafe {
        match c_int::from((&raw const (*at).sa_family).read()) {
            libc::AF_INET => {
                let at = at.cast::<libc::sockaddr_in>().read();
                let addr = u32::from_be(at.sin_addr.s_addr).to_be_bytes();
                Some(SocketAddr::new(IpAddr::from(addr), u16::from_be(at.sin_port)))
            }
            libc::AF_INET6 => {
                let at = at.cast::<libc::sockaddr_in6>().read();
                Some(SocketAddr::new(IpAddr::from(at.sin6_addr.s6_addr), u16::from_be(at.sin6_port)))
            }
            _ => None,
        }
    }
}

impl PeerName {
    /// The subject of a message about the peer.
    pub fn subject(&self) -> Subject<'_> {
        let peer: Option<&dyn fmt::Display> = match &self.0 {
            Some(addr) => Some(addr),
            None => None,
        };
        Subject { peer, ..Subject::default() }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |addr| write!(f, "{addr}: "))
    }
}
