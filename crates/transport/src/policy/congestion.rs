// SPDX-License-Identifier: BSD-3-Clause
//! The congestion window: how many packets may be outstanding.
//!
//! The specification leaves this to the sender. What fills up first is the receive buffer of the socket that
//! the peer shares among its queue pairs: 25 packets of 4 KiB by default. The window grows like that of TCP,
//! by one packet for each acknowledged one until the first loss and by one for each window afterwards, and a
//! loss halves it.

/// Packets at the beginning.
const INITIAL: u32 = 16;
/// The smallest window. With fewer packets in flight every loss would cost a timeout.
const MIN: u32 = 2;
/// The largest window in bytes: the full-size packets that fit in a receive buffer of 4 MiB.
const MAX_BYTES: usize = 2 << 20;
/// Packets at most.
const MAX_PACKETS: usize = 1024;

/// How many packets may be outstanding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    packets: u32,
    max: u32,
    /// Up to here the window grows by one for each packet.
    threshold: u32,
    /// Packets acknowledged since it last grew above the threshold.
    acknowledged: u32,
}

impl Window {
    pub(crate) fn new(mtu: usize) -> Self {
        let max = (MAX_BYTES / mtu.max(1)).min(MAX_PACKETS) as u32;
        Self { packets: INITIAL, max, threshold: max, acknowledged: 0 }
    }

    /// Packets that may be outstanding.
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// So many packets were acknowledged.
    pub(crate) fn acknowledged(&mut self, packets: u32) {
        if self.packets < self.threshold {
            self.packets = self.packets.saturating_add(packets).min(self.threshold);
            return;
        }
        self.acknowledged = self.acknowledged.saturating_add(packets);
        if self.acknowledged >= self.packets {
            self.acknowledged = 0;
            self.packets = (self.packets + 1).min(self.max);
        }
    }

    /// Nothing came back for a whole timeout: begins again.
    pub(crate) fn timed_out(&mut self) {
        self.lost();
        self.packets = MIN;
    }

    /// Packets were lost.
    pub(crate) fn lost(&mut self) {
        self.threshold = (self.packets / 2).max(MIN);
        self.packets = self.threshold;
        self.acknowledged = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_is_halved() {
        let mut window = Window::new(4096);
        window.acknowledged(16);
        assert_eq!(window.packets(), 2 * INITIAL);
        window.lost();
        assert_eq!(window.packets(), INITIAL);
        window.acknowledged(INITIAL - 1);
        assert_eq!(window.packets(), INITIAL, "not before a whole window is acknowledged");
        window.acknowledged(1);
        assert_eq!(window.packets(), INITIAL + 1);
        window.timed_out();
        assert_eq!(window.packets(), MIN);
        window.acknowledged(100);
        assert_eq!(window.packets(), INITIAL.div_ceil(2), "fast up to half of what was too much");
    }

    #[test]
    fn has_bounds() {
        let mut window = Window::new(256);
        window.acknowledged(u32::MAX);
        assert_eq!(window.packets(), 1024);
        (0..40).for_each(|_| window.lost());
        assert_eq!(window.packets(), MIN);
    }
}
