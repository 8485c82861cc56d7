// SPDX-License-Identifier: BSD-3-Clause
//! Identifiers: their life, their addresses.

use libc::{c_int, c_void, sockaddr};
use rdma_sys::{rdma_cm_event_type, rdma_cm_id, rdma_event_channel, rdma_port_space};
use std::net::SocketAddr;
use std::ptr::{addr_of, addr_of_mut, null_mut};
use std::time::Duration;

use super::channel::{is_hidden, queue_of};
use super::event::event_to_c;
use super::finish;
use super::handle::{IdObject, blank_id, create_object};
use super::pd::default_pd;
use super::sync;
use crate::cm::addr;
use crate::cm::event::Event;
use crate::cm::id::Id;
use crate::ffi::soft0;
use crate::ffi::unsupported;
use crate::sys;

/// Creates an identifier. If `channel` is NULL it is synchronous: its functions return when the operation is
/// over, with the error that the event of its failure has (ECONNREFUSED for a rejection), and its field
/// `event` has the last event. As soon as it has something to wait for, it has a channel of its own. A
/// descriptor is needed for that from rdma_connect, rdma_listen or rdma_accept on, not for resolving.
///
/// EOPNOTSUPP: a port space for datagrams (RDMA_PS_UDP, RDMA_PS_IPOIB) or of InfiniBand (RDMA_PS_IB). EINVAL:
/// another one than RDMA_PS_TCP.
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
    use rdma_port_space::{RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP};
    match ps {
        RDMA_PS_TCP => {}
        RDMA_PS_UDP | RDMA_PS_IPOIB | RDMA_PS_IB => {
            return finish(Err(unsupported(
                "port spaces other than RDMA_PS_TCP: iWARP has connections only",
            )));
        }
        _ => return finish(Err(libc::EINVAL)),
    }
    // SAFETY: `channel` is NULL, or was returned by rdma_create_event_channel and has not been destroyed
    // (rdma_create_id(3)).
    let cm = Id::new(unsafe { queue_of(channel) });
    let c = create_object(blank_id(channel, context, ps), cm);
    // SAFETY: `id` points to a pointer for the result (rdma_create_id(3)).
    unsafe { id.write(c) };
    0
}

/// Destroys an identifier. A connect request that was neither accepted nor rejected is rejected, a connection
/// attempt is cancelled, a connection is closed, and a listener is closed together with the requests that
/// have not been fetched. Unlike rdma_destroy_id(3) it does not wait until the program has acknowledged the
/// events that it has got: they stay valid until then, but their identifier does not.
///
/// # Safety
///
/// As for rdma_destroy_id(3). The queue pair of the identifier must have been destroyed, or never be used
/// again.
pub unsafe fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_destroy_id(3)).
    let own = unsafe { &IdObject::own(id).cm }.clone();
    own.destroy();
    // SAFETY: the program does not use `id` any more (rdma_destroy_id(3)). `destroy` has withdrawn the events
    // that carry its address.
    unsafe {
        sync::forget_event(id);
        sync::drop_channel(addr_of!((*id).channel).read());
        IdObject::free(id);
    }
    0
}

/// Migrates an identifier and its queued events to another channel; with NULL it becomes synchronous. Its
/// last event (the field `event`) is acknowledged if it was. EINVAL: it is synchronous and `channel` is NULL.
/// EMFILE, ENFILE, ENOMEM: there is no descriptor for a connection that becomes synchronous; the identifier
/// then stays where it is.
///
/// # Safety
///
/// As for rdma_migrate_id(3).
pub unsafe fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    // SAFETY: `id` is an identifier of softverbs and `channel` NULL or an event channel of softverbs; neither
    // has been destroyed (rdma_migrate_id(3)). `channel` is a field that only rdma_cm functions write.
    finish(unsafe { sync::migrate(id, channel) })
}

