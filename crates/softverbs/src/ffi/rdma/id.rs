// SPDX-License-Identifier: BSD-3-Clause
//! Creating, binding, resolving, migrating and destroying identifiers.
//!
//! An identifier has a device as soon as it is bound or resolved: soft0, which serves every address of the
//! host. Resolving takes no time, so its event is queued before the call returns.

use libc::{c_int, c_void, sockaddr};
use rdma_sys::{ibv_qp_type, rdma_cm_event_type, rdma_cm_id, rdma_event_channel, rdma_port_space};
use std::net::SocketAddr;
use std::ptr::{addr_of, addr_of_mut, null_mut};
use std::time::Duration;

use super::channel::{is_hidden, queue_of};
use super::event::event_to_c;
use super::finish;
use super::handle::{IdObject, blank_id, create_object, kind, port_space, qp_type};
use super::pd::default_pd;
use super::route;
use super::sync;
use crate::cm::event::Event;
use crate::cm::{addr, calls};
use crate::ffi::soft0;
use crate::ffi::unsupported;
use crate::ffi::verbs::transport;
use crate::sys;

/// Creates an identifier with the event channel `channel` and the user context `context`, and stores it in
/// `id`. The caller destroys it with [`rdma_destroy_id`].
///
/// If `channel` is NULL the identifier is synchronous: its functions return when the operation is complete, a
/// failure has the errno of its event (ECONNREFUSED for a rejection), and the field `event` has the last
/// event. rdma_connect, rdma_listen and rdma_accept create a hidden channel for it, which needs a descriptor;
/// resolving does not.
///
/// Returns 0, or -1 and errno. EOPNOTSUPP: `ps` is RDMA_PS_IPOIB, or on an iWARP device RDMA_PS_UDP or
/// RDMA_PS_IB. EINVAL: not a port space.
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
    // SAFETY: the caller meets the requirements of rdma_create_id(3).
    unsafe { create_id_of(channel, id, context, ps, qp_type(ps)) }
}

/// As [`rdma_create_id`], with the type of the queue pairs. The caller has checked that the port space has
/// it.
///
/// # Safety
///
/// As for rdma_create_id(3).
pub(super) unsafe fn create_id_of(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space::Type,
    qp_type: ibv_qp_type::Type,
) -> c_int {
    use rdma_port_space::{RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP};
    match ps {
        RDMA_PS_TCP => {}
        RDMA_PS_IB | RDMA_PS_UDP if transport().has_ib_ports() => {}
        RDMA_PS_IPOIB if transport().has_ib_ports() => {
            return finish(Err(unsupported(
                "RDMA_PS_IPOIB, which needs an IPoIB interface: on RoCE, RDMA_PS_UDP is for datagrams",
            )));
        }
        RDMA_PS_UDP | RDMA_PS_IPOIB | RDMA_PS_IB => {
            return finish(Err(unsupported("a port space other than RDMA_PS_TCP on an iWARP device")));
        }
        _ => return finish(Err(libc::EINVAL)),
    }
    // SAFETY: rdma_create_id(3) requires that `channel` is NULL, or was returned by rdma_create_event_channel
    // and has not been destroyed.
    let cm = calls::create(unsafe { queue_of(channel) }, port_space(ps), kind(qp_type));
    let c = create_object(blank_id(channel, context, ps, qp_type), cm);
    // SAFETY: rdma_create_id(3) requires that `id` is valid for writes of a pointer.
    unsafe { id.write(c) };
    0
}

/// Destroys an identifier. An unanswered connect request is rejected, a connection attempt is cancelled, a
/// connection is closed, and a listener is closed together with its requests that were not fetched. Unlike
/// with librdmacm, the call does not wait until the program has acknowledged the events that it has fetched:
/// they stay valid until then, but the identifier in them does not. Returns 0.
///
/// # Safety
///
/// As for rdma_destroy_id(3). The queue pair of the identifier must have been destroyed, or must not be used
/// afterwards.
pub unsafe fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: rdma_destroy_id(3) requires that `id` is an identifier of softverbs that has not been
    // destroyed.
    let own = unsafe { &IdObject::own(id).cm }.clone();
    own.destroy();
    // SAFETY: rdma_destroy_id(3) requires that the program does not use `id` afterwards. `destroy` has
    // withdrawn the queued events that carry its address, and no further one is queued.
    unsafe {
        sync::forget_event(id);
        sync::drop_channel(addr_of!((*id).channel).read());
        IdObject::free(id);
    }
    0
}

/// Moves an identifier and its queued events to another channel; with NULL it becomes synchronous. If it was
/// synchronous before, its last event (the field `event`) is acknowledged.
///
/// Returns 0, or -1 and errno. EINVAL: the identifier is synchronous and `channel` is NULL. EMFILE, ENFILE,
/// ENOMEM: a hidden channel is needed, because the identifier may still have events, and cannot be created.
/// After an error the identifier has not moved.
///
/// # Safety
///
/// As for rdma_migrate_id(3).
pub unsafe fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    // SAFETY: the requirements of `sync::migrate` are those of rdma_migrate_id(3), which the caller meets.
    finish(unsafe { sync::migrate(id, channel) })
}

