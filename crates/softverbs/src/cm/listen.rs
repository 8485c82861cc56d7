// SPDX-License-Identifier: BSD-3-Clause
//! The passive side of connection establishment: a listening socket, and its connections until their MPA Request is complete.
//!
//! Connections without a complete MPA Request are limited in number and in time. One that sends anything else is closed without a reply, as
//! RFC 5044 requires.
#![forbid(unsafe_code)]

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::event::Event;
use super::id::Id;
use crate::limits::{MAX_HALF_OPEN, MAX_UNFETCHED, REQUEST_TIMEOUT_S};
use crate::lock;
use crate::progress::engine::{Engine, Source};
use crate::socket::Socket;
use crate::sys::{self, Errno};
use iwarp::mpa::{self, Decoded, Frame, Kind, MAX_FRAME_LEN};
use rdma_sys::rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST;

/// For how long a listener stops accepting after accept(2) has failed, for example for want of descriptors.
const REST: Duration = Duration::from_millis(100);

/// One of a limited number of slots, released on drop.
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

/// A connect request. Dropping it closes the connection.
pub(crate) struct Request {
    pub socket: Socket,
    pub frame: Frame,
    slot: Option<Slot>,
}

impl Request {
    /// Releases the slot: the program has fetched the request.
    pub(crate) fn fetched(mut self) -> Self {
        self.slot = None;
        self
    }
}

/// A listening socket.
pub(crate) struct Listener {
    id: Weak<Id>,
    socket: Socket,
    engine: Arc<Engine>,
    token: u64,
    closed: AtomicBool,
    half_open: Arc<AtomicUsize>,
    unfetched: Arc<AtomicUsize>,
}

impl Listener {
    /// Listens on a bound socket. EADDRINUSE and other errors of listen(2).
    pub(crate) fn start(id: &Arc<Id>, socket: Socket, backlog: i32) -> Result<Arc<Self>, Errno> {
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

    /// Stops listening. Connections without a complete MPA Request are closed at their next event or timeout.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.engine.remove(self.token, self.socket.as_raw_fd());
    }

    fn watch(&self, events: u32) {
        if !self.closed.load(Ordering::Acquire) {
            // Fails only if the listener has been closed in the meantime.
            let _ = self.engine.watch(self.token, self.socket.as_raw_fd(), events);
        }
    }

    fn begin(self: &Arc<Self>, socket: Socket) {
        let Some(slot) = Slot::take(&self.half_open, MAX_HALF_OPEN) else {
            log::warn!("{MAX_HALF_OPEN} connections have not sent their MPA Request: refusing another one");
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

    fn request(&self, socket: Socket, frame: Frame, private_data: &[u8]) {
        let Some(id) = self.id.upgrade() else { return };
        if frame.markers {
            log::warn!("connect request rejected: the peer requires MPA markers, which are not supported");
            super::send_reply(&socket, &super::rejection(&frame), &[]);
            return;
        }
        let Some(slot) = Slot::take(&self.unfetched, MAX_UNFETCHED) else {
            log::warn!("the program has not fetched {MAX_UNFETCHED} connect requests: refusing another one");
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
        // A limited number, because established connections need the engine as well.
        for _ in 0..16 {
            if self.closed.load(Ordering::Acquire) {
                return;
            }
            match self.socket.accept() {
                Ok(socket) => self.begin(socket),
                Err(libc::ECONNABORTED | libc::EINTR) => {}
                Err(libc::EAGAIN) => return,
                Err(e) => {
                    let text = std::io::Error::from_raw_os_error(e);
                    log::error!("cannot accept a connection, will retry: {text}");
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
    state: Mutex<Option<(Socket, Vec<u8>, Slot)>>,
}

impl Incoming {
    /// Takes the socket, and removes it from the engine.
    fn take(&self) -> Option<Socket> {
        let (socket, _, _) = lock(&self.state).take()?;
        self.listener.engine.remove(self.token, socket.as_raw_fd());
        Some(socket)
    }

    /// Receives bytes. Returns the MPA Request and its private data when it is complete, `Ok(None)` before.
    fn receive(&self) -> Result<Option<(Frame, Vec<u8>)>, String> {
        let mut state = lock(&self.state);
        let Some((socket, bytes, _)) = &mut *state else { return Ok(None) };
        let mut chunk = [0; MAX_FRAME_LEN];
        match sys::recv(socket, &mut chunk) {
            Ok(0) => return Err("the peer closed it before its MPA Request was complete".into()),
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(libc::EAGAIN) => return Ok(None),
            Err(e) => return Err(std::io::Error::from_raw_os_error(e).to_string()),
        }
        match mpa::decode(Kind::Request, bytes) {
            Ok(Decoded::Need(_)) => Ok(None),
            Ok(Decoded::Frame { frame, private_data, consumed }) if consumed == bytes.len() => {
                Ok(Some((frame, private_data.to_vec())))
            }
            Ok(Decoded::Frame { .. }) => Err("the peer sent data before the MPA Reply".into()),
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
                log::warn!("incoming connection closed: {why}");
                self.take();
            }
        }
    }

    fn timeout(self: Arc<Self>) {
        if self.take().is_some() {
            log::warn!("incoming connection closed: no MPA Request within {REQUEST_TIMEOUT_S} s");
        }
    }
}
