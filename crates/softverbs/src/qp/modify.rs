// SPDX-License-Identifier: BSD-3-Clause
//! The transitions of ibv_modify_qp(3), over RoCE, of queue pairs that the program connects without rdma_cm.
#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use super::linked::Transport;
use super::{Kind, Qp, State};
use crate::link::{Arrived, Packets};
use crate::port::offer::Offer;
use crate::port::{Delivered, Endpoint, Port};
use crate::progress::engine::Engine;
use crate::progress::{By, Driven};
use crate::sys::Errno;
use crate::{config, lock};
use transport::roce::rc::{Rc, ReceiveTerms, SendTerms};
use transport::roce::uc::Uc;
use transport::roce::ud::{self, Ud};
use transport::roce::wire::{Psn, UDP_PORT};
use transport::route::Route;
use transport::step::reason;

/// Changed attributes of a connected queue pair; `None`: unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// `qp_access_flags`.
    pub access: Option<u32>,
    /// `min_rnr_timer`.
    pub rnr_timer: Option<u8>,
    /// `qkey`.
    pub qkey: Option<u32>,
}

impl Qp {
    /// INIT to RTR: requests of the peer are carried out. EINVAL in another state; ENOMEM; EADDRINUSE,
    /// EAGAIN, EPERM: UDP port 4791 cannot be bound ([`Port::get`]).
    pub(crate) fn ready_to_receive(&self, route: Route, terms: ReceiveTerms) -> Result<(), Errno> {
        self.open_port(Some(&route), |transport| match transport {
            Transport::Roce(roce) => roce.conn.receive(terms),
            Transport::Unreliable(unreliable) => {
                unreliable.conn.receive(terms);
                Ok(())
            }
            _ => Err(libc::EOPNOTSUPP),
        })?;
        self.offer_memory(&route, terms.dest_qp);
        Ok(())
    }

    /// Offers shared memory to a peer on this host. After RTR, so that an offer of the peer that crosses this
    /// one finds the queue pair. Only reliable connections repair what a change of the link loses.
    fn offer_memory(&self, route: &Route, peer: u32) {
        let is_wanted = self.kind == Kind::Rc && config::get().local;
        let Some(engine) = self.engine.get().filter(|_| is_wanted) else { return };
        let this: Weak<dyn Driven> = self.this.clone();
        if let Some(Some(link)) = lock(&self.session).transport.packets() {
            link.offer(peer, route, engine, this);
        }
    }

    /// As [`Self::ready_to_receive`], for a queue pair of type UD.
    pub(crate) fn ready_for_datagrams(&self, terms: ud::Terms) -> Result<(), Errno> {
        self.open_port(None, |transport| match transport {
            Transport::Datagrams(datagrams) => {
                datagrams.conn.receive(terms);
                Ok(())
            }
            _ => Err(libc::EOPNOTSUPP),
        })
    }

    fn open_port(
        &self,
        route: Option<&Route>,
        receive: impl FnOnce(&mut Transport) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let engine = Engine::get()?;
        self.engine.get_or_init(|| engine);
        let port = if route.is_some() { Port::get()? } else { Port::get_with_ip_fields()? };
        self.send_cq.receive_at(&port);
        self.recv_cq.receive_at(&port);
        let mut session = lock(&self.session);
        if self.state.get() != State::Init {
            return Err(libc::EINVAL);
        }
        receive(&mut session.transport)?;
        let arrived = self.arrived.clone();
        let (link, qp) = (arrived.restart(), self.this.clone());
        let endpoint = Arc::new(Inlet { qp, port: port.clone(), arrived: arrived.clone(), link });
        if let Some(packets) = session.transport.packets() {
            *packets = Some(Packets::open(port, self.num, route, arrived, endpoint));
        }
        if let Some(route) = route {
            let peer = route.peer_address(UDP_PORT);
            *lock(&self.peer) = Some(peer);
            self.instruments.connects(peer);
        }
        // The lock of the session keeps others from leaving INIT, but for the end.
        match self.state.advance(&[State::Init], State::Rtr) {
            true => Ok(()),
            false => Err(libc::EINVAL),
        }
    }

    /// RTR to RTS: requests are sent. EINVAL in another state.
    pub(crate) fn ready_to_send(&self, terms: SendTerms) -> Result<(), Errno> {
        let mut session = lock(&self.session);
        if !self.state.advance(&[State::Rtr], State::Rts) {
            return Err(libc::EINVAL);
        }
        match &mut session.transport {
            Transport::Roce(roce) => roce.conn.send(terms),
            Transport::Unreliable(unreliable) => unreliable.conn.send(terms.sq_psn),
            _ => return Err(libc::EOPNOTSUPP),
        }
        Ok(())
    }

    /// As [`Self::ready_to_send`], for a queue pair of type UD, whose first datagram has this PSN.
    pub(crate) fn send_datagrams(&self, psn: Psn) -> Result<(), Errno> {
        let mut session = lock(&self.session);
        let Transport::Datagrams(datagrams) = &mut session.transport else { return Err(libc::EOPNOTSUPP) };
        if !self.state.advance(&[State::Rtr], State::Rts) {
            return Err(libc::EINVAL);
        }
        datagrams.conn.send(psn);
        Ok(())
    }

