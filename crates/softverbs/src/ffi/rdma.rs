// SPDX-License-Identifier: BSD-3-Clause
//! rdma_cm: event channels, ids, and the way from an address to a connection.
//!
//! Names, signatures and error conventions are those of the manual pages of librdmacm (`rdma_connect(3)` and so on): 0, or -1 and errno.
//! Differences: an id without an event channel resolves synchronously, as there, but connecting, listening and accepting need a channel;
//! ids that still have unacknowledged events can be destroyed.

use libc::{c_char, c_int, c_void, sockaddr};
use rdma_sys::{
    ibv_context, ibv_qp_init_attr_ex, rdma_addrinfo, rdma_cm_event, rdma_cm_event_type, rdma_cm_id,
    rdma_conn_param, rdma_event_channel, rdma_port_space,
};
use std::net::SocketAddr;
use std::ptr::{addr_of, addr_of_mut, null_mut};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::object::Object;
use super::{addrinfo, context, verbs};
use crate::channel::EventQueue;
use crate::cm::connect::{Attempt, Outgoing};
use crate::cm::event::Event;
use crate::cm::id::{self, Channel, Id, Phase};
use crate::cm::listen::{Listener, Request};
use crate::cm::{addr, rejection, send_reply};
use crate::config;
use crate::conn::Role;
use crate::limits::{MAX_PRIVATE_DATA, MAX_PRIVATE_DATA_IN, MAX_READS};
use crate::qp::{ConnObserver, Stream};
use crate::sys::{self, Errno, set_errno};
use iwarp::mpa::{self, Enhanced, Frame, Kind};

type ChannelObject = Object<rdma_event_channel, Channel>;
type IdObject = Object<rdma_cm_id, Arc<Id>>;

fn finish(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}

/// What a program gives to connect or accept.
struct Param {
    private_data: Vec<u8>,
    ird: u16,
    ord: u16,
    wait_for_receives: bool,
}

/// Reads connection parameters; NULL means defaults. EINVAL when there is more private data than iWARP carries.
///
/// # Safety
///
/// As for rdma_connect(3).
unsafe fn read_param(param: *const rdma_conn_param) -> Result<Param, Errno> {
    const UNLIMITED: u8 = 7;
    if param.is_null() {
        return Ok(Param { private_data: Vec::new(), ird: 1, ord: 1, wait_for_receives: false });
    }
    // SAFETY: the caller's promise; the structure holds only integers and an address.
    let given = unsafe { param.read() };
    // SAFETY: the caller's promise.
    let private_data = unsafe { read_private_data(given.private_data, given.private_data_len) }?;
    Ok(Param {
        private_data,
        ird: u16::from(given.responder_resources).min(MAX_READS),
        ord: u16::from(given.initiator_depth).min(MAX_READS),
        wait_for_receives: given.rnr_retry_count >= UNLIMITED,
    })
}

/// # Safety
///
/// `data` must be readable for `len` bytes, unless `len` is 0.
unsafe fn read_private_data(data: *const c_void, len: u8) -> Result<Vec<u8>, Errno> {
    let len = usize::from(len);
    if len > MAX_PRIVATE_DATA || (data.is_null() && len > 0) {
        return Err(libc::EINVAL);
    }
    let mut bytes = vec![0u8; len];
    // SAFETY: the caller's promise; nothing is read when there is nothing.
    unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), bytes.as_mut_ptr(), len) };
    Ok(bytes)
}

// ---- event channels ----------------------------------------------------------------------------------------------------------------

/// Makes an event channel; its descriptor is readable while an event is there, and may be set O_NONBLOCK. EMFILE, ENFILE.
///
/// # Safety
///
/// As for rdma_create_event_channel(3).
pub unsafe fn rdma_create_event_channel() -> *mut rdma_event_channel {
    match EventQueue::new() {
        Ok(queue) => ChannelObject::create(rdma_event_channel { fd: queue.fd() }, Arc::new(queue)),
        Err(e) => {
            set_errno(e);
            null_mut()
        }
    }
}

/// Closes an event channel.
///
/// # Safety
///
/// As for rdma_destroy_event_channel(3): no id may use it any more.
pub unsafe fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the caller's promise.
    unsafe { ChannelObject::free(channel) };
}

