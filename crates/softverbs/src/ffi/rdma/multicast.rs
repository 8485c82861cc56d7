// SPDX-License-Identifier: BSD-3-Clause
//! Multicast groups of identifiers for datagrams (RDMA_PS_UDP), over RoCE: the kernel of the host joins them
//! by IGMP or MLD. iWARP is connection-oriented only (RFC 5040), so there the functions fail with EOPNOTSUPP.

use libc::{c_int, c_void, sockaddr};
use rdma_sys::rdma_cm_event_type::{RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN};
use rdma_sys::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, RDMA_CM_JOIN_MC_ATTR_RESERVED,
    RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_RESERVED, ibv_gid, rdma_cm_id, rdma_cm_join_mc_attr_ex,
};
use std::net::SocketAddr;
use std::ptr::addr_of;

use super::finish;
use super::handle::IdObject;
use super::id::report;
use crate::cm::addr;
use crate::cm::event::{Datagrams, Event};
use crate::ffi::verbs;
use crate::sys::Errno;
use transport::roce::wire::cm::UDP_QKEY;
use transport::roce::wire::{MULTICAST_QP, gid};

/// Joins the multicast group `addr` on the interface of the local address of the identifier, which must be
/// bound or resolved; the port of `addr` is ignored. RDMA_CM_EVENT_MULTICAST_JOIN is queued, with the context
/// in `param.ud.private_data`, the queue pair number ffffff, RDMA_UDP_QKEY, and the attributes of an address
/// handle for the group. The queue pair of the identifier, if it has one, is attached to the group; an error
/// is reported as RDMA_CM_EVENT_MULTICAST_ERROR.
///
/// Returns 0, or -1 and errno. EOPNOTSUPP: an iWARP device. EINVAL: an identifier of another port space or
/// without a local address, or `addr` is NULL or not a multicast address of the same family. ENODEV: no
/// interface has the local address. ENETUNREACH: there is no route to the IPv6 group, as over `lo` unless
/// root has added one; a message of level warn says so. ENOBUFS: too many groups
/// (net.ipv4.igmp_max_memberships). ENOMEM: too many
/// IPv6 groups (net.core.optmem_max). Errors of ibv_create_qp(3) that concern UDP port 4791.
///
/// # Safety
///
/// As for rdma_join_multicast(3).
pub unsafe fn rdma_join_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut c_void) -> c_int {
    // SAFETY: the requirements of `join` are those of rdma_join_multicast(3), which the caller meets.
    finish(unsafe { join(id, addr, true, context) })
}

/// As [`rdma_join_multicast`], with the address and the flags in `attr`: with
/// RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER nothing is received from the group, and the host does not join it.
///
/// Returns 0, or -1 and errno. ENOTSUP: unknown attributes. EINVAL: no address, unknown flags. Errors of
/// [`rdma_join_multicast`].
///
/// # Safety
///
/// As for rdma_join_multicast_ex(3).
pub unsafe fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `attr` is not NULL, and rdma_join_multicast_ex(3) requires that it points to the attributes,
    // which are integers and an address.
    let rdma_cm_join_mc_attr_ex { comp_mask, join_flags, addr } = unsafe { attr.read() };
    if comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED {
        return finish(Err(libc::ENOTSUP));
    }
    let has_flags = comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS != 0;
    let flags = if has_flags { join_flags } else { RDMA_MC_JOIN_FLAG_FULLMEMBER };
    if comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS == 0 || flags >= RDMA_MC_JOIN_FLAG_RESERVED {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: as for `rdma_join_multicast`; the address is that of the attributes.
    finish(unsafe { join(id, addr, flags == RDMA_MC_JOIN_FLAG_FULLMEMBER, context) })
}

/// The address of a group. EOPNOTSUPP: an iWARP device. EINVAL as for [`addr::read`].
///
/// # Safety
///
/// `group` must be NULL or point to a socket address.
unsafe fn read(group: *mut sockaddr) -> Result<SocketAddr, Errno> {
    verbs::require_multicast()?;
    // SAFETY: the caller guarantees that `group` is NULL or points to a socket address.
    unsafe { addr::read(group) }
}

/// # Safety
///
/// As for rdma_join_multicast(3).
unsafe fn join(
    id: *mut rdma_cm_id,
    group: *mut sockaddr,
    receives: bool,
    context: *mut c_void,
) -> Result<(), Errno> {
    // SAFETY: rdma_join_multicast(3) requires that `group` points to a socket address; NULL is checked. `id`
    // is an identifier of softverbs that is not destroyed during the call, and its queue pair is NULL or one
    // of softverbs that has not been destroyed.
    unsafe {
        let group = read(group)?;
        let path = IdObject::own(id).cm.join(&group, receives)?;
        let qp = addr_of!((*id).qp).read();
        let mgid = ibv_gid { raw: gid(group.ip()) };
        let refused = if receives && !qp.is_null() { verbs::ibv_attach_mcast(qp, &mgid, 0) } else { 0 };
        if refused != 0 {
            // It was joined above.
            let _ = IdObject::own(id).cm.leave(&group);
        }
        let kind = if refused == 0 { RDMA_CM_EVENT_MULTICAST_JOIN } else { RDMA_CM_EVENT_MULTICAST_ERROR };
        let mut event = Event::new(0, kind, -refused);
        event.qp_num = MULTICAST_QP;
        let context = context as usize;
        event.datagrams = Some(Datagrams { qkey: UDP_QKEY, path: Some(path), context });
        report(id, event);
    }
    Ok(())
}

/// Leaves a multicast group, and detaches the queue pair of the identifier from it. Returns 0, or -1 and
/// errno. EADDRNOTAVAIL: the identifier has not joined the group. EOPNOTSUPP: an iWARP device. EINVAL: `addr`
/// is NULL or neither IPv4 nor IPv6.
///
/// # Safety
///
/// As for rdma_leave_multicast(3).
pub unsafe fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let result = (|| {
        // SAFETY: rdma_leave_multicast(3) requires that `addr` points to a socket address; NULL is checked.
        // `id` is an identifier of softverbs that is not destroyed during the call, and its queue pair is
        // NULL or one of softverbs that has not been destroyed.
        unsafe {
            let group = read(addr)?;
            let received = IdObject::own(id).cm.leave(&group)?;
            let qp = addr_of!((*id).qp).read();
            if received && !qp.is_null() {
                // It fails if the queue pair was not attached.
                verbs::ibv_detach_mcast(qp, &ibv_gid { raw: gid(group.ip()) }, 0);
            }
        }
        Ok(())
    })();
    finish(result)
}
