// SPDX-License-Identifier: BSD-3-Clause
//! Connections: listening, connecting, accepting, rejecting, disconnecting.

use libc::{c_int, c_void};
use rdma_sys::{ibv_event_type, rdma_cm_id, rdma_conn_param};
use std::ptr::{addr_of, addr_of_mut};
use std::sync::{Arc, Weak};

use super::finish;
use super::handle::IdObject;
use super::param::{Carrier, read_param, read_private_data};
use super::qp::connection_of;
use super::sync;
use crate::cm::binding::permit_rebind;
use crate::cm::connect::{Attempt, Outgoing};
use crate::cm::id::{Id, Phase};
use crate::cm::listen::Listener;
use crate::cm::negotiate;
use crate::cm::offers::Offer;
use crate::cm::{self, addr, send_reply};
use crate::faults::{self, Event};
use crate::ffi::context::owns;
use crate::qp::{ConnObserver, Qp, Stream, numbers};
use crate::socket::Socket;
use iwarp::mpa;

/// Listens for connect requests, which are reported as events, or fetched with [`super::rdma_get_request`]. EINVAL: the identifier is not
/// bound, or in use. EADDRINUSE, EADDRNOTAVAIL: it shares its address, or the port of a wildcard address, with another one
/// (RDMA_OPTION_ID_REUSEADDR), while a listener has its address alone. EMFILE, ENOMEM: the identifier is not bound any more, as after EADDRINUSE
/// because of another process.
///
/// # Safety
///
/// As for rdma_listen(3).
pub unsafe fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_listen(3)).
        let own = unsafe { &IdObject::own(id).cm };
        let ready = {
            let state = own.state();
            matches!(state.phase, Phase::Idle) && state.socket.is_some()
        };
        if !ready {
            return Err(libc::EINVAL);
        }
        // SAFETY: `id` has not been destroyed (rdma_listen(3)).
        unsafe { sync::prepare(id) }?;
        let socket = {
            let mut state = own.state();
            let binding = state.binding.as_ref().ok_or(libc::EINVAL)?;
            let addr = binding.addr();
            if let Err(refused) = binding.claim() {
                drop(state);
                return Err(refused.errno(&addr));
            }
            state.socket.take().ok_or(libc::EINVAL)?
        };
        permit_rebind(&socket);
        let listener = Listener::start(own, socket, backlog).inspect_err(|_| own.state().binding = None)?;
        own.state().phase = Phase::Listening(listener);
        Ok(())
    })();
    finish(result)
}

/// Requests a connection. An event reports the outcome: ESTABLISHED, REJECTED (no program listens there, or it has rejected the request),
/// UNREACHABLE (no route, or no response in time), CONNECT_ERROR. A synchronous identifier waits for it: ECONNREFUSED if it is rejected,
/// ETIMEDOUT, EHOSTUNREACH or ENETUNREACH if it is unreachable, or the errno in the event.
///
/// The queue pair is that of rdma_create_qp, or one that the program has created with ibv_create_qp(3) and stored in the field `qp` of the
/// identifier, or whose number is `qp_num` in the parameters. EINVAL: the identifier has no queue pair or no resolved address, or is in use, or there are more than 251 bytes of private data (in strict mode, 56). EMFILE. If the queue
/// pair has had a connection before, the outcome is CONNECT_ERROR with EISCONN.
///
/// A TCP connection that is refused is tried again for up to 62 ms before that is the outcome: the remote program may be about to listen.
///
/// # Safety
///
/// As for rdma_connect(3).
pub unsafe fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_connect(3)).
        let own = unsafe { &IdObject::own(id).cm };
        // SAFETY: `param` is NULL or points to connection parameters (rdma_connect(3)).
        let param = unsafe { read_param(param, Carrier::Request) }?;
        // SAFETY: `id` has not been destroyed (rdma_connect(3)).
        let qp = unsafe { queue_pair(id, own, param.qp_num) }.ok_or(libc::EINVAL)?;
        if own.state().dst.is_none() || !matches!(own.state().phase, Phase::Idle) {
            return Err(libc::EINVAL);
        }
        // SAFETY: `id` has not been destroyed (rdma_connect(3)).
        unsafe { sync::prepare(id) }?;
        let (dst, timeout, bound, options) = {
            let mut state = own.state();
            let Some(dst) = state.dst else { return Err(libc::EINVAL) };
            if !matches!(state.phase, Phase::Idle) {
                return Err(libc::EINVAL);
            }
            state.phase = Phase::Connecting(None);
            (dst, state.timeout, state.socket.take(), state.options)
        };
        qp.set_ack_timeout(options.ack_timeout);
        let offer = param.offer();
        let frame = negotiate::request(offer);
        let started = (|| {
            let mut request = Vec::new();
            mpa::encode(&frame, &param.private_data, &mut request).map_err(|_| libc::EINVAL)?;
            let is_bound = bound.is_some();
            let socket = match bound {
                Some(socket) => socket,
                None => Socket::new(addr::family(&dst))?,
            };
            if is_bound {
                permit_rebind(&socket);
            } else {
                options.apply(&socket);
            }
            let rnr_retry = param.rnr_retry;
            let attempt = Attempt { qp, request, offer, rnr_retry, dst, timeout };
            if let Some(fault) = faults::plan().and_then(|plan| plan.event(Event::Connect)) {
                return Outgoing::start_to_fail(own, socket, attempt, fault);
            }
            cm::prepare(&socket);
            let connected = addr::connect(&socket, &dst);
            if !is_bound && matches!(connected, Ok(()) | Err(libc::EINPROGRESS)) {
                let local = addr::local(&socket)?;
                // SAFETY: `id` has not been destroyed (rdma_connect(3)). The program does not read this field during the call.
                unsafe {
                    let src = addr_of_mut!((*id).route.addr.__bindgen_anon_1.src_storage);
                    src.write(addr::to_storage(&local).0);
                }
            }
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
                // Its socket is gone: it can be bound again.
                state.binding = None;
                Err(e)
            }
        }
    })();
    // SAFETY: `id` has not been destroyed, and the attempt was started after `prepare`.
    finish(result.and_then(|()| unsafe { sync::outcome(id) }))
}

