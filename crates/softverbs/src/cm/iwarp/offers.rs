// SPDX-License-Identifier: BSD-3-Clause
//! Offers of shared memory: how the two ends of a connection on one host agree on memory to share. The TCP
//! connection carries the same bytes as with any other peer.
//!
//! A listener also listens on a Unix socket, in a directory of its user and under a name derived from its TCP
//! address ([`rendezvous`]). An initiator whose TCP connection is established and leads to its own host
//! connects to that socket before it sends the MPA Request. If there is no such socket, the connection uses
//! TCP. Otherwise the initiator sends an offer with two descriptors, the memory and its TCP socket. The
//! responder takes the offer when the MPA Request is complete, and answers it before it sends the MPA Reply.
//! So when the initiator has the reply, it also has the answer; if there is no answer, both sides use TCP.
//!
//! Each side authenticates the other. The process at the other end of the Unix socket must belong to the same
//! user, according to the kernel (SO_PEERCRED), and prove that it may inspect this process ([`Evidence`]):
//! the initiator in the offer, the responder in the answer. An offer applies to the connection of which its
//! TCP socket is the other end; only the initiator of that connection can have this descriptor. The memory
//! must have the form that an initiator creates. An offer that fails a check is closed, and its connection
//! uses TCP. The TCP socket is closed as soon as it has been checked: while the responder had a copy of it
//! open, it would not see the initiator close the connection.
//!
//! Offers do not wake the listener. They wait in the kernel, limited by the backlog, until an MPA Request is
//! complete. Of those that were read and do not belong to a request yet, [`MAX_OFFERS`] are kept, for
//! [`REQUEST_TIMEOUT_S`] seconds.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::net::ipproto;
use rustix::net::sockopt::socket_protocol;

use crate::cm::addr;
use crate::evidence::{self, Evidence};
use crate::fork;
use crate::limits::{BACKLOG, MAX_OFFERS, REQUEST_TIMEOUT_S};
use crate::link::{Mine, Rings, Theirs};
use crate::rendezvous::{self, Listening};
use crate::socket::Socket;
use crate::sys::{self, Errno};
use crate::unix;
use crate::{NOTICE, lock};

/// The beginning of an offer. The evidence of the listener follows, then the number of the descriptor that is
/// the evidence of the initiator.
const OFFER: &[u8] = b"softverbs offer 2";
const OFFER_LEN: usize = OFFER.len() + evidence::LEN + size_of::<RawFd>();

fn offer(listener: Evidence, own: RawFd) -> Vec<u8> {
    [OFFER, &listener.0, &own.to_ne_bytes()].concat()
}

/// The initiator's descriptor number in an offer; `None` if the offer does not contain the evidence of this
/// process, `own`.
fn initiator_of(message: &[u8], own: Evidence) -> Option<RawFd> {
    let number = message.strip_prefix(OFFER)?.strip_prefix(&own.0)?;
    number.try_into().ok().map(RawFd::from_ne_bytes)
}

/// The beginning of the answer to an accepted offer. The evidence of the initiator follows.
const ACCEPTED: u8 = b'1';

fn answer(initiator: Evidence) -> Vec<u8> {
    [&[ACCEPTED], &initiator.0[..]].concat()
}

/// The evidence in the answer to an accepted offer.
fn answered(message: &[u8]) -> Option<Evidence> {
    message.strip_prefix(&[ACCEPTED])?.try_into().ok().map(Evidence)
}

/// The addresses of a connection: this end and the other end. IPv4-mapped addresses are converted to IPv4.
type Ends = (SocketAddr, SocketAddr);

fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

fn ends(socket: &OwnedFd) -> Result<Ends, Errno> {
    Ok((canonical(addr::local(socket)?), canonical(addr::peer(socket)?)))
}

/// The addresses to which a listener that accepts connections to `addr` may be bound.
fn candidates(addr: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    let any = |ip: IpAddr| SocketAddr::new(ip, addr.port());
    let (v4, v6) = (any(Ipv4Addr::UNSPECIFIED.into()), any(Ipv6Addr::UNSPECIFIED.into()));
    [Some(addr), addr.is_ipv4().then_some(v4), Some(v6)].into_iter().flatten()
}

fn is_tcp(socket: &OwnedFd) -> bool {
    socket_protocol(socket) == Ok(Some(ipproto::TCP))
}

