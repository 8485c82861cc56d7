// SPDX-License-Identifier: BSD-3-Clause
//! Sending the packets of one queue pair.
//!
//! Packets of equal length, of which the last may be shorter, are sent in one call (UDP_SEGMENT). Their IPv4
//! identifications, which the ICRC covers, are 0, 1, 2 and so on; that of a single packet is 0.
#![forbid(unsafe_code)]

use std::io::IoSlice;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::Port;
use super::drops::Reason;
use super::flush_icrc::FlushIcrc;
use super::socket::Family;
use crate::lock;
use crate::sys::{self, Errno};
use transport::roce::wire::{Addresses, Flow, ICRC_LEN, UDP_PORT};
use transport::route::Route;

/// Maximum bytes of packets in one call: the limit of a UDP datagram over IPv4 and IPv6.
const BATCH_LEN: usize = 65_000;
/// Maximum packets in one call: UDP_MAX_SEGMENTS of Linux before 6.9.
const BATCH_PACKETS: u16 = 64;
/// Maximum free buffers kept for reuse.
const FREE_BUFFERS: usize = 8;

/// Free buffers, for senders that have something to send.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// `None` without memory.
    fn get(&self) -> Option<Vec<u8>> {
        let free = lock(&self.0).pop();
        free.or_else(|| {
            let mut new = Vec::new();
            new.try_reserve_exact(BATCH_LEN).ok()?;
            Some(new)
        })
    }

    fn put(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut free = lock(&self.0);
        if free.len() < FREE_BUFFERS && free.try_reserve(1).is_ok() {
            free.push(buffer);
        }
    }
}

/// The way of packets, and what their ICRCs cover of it.
#[derive(Clone, Copy)]
struct Way {
    route: Route,
    local: IpAddr,
    family: Family,
    to: sys::Route,
    flow: Option<Flow>,
}

impl Way {
    fn new(route: &Route) -> Self {
        let Route { local, peer, traffic_class, hop_limit, .. } = *route;
        let flow = Addresses::between(local, peer).map(|addresses| Flow {
            addresses,
            source_port: UDP_PORT,
            destination_port: UDP_PORT,
        });
        let to =
            sys::Route { source: Some(local), to: route.peer_address(UDP_PORT), traffic_class, hop_limit };
        Self { route: *route, local, family: Family::of(local), to, flow }
    }
}

/// Sends the packets of one queue pair, in batches until [`Sender::flush`].
pub(crate) struct Sender {
    port: Arc<Port>,
    num: u32,
    /// `None` until [`Sender::aim`].
    way: Option<Way>,
    flush_icrc: FlushIcrc,
    /// Unsent packets with their ICRCs.
    batch: Option<Vec<u8>>,
    /// Length of the first packet in bytes.
    packet_len: usize,
    count: u16,
    /// Bytes of the batch that were already sent, as single packets.
    sent: usize,
    /// The last packet is shorter, so none can follow in this batch.
    is_full: bool,
    /// The socket is not writable; a call of [`super::Endpoint::writable`] follows.
    is_blocked: bool,
    /// Batches are sent with UDP_SEGMENT.
    pub(super) segments: bool,
}

impl Sender {
    pub(super) fn new(port: Arc<Port>, num: u32) -> Self {
        Self {
            port,
            num,
            way: None,
            flush_icrc: FlushIcrc::default(),
            batch: None,
            packet_len: 0,
            count: 0,
            sent: 0,
            is_full: false,
            is_blocked: false,
            segments: true,
        }
    }

    /// Packets that are added from now on go this way; those before are sent. False: the socket is not
    /// writable, and nothing has changed; a call of [`super::Endpoint::writable`] follows.
    pub(crate) fn aim(&mut self, route: &Route) -> bool {
        if self.way.as_ref().is_some_and(|way| way.route == *route) {
            return true;
        }
        self.flush();
        if !self.is_blocked {
            self.way = Some(Way::new(route));
        }
        !self.is_blocked
    }

