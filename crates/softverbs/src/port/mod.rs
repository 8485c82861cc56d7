// SPDX-License-Identifier: BSD-3-Clause
//! UDP port 4791, which all processes of a user in a network namespace share.
//!
//! A RoCE peer sends every packet to this port. The processes of a user bind it with SO_REUSEPORT, which
//! makes their sockets a group, and a classic BPF filter selects the socket by the destination queue pair
//! number, so the kernel delivers each packet to its process.
//!
//! - [`slot`]: each process claims a slot, an exclusive UDP port of the loopback address, which the kernel
//!   frees when the process ends. [`numbers`]: a queue pair number is the slot and 16 random bits.
//! - [`steer`]: the filter. It maps slots to positions in the group. Positions change when a socket closes,
//!   so [`order`] finds them by queries: packets that the filter delivers by position instead of slot. The
//!   receiver replies with its slot.
//! - [`forward`]: correctness does not depend on the filter. A process that receives a packet of another slot
//!   sends it to the loopback port of that slot, and queries the positions again. [`owners`]: which slots are
//!   trusted. [`exit`]: what the sockets hold when the process ends.
//! - [`offers`]: offers of shared memory ([`offer`]) from processes of this host.
//! - [`management`]: messages to queue pair 1, connection management; [`service`]: which process listens on a
//!   service; [`listener_socket`]: requests that other processes pass on to a listener; [`datagram`]: their
//!   form.
//! - [`socket`]: the sockets; [`receive`], [`buffer`]: from the sockets to the endpoints of [`table`];
//!   [`attention`]: which thread does that; [`send`], [`batch`]: the other direction; [`pool`]: buffers; [`drops`]: how many
//!   packets were dropped, and why; [`traffic`]: the counters of the port.
//!
//! There is no daemon and no file, and a killed process leaves nothing behind. A child of fork(2) binds the
//! port and claims a slot anew: both are [`PerProcess`], and [`crate::fork`] closes the inherited sockets.
//!
//! Locks, outermost first: `receiver`, held while a thread reads datagrams from the sockets; then the leaf
//! locks: the table of endpoints, the order, the owners, the deferred requests, the waiting senders, the
//! buffers, the numbers. [`Endpoint::arrived`] is called with only `receiver` held, the
//! other methods of an endpoint with no lock of the port. `receiver` is held for a bounded time
//! ([`receive`]): the engine blocks on it, threads of the program only try. The lock of [`Attention`] is
//! never held together with any of them.
#![forbid(unsafe_code)]

mod attention;
mod batch;
mod buffer;
mod datagram;
mod drops;
mod exit;
mod flush_icrc;
mod forward;
mod groups;
mod listener_socket;
mod management;
mod numbers;
pub(crate) mod offer;
mod offers;
mod order;
mod owners;
mod pool;
mod receive;
mod send;
mod service;
mod slot;
mod socket;
mod steer;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod traffic;

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, Weak};

use batch::Buffers;
use drops::{Drops, Reason};
use exit::Exit;
use groups::Groups;
use management::Management;
use offer::Offer;
use order::Order;
use owners::Owners;
use receive::Receiver;
use slot::Slot;
use socket::{Family, Sockets};
use table::Table;
use traffic::Traffic;

use crate::process::PerProcess;
use crate::progress::By;
use crate::progress::attention::Attention;
use crate::progress::engine::Engine;
use crate::sys::{self, Errno};
use crate::{config, fork, lock};
use rpma_metrics::packets;
use transport::roce::link::Dropped;
use transport::roce::wire::UDP_PORT;

pub(crate) use batch::Fetch;
pub(crate) use buffer::Bytes;
pub(crate) use exit::drain;
pub(crate) use groups::{Membership, detach_from_groups};
pub(crate) use listener_socket::ListenerSocket;
pub(crate) use management::{Agent, Full};
pub(crate) use numbers::{allocate_number, release_number};
pub(crate) use owners::{Claims, accepts_tcp};
pub(crate) use receive::{Delivered, MAX_PACKET_LEN};
pub(crate) use send::Sender;
pub(crate) use service::{Claim, is_claimed};
pub(crate) use slot::is_unclaimed;
pub use traffic::PortCounter;

