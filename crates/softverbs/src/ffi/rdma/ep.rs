// SPDX-License-Identifier: BSD-3-Clause
//! Endpoints (rdma_create_ep(3)): a synchronous identifier created together with its addresses and its queue
//! pair.
//!
//! An active endpoint is resolved and has its queue pair. A passive one is bound, and keeps the attributes of
//! the queue pairs that [`rdma_get_request`] creates for its connections.

use libc::c_int;
use rdma_sys::ibv_qp_type::IBV_QPT_UC;
use rdma_sys::rdma_port_space::RDMA_PS_IB;
use rdma_sys::{ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_event, rdma_cm_event_type, rdma_cm_id};
use std::ptr::{addr_of, addr_of_mut, null_mut};

use super::addrinfo::PASSIVE;
use super::event::take_event;
use super::handle::{IdObject, qp_type};
use super::id::create_id_of;
use super::{
    finish, rdma_bind_addr, rdma_create_qp, rdma_destroy_id, rdma_destroy_qp, rdma_destroy_srq,
    rdma_resolve_addr, rdma_resolve_route, sync,
};
use crate::ffi::soft0;
use crate::ffi::unsupported;
use crate::lock;
use crate::sys::{self, Errno};

/// Time limit for establishing the TCP connection of an active endpoint: the resolve timeout of librdmacm.
const TIMEOUT_MS: c_int = 2000;

/// Creates a synchronous identifier from the first result of [`super::rdma_getaddrinfo`], `res`, and stores
/// it in `id`. The caller destroys it with [`rdma_destroy_ep`].
///
/// An active one is resolved and, unless `attr` is NULL, gets a queue pair as from [`rdma_create_qp`]. A
/// passive one (RAI_PASSIVE in `ai_flags`) is bound, and `attr` and `pd` are kept for the identifiers of
/// [`rdma_get_request`]; `pd` must then stay allocated. If `attr` is NULL, `pd` is ignored. The type of the
/// queue pair is `ai_qp_type`, whatever `attr` says. `ai_route` and `ai_connect` hold InfiniBand data and are
/// not used.
///
/// Returns 0, or -1 and errno. EOPNOTSUPP: `ai_qp_type` is not one of the port space (IBV_QPT_UD of
/// RDMA_PS_UDP, IBV_QPT_RC or IBV_QPT_UC of RDMA_PS_IB, otherwise IBV_QPT_RC), or as from
/// [`rdma_create_id`](super::rdma_create_id). EINVAL: `id` or `res` is NULL, an
/// address is missing, or the protection domain belongs to another device. Other errors of rdma_bind_addr(3),
/// rdma_resolve_addr(3) and rdma_create_qp(3). After an error `id` is unchanged.
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
    // SAFETY: `res` is not NULL, and rdma_create_ep(3) requires that it points to an rdma_addrinfo; it holds
    // only integers and addresses, and is copied.
    let res = unsafe { res.read() };
    let (ps, wanted) = (res.ai_port_space as u32, res.ai_qp_type as u32);
    // Another port space than RDMA_PS_UDP has a protocol that connects.
    if wanted != qp_type(ps) && (ps, wanted) != (RDMA_PS_IB, IBV_QPT_UC) {
        return finish(Err(unsupported(
            "an endpoint with a queue pair type that its port space does not have: IBV_QPT_UD in RDMA_PS_UDP, \
             IBV_QPT_RC or IBV_QPT_UC in RDMA_PS_IB, IBV_QPT_RC in others",
        )));
    }
    let mut new = null_mut();
    // SAFETY: the channel is NULL, and `new` is a local variable that is valid for writes.
    if unsafe { create_id_of(null_mut(), &mut new, null_mut(), ps, wanted) } != 0 {
        return -1;
    }
    // SAFETY: `new` has just been created, and no other thread has it. The caller meets the requirements of
    // rdma_create_ep(3) for `res`, `pd` and `attr`, and `id` is valid for writes.
    unsafe {
        let result = set_up(new, &res, pd, attr);
        match result {
            Ok(()) => id.write(new),
            Err(_) => rdma_destroy_ep(new),
        }
        finish(result)
    }
}

/// Converts the result of an rdma_cm function: success, or the errno that it has set.
fn errno_of(ret: c_int) -> Result<(), Errno> {
    if ret == 0 { Ok(()) } else { Err(sys::errno()) }
}

/// Binds or resolves the identifier of an endpoint, and creates or stores what `attr` describes.
///
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
    // SAFETY: the caller guarantees that `id` has just been created. rdma_create_ep(3) requires that the
    // addresses are as long as `res` says (NULL if that is 0), and that `pd` and `attr` are NULL or valid.
    unsafe {
        if res.ai_flags & PASSIVE != 0 {
            errno_of(rdma_bind_addr(id, src))?;
            if !attr.is_null() {
                let mut template = attr.read();
                template.qp_type = addr_of!((*id).qp_type).read();
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
            // `attr` is written only if the queue pair was created.
            let mut wanted = attr.read();
            wanted.qp_type = addr_of!((*id).qp_type).read();
            errno_of(rdma_create_qp(id, pd, &mut wanted))?;
            attr.write(wanted);
        }
    }
    Ok(())
}

/// Destroys an identifier with its queue pair, its shared receive queue, and the completion queues that were
/// created for them.
///
/// # Safety
///
/// As for rdma_destroy_ep(3).
pub unsafe fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: rdma_destroy_ep(3) requires that `id` is an identifier of softverbs that has not been
    // destroyed, and that neither it nor its objects are used afterwards.
    unsafe {
        rdma_destroy_qp(id);
        rdma_destroy_srq(id);
        rdma_destroy_id(id);
    }
}

/// Waits for the next connect request of a listening synchronous identifier, and stores a new identifier for
/// it in `id`. The caller destroys it with [`rdma_destroy_ep`]. The new identifier is synchronous, too; its
/// field `event` has the request with its private data, and it has a queue pair if the listener was created
/// with attributes ([`rdma_create_ep`]). If that queue pair cannot be created, the request is rejected, and
/// the error is that of [`rdma_create_qp`].
///
/// Returns 0, or -1 and errno. EINVAL: a NULL pointer, or an identifier that does not listen or is not
/// synchronous. EAGAIN: the program has set the descriptor to O_NONBLOCK, and there is no request. EINTR: a
/// signal handler has run.
///
/// # Safety
///
/// As for rdma_get_request(3).
pub unsafe fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int {
    if listen.is_null() || id.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: neither is NULL, and rdma_get_request(3) requires that `listen` is an identifier of softverbs
    // that has not been destroyed, and that `id` is valid for writes of a pointer.
    finish(unsafe { request(listen) }.map(|new| unsafe { id.write(new) }))
}

/// Waits for a connect request; see [`rdma_get_request`].
///
/// # Safety
///
/// As for rdma_get_request(3).
unsafe fn request(listen: *mut rdma_cm_id) -> Result<*mut rdma_cm_id, Errno> {
    // SAFETY: rdma_get_request(3) requires that `listen` is not destroyed during the call; its channel lives
    // as long. The event and the identifier in it have just been created, and no other thread has them.
    unsafe {
        let own = IdObject::own(listen);
        if !sync::waits(listen) || !own.cm.is_listening() {
            return Err(libc::EINVAL);
        }
        sync::forget_event(listen);
        let event: *mut rdma_cm_event = take_event(addr_of!((*listen).channel).read())?;
        if addr_of!((*event).event).read() != rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            // An event from before the identifier became synchronous.
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
