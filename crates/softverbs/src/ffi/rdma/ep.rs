// SPDX-License-Identifier: BSD-3-Clause
//! Endpoints: an identifier that is bound or has a route, with a queue pair or with the attributes for those
//! of its connections.

use libc::c_int;
use rdma_sys::{
    ibv_pd, ibv_qp_init_attr, ibv_qp_type, rdma_addrinfo, rdma_cm_event, rdma_cm_event_type, rdma_cm_id,
};
use std::ptr::{addr_of, addr_of_mut, null_mut};

use super::addrinfo::RAI_PASSIVE;
use super::event::take_event;
use super::handle::IdObject;
use super::{
    finish, rdma_bind_addr, rdma_create_id, rdma_create_qp, rdma_destroy_id, rdma_destroy_qp,
    rdma_destroy_srq, rdma_resolve_addr, rdma_resolve_route, sync,
};
use crate::ffi::soft0;
use crate::ffi::unsupported;
use crate::lock;
use crate::sys::{self, Errno};

/// For how long an active endpoint tries to establish its TCP connection, as librdmacm resolves for it.
const TIMEOUT_MS: c_int = 2000;

/// Creates a synchronous identifier from a result of [`super::rdma_getaddrinfo`].
///
/// An active one is resolved and, with `attr`, has a queue pair as from [`rdma_create_qp`]. A passive one
/// (RAI_PASSIVE in `ai_flags`) is bound, and `attr` and `pd` are kept for the identifiers of
/// [`rdma_get_request`]. Without `attr`, `pd` is ignored. The type of the queue pair is `ai_qp_type`,
/// whatever `attr` says. `ai_route` and `ai_connect` are data of InfiniBand and not used.
///
/// EOPNOTSUPP: `ai_qp_type` is not IBV_QPT_RC, or the port space is not RDMA_PS_TCP. EINVAL: an address is
/// missing, or the protection domain belongs to another device. Else as for rdma_bind_addr, rdma_resolve_addr
/// and rdma_create_qp. After an error `id` is as before.
///
/// # Safety
///
/// As for rdma_create_ep(3).
pub unsafe fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    if id.is_null() || res.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `res` points to an rdma_addrinfo (rdma_create_ep(3)), which holds only integers and addresses;
    // it is copied.
    let res = unsafe { res.read() };
    if res.ai_qp_type != ibv_qp_type::IBV_QPT_RC as c_int {
        return finish(Err(unsupported("endpoints with queue pairs other than IBV_QPT_RC")));
    }
    let mut new = null_mut();
    // SAFETY: `new` outlives the call.
    if unsafe { rdma_create_id(null_mut(), &mut new, null_mut(), res.ai_port_space as u32) } != 0 {
        return -1;
    }
    // SAFETY: `new` has just been created; `res`, `pd` and `attr` are as for rdma_create_ep(3), and `id`
    // points to a pointer.
    unsafe {
        let result = set_up(new, &res, pd, attr);
        match result {
            Ok(()) => id.write(new),
            Err(_) => rdma_destroy_ep(new),
        }
        finish(result)
    }
}

/// 0, or the errno that a function of rdma_cm has set.
fn errno_of(ret: c_int) -> Result<(), Errno> {
    if ret == 0 { Ok(()) } else { Err(sys::errno()) }
}

/// # Safety
///
/// As for rdma_create_ep(3); `id` must have just been created.
unsafe fn set_up(
    id: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    let src = if res.ai_src_len == 0 { null_mut() } else { res.ai_src_addr };
    let dst = if res.ai_dst_len == 0 { null_mut() } else { res.ai_dst_addr };
    // SAFETY: `id` has just been created, the addresses are NULL or as long as `res` says, and `pd` and
    // `attr` are as for rdma_create_ep(3).
    unsafe {
        if res.ai_flags & RAI_PASSIVE != 0 {
            errno_of(rdma_bind_addr(id, src))?;
            if !attr.is_null() {
                let mut template = attr.read();
                template.qp_type = ibv_qp_type::IBV_QPT_RC;
                if !pd.is_null() {
                    if addr_of!((*pd).context).read() != soft0::context() {
                        return Err(libc::EINVAL);
                    }
                    addr_of_mut!((*id).pd).write(pd);
                }
                *lock(&IdObject::own(id).template) = Some(template);
            }
            return Ok(());
        }
        errno_of(rdma_resolve_addr(id, src, dst, TIMEOUT_MS))?;
        errno_of(rdma_resolve_route(id, TIMEOUT_MS))?;
        if !attr.is_null() {
            // Written only if there is a queue pair.
            let mut wanted = attr.read();
            wanted.qp_type = ibv_qp_type::IBV_QPT_RC;
            errno_of(rdma_create_qp(id, pd, &mut wanted))?;
            attr.write(wanted);
        }
    }
    Ok(())
}

/// Destroys an identifier with its queue pair, its shared receive queue and the queues that were made for
/// them.
///
/// # Safety
///
/// As for rdma_destroy_ep(3).
pub unsafe fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed, and none of its objects is used
    // any more (rdma_destroy_ep(3)).
    unsafe {
        rdma_destroy_qp(id);
        rdma_destroy_srq(id);
        rdma_destroy_id(id);
    }
}

/// Waits for the next connect request of a listening synchronous identifier. The new identifier is
/// synchronous as well, its field `event` has the request with its private data, and it has a queue pair if
/// [`rdma_create_ep`] was given attributes; if that cannot be created, the request is rejected and the error
/// is that of [`rdma_create_qp`].
///
/// EINVAL: the identifier does not listen, or has a channel of the program. EAGAIN or EINTR, as a read of the
/// descriptor fails.
///
/// # Safety
///
/// As for rdma_get_request(3).
pub unsafe fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
    if listen.is_null() || id.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `listen` is an identifier of softverbs that has not been destroyed, and `id` points to a
    // pointer (rdma_get_request(3)).
    finish(unsafe { request(listen) }.map(|new| unsafe { id.write(new) }))
}

/// # Safety
///
/// As for rdma_get_request(3).
unsafe fn request(listen: *mut rdma_cm_id) -> Result<*mut rdma_cm_id, Errno> {
    // SAFETY: `listen` has not been destroyed, nor has its channel. The event has just been taken, and so has
    // the identifier in it.
    unsafe {
        let own = IdObject::own(listen);
        if !sync::waits(listen) || !own.cm.is_listening() {
            return Err(libc::EINVAL);
        }
        sync::forget_event(listen);
        let event: *mut rdma_cm_event = take_event(addr_of!((*listen).channel).read())?;
        if addr_of!((*event).event).read() != rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            // Left from before it was synchronous.
            sync::keep_event(listen, event);
            return Err(libc::EINVAL);
        }
        let new = addr_of!((*event).id).read();
        sync::keep_event(new, event);
        let template = *lock(&own.template);
        if let Some(mut attr) = template {
            let ret = rdma_create_qp(new, addr_of!((*listen).pd).read(), &mut attr);
            if let Err(e) = errno_of(ret) {
                rdma_destroy_ep(new);
                return Err(e);
            }
        }
        Ok(new)
    }
}
