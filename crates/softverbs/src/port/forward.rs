// SPDX-License-Identifier: BSD-3-Clause
//! Datagrams between processes, from loopback port to loopback port of their slots: forwarded packets, and
//! replies to queries, notices that a process has the exchange of a request, and those of [`super::exit`].
//!
//! A header in front of a forwarded packet has the addresses and the source port of the original datagram.
//! The receiving process checks the ICRC, and never forwards the packet again.
#![forbid(unsafe_code)]

use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::Port;
use super::drops::Reason;
use super::slot;
use super::socket::Family;
use crate::sys::{self, IpFields, Route};
use transport::roce::wire::gid;

/// The first bytes of each message; the last one is a version.
const MAGIC: [u8; 4] = [0x53, 0x56, 0x50, 2];
const PACKET: u8 = 1;
const ANSWER: u8 = 2;
const HELD: u8 = 3;
const CONFIRM: u8 = 4;
const CONFIRMED: u8 = 5;
const HEADER_LEN: usize = 42;

/// A message between slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// A forwarded packet with its ICRC.
    Packet { source: IpAddr, source_port: u16, destination: IpAddr, ip: IpFields, datagram: &'a [u8] },
    /// The sender has received the query with this nonce for this position.
    Answer { family: Family, position: u8, nonce: u32 },
    /// The sender has the exchange of a REQ or SIDR_REQ of connection management.
    Held(Requester),
    /// The sender exits when the receiver has confirmed all packets that were forwarded before.
    Confirm,
    /// The answer to [`Message::Confirm`].
    Confirmed,
}

/// Identifies a REQ, or a SIDR_REQ: by its request id, without a GUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requester {
    pub address: IpAddr,
    pub ca_guid: u64,
    pub comm_id: u32,
}

// Offsets: 0 magic, 4 kind, 5 family (4 or 6), 6 source port (answer: position, 0), 8 source address (answer:
// nonce), 24 destination address, 40 traffic class, 41 hop limit. Held: 8 address, 24 GUID, 32 communication
// id. IPv4 addresses are IPv4-mapped.

impl<'a> Message<'a> {
    /// The header in front of the datagram.
    pub(super) fn header(&self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..4].copy_from_slice(&MAGIC);
        match self {
            Self::Packet { source, source_port, destination, ip, .. } => {
                header[4] = PACKET;
                header[5] = if source.is_ipv4() { 4 } else { 6 };
                header[6..8].copy_from_slice(&source_port.to_be_bytes());
                header[8..24].copy_from_slice(&gid(*source));
                header[24..40].copy_from_slice(&gid(*destination));
                header[40..].copy_from_slice(&[ip.traffic_class, ip.hop_limit]);
            }
            Self::Answer { family, position, nonce } => {
                header[4] = ANSWER;
                header[5] = if *family == Family::V4 { 4 } else { 6 };
                header[6] = *position;
                header[8..12].copy_from_slice(&nonce.to_be_bytes());
            }
            Self::Held(Requester { address, ca_guid, comm_id }) => {
                header[4] = HELD;
                header[5] = if address.is_ipv4() { 4 } else { 6 };
                header[8..24].copy_from_slice(&gid(*address));
                header[24..32].copy_from_slice(&ca_guid.to_be_bytes());
                header[32..36].copy_from_slice(&comm_id.to_be_bytes());
            }
            Self::Confirm => header[4..6].copy_from_slice(&[CONFIRM, 4]),
            Self::Confirmed => header[4..6].copy_from_slice(&[CONFIRMED, 4]),
        }
        header
    }

    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, datagram) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let rest = header.strip_prefix(&MAGIC)?;
        let family = match rest[1] {
            4 => Family::V4,
            6 => Family::V6,
            _ => return None,
        };
        let address = |at: usize| {
            let octets: [u8; 16] = header[at..at + 16].try_into().ok()?;
            let address = Ipv6Addr::from(octets);
            match family {
                Family::V4 => address.to_ipv4_mapped().map(IpAddr::V4),
                // An IPv4-mapped address belongs to the other family.
                Family::V6 => address.to_ipv4_mapped().is_none().then_some(IpAddr::V6(address)),
            }
        };
        match rest[0] {
            PACKET => Some(Self::Packet {
                source: address(8)?,
                source_port: u16::from_be_bytes([header[6], header[7]]),
                destination: address(24)?,
                ip: IpFields { traffic_class: header[40], hop_limit: header[41] },
                datagram,
            }),
            ANSWER if datagram.is_empty() => {
                let nonce = u32::from_be_bytes(header[8..12].try_into().ok()?);
                Some(Self::Answer { family, position: header[6], nonce })
            }
            HELD if datagram.is_empty() => Some(Self::Held(Requester {
                address: address(8)?,
                ca_guid: u64::from_be_bytes(header[24..32].try_into().ok()?),
                comm_id: u32::from_be_bytes(header[32..36].try_into().ok()?),
            })),
            CONFIRM if datagram.is_empty() => Some(Self::Confirm),
            CONFIRMED if datagram.is_empty() => Some(Self::Confirmed),
            _ => None,
        }
    }
}