    /// SQE to RTS: sends are not flushed any more. EINVAL in another state.
    pub(crate) fn resume(&self) -> Result<(), Errno> {
        let mut session = lock(&self.session);
        if !self.state.advance(&[State::Sqe], State::Rts) {
            return Err(libc::EINVAL);
        }
        match &mut session.transport {
            Transport::Unreliable(unreliable) => unreliable.conn.resume(),
            Transport::Datagrams(datagrams) => datagrams.conn.resume(),
            _ => return Err(libc::EOPNOTSUPP),
        }
        Ok(())
    }

    /// RTS to SQD and back: in SQD no new request is started. EINVAL in another state.
    pub(crate) fn drain(&self, on: bool) -> Result<(), Errno> {
        {
            let mut session = lock(&self.session);
            let (from, to) = if on { (State::Rts, State::Sqd) } else { (State::Sqd, State::Rts) };
            if !self.state.advance(&[from], to) {
                return Err(libc::EINVAL);
            }
            match &mut session.transport {
                Transport::Iwarp(_) => return Err(libc::EOPNOTSUPP),
                Transport::Roce(roce) => roce.conn.drain(on),
                Transport::Unreliable(unreliable) => unreliable.conn.drain(on),
                Transport::Datagrams(datagrams) => datagrams.conn.drain(on),
            }
        }
        self.drive(reason::POSTED, By::Program);
        Ok(())
    }

    /// Changes attributes without a transition of the connection.
    pub(crate) fn change(&self, change: Change) -> Result<(), Errno> {
        let mut session = lock(&self.session);
        match &mut session.transport {
            Transport::Iwarp(_) => return Err(libc::EOPNOTSUPP),
            Transport::Roce(roce) => {
                let takes_away = roce.conn.change(change.access, change.rnr_timer);
                let local = roce.link.as_mut().and_then(Packets::local_mut);
                if let (true, Some(local)) = (takes_away, local) {
                    local.end_copies();
                }
            }
            Transport::Unreliable(unreliable) => unreliable.conn.change(change.access),
            Transport::Datagrams(datagrams) => {
                change.qkey.into_iter().for_each(|qkey| datagrams.conn.set_qkey(qkey))
            }
        }
        Ok(())
    }

    /// Any state to RESET: drops outstanding requests without completions, and completions that the program
    /// has not polled. ENOMEM: the state is unchanged.
    pub(crate) fn reset(&self) -> Result<(), Errno> {
        self.drop_outstanding()?;
        // No more completions are added. Other queue pairs may use the space and run, so no lock is held.
        self.send_cq.discard();
        self.recv_cq.discard();
        self.instruments.discarded();
        Ok(())
    }

    fn drop_outstanding(&self) -> Result<(), Errno> {
        let mut session = lock(&self.session);
        let (num, own_receives) = (self.num, self.srq.is_none());
        let outstanding = match &mut session.transport {
            Transport::Iwarp(_) => return Err(libc::EOPNOTSUPP),
            Transport::Roce(roce) => {
                let fresh = Rc::new(num, self.max_send_wr, own_receives, config::get().policy)?;
                roce.link = None;
                std::mem::replace(&mut roce.conn, fresh).outstanding()
            }
            Transport::Unreliable(unreliable) => {
                let fresh = Uc::new(num, self.max_send_wr, own_receives)?;
                unreliable.link = None;
                std::mem::replace(&mut unreliable.conn, fresh).outstanding()
            }
            Transport::Datagrams(datagrams) => {
                let fresh = Ud::new(num, self.max_send_wr, own_receives)?;
                datagrams.link = None;
                std::mem::replace(&mut datagrams.conn, fresh).outstanding()
            }
        };
        {
            let mut flushed = lock(&self.flushed);
            flushed.resets += 1;
            flushed.results.clear();
        }
        session.timer = None;
        self.state.reset();
        // Only the holder of the session removes entries from the rings.
        let mut dropped = outstanding as u64;
        while self.sends.take().is_some() {
            dropped += 1;
        }
        self.sends.free(dropped);
        while self.receives.pop().is_some() {}
        *lock(&self.peer) = None;
        self.instruments.dropped();
        Ok(())
    }
}

/// The endpoint of a queue pair for one link, from RTR to RESET.
struct Inlet {
    qp: Weak<Qp>,
    port: Arc<Port>,
    arrived: Arc<Arrived>,
    link: u32,
}

impl Inlet {
    fn drive(&self, reasons: u32, by: By) {
        if let Some(qp) = self.qp.upgrade() {
            qp.drive(reasons, by);
        }
    }
}

impl Endpoint for Inlet {
    fn arrived(&self, packets: Delivered) {
        let count = packets.count();
        if !self.arrived.push(self.link, packets) {
            self.port.overflowed(count);
        }
    }

    fn lost(&self) {
        self.arrived.lose();
    }

    fn received(&self, by: By) {
        self.drive(reason::READABLE, by);
    }

    fn offered(&self, offer: Offer) {
        // Others do not look at offers: this one is closed.
        if let Some(qp) = self.qp.upgrade().filter(|qp| qp.kind == Kind::Rc) {
            self.arrived.offer(self.link, offer);
            qp.drive(reason::READABLE, By::Engine);
        }
    }

    fn writable(&self) {
        self.drive(reason::WRITABLE, By::Engine);
    }
}
