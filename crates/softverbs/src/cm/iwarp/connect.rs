// SPDX-License-Identifier: BSD-3-Clause
//! A connection attempt: the active side of connection establishment, from connect(2) to the MPA Reply.
//!
//! It is a [`Source`] of the engine and owns the socket and the timers; [`Initiator`] decides what follows
//! from each event. If connect(2) completes at once, as on one host, the MPA Request is sent on the calling
//! thread.
//!
//! Each attempt queues exactly one event, unless it is cancelled. Whoever takes [`State`] out of the mutex
//! owns the socket and removes it from the engine. An event is never queued on the thread that calls
//! rdma_connect(3): immediate failures are reported by the engine thread, too.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::offers::Offered;
use crate::choice::REMEDY;
use crate::clock::now;
use crate::cm::addr;
use crate::cm::event::{self, Event};
use crate::cm::id::{Connecting, Id};
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::progress::timers::Timer;
use crate::qp::{ConnObserver, Qp, Stream};
use crate::socket::Socket;
use crate::sys::{self, Errno};
use crate::{config, lock, port};
use log::Level;
use rdma_sys::rdma_cm_event_type::{RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_ESTABLISHED};
use rustix::net::sockopt::socket_error;
use transport::iwarp::cm::exchange::{Accepted, Failure, Initiator, Next, Stage};
use transport::iwarp::cm::negotiate::Offer;
use transport::iwarp::conn::terminate_fpdu;
use transport::iwarp::wire::mpa::MAX_FRAME_LEN;
use transport::iwarp::wire::terminate::Terminate;

const READ: u32 = libc::EPOLLIN as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;

/// The MPA handshake of a connection handshake.
pub(super) struct Handshake {
    pub qp: Arc<Qp>,
    /// The encoded MPA Request.
    pub request: Vec<u8>,
    /// The parameters that the request offers.
    pub offer: Offer,
    /// How often a message without a posted receive at the peer is retried, 0 to 7.
    pub rnr_retry: u8,
    /// The remote address.
    pub dst: SocketAddr,
    /// The time limit for establishing the TCP connection.
    pub timeout: Duration,
}

struct State {
    socket: Socket,
    exchange: Initiator,
    /// Shared memory offered to a peer on this host.
    offered: Option<Offered>,
    /// The deadline of the TCP connection, later that of the MPA Reply.
    timer: Option<Timer>,
    /// Starts the next connect(2) after a refusal.
    next_try: Option<Timer>,
}

/// A connection handshake.
pub(crate) struct Outgoing {
    id: Weak<Id>,
    engine: Arc<Engine>,
    token: u64,
    handshake: Handshake,
    state: Mutex<Option<State>>,
}

/// Whether this host has an RDMA device.
fn has_adapter() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

impl Outgoing {
    /// Starts an attempt on a prepared socket; `connected` is the result of connect(2). EMFILE, ENOMEM: the
    /// engine cannot be started or cannot watch the socket.
    pub(crate) fn start(
        id: &Arc<Id>,
        socket: Socket,
        connected: Result<(), Errno>,
        handshake: Handshake,
    ) -> Result<Arc<Self>, Errno> {
        let (fd, timeout) = (socket.as_raw_fd(), handshake.timeout);
        let exchange = Initiator::new(handshake.offer, now(), timeout, config::get().policy);
        let state = State { socket, exchange, offered: None, timer: None, next_try: None };
        let engine = Engine::get()?;
        let outgoing = Arc::new(Self {
            id: Arc::downgrade(id),
            token: engine.token(),
            engine,
            handshake,
            state: Mutex::new(Some(state)),
        });
        let engine = &outgoing.engine;
        let source: Arc<dyn Source> = outgoing.clone();
        match connected {
            // Connected at once, as on one host: send the request without waiting for the engine thread.
            Ok(()) | Err(libc::EINPROGRESS) if sys::is_writable(fd) => match outgoing.send_at_once() {
                Ok(()) => engine.add(outgoing.token, fd, READ, source)?,
                Err(e) => engine.kick(Arc::new(ImmediateFailure { outgoing: outgoing.clone(), errno: e })),
            },
            Ok(()) | Err(libc::EINPROGRESS) => {
                engine.add(outgoing.token, fd, WRITE, source.clone())?;
                if let Some(state) = &mut *lock(&outgoing.state) {
                    state.timer = Some(engine.schedule(timeout, &source));
                }
            }
            // Report it as an event, like every other outcome of an handshake.
            Err(e) => {
                engine.kick(Arc::new(ImmediateFailure { outgoing: outgoing.clone(), errno: e }));
            }
        }
        Ok(outgoing)
    }

