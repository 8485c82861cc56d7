// SPDX-License-Identifier: BSD-3-Clause
//! Identifiers: their life, their addresses.

use libc::{c_int, c_void, sockaddr};
use rdma_sys::{rdma_cm_event_type, rdma_cm_id, rdma_event_channel, rdma_port_space};
use std::net::SocketAddr;
use std::ptr::{addr_of, addr_of_mut};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::channel::queue_of;
use super::finish;
use super::pd::default_pd;
use super::queues::Made;
use crate::cm::addr;
use crate::cm::event::Event;
use crate::cm::id::{Channel, Id, Phase};
use crate::cm::incoming::Request;
use crate::ffi::context;
use crate::ffi::object::Object;
use crate::socket::Socket;
use crate::sys;

/// What belongs to the C structure of an identifier.
pub(super) struct IdOwn {
    pub(super) cm: Arc<Id>,
    pub(super) made: Mutex<Made>,
}

pub(super) type IdObject = Object<rdma_cm_id, IdOwn>;

/// Allocates the C structure of an identifier.
fn create_object(c: rdma_cm_id, cm: Arc<Id>) -> *mut rdma_cm_id {
    let id = IdObject::create(c, IdOwn { cm: cm.clone(), made: Mutex::default() });
    cm.set_handle(id as usize);
    id
}

fn blank_id(channel: *mut rdma_event_channel, context: *mut c_void, ps: rdma_port_space::Type) -> rdma_cm_id {
    // SAFETY: all-zero is a valid rdma_cm_id: no device and no addresses.
    let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
    c.channel = channel;
    c.context = context;
    c.ps = ps;
    c.qp_type = rdma_sys::ibv_qp_type::IBV_QPT_RC;
    c
}

pub(super) fn new_requested_id(
    channel: *mut rdma_event_channel,
    queue: Channel,
    context: *mut c_void,
    request: Request,
) -> *mut rdma_cm_id {
    let mut c = blank_id(channel, context, rdma_port_space::RDMA_PS_TCP);
    c.verbs = context::context();
    c.pd = default_pd();
    c.port_num = 1;
    if let Some(local) = &request.local {
        c.route.addr.__bindgen_anon_1.src_storage = addr::to_storage(local).0;
    }
    c.route.addr.__bindgen_anon_2.dst_storage = addr::to_storage(&request.peer).0;
    create_object(c, Id::new(Some(queue), Phase::Requested(request)))
}

/// Creates an identifier. If `channel` is NULL, address and route resolution generate no events. EINVAL: `ps` is not RDMA_PS_TCP.
///
/// # Safety
///
/// As for rdma_create_id(3).
pub unsafe fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space::Type,
) -> c_int {
    if ps != rdma_port_space::RDMA_PS_TCP {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `channel` is NULL, or was returned by rdma_create_event_channel and has not been destroyed (rdma_create_id(3)).
    let cm = Id::new(unsafe { queue_of(channel) }, Phase::Idle);
    let c = create_object(blank_id(channel, context, ps), cm);
    // SAFETY: `id` points to a pointer for the result (rdma_create_id(3)).
    unsafe { id.write(c) };
    0
}

/// Destroys an identifier. A connect request that was neither accepted nor rejected is rejected, a connection attempt is cancelled, a
/// connection is closed, and a listener is closed together with the requests that have not been fetched.
///
/// # Safety
///
/// As for rdma_destroy_id(3). The queue pair of the identifier must have been destroyed, or never be used again.
pub unsafe fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_destroy_id(3)).
    let own = unsafe { &IdObject::own(id).cm }.clone();
    let (phase, qp) = {
        let mut state = own.state();
        (std::mem::replace(&mut state.phase, Phase::Ended), state.qp.take())
    };
    match phase {
        Phase::Listening(listener) => listener.close(),
        Phase::Connecting(Some(outgoing)) => outgoing.cancel(),
        Phase::Requested(request) => request.reject(&[]),
        _ => {}
    }
    if let Some(qp) = qp {
        qp.disconnect();
    }
    own.leave_channel();
    // SAFETY: the program does not use `id` any more (rdma_destroy_id(3)). `leave_channel` has withdrawn the events that carry its address.
    unsafe { IdObject::free(id) };
    0
}