/// The queue pair of an identifier: the one of rdma_create_qp, one that the program has stored in the C structure, or one that it has created
/// and names by its number.
///
/// # Safety
///
/// `id` must be the identifier that `own` belongs to, not destroyed, and its field `qp` NULL or a queue pair that has not been destroyed.
unsafe fn queue_pair(id: *mut rdma_cm_id, own: &Arc<Id>, num: u32) -> Option<Arc<Qp>> {
    if let Some(qp) = own.state().qp.clone() {
        return Some(qp);
    }
    // SAFETY: the caller guarantees that the field is NULL or a queue pair that has not been destroyed.
    let qp = unsafe {
        let c = addr_of!((*id).qp).read();
        if c.is_null() {
            numbers::find(num)
        } else {
            owns(addr_of!((*c).context).read()).then(|| connection_of(c))
        }
    }?;
    own.state().qp = Some(qp.clone());
    Some(qp)
}

/// Accepts a connect request. The ESTABLISHED event is generated when the first FPDU of the initiator arrives, or immediately if the
/// initiator has not announced one; a synchronous identifier waits for it. The queue pair is as for [`rdma_connect`]. EINVAL: there is no
/// connect request or no queue pair, or more than 251 bytes of private data (in strict mode, 196). ECONNRESET: the peer has closed the connection. EMFILE.
///
/// # Safety
///
/// As for rdma_accept(3).
pub unsafe fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_accept(3)).
        let own = unsafe { &IdObject::own(id).cm };
        // SAFETY: `param` is NULL or points to connection parameters (rdma_accept(3)).
        let param = unsafe { read_param(param, Carrier::Accept) }?;
        // SAFETY: `id` has not been destroyed (rdma_accept(3)).
        let qp = unsafe { queue_pair(id, own, param.qp_num) }.ok_or(libc::EINVAL)?;
        if !matches!(own.state().phase, Phase::Requested(_)) {
            return Err(libc::EINVAL);
        }
        // SAFETY: `id` has not been destroyed (rdma_accept(3)).
        unsafe { sync::prepare(id) }?;
        let (request, awaits) = {
            let mut state = own.state();
            match std::mem::replace(&mut state.phase, Phase::Ended) {
                Phase::Requested(request) => {
                    let awaits = request.frame.enhanced.is_some_and(|e| e.peer_to_peer);
                    state.phase = Phase::Accepting { awaits };
                    (request, awaits)
                }
                other => {
                    state.phase = other;
                    return Err(libc::EINVAL);
                }
            }
        };
        qp.set_ack_timeout(own.state().options.ack_timeout);
        let (reply, agreed) = negotiate::accept(&request.frame, param.offer());
        // Before the reply, with which the peer looks for the answer.
        let rings = request.offer.and_then(Offer::accept);
        let socket = request.socket.filter(|socket| send_reply(socket, &reply, &param.private_data));
        let Some(socket) = socket else {
            own.state().phase = Phase::Ended;
            return Err(libc::ECONNRESET);
        };
        let weak: Weak<Id> = Arc::downgrade(own);
        let observer: Weak<dyn ConnObserver> = weak;
        qp.connect(Stream {
            socket,
            rings,
            crc: agreed.crc,
            ord: u32::from(agreed.ord),
            role: agreed.role,
            early: Vec::new(),
            rnr_retry: param.rnr_retry,
            peer: request.peer,
            observer,
        })?;
        if !awaits {
            own.established();
        }
        Ok(())
    })();
    // SAFETY: `id` has not been destroyed, and the connection was accepted after `prepare`.
    finish(result.and_then(|()| unsafe { sync::outcome(id) }))
}