/// The receiver of the packets of a queue pair.
pub(crate) trait Endpoint: Send + Sync {
    /// Packets for the queue pair have arrived from its peer. Appends them to a bounded queue or drops them:
    /// the caller receives for all queue pairs of the process, so it must not be delayed.
    fn arrived(&self, packets: Delivered);
    /// The socket had no room for packets, which may have been for this queue pair. Called before
    /// [`Endpoint::received`].
    fn lost(&self) {}
    /// Drives the connection in this thread. Called once after a batch of [`Endpoint::arrived`], with no lock
    /// of the port held.
    fn received(&self, by: By);
    /// The peer, a process of this host, offers shared memory. Called by the engine.
    fn offered(&self, _offer: Offer) {}
    /// The socket is writable again after [`Sender::push`] returned false. Called with no lock of the port
    /// held, by the engine or a polling thread.
    fn writable(&self);
}

/// The sockets of this process at port 4791.
pub(crate) struct Port {
    /// For timers and ticks of the engine.
    this: Weak<Self>,
    /// [`fork::generation`] of its process.
    generation: u32,
    engine: Arc<Engine>,
    /// Identifies the sockets in the engine.
    token: u64,
    attention: Attention,
    /// The program has polled a completion queue since the engine last received.
    polls: AtomicBool,
    /// The engine has ticked since a poll last checked all sockets.
    ticked: AtomicBool,
    slot: Arc<Slot>,
    sockets: Sockets,
    table: Table,
    order: Mutex<Order>,
    /// Listeners of connection management.
    listeners: AtomicU32,
    owners: Owners,
    receiver: Mutex<Receiver>,
    buffers: Buffers,
    drops: Drops,
    traffic: Traffic,
    management: Management,
    groups: Groups,
    exit: Exit,
}

/// Why a process cannot use the port.
#[derive(Debug)]
pub(crate) struct Unavailable {
    errno: Errno,
    why: String,
}

impl Unavailable {
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    fn logged(self) -> Errno {
        log::error!("RoCE: {}", self.why);
        self.errno
    }
}

impl From<Errno> for Unavailable {
    fn from(errno: Errno) -> Self {
        let why = format!("cannot use UDP port {UDP_PORT}: {}", std::io::Error::from_raw_os_error(errno));
        Self { errno, why }
    }
}

static PORT: PerProcess<Arc<Port>> = PerProcess::new();

impl Port {
    /// The port of this process; the first call binds it. EADDRINUSE: another user or a kernel device has
    /// bound it. EAGAIN: no slot is free. EPERM: the user has changed since the process claimed its slot.
    /// The log has the reason.
    pub(crate) fn get() -> Result<Arc<Self>, Errno> {
        Self::open(false).map_err(Unavailable::logged)
    }

    /// As [`Self::get`]; the traffic class and the hop limit of each packet are received from now on.
    /// Connections do not need them, and each is one more control message of recvmsg(2).
    pub(crate) fn get_with_ip_fields() -> Result<Arc<Self>, Errno> {
        let port = Self::open(true).map_err(Unavailable::logged)?;
        port.sockets.receive_ip_fields();
        Ok(port)
    }

    /// The port for a process without queue pairs, which uses another transport if this fails; it then has no
    /// slot. EACCES: processes of the user cannot trust each other ([`owners::distrust`]).
    pub(crate) fn open_first() -> Result<Arc<Self>, Unavailable> {
        if let Some(why) = owners::distrust(sys::effective_user()) {
            return Err(Unavailable { errno: libc::EACCES, why });
        }
        let opened = Self::open(false);
        if opened.is_err() {
            let bound = lock(PORT.get());
            // Unless another thread has been successful meanwhile.
            if bound.is_none() {
                numbers::give_up();
            }
        }
        opened
    }

    /// As [`Port::get`], with the reason instead of a line in the log.
    fn open(with_ip_fields: bool) -> Result<Arc<Self>, Unavailable> {
        let mut bound = lock(PORT.get());
        if let Some(port) = &*bound {
            return Ok(port.clone());
        }
        let (engine, slot) = (Engine::get()?, numbers::slot()?);
        let sockets = Sockets::bind(&slot, with_ip_fields)?;
        if let Some(why) = owners::distrust(slot.user()) {
            log::warn!("RoCE: {why}, so it does not connect to processes of this host");
        }
        let port = Self::new(engine, slot, sockets);
        port.engine.add(port.token, port.sockets.set.fd(), libc::EPOLLIN as u32, port.clone())?;
        *bound = Some(port.clone());
        drop(bound);
        offers::Offers::listen(&port);
        packets::read_by(|| Self::bound().map(|port| port.drops.counts()));
        port.joined();
        Ok(port)
    }

