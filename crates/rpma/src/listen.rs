// SPDX-License-Identifier: BSD-3-Clause
//! Listening, and the requests that arrive.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use rpma_core::conn_req::ConnReq;
use rpma_core::ep::Ep;
use rpma_core::error::Error as Code;

use crate::conn::Conn;
use crate::connect::{Begun, Receives, begin};
use crate::error::{Error, ErrorKind, Result};
use crate::exposed::Offer;
use crate::link;
use crate::op::{Op, Received};
use crate::peer::{Peer, each_address, host_and_port};
use crate::pool::Pool;
use crate::private_data;
use crate::queues::Queues;
use crate::ready::{self, Driven, Registration};
use crate::remote::Remote;

/// Connection requests at an address. It listens until it and its [`Incoming`] are dropped; pending
/// requests are then rejected.
pub struct Listener(Arc<Listening>);

struct Listening {
    registration: Registration,
    state: Mutex<State>,
    ep: Endpoint,
    peer: Peer,
}

struct State {
    queues: Queues,
    arrived: VecDeque<Result<Request>>,
    waiting: Vec<Waker>,
}

/// The number of requests that are prepared before the program accepts them: each has a queue pair. The
/// provider keeps and limits the others.
const MOST: usize = 32;

struct Endpoint(Box<Ep>);

// SAFETY: its objects are those of rdma_cm. librdmacm does not document that threads may use them at once
// (THREAD_SAFETY.md), but it locks what they share: the table of identifiers, and the devices (cma.c).
unsafe impl Send for Endpoint {}
// SAFETY: as above.
unsafe impl Sync for Endpoint {}

struct Request(Box<ConnReq>);

// SAFETY: as above; a request has one owner.
unsafe impl Send for Request {}
// SAFETY: as above; through a shared reference its constant private data alone are read.
unsafe impl Sync for Request {}

impl Listening {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next request; without one, `waker` is woken when one arrives.
    fn next(&self, waker: Option<&Waker>) -> Option<(Result<Request>, Queues)> {
        let mut state = self.lock();
        let next = state.arrived.pop_front();
        if let (None, Some(waker)) = (&next, waker) {
            if !state.waiting.iter().any(|known| known.will_wake(waker)) {
                state.waiting.push(waker.clone());
            }
        }
        next.map(|next| (next, state.queues))
    }
}

impl Driven for Listening {
    fn drive(&self) {
        let mut state = self.lock();
        let before = state.arrived.len();
        while state.arrived.len() < MOST {
            let cfg = match state.queues.cfg(None) {
                Ok(cfg) => cfg,
                Err(error) => {
                    state.arrived.push_back(Err(error));
                    break;
                }
            };
            // SAFETY: the connection keeps the peer; there is no shared receive queue.
            match unsafe { self.ep.0.next_conn_req(&cfg) } {
                Ok(Ok(request)) => state.arrived.push_back(Ok(Request(request))),
                // It was rejected already.
                Ok(Err(_)) => {}
                Err(Code::NoEvent) => break,
                Err(code) => {
                    state.arrived.push_back(Err(Error::of("Listener::accept", code)));
                    break;
                }
            }
        }
        let has_more = state.arrived.len() > before;
        drop(state);
        if has_more {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        for waker in waiting {
            waker.wake();
        }
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        // SAFETY: open as long as the endpoint.
        vec![unsafe { BorrowedFd::borrow_raw(self.ep.0.fd()) }]
    }

    fn registration(&self) -> &Registration {
        &self.registration
    }
}

impl Peer {
    /// Listens for connections at a local address; port 0 is a free one, which [`Listener::local_addr`] says.
    ///
    /// # Errors
    /// [`ErrorKind::Provider`], with the reason of the system: for example an address in use;
    /// [`ErrorKind::Invalid`] and [`ErrorKind::Unreachable`] as for [`Self::open`].
    pub fn listen(&self, addr: impl ToSocketAddrs) -> Result<Listener> {
        each_address("Peer::listen", addr, |at| Listener::new(self, at))
    }
}

impl Listener {
    pub(crate) fn new(peer: &Peer, at: SocketAddr) -> Result<Self> {
        let (host, port) = host_and_port(at);
        // SAFETY: the listener keeps the peer.
        let ep = unsafe { Ep::listen(*peer.domain(), &host, &port) };
        let ep = ep.map_err(|code| Error::of(format_args!("Peer::listen({at})"), code))?;
        let state = State { queues: Queues::default(), arrived: VecDeque::new(), waiting: Vec::new() };
        let listening = Listening {
            registration: Registration::default(),
            state: Mutex::new(state),
            ep: Endpoint(ep),
            peer: peer.clone(),
        };
        for fd in listening.fds() {
            rustix::io::ioctl_fionbio(fd, true).map_err(|errno| {
                Error::new(ErrorKind::Provider, format_args!("Peer::listen({at}): {errno}"))
            })?;
        }
        Ok(Self(Arc::new(listening)))
    }

