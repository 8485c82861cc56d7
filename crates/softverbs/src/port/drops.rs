// SPDX-License-Identifier: BSD-3-Clause
//! Packets that were dropped, by reason. The metrics list them.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use rpma_metrics::packets::Packets;

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Too short, too long, not of the transport service of its queue pair, or without addresses.
    Malformed,
    /// The destination is a multicast address or the multicast queue pair.
    Multicast,
    /// For queue pair 1, and no message of connection management, or one that cannot be passed on.
    Management,
    /// The invariant CRC is wrong.
    Icrc,
    /// No queue pair has its number, and no process its slot.
    UnknownQp,
    /// Not from the peer of the queue pair, or not to its address.
    WrongAddress,
    /// Another P_Key than that of the queue pair.
    Pkey,
    /// A request after a gap, a response to no outstanding request, or a packet that continues no message.
    Psn,
    /// A datagram with another Q_Key than that of the queue pair.
    Qkey,
    /// A datagram, or a message of an unreliable connection, for which the queue pair has no receive.
    NoReceive,
    /// One that is longer than the receive.
    TooLong,
    /// A write of an unreliable connection that the memory or the queue pair does not permit.
    Access,
    /// A datagram at the loopback port that no process of this user has sent.
    Distrusted,
    /// It could not be forwarded.
    NotForwarded,
    /// Out of memory.
    Memory,
    /// The queue of the queue pair is full, or that of its deferred requests; for queue pair 1, that of the
    /// connection manager.
    Overflow,
    /// The kernel has refused to send it.
    NotSent,
}

const REASONS: usize = Reason::NotSent as usize + 1;

/// The reasons, in the order of [`Reason`]: the label of the metrics, and the words of the log.
const NAMES: [(&str, &str); REASONS] = [
    ("malformed", "malformed"),
    ("multicast", "multicast"),
    ("management", "connection management"),
    ("icrc", "wrong ICRC"),
    ("unknown_qp", "unknown queue pair"),
    ("wrong_address", "wrong address"),
    ("p_key", "wrong P_Key"),
    ("psn", "unexpected PSN"),
    ("q_key", "wrong Q_Key"),
    ("no_receive", "no receive posted for an unreliable message"),
    ("too_long", "unreliable message longer than the receive"),
    ("access", "unreliable write that is not permitted"),
    ("untrusted", "forwarded by an untrusted process"),
    ("not_forwarded", "cannot be forwarded"),
    ("no_memory", "out of memory"),
    ("queue_full", "queue of the queue pair is full"),
    ("not_sent", "not sent by the kernel"),
];

/// Whether a counter has reached the next power of two.
fn has_doubled(before: u64, more: u64) -> bool {
    more > 0 && before.wrapping_add(more).checked_ilog2() != before.checked_ilog2()
}

/// The counters, and that of forwarded packets.
#[derive(Default)]
pub(super) struct Drops {
    reasons: [AtomicU64; REASONS],
    forwarded: AtomicU64,
}

impl Drops {
    /// Counts packets. Logs the count whenever it has doubled, so that a flood does not fill the log.
    pub(super) fn add(&self, reason: Reason, packets: u64) {
        let before = self.reasons[reason as usize].fetch_add(packets, Ordering::Relaxed);
        if has_doubled(before, packets) {
            let (_, words) = NAMES[reason as usize];
            log::debug!("UDP port 4791: packets dropped so far, {words}: {}", before.wrapping_add(packets));
        }
    }

    /// A packet was given to the process of its slot.
    pub(super) fn forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters with the labels of the metrics.
    pub(super) fn counts(&self) -> Packets {
        let dropped = NAMES.iter().zip(&self.reasons);
        Packets {
            dropped: dropped.map(|((label, _), count)| (*label, count.load(Ordering::Relaxed))).collect(),
            forwarded: self.forwarded.load(Ordering::Relaxed),
        }
    }

    /// The count for one reason.
    pub(super) fn get(&self, reason: Reason) -> u64 {
        self.reasons[reason as usize].load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn get_forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_some_sixty_times() {
        let logged: Vec<u64> = (0..1_000_000).filter(|&before| has_doubled(before, 1)).collect();
        assert_eq!(logged[..5], [0, 1, 3, 7, 15]);
        assert_eq!(logged.len(), 20);
        assert!(has_doubled(5, 3) && !has_doubled(5, 2) && !has_doubled(0, 0));
    }

    #[test]
    fn each_reason_has_a_label() {
        let drops = Drops::default();
        for (count, reason) in
            [(1, Reason::Malformed), (2, Reason::Pkey), (3, Reason::Psn), (4, Reason::NotSent)]
        {
            drops.add(reason, count);
        }
        drops.forwarded();
        let Packets { dropped, forwarded } = drops.counts();
        let counted: Vec<_> = dropped.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("malformed", 1), ("p_key", 2), ("psn", 3), ("not_sent", 4)]);
        assert_eq!(forwarded, 1);
    }
}
