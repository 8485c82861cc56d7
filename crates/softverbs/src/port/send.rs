// SPDX-License-Identifier: BSD-3-Clause
//! Sending the packets of one queue pair.
//!
//! Packets of equal length, of which the last may be shorter, are sent in one call (UDP_SEGMENT). Their IPv4
//! identifications, which the ICRC covers, are 0, 1, 2 and so on; that of a single packet is 0.
#![forbid(unsafe_code)]

use std::io::IoSlice;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Port;
use super::batch::{Batch, Fetch};
use super::drops::Reason;
use super::flush_icrc::FlushIcrc;
use super::socket::Family;
use crate::sys::{self, Errno};
use transport::access::Unreachable;
use transport::roce::link::Payload;
use transport::roce::wire::{Addresses, Flow, ICRC_LEN, UDP_PORT, pad_len};
use transport::route::Route;

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
    pub(super) batch: Option<Batch>,
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

    /// Adds a packet to the batch; sends the batch first if the packet does not fit. False: the socket is not
    /// writable, and the packet was not added; a call of [`super::Endpoint::writable`] follows. A packet that
    /// the kernel rejects for another reason is lost, as if the network had dropped it.
    pub(crate) fn push(
        &mut self,
        headers: &[u8],
        payload: Payload<'_>,
        fetch: Fetch<'_>,
    ) -> Result<bool, Unreachable> {
        let len = headers.len() + payload.len() + usize::from(pad_len(payload.len())) + ICRC_LEN;
        if self.is_blocked || self.batch.as_ref().is_some_and(|batch| !batch.has_room(len)) {
            self.flush();
            if self.is_blocked {
                return Ok(false);
            }
        }
        let Some(flow) = self.way.as_ref().and_then(|way| way.flow) else {
            self.port.drops.add(Reason::NotSent, 1);
            return Ok(true);
        };
        let batch = match &mut self.batch {
            Some(batch) => batch,
            None => match self.port.buffers.get() {
                Some(buffer) => self.batch.insert(Batch::new(buffer, len, self.segments)),
                None => {
                    self.port.drops.add(Reason::Memory, 1);
                    return Ok(true);
                }
            },
        };
        let id = if batch.is_numbered { batch.count } else { 0 };
        let (packet, icrc) = batch.add(headers, payload, fetch)?;
        self.flush_icrc.note(packet);
        icrc.copy_from_slice(&self.flush_icrc.icrc(&flow, id, packet));
        Ok(true)
    }

    /// Adds a packet that consists of these bytes.
    #[cfg(test)]
    pub(super) fn push_bytes(&mut self, packet: &[u8]) -> bool {
        let (headers, payload) = packet.split_at(transport::roce::wire::BTH_LEN);
        let fetch: Fetch<'_> = &mut |_, _, _| Err(Unreachable::Fault);
        self.push(headers, Payload::Bytes(payload), fetch).is_ok_and(|added| added)
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
            Err(_) | Ok(()) => self.port.buffers.put(batch.into_buffer()),
        }
    }

    /// EAGAIN: the rest of the batch, from `sent` on, was not sent.
    fn send(&mut self, batch: &mut Batch, way: &Way) -> Result<(), Errno> {
        let port = self.port.clone();
        let count = u64::from(batch.count);
        let Some(socket) = port.sockets.get(way.family) else {
            self.lose(libc::EAFNOSUPPORT, way, count);
            return Ok(());
        };
        if count > 1 && self.segments && batch.sent == 0 {
            let segment = u16::try_from(batch.packet_len).ok();
            match sys::send_datagram(socket, &way.to, &[IoSlice::new(batch.bytes())], segment) {
                Ok(()) => {
                    port.traffic.sent.add(count, batch.bytes().len());
                    return Ok(());
                }
                Err(libc::EAGAIN) => return Err(libc::EAGAIN),
                // The route or the kernel does not support segmentation; or the packets are too long, then
                // each of them is rejected below.
                Err(libc::EINVAL | libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP) => self.segments = false,
                Err(e) => {
                    self.lose(e, way, count);
                    return Ok(());
                }
            }
        }
        let is_numbered = batch.is_numbered;
        while let Some(packet) = batch.unsent() {
            let len = packet.len();
            if let (true, Some(flow)) = (is_numbered, &way.flow) {
                let (bytes, sum) = packet.split_at_mut(len - ICRC_LEN);
                sum.copy_from_slice(&self.flush_icrc.icrc(flow, 0, bytes));
            }
            match sys::send_datagram(socket, &way.to, &[IoSlice::new(packet)], None) {
                Ok(()) => port.traffic.sent.add(1, len),
                Err(libc::EAGAIN) => return Err(libc::EAGAIN),
                Err(e) => self.lose(e, way, 1),
            }
            batch.sent += len;
        }
        Ok(())
    }

    /// The kernel has rejected packets. A reliable connection retransmits them as after any other loss.
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
            libc::ENETUNREACH if way.to.to.ip().is_multicast() => {
                ": there is no route to the group (softverbs(7), rdma_join_multicast)"
            }
            libc::ENETUNREACH | libc::EHOSTUNREACH => ": there is no route; ip route get shows it",
            libc::EINVAL => ": the local address is no longer assigned to this host",
            _ => "",
        };
        log::warn!(
            "RoCE: queue pair {:#x} cannot send to {} from {}: {}{remedy}. The packet is lost, as if the \
             network had dropped it; further failures are not logged",
            self.num,
            way.to.to.ip(),
            way.local,
            std::io::Error::from_raw_os_error(e)
        );
    }
}