    fn new(engine: Arc<Engine>, slot: Arc<Slot>, sockets: Sockets) -> Arc<Self> {
        let (owners, policy) = (Owners::new(slot.user()), config::get().policy);
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            generation: fork::generation(),
            token: engine.token(),
            engine,
            attention: Attention::new(policy),
            polls: AtomicBool::new(false),
            ticked: AtomicBool::new(false),
            slot,
            sockets,
            table: Table::default(),
            order: Mutex::default(),
            listeners: AtomicU32::new(0),
            owners,
            receiver: Mutex::new(Receiver::new(policy)),
            buffers: Buffers::default(),
            drops: Drops::default(),
            traffic: Traffic::default(),
            management: Management::default(),
            groups: Groups::default(),
            exit: Exit::default(),
        })
    }

    /// The slot of this process.
    pub(crate) fn slot(&self) -> u8 {
        self.slot.number()
    }

    /// The claims of the slots at this moment. `None`: they cannot be read.
    pub(crate) fn claims(&self) -> Option<Claims> {
        Claims::read().filter(|claims| claims.of(self.slot.number()).is_some())
    }

    /// Whether it belongs to this process, not to the parent.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.generation == fork::generation()
    }

    /// The port of this process, if it is bound.
    fn bound() -> Option<Arc<Self>> {
        lock(PORT.get()).clone()
    }

    /// Delivers packets for queue pair `num` to `endpoint`: those between its two addresses, the local one
    /// first, and drops others for that number. Without addresses it receives from all hosts, and its packets
    /// are behind their IP headers. Replaces the endpoint of a number that is attached already.
    pub(crate) fn attach(&self, num: u32, addresses: Option<(IpAddr, IpAddr)>, endpoint: Weak<dyn Endpoint>) {
        self.table.add(num, addresses, endpoint);
        self.check();
    }

    /// Drops packets for `num` from now on. A thread may still deliver a packet that it has received before.
    pub(crate) fn detach(&self, num: u32) {
        self.table.remove(num);
    }

    /// Whether the packets of `num` go through memory that is shared with the peer, so that polls need not
    /// receive for it.
    pub(crate) fn set_shared(&self, num: u32, shared: bool) {
        self.table.set_shared(num, shared);
    }

    /// A socket of this network namespace.
    pub(crate) fn any_socket(&self) -> &OwnedFd {
        self.slot.socket()
    }

    /// A sender for queue pair `num`, which is attached.
    pub(crate) fn sender(self: &Arc<Self>, num: u32) -> Sender {
        Sender::new(self.clone(), num)
    }

    /// Whether datagrams have arrived that no thread has received yet.
    pub(crate) fn has_unread(&self) -> bool {
        self.sockets.has_unread()
    }

    /// The queue of an endpoint had no room for packets.
    pub(crate) fn overflowed(&self, packets: usize) {
        self.drops.add(Reason::Overflow, packets as u64);
    }

    /// A queue pair has dropped a packet.
    pub(crate) fn dropped(&self, why: Dropped) {
        let reason = match why {
            Dropped::Malformed => Reason::Malformed,
            Dropped::Pkey => Reason::Pkey,
            Dropped::Psn => Reason::Psn,
            Dropped::Overflow => Reason::Overflow,
            Dropped::Qkey => Reason::Qkey,
            Dropped::NoReceive => Reason::NoReceive,
            Dropped::TooLong => Reason::TooLong,
            Dropped::Access => Reason::Access,
        };
        self.drops.add(reason, 1);
    }

    /// Notifies the endpoints that wait for the socket to become writable.
    fn now_writable(&self, family: Family) {
        for num in self.sockets.stop_waiting(family) {
            if let Some(endpoint) = self.table.find(num) {
                endpoint.writable();
            }
        }
    }
}
