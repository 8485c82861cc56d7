// SPDX-License-Identifier: BSD-3-Clause
//! The passive side: a listening socket, and the connections on it until their MPA Request is there.
//!
//! A stranger can make us hold a bounded number of half-open connections for a bounded time; whatever is not an MPA Request is closed
//! without an answer, as the standard has it.
#![forbid(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::event::Event;
use super::id::Id;
use crate::limits::{MAX_HALF_OPEN, MAX_UNFETCHED, REQUEST_TIMEOUT_S};
use crate::lock;
use crate::progress::engine::{Engine, Source};
use crate::sys::{self, Errno};
use iwarp::mpa::{self, Decoded, Frame, Kind, MAX_FRAME_LEN};
use rdma_sys::rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;

/// How long a listener that has run out of descriptors rests.
const REST: Duration = Duration::from_millis(100);

/// One of a limited number of places; given back when dropped.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    fn take(count: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        let taken = count.fetch_add(1, Ordering::AcqRel);
        let slot = Self(count.clone());
        (taken < limit).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A peer that asks for a connection. Dropping it closes the connection.
pub(crate) struct Request {
    pub socket: OwnedFd,
    pub frame: Frame,
    slot: Option<Slot>,
}

impl Request {
    /// The program has fetched it.
    pub(crate) fn fetched(mut self) -> Self {
        self.slot = None;
        self
    }
}

/// A listening socket.
pub(crate) struct Listener {
    id: Weak<Id>,
    socket: OwnedFd,
    engine: Arc<Engine>,
    token: u64,
    closed: AtomicBool,
    half_open: Arc<AtomicUsize>,
    unfetched: Arc<AtomicUsize>,
}

impl Listener {
    /// Listens on a bound socket. EADDRINUSE and the like.
    pub(crate) fn start(id: &Arc<Id>, socket: OwnedFd, backlog: i32) -> Result<Arc<Self>, Errno> {
        let engine = Engine::get()?;
        sys::listen(&socket, if backlog > 0 { backlog } else { MAX_HALF_OPEN as i32 })?;
        let listener = Arc::new(Self {
            id: Arc::downgrade(id),
            token: engine.token(),
            engine,
            socket,
            closed: AtomicBool::new(false),
            half_open: Arc::default(),
            unfetched: Arc::default(),
        });
        listener.engine.add(
            listener.token,
            listener.socket.as_raw_fd(),
            libc::EPOLLIN as u32,
            listener.clone(),
        )?;
        Ok(listener)
    }

    /// Ends listening. Connections without a complete request are dropped with the engine's next look at them.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.engine.remove(self.token, self.socket.as_raw_fd());
    }

    fn watch(&self, events: u32) {
        if !self.closed.load(Ordering::Acquire) {
            // Fails only when the listener was closed meanwhile.
            let _ = self.engine.watch(self.token, self.socket.as_raw_fd(), events);
        }
    }

    fn begin(self: &Arc<Self>, socket: OwnedFd) {
        let Some(slot) = Slot::take(&self.half_open, MAX_HALF_OPEN) else {
            log::warn!("more than {MAX_HALF_OPEN} connections without an MPA Request: one more refused");
            return;
        };
        super::socket::prepare(&socket);
        let fd = socket.as_raw_fd();
        let incoming = Arc::new(Incoming {
            listener: self.clone(),
            token: self.engine.token(),
            state: Mutex::new(Some((socket, Vec::with_capacity(64), slot))),
        });
        let source: Arc<dyn Source> = incoming.clone();
        if self.engine.add(incoming.token, fd, libc::EPOLLIN as u32, source.clone()).is_ok() {
            self.engine.schedule(Duration::from_secs(REQUEST_TIMEOUT_S), &source);
        }
    }

    fn request(&self, socket: OwnedFd, frame: Frame, private_data: &[u8]) {
        let Some(id) = self.id.upgrade() else { return };
        if frame.markers {
            log::warn!("a peer asks for markers, which are not supported: rejected");
            super::send_reply(&socket, &super::rejection(&frame), &[]);
            return;
        }
        let Some(slot) = Slot::take(&self.unfetched, MAX_UNFETCHED) else {
            log::warn!("{MAX_UNFETCHED} connect requests wait for the program: one more refused");
            return;
        };
        let depth = |d: u16| u8::try_from(d).unwrap_or(u8::MAX);
        let mut event = Event::new(0, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
        event.private_data = private_data.to_vec();
        if let Some(enhanced) = frame.enhanced {
            event.responder_resources = depth(enhanced.ord);
            event.initiator_depth = depth(enhanced.ird);
        }
        event.request = Some(Request { socket, frame, slot: Some(slot) });
        id.raise(event);
    }
}

