// SPDX-License-Identifier: BSD-3-Clause
//! rdma_cm: event channels, communication identifiers and connections.
//!
//! Names, signatures and error conventions are those of the manual pages of librdmacm (`rdma_connect(3)` and so on): 0, or -1 and errno.
//! Differences: address and route resolution with an identifier without event channel are synchronous, as in librdmacm, but connecting,
//! listening and accepting require a channel; an identifier with unacknowledged events can be destroyed.

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
use crate::cancel::Whole;
use crate::channel::EventQueue;
use crate::cm::connect::{Attempt, Outgoing};
use crate::cm::event::Event;
use crate::cm::id::{self, Channel, Id, Phase};
use crate::cm::incoming::Request;
use crate::cm::listen::Listener;
use crate::cm::negotiate::{self, Offer};
use crate::cm::{addr, send_reply};
use crate::config;
use crate::limits::{MAX_PRIVATE_DATA, MAX_PRIVATE_DATA_IN, MAX_READS};
use crate::qp::{ConnObserver, Stream};
use crate::socket::Socket;
use crate::sys::{self, Errno, set_errno};
use iwarp::mpa;

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

/// The parameters of rdma_connect(3) or rdma_accept(3).
struct Param {
    private_data: Vec<u8>,
    ird: u16,
    ord: u16,
    wait_for_receives: bool,
}

impl Param {
    fn offer(&self) -> Offer {
        Offer { ird: self.ird, ord: self.ord, crc: config::get().crc }
    }
}

/// Reads connection parameters; NULL selects defaults. EINVAL if there is more private data than [`MAX_PRIVATE_DATA`].
///
/// # Safety
///
/// `param` must be as for rdma_connect(3).
unsafe fn read_param(param: *const rdma_conn_param) -> Result<Param, Errno> {
    const UNLIMITED: u8 = 7;
    if param.is_null() {
        return Ok(Param { private_data: Vec::new(), ird: 1, ord: 1, wait_for_receives: false });
    }
    // SAFETY: `param` is not NULL, so it points to an rdma_conn_param, which holds only integers and an address; it is copied.
    let given = unsafe { param.read() };
    // SAFETY: `private_data` points to `private_data_len` bytes (rdma_connect(3)).
    let private_data = unsafe { read_private_data(given.private_data, given.private_data_len) }?;
    Ok(Param {
        private_data,
        ird: u16::from(given.responder_resources).min(MAX_READS),
        ord: u16::from(given.initiator_depth).min(MAX_READS),
        wait_for_receives: given.rnr_retry_count >= UNLIMITED,
    })
}

/// Copies private data. EINVAL if there is more than [`MAX_PRIVATE_DATA`].
///
/// # Safety
///
/// `data` must be NULL or readable for `len` bytes.
unsafe fn read_private_data(data: *const c_void, len: u8) -> Result<Vec<u8>, Errno> {
    let len = usize::from(len);
    if len > MAX_PRIVATE_DATA || (data.is_null() && len > 0) {
        return Err(libc::EINVAL);
    }
    let mut bytes = vec![0u8; len];
    // SAFETY: unless `len` is 0 and nothing is copied, `data` is not NULL and thus readable for `len` bytes; `bytes` has as many.
    unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), bytes.as_mut_ptr(), len) };
    Ok(bytes)
}

// ---- event channels ----------------------------------------------------------------------------------------------------------------

/// Creates an event channel. Its descriptor is readable while an event is queued, and may be switched to O_NONBLOCK. EMFILE, ENFILE,
/// ENOMEM.
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

/// Destroys an event channel.
///
/// # Safety
///
/// As for rdma_destroy_event_channel(3): all identifiers of the channel must have been destroyed or migrated.
pub unsafe fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: `channel` was returned by rdma_create_event_channel and is not used afterwards (rdma_destroy_event_channel(3)).
    unsafe { ChannelObject::free(channel) };
}

/// The event queue of a channel; `None` for NULL.
///
/// # Safety
///
/// `channel` must be NULL, or come from [`rdma_create_event_channel`] and not have been destroyed.
unsafe fn queue_of(channel: *mut rdma_event_channel) -> Option<Channel> {
    // SAFETY: as above, and the reference ends with this function.
    unsafe { borrowed_queue(channel) }.cloned()
}

/// As [`queue_of`], without a count of its own, for a thread that may be cancelled.
///
/// # Safety
///
/// As for [`queue_of`]; the channel must not be destroyed as long as the reference is used.
unsafe fn borrowed_queue<'a>(channel: *mut rdma_event_channel) -> Option<&'a Channel> {
    // SAFETY: `channel` is not NULL, so it comes from rdma_create_event_channel and has not been destroyed.
    (!channel.is_null()).then(|| unsafe { ChannelObject::own(channel) })
}

