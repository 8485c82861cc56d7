// SPDX-License-Identifier: BSD-3-Clause
//! Requests that other processes pass on to a listener of this one.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use super::datagram::{Datagram, Via};
use super::drops::Reason;
use super::management::Message;
use super::service::Claim;
use super::{Port, forward, slot};
use crate::lock;
use crate::progress::source::Source;
use crate::socket::Socket;
use crate::sys::{self, Arrived, Errno};

/// Messages that are taken from the socket of a claim at a time.
const MESSAGES: usize = 32;

/// Receives requests that other processes pass on to a claim.
pub(crate) struct ListenerSocket {
    port: Weak<Port>,
    token: u64,
    /// `None`: closed.
    socket: Mutex<Option<Arc<Socket>>>,
}

impl ListenerSocket {
    /// Receives from now on, until [`ListenerSocket::close`]. ENOMEM and other errors of the engine.
    pub(crate) fn open(port: &Arc<Port>, claim: &Claim) -> Result<Arc<Self>, Errno> {
        let token = port.engine.token();
        let socket = claim.socket.clone();
        let fd = socket.as_raw_fd();
        let socket = Mutex::new(Some(socket));
        let listener = Arc::new(Self { port: Arc::downgrade(port), token, socket });
        // Counted from now on, as it is until it is dropped.
        port.listeners.fetch_add(1, Ordering::Relaxed);
        port.engine.add(token, fd, libc::EPOLLIN as u32, listener.clone())?;
        port.check();
        Ok(listener)
    }

    /// Stops receiving. The socket belongs to the claim alone afterwards, so the port is free when the claim
    /// is dropped, even if the engine still handles a message.
    pub(crate) fn close(&self) {
        let Some(socket) = lock(&self.socket).take() else { return };
        if let Some(port) = self.port.upgrade() {
            port.engine.remove(self.token, socket.as_raw_fd());
        }
    }

    /// The next message. EAGAIN: there is none. EBADF: closed.
    fn receive(&self, buffer: &mut [u8]) -> Result<Arrived, Errno> {
        lock(&self.socket).as_ref().map_or(Err(libc::EBADF), |socket| sys::receive_datagrams(socket, buffer))
    }
}

impl Drop for ListenerSocket {
    fn drop(&mut self) {
        if let Some(port) = self.port.upgrade() {
            port.listeners.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Source for ListenerSocket {
    fn ready(self: Arc<Self>, _events: u32) {
        let Some(port) = self.port.upgrade() else { return };
        let mut buffer = [0; 512];
        for _ in 0..MESSAGES {
            let Ok(arrived) = self.receive(&mut buffer) else { return };
            match port.forwarded(arrived.source, &buffer[..arrived.len]) {
                Ok(message) => port.manage(&message),
                Err(reason) => port.drops.add(reason, 1),
            }
        }
    }
}

impl Port {
    /// A message that a process of this user has passed on.
    fn forwarded(&self, from: SocketAddr, bytes: &[u8]) -> Result<Message, Reason> {
        slot::at(from).filter(|slot| self.owners.is_ours(*slot)).ok_or(Reason::Distrusted)?;
        let Some(forward::Message::Packet { source, source_port, destination, ip, datagram }) =
            forward::Message::parse(bytes)
        else {
            return Err(Reason::Malformed);
        };
        let via = Via::Listener;
        Message::copy(&Datagram { source, source_port, destination, ip, bytes: datagram, via })
            .ok_or(Reason::Malformed)
    }
}
