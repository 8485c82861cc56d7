// SPDX-License-Identifier: BSD-3-Clause
//! A datagram that has arrived, with its addresses.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use crate::sys::IpFields;
use transport::roce::wire::{Addresses, Flow, UDP_PORT};

/// How a datagram has reached this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    Network,
    /// The process of this slot has sent it to the slot of this process.
    Slot(u8),
    /// A process has passed it on to a listener of this process.
    Listener,
}

/// A datagram from the network, or one that was forwarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub source: IpAddr,
    pub source_port: u16,
    pub destination: IpAddr,
    pub ip: IpFields,
    pub bytes: &'a [u8],
    pub via: Via,
}

impl Datagram<'_> {
    pub(super) fn is_forwarded(&self) -> bool {
        self.via != Via::Network
    }

    /// The addresses and ports that the ICRC covers.
    pub(super) fn flow(&self) -> Option<Flow> {
        let addresses = Addresses::between(self.source, self.destination)?;
        Some(Flow { addresses, source_port: self.source_port, destination_port: UDP_PORT })
    }
}
