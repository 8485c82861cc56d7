// SPDX-License-Identifier: BSD-3-Clause
//! The active side of connection establishment: from the TCP connection to the MPA Reply.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::addr;
use super::event::Event;
use super::id::Id;
use super::negotiate::{self, Offer, Refusal};
use super::offers::Offered;
use crate::faults::{Action, Fault};
use crate::limits::{MAX_READS, REFUSALS, REFUSED_MS};
use crate::progress::engine::{Engine, Source};
use crate::progress::timers::Timer;
use crate::qp::{ConnObserver, Qp, Stream};
use crate::socket::Socket;
use crate::sys::{self, Errno};
use crate::{config, conn, lock};
use iwarp::mpa::{self, Decoded, Frame, Kind, MAX_FRAME_LEN};
use iwarp::terminate::Terminate;
use log::Level;
use rdma_sys::rdma_cm_event_type::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE,
};

const READ: u32 = libc::EPOLLIN as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;

/// The parameters of a connection attempt.
pub(crate) struct Attempt {
    pub qp: Arc<Qp>,
    /// The encoded MPA Request.
    pub request: Vec<u8>,
    /// What the request offers.
    pub offer: Offer,
    /// How often a message that finds no receive is repeated.
    pub rnr_retry: u8,
    /// The remote address.
    pub dst: SocketAddr,
    /// The timeout of the TCP connection.
    pub timeout: Duration,
}

enum Stage {
    /// The TCP connection is being established.
    Connecting,
    /// It was refused; the next try is due at this time.
    Refused(Instant),
    /// The MPA Request has been sent.
    AwaitingReply,
    /// It fails because the fault lab says so; nothing was sent.
    Doomed,
}

struct State {
    socket: Socket,
    stage: Stage,
    deadline: Instant,
    received: Vec<u8>,
    /// How often the TCP connection was refused.
    refusals: u32,
    /// Memory that was offered to the peer, if it is on this host.
    offered: Option<Offered>,
    /// The end of the time for the TCP connection, then of that for the reply.
    timer: Option<Timer>,
    /// The time of the next try.
    next_try: Option<Timer>,
}

/// A connection attempt.
pub(crate) struct Outgoing {
    id: Weak<Id>,
    engine: Arc<Engine>,
    token: u64,
    attempt: Attempt,
    state: Mutex<Option<State>>,
}

/// The MPA Reply, and the bytes that followed it.
struct Replied {
    frame: Frame,
    private_data: Vec<u8>,
    early: Vec<u8>,
}

/// The outcome of a failed attempt.
struct ConnectFailure {
    event: u32,
    /// A negative errno.
    status: i32,
    /// Of the remote peer.
    private_data: Vec<u8>,
    /// What the remote peer did wrong, or requires and softverbs does not support.
    wrong: Option<String>,
}

impl ConnectFailure {
    fn from_errno(e: Errno) -> Self {
        let kind = match e {
            libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE => RDMA_CM_EVENT_REJECTED,
            libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN => {
                RDMA_CM_EVENT_UNREACHABLE
            }
            _ => RDMA_CM_EVENT_CONNECT_ERROR,
        };
        Self { event: kind, status: -e, private_data: Vec::new(), wrong: None }
    }
}

/// Whether this host has an RDMA device.
fn has_adapter() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

impl Outgoing {
    fn new(id: &Arc<Id>, socket: Socket, stage: Stage, attempt: Attempt) -> Result<Arc<Self>, Errno> {
        let engine = Engine::get()?;
        let state = State {
            socket,
            stage,
            deadline: Instant::now() + attempt.timeout,
            received: Vec::new(),
            refusals: 0,
            offered: None,
            timer: None,
            next_try: None,
        };
        Ok(Arc::new(Self {
            id: Arc::downgrade(id),
            token: engine.token(),
            engine,
            attempt,
            state: Mutex::new(Some(state)),
        }))
    }

