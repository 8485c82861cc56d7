// SPDX-License-Identifier: BSD-3-Clause
//! Offers of shared memory between two RoCE queue pairs of one host.
//!
//! A queue pair that enters RTR offers memory to the process that has the slot of the peer's number, over the
//! Unix socket of that slot ([`rendezvous`]). If the peer is in RTR with this one, it accepts, and both move
//! their packets to the memory. If it is not, the offer is closed; it will make one itself when it enters
//! RTR. Until then, and whenever an offer is not accepted, packets go over UDP. Nobody waits for an answer.
//!
//! Each side authenticates the other as two ends of an iWARP connection do (`cm/iwarp/offers.rs`): the kernel
//! reports the user of the process at the other end of the Unix socket, and each process proves that it may
//! inspect the other ([`Evidence`]).
//!
//! If both make offers at the same time, that of the lower queue pair number is accepted. The other one waits
//! until its maker has answered or closed that.
#![forbid(unsafe_code)]

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use super::arrived::Arrived;
use super::local::{Mine, Theirs};
use super::ring::Rings;
use crate::cancel::whole;
use crate::evidence::{self, Evidence};
use crate::port::offer::{self, Ends, Offer, name_of_slot};
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::progress::{By, Driven};
use crate::rendezvous;
use crate::socket::Socket;
use crate::sys;
use crate::unix;
use transport::step::reason;

/// The beginning of the answer to an accepted offer. The evidence of the initiator follows.
const ACCEPTED: u8 = b'1';

/// Whether the peer is on this host, as far as its address tells.
fn are_on_one_host(ends: &Ends) -> bool {
    let (near, far) = (ends.from.1, ends.to.1);
    far.is_loopback() || far == near || whole(|| UdpSocket::bind((far, 0)).is_ok())
}

/// Drives the queue pair when the answer to its offer has arrived.
struct Answer {
    qp: Weak<dyn Driven>,
    arrived: Arc<Arrived>,
}

impl Source for Answer {
    fn ready(self: Arc<Self>, _events: u32) {
        self.arrived.note_news();
        if let Some(qp) = self.qp.upgrade() {
            qp.drive(reason::READABLE, By::Engine);
        }
    }
}

/// Memory that was offered to the peer.
pub(super) struct Offered {
    memory: Option<Mine>,
    notify: Option<Socket>,
    /// The evidence of this process when the offer was sent.
    own: Evidence,
    engine: Arc<Engine>,
    token: u64,
}

impl Offered {
    /// Offers memory to a peer on this host; `socket`: one of this network namespace. When the answer
    /// arrives, `arrived` has news, and `qp` is driven. `None`: packets go over UDP; the reason is logged.
    pub(super) fn send(
        ends: &Ends,
        socket: &OwnedFd,
        engine: &Arc<Engine>,
        arrived: Arc<Arrived>,
        qp: Weak<dyn Driven>,
    ) -> Option<Self> {
        if ends.from.0 == ends.to.0 || !are_on_one_host(ends) {
            return None;
        }
        let slot = ends.to.0.to_be_bytes()[1];
        let found = match rendezvous::connect(unix::namespace(socket), name_of_slot(slot)) {
            // The queue pair of another user, or of a process with SOFTVERBS_LOCAL=0.
            Err(libc::ENOENT) => return None,
            found => found.map_err(|e| sys::failed("connect to the process of the peer", e)),
        };
        found
            .and_then(|(notify, number)| Self::send_over(notify, number, ends, engine, arrived, qp))
            .inspect_err(|why| log::info!("queue pair {:#x} uses UDP on this host: {why}", ends.from.0))
            .ok()
    }

    fn send_over(
        notify: Socket,
        number: RawFd,
        ends: &Ends,
        engine: &Arc<Engine>,
        arrived: Arc<Arrived>,
        qp: Weak<dyn Driven>,
    ) -> Result<Self, String> {
        let listener = Evidence::of_peer(&notify, number)?;
        let memory = Mine::create().map_err(|e| sys::failed("allocate shared memory", e))?;
        if !memory.file().is_affordable() {
            return Err("more than half of the descriptors are in use".into());
        }
        let (number, own) = Evidence::own()
            .map_err(|e| sys::failed("create the descriptor that identifies this process", e))?;
        let offer = offer::message(listener, number, ends);
        unix::send_with(&notify, &offer, &[memory.file().as_fd()])
            .map_err(|e| sys::failed("send the offer of shared memory", e))?;
        let (engine, token) = (engine.clone(), engine.token());
        let events = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
        engine
            .add(token, notify.as_raw_fd(), events, Arc::new(Answer { qp, arrived }))
            .map_err(|e| sys::failed("watch a socket", e))?;
        Ok(Self { memory: Some(memory), notify: Some(notify), own, engine, token })
    }

    /// The answer: `Ok(None)` if there is none yet. `Err`: the peer does not accept the offer.
    pub(super) fn answer(&mut self) -> Result<Option<Rings>, ()> {
        let (Some(notify), Some(_)) = (&self.notify, &self.memory) else { return Err(()) };
        let mut message = [0; 1 + evidence::LEN];
        match sys::recv(notify, &mut message) {
            Err(libc::EAGAIN) => return Ok(None),
            Ok(n) if message[..n].strip_prefix(&[ACCEPTED]).is_some_and(|shown| self.was_shown(shown)) => {}
            _ => return Err(()),
        }
        self.engine.remove(self.token, notify.as_raw_fd());
        let (Some(notify), Some(memory)) = (self.notify.take(), self.memory.take()) else { return Err(()) };
        Ok(Some(memory.share(notify)))
    }

    fn was_shown(&self, evidence: &[u8]) -> bool {
        evidence.try_into().is_ok_and(|shown| Evidence(shown).was_own_since(self.own))
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        if let Some(notify) = &self.notify {
            self.engine.remove(self.token, notify.as_raw_fd());
        }
    }
}

/// Accepts an offer: maps the memory, and sends the answer, which proves to the initiator who this process
/// is.
pub(super) fn accept(offer: Offer) -> Result<Rings, String> {
    let initiator = Evidence::of_peer(&offer.notify, offer.initiator)?;
    let memory = Theirs::adopt(offer.memory).map_err(|e| sys::failed("use the offered memory", e))?;
    let answer = [&[ACCEPTED], &initiator.0[..]].concat();
    sys::send(&offer.notify, &answer).map_err(|e| {
        let why = std::io::Error::from_raw_os_error(e);
        format!("the peer has withdrawn: {why}")
    })?;
    Ok(memory.share(offer.notify))
}