    /// The address on which it listens.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.ep.0.local_addr()
    }

    /// The queues of the connections whose requests arrive from now on; see
    /// [`Connect::queues`](crate::Connect::queues).
    pub fn set_queues(&self, send: u32, receive: u32) {
        self.0.lock().queues = Queues { send: send.max(1), receive: receive.max(1) };
    }

    fn incoming(&self, (request, queues): (Result<Request>, Queues)) -> Result<Incoming> {
        let request = request?;
        // SAFETY: the bytes are valid as long as the request, and are not written.
        let (remotes, own) = private_data::decode(unsafe { link::bytes_of(request.0.private_data()) });
        let (listening, own) = (self.0.clone(), own.into());
        Ok(Incoming { request, listening, queues, remotes, own })
    }

    /// The next request.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] and [`ErrorKind::Provider`] if a connection could not be prepared; its
    /// request was rejected. The listener remains usable.
    pub async fn accept(&self) -> Result<Incoming> {
        let next = poll_fn(|context| {
            ready::in_budget(context, |context| {
                let next = self.next(Some(context.waker())).or_else(|| {
                    self.watch(context.waker());
                    self.next(Some(context.waker()))
                });
                next.map_or(Poll::Pending, Poll::Ready)
            })
        });
        next.await
    }

    /// Takes a request that was prepared; without one, `waker` is woken when there is one.
    pub(crate) fn next(&self, waker: Option<&Waker>) -> Option<Result<Incoming>> {
        Some(self.incoming(self.0.next(waker)?))
    }

    /// Whether there is one that was prepared.
    #[cfg(all(test, feature = "soft", feature = "stream"))]
    pub(crate) fn has_prepared(&self) -> bool {
        !self.0.lock().arrived.is_empty()
    }

    /// Prepares the requests that have arrived, now and from now on; see [`ready::watch`].
    pub(crate) fn watch(&self, waker: &Waker) {
        ready::watch(&self.0, waker);
    }

    /// The same on a thread.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept).
    pub fn wait_accept(&self) -> Result<Incoming> {
        self.incoming(ready::block_on(&*self.0, |waker| self.0.next(Some(waker)))?)
    }

    /// The next request, if one has arrived.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept).
    pub fn try_accept(&self) -> Option<Result<Incoming>> {
        self.0.drive();
        self.next(None)
    }

    /// Takes the requests that arrived; for programs without a runtime, when the descriptor is readable.
    pub fn process(&self) {
        self.0.drive();
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the endpoint.
        unsafe { BorrowedFd::borrow_raw(self.0.ep.0.fd()) }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.local_addr() {
            Some(at) => write!(f, "Listener({at})"),
            None => f.write_str("Listener"),
        }
    }
}

/// A request for a connection. Dropping it rejects it.
#[must_use = "dropping it rejects it"]
// The identifier of a request uses the event channel of its listener until it is accepted or destroyed, so
// the order of the fields is the order of tear-down.
pub struct Incoming {
    request: Request,
    listening: Arc<Listening>,
    queues: Queues,
    remotes: Vec<Remote>,
    own: Box<[u8]>,
}

