// SPDX-License-Identifier: BSD-3-Clause
//! The counters of the port that programs read: packets and bytes of queue pairs, and errors. As with an
//! adapter they only ever increase; unlike there, each process has those of its queue pairs.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use super::Port;
use super::drops::Reason;

/// A counter of a port, with the name and unit that it has in sysfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortCounter {
    /// Bytes sent from BTH to ICRC, in units of 4 bytes.
    XmitData,
    /// Packets sent.
    XmitPackets,
    /// Packets that the kernel has refused to send.
    XmitDiscards,
    /// Bytes received from BTH to ICRC, in units of 4 bytes.
    RcvData,
    /// Packets received for queue pairs of this process.
    RcvPackets,
    /// Packets received that are malformed or have a wrong ICRC.
    RcvErrors,
}

/// Bytes in the unit of the counters of data.
const WORD_LEN: u64 = 4;

impl PortCounter {
    /// The counter with this name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "port_xmit_data" => Self::XmitData,
            "port_xmit_packets" => Self::XmitPackets,
            "port_xmit_discards" => Self::XmitDiscards,
            "port_rcv_data" => Self::RcvData,
            "port_rcv_packets" => Self::RcvPackets,
            "port_rcv_errors" => Self::RcvErrors,
            _ => return None,
        })
    }

    /// Its value: 0 before the process has a queue pair that is connected.
    pub fn value(self) -> u64 {
        Port::bound().map_or(0, |port| self.of(&port))
    }

    pub(super) fn of(self, port: &Port) -> u64 {
        let Port { traffic, drops, .. } = port;
        match self {
            Self::XmitData => traffic.sent.bytes.load(Ordering::Relaxed) / WORD_LEN,
            Self::XmitPackets => traffic.sent.packets.load(Ordering::Relaxed),
            Self::XmitDiscards => drops.get(Reason::NotSent),
            Self::RcvData => traffic.received.bytes.load(Ordering::Relaxed) / WORD_LEN,
            Self::RcvPackets => traffic.received.packets.load(Ordering::Relaxed),
            Self::RcvErrors => drops.get(Reason::Malformed) + drops.get(Reason::Icrc),
        }
    }
}

/// Packets of one direction.
#[derive(Default)]
pub(super) struct Sum {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Sum {
    pub(super) fn add(&self, packets: u64, bytes: usize) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Packets of the queue pairs of this process. Those of connection management are not counted.
#[derive(Default)]
pub(super) struct Traffic {
    pub sent: Sum,
    pub received: Sum,
}