/// # Safety
///
/// `channel` must be NULL or come from [`rdma_create_event_channel`] and live.
unsafe fn queue_of(channel: *mut rdma_event_channel) -> Option<Channel> {
    // SAFETY: the caller's promise.
    (!channel.is_null()).then(|| unsafe { ChannelObject::own(channel) }.clone())
}

/// Takes the next event of a channel. A connect request comes with a new id. -1 and errno EAGAIN or EINTR, as a read of the descriptor
/// would have it.
///
/// # Safety
///
/// As for rdma_get_cm_event(3).
pub unsafe fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int {
    // SAFETY: the caller's promise.
    let Some(queue) = (unsafe { queue_of(channel) }) else { return finish(Err(libc::EINVAL)) };
    let mut taken = match queue.take() {
        Ok(taken) => taken,
        Err(e) => return finish(Err(e)),
    };
    let about = taken.id as *mut rdma_cm_id;
    let c = match taken.request.take().filter(|_| id::is_connect_request(&taken)) {
        // SAFETY: events of a destroyed id were withdrawn, so the listening id lives; the channel does, by the caller's promise.
        Some(request) => unsafe {
            let context = addr_of!((*about).context).read();
            let new = new_requested_id(channel, queue, context, request);
            event_to_c(taken, new, about)
        },
        None => event_to_c(taken, about, null_mut()),
    };
    // SAFETY: the output is writable, by the caller's promise.
    unsafe { event.write(c) };
    0
}

/// Gives an event back; its private data goes with it.
///
/// # Safety
///
/// As for rdma_ack_cm_event(3).
pub unsafe fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    unsafe { EventObject::free(event) };
    0
}

// ---- ids ---------------------------------------------------------------------------------------------------------------------------

fn blank_id(channel: *mut rdma_event_channel, context: *mut c_void, ps: rdma_port_space::Type) -> rdma_cm_id {
    // SAFETY: all-zero is a valid rdma_cm_id: no device, no addresses.
    let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
    c.channel = channel;
    c.context = context;
    c.ps = ps;
    c.qp_type = rdma_sys::ibv_qp_type::IBV_QPT_RC;
    c
}

fn new_requested_id(
    channel: *mut rdma_event_channel,
    queue: Channel,
    context: *mut c_void,
    request: Request,
) -> *mut rdma_cm_id {
    let mut c = blank_id(channel, context, rdma_port_space::RDMA_PS_TCP);
    c.verbs = context::context();
    c.port_num = 1;
    let (local, peer) = (addr::local(&request.socket), addr::peer(&request.socket));
    if let Ok(local) = local {
        c.route.addr.__bindgen_anon_1.src_storage = addr::to_storage(&local).0;
    }
    if let Ok(peer) = peer {
        c.route.addr.__bindgen_anon_2.dst_storage = addr::to_storage(&peer).0;
    }
    let own = Id::new(Some(queue), Phase::Requested(request.fetched()));
    let id = IdObject::create(c, own.clone());
    own.set_handle(id as usize);
    id
}

/// Makes an id. `channel` NULL: resolving is synchronous. EINVAL: another port space than RDMA_PS_TCP.
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
    // SAFETY: the caller's promise.
    let own = Id::new(unsafe { queue_of(channel) }, Phase::Idle);
    let c = IdObject::create(blank_id(channel, context, ps), own.clone());
    own.set_handle(c as usize);
    // SAFETY: the output is writable, by the caller's promise.
    unsafe { id.write(c) };
    0
}

/// Destroys an id. A connect request that was not answered is rejected, an attempt given up, a connection closed, a listener closed with
/// the requests that were not fetched.
///
/// # Safety
///
/// As for rdma_destroy_id(3). The id's queue pair must be destroyed before, or never be used again.
pub unsafe fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    let own = unsafe { IdObject::own(id) }.clone();
    let (phase, qp) = {
        let mut state = own.state();
        (std::mem::replace(&mut state.phase, Phase::Ended), state.qp.take())
    };
    match phase {
        Phase::Listening(listener) => listener.close(),
        Phase::Connecting(Some(outgoing)) => outgoing.cancel(),
        Phase::Requested(request) => {
            send_reply(&request.socket, &rejection(&request.frame), &[]);
        }
        _ => {}
    }
    if let Some(qp) = qp {
        qp.disconnect();
    }
    own.leave_channel();
    // SAFETY: the caller's promise; withdrawn events cannot bring the address back.
    unsafe { IdObject::free(id) };
    0
}

