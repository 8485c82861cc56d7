// SPDX-License-Identifier: BSD-3-Clause
//! Connections: listening, connecting, accepting, rejecting, disconnecting.

use libc::{c_int, c_void};
use rdma_sys::{rdma_cm_id, rdma_conn_param};
use std::sync::{Arc, Weak};

use super::finish;
use super::id::IdObject;
use super::param::{read_param, read_private_data};
use crate::cm::connect::{Attempt, Outgoing};
use crate::cm::id::{Id, Phase};
use crate::cm::listen::Listener;
use crate::cm::negotiate;
use crate::cm::{addr, send_reply};
use crate::qp::{ConnObserver, Stream};
use crate::socket::Socket;
use iwarp::mpa;

/// Listens for connect requests, which are reported as events. EINVAL: the identifier is not bound or has no event channel. EADDRINUSE,
/// EMFILE, ENOMEM.
///
/// # Safety
///
/// As for rdma_listen(3).
pub unsafe fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_listen(3)).
        let own = unsafe { &IdObject::own(id).cm };
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
        let own = unsafe { &IdObject::own(id).cm };
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
        let own = unsafe { &IdObject::own(id).cm };
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

/// Rejects a connect request. EINVAL: there is no connect request, or more than 251 bytes of private data.
///
/// # Safety
///
/// As for rdma_reject(3).
pub unsafe fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int {
    let result = (|| {
        // SAFETY: `id` is an identifier of softverbs that has not been destroyed (rdma_reject(3)).
        let own = unsafe { &IdObject::own(id).cm };
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
        request.reject(&private_data);
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
    let own = unsafe { &IdObject::own(id).cm };
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