impl Source for Listener {
    fn ready(self: Arc<Self>, _events: u32) {
        // A few at a time: connections that are up have work, too.
        for _ in 0..16 {
            if self.closed.load(Ordering::Acquire) {
                return;
            }
            match sys::accept(&self.socket) {
                Ok(socket) => self.begin(socket),
                Err(libc::ECONNABORTED | libc::EINTR) => {}
                Err(libc::EAGAIN) => return,
                Err(e) => {
                    let text = std::io::Error::from_raw_os_error(e);
                    log::error!("cannot take a connection, trying again later: {text}");
                    self.watch(0);
                    let source: Arc<dyn Source> = self.clone();
                    self.engine.schedule(REST, &source);
                    return;
                }
            }
        }
    }

    fn timeout(self: Arc<Self>) {
        self.watch(libc::EPOLLIN as u32);
    }
}

/// A connection whose MPA Request is not complete.
struct Incoming {
    listener: Arc<Listener>,
    token: u64,
    state: Mutex<Option<(OwnedFd, Vec<u8>, Slot)>>,
}

impl Incoming {
    /// Takes the connection out of the engine's hands.
    fn take(&self) -> Option<OwnedFd> {
        let (socket, _, _) = lock(&self.state).take()?;
        self.listener.engine.remove(self.token, socket.as_raw_fd());
        Some(socket)
    }

    /// Receives; `Ok(None)` when more must come, else the request and how its private data lies in the bytes.
    fn receive(&self) -> Result<Option<(Frame, Vec<u8>)>, String> {
        let mut state = lock(&self.state);
        let Some((socket, bytes, _)) = &mut *state else { return Ok(None) };
        let mut chunk = [0; MAX_FRAME_LEN];
        match sys::recv(socket, &mut chunk) {
            Ok(0) => return Err("it closed before its MPA Request was complete".into()),
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(libc::EAGAIN) => return Ok(None),
            Err(e) => return Err(std::io::Error::from_raw_os_error(e).to_string()),
        }
        match mpa::decode(Kind::Request, bytes) {
            Ok(Decoded::Need(_)) => Ok(None),
            Ok(Decoded::Frame { frame, private_data, consumed }) if consumed == bytes.len() => {
                Ok(Some((frame, private_data.to_vec())))
            }
            Ok(Decoded::Frame { .. }) => Err("it sent more before it was answered".into()),
            Err(e) => Err(e.to_string()),
        }
    }
}

impl Source for Incoming {
    fn ready(self: Arc<Self>, _events: u32) {
        if self.listener.closed.load(Ordering::Acquire) {
            self.take();
            return;
        }
        match self.receive() {
            Ok(None) => {}
            Ok(Some((frame, private_data))) => {
                if let Some(socket) = self.take() {
                    self.listener.request(socket, frame, &private_data);
                }
            }
            Err(why) => {
                log::warn!("a connection was closed: {why}");
                self.take();
            }
        }
    }

    fn timeout(self: Arc<Self>) {
        if self.take().is_some() {
            log::warn!("a connection was closed: no MPA Request within {REQUEST_TIMEOUT_S} s");
        }
    }
}