/// Moves an id, and its waiting events, to another channel, or (NULL) to none.
///
/// # Safety
///
/// As for rdma_migrate_id(3).
pub unsafe fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        IdObject::own(id).migrate(queue_of(channel));
        addr_of_mut!((*id).channel).write(channel);
    }
    0
}

/// Enters the device, and the addresses, into an id's C structure.
///
/// # Safety
///
/// `id` must be an id of ours.
unsafe fn enter(id: *mut rdma_cm_id, src: Option<&SocketAddr>, dst: Option<&SocketAddr>) {
    // SAFETY: the caller's promise; the program reads these fields only after the call that sets them.
    unsafe {
        addr_of_mut!((*id).verbs).write(context::context());
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

/// Binds an id to a local address: any address of this host, loopback included. EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EMFILE.
///
/// # Safety
///
/// As for rdma_bind_addr(3).
pub unsafe fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let result = (|| {
        // SAFETY: the caller's promise.
        let own = unsafe { IdObject::own(id) };
        // SAFETY: the caller's promise.
        let wanted = unsafe { addr::read(addr) }?;
        let socket = sys::tcp_socket(addr::family(&wanted))?;
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
        // SAFETY: the caller's promise.
        unsafe { enter(id, Some(&bound), None) };
        Ok(())
    })();
    finish(result)
}

/// Finds the way to a peer's address. The time is kept for the TCP connection, which [`rdma_connect`] makes. ENETUNREACH and the like when
/// there is no way. An id with a channel gets RDMA_CM_EVENT_ADDR_RESOLVED.
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
        // SAFETY: the caller's promise.
        let own = unsafe { IdObject::own(id) };
        // SAFETY: the caller's promise.
        let to = unsafe { addr::read(dst) }?;
        if !src.is_null() {
            // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
        unsafe { enter(id, Some(&from), Some(&to)) };
        own.raise(Event::new(0, rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED, 0));
        Ok(())
    })();
    finish(result)
}

/// Nothing to find: TCP routes. EINVAL before [`rdma_resolve_addr`]. An id with a channel gets RDMA_CM_EVENT_ROUTE_RESOLVED.
///
/// # Safety
///
/// As for rdma_resolve_route(3).
pub unsafe fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let own = unsafe { IdObject::own(id) };
    if own.state().dst.is_none() {
        return finish(Err(libc::EINVAL));
    }
    own.raise(Event::new(0, rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    0
}

// ---- queue pairs -------------------------------------------------------------------------------------------------------------------

/// Makes the id's queue pair; see `create_qp` in [`crate::verbs`]. EINVAL also when the id has no device yet, or has a queue pair.
///
/// # Safety
///
/// As for rdma_create_qp_ex(3).
pub unsafe fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
    let result = (|| {
        // SAFETY: the caller's promise.
        let (own, verbs): (_, *mut ibv_context) =
            unsafe { (IdObject::own(id), addr_of!((*id).verbs).read()) };
        if verbs.is_null() || own.state().qp.is_some() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller's promise; the new queue pair is the id's until it is destroyed.
        unsafe {
            let qp = verbs::create_qp(verbs, attr)?;
            own.state().qp = Some(verbs::QpObject::own(qp).clone());
            addr_of_mut!((*id).qp).write(qp);
            addr_of_mut!((*id).pd).write(addr_of!((*qp).pd).read());
        }
        Ok(())
    })();
    finish(result)
}

/// Destroys the id's queue pair, if it has one.
///
/// # Safety
///
/// As for rdma_destroy_qp(3).
pub unsafe fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        let qp = addr_of!((*id).qp).read();
        if qp.is_null() {
            return;
        }
        addr_of_mut!((*id).qp).write(null_mut());
        IdObject::own(id).state().qp = None;
        verbs::destroy_qp(qp);
    }
}

// ---- connections -------------------------------------------------------------------------------------------------------------------