    /// Sends the MPA Request; the TCP connection is established. On one host the offer of shared memory goes
    /// first.
    fn send_request(self: &Arc<Self>, state: &mut State) -> Result<(), Errno> {
        // The responder reads the offer when the request has arrived, so the offer must be sent first.
        state.offered = config::get().local.then(|| Offered::send(&state.socket)).flatten();
        // The send buffer of a new connection is much larger than a frame, so all of it is sent.
        sys::send(&state.socket, &self.handshake.request)?;
        // After the request, which the responder is waiting for.
        super::socket::limit_intervals(&state.socket);
        let limit = config::get().reply_timeout;
        state.exchange.sent(now(), limit);
        let source: Arc<dyn Source> = self.clone();
        state.timer = Some(self.engine.schedule(limit, &source));
        Ok(())
    }

    /// As [`Outgoing::send_request`], before the attempt is shared with the engine.
    fn send_at_once(self: &Arc<Self>) -> Result<(), Errno> {
        lock(&self.state).as_mut().map_or(Ok(()), |state| self.send_request(state))
    }

    fn take(&self) -> Option<State> {
        let state = lock(&self.state).take()?;
        self.engine.remove(self.token, state.socket.as_raw_fd());
        Some(state)
    }

    /// Ends the attempt: sends the Terminate message, if there is one, and queues the event.
    fn fail(&self, Failure { event: kind, status, private_data, wrong, terminate }: Failure) {
        let Some(state) = self.take() else { return };
        if let Some((code, crc)) = terminate {
            // The send buffer of a new connection is much larger than this. An error means that the peer has
            // closed the connection; then there is no one to terminate.
            let _ = sys::send(&state.socket, &terminate_fpdu(&Terminate::new(code), crc));
        }
        let Some(id) = self.id.upgrade() else { return };
        let mut event = Event::new(0, event::number(kind), status);
        event.private_data = private_data;
        event.reason = Some(self.report(state.exchange.stage(), -status, wrong));
        id.raise(event);
    }

    /// Carries out the next action of the exchange.
    fn proceed(self: &Arc<Self>, next: Next) {
        match next {
            Next::Wait => {}
            Next::TryAgain(after) => {
                if let Some(state) = &mut *lock(&self.state) {
                    self.engine.remove(self.token, state.socket.as_raw_fd());
                    let source: Arc<dyn Source> = self.clone();
                    state.next_try = Some(self.engine.schedule(after, &source));
                }
            }
            Next::TryNow => self.try_again(),
            Next::Established(accepted) => self.accepted(accepted),
            Next::Failed(failure) => self.fail(failure),
        }
    }

    fn try_again(self: &Arc<Self>) {
        let tried = match &*lock(&self.state) {
            None => return,
            Some(State { socket, .. }) => {
                // The first call may return the error of the previous attempt, ECONNABORTED.
                let connected = match addr::connect(socket, &self.handshake.dst) {
                    Err(libc::ECONNABORTED) => addr::connect(socket, &self.handshake.dst),
                    first => first,
                };
                match connected {
                    Ok(()) | Err(libc::EINPROGRESS) => {
                        self.engine.add(self.token, socket.as_raw_fd(), WRITE, self.clone())
                    }
                    Err(e) => Err(e),
                }
            }
        };
        if let Err(e) = tried {
            self.failed(e);
        }
    }

    /// Passes the error of a system call to the exchange.
    fn failed(self: &Arc<Self>, errno: Errno) {
        let next = match &mut *lock(&self.state) {
            Some(state) => state.exchange.failed(errno, now()),
            None => return,
        };
        self.proceed(next);
    }