/// Migrates an identifier and its queued events to another channel; with NULL it has no channel, and its queued events are discarded.
///
/// # Safety
///
/// As for rdma_migrate_id(3).
pub unsafe fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    // SAFETY: `id` is an identifier of softverbs and `channel` NULL or an event channel of softverbs; neither has been destroyed
    // (rdma_migrate_id(3)). `channel` is a field that only rdma_cm functions write.
    unsafe {
        IdObject::own(id).cm.migrate(queue_of(channel));
        addr_of_mut!((*id).channel).write(channel);
    }
    0
}

/// Stores the device, its default protection domain and the addresses in the C structure of an identifier.
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed.
unsafe fn enter(id: *mut rdma_cm_id, src: Option<&SocketAddr>, dst: Option<&SocketAddr>) {
    // SAFETY: `id` has not been destroyed. The program does not read these fields before the function that sets them has returned.
    unsafe {
        addr_of_mut!((*id).verbs).write(context::context());
        if addr_of!((*id).pd).read().is_null() {
            addr_of_mut!((*id).pd).write(default_pd());
        }
        addr_of_mut!((*id).port_num).write(1);
        let route = addr_of_mut!((*id).route.addr);
        if let Some(src) = src {
            addr_of_mut!((*route).__bindgen_anon_1.src_storage).write(addr::to_storage(src).0);
        }
        if let Some(dst) = dst {
            addr_of_mut!((*route).__bindgen_anon_2.dst_storage).write(addr::to_storage(dst).0);
        }
    }
}

/// Binds an identifier to a local address: any address of this host, including loopback. EINVAL if it is bound or in use, EADDRINUSE,
/// EADDRNOTAVAIL, EAFNOSUPPORT, EMFILE.
///
/// # Safety
///
/// As for rdma_bind_addr(3).
pub unsafe fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_bind_addr(3)).
        let own = unsafe { &IdObject::own(id).cm };
        // SAFETY: `addr` is NULL or points to a socket address (rdma_bind_addr(3)).
        let wanted = unsafe { addr::read(addr) }?;
        let socket = Socket::new(addr::family(&wanted))?;
        sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        addr::bind(&socket, &wanted)?;
        let bound = addr::local(&socket)?;
        let mut state = own.state();
        if !matches!(state.phase, Phase::Idle) || state.socket.is_some() {
            return Err(libc::EINVAL);
        }
        state.socket = Some(socket);
        state.src = Some(bound);
        drop(state);
        // SAFETY: `id` has not been destroyed (rdma_bind_addr(3)).
        unsafe { enter(id, Some(&bound), None) };
        Ok(())
    })();
    finish(result)
}

/// Finds the route to a remote address. The timeout applies to the TCP connection, which [`super::rdma_connect`] establishes. ENETUNREACH or
/// another error of connect(2) if there is no route. With an event channel RDMA_CM_EVENT_ADDR_RESOLVED is generated.
///
/// # Safety
///
/// As for rdma_resolve_addr(3).
pub unsafe fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src: *mut sockaddr,
    dst: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_resolve_addr(3)).
        let own = unsafe { &IdObject::own(id).cm };
        // SAFETY: `dst` is NULL or points to a socket address (rdma_resolve_addr(3)).
        let to = unsafe { addr::read(dst) }?;
        if !src.is_null() {
            // SAFETY: `id` has not been destroyed and `src` points to a socket address (rdma_resolve_addr(3)).
            let ret = unsafe { rdma_bind_addr(id, src) };
            if ret != 0 {
                return Err(sys::errno());
            }
        }
        let from = match own.state().src {
            Some(bound) => bound,
            None => addr::source_for(&to)?,
        };
        {
            let mut state = own.state();
            state.dst = Some(to);
            state.timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        }
        // SAFETY: `id` has not been destroyed (rdma_resolve_addr(3)).
        unsafe { enter(id, Some(&from), Some(&to)) };
        own.raise(Event::new(0, rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED, 0));
        Ok(())
    })();
    finish(result)
}

/// Does nothing else than generate RDMA_CM_EVENT_ROUTE_RESOLVED, with an event channel: TCP finds the route. EINVAL before
/// [`rdma_resolve_addr`].
///
/// # Safety
///
/// As for rdma_resolve_route(3).
pub unsafe fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_resolve_route(3)).
    let own = unsafe { &IdObject::own(id).cm };
    if own.state().dst.is_none() {
        return finish(Err(libc::EINVAL));
    }
    own.raise(Event::new(0, rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    0
}
