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

use crate::memory::Grant;
use crate::progress::watch::PeerNotify;
use crate::socket::Socket;
use crate::sys::Errno;
pub(crate) use arrived::Arrived;
pub(crate) use driver::Driver;
use local::Local;
pub(crate) use local::{Mine, Theirs};
pub(crate) use packets::Packets;
pub(crate) use ring::Rings;
use tcp::Tcp;
use transport::access::Access;
use transport::direct::{Part, WordAccess};
use transport::host::Served;
use transport::iwarp::link::LinkError;
use transport::wr::SendWr;

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

    /// Whether [`Link::transfer`] is possible at all.
    pub(crate) fn transfers(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Local(local) => local.transfers(),
        }
    }

    /// Carries out writes or reads as direct copies ([`transport::iwarp::link::StreamLink::transfer`]).
    pub(crate) fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize {
        match self {
            Self::Tcp(_) => 0,
            Self::Local(link) => link.transfer(remote, local),
        }
    }

    /// As [`Link::transfer`], for one request.
    #[inline]
    pub(crate) fn transfer_one(&mut self, wr: &SendWr) -> usize {
        match self {
            Self::Tcp(_) => 0,
            Self::Local(link) => link.transfer_one(wr),
        }
    }

    /// Unmaps memory of the peer whose keys it has revoked.
    #[inline]
    pub(crate) fn forget_revoked(&mut self) {
        if let Self::Local(link) = self {
            link.forget_revoked();
        }
    }

    /// Whether this side can map the memory that an access to a word needs.
    pub(crate) fn maps(&self, remote: Access) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Local(link) => link.maps(remote),
        }
    }

    /// Accesses a word of the peer's memory ([`transport::iwarp::link::StreamLink::access_word`]).
    pub(crate) fn access_word(&mut self, remote: Access, word: WordAccess) -> Option<u64> {
        match self {
            Self::Tcp(_) => None,
            Self::Local(link) => link.access_word(remote, word),
        }
    }

    /// Requests were carried out by [`Link::transfer`], [`Link::transfer_one`] or [`Link::access_word`].
    pub(crate) fn transferred(&self, operation: Served, completed: u64, bytes: u64) {
        if let Self::Local(link) = self {
            link.transferred(operation, completed, bytes);
        }
    }

    /// Whether [`Link::transfer`] is likely to succeed for this access
    /// ([`transport::iwarp::link::StreamLink::may_transfer`]).
    pub(crate) fn may_transfer(&self, remote: Access) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Local(link) => link.may_transfer(remote),
        }
    }

    /// The connection has acted on everything received so far.
    pub(crate) fn acted(&mut self) {
        if let Self::Local(local) = self {
            local.acted();
        }
    }

    /// The peer has made an access that was granted.
    pub(crate) fn granted(&mut self, access: Access, grant: &Grant) {
        if let Self::Local(local) = self {
            local.granted(access, grant);
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
