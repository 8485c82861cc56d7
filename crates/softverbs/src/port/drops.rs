// SPDX-License-Identifier: BSD-3-Clause
//! Packets that were dropped, by reason.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It is too short or too long for a packet, or its addresses are unknown.
    Malformed,
    /// Its destination is a multicast address or the multicast queue pair.
    Multicast,
    /// It is for queue pair 1, connection management.
    Management,
    /// The invariant CRC does not match.
    Icrc,
    /// No queue pair has its number, and no process its slot.
    UnknownQp,
    /// It is not from the peer of the queue pair, or not to its address.
    WrongAddress,
    /// A datagram at the loopback port that no process of this user has sent.
    Distrusted,
    /// It could not be forwarded.
    NotForwarded,
    /// There is no memory for it.
    Memory,
    /// The queue of its queue pair is full.
    Overflow,
    /// The kernel has refused to send it.
    NotSent,
}

const REASONS: usize = Reason::NotSent as usize + 1;

/// Whether a counter has reached the next power of two.
fn has_doubled(before: u64, more: u64) -> bool {
    more > 0 && before.wrapping_add(more).checked_ilog2() != before.checked_ilog2()
}

/// The counters, and that of packets which were forwarded.
#[derive(Default)]
pub(super) struct Drops {
    reasons: [AtomicU64; REASONS],
    forwarded: AtomicU64,
}

impl Drops {
    /// Counts packets. Logs the count whenever it has doubled: flooding the port does not flood the log.
    pub(super) fn add(&self, reason: Reason, packets: u64) {
        let before = self.reasons[reason as usize].fetch_add(packets, Ordering::Relaxed);
        if has_doubled(before, packets) {
            log::debug!(
                "UDP port 4791: packets dropped so far, {reason:?}: {}",
                before.wrapping_add(packets)
            );
        }
    }

    /// A packet was given to the process of its slot.
    pub(super) fn forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(test)]
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
    use super::has_doubled;

    #[test]
    fn a_flood_is_logged_some_sixty_times() {
        let logged: Vec<u64> = (0..1_000_000).filter(|&before| has_doubled(before, 1)).collect();
        assert_eq!(logged[..5], [0, 1, 3, 7, 15]);
        assert_eq!(logged.len(), 20);
        assert!(has_doubled(5, 3) && !has_doubled(5, 2) && !has_doubled(0, 0));
    }
}
