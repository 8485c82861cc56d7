// SPDX-License-Identifier: BSD-3-Clause
//! Connecting to a peer.

use std::fmt;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rpma_core::abi::rpma_conn_private_data;
use rpma_core::conn_cfg::ConnCfg;
use rpma_core::conn_req::ConnReq;

use crate::conn::Conn;
use crate::error::{Error, ErrorKind, Result};
use crate::exposed::Offer;
use crate::link::Link;
use crate::peer::{Peer, each_address, host_and_port};
use crate::private_data;
use crate::shared::Shared;

/// The sizes of a connection's queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queues {
    pub send: u32,
    pub receive: u32,
}

impl Default for Queues {
    fn default() -> Self {
        Self { send: 64, receive: 64 }
    }
}

impl Queues {
    /// The configuration of a connection with these queues, whose completion queue cannot overflow.
    pub(crate) fn cfg(self, timeout: Option<Duration>) -> Result<Box<ConnCfg>> {
        let cfg = ConnCfg::new().map_err(|code| Error::of("a connection", code))?;
        cfg.set_sq_size(self.send);
        cfg.set_rq_size(self.receive);
        cfg.set_cq_size(self.send.saturating_add(self.receive));
        if let Some(timeout) = timeout {
            let _ = cfg.set_timeout(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1));
        }
        Ok(cfg)
    }
}

/// Sends a connection request or accepts one, with these private data.
pub(crate) fn begin(
    call: &str,
    peer: &Peer,
    request: ConnReq,
    queues: Queues,
    data: &[u8],
) -> Result<Arc<Shared>> {
    let len = u8::try_from(data.len()).map_err(|_| {
        Error::new(ErrorKind::Invalid, format_args!("{call}: {} bytes of private data; 255 fit", data.len()))
    })?;
    let data = (len > 0).then(|| rpma_conn_private_data { ptr: data.as_ptr().cast_mut().cast(), len });
    // SAFETY: the private data are readable during the call; the connection keeps the peer.
    let conn = unsafe { request.connect(data) }.map_err(|code| Error::of(call, code))?;
    Ok(Shared::new(peer.clone(), Link::new(conn)?, (queues.send, queues.receive)))
}

/// A connection attempt: awaiting it returns the [`Conn`], and so does [`wait`](Self::wait) on a thread.
#[must_use = "nothing happens before it is awaited"]
pub struct Connect {
    peer: Peer,
    to: Result<Vec<SocketAddr>>,
    queues: Queues,
    timeout: Option<Duration>,
    offers: Vec<Offer>,
    own: Vec<u8>,
    is_raw: bool,
}

impl Peer {
    /// A connection to a peer that listens at this address; no request is sent until it is awaited, or
    /// [`Connect::wait`] is called. If a name has several addresses, each is tried until one accepts.
    ///
    /// A name is resolved by this call, which blocks meanwhile: a task that must not block gives a
    /// [`SocketAddr`], or resolves the name with `tokio::net::lookup_host`.
    pub fn connect(&self, addr: impl ToSocketAddrs) -> Connect {
        Connect::new(self, addr)
    }
}

impl Connect {
    pub(crate) fn new(peer: &Peer, to: impl ToSocketAddrs) -> Self {
        let to = to.to_socket_addrs().map(Iterator::collect);
        let to =
            to.map_err(|error| Error::new(ErrorKind::Unreachable, format_args!("Peer::connect: {error}")));
        Self {
            peer: peer.clone(),
            to,
            queues: Queues::default(),
            timeout: None,
            offers: Vec::new(),
            own: Vec::new(),
            is_raw: false,
        }
    }

    /// Offers memory to the peer: its [`Conn::remote`]. A request has room for two offers and 9
    /// bytes of the program with RoCE, and for eleven with software RDMA over iWARP.
    pub fn offer(mut self, offer: Offer) -> Self {
        self.offers.push(offer);
        self
    }

    /// Bytes for the peer's program: its [`Conn::private_data`](crate::Conn::private_data).
    pub fn private_data(mut self, bytes: &[u8]) -> Self {
        self.own = bytes.to_vec();
        self
    }

    /// These bytes alone, as a program in C sends and expects them; there are no offers then. RoCE delivers
    /// 56 bytes with a request and 196 with its reply, the last of them zero.
    pub fn raw_private_data(mut self, bytes: &[u8]) -> Self {
        (self.own, self.is_raw) = (bytes.to_vec(), true);
        self
    }

    /// How many send operations (reads, writes, flushes, sends) and receives are posted at once; 64 each by
    /// default. More of them wait.
    pub fn queues(mut self, send: u32, receive: u32) -> Self {
        self.queues = Queues { send: send.max(1), receive: receive.max(1) };
        self
    }

    /// How long the address and the route may take to be resolved, in whole milliseconds; 1 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(crate) fn prepare(self) -> Result<(Vec<SocketAddr>, Attempt)> {
        let Self { peer, to, queues, timeout, offers, own, is_raw } = self;
        let data = if is_raw { own } else { private_data::encode(&offers, &own)? };
        Ok((to?, Attempt { peer, queues, timeout, data }))
    }

    /// The connection, made on this thread.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] and [`ErrorKind::Rejected`], of the last address if the name has several;
    /// [`ErrorKind::Invalid`] if the private data do not fit.
    pub fn wait(self) -> Result<Conn> {
        let (to, attempt) = self.prepare()?;
        each_address("Peer::connect", &to[..], |at| Conn::wait_established(attempt.begin(at)?))
    }

    async fn run(self) -> Result<Conn> {
        let (to, attempt) = self.prepare()?;
        let mut last = Error::new(ErrorKind::Unreachable, "Peer::connect: the name has no address");
        for at in to {
            match attempt.clone().run(at).await {
                Ok(conn) => return Ok(conn),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// What is the same for each address of a name.
#[derive(Clone)]
pub(crate) struct Attempt {
    peer: Peer,
    queues: Queues,
    timeout: Option<Duration>,
    data: Vec<u8>,
}

impl Attempt {
    /// Resolves the address and sends the request; this may take the time of the timeout.
    pub(crate) fn begin(&self, at: SocketAddr) -> Result<Arc<Shared>> {
        let cfg = self.queues.cfg(self.timeout)?;
        let (host, port) = host_and_port(at);
        let failed = |code| Error::of(format_args!("{at}: connect"), code).with(ErrorKind::Unreachable);
        // SAFETY: the connection keeps the peer; there is no shared receive queue.
        let request = unsafe { ConnReq::new(*self.peer.domain(), &host, &port, &cfg) }.map_err(failed)?;
        begin(&format!("{at}: connect"), &self.peer, *request, self.queues, &self.data)
    }

    async fn run(self, at: SocketAddr) -> Result<Conn> {
        #[cfg(feature = "tokio")]
        if tokio::runtime::Handle::try_current().is_ok() {
            let begun = tokio::task::spawn_blocking(move || self.begin(at)).await;
            let failed = |error| Error::new(ErrorKind::Closed, format_args!("Peer::connect: {error}"));
            return Conn::established(begun.map_err(failed)??).await;
        }
        Conn::established(self.begin(at)?).await
    }
}

impl IntoFuture for Connect {
    type Output = Result<Conn>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Conn>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connect({:?})", self.to)
    }
}
