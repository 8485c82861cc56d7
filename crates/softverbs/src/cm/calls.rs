// SPDX-License-Identifier: BSD-3-Clause
//! The calls of rdma_cm on an identifier: binding, listening, connecting, accepting, rejecting,
//! disconnecting, its options. The C functions convert their arguments and call one function of this file;
//! which call is permitted when is in [`super::phase`].
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::binding::{Binding, Refused, permit_rebind};
use super::connect::{Attempt, Outgoing};
use super::id::Id;
use super::listen::Listener;
use super::negotiate::{self, Offer};
use super::phase::{Disconnect, Phase};
use super::{addr, offers, prepare, send_reply};
use crate::faults::{self, Event};
use crate::qp::{ConnObserver, Qp, Stream};
use crate::socket::Socket;
use crate::sys::Errno;
use transport::iwarp::wire::mpa;

/// What a program passes to rdma_connect(3) or rdma_accept(3).
pub(crate) struct Params {
    pub private_data: Vec<u8>,
    pub offer: Offer,
    /// How often a message that finds no receive is repeated.
    pub rnr_retry: u8,
}

impl Id {
    /// Binds the identifier to a local address, which it keeps until it is destroyed. EINVAL: it is bound or
    /// in use. Errors of [`Binding::new`].
    pub(crate) fn bind(&self, wanted: &SocketAddr) -> Result<SocketAddr, Errno> {
        let mut state = self.state();
        if state.phase.idle().is_err() || state.binding.is_some() {
            return Err(libc::EINVAL);
        }
        let refused = |refused: Refused| refused.errno(wanted);
        let socket = Socket::new(addr::family(wanted))?;
        state.options.apply(&socket);
        let binding = Binding::new(&socket, wanted, state.options.reuse).map_err(refused)?;
        let bound = binding.addr();
        state.socket = Some(socket);
        state.binding = Some(binding);
        Ok(bound)
    }

    /// The address that the identifier is bound to.
    pub(crate) fn bound(&self) -> Option<SocketAddr> {
        self.state().binding.as_ref().map(Binding::addr)
    }

    /// Sets the remote address and the timeout of the TCP connection; returns the local address. EINVAL: the
    /// identifier is in use, or bound to an address of another family. Errors of connect(2): there is no
    /// route.
    pub(crate) fn resolve(&self, to: SocketAddr, timeout: Duration) -> Result<SocketAddr, Errno> {
        let mut state = self.state();
        state.phase.idle()?;
        let from = match &state.binding {
            Some(binding) => binding.addr(),
            None => addr::source_for(&to)?,
        };
        if addr::family(&from) != addr::family(&to) {
            return Err(libc::EINVAL);
        }
        state.dst = Some(to);
        state.timeout = timeout;
        Ok(from)
    }

    /// The identifier has a remote address.
    pub(crate) fn is_resolved(&self) -> bool {
        self.state().dst.is_some()
    }

    /// EINVAL: the identifier is not bound, or in use.
    pub(crate) fn can_listen(&self) -> Result<(), Errno> {
        let state = self.state();
        state.phase.idle()?;
        if state.socket.is_some() { Ok(()) } else { Err(libc::EINVAL) }
    }

    /// Listens. EINVAL as for [`Id::can_listen`]; EADDRINUSE, EADDRNOTAVAIL: it shares its address, while a
    /// listener has its address alone; errors of listen(2), after which the identifier is not bound any more.
    pub(crate) fn listen(self: &Arc<Self>, backlog: i32) -> Result<(), Errno> {
        let socket = {
            let mut state = self.state();
            state.phase.idle()?;
            let binding = state.binding.as_ref().ok_or(libc::EINVAL)?;
            let addr = binding.addr();
            if let Err(refused) = binding.claim() {
                // It looks for another process at this address.
                drop(state);
                return Err(refused.errno(&addr));
            }
            state.socket.take().ok_or(libc::EINVAL)?
        };
        permit_rebind(&socket);
        let listener = Listener::start(self, socket, backlog).inspect_err(|_| self.state().binding = None)?;
        let refused = self.state().phase.listen(listener);
        refused.map_err(|listener| {
            listener.close();
            libc::EINVAL
        })
    }