    /// Logs the cause of the failure, which the fields of an event cannot carry, and returns it.
    fn report(&self, stage: Stage, errno: Errno, wrong: Option<String>) -> String {
        let dst = self.handshake.dst;
        let text = std::io::Error::from_raw_os_error(errno);
        let (level, why) = match (stage, errno, wrong) {
            (_, _, Some(wrong)) => (Level::Warn, format!("{dst}: connect failed: {wrong}")),
            (Stage::Connecting | Stage::Refused(_), libc::ECONNREFUSED, _)
                if addr::is_of_this_host(&dst) && port::is_claimed(dst) =>
            {
                let why = format!(
                    "nothing accepts TCP connections at {dst}, but a program has this port over RoCE, and this one \
                     uses iWARP; {REMEDY}"
                );
                (Level::Warn, why)
            }
            // The peer is this host and has no RDMA device, so no program can be listening on one.
            (Stage::Connecting | Stage::Refused(_), libc::ECONNREFUSED, _)
                if addr::is_of_this_host(&dst) && !has_adapter() =>
            {
                (Level::Warn, format!("nothing accepts TCP connections at {dst}"))
            }
            (Stage::Connecting | Stage::Refused(_), libc::ECONNREFUSED, _) => (
                Level::Warn,
                format!(
                    "nothing accepts TCP connections at {dst}; a program there that uses RoCE or an RDMA device listens on that only"
                ),
            ),
            (Stage::Connecting | Stage::Refused(_), _, _) => {
                (Level::Warn, format!("cannot establish a TCP connection to {dst}: {text}"))
            }
            (Stage::AwaitingReply, libc::ETIMEDOUT, _) => (
                Level::Warn,
                format!("{dst} accepted the TCP connection but did not answer the MPA Request: {text}"),
            ),
            // The remote program may have rejected the request on purpose, which does not deserve a warning.
            (Stage::AwaitingReply, _, _) => {
                (Level::Info, format!("{dst} did not accept the connection: {text}"))
            }
        };
        log::log!(level, peer:% = dst, operation = "connect", errno; "{why}");
        why
    }

    /// The socket is ready: sends the request once connected, then reads the reply.
    fn step(self: &Arc<Self>) -> Next {
        let mut guard = lock(&self.state);
        let Some(state) = &mut *guard else { return Next::Wait };
        if state.exchange.stage() == Stage::Connecting {
            let connected = sys::to_errno(socket_error(&state.socket)).and_then(sys::to_errno);
            let sent = connected.and_then(|()| self.send_request(state));
            let fd = state.socket.as_raw_fd();
            let watched = sent.and_then(|()| self.engine.watch(self.token, fd, READ));
            return watched.map_or_else(|e| state.exchange.failed(e, now()), |()| Next::Wait);
        }
        let mut chunk = [0; MAX_FRAME_LEN];
        match sys::recv(&state.socket, &mut chunk) {
            Ok(n) => state.exchange.received(&chunk[..n]),
            Err(libc::EAGAIN) => Next::Wait,
            Err(e) => state.exchange.failed(e, now()),
        }
    }

    /// The peer has accepted the request: hands the socket to the queue pair and queues the event.
    fn accepted(&self, Accepted { agreed, frame, private_data, early }: Accepted) {
        let offered = lock(&self.state).as_mut().and_then(|state| state.offered.take());
        let rings = match offered.map_or(Ok(None), Offered::accepted) {
            Ok(rings) => rings,
            Err(e) => return self.fail(e.into()),
        };
        let Some(id) = self.id.upgrade() else { return };
        let Some(state) = self.take() else { return };
        let observer: Weak<dyn ConnObserver> = self.id.clone();
        let connected = self.handshake.qp.connect(Stream {
            socket: state.socket,
            rings,
            crc: agreed.crc,
            ord: u32::from(agreed.ord),
            role: agreed.role,
            early,
            rnr_retry: self.handshake.rnr_retry,
            peer: self.handshake.dst,
            observer,
        });
        let enhanced = frame.enhanced.unwrap_or_default();
        let is_connected = connected.is_ok();
        let mut event = match connected {
            Ok(()) => Event::new(0, RDMA_CM_EVENT_ESTABLISHED, 0),
            Err(e) => Event::new(0, RDMA_CM_EVENT_CONNECT_ERROR, -e),
        };
        event.private_data = private_data;
        event.responder_resources = u8::try_from(enhanced.ord).unwrap_or(u8::MAX);
        event.initiator_depth = u8::try_from(enhanced.ird).unwrap_or(u8::MAX);
        if !id.raise(event) && is_connected {
            // The identifier was destroyed meanwhile, before the queue pair had a connection to end.
            self.handshake.qp.disconnect();
        }
    }
}

impl Connecting for Outgoing {
    /// Cancels the attempt; no event is queued.
    fn cancel(&self) {
        self.take();
    }
}

impl Source for Outgoing {
    fn ready(self: Arc<Self>, _events: u32) {
        let next = self.step();
        self.proceed(next);
    }

    fn timeout(self: Arc<Self>) {
        let next = match &mut *lock(&self.state) {
            Some(state) => state.exchange.expired(now()),
            None => return,
        };
        self.proceed(next);
    }
}

/// Reports, on the engine thread, an attempt for which connect(2) failed immediately.
struct ImmediateFailure {
    outgoing: Arc<Outgoing>,
    errno: Errno,
}

impl Source for ImmediateFailure {
    fn ready(self: Arc<Self>, _events: u32) {
        self.outgoing.failed(self.errno);
    }
}

#[cfg(test)]
mod tests;