    /// Starts an attempt that fails with this fault, with a socket that is not connected.
    #[cold]
    pub(crate) fn start_to_fail(
        id: &Arc<Id>,
        socket: Socket,
        attempt: Attempt,
        fault: Fault<'_>,
    ) -> Result<Arc<Self>, Errno> {
        let outgoing = Self::new(id, socket, Stage::Doomed, attempt)?;
        fault.log(format_args!("connection to {}", outgoing.attempt.dst));
        let errno = match fault.action() {
            Action::Timeout => libc::ETIMEDOUT,
            Action::Unreachable => libc::EHOSTUNREACH,
            _ => libc::ECONNREFUSED,
        };
        outgoing.engine.kick(Arc::new(ImmediateFailure { outgoing: outgoing.clone(), errno }));
        Ok(outgoing)
    }

    /// Starts with a socket that was prepared, on which connect(2) has returned `connected`.
    pub(crate) fn start(
        id: &Arc<Id>,
        socket: Socket,
        connected: Result<(), Errno>,
        attempt: Attempt,
    ) -> Result<Arc<Self>, Errno> {
        let (fd, timeout) = (socket.as_raw_fd(), attempt.timeout);
        let outgoing = Self::new(id, socket, Stage::Connecting, attempt)?;
        let engine = &outgoing.engine;
        let source: Arc<dyn Source> = outgoing.clone();
        match connected {
            // On one host it is there at once: the request need not wait for another thread.
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
            // Reported as an event, like every other outcome of an attempt.
            Err(e) => {
                engine.kick(Arc::new(ImmediateFailure { outgoing: outgoing.clone(), errno: e }));
            }
        }
        Ok(outgoing)
    }

    /// The TCP connection is there: sends the MPA Request.
    fn send_request(self: &Arc<Self>, state: &mut State) -> Result<(), Errno> {
        // The responder looks for the offer when it has the request.
        state.offered = config::get().local.then(|| Offered::send(&state.socket)).flatten();
        // The send buffer of a new connection is much larger than a frame.
        sys::send(&state.socket, &self.attempt.request)?;
        // Behind what the responder waits for.
        super::socket::limit_intervals(&state.socket);
        state.stage = Stage::AwaitingReply;
        let limit = config::get().reply_timeout;
        state.deadline = Instant::now() + limit;
        let source: Arc<dyn Source> = self.clone();
        state.timer = Some(self.engine.schedule(limit, &source));
        Ok(())
    }

    /// As [`Outgoing::send_request`], before anybody else knows of the attempt.
    fn send_at_once(self: &Arc<Self>) -> Result<(), Errno> {
        lock(&self.state).as_mut().map_or(Ok(()), |state| self.send_request(state))
    }

    /// Cancels the attempt; no event is raised.
    pub(crate) fn cancel(&self) {
        self.take();
    }

    fn take(&self) -> Option<State> {
        let state = lock(&self.state).take()?;
        self.engine.remove(self.token, state.socket.as_raw_fd());
        Some(state)
    }

    fn fail(&self, ConnectFailure { event: kind, status, private_data, wrong }: ConnectFailure) {
        let Some(state) = self.take() else { return };
        let Some(id) = self.id.upgrade() else { return };
        let mut event = Event::new(0, kind, status);
        event.private_data = private_data;
        event.reason = Some(self.report(&state.stage, -status, wrong));
        id.raise(event);
    }

    /// Tries once more, a moment later, if the TCP connection was refused: with a device a connect request takes so long that a program that
    /// closes a listener and opens the next one at the same port, as perftest does, is ready for it. False if that was the last time.
    fn tries_again(self: &Arc<Self>, errno: Errno) -> bool {
        let mut guard = lock(&self.state);
        let Some(state) = &mut *guard else { return false };
        let before_request = !matches!(state.stage, Stage::AwaitingReply | Stage::Doomed);
        if errno != libc::ECONNREFUSED || !before_request || state.refusals == REFUSALS {
            return false;
        }
        let wait = Duration::from_millis(REFUSED_MS << state.refusals);
        state.refusals += 1;
        state.stage = Stage::Refused(Instant::now() + wait);
        self.engine.remove(self.token, state.socket.as_raw_fd());
        let source: Arc<dyn Source> = self.clone();
        state.next_try = Some(self.engine.schedule(wait, &source));
        true
    }