    /// Whether the identifier listens.
    pub(crate) fn is_listening(&self) -> bool {
        self.state().phase.listener().is_some()
    }

    /// EINVAL: the identifier has no resolved address, or is in use.
    pub(crate) fn can_connect(&self) -> Result<(), Errno> {
        let state = self.state();
        state.phase.idle()?;
        if state.dst.is_some() { Ok(()) } else { Err(libc::EINVAL) }
    }

    /// Starts to connect `qp` to the remote address; an event reports the outcome. `has_source` is called
    /// before that, with the local address of an identifier that is not bound. EINVAL as for
    /// [`Id::can_connect`], and if there is too much private data; EMFILE, ENOMEM.
    pub(crate) fn connect(
        self: &Arc<Self>,
        qp: Arc<Qp>,
        params: Params,
        has_source: impl FnOnce(&SocketAddr),
    ) -> Result<(), Errno> {
        let (dst, timeout, bound, options) = {
            let mut state = self.state();
            let dst = state.dst.ok_or(libc::EINVAL)?;
            state.phase.connect()?;
            (dst, state.timeout, state.socket.take(), state.options)
        };
        qp.set_ack_timeout(options.ack_timeout);
        let started = (|| {
            let Params { private_data, offer, rnr_retry } = params;
            let mut request = Vec::new();
            mpa::encode(&negotiate::request(offer), &private_data, &mut request).map_err(|_| libc::EINVAL)?;
            let is_bound = bound.is_some();
            let socket = bound.map_or_else(|| Socket::new(addr::family(&dst)), Ok)?;
            if is_bound {
                permit_rebind(&socket);
            } else {
                options.apply(&socket);
            }
            let attempt = Attempt { qp, request, offer, rnr_retry, dst, timeout };
            if let Some(fault) = faults::plan().and_then(|plan| plan.event(Event::Connect)) {
                return Outgoing::start_to_fail(self, socket, attempt, fault);
            }
            prepare(&socket);
            let connected = addr::connect(&socket, &dst);
            if !is_bound && matches!(connected, Ok(()) | Err(libc::EINPROGRESS)) {
                has_source(&addr::local(&socket)?);
            }
            Outgoing::start(self, socket, connected, attempt)
        })();
        let mut state = self.state();
        match started {
            Ok(attempt) => {
                state.phase.started(attempt);
                Ok(())
            }
            Err(e) => {
                state.phase.not_started();
                // Its socket is closed: it can be bound again.
                state.binding = None;
                Err(e)
            }
        }
    }

    /// EINVAL: there is no connect request.
    pub(crate) fn can_accept(&self) -> Result<(), Errno> {
        self.state().phase.requested()
    }

    /// Accepts the connect request with `qp`. EINVAL as for [`Id::can_accept`]; ECONNRESET: the peer has
    /// closed the connection; EMFILE.
    pub(crate) fn accept(self: &Arc<Self>, qp: &Qp, params: &Params) -> Result<(), Errno> {
        let (request, awaits, ack_timeout) = {
            let mut state = self.state();
            let announced = |e: &mpa::Enhanced| e.peer_to_peer;
            let (request, awaits) =
                state.phase.accept(|request| request.frame.enhanced.as_ref().is_some_and(announced))?;
            (request, awaits, state.options.ack_timeout)
        };
        qp.set_ack_timeout(ack_timeout);
        let (reply, agreed) = negotiate::accept(&request.frame, params.offer);
        let connected = (|| {
            // Before the reply, after which the initiator looks for the answer.
            let rings = request.offer.and_then(offers::Offer::accept);
            let socket = request.socket.filter(|socket| send_reply(socket, &reply, &params.private_data));
            let weak: Weak<Self> = Arc::downgrade(self);
            let observer: Weak<dyn ConnObserver> = weak;
            qp.connect(Stream {
                socket: socket.ok_or(libc::ECONNRESET)?,
                rings,
                crc: agreed.crc,
                ord: u32::from(agreed.ord),
                role: agreed.role,
                early: Vec::new(),
                rnr_retry: params.rnr_retry,
                peer: request.peer,
                observer,
            })
        })();
        connected.inspect_err(|_| self.state().phase.not_accepted())?;
        if !awaits {
            self.established();
        }
        Ok(())
    }

