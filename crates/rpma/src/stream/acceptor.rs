// SPDX-License-Identifier: BSD-3-Clause
//! Accepting streams.
//!
//! A handshake belongs to the acceptor, not to the future that has begun it, so that futures may be dropped,
//! and a client that stalls delays no other one. Each of them wakes all futures that wait: whichever is
//! polled first takes a stream, and a dropped future takes no wake-up from another one.

use std::collections::VecDeque;
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
/// At most 32 streams are being established, or are established and not yet accepted, at a time; each has 560
/// KiB of registered memory. Further requests wait in the [`Listener`]. So a slow client delays no other one,
/// as long as fewer than 32 are slow. Dropping the acceptor closes these streams.
#[derive(Debug)]
pub struct Acceptor {
    places: Mutex<Places>,
    listener: Listener,
    waiters: Arc<Waiters>,
    /// Wakes all waiters.
    waker: Waker,
}

/// The handshakes, [`HANDSHAKES`] at most.
#[derive(Debug, Default)]
struct Places {
    /// How many are begun at this moment, while this is not locked.
    beginning: usize,
    under_way: Vec<Handshake>,
    /// In the order in which they ended, until a future takes them.
    ended: VecDeque<Result<Handshake>>,
}

/// The place of a handshake while it is begun.
struct Place<'a>(&'a Acceptor);

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
        Self { places: Mutex::default(), listener, waiters, waker }
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
    /// a stream, which rejects it. The acceptor remains usable.
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

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self) -> Poll<Result<Stream>> {
        self.begin_arrived();
        self.find_ended();
        let ended = self.lock().ended.pop_front();
        ended.map_or(Poll::Pending, |ended| Poll::Ready(ended.map(Handshake::stream)))
    }

    /// Begins the handshakes of all requests that have arrived, as far as there is room.
    fn begin_arrived(&self) {
        if self.begin_prepared(None) {
            // What this wakes may use the acceptor: it is not locked.
            self.listener.watch(&self.waker);
            self.begin_prepared(Some(&self.waker));
        }
    }

    /// The same for requests that the listener has prepared; whether there is room for more. `waker` is woken
    /// when there is another one.
    fn begin_prepared(&self, waker: Option<&Waker>) -> bool {
        loop {
            let mut places = self.lock();
            if places.taken() >= HANDSHAKES {
                return false;
            }
            let Some(incoming) = self.listener.next(waker) else { return true };
            places.beginning += 1;
            drop(places);
            let _place = Place(self);
            // This takes time, and a subscriber to its reports may use the acceptor: it is not locked.
            let begun = incoming.and_then(Handshake::begin);
            let mut places = self.lock();
            match begun {
                Ok(handshake) => places.under_way.push(handshake),
                Err(error) => places.ended.push_back(Err(error)),
            }
        }
    }

    /// Finds the handshakes that have ended. The others wake all waiters when they do.
    fn find_ended(&self) {
        // What their progress wakes may use the acceptor: it is not locked.
        let all: Vec<_> = self.lock().under_way.iter().map(|handshake| handshake.shared.clone()).collect();
        for shared in &all {
            if let Some(result) = shared.poll_until(&self.waker, State::is_established) {
                let failed = self.lock().end(shared, result);
                // So may a subscriber to the end of its span.
                drop(failed);
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

impl Places {
    /// How many are not free.
    fn taken(&self) -> usize {
        self.beginning + self.under_way.len() + self.ended.len()
    }

    /// A handshake has ended, unless another task has seen it before. Returns one that has failed, to be
    /// dropped when this is unlocked.
    fn end(&mut self, shared: &Arc<Shared>, result: Result<()>) -> Option<Handshake> {
        let at = self.under_way.iter().position(|handshake| Arc::ptr_eq(&handshake.shared, shared))?;
        let handshake = self.under_way.remove(at);
        let (ended, failed) = match result {
            Ok(()) => (Ok(handshake), None),
            Err(error) => (Err(error), Some(handshake)),
        };
        self.ended.push_back(ended);
        failed
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.lock().beginning -= 1;
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
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use futures_lite::future::poll_once;

    use super::*;
    use crate::{Peer, Provider, private_data};

    fn acceptor() -> Acceptor {
        let peer = Peer::open("127.0.0.1:0", Provider::Soft).unwrap();
        Acceptor::new(peer.listen("127.0.0.1:0").unwrap())
    }

    /// A client that sends a request (MPA, RFC 5044 and RFC 6581) and announces a first message, which it
    /// does not send.
    fn stalled(at: SocketAddr, version: &[u8]) -> TcpStream {
        let private_data = private_data::encode(&[], version).unwrap();
        let mut request = b"MPA ID Req Frame\x10\x02\0".to_vec();
        request.push((4 + private_data.len()) as u8);
        request.extend([0x80, 1, 0x80, 1]);
        request.extend(private_data);
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(&request).unwrap();
        stream
    }

    #[tokio::test]
    async fn requests_for_something_else_do_not_keep_back_a_stream() {
        let acceptor = acceptor();
        let at = acceptor.local_addr().unwrap();
        let mut client = stalled(at, VERSION);
        while acceptor.lock().taken() == 0 {
            assert!(poll_once(acceptor.accept()).await.is_none());
        }
        // Its first message: an RDMA write without data, of DDP and RDMAP version 1, without CRC.
        client.read_exact(&mut [0; 20]).unwrap();
        let mut message = vec![0, 14, 0xc1, 0x40];
        message.extend([0; 16]);
        client.write_all(&message).unwrap();
        let mut others = Vec::new();
        let accepts = async {
            loop {
                // There is always another one.
                others.push(stalled(at, b"other"));
                while !acceptor.listener.has_prepared() {
                    acceptor.listener.process();
                    tokio::task::yield_now().await;
                }
                if acceptor.accept().await.is_ok() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(8), accepts).await.expect("the stream is not returned");
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
                // A request that waits for room wakes no task, so this one polls.
                context.waker().wake_by_ref();
                Poll::Pending
            });
            tokio::time::timeout(Duration::from_secs(8), polled)
        };
        let mut clients = Vec::new();
        for number in 1..=HANDSHAKES {
            clients.push(stalled(at, VERSION));
            polled_until(|acceptor, number| acceptor.lock().taken() == number, number).await.unwrap();
        }
        clients.push(stalled(at, VERSION));
        let waits = |acceptor: &Acceptor, number| {
            acceptor.lock().taken() == number && acceptor.listener.has_prepared()
        };
        polled_until(waits, HANDSHAKES).await.expect("the last one does not wait");

        // One that ends makes room.
        drop(clients.remove(0));
        let ended = tokio::time::timeout(Duration::from_secs(8), acceptor.accept()).await;
        assert!(ended.expect("it has not ended").is_err());
        assert_eq!(acceptor.lock().taken(), HANDSHAKES - 1);
        acceptor.begin_arrived();
        assert_eq!(acceptor.lock().taken(), HANDSHAKES);
        assert!(!acceptor.listener.has_prepared());
    }
}