/// Rejects a connect request. EINVAL: there is no connect request, or more than 251 bytes of private data (in strict mode, 148).
///
/// # Safety
///
/// As for rdma_reject(3).
pub unsafe fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_reject(3)).
        let own = unsafe { &IdObject::own(id).cm };
        // SAFETY: `private_data` points to `len` bytes (rdma_reject(3)).
        let private_data = unsafe { read_private_data(private_data, len, Carrier::Reject) }?;
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
        request.reject(&private_data);
        Ok(())
    })();
    finish(result)
}

/// As [`rdma_reject`]; iWARP cannot tell the peer that it was for its enhanced connection establishment.
///
/// # Safety
///
/// As for rdma_reject_ece(3).
pub unsafe fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int {
    // SAFETY: rdma_reject_ece(3) asks for the same as rdma_reject(3).
    unsafe { rdma_reject(id, private_data, len) }
}

/// Completes an active connection whose queue pair is not the identifier's. With iWARP it is established already, so nothing is left to do.
/// EINVAL: the identifier has a queue pair, or no connection.
///
/// # Safety
///
/// As for rdma_establish(3).
pub unsafe fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_establish(3)).
    let (own, qp) = unsafe { (&IdObject::own(id).cm, addr_of!((*id).qp).read()) };
    let connected = matches!(own.state().phase, Phase::Connected);
    finish(if connected && qp.is_null() { Ok(()) } else { Err(libc::EINVAL) })
}

/// Takes note of an asynchronous event of the queue pair, which changes nothing: iWARP connections are established by their first message.
/// EINVAL: the identifier has neither requested nor accepted a connection.
///
/// # Safety
///
/// As for rdma_notify(3).
pub unsafe fn rdma_notify(id: *mut rdma_cm_id, _event: ibv_event_type::Type) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_notify(3)).
    let own = unsafe { &IdObject::own(id).cm };
    let none = matches!(own.state().phase, Phase::Idle | Phase::Listening(_) | Phase::Requested(_));
    finish(if none { Err(libc::EINVAL) } else { Ok(()) })
}

/// Disconnects: outstanding work requests complete with a flush error, and both sides get the DISCONNECTED event; a synchronous identifier
/// waits for it. Does nothing if the connection has already ended. EINVAL: the identifier never had a connection.
///
/// # Safety
///
/// As for rdma_disconnect(3).
pub unsafe fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_disconnect(3)).
    let own = unsafe { &IdObject::own(id).cm };
    let (qp, over) = {
        let state = own.state();
        match &state.phase {
            Phase::Accepting { .. } | Phase::Connected | Phase::BrokenEarly => (state.qp.clone(), false),
            Phase::Ended => (state.qp.clone(), true),
            _ => return finish(Err(libc::EINVAL)),
        }
    };
    // A queue pair that is destroyed has taken the connection with it, and nothing is reported.
    let reported = !over && qp.as_ref().is_some_and(|qp| !qp.is_destroyed());
    if let Some(qp) = qp {
        qp.disconnect();
    }
    // SAFETY: `id` has not been destroyed; the end of a connection that was not over is reported.
    finish(unsafe {
        if reported {
            sync::end(id)
        } else {
            sync::drain(id);
            Ok(())
        }
    })
}
