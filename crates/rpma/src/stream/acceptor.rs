// SPDX-License-Identifier: BSD-3-Clause
//! Accepting streams.

use std::net::SocketAddr;

use super::{Pools, QUEUE, Stream, VERSION};
use crate::error::{Error, ErrorKind, Result};
use crate::listen::{Incoming, Listener};

/// Accepts the streams of [`Stream::connect`].
#[derive(Debug)]
pub struct Acceptor(Listener);

impl Acceptor {
    /// Accepts streams, and nothing else, at the address of a listener.
    pub fn new(listener: Listener) -> Self {
        listener.set_queues(QUEUE, QUEUE);
        Self(listener)
    }

    /// The address on which it listens.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.local_addr()
    }

    /// The next stream.
    ///
    /// # Errors
    /// As for [`Listener::accept`] and [`Incoming::accept`]; [`ErrorKind::Invalid`] if the request is not for
    /// a stream, which rejects it. The acceptor can be used further.
    ///
    /// It waits for one handshake at a time, and a future that is dropped during one closes that connection.
    pub async fn accept(&self) -> Result<Stream> {
        Self::start(self.0.accept().await?).await
    }

    async fn start(incoming: Incoming) -> Result<Stream> {
        let pools = Self::prepare(&incoming)?;
        let (conn, receives) = incoming.accept_with(&[], VERSION, pools.receives()).await?;
        Ok(Stream::new(conn, receives, pools))
    }

    /// Fails if this is no request for a stream.
    fn prepare(incoming: &Incoming) -> Result<Pools> {
        if incoming.private_data() != VERSION {
            let peer = incoming.peer_addr();
            return Err(Error::new(
                ErrorKind::Invalid,
                format_args!("Acceptor::accept: {peer:?} connects, but not for a stream"),
            ));
        }
        Pools::new(incoming.peer())
    }

    /// The same on a thread.
    #[cfg(feature = "soft")]
    pub(crate) fn wait_start(incoming: Incoming) -> Result<Stream> {
        let pools = Self::prepare(&incoming)?;
        let (conn, receives) = incoming.wait_accept_with(&[], VERSION, pools.receives())?;
        Ok(Stream::new(conn, receives, pools))
    }

    #[cfg(feature = "soft")]
    pub(crate) fn listener(&self) -> &Listener {
        &self.0
    }
}