    /// Rejects the connect request. EINVAL: there is none.
    pub(crate) fn reject(&self, private_data: &[u8]) -> Result<(), Errno> {
        let request = self.state().phase.reject()?;
        request.reject(private_data);
        Ok(())
    }

    /// Ends the connection. Returns whether that will be reported: not if it has ended before, nor if the
    /// queue pair was destroyed, which has taken the connection with it. EINVAL: there never was a
    /// connection.
    pub(crate) fn disconnect(&self) -> Result<bool, Errno> {
        let (found, qp) = {
            let state = self.state();
            (state.phase.disconnect()?, state.qp.clone())
        };
        let Some(qp) = qp else { return Ok(false) };
        let is_reported = found == Disconnect::Ends && !qp.is_destroyed();
        qp.disconnect();
        Ok(is_reported)
    }

    /// Ends whatever the identifier does: rejects a request, cancels an attempt, closes a connection or a
    /// listener. No event is queued any more.
    pub(crate) fn destroy(&self) {
        let (phase, qp, socket, binding) = {
            let mut state = self.state();
            (state.phase.destroy(), state.qp.take(), state.socket.take(), state.binding.take())
        };
        match phase {
            Phase::Listening(listener) => listener.close(),
            Phase::Connecting(Some(attempt)) => attempt.cancel(),
            Phase::Requested(request) => request.reject(&[]),
            _ => {}
        }
        if let Some(qp) = qp {
            qp.disconnect();
        }
        // In this order: the address is free when its socket is closed.
        drop(socket);
        drop(binding);
        self.leave_channel();
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state().phase.is_connected()
    }

    /// The identifier has requested or accepted a connection.
    pub(crate) fn has_begun(&self) -> bool {
        self.state().phase.has_begun()
    }

    /// The queue pair of the identifier.
    pub(crate) fn qp(&self) -> Option<Arc<Qp>> {
        self.state().qp.clone()
    }

    pub(crate) fn set_qp(&self, qp: Option<Arc<Qp>>) {
        self.state().qp = qp;
    }

    /// RDMA_OPTION_ID_TOS, which the connections of a listener inherit.
    pub(crate) fn set_tos(&self, tos: u8) {
        let (options, listener) = {
            let mut state = self.state();
            state.options.tos = Some(tos);
            if let Some(socket) = &state.socket {
                state.options.apply_tos(socket);
            }
            (state.options, state.phase.listener().cloned())
        };
        if let Some(listener) = listener {
            listener.apply_tos(options);
        }
    }

    /// RDMA_OPTION_ID_REUSEADDR. EINVAL: the identifier listens, or is bound and the option is taken back.
    pub(crate) fn set_reuse(&self, reuse: bool) -> Result<(), Errno> {
        let mut state = self.state();
        if state.phase.listener().is_some() || (!reuse && state.binding.is_some()) {
            return Err(libc::EINVAL);
        }
        state.options.reuse = reuse;
        if let (true, Some(binding)) = (reuse, &state.binding) {
            binding.permit_reuse();
            if let Some(socket) = &state.socket {
                permit_rebind(socket);
            }
        }
        Ok(())
    }

    /// RDMA_OPTION_ID_AFONLY. EINVAL: the identifier is bound or in use.
    pub(crate) fn set_only_ipv6(&self, only: bool) -> Result<(), Errno> {
        let mut state = self.state();
        if state.phase.idle().is_err() || state.binding.is_some() {
            return Err(libc::EINVAL);
        }
        state.options.only_ipv6 = Some(only);
        Ok(())
    }

    /// RDMA_OPTION_ID_ACK_TIMEOUT.
    pub(crate) fn set_ack_timeout(&self, timeout: u8) {
        self.state().options.ack_timeout = timeout;
    }
}