/// Gets the next event of a channel. A connect request has a new identifier. EINVAL for NULL; EAGAIN or EINTR, as a read of the descriptor
/// fails.
///
/// # Safety
///
/// As for rdma_get_cm_event(3).
pub unsafe fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int {
    // SAFETY: `channel` was returned by rdma_create_event_channel and has not been destroyed (rdma_get_cm_event(3)).
    let Some(queue) = (unsafe { borrowed_queue(channel) }) else { return finish(Err(libc::EINVAL)) };
    let _whole = Whole::new();
    let mut taken = match queue.take() {
        Ok(taken) => taken,
        Err(e) => return finish(Err(e)),
    };
    let queue = queue.clone();
    let about = taken.id as *mut rdma_cm_id;
    let c = match taken.request.take().filter(|_| id::is_connect_request(&taken)) {
        // SAFETY: `about` is the listening identifier, which has not been destroyed: rdma_destroy_id withdraws the events of an
        // identifier.
        Some(request) => unsafe {
            let context = addr_of!((*about).context).read();
            let new = new_requested_id(channel, queue, context, request.fetch());
            event_to_c(taken, new, about)
        },
        None => event_to_c(taken, about, null_mut()),
    };
    // SAFETY: `event` points to a pointer for the result (rdma_get_cm_event(3)).
    unsafe { event.write(c) };
    0
}

/// Acknowledges an event and frees it with its private data.
///
/// # Safety
///
/// As for rdma_ack_cm_event(3).
pub unsafe fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return finish(Err(libc::EINVAL));
    }
    // SAFETY: `event` was returned by rdma_get_cm_event and is acknowledged only once (rdma_ack_cm_event(3)).
    unsafe { EventObject::free(event) };
    0
}

// ---- ids ---------------------------------------------------------------------------------------------------------------------------

fn blank_id(channel: *mut rdma_event_channel, context: *mut c_void, ps: rdma_port_space::Type) -> rdma_cm_id {
    // SAFETY: all-zero is a valid rdma_cm_id: no device and no addresses.
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
    if let Some(local) = &request.local {
        c.route.addr.__bindgen_anon_1.src_storage = addr::to_storage(local).0;
    }
    c.route.addr.__bindgen_anon_2.dst_storage = addr::to_storage(&request.peer).0;
    let own = Id::new(Some(queue), Phase::Requested(request));
    let id = IdObject::create(c, own.clone());
    own.set_handle(id as usize);
    id
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
    let own = Id::new(unsafe { queue_of(channel) }, Phase::Idle);
    let c = IdObject::create(blank_id(channel, context, ps), own.clone());
    own.set_handle(c as usize);
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
    let own = unsafe { IdObject::own(id) }.clone();
    let (phase, qp) = {
        let mut state = own.state();
        (std::mem::replace(&mut state.phase, Phase::Ended), state.qp.take())
    };
    match phase {
        Phase::Listening(listener) => listener.close(),
        Phase::Connecting(Some(outgoing)) => outgoing.cancel(),
        Phase::Requested(request) => reject(&request, &[]),
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
        IdObject::own(id).migrate(queue_of(channel));
        addr_of_mut!((*id).channel).write(channel);
    }
    0
}

/// Stores the device and the addresses in the C structure of an identifier.
///
/// # Safety
///
/// `id` must be an identifier of softverbs that has not been destroyed.
unsafe fn enter(id: *mut rdma_cm_id, src: Option<&SocketAddr>, dst: Option<&SocketAddr>) {
    // SAFETY: `id` has not been destroyed. The program does not read these fields before the function that sets them has returned.
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

/// Binds an identifier to a local address: any address of this host, including loopback. EINVAL if it is bound or in use, EADDRINUSE,
/// EADDRNOTAVAIL, EAFNOSUPPORT, EMFILE.
///
/// # Safety
///
/// As for rdma_bind_addr(3).
pub unsafe fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_bind_addr(3)).
        let own = unsafe { IdObject::own(id) };
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

/// Finds the route to a remote address. The timeout applies to the TCP connection, which [`rdma_connect`] establishes. ENETUNREACH or
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
        let own = unsafe { IdObject::own(id) };
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
    let own = unsafe { IdObject::own(id) };
    if own.state().dst.is_none() {
        return finish(Err(libc::EINVAL));
    }
    own.raise(Event::new(0, rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    0
}

// ---- queue pairs -------------------------------------------------------------------------------------------------------------------

/// Creates the queue pair of an identifier, as `create_qp` in [`crate::verbs`]. EINVAL also if the identifier has no device yet, or has a
/// queue pair.
///
/// # Safety
///
/// As for rdma_create_qp_ex(3).
pub unsafe fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_create_qp_ex(3)).
        let (own, verbs): (_, *mut ibv_context) =
            unsafe { (IdObject::own(id), addr_of!((*id).verbs).read()) };
        if verbs.is_null() || own.state().qp.is_some() {
            return Err(libc::EINVAL);
        }
        // SAFETY: `attr` is as for rdma_create_qp_ex(3), `qp` has just been created, and `id` has not been destroyed.
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