/// Stores the device, the default protection domain and the addresses in the C structure of an identifier.
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed.
unsafe fn enter(id: *mut rdma_cm_id, src: Option<&SocketAddr>, dst: Option<&SocketAddr>) {
    // SAFETY: the caller guarantees that `id` has not been destroyed. The program reads these fields only
    // after the rdma_cm function that sets them has returned.
    unsafe {
        addr_of_mut!((*id).verbs).write(soft0::context());
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

/// Binds an identifier to a local address: an IPv4 or IPv6 address of this host, loopback addresses included.
/// Port 0 selects a free port. The identifier keeps address and port until it is destroyed.
///
/// Conflicts: a second identifier cannot have the same address and port (EADDRINUSE), nor the same port if
/// one of the two addresses is a wildcard (EADDRNOTAVAIL). Connections of a destroyed listener do not
/// conflict, nor do identifiers that were bound neither with this function nor with a source address.
/// Identifiers that all have RDMA_OPTION_ID_REUSEADDR can share an address until one of them listens. The
/// IPv6 wildcard includes IPv4 addresses unless RDMA_OPTION_ID_AFONLY is set.
///
/// The same rules apply between processes of a host, and to TCP sockets of other programs, with three
/// exceptions: the error is EADDRINUSE if only the other address is a wildcard; an identifier that is
/// connecting or connected does not conflict with others; and one with RDMA_OPTION_ID_REUSEADDR conflicts
/// with others only when it listens.
///
/// Returns 0, or -1 and errno. EADDRINUSE, EADDRNOTAVAIL: see above; the latter also if `addr` is not an
/// address of this host. EINVAL: the identifier is already bound, or listening, connecting or connected, or
/// `addr` is NULL or neither IPv4 nor IPv6. EACCES: the port is privileged. EAFNOSUPPORT: the host has no
/// IPv6. EMFILE, ENFILE, ENOMEM.
///
/// # Safety
///
/// As for rdma_bind_addr(3).
pub unsafe fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let result = (|| {
        // SAFETY: rdma_bind_addr(3) requires that `id` is an identifier of softverbs that has not been
        // destroyed.
        let own = unsafe { &IdObject::own(id).cm };
        // SAFETY: rdma_bind_addr(3) requires that `addr` points to a socket address as long as its family
        // requires; NULL is checked.
        let wanted = unsafe { addr::read(addr) }?;
        let bound = own.bind(&wanted)?;
        // SAFETY: rdma_bind_addr(3) requires that `id` is not destroyed during the call.
        unsafe { enter(id, Some(&bound), None) };
        Ok(())
    })();
    finish(result)
}

/// Sets the remote address `dst` and finds the local address of the route to it. If `src` is not NULL and the
/// identifier is not bound, it is bound to `src` first, as by [`rdma_bind_addr`]. `timeout_ms` (milliseconds)
/// applies to establishing the TCP connection in [`super::rdma_connect`]; a negative value means 0.
/// RDMA_CM_EVENT_ADDR_RESOLVED is queued.
///
/// Returns 0, or -1 and errno. EINVAL: the identifier is listening, connecting or connected, the addresses
/// are of different families, or `dst` is NULL or neither IPv4 nor IPv6. ENETUNREACH or another error of
/// connect(2): there is no route. Errors of [`rdma_bind_addr`].
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
        // SAFETY: rdma_resolve_addr(3) requires that `id` is an identifier of softverbs that has not been
        // destroyed.
        let own = unsafe { &IdObject::own(id).cm };
        // SAFETY: rdma_resolve_addr(3) requires that `dst` points to a socket address as long as its family
        // requires; NULL is checked.
        let to = unsafe { addr::read(dst) }?;
        if !src.is_null() && own.bound().is_none() {
            // SAFETY: rdma_resolve_addr(3) requires that `id` is not destroyed during the call and that
            // `src`, which is not NULL, points to a socket address.
            let ret = unsafe { rdma_bind_addr(id, src) };
            if ret != 0 {
                return Err(sys::errno());
            }
        }
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let from = own.resolve(to, timeout)?;
        // SAFETY: rdma_resolve_addr(3) requires that `id` is not destroyed during the call.
        unsafe { enter(id, Some(&from), Some(&to)) };
        // SAFETY: rdma_resolve_addr(3) requires that neither `id` nor its channel is destroyed during the
        // call.
        unsafe { report(id, Event::new(0, rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED, 0)) };
        Ok(())
    })();
    finish(result)
}

/// Queues RDMA_CM_EVENT_ROUTE_RESOLVED and does nothing else, since TCP finds the route; the timeout is
/// ignored. Returns 0, or -1 and errno EINVAL: the identifier has no remote address yet (see
/// [`rdma_resolve_addr`]).
///
/// # Safety
///
/// As for rdma_resolve_route(3).
pub unsafe fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: rdma_resolve_route(3) requires that `id` is an identifier of softverbs that has not been
    // destroyed.
    let own = unsafe { &IdObject::own(id).cm };
    if !own.is_resolved() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: rdma_resolve_route(3) requires that neither `id` nor its channel is destroyed during the call.
    unsafe {
        if transport().has_ib_ports() {
            route::enter_path(id);
        }
        report(id, Event::new(0, rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    }
    0
}

/// Reports a resolved address or route, or a multicast group: queues the event, or for a synchronous
/// identifier makes it the last event.
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed.
pub(super) unsafe fn report(id: *mut rdma_cm_id, event: Event) {
    // SAFETY: the caller guarantees that `id` has not been destroyed. Its channel is NULL or not destroyed
    // either: rdma_destroy_event_channel(3) requires that its identifiers are destroyed first.
    unsafe {
        if is_hidden(addr_of!((*id).channel).read()) {
            sync::keep_event(id, event_to_c(event, id, null_mut()));
        } else {
            IdObject::own(id).cm.notify(event);
        }
    }
}
