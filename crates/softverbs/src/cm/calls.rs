// SPDX-License-Identifier: BSD-3-Clause
//! The rdma_cm calls on an identifier: bind, resolve, listen, connect, accept, reject, disconnect, destroy,
//! and the options.
//!
//! Each C function in [`crate::rdma`] converts its arguments and calls one function of this file.
//! [`transport::cm`] decides in which phase a call is permitted. No call holds the identifier's lock while it
//! calls a queue pair or waits; after the lock was released, another thread may have changed the phase, so
//! each call takes what it needs out of the state in one step.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::addr;
use super::event::DatagramPath;
use super::id::{Channel, Id, Protocol};
use super::protocol::{Attempt, Params, Request};
use super::{injected, iwarp, roce};
use crate::qp::{ConnObserver, Kind, Qp};
use crate::sys::Errno;
use crate::{choice, config, instrument};
use transport::cm::{Disconnect, EventKind, Phase};
use transport::roce::cm::Terms;
use transport::roce::wire::cm::PortSpace;

/// A new identifier for queue pairs of one type. On an iWARP device all ports are those of TCP, and the type
/// is RC.
pub(crate) fn create(channel: Option<Channel>, space: PortSpace, kind: Kind) -> Arc<Id> {
    let protocol: Box<dyn Protocol> = match choice::transport() {
        config::Transport::Iwarp => Box::<iwarp::Local>::default(),
        config::Transport::Roce => Box::new(roce::Local::new(space, kind)),
    };
    Id::new(channel, protocol)
}

/// The identifier of a connect request that the program has fetched.
pub(crate) fn create_requested(
    channel: Option<Channel>,
    space: PortSpace,
    kind: Kind,
    request: Box<dyn Request>,
) -> Arc<Id> {
    let protocol: Box<dyn Protocol> = match request.exchange() {
        None => Box::<iwarp::Local>::default(),
        Some(exchange) => Box::new(roce::Local::of(space, kind, exchange, request.local())),
    };
    Id::requested(channel, protocol, request)
}

impl Id {
    /// Binds the identifier to a local address, which it keeps until it is destroyed, and returns the address
    /// with the actual port. EINVAL: the identifier is bound, listening, connecting or connected. Errors of
    /// [`Protocol::bind`].
    pub(crate) fn bind(&self, wanted: &SocketAddr) -> Result<SocketAddr, Errno> {
        let state = self.state();
        if state.phase.idle().is_err() || self.protocol().bound().is_some() {
            return Err(libc::EINVAL);
        }
        let bound = self.protocol().bind(wanted, state.options);
        // `errno` may log, which must not happen with the lock held.
        drop(state);
        bound.map_err(|refused| refused.errno(wanted))
    }

    /// The local address, if the identifier is bound.
    pub(crate) fn bound(&self) -> Option<SocketAddr> {
        self.protocol().bound()
    }

    /// Sets the remote address and the timeout for establishing the TCP connection. Returns the local
    /// address. EINVAL: the identifier is listening, connecting or connected, or is bound to an address of
    /// the other family. ENETUNREACH and other errors of connect(2): there is no route to `to`.
    pub(crate) fn resolve(&self, to: SocketAddr, timeout: Duration) -> Result<SocketAddr, Errno> {
        let mut state = self.state();
        state.phase.idle()?;
        let from = self.protocol().source(&to)?;
        if addr::family(&from) != addr::family(&to) {
            return Err(libc::EINVAL);
        }
        state.dst = Some(to);
        state.timeout = timeout;
        Ok(from)
    }

    /// Whether the identifier has a remote address.
    pub(crate) fn is_resolved(&self) -> bool {
        self.state().dst.is_some()
    }

    /// EINVAL: the identifier is not bound, or is listening, connecting or connected.
    pub(crate) fn can_listen(&self) -> Result<(), Errno> {
        let state = self.state();
        state.phase.idle()?;
        if self.protocol().bound().is_some() { Ok(()) } else { Err(libc::EINVAL) }
    }

