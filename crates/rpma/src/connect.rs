// SPDX-License-Identifier: BSD-3-Clause
//! Connecting to a peer.

use std::fmt;
use std::future::Future;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rpma_core::conn_req::ConnReq;

use crate::conn::Conn;
use crate::error::{Error, ErrorKind, Result};
use crate::exposed::Offer;
use crate::link::Link;
use crate::op::{Op, Received};
use crate::peer::{Peer, each_address, host_and_port, no_address, resolve};
use crate::pool::Pool;
use crate::private_data;
use crate::queues::Queues;
use crate::ready;
use crate::report;
use crate::shared::Shared;
use crate::work::Receive;

/// The call that errors name.
const CALL: &str = "Peer::connect";

/// The receives to post before the connection is established: a pool of buffers, and their number.
pub(crate) type Receives<'a> = Option<(&'a Pool, usize)>;

/// A connection, and the receives that were posted before it was established.
pub(crate) type Connected = (Conn, Vec<Op<Received>>);

/// A connection that is being established, and its first receives.
pub(crate) type Begun = (Arc<Shared>, Vec<Op<Received>>);

/// Sends a connection request or accepts one, with these private data.
pub(crate) fn begin(
    call: &str,
    peer: &Peer,
    request: ConnReq,
    queues: Queues,
    data: &[u8],
    receives: Receives<'_>,
) -> Result<Begun> {
    let incoming = request.is_incoming();
    // SAFETY: the connection keeps the peer.
    let conn = unsafe { request.prepare() }.map_err(|code| Error::of(call, code))?;
    let mut shared = Shared::new(peer.clone(), Link::new(conn)?, queues, incoming);
    let (pool, count) = receives.map_or((None, 0), |(pool, count)| (Some(pool), count));
    if count > queues.receive as usize {
        return Err(Error::new(
            ErrorKind::Invalid,
            format_args!("{call}: {count} receives for a queue of {}", queues.receive),
        ));
    }
    let mut made = Vec::new();
    for buf in (0..count).map(|_| pool?.try_take()) {
        let Some(to) = buf else {
            return Err(Error::new(
                ErrorKind::Invalid,
                format_args!("{call}: the pool has {} free buffers for {count} receives", made.len()),
            ));
        };
        made.push(shared.add(Receive { to }, Ok(())).map_err(|refused| refused.1)?);
    }
    shared.link.begin(call, incoming, data)?;
    let shared = Arc::new(shared);
    let receives = made.into_iter().map(|added| Op::of(&shared, added)).collect();
    Ok((shared, receives))
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

/// A connection attempt with receives that are posted before; see [`Connect::receiving`].
#[derive(Debug)]
#[must_use = "nothing happens before it is awaited"]
pub struct ConnectReceiving {
    connect: Connect,
    pool: Pool,
    count: usize,
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
        Self {
            peer: peer.clone(),
            to: resolve(CALL, &to).map(Iterator::collect),
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

    /// These bytes alone, as a program in C sends and expects them; there are no offers then. RoCE always
    /// delivers 56 bytes with a request and 196 with the reply; shorter data are padded with zeros.
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

    /// Posts `count` receives, with buffers of `pool`, before the request is sent, so that the peer can send
    /// at once. They are returned with the connection, in the order in which they were posted.
    ///
    /// ```no_run
    /// # async fn example(peer: rpma::Peer, pool: rpma::Pool) -> rpma::Result<()> {
    /// let (conn, receives) = peer.connect("192.0.2.1:7204").receiving(&pool, 8).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn receiving(self, pool: &Pool, count: usize) -> ConnectReceiving {
        ConnectReceiving { connect: self, pool: pool.clone(), count }
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
    /// [`ErrorKind::Invalid`] if the private data do not fit, or the address is not of the form `ADDR:PORT`.
    pub fn wait(self) -> Result<Conn> {
        Ok(self.wait_with(None)?.0)
    }

    fn wait_with(self, receives: Receives<'_>) -> Result<Connected> {
        let (to, attempt) = self.prepare()?;
        each_address(CALL, &to[..], |at| {
            let (shared, receives) = attempt.begin(at, receives)?;
            Ok((Conn::wait_established(shared)?, receives))
        })
    }

    async fn run(self, receives: Option<(Pool, usize)>) -> Result<Connected> {
        let (to, attempt) = self.prepare()?;
        let mut last = None;
        for at in &to {
            match attempt.clone().run(*at, receives.clone()).await {
                Ok(connected) => return Ok(connected),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| no_address(CALL)))
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
    pub(crate) fn begin(&self, at: SocketAddr, receives: Receives<'_>) -> Result<Begun> {
        let cfg = self.queues.cfg(self.timeout)?;
        let (host, port) = host_and_port(at);
        let failed = |code| Error::of(format_args!("{at}: connect"), code).with(ErrorKind::Unreachable);
        // SAFETY: the connection keeps the peer; there is no shared receive queue.
        let request = unsafe { ConnReq::new(*self.peer.domain(), &host, &port, &cfg) };
        let request = request.map_err(failed).inspect_err(|error| report::not_begun(at, error))?;
        begin(&format!("{at}: connect"), &self.peer, *request, self.queues, &self.data, receives)
            .inspect_err(|error| report::not_begun(at, error))
    }

    async fn run(self, at: SocketAddr, receives: Option<(Pool, usize)>) -> Result<Connected> {
        let begin = move || self.begin(at, receives.as_ref().map(|(pool, count)| (pool, *count)));
        let (shared, receives) = ready::unblock(begin).await??;
        Ok((Conn::established(shared).await?, receives))
    }
}

impl IntoFuture for Connect {
    type Output = Result<Conn>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Conn>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { Ok(self.run(None).await?.0) })
    }
}

impl ConnectReceiving {
    /// The connection, made on this thread.
    ///
    /// # Errors
    /// As for [`Connect::wait`]; [`ErrorKind::Invalid`] if the pool has too few free buffers, or the queue
    /// ([`Connect::queues`]) is too short.
    pub fn wait(self) -> Result<(Conn, Vec<Op<Received>>)> {
        self.connect.wait_with(Some((&self.pool, self.count)))
    }
}

impl IntoFuture for ConnectReceiving {
    type Output = Result<(Conn, Vec<Op<Received>>)>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.connect.run(Some((self.pool, self.count))))
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connect({:?})", self.to)
    }
}
