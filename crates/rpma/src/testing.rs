// SPDX-License-Identifier: BSD-3-Clause
//! For tests: both ends of a connection in one process, over software RDMA, with faults.
//!
//! ```
//! use rpma::ErrorKind;
//! use rpma::testing::{Faults, pair};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> rpma::Result<()> {
//! // The connection is cut at the client's 100th request.
//! let pair = pair(7, Faults::none().client("peer:kill@op=100"))?;
//! let log = pair.client.remote(0)?;
//! let mut buf = pair.peer.buf(64)?;
//! let mut written = 0;
//! let error = loop {
//!     match pair.client.write(buf, log.slice(64 * written..64 * (written + 1))?).await {
//!         Ok(back) => (buf, written) = (back, written + 1),
//!         Err(failed) => break failed.error,
//!     }
//! };
//! assert_eq!((written, error.kind()), (99, ErrorKind::Lost));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::AsFd;

use crate::conn::Conn;
use crate::connect::{Connect, Connected, Receives};
use crate::error::{Error, ErrorKind, Result};
use crate::exposed::{Access, Exposed};
use crate::listen::{Incoming, Listener};
use crate::peer::{Peer, Provider};
use crate::ready::{self, Driven};
use crate::shared::State;
#[cfg(feature = "stream")]
use crate::stream::{Acceptor, Pools, Stream};

/// The size of the memory that the server exposes.
const MEMORY: usize = 1 << 16;

/// The faults of a pair.
///
/// The rules are those of `SOFTVERBS_FAULTS` in softverbs(7), separated by `;`. Each counts the events of its
/// end of the pair, and has an effect there:
///
/// | | |
/// |---|---|
/// | `peer:kill@op=100` | the connection is cut at the 100th request |
/// | `wc:RETRY_EXC@n=5` | the fifth request fails with this status, and those behind it fail |
/// | `write:delay=2ms@p=0.1` | one write in ten, and all behind it, is delayed; so `read`, `send`, `atomic` |
/// | `connect:reject@n=1` | the attempt of the client fails; also `timeout` and `unreachable` |
#[derive(Clone, Debug, Default)]
pub struct Faults {
    client: String,
    server: String,
}

impl Faults {
    /// No faults.
    pub fn none() -> Self {
        Self::default()
    }

    /// The rules for the end that connects.
    #[must_use]
    pub fn client(self, rules: &str) -> Self {
        Self { client: rules.to_owned(), ..self }
    }

    /// The rules for the end that accepts.
    #[must_use]
    pub fn server(self, rules: &str) -> Self {
        Self { server: rules.to_owned(), ..self }
    }
}

/// Both ends of a connection. `let Pair { client, .. } = pair(..)?` drops the others: the memory is revoked
/// and the connection closed.
#[derive(Debug)]
pub struct Pair {
    /// The end that connected; its [`Conn::remote`] 0 is `memory`.
    pub client: Conn,
    /// The end that accepted.
    pub server: Conn,
    /// 64 KiB of the server: readable, writable, and flushed to visibility.
    pub memory: Exposed,
    /// The device of both ends, for buffers and for more memory.
    pub peer: Peer,
}

/// Makes both ends of a connection, over the loopback address.
///
/// Which requests the faults hit depends on the rules, the seed and the order in which each end makes its
/// operations, and on nothing else: a test that repeats its operations gets the same faults. The variable
/// `SOFTVERBS_FAULTS` has no effect on the pair.
///
/// # Errors
/// [`ErrorKind::Invalid`] if a rule is not valid; the text names it. The failure that a `connect` rule
/// injects.
pub fn pair(seed: u64, faults: Faults) -> Result<Pair> {
    let faults = Injected::new(seed, &faults)?;
    let peer = Peer::open("127.0.0.1:0", Provider::Soft)?;
    let memory = peer.expose(MEMORY, Access::READ | Access::WRITE | Access::VISIBLE)?;
    let listener = peer.listen("127.0.0.1:0")?;
    let accept = |incoming: Incoming| incoming.wait_accept(&[memory.offer()]);
    let ((client, _), server) = faults.connected(&listener, |at| peer.connect(at), None, accept)?;
    Ok(Pair { client, server, memory, peer })
}

/// Both ends of a stream, the one that connects first; otherwise as [`pair()`].
///
/// # Errors
/// As for [`pair()`].
#[cfg(feature = "stream")]
pub fn streams(seed: u64, faults: Faults) -> Result<(Stream, Stream)> {
    let faults = Injected::new(seed, &faults)?;
    let peer = Peer::open("127.0.0.1:0", Provider::Soft)?;
    let acceptor = Acceptor::new(peer.listen("127.0.0.1:0")?);
    let pools = Pools::new(&peer)?;
    let connect = |at| Stream::prepared(&peer, at);
    let (client, server) =
        faults.connected(acceptor.listener(), connect, pools.receives(), Acceptor::wait_start)?;
    Ok((Stream::new(client.0, client.1, pools), server))
}

/// The rules of both ends.
struct Injected {
    client: softverbs::Faults,
    server: softverbs::Faults,
}

impl Injected {
    fn new(seed: u64, faults: &Faults) -> Result<Self> {
        let rules = |end: &str, seed, rules: &str| {
            let invalid = |wrong| Error::new(ErrorKind::Invalid, format_args!("testing: {end}: {wrong}"));
            softverbs::Faults::new(seed, rules).map_err(invalid)
        };
        // Equal rules at both ends have different random numbers.
        Ok(Self {
            client: rules("client", seed, &faults.client)?,
            server: rules("server", !seed, &faults.server)?,
        })
    }

    /// A connection to the listener, and what `accept` makes of its other end.
    fn connected<T>(
        &self,
        listener: &Listener,
        connect: impl FnOnce(SocketAddr) -> Connect,
        receives: Receives<'_>,
        accept: impl FnOnce(Incoming) -> Result<T>,
    ) -> Result<(Connected, T)> {
        let Some(at) = listener.local_addr() else {
            return Err(Error::new(ErrorKind::Provider, "testing: the listener has no address"));
        };
        let (_, attempt) = connect(at).prepare()?;
        let (client, receives) = self.client.inject(|| attempt.begin(at, receives))?;
        let incoming = loop {
            if let Some(Err(failed)) = client.now(State::is_established) {
                return Err(failed);
            }
            if let Some(incoming) = self.server.inject(|| listener.try_accept()) {
                break incoming?;
            }
            ready::wait_for(client.fds().into_iter().chain([listener.as_fd()]))?;
        };
        let server = accept(incoming)?;
        Ok(((Conn::wait_established(client)?, receives), server))
    }
}
