// SPDX-License-Identifier: BSD-3-Clause
//! Multicast groups of queue pairs: ibv_attach_mcast(3) and ibv_detach_mcast(3). The host joins the group by
//! rdma_join_multicast(3).

use libc::c_int;
use rdma_sys::{ibv_gid, ibv_qp};
use std::net::{IpAddr, Ipv6Addr};

use super::QpObject;
use super::transport;
use crate::ffi::unsupported;
use crate::port::Port;
use crate::qp::Kind;
use crate::sys::Errno;

/// Delivers the datagrams for a multicast group to a queue pair, too: those that the host receives because a
/// program of this user has joined the group. The LID is not used. Has no effect if the queue pair is
/// attached already.
///
/// Returns 0 or an errno. EOPNOTSUPP: an iWARP device. EINVAL: `qp` or `gid` is NULL, a queue pair of another
/// type than IBV_QPT_UD, or a GID that is not a multicast address. ENOMEM: more groups of the process, or
/// queue pairs of the group, than ibv_query_device(3) returns. EADDRINUSE, EAGAIN, EPERM: UDP port 4791
/// cannot be bound.
///
/// # Safety
///
/// As for ibv_attach_mcast(3).
pub unsafe fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: the requirements of `read` are those of ibv_attach_mcast(3), which the caller meets.
    let attached = unsafe { read(qp, gid) }.and_then(|(num, group)| Port::get()?.attach_to_group(num, group));
    attached.err().unwrap_or(0)
}

/// Ends what [`ibv_attach_mcast`] has begun. Returns 0 or an errno, as [`ibv_attach_mcast`]; EINVAL also if
/// the queue pair is not attached.
///
/// # Safety
///
/// As for ibv_detach_mcast(3).
pub unsafe fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: the requirements of `read` are those of ibv_detach_mcast(3), which the caller meets.
    let detached = unsafe { read(qp, gid) }.and_then(|(num, group)| {
        if Port::get()?.detach_from_group(num, group) { Ok(()) } else { Err(libc::EINVAL) }
    });
    detached.err().unwrap_or(0)
}

/// EOPNOTSUPP: the device has no datagrams.
pub(crate) fn require_multicast() -> Result<(), Errno> {
    match transport().has_type(Kind::Ud) {
        true => Ok(()),
        false => Err(unsupported("multicast, which iWARP does not have")),
    }
}

/// The number of the queue pair, and the address of the group.
///
/// # Safety
///
/// `qp` must be NULL or a queue pair of softverbs that has not been destroyed, and `gid` NULL or readable.
unsafe fn read(qp: *mut ibv_qp, gid: *const ibv_gid) -> Result<(u32, IpAddr), Errno> {
    require_multicast()?;
    if qp.is_null() || gid.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: neither is NULL; the caller guarantees the rest. All bytes of a GID are initialised.
    let (qp, gid) = unsafe { (QpObject::own(qp).qp.clone(), gid.read().raw) };
    let group = Ipv6Addr::from(gid).to_canonical();
    if qp.kind == Kind::Ud && group.is_multicast() { Ok((qp.num, group)) } else { Err(libc::EINVAL) }
}