impl Port {
    /// Forwards a packet to the slot of its queue pair number, and queries the positions again.
    pub(super) fn forward(&self, slot: u8, message: &Message<'_>) {
        if !self.owners.is_ours(slot) {
            return self.drops.add(Reason::UnknownQp, 1);
        }
        match self.send_to_slot(slot, message) {
            true => self.drops.forwarded(),
            false => self.drops.add(Reason::NotForwarded, 1),
        }
        self.misdelivered();
    }

    /// False: the kernel rejects the datagram.
    pub(super) fn send_to_slot(&self, slot: u8, message: &Message<'_>) -> bool {
        if let Message::Packet { .. } = message {
            self.exit.forwarded(slot);
        }
        self.send_to_process(slot::address(slot), message)
    }

    /// As [`Port::send_to_slot`], to a loopback address of a process.
    pub(super) fn send_to_process(&self, to: SocketAddr, message: &Message<'_>) -> bool {
        let header = message.header();
        let datagram = match message {
            Message::Packet { datagram, .. } => datagram,
            Message::Answer { .. } | Message::Held(_) | Message::Confirm | Message::Confirmed => &[][..],
        };
        let parts = [IoSlice::new(&header), IoSlice::new(datagram)];
        sys::send_datagram(self.slot.socket(), &Route::to(to), &parts, None).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(message: &Message<'_>, datagram: &[u8]) -> Vec<u8> {
        [&message.header()[..], datagram].concat()
    }

    #[test]
    fn messages_are_parsed_as_they_were_made() {
        let datagram = [7; 20];
        for (source, destination) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "fe80::2")] {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            let ip = IpFields { traffic_class: 0xb8, hop_limit: 63 };
            let message =
                Message::Packet { source, source_port: 0xc123, destination, ip, datagram: &datagram };
            assert_eq!(Message::parse(&encode(&message, &datagram)), Some(message));
        }
        let answer = Message::Answer { family: Family::V6, position: 200, nonce: 0x0102_0304 };
        assert_eq!(Message::parse(&encode(&answer, &[])), Some(answer));
        assert_eq!(Message::parse(&encode(&answer, &[0])), None);
        for message in [Message::Confirm, Message::Confirmed] {
            assert_eq!(Message::parse(&encode(&message, &[])), Some(message));
        }
        for address in ["192.0.2.1", "2001:db8::1"] {
            let requester =
                Requester { address: address.parse().unwrap(), ca_guid: 0x0102_0304_0506_0708, comm_id: 9 };
            let held = Message::Held(requester);
            assert_eq!(Message::parse(&encode(&held, &[])), Some(held));
            assert_eq!(Message::parse(&encode(&held, &[0])), None);
        }
    }

    #[test]
    fn other_bytes_are_no_message_and_no_panic() {
        let mut random = fastrand::Rng::with_seed(24_700);
        let message = Message::Answer { family: Family::V4, position: 1, nonce: 2 };
        for _ in 0..100_000 {
            let mut bytes = encode(&message, &[0; 30]);
            bytes.truncate(random.usize(..=bytes.len()));
            for _ in 0..random.u32(1..4) {
                if let Some(byte) = random.usize(..HEADER_LEN).checked_sub(1).and_then(|at| bytes.get_mut(at))
                {
                    *byte = random.u8(..);
                }
            }
            if let Some(Message::Packet { source, destination, .. }) = Message::parse(&bytes) {
                assert_eq!(source.is_ipv4(), destination.is_ipv4());
            }
        }
    }
}