    /// It is time for another try, if one is due.
    fn try_again(self: &Arc<Self>) {
        let tried = {
            let mut guard = lock(&self.state);
            let Some(state) = &mut *guard else { return };
            if !matches!(state.stage, Stage::Refused(at) if at <= Instant::now()) {
                return;
            }
            state.stage = Stage::Connecting;
            // The first call is told once more that the last connection has failed.
            let connected = match addr::connect(&state.socket, &self.attempt.dst) {
                Err(libc::ECONNABORTED) => addr::connect(&state.socket, &self.attempt.dst),
                first => first,
            };
            match connected {
                Ok(()) | Err(libc::EINPROGRESS) => {
                    self.engine.add(self.token, state.socket.as_raw_fd(), WRITE, self.clone())
                }
                Err(e) => Err(e),
            }
        };
        if let Err(e) = tried {
            self.failed(ConnectFailure::from_errno(e));
        }
    }

    /// The attempt has failed, unless it can be made once more.
    fn failed(self: &Arc<Self>, failure: ConnectFailure) {
        if !self.tries_again(-failure.status) {
            self.fail(failure);
        }
    }

    /// Logs the cause, which the event does not show, and gives it.
    fn report(&self, stage: &Stage, errno: Errno, wrong: Option<String>) -> String {
        let dst = self.attempt.dst;
        let text = std::io::Error::from_raw_os_error(errno);
        let (level, why) = match (stage, errno, wrong) {
            (_, _, Some(wrong)) => (Level::Warn, format!("{dst}: connect failed: {wrong}")),
            // There is no adapter to suspect on a host that is known to have none.
            (Stage::Connecting | Stage::Refused(_), libc::ECONNREFUSED, _)
                if addr::is_of_this_host(&dst) && !has_adapter() =>
            {
                (Level::Warn, format!("nothing accepts TCP connections at {dst}"))
            }
            (Stage::Connecting | Stage::Refused(_), libc::ECONNREFUSED, _) => (
                Level::Warn,
                format!(
                    "nothing accepts TCP connections at {dst}; a program there that uses an RDMA device listens on that device only"
                ),
            ),
            (Stage::Connecting | Stage::Refused(_), _, _) => {
                (Level::Warn, format!("cannot establish a TCP connection to {dst}: {text}"))
            }
            (Stage::AwaitingReply, libc::ETIMEDOUT, _) => (
                Level::Warn,
                format!("{dst} accepted the TCP connection but did not answer the MPA Request: {text}"),
            ),
            // Logged when it was decided.
            (Stage::Doomed, _, _) => {
                return format!("{dst}: connect failed: {text}, injected by SOFTVERBS_FAULTS");
            }
            // The remote program may have rejected the request, which is no reason for a warning.
            (Stage::AwaitingReply, _, _) => {
                (Level::Info, format!("{dst} did not accept the connection: {text}"))
            }
        };
        log::log!(level, peer:% = dst, operation = "connect", errno; "{why}");
        why
    }

    /// Proceeds as far as the socket permits; `Ok(Some(_))` when the MPA Reply is complete.
    fn step(self: &Arc<Self>) -> Result<Option<Replied>, ConnectFailure> {
        let mut guard = lock(&self.state);
        let Some(state) = &mut *guard else { return Ok(None) };
        if matches!(state.stage, Stage::Connecting) {
            let sent = match sys::get_option(&state.socket, libc::SOL_SOCKET, libc::SO_ERROR) {
                Ok(0) => self.send_request(state),
                Ok(e) | Err(e) => Err(e),
            };
            let fd = state.socket.as_raw_fd();
            let watched = sent.and_then(|()| self.engine.watch(self.token, fd, READ));
            return watched.map(|()| None).map_err(ConnectFailure::from_errno);
        }
        let mut chunk = [0; MAX_FRAME_LEN];
        match sys::recv(&state.socket, &mut chunk) {
            // The listener closed the connection without a reply, which rejects the request.
            Ok(0) => return Err(ConnectFailure::from_errno(libc::ECONNRESET)),
            Ok(n) => state.received.extend_from_slice(&chunk[..n]),
            Err(libc::EAGAIN) => return Ok(None),
            Err(e) => return Err(ConnectFailure::from_errno(e)),
        }
        match mpa::decode(Kind::Reply, &state.received) {
            Ok(Decoded::Need(_)) => Ok(None),
            Ok(Decoded::Frame { frame, private_data, consumed }) => {
                let private_data = private_data.to_vec();
                Ok(Some(Replied { frame, private_data, early: state.received[consumed..].to_vec() }))
            }
            Err(e) => {
                let wrong = Some(e.to_string());
                let (event, status) = (RDMA_CM_EVENT_CONNECT_ERROR, -libc::EPROTO);
                Err(ConnectFailure { event, status, private_data: Vec::new(), wrong })
            }
        }
    }

