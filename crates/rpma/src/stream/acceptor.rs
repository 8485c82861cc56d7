// SPDX-License-Identifier: BSD-3-Clause
//! Accepting streams.
//!
//! A handshake belongs to the acceptor, not to the future that has begun it, so that futures may be dropped,
//! and a client that stalls delays no other one. Each of them wakes all futures that wait: whichever is
//! polled first takes a stream, and a dropped future takes no wake-up from another one.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::waiters::Waiters;
use super::{Pools, QUEUE, Stream, VERSION};
use crate::conn::Conn;
use crate::error::{Error, ErrorKind, Result};
use crate::listen::{Incoming, Listener};
use crate::op::{Op, Received};
use crate::ready;
use crate::shared::{Shared, State};

/// The number of handshakes at once: each has a queue pair and 560 KiB of registered memory, which a client
/// that does nothing more costs until it times out (10 s with software RDMA over iWARP).
const HANDSHAKES: usize = 32;

/// Accepts the streams of [`Stream::connect`].
///
/// Up to 32 handshakes, and streams that nobody has taken yet, are under way at once, 560 KiB of registered
/// memory each; requests beyond that wait in the [`Listener`]. So a slow client delays no other one, as long
/// as fewer than 32 are slow. They are closed with the acceptor.
#[derive(Debug)]
pub struct Acceptor {
    /// In the order in which they began.
    handshakes: Mutex<Vec<Handshake>>,
    listener: Listener,
    waiters: Arc<Waiters>,
    /// Wakes all waiters.
    waker: Waker,
}

/// A stream that is being established.
struct Handshake {
    shared: Arc<Shared>,
    receives: Vec<Op<Received>>,
    pools: Pools,
}

impl Acceptor {
    /// Accepts streams, and nothing else, at the address of a listener.
    pub fn new(listener: Listener) -> Self {
        listener.set_queues(QUEUE, QUEUE);
        let waiters = Arc::new(Waiters::default());
        let waker = Waker::from(waiters.clone());
        Self { handshakes: Mutex::default(), listener, waiters, waker }
    }

    /// The address on which it listens.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next stream, in the order in which their handshakes end. Several tasks may wait for one.
    ///
    /// A future that is dropped loses no stream: its handshakes go on, and the next call takes them.
    ///
    /// # Errors
    /// As for [`Listener::accept`] and [`Incoming::accept`]; [`ErrorKind::Invalid`] if the request is not for
    /// a stream, which rejects it. The acceptor can be used further.
    pub async fn accept(&self) -> Result<Stream> {
        let waiter = self.waiters.waiter();
        let accepted = std::future::poll_fn(|context| {
            ready::in_budget(context, |context| {
                waiter.wait(context.waker());
                self.poll()
            })
        });
        let accepted = accepted.await;
        drop(waiter);
        // There is room now, and more of them may have ended.
        self.waiters.wake_all();
        accepted
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Handshake>> {
        self.handshakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self) -> Poll<Result<Stream>> {
        if let Err(error) = self.begin_arrived() {
            return Poll::Ready(Err(error));
        }
        self.take_ended().map_or(Poll::Pending, Poll::Ready)
    }

    /// Begins the handshakes of all requests that have arrived, as far as there is room.
    fn begin_arrived(&self) -> Result<()> {
        if self.begin_prepared(None)? {
            // What this wakes may use the acceptor: it is not locked.
            self.listener.watch(&self.waker);
            self.begin_prepared(Some(&self.waker))?;
        }
        Ok(())
    }

    /// The same for requests that the listener has prepared; whether there is room for more. `waker` is woken
    /// when there is another one.
    fn begin_prepared(&self, waker: Option<&Waker>) -> Result<bool> {
        let mut handshakes = self.lock();
        while handshakes.len() < HANDSHAKES {
            let Some(incoming) = self.listener.next(waker) else { return Ok(true) };
            handshakes.push(Handshake::begin(incoming?)?);
        }
        Ok(false)
    }

    /// Takes the first handshake that has ended.
    fn take_ended(&self) -> Option<Result<Stream>> {
        loop {
            // What their progress wakes may use the acceptor: it is not locked.
            let all: Vec<_> = self.lock().iter().map(|handshake| handshake.shared.clone()).collect();
            let (shared, result) = all
                .iter()
                .find_map(|shared| Some((shared, shared.poll_until(&self.waker, State::is_established)?)))?;
            let mut handshakes = self.lock();
            let found = handshakes.iter().position(|handshake| Arc::ptr_eq(&handshake.shared, shared));
            let ended = found.map(|at| handshakes.remove(at));
            drop(handshakes);
            // Otherwise another task has taken it.
            if let Some(ended) = ended {
                return Some(result.map(|()| ended.stream()));
            }
        }
    }

    /// The stream of a request, on a thread.
    #[cfg(feature = "soft")]
    pub(crate) fn wait_start(incoming: Incoming) -> Result<Stream> {
        let handshake = Handshake::begin(incoming)?;
        handshake.shared.block_until(State::is_established)??;
        Ok(handshake.stream())
    }

    #[cfg(feature = "soft")]
    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }
}