/// Destroys the queue pair of an identifier, if it has one.
///
/// # Safety
///
/// As for rdma_destroy_qp(3).
pub unsafe fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed, and its queue pair is not used any more
    // (rdma_destroy_qp(3)). Its field `qp` is NULL or was set by rdma_create_qp_ex.
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

/// Listens for connect requests, which are reported as events. EINVAL: the identifier is not bound or has no event channel. EADDRINUSE,
/// EMFILE, ENOMEM.
///
/// # Safety
///
/// As for rdma_listen(3).
pub unsafe fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_listen(3)).
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

/// Requests a connection. An event reports the outcome: ESTABLISHED, REJECTED (no program listens there, or it has rejected the request),
/// UNREACHABLE (no route, or no response in time), CONNECT_ERROR. EINVAL: the identifier has no event channel, no queue pair or no resolved
/// address, or there are more than 251 bytes of private data. EMFILE.
///
/// # Safety
///
/// As for rdma_connect(3).
pub unsafe fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_connect(3)).
        let own = unsafe { IdObject::own(id) };
        // SAFETY: `param` is NULL or points to connection parameters (rdma_connect(3)).
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
        let offer = param.offer();
        let frame = negotiate::request(offer);
        let started = (|| {
            let mut request = Vec::new();
            mpa::encode(&frame, &param.private_data, &mut request).map_err(|_| libc::EINVAL)?;
            let socket = match bound {
                Some(socket) => socket,
                None => Socket::new(addr::family(&dst))?,
            };
            let connected = addr::connect(&socket, &dst);
            let wait_for_receives = param.wait_for_receives;
            let attempt = Attempt { qp, request, offer, wait_for_receives, dst, timeout };
            Outgoing::start(own, socket, connected, attempt)
        })();
        let mut state = own.state();
        match started {
            Ok(outgoing) => {
                // The engine may already have reported the outcome.
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

/// Accepts a connect request. The ESTABLISHED event is generated when the first FPDU of the initiator arrives, or immediately if the
/// initiator has not announced one. EINVAL: there is no connect request or no queue pair, or more than 251 bytes of private data.
/// ECONNRESET: the peer has closed the connection.
///
/// # Safety
///
/// As for rdma_accept(3).
pub unsafe fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_accept(3)).
        let own = unsafe { IdObject::own(id) };
        // SAFETY: `param` is NULL or points to connection parameters (rdma_accept(3)).
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
        let (reply, agreed) = negotiate::accept(&request.frame, param.offer());
        let socket = request.socket.filter(|socket| send_reply(socket, &reply, &param.private_data));
        let Some(socket) = socket else {
            own.state().phase = Phase::Ended;
            return Err(libc::ECONNRESET);
        };
        let weak: Weak<Id> = Arc::downgrade(own);
        let observer: Weak<dyn ConnObserver> = weak;
        qp.connect(Stream {
            socket,
            crc: agreed.crc,
            ord: u32::from(agreed.ord),
            role: agreed.role,
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

/// Sends the reply that rejects a request, if its peer is still there.
fn reject(request: &Request, private_data: &[u8]) {
    if let Some(socket) = &request.socket {
        send_reply(socket, &negotiate::rejection(&request.frame), private_data);
    }
}

/// Rejects a connect request. EINVAL: there is no connect request, or more than 251 bytes of private data.
///
/// # Safety
///
/// As for rdma_reject(3).
pub unsafe fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_reject(3)).
        let own = unsafe { IdObject::own(id) };
        // SAFETY: `private_data` points to `len` bytes (rdma_reject(3)).
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
        reject(&request, &private_data);
        Ok(())
    })();
    finish(result)
}

/// Disconnects: outstanding work requests complete with a flush error, and both sides get the DISCONNECTED event. Does nothing if the
/// connection has already ended. EINVAL: the identifier never had a connection.
///
/// # Safety
///
/// As for rdma_disconnect(3).
pub unsafe fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_disconnect(3)).
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

/// Resolves a name to IPv4 and IPv6 addresses with getaddrinfo(3). Returns 0 or an `EAI_*` error.
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
    // SAFETY: the caller meets the requirements of rdma_getaddrinfo(3), and those of the callee are the same.
    unsafe { addrinfo::getaddrinfo(node, service, hints, res) }
}

/// Frees the result of [`rdma_getaddrinfo`].
///
/// # Safety
///
/// As for rdma_freeaddrinfo(3).
pub unsafe fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    // SAFETY: `res` was returned by rdma_getaddrinfo and is not used afterwards (rdma_freeaddrinfo(3)).
    unsafe { addrinfo::freeaddrinfo(res) };
}

// ---- events as C structures -------------------------------------------------------------------------------------------------------

/// The C structure of an event, and the private data that it points to.
type EventObject = Object<rdma_cm_event, Vec<u8>>;

/// Creates the C structure of an event with these values of `id` and `listen_id`.
fn event_to_c(event: Event, id: *mut rdma_cm_id, listen_id: *mut rdma_cm_id) -> *mut rdma_cm_event {
    let mut private_data = event.private_data;
    // The length of private data has 8 bits in rdma_cm.
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