    /// Starts listening. `backlog`: see listen(2); [`crate::limits::BACKLOG`] if it is not positive. EINVAL
    /// as for [`Id::can_listen`]. EADDRINUSE, EADDRNOTAVAIL: another identifier shares the address, which a
    /// listener must have exclusively. Other errors of listen(2), EMFILE, ENOMEM; afterwards the identifier
    /// is no longer bound.
    pub(crate) fn listen(self: &Arc<Self>, backlog: i32) -> Result<(), Errno> {
        {
            let state = self.state();
            state.phase.idle()?;
            let addr = self.protocol().bound().ok_or(libc::EINVAL)?;
            if let Err(refused) = self.protocol().claim() {
                // `errno` may log, which must not happen with the lock held.
                drop(state);
                return Err(refused.errno(&addr));
            }
        }
        let listener = self.protocol().listen(self, backlog)?;
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

    /// EINVAL: the identifier has no resolved address, or is listening, connecting or connected.
    pub(crate) fn can_connect(&self) -> Result<(), Errno> {
        let state = self.state();
        state.phase.idle()?;
        if state.dst.is_some() { Ok(()) } else { Err(libc::EINVAL) }
    }

    /// Starts connecting `qp` to the remote address; an event reports the outcome. For an identifier that is
    /// not bound, `has_source` is called with the local address before an event can be queued. EINVAL as for
    /// [`Id::can_connect`], and if the private data is too long; EMFILE, ENFILE, ENOMEM. After an error no
    /// event follows, the identifier has the queue pair that it had before, and can be connected again.
    pub(crate) fn connect(
        self: &Arc<Self>,
        qp: Option<Arc<Qp>>,
        params: Params,
        mut has_source: impl FnMut(&SocketAddr),
    ) -> Result<(), Errno> {
        let (dst, timeout, options, adopted) = {
            let mut state = self.state();
            let dst = state.dst.ok_or(libc::EINVAL)?;
            state.phase.connect()?;
            (dst, state.timeout, state.options, state.adopt(&qp))
        };
        if let Some(failed) = instrument::failed_connect(&dst) {
            return injected::start(self, failed).inspect_err(|_| self.state().not_started(adopted));
        }
        if let Some(qp) = &qp {
            qp.set_ack_timeout(options.ack_timeout);
        }
        let attempt = Attempt { qp, params, dst, timeout, options };
        let started = self.protocol().connect(self, attempt, &mut has_source);
        let mut state = self.state();
        match started {
            Ok(attempt) => {
                state.phase.started(attempt);
                Ok(())
            }
            Err(e) => {
                state.not_started(adopted);
                Err(e)
            }
        }
    }

    /// EINVAL: the identifier has no unanswered connect request.
    pub(crate) fn can_accept(&self) -> Result<(), Errno> {
        self.state().phase.requested()
    }

    /// Accepts the connect request with `qp`. EINVAL as for [`Id::can_accept`]. ECONNRESET: the peer has
    /// closed the connection. EISCONN: `qp` has had a connection, and the identifier does not keep it.
    /// EMFILE, ENOMEM. After an error the connect request is gone.
    pub(crate) fn accept(self: &Arc<Self>, qp: Option<Arc<Qp>>, params: &Params) -> Result<(), Errno> {
        let (request, awaits, ack_timeout, adopted) = {
            let mut state = self.state();
            let (request, awaits) = state.phase.accept(|request| request.is_awaited())?;
            (request, awaits, state.options.ack_timeout, state.adopt(&qp))
        };
        if let Some(qp) = &qp {
            qp.set_ack_timeout(ack_timeout);
        }
        let weak: Weak<Self> = Arc::downgrade(self);
        let observer: Weak<dyn ConnObserver> = weak;
        request.accept(observer, qp.as_deref(), params).inspect_err(|&why| {
            let mut state = self.state();
            state.phase.not_accepted();
            if adopted && why == libc::EISCONN {
                state.qp = None;
            }
        })?;
        if self.is_for_datagrams() {
            self.state().phase.answered();
        } else if !awaits {
            self.established();
        }
        Ok(())
    }

    /// Rejects the connect request. EINVAL: the identifier has no unanswered connect request.
    pub(crate) fn reject(&self, private_data: &[u8]) -> Result<(), Errno> {
        let request = self.state().phase.reject()?;
        request.reject(private_data);
        Ok(())
    }

    /// Ends the connection. Returns whether an event will report the end: it will not if the connection had
    /// already ended, if the queue pair was destroyed, which closes the connection, or if the identifier is
    /// for datagrams. `stored`: the queue pair in the C structure, which is flushed if the identifier has
    /// none, because the peer withdrew its request. EINVAL: the identifier never had a connection.
    pub(crate) fn disconnect(&self, stored: Option<Arc<Qp>>) -> Result<bool, Errno> {
        let (found, qp) = {
            let state = self.state();
            (state.phase.disconnect()?, state.qp.clone().or(stored))
        };
        // The queue pair ends first: the peer must have the acknowledgements of what this side has completed
        // before the message that ends the connection.
        let is_gone = qp.as_ref().is_none_or(|qp| qp.is_destroyed()) && self.protocol().needs_queue_pair();
        if let Some(qp) = &qp {
            qp.disconnect();
            qp.finish_step();
        }
        if found == Disconnect::Ends {
            self.protocol().disconnect();
        }
        Ok(found == Disconnect::Ends && !is_gone && !self.is_for_datagrams())
    }

    /// Rejects an unanswered request, cancels a connection attempt, and closes a connection or a listener. No
    /// further event is queued, and queued events are discarded.
    pub(crate) fn destroy(&self) {
        let (phase, qp) = {
            let mut state = self.state();
            (state.phase.destroy(), state.qp.take())
        };
        let has_begun = phase.has_begun();
        match phase {
            Phase::Listening(listener) => listener.close(),
            Phase::Connecting(Some(attempt)) => attempt.cancel(),
            Phase::Requested(request) => request.reject(&[]),
            _ => {}
        }
        // Without a connection, the program may give the queue pair to another identifier, as uDAPL does.
        if let Some(qp) = qp.filter(|_| has_begun) {
            qp.disconnect();
            // As in `disconnect`: the release may send a message.
            qp.finish_step();
        }
        self.protocol().release();
        self.leave_channel();
    }

    /// Joins a multicast group, or only determines the path to it if nothing is to be received from it.
    /// EINVAL: not an identifier for datagrams, one without a local address, or not a multicast address.
    pub(crate) fn join(&self, group: &SocketAddr, receives: bool) -> Result<DatagramPath, Errno> {
        let options = self.state().options;
        self.protocol().join(group.ip(), receives, options)
    }

    /// Leaves a multicast group. Returns whether the identifier has received from it. EADDRNOTAVAIL: it has
    /// not joined.
    pub(crate) fn leave(&self, group: &SocketAddr) -> Result<bool, Errno> {
        self.protocol().leave(group.ip())
    }

    /// Whether the identifier is for datagrams, and has no connection.
    pub(crate) fn is_for_datagrams(&self) -> bool {
        self.kind() == Kind::Ud
    }

    /// The type of the queue pairs that the identifier connects.
    pub(crate) fn kind(&self) -> Kind {
        self.protocol().kind()
    }

    /// Whether the identifier must have a queue pair to connect or to accept.
    pub(crate) fn needs_queue_pair(&self) -> bool {
        self.protocol().needs_queue_pair()
    }

    /// Completes an active connection whose queue pair the program has connected. EINVAL: the peer has not
    /// accepted, or the connection is established already.
    pub(crate) fn establish(&self) -> Result<(), Errno> {
        if self.protocol().needs_queue_pair() {
            return if self.is_connected() { Ok(()) } else { Err(libc::EINVAL) };
        }
        self.protocol().establish()?;
        // The call reports it, not an event.
        self.state().phase.report(EventKind::Established);
        Ok(())
    }

    /// The queue pair has received a packet of the peer.
    pub(crate) fn received_data(&self) {
        self.protocol().received_data();
    }

    /// The attributes of the queue pair, once the peer has sent its own.
    pub(crate) fn terms(&self) -> Option<Terms> {
        self.protocol().terms()
    }

    /// Whether the connection is established and has not ended.
    pub(crate) fn is_connected(&self) -> bool {
        self.state().phase.is_connected()
    }

    /// Whether the identifier has requested or accepted a connection, even one that has ended.
    pub(crate) fn has_begun(&self) -> bool {
        self.state().phase.has_begun()
    }

    /// The queue pair of the identifier.
    pub(crate) fn qp(&self) -> Option<Arc<Qp>> {
        self.state().qp.clone()
    }

    /// Sets or removes the queue pair of the identifier.
    pub(crate) fn set_qp(&self, qp: Option<Arc<Qp>>) {
        self.state().qp = qp;
    }

    /// Sets RDMA_OPTION_ID_TOS: the type of service or traffic class. The connections of a listener inherit
    /// it.
    pub(crate) fn set_tos(&self, tos: u8) {
        let (options, listener) = {
            let mut state = self.state();
            state.options.tos = Some(tos);
            self.protocol().apply_tos(state.options);
            (state.options, state.phase.listener().cloned())
        };
        if let Some(listener) = listener {
            listener.apply_tos(options);
        }
    }

    /// Sets RDMA_OPTION_ID_REUSEADDR. EINVAL: the identifier listens, or it is bound and `reuse` is false.
    pub(crate) fn set_reuse(&self, reuse: bool) -> Result<(), Errno> {
        let mut state = self.state();
        if state.phase.listener().is_some() || (!reuse && self.protocol().bound().is_some()) {
            return Err(libc::EINVAL);
        }
        state.options.reuse = reuse;
        if reuse {
            self.protocol().permit_reuse();
        }
        Ok(())
    }

    /// Sets RDMA_OPTION_ID_AFONLY. EINVAL: the identifier is bound, connecting or connected.
    pub(crate) fn set_only_ipv6(&self, only: bool) -> Result<(), Errno> {
        let mut state = self.state();
        if state.phase.idle().is_err() || self.protocol().bound().is_some() {
            return Err(libc::EINVAL);
        }
        state.options.only_ipv6 = Some(only);
        Ok(())
    }

    /// Sets RDMA_OPTION_ID_ACK_TIMEOUT: the `timeout` attribute of the queue pair to be connected, 4.096 us *
    /// 2^timeout. It has no effect on TCP.
    pub(crate) fn set_ack_timeout(&self, timeout: u8) {
        self.state().options.ack_timeout = timeout;
    }
}