    /// Ends the attempt because of a reply; the peer is told why where there is a code for it.
    fn refuse(&self, refusal: Refusal, crc: bool, private_data: Vec<u8>) {
        let wrong = match refusal {
            Refusal::Rejected => None,
            Refusal::Markers => Some("the peer requires MPA markers, which are not supported".into()),
            Refusal::FirstMessage => Some(
                "the peer does not accept an RDMA Write as the first message, the only one that softverbs sends".into(),
            ),
            Refusal::Depth => Some(format!(
                "the peer may have more than {MAX_READS} RDMA Reads outstanding, which softverbs does not answer"
            )),
        };
        if let (Some(code), Some(state)) = (refusal.terminate(), &*lock(&self.state)) {
            // The send buffer of a new connection is much larger than this. If the peer has gone, there is nobody to be told.
            let _ = sys::send(&state.socket, &conn::terminate_fpdu(&Terminate::new(code), crc));
        }
        let (event, status) = match refusal {
            Refusal::Rejected | Refusal::Markers => (RDMA_CM_EVENT_REJECTED, -libc::ECONNREFUSED),
            Refusal::FirstMessage | Refusal::Depth => (RDMA_CM_EVENT_CONNECT_ERROR, -libc::EPROTO),
        };
        self.fail(ConnectFailure { event, status, private_data, wrong });
    }

    fn replied(&self, Replied { frame, private_data, early }: Replied) {
        let agreed = match negotiate::agree(&frame, self.attempt.offer) {
            Ok(agreed) => agreed,
            Err(refusal) => return self.refuse(refusal, frame.crc || self.attempt.offer.crc, private_data),
        };
        let offered = lock(&self.state).as_mut().and_then(|state| state.offered.take());
        let rings = match offered.map_or(Ok(None), Offered::accepted) {
            Ok(rings) => rings,
            Err(e) => return self.fail(ConnectFailure::from_errno(e)),
        };
        let Some(id) = self.id.upgrade() else { return };
        let Some(state) = self.take() else { return };
        let observer: Weak<dyn ConnObserver> = self.id.clone();
        let connected = self.attempt.qp.connect(Stream {
            socket: state.socket,
            rings,
            crc: agreed.crc,
            ord: u32::from(agreed.ord),
            role: agreed.role,
            early,
            rnr_retry: self.attempt.rnr_retry,
            peer: self.attempt.dst,
            observer,
        });
        let enhanced = frame.enhanced.unwrap_or_default();
        let mut event = match connected {
            Ok(()) => Event::new(0, RDMA_CM_EVENT_ESTABLISHED, 0),
            Err(e) => Event::new(0, RDMA_CM_EVENT_CONNECT_ERROR, -e),
        };
        event.private_data = private_data;
        event.responder_resources = u8::try_from(enhanced.ord).unwrap_or(u8::MAX);
        event.initiator_depth = u8::try_from(enhanced.ird).unwrap_or(u8::MAX);
        id.raise(event);
    }
}

impl Source for Outgoing {
    fn ready(self: Arc<Self>, _events: u32) {
        match self.step() {
            Ok(None) => {}
            Ok(Some(replied)) => self.replied(replied),
            Err(failure) => self.failed(failure),
        }
    }

    fn timeout(self: Arc<Self>) {
        let late = lock(&self.state).as_ref().is_some_and(|state| state.deadline <= Instant::now());
        if late {
            self.fail(ConnectFailure::from_errno(libc::ETIMEDOUT));
        } else {
            self.try_again();
        }
    }
}

/// Reports an attempt for which connect(2) failed immediately, or was not called, on the thread of the engine.
struct ImmediateFailure {
    outgoing: Arc<Outgoing>,
    errno: Errno,
}

impl Source for ImmediateFailure {
    fn ready(self: Arc<Self>, _events: u32) {
        self.outgoing.failed(ConnectFailure::from_errno(self.errno));
    }
}