impl Incoming {
    /// The address of the peer.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.request.0.peer_addr()
    }

    /// The bytes that the peer's program sent, besides its offers.
    pub fn private_data(&self) -> &[u8] {
        &self.own
    }

    /// The memory that the peer offers.
    pub fn remotes(&self) -> &[Remote] {
        &self.remotes
    }

    fn begin(self, data: &[u8], receives: Receives<'_>) -> Result<Begun> {
        let Self { request, listening, queues, .. } = self;
        begin("Incoming::accept", &listening.peer, *request.0, queues, data, receives)
    }

    /// Accepts it, and offers memory: the [`Conn::remote`] of the peer. Eight offers fit with RoCE.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] or [`ErrorKind::Provider`] if the peer is gone; [`ErrorKind::Invalid`] if the
    /// offers do not fit, which rejects it.
    pub async fn accept(self, offers: &[Offer]) -> Result<Conn> {
        Ok(self.accept_with(offers, &[], None).await?.0)
    }

    /// The same on a thread.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept).
    pub fn wait_accept(self, offers: &[Offer]) -> Result<Conn> {
        Ok(self.wait_accept_with(offers, &[], None)?.0)
    }

    /// Posts `count` receives, with buffers of `pool`, then accepts the request, so that the peer can send at
    /// once. They are returned with the connection, in the order in which they were posted.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept); [`ErrorKind::Invalid`] if the pool has too few free buffers, or the
    /// queue ([`Listener::set_queues`]) is too short, which rejects it.
    pub async fn accept_receiving(
        self,
        offers: &[Offer],
        pool: &Pool,
        count: usize,
    ) -> Result<(Conn, Vec<Op<Received>>)> {
        self.accept_with(offers, &[], Some((pool, count))).await
    }

    /// Posts the receives and accepts it, without waiting until the connection is established.
    pub(crate) fn begin_with(self, offers: &[Offer], own: &[u8], receives: Receives<'_>) -> Result<Begun> {
        self.begin(&private_data::encode(offers, own)?, receives)
    }

    async fn accept_with(
        self,
        offers: &[Offer],
        own: &[u8],
        receives: Receives<'_>,
    ) -> Result<(Conn, Vec<Op<Received>>)> {
        let (shared, receives) = self.begin_with(offers, own, receives)?;
        Ok((Conn::established(shared).await?, receives))
    }

    #[cfg(feature = "stream")]
    pub(crate) fn peer(&self) -> &Peer {
        &self.listening.peer
    }

    /// The same on a thread.
    ///
    /// # Errors
    /// As for [`accept_receiving`](Self::accept_receiving).
    pub fn wait_accept_receiving(
        self,
        offers: &[Offer],
        pool: &Pool,
        count: usize,
    ) -> Result<(Conn, Vec<Op<Received>>)> {
        self.wait_accept_with(offers, &[], Some((pool, count)))
    }

    pub(crate) fn wait_accept_with(
        self,
        offers: &[Offer],
        own: &[u8],
        receives: Receives<'_>,
    ) -> Result<(Conn, Vec<Op<Received>>)> {
        let (shared, receives) = self.begin_with(offers, own, receives)?;
        Ok((Conn::wait_established(shared)?, receives))
    }

    /// Accepts it with these bytes alone, as a program in C expects them.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept).
    pub async fn accept_raw(self, private_data: &[u8]) -> Result<Conn> {
        Conn::established(self.begin(private_data, None)?.0).await
    }

    /// The same on a thread.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept).
    pub fn wait_accept_raw(self, private_data: &[u8]) -> Result<Conn> {
        Conn::wait_established(self.begin(private_data, None)?.0)
    }

    /// Rejects it: the peer's attempt fails with [`ErrorKind::Rejected`]. So does dropping it.
    pub fn reject(self) {}
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({:?})", self.peer_addr())
    }
}

#[cfg(all(test, feature = "soft"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Provider;

    #[test]
    fn a_connection_that_its_peer_has_closed_is_accepted_with_what_arrived() {
        let peer = Peer::open("127.0.0.1:0", Provider::Soft).unwrap();
        let listener = peer.listen("127.0.0.1:0").unwrap();
        let (at, client) = (listener.local_addr().unwrap(), peer.clone());
        let client = std::thread::spawn(move || {
            let conn = client.connect(at).wait().unwrap();
            conn.send(client.buf(8).unwrap()).wait().unwrap();
        });
        let incoming = listener.wait_accept().unwrap();
        let pool = peer.pool(8, 1).unwrap();
        let (shared, mut receives) = incoming.begin_with(&[], &[], Some((&pool, 1))).unwrap();
        client.join().unwrap();
        // Both events are there before this side takes the first one.
        while shared.link.ending().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _conn = Conn::wait_established(shared).unwrap();
        assert_eq!(receives.remove(0).wait().unwrap().len, 8);
    }
}