    /// Adds a packet, from the BTH to the pad, to the batch; sends the batch first if the packet does not
    /// fit. False: the socket is not writable, and the packet was not added; a call of
    /// [`super::Endpoint::writable`] follows. A packet that the kernel rejects for another reason is lost, as
    /// if the network had dropped it.
    pub(crate) fn push(&mut self, packet: &[u8]) -> bool {
        let len = packet.len() + ICRC_LEN;
        if self.is_blocked || !self.has_room(len) {
            self.flush();
            if self.is_blocked {
                return false;
            }
        }
        let Some(flow) = self.way.as_ref().and_then(|way| way.flow) else {
            self.port.drops.add(Reason::NotSent, 1);
            return true;
        };
        let batch = match &mut self.batch {
            Some(batch) => batch,
            None => match self.port.buffers.get() {
                Some(buffer) => {
                    (self.packet_len, self.count, self.sent, self.is_full) = (len, 0, 0, false);
                    self.batch.insert(buffer)
                }
                None => {
                    self.port.drops.add(Reason::Memory, 1);
                    return true;
                }
            },
        };
        if batch.try_reserve(len).is_err() {
            self.port.drops.add(Reason::Memory, 1);
            return true;
        }
        self.flush_icrc.note(packet);
        batch.extend_from_slice(packet);
        batch.extend_from_slice(&self.flush_icrc.icrc(&flow, self.count, packet));
        self.count += 1;
        self.is_full = len < self.packet_len;
        true
    }

    fn has_room(&self, len: usize) -> bool {
        self.batch.as_ref().is_none_or(|batch| {
            !self.is_full
                && len <= self.packet_len
                && self.count < BATCH_PACKETS
                && batch.len() + len <= BATCH_LEN
        })
    }

    /// Sends the batch. If the socket is not writable, the rest is kept until [`super::Endpoint::writable`],
    /// which calls this again or [`Sender::push`].
    pub(crate) fn flush(&mut self) {
        self.is_blocked = false;
        let (Some(mut batch), Some(way)) = (self.batch.take(), self.way) else { return };
        match self.send(&mut batch, &way) {
            Err(libc::EAGAIN) => {
                self.is_blocked = true;
                self.batch = Some(batch);
                self.port.sockets.await_writable(way.family, self.num);
            }
            Err(_) | Ok(()) => self.port.buffers.put(batch),
        }
    }

    /// EAGAIN: the rest of the batch, from `sent` on, was not sent.
    fn send(&mut self, batch: &mut [u8], way: &Way) -> Result<(), Errno> {
        let port = self.port.clone();
        let Some(socket) = port.sockets.get(way.family) else {
            self.lose(libc::EAFNOSUPPORT, way, u64::from(self.count));
            return Ok(());
        };
        if self.count > 1 && self.segments && self.sent == 0 {
            let segment = u16::try_from(self.packet_len).ok();
            match sys::send_datagram(socket, &way.to, &[IoSlice::new(batch)], segment) {
                Ok(()) => {
                    port.traffic.sent.add(u64::from(self.count), batch.len());
                    return Ok(());
                }
                Err(libc::EAGAIN) => return Err(libc::EAGAIN),
                // The route or the kernel does not support segmentation; or the packets are too long, then
                // each of them is rejected below.
                Err(libc::EINVAL | libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP) => self.segments = false,
                Err(e) => {
                    self.lose(e, way, u64::from(self.count));
                    return Ok(());
                }
            }
        }
        while let Some(rest) = batch.get_mut(self.sent..).filter(|rest| !rest.is_empty()) {
            let len = rest.len().min(self.packet_len);
            let packet = &mut rest[..len];
            if let Some(flow) = &way.flow {
                // Its ICRC was computed for its identification in the batch.
                let (bytes, sum) = packet.split_at_mut(len - ICRC_LEN);
                sum.copy_from_slice(&self.flush_icrc.icrc(flow, 0, bytes));
            }
            match sys::send_datagram(socket, &way.to, &[IoSlice::new(packet)], None) {
                Ok(()) => port.traffic.sent.add(1, len),
                Err(libc::EAGAIN) => return Err(libc::EAGAIN),
                Err(e) => self.lose(e, way, 1),
            }
            self.sent += len;
        }
        Ok(())
    }

    /// The kernel has rejected packets. The queue pair retransmits them as after any other loss.
    #[cold]
    fn lose(&self, e: Errno, way: &Way, packets: u64) {
        static LOGGED: AtomicBool = AtomicBool::new(false);
        self.port.drops.add(Reason::NotSent, packets);
        if LOGGED.swap(true, Ordering::Relaxed) {
            return;
        }
        let remedy = match e {
            libc::EMSGSIZE => ": the packet is larger than the MTU of the interface; use a smaller path MTU",
            libc::EPERM => ": a packet filter of this host forbids it; permit UDP port 4791",
            libc::ENETUNREACH | libc::EHOSTUNREACH => ": there is no route; ip route get shows it",
            libc::EINVAL => ": the local address is no longer assigned to this host",
            _ => "",
        };
        log::warn!(
            "RoCE: queue pair {:#x} cannot send to {} from {}: {}{remedy}. The packet will be retransmitted; \
             further failures are not logged",
            self.num,
            way.to.to.ip(),
            way.local,
            std::io::Error::from_raw_os_error(e)
        );
    }
}