// ---- the initiator -------------------------------------------------------------------------------------------------------------------------

/// Shared memory that was offered to the listener.
pub(super) struct Offered {
    memory: Mine,
    notify: Socket,
    /// The evidence of this process when the offer was sent.
    own: Evidence,
}

impl Offered {
    /// Offers memory for an established connection, before anything is sent on it. `None`: the peer is on
    /// another host, its listener takes no offers, or the offer could not be made; the reason is logged.
    pub(super) fn send(socket: &OwnedFd) -> Option<Self> {
        let (local, peer) = ends(socket).ok()?;
        if !(peer.ip().is_loopback() || peer.ip() == local.ip()) {
            return None;
        }
        let namespace = unix::namespace(socket);
        let found = candidates(peer).find_map(|addr| match rendezvous::connect(namespace, canonical(addr)) {
            Err(libc::ENOENT) => None,
            found => Some(found),
        });
        let Some(found) = found else {
            log::info!(
                "connection to {peer} on this host uses TCP: no listener of this user takes offers of shared memory"
            );
            return None;
        };
        let sent = found
            .map_err(|e| sys::failed("connect to the Unix socket of the listener", e))
            .and_then(|(notify, number)| Self::send_over(notify, number, socket));
        sent.inspect_err(
            |why| log::info!(target: NOTICE, "connection to {peer} on this host uses TCP: {why}"),
        )
        .ok()
    }

    fn send_over(notify: Socket, number: RawFd, socket: &OwnedFd) -> Result<Self, String> {
        let listener = Evidence::of_peer(&notify, number)?;
        let memory = Mine::create().map_err(|e| sys::failed("allocate shared memory", e))?;
        if !memory.file().is_affordable() {
            return Err("more than half of the descriptors are in use".into());
        }
        let (number, own) = Evidence::own()
            .map_err(|e| sys::failed("create the descriptor that identifies this process", e))?;
        unix::send_with(&notify, &offer(listener, number), &[socket.as_fd(), memory.file().as_fd()])
            .map_err(|e| sys::failed("send the offer of shared memory", e))?;
        Ok(Self { memory, notify, own })
    }

    /// The MPA Reply has arrived. Returns the rings if the responder has accepted the offer. After an error
    /// the attempt must end, since it is unknown whether the responder uses the rings: EPROTO for an
    /// unexpected answer, or an error of recv(2).
    pub(super) fn accepted(self) -> Result<Option<Rings>, Errno> {
        let mut message = [0; 1 + evidence::LEN];
        match sys::recv(&self.notify, &mut message) {
            Ok(n) if answered(&message[..n]).is_some_and(|shown| shown.was_own_since(self.own)) => {
                Ok(Some(self.memory.share(self.notify)))
            }
            Ok(0) | Err(libc::EAGAIN | libc::ECONNRESET) => {
                log::info!(
                    target: NOTICE,
                    "a connection on this host uses TCP: the responder has not accepted the shared memory"
                );
                Ok(None)
            }
            Ok(_) => Err(libc::EPROTO),
            Err(e) => Err(e),
        }
    }
}

// ---- the responder -------------------------------------------------------------------------------------------------------------------------

/// Shared memory that the initiator of a connection has offered.
pub(crate) struct Offer {
    memory: Socket,
    notify: Socket,
    /// The descriptor that is the evidence of the initiator.
    initiator: RawFd,
}

impl Offer {
    /// Accepts the offer and sends the answer. `None`: the offer was not accepted; the reason is logged.
    pub(crate) fn accept(self) -> Option<Rings> {
        let taken = Evidence::of_peer(&self.notify, self.initiator).and_then(|initiator| {
            let taken = Theirs::adopt(self.memory).and_then(|memory| {
                sys::send(&self.notify, &answer(initiator))?;
                Ok(memory)
            });
            taken.map_err(|e| {
                let why = std::io::Error::from_raw_os_error(e);
                format!("cannot use the offered memory: {why}")
            })
        });
        taken
            .inspect_err(|why| log::info!(target: NOTICE, "a connection on this host uses TCP: {why}"))
            .ok()
            .map(|memory| memory.share(self.notify))
    }
}

struct Waiting {
    offer: Offer,
    /// Seen from the responder.
    ends: Ends,
    namespace: u64,
    since: Instant,
}