impl Handshake {
    /// Fails if this is no request for a stream.
    fn begin(incoming: Incoming) -> Result<Self> {
        if incoming.private_data() != VERSION {
            let peer = incoming.peer_addr();
            return Err(Error::new(
                ErrorKind::Invalid,
                format_args!("Acceptor::accept: {peer:?} connects, but not for a stream"),
            ));
        }
        let pools = Pools::new(incoming.peer())?;
        let (shared, receives) = incoming.begin_with(&[], VERSION, pools.receives())?;
        Ok(Self { shared, receives, pools })
    }

    /// The stream of one that has succeeded.
    fn stream(self) -> Stream {
        Stream::new(Conn::new(self.shared), self.receives, self.pools)
    }
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handshake({:?})", self.shared.link.peer_addr())
    }
}

#[cfg(all(test, feature = "soft"))]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::time::Duration;

    use futures_lite::future::poll_once;

    use super::*;
    use crate::{Peer, Provider, private_data};

    fn acceptor() -> Acceptor {
        let peer = Peer::open("127.0.0.1:0", Provider::Soft).unwrap();
        Acceptor::new(peer.listen("127.0.0.1:0").unwrap())
    }

    /// A client that sends its request (MPA, RFC 5044 and RFC 6581) and announces a first message, which it
    /// does not send.
    fn stalled(at: SocketAddr) -> TcpStream {
        let private_data = private_data::encode(&[], VERSION).unwrap();
        let mut request = b"MPA ID Req Frame\x10\x02\0".to_vec();
        request.push((4 + private_data.len()) as u8);
        request.extend([0x80, 1, 0x80, 1]);
        request.extend(private_data);
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(&request).unwrap();
        stream
    }

    #[tokio::test]
    async fn a_future_that_is_dropped_leaves_no_waker() {
        let acceptor = acceptor();
        let (mut one, mut two) = (Box::pin(acceptor.accept()), Box::pin(acceptor.accept()));
        assert!(poll_once(&mut one).await.is_none() && poll_once(&mut two).await.is_none());
        drop(one);
        assert_eq!(acceptor.waiters.count(), 1, "the other one, of the same task, still waits");
        drop(two);
        assert_eq!(acceptor.waiters.count(), 0);
    }

    #[tokio::test]
    async fn requests_beyond_the_handshakes_at_once_wait_in_the_listener() {
        let acceptor = acceptor();
        let at = acceptor.local_addr().unwrap();
        let polled_until = |is_reached: fn(&Acceptor, usize) -> bool, number| {
            let acceptor = &acceptor;
            let polled = std::future::poll_fn(move |context| {
                assert!(acceptor.poll().is_pending());
                if is_reached(acceptor, number) {
                    return Poll::Ready(());
                }
                // The request for which there is no room wakes nobody.
                context.waker().wake_by_ref();
                Poll::Pending
            });
            tokio::time::timeout(Duration::from_secs(8), polled)
        };
        let mut clients = Vec::new();
        for number in 1..=HANDSHAKES {
            clients.push(stalled(at));
            polled_until(|acceptor, number| acceptor.lock().len() == number, number).await.unwrap();
        }
        clients.push(stalled(at));
        let waits =
            |acceptor: &Acceptor, number| acceptor.lock().len() == number && acceptor.listener.has_prepared();
        polled_until(waits, HANDSHAKES).await.expect("the last one does not wait");

        // One that ends makes room.
        drop(clients.remove(0));
        let ended = tokio::time::timeout(Duration::from_secs(8), acceptor.accept()).await;
        assert!(ended.expect("it has not ended").is_err());
        assert_eq!(acceptor.lock().len(), HANDSHAKES - 1);
        acceptor.begin_arrived().unwrap();
        assert_eq!(acceptor.lock().len(), HANDSHAKES);
        assert!(!acceptor.listener.has_prepared());
    }
}