/// Stores the device, its default protection domain and the addresses in the C structure of an identifier.
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed.
unsafe fn enter(id: *mut rdma_cm_id, src: Option<&SocketAddr>, dst: Option<&SocketAddr>) {
    // SAFETY: `id` has not been destroyed. The program does not read these fields before the function that
    // sets them has returned.
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

/// Binds an identifier to a local address: any address of this host, including loopback; without a port, to a
/// free one. The identifier has address and port until it is destroyed.
///
/// EADDRINUSE: another identifier has them. EADDRNOTAVAIL: another one has the port, and one of the two
/// addresses is a wildcard address; or it is not an address of this host. Connections of a listener that has
/// been destroyed do not count, nor do identifiers that were bound neither with this function nor with a
/// source address. Identifiers that all have RDMA_OPTION_ID_REUSEADDR share an address until one of them
/// listens. A wildcard address of IPv6 stands for those of IPv4 unless RDMA_OPTION_ID_AFONLY is set.
///
/// The same holds between processes of a host, and for TCP sockets of other programs, with three exceptions:
/// there the error is EADDRINUSE if only the other address is a wildcard; an identifier that is connecting or
/// connected does not exclude others; and one with RDMA_OPTION_ID_REUSEADDR excludes others only when it
/// listens.
///
/// EINVAL: the identifier is bound or in use, or the address is neither IPv4 nor IPv6. EACCES: the port is
/// privileged. EAFNOSUPPORT (the host has no IPv6), EMFILE, ENOMEM.
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
        let bound = own.bind(&wanted)?;
        // SAFETY: `id` has not been destroyed (rdma_bind_addr(3)).
        unsafe { enter(id, Some(&bound), None) };
        Ok(())
    })();
    finish(result)
}

/// Finds the route to a remote address. `src` is the local address, as with [`rdma_bind_addr`]; it is ignored
/// if the identifier is bound. The timeout applies to the TCP connection, which [`super::rdma_connect`]
/// establishes. RDMA_CM_EVENT_ADDR_RESOLVED is generated.
///
/// EINVAL: the identifier is in use, or the addresses are of different families or neither IPv4 nor IPv6.
/// ENETUNREACH or another error of connect(2): there is no route. Errors of [`rdma_bind_addr`].
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
        if !src.is_null() && own.bound().is_none() {
            // SAFETY: `id` has not been destroyed and `src` points to a socket address
            // (rdma_resolve_addr(3)).
            let ret = unsafe { rdma_bind_addr(id, src) };
            if ret != 0 {
                return Err(sys::errno());
            }
        }
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let from = own.resolve(to, timeout)?;
        // SAFETY: `id` has not been destroyed (rdma_resolve_addr(3)).
        unsafe { enter(id, Some(&from), Some(&to)) };
        // SAFETY: as before.
        unsafe { report(id, rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED) };
        Ok(())
    })();
    finish(result)
}

/// Does nothing else than generate RDMA_CM_EVENT_ROUTE_RESOLVED: TCP finds the route. EINVAL before
/// [`rdma_resolve_addr`].
///
/// # Safety
///
/// As for rdma_resolve_route(3).
pub unsafe fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_resolve_route(3)).
    let own = unsafe { &IdObject::own(id).cm };
    if !own.is_resolved() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `id` has not been destroyed (rdma_resolve_route(3)).
    unsafe { report(id, rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED) };
    0
}

/// Reports that resolving has succeeded, which takes no time.
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed.
unsafe fn report(id: *mut rdma_cm_id, kind: rdma_cm_event_type::Type) {
    let event = Event::new(0, kind, 0);
    // SAFETY: `id` has not been destroyed, and its channel is NULL or has not been destroyed before the
    // identifier.
    unsafe {
        if is_hidden(addr_of!((*id).channel).read()) {
            sync::keep_event(id, event_to_c(event, id, null_mut()));
        } else {
            IdObject::own(id).cm.notify(event);
        }
    }
}