#[derive(Default)]
struct Queue {
    /// Unix connections whose offer has not arrived.
    silent: VecDeque<(Socket, Instant)>,
    waiting: VecDeque<Waiting>,
}

/// The offers to one listener.
pub(super) struct Offers {
    listening: Listening,
    queue: Mutex<Queue>,
}

/// The result of reading an offer.
enum Read {
    NotYet(Socket),
    Invalid,
    Offer(Waiting),
}

impl Offers {
    /// Starts taking offers for a listening TCP socket. `None`: its connections use TCP; the reason is
    /// logged.
    pub(super) fn listen(socket: &OwnedFd) -> Option<Self> {
        let addr = addr::local(socket).ok()?;
        match rendezvous::listen(unix::namespace(socket), canonical(addr), BACKLOG) {
            Ok(listening) => Some(Self { listening, queue: Mutex::default() }),
            Err(e) => {
                let why = std::io::Error::from_raw_os_error(e);
                log::info!(target: NOTICE, "connections from this host to {addr} use TCP: {why}");
                None
            }
        }
    }

    /// Takes the offer for a connection whose MPA Request is complete, if there is one.
    pub(super) fn take(&self, socket: &OwnedFd) -> Option<Offer> {
        let ends = ends(socket).ok()?;
        let queue = &mut *lock(&self.queue);
        self.gather(queue);
        let namespace = unix::namespace(socket);
        let at = queue.waiting.iter().position(|one| one.ends == ends && one.namespace == namespace)?;
        queue.waiting.remove(at).map(|waiting| waiting.offer)
    }

    /// Reads the offers that have arrived, and drops those that have waited too long.
    fn gather(&self, queue: &mut Queue) {
        let now = Instant::now();
        let old = |since: Instant| now.duration_since(since) >= Duration::from_secs(REQUEST_TIMEOUT_S);
        queue.silent.retain(|(_, since)| !old(*since));
        queue.waiting.retain(|waiting| !old(waiting.since));
        // As many as the backlog holds, and one that has arrived meanwhile.
        for _ in 0..=BACKLOG {
            let Ok(socket) = self.listening.socket().accept() else { break };
            if unix::is_of_same_user(&socket) && socket.is_affordable() {
                queue.silent.push_back((socket, now));
            }
        }
        for (socket, since) in std::mem::take(&mut queue.silent) {
            match read(socket, since) {
                Read::NotYet(socket) => queue.silent.push_back((socket, since)),
                Read::Invalid => {}
                Read::Offer(waiting) => queue.waiting.push_back(waiting),
            }
        }
        while queue.silent.len() > MAX_OFFERS {
            queue.silent.pop_front();
        }
        while queue.waiting.len() > MAX_OFFERS {
            queue.waiting.pop_front();
        }
    }
}

/// Reads an offer from a Unix socket; it is one message.
fn read(notify: Socket, since: Instant) -> Read {
    // Outside `undivided`, because it may have to create a descriptor itself.
    let own = match Evidence::own() {
        Ok((_, own)) => own,
        Err(e) => {
            let why = std::io::Error::from_raw_os_error(e);
            log::warn!("cannot check an offer of shared memory: {why}");
            return Read::Invalid;
        }
    };
    // The TCP socket is closed before fork(2) could copy it.
    let received = fork::undivided(|| {
        let mut bytes = [0; OFFER_LEN + 1];
        let (n, fds) = unix::receive_with(&notify, &mut bytes)?;
        let Ok([tcp, memory]) = <[OwnedFd; 2]>::try_from(fds) else { return Err(libc::EPROTO) };
        let initiator = initiator_of(&bytes[..n], own).filter(|_| is_tcp(&tcp)).ok_or(libc::EPROTO)?;
        let (near, far) = ends(&tcp)?;
        Ok((Socket::note(memory), initiator, (far, near), unix::namespace(&tcp)))
    });
    match received {
        Ok((memory, initiator, ends, namespace)) => {
            Read::Offer(Waiting { offer: Offer { memory, notify, initiator }, ends, namespace, since })
        }
        Err(libc::EAGAIN) => Read::NotYet(notify),
        Err(_) => Read::Invalid,
    }
}

#[cfg(test)]
mod tests;
