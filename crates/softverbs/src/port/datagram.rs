// SPDX-License-Identifier: BSD-3-Clause
//! A datagram that has arrived, with its addresses.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use transport::roce::wire::{Addresses, Flow, UDP_PORT};

/// A datagram from the network, or one that was forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub source: IpAddr,
    pub source_port: u16,
    pub destination: IpAddr,
    pub bytes: &'a [u8],
    pub forwarded: bool,
}

impl Datagram<'_> {
    /// The addresses and ports that the ICRC covers.
    pub(super) fn flow(&self) -> Option<Flow> {
        let addresses = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Addresses::V4 { source: source.octets(), destination: destination.octets() }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Addresses::V6 { source: source.octets(), destination: destination.octets() }
            }
            _ => return None,
        };
        Some(Flow { addresses, source_port: self.source_port, destination_port: UDP_PORT })
    }
}
