// SPDX-License-Identifier: BSD-3-Clause
//! UDP port 4791, which all processes of a user in a network namespace share.
//!
//! A RoCE peer sends every packet to this port. The processes of a user bind it with SO_REUSEPORT, which
//! makes their sockets a group, and a classic BPF program chooses the socket of a packet by the destination
//! queue pair number, so the kernel delivers a packet to its process.
//!
//! - [`slot`]: each process claims a slot, an exclusive UDP port of the loopback address, which the kernel
//!   frees when the process ends. [`numbers`]: a queue pair number is the slot and 16 random bits.
//! - [`steer`]: the program. It maps slots to positions in the group. Positions move when a socket closes, so
//!   [`order`] finds them by queries: a packet that the program delivers by position instead of slot, and
//!   which the receiver answers with its slot.
//! - [`forward`]: nothing but speed rests on the program. A process that receives a packet of another slot
//!   sends it to the loopback port of that slot, and has the positions queried again. [`owners`]: whose slots
//!   are trusted.
//! - [`socket`]: the sockets; [`receive`]: from the sockets to the endpoints of [`table`]; [`attention`]:
//!   which thread does that; [`send`]: the other direction; [`drops`]: how many packets were dropped, and
//!   why.
//!
//! There is no daemon, no file, and nothing to clean up after a process that was killed. A child after
//! fork(2) has neither port nor slot and gets ones of its own: both are [`PerProcess`], and their sockets are
//! known to [`crate::fork`].
//!
//! Locks, outermost first: `receiver`, which a thread holds while it takes datagrams from the sockets; then
//! the innermost ones: the table of endpoints, the order, the owners, the waiting senders, the buffers of
//! senders, the numbers. [`Endpoint::arrived`] is called under `receiver` alone, and the other methods of an
//! endpoint under no lock of the port. `receiver` is held for a bounded time ([`receive`]): the engine waits
//! for it, a thread of the program does not. The lock of the attention is taken under none of them, nor is
//! one of them taken under it.
#![forbid(unsafe_code)]

mod attention;
mod drops;
mod forward;
mod numbers;
mod order;
mod owners;
mod receive;
mod send;
mod slot;
mod socket;
mod steer;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

use drops::{Drops, Reason};
use order::Order;
use owners::Owners;
use receive::Receiver;
use send::Buffers;
use slot::Slot;
use socket::{Family, Sockets};
use table::Table;

use crate::process::PerProcess;
use crate::progress::By;
use crate::progress::attention::Attention;
use crate::progress::engine::Engine;
use crate::sys::Errno;
use crate::{config, fork, lock};
use rpma_metrics::packets;
use transport::roce::link::Dropped;

pub(crate) use numbers::{allocate_number, release_number};
pub(crate) use receive::Packet;
pub(crate) use send::Sender;

/// What receives the packets of a queue pair.
pub(crate) trait Endpoint: Send + Sync {
    /// A packet for the queue pair has arrived from its peer. Called by the thread that receives, which holds
    /// up all other queue pairs of the process meanwhile: it puts the packet into a bounded queue, or drops
    /// it.
    fn arrived(&self, packet: Packet);
    /// Packets have arrived, and were given to [`Endpoint::arrived`]. Called once after a batch, without a
    /// lock of the port: drives the connection in this thread.
    fn received(&self, by: By);
    /// The socket takes packets again, after [`Sender::push`] has returned false. Called without a lock of
    /// the port, by the engine or a thread that polls.
    fn writable(&self);
}

/// The sockets of this process at port 4791.
pub(crate) struct Port {
    /// To have the engine call it back.
    this: Weak<Self>,
    /// [`fork::generation`] of its process.
    generation: u32,
    engine: Arc<Engine>,
    /// That of the sockets in the engine.
    token: u64,
    attention: Attention,
    /// The program has polled a completion queue since the engine last received.
    polls: AtomicBool,
    /// The engine has left the sockets to polls at a tick since one has looked at all of them.
    ticked: AtomicBool,
    slot: Arc<Slot>,
    sockets: Sockets,
    table: Table,
    order: Mutex<Order>,
    owners: Owners,
    receiver: Mutex<Receiver>,
    buffers: Buffers,
    drops: Drops,
}

static PORT: PerProcess<Arc<Port>> = PerProcess::new();

impl Port {
    /// The port of this process, bound if it is not yet. EADDRINUSE: another user or a device of the kernel
    /// has it. EAGAIN: no slot is free. EPERM: the process had another user when it claimed its slot.
    pub(crate) fn get() -> Result<Arc<Self>, Errno> {
        let mut bound = lock(PORT.get());
        if let Some(port) = &*bound {
            return Ok(port.clone());
        }
        let (engine, slot) = (Engine::get()?, numbers::slot()?);
        let sockets = Sockets::bind(&slot)?;
        let owners = Owners::new(slot.user());
        let port = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            generation: fork::generation(),
            token: engine.token(),
            engine,
            attention: Attention::new(config::get().policy),
            polls: AtomicBool::new(false),
            ticked: AtomicBool::new(false),
            slot,
            sockets,
            table: Table::default(),
            order: Mutex::default(),
            owners,
            receiver: Mutex::new(Receiver::new()),
            buffers: Buffers::default(),
            drops: Drops::default(),
        });
        port.engine.add(port.token, port.sockets.set.fd(), libc::EPOLLIN as u32, port.clone())?;
        *bound = Some(port.clone());
        drop(bound);
        packets::read_by(|| Self::bound().map(|port| port.drops.counts()));
        port.joined();
        Ok(port)
    }

    /// Whether it is the port of this process, and not that of the parent.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.generation == fork::generation()
    }

    /// The port of this process, if it is bound.
    fn bound() -> Option<Arc<Self>> {
        lock(PORT.get()).clone()
    }

    /// Has the packets that `peer` sends to queue pair `num` at the address `local` given to `endpoint`.
    /// Others for that number are dropped. A number that is attached already changes its endpoint.
    pub(crate) fn attach(&self, num: u32, local: IpAddr, peer: IpAddr, endpoint: Weak<dyn Endpoint>) {
        self.table.add(num, local, peer, endpoint);
        self.check();
    }

    /// Drops packets for `num` from now on. A thread that has taken a packet before may still give it to the
    /// endpoint.
    pub(crate) fn detach(&self, num: u32) {
        self.table.remove(num);
    }

    /// What sends the packets of queue pair `num`, which is attached, from the address `local` to `peer`,
    /// whose port is of no matter. `hop_limit` 0 is the default of the system.
    pub(crate) fn sender(
        self: &Arc<Self>,
        num: u32,
        local: IpAddr,
        peer: SocketAddr,
        traffic_class: u8,
        hop_limit: u8,
    ) -> Sender {
        Sender::new(self.clone(), num, local, peer, traffic_class, hop_limit)
    }

    /// An endpoint has no room for a packet.
    pub(crate) fn overflowed(&self) {
        self.drops.add(Reason::Overflow, 1);
    }

    /// A queue pair has dropped a packet.
    pub(crate) fn dropped(&self, why: Dropped) {
        let reason = match why {
            Dropped::Malformed => Reason::Malformed,
            Dropped::Pkey => Reason::Pkey,
            Dropped::Psn => Reason::Psn,
        };
        self.drops.add(reason, 1);
    }

    /// Calls the endpoints that wait until the socket takes packets again.
    fn now_writable(&self, family: Family) {
        for num in self.sockets.stop_waiting(family) {
            if let Some(endpoint) = self.table.find(num) {
                endpoint.writable();
            }
        }
    }
}
