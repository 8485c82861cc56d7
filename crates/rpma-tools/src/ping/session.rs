// SPDX-License-Identifier: BSD-3-Clause
//! The reading side: a connection to the server, with the remote and the local memory.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::serve;
use crate::interrupt;
use crate::library::{self, Connection, Event, Library, Memory, Peer, RemoteMemory, Side, Usage};
use crate::messages::Messages;

/// The other side, connected or not.
pub(super) struct Host {
    pub(super) library: &'static Library,
    /// The library's name of the provider; None before 1.4.
    pub(super) provider: Option<String>,
    pub(super) target: SocketAddr,
    peer: Peer,
    size: usize,
    timeout: Duration,
    session: Option<Session>,
    messages: Option<Messages>,
}

/// The order of the fields ends the connection before its memory.
struct Session {
    connection: Connection,
    from: RemoteMemory,
    to: Memory,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.disconnect();
    }
}

impl Host {
    /// Sends nothing yet, except to find a route on a device.
    pub(super) fn new(target: SocketAddr, size: usize, timeout: Duration) -> Result<Self, String> {
        // Messages are not captured if the user has set RPMA_LOG.
        let messages = std::env::var_os("RPMA_LOG").is_none().then(Messages::divert);
        let library = library::for_tools()?;
        let context = library.context(&target.ip().to_string(), Side::Remote)?;
        let said = messages.as_ref().map(Messages::new_ones).unwrap_or_default();
        let provider = said.iter().find_map(|line| line.strip_prefix("provider ")?.split(' ').next());
        let provider = provider.map(str::to_owned);
        let peer = Peer::new(library, context)?;
        Ok(Self { library, provider, target, peer, size, timeout, session: None, messages })
    }

    /// Becomes readable when the connection has an event.
    pub(super) fn event_fd(&self) -> Option<RawFd> {
        self.session.as_ref()?.connection.event_fd().ok()
    }

    /// Reads once; returns the time that it took without connection set-up. `None`: it was interrupted.
    pub(super) fn read(&mut self) -> Result<Option<Duration>, String> {
        let result = self.try_read();
        if result.is_err() {
            // The next read sets up a new connection.
            self.session = None;
        }
        result
    }

    fn try_read(&mut self) -> Result<Option<Duration>, String> {
        if self.session.is_none() {
            match self.connect()? {
                Some(session) => self.session = Some(session),
                None => return Ok(None),
            }
        }
        let Some(Session { connection, from, to }) = &mut self.session else { return Ok(None) };
        // The connection may have ended since the last read.
        if let Some(event) = connection.next_event(Instant::now())? {
            return Err(event.to_string());
        }
        to.fill(&vec![0; self.size]);
        let began = Instant::now();
        connection.post_read(to, from, self.size)?;
        let completed = connection.completion(began + self.timeout)?;
        let time = began.elapsed();
        match completed {
            Some(()) if to.first(self.size) == serve::pattern(self.size) => Ok(Some(time)),
            Some(()) => Err("the data read do not match those of the other side".to_owned()),
            None if interrupt::is_pending() => Ok(None),
            None => Err(format!("no answer within {} s", self.timeout.as_secs_f64())),
        }
    }

    /// `None`: interrupted.
    fn connect(&self) -> Result<Option<Session>, String> {
        let (addr, port) = (self.target.ip().to_string(), self.target.port());
        let until = Instant::now() + self.timeout;
        // Earlier messages are not about this attempt.
        let _ = self.messages.as_ref().map(Messages::new_ones);
        let connection = self.peer.connect(&addr, port, self.timeout, &[])?;
        match connection.next_event(until)? {
            Some(Event::Established) => {}
            Some(event) => {
                let why = self.messages.as_ref().and_then(Messages::reason);
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                return Err(format!("{event}{why}"));
            }
            None if interrupt::is_pending() => return Ok(None),
            None => return Err(format!("no connection within {} s", self.timeout.as_secs_f64())),
        }
        let private_data = connection.private_data()?;
        let Some(descriptor) = private_data.strip_prefix(serve::MAGIC) else {
            return Err("it accepts connections, but is not rpma ping --serve".to_owned());
        };
        let from = RemoteMemory::new(self.library, descriptor)?;
        if from.size()? < self.size {
            return Err(format!("its memory has only {} bytes", from.size()?));
        }
        let to = Memory::new(&self.peer, self.size, Usage::READ_TARGET)?;
        Ok(Some(Session { connection, from, to }))
    }
}