/// Listens for connect requests, which come as events. EINVAL: not bound, or no channel. EADDRINUSE, EMFILE, ENOMEM.
///
/// # Safety
///
/// As for rdma_listen(3).
pub unsafe fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let result = (|| {
        // SAFETY: the caller's promise.
        let own = unsafe { IdObject::own(id) };
        let socket = {
            let mut state = own.state();
            if state.channel.is_none() || !matches!(state.phase, Phase::Idle) {
                return Err(libc::EINVAL);
            }
            state.socket.take().ok_or(libc::EINVAL)?
        };
        let listener = Listener::start(own, socket, backlog)?;
        own.state().phase = Phase::Listening(listener);
        Ok(())
    })();
    finish(result)
}

/// Asks the peer for a connection. How it ends is an event: ESTABLISHED, REJECTED (nobody listens, or the peer said no), UNREACHABLE (no
/// answer in time), CONNECT_ERROR. EINVAL: no channel, no queue pair, not resolved, or more than 251 bytes of private data. EMFILE.
///
/// # Safety
///
/// As for rdma_connect(3).
pub unsafe fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let result = (|| {
        // SAFETY: the caller's promise.
        let own = unsafe { IdObject::own(id) };
        // SAFETY: the caller's promise.
        let param = unsafe { read_param(param) }?;
        let (qp, dst, timeout, bound) = {
            let mut state = own.state();
            let (Some(qp), Some(dst)) = (state.qp.clone(), state.dst) else { return Err(libc::EINVAL) };
            if state.channel.is_none() || !matches!(state.phase, Phase::Idle) {
                return Err(libc::EINVAL);
            }
            state.phase = Phase::Connecting(None);
            (qp, dst, state.timeout, state.socket.take())
        };
        let frame = Frame {
            kind: Kind::Request,
            markers: false,
            crc: config::get().crc,
            reject: false,
            revision: mpa::REVISION,
            enhanced: Some(Enhanced {
                // We announce to send the first FPDU, so that the peer knows when it may send.
                peer_to_peer: true,
                rtr_send: false,
                rtr_write: true,
                rtr_read: false,
                ird: param.ird,
                ord: param.ord,
            }),
        };
        let started = (|| {
            let mut request = Vec::new();
            mpa::encode(&frame, &param.private_data, &mut request).map_err(|_| libc::EINVAL)?;
            let socket = match bound {
                Some(socket) => socket,
                None => sys::tcp_socket(addr::family(&dst))?,
            };
            let connected = addr::connect(&socket, &dst);
            let wait_for_receives = param.wait_for_receives;
            let attempt = Attempt { qp, request, ord: param.ord, wait_for_receives, dst, timeout };
            Outgoing::start(own, socket, connected, attempt)
        })();
        let mut state = own.state();
        match started {
            Ok(outgoing) => {
                // The attempt may be over already.
                if matches!(state.phase, Phase::Connecting(None)) {
                    state.phase = Phase::Connecting(Some(outgoing));
                }
                Ok(())
            }
            Err(e) => {
                state.phase = Phase::Idle;
                Err(e)
            }
        }
    })();
    finish(result)
}

/// Accepts a connect request. The ESTABLISHED event comes when the peer has sent its first message, or at once if it did not announce
/// one. EINVAL: nothing to accept, no queue pair, or more than 251 bytes of private data. ECONNRESET: the peer has gone.
///
/// # Safety
///
/// As for rdma_accept(3).
pub unsafe fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let result = (|| {
        // SAFETY: the caller's promise.
        let own = unsafe { IdObject::own(id) };
        // SAFETY: the caller's promise.
        let param = unsafe { read_param(param) }?;
        let (qp, request, awaits) = {
            let mut state = own.state();
            let qp = state.qp.clone().ok_or(libc::EINVAL)?;
            match std::mem::replace(&mut state.phase, Phase::Ended) {
                Phase::Requested(request) => {
                    let awaits = request.frame.enhanced.is_some_and(|e| e.peer_to_peer);
                    state.phase = Phase::Accepting { awaits };
                    (qp, request, awaits)
                }
                other => {
                    state.phase = other;
                    return Err(libc::EINVAL);
                }
            }
        };
        let asked = request.frame.enhanced;
        let ord = asked.map_or(param.ord, |e| param.ord.min(e.ird));
        let reply = Frame {
            kind: Kind::Reply,
            markers: false,
            crc: request.frame.crc || config::get().crc,
            reject: false,
            revision: request.frame.revision,
            enhanced: asked.map(|e| Enhanced {
                peer_to_peer: e.peer_to_peer,
                rtr_send: e.peer_to_peer && e.rtr_send && !e.rtr_write && !e.rtr_read,
                rtr_write: e.peer_to_peer && e.rtr_write,
                rtr_read: e.peer_to_peer && e.rtr_read && !e.rtr_write,
                ird: param.ird,
                ord,
            }),
        };
        if !send_reply(&request.socket, &reply, &param.private_data) {
            own.state().phase = Phase::Ended;
            return Err(libc::ECONNRESET);
        }
        let weak: Weak<Id> = Arc::downgrade(own);
        let observer: Weak<dyn ConnObserver> = weak;
        qp.connect(Stream {
            socket: request.socket,
            crc: reply.crc,
            ord: u32::from(ord),
            role: if awaits { Role::RESPONDER_TOLD } else { Role::RESPONDER },
            early: Vec::new(),
            wait_for_receives: param.wait_for_receives,
            observer,
        })?;
        if !awaits {
            own.established();
        }
        Ok(())
    })();
    finish(result)
}

