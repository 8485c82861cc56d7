// SPDX-License-Identifier: BSD-3-Clause
//! The link of a connection: a TCP socket, and also shared memory if both ends are on one host.

mod ahead;
mod arrived;
mod direct;
mod driver;
mod frames;
mod linger;
mod local;
mod offers;
mod packets;
mod process;
mod ring;
mod shared;
mod tcp;

use std::sync::Weak;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use crate::progress::watch::PeerNotify;
use crate::socket::Socket;
use crate::sys::Errno;
pub(crate) use arrived::Arrived;
pub(crate) use driver::Driver;
pub(crate) use local::{Local, Mine, Theirs};
pub(crate) use packets::Packets;
pub(crate) use ring::Rings;
use tcp::Tcp;
use transport::access::Access;
use transport::direct::Part;
use transport::iwarp::link::LinkError;

/// The process exits: waits until the links that were closed have sent everything, until `deadline` at most.
pub(crate) fn drain(deadline: Instant) {
    linger::drain(deadline);
}

/// The link of a connection.
pub(crate) enum Link {
    Tcp(Tcp),
    Local(Local),
}

impl Link {
    /// Opens a link over a connected socket, and over the rings if the two ends have agreed on them.
    pub(crate) fn open(socket: Socket, rings: Option<Rings>, driver: Driver) -> Result<Self, Errno> {
        match rings {
            None => Tcp::open(socket, driver).map(Self::Tcp),
            Some(rings) => Local::open(socket, rings, driver).map(Self::Local),
        }
    }

    /// The shared memory through which the peer sends, which shows whether there is anything to receive.
    pub(crate) fn peer_notify(&self) -> Option<Weak<dyn PeerNotify>> {
        match self {
            Self::Tcp(_) => None,
            Self::Local(local) => Some(local.peer_notify()),
        }
    }

    /// Sends as much of `parts` as the link accepts. `boundary`: bytes sent later start a new TCP segment.
    pub(crate) fn send(&mut self, parts: &[Part<'_>], boundary: bool) -> Result<usize, LinkError> {
        match self {
            Self::Tcp(tcp) => tcp.send(parts, boundary),
            Self::Local(local) => local.send(parts),
        }
    }

    /// Receives bytes; 0 is the end of the stream.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        match self {
            Self::Tcp(tcp) => tcp.receive(into),
            Self::Local(local) => local.receive(into),
        }
    }

    /// As [`Link::receive`], but first into registered memory, then into `rest`.
    pub(crate) fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError> {
        match self {
            Self::Tcp(tcp) => tcp.receive_placed(to, rest),
            Self::Local(local) => local.receive_placed(to, rest),
        }
    }

    /// The memory that the two ends share.
    #[inline]
    pub(crate) fn local(&self) -> Option<&Local> {
        match self {
            Self::Tcp(_) => None,
            Self::Local(local) => Some(local),
        }
    }

    /// As [`Link::local`].
    #[inline]
    pub(crate) fn local_mut(&mut self) -> Option<&mut Local> {
        match self {
            Self::Tcp(_) => None,
            Self::Local(local) => Some(local),
        }
    }

    /// Closes the link so that the peer sees it reset.
    pub(crate) fn cut(self) {
        let socket = match &self {
            Self::Tcp(tcp) => tcp.socket(),
            Self::Local(local) => local.socket(),
        };
        let _ = set_socket_linger(socket, Some(Duration::ZERO));
        self.close(None);
    }

    /// Closes the link: with `Some`, after these bytes and the FIN have been sent ([`linger`]), else
    /// immediately.
    pub(crate) fn close(self, last: Option<&[u8]>) {
        match self {
            Self::Tcp(tcp) => tcp.close(last),
            Self::Local(local) => local.close(last),
        }
    }
}