/// Rejects a connect request. EINVAL: nothing to reject, or more than 251 bytes of private data.
///
/// # Safety
///
/// As for rdma_reject(3).
pub unsafe fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int {
    let result = (|| {
        // SAFETY: the caller's promise.
        let own = unsafe { IdObject::own(id) };
        // SAFETY: the caller's promise.
        let private_data = unsafe { read_private_data(private_data, len) }?;
        let request = {
            let mut state = own.state();
            match std::mem::replace(&mut state.phase, Phase::Ended) {
                Phase::Requested(request) => request,
                other => {
                    state.phase = other;
                    return Err(libc::EINVAL);
                }
            }
        };
        send_reply(&request.socket, &rejection(&request.frame), &private_data);
        Ok(())
    })();
    finish(result)
}

/// Ends a connection: outstanding work requests complete with a flush error, both sides get the DISCONNECTED event. On a connection that
/// has ended it does nothing. EINVAL: there never was one.
///
/// # Safety
///
/// As for rdma_disconnect(3).
pub unsafe fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    let own = unsafe { IdObject::own(id) };
    let qp = {
        let state = own.state();
        match &state.phase {
            Phase::Accepting { .. } | Phase::Connected | Phase::BrokenEarly | Phase::Ended => {
                state.qp.clone()
            }
            _ => return finish(Err(libc::EINVAL)),
        }
    };
    if let Some(qp) = qp {
        qp.disconnect();
    }
    0
}

// ---- addresses ---------------------------------------------------------------------------------------------------------------------

/// Looks up a name: IPv4 and IPv6, as getaddrinfo(3) does. 0, or an EAI error number.
///
/// # Safety
///
/// As for rdma_getaddrinfo(3).
pub unsafe fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { addrinfo::getaddrinfo(node, service, hints, res) }
}

/// Frees what [`rdma_getaddrinfo`] gave.
///
/// # Safety
///
/// As for rdma_freeaddrinfo(3).
pub unsafe fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    // SAFETY: the caller's promise.
    unsafe { addrinfo::freeaddrinfo(res) };
}

// ---- events as C structures -------------------------------------------------------------------------------------------------------

/// The C structure of an event, and the private data it points to.
type EventObject = Object<rdma_cm_event, Vec<u8>>;

/// Makes the C structure. `id` and `listen_id` are what the program gets to see.
fn event_to_c(event: Event, id: *mut rdma_cm_id, listen_id: *mut rdma_cm_id) -> *mut rdma_cm_event {
    let mut private_data = event.private_data;
    // rdma_cm counts private data in 8 bits.
    private_data.truncate(MAX_PRIVATE_DATA_IN);
    // SAFETY: all-zero is a valid rdma_cm_event.
    let mut c: rdma_cm_event = unsafe { std::mem::zeroed() };
    c.id = id;
    c.listen_id = listen_id;
    c.event = event.kind;
    c.status = event.status;
    let len = private_data.len() as u8;
    c.param.conn = rdma_conn_param {
        private_data: if len == 0 { std::ptr::null() } else { private_data.as_ptr().cast() },
        private_data_len: len,
        responder_resources: event.responder_resources,
        initiator_depth: event.initiator_depth,
        flow_control: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: 0,
        qp_num: 0,
    };
    EventObject::create(c, private_data)
}
