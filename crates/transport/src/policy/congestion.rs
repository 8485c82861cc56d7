// SPDX-License-Identifier: BSD-3-Clause
//! The congestion window: how many packets may be outstanding.
//!
//! The specification leaves this to the sender. What fills up first is the receive buffer of the socket that
//! the peer shares among its queue pairs: 25 packets of 4 KiB by default. The window predicts how many
//! packets find room. It grows like that of TCP, by one packet for each acknowledged one until the first loss
//! and by one for each window afterwards, and a loss halves it.
//!
//! It shrinks only when packets were lost, because those that are outstanding are sent again then. At any
//! other time the last packet that the old window permitted would not be the last one of the new window, so
//! it would request no acknowledgement, and the sender would wait for its timer.
//!
//! Before the local ACK timeout a loss is only predicted ([`probe`](super::probe)). If an acknowledgement
//! shows that the peer was late, the window is restored: otherwise a peer whose thread waits for a processor
//! would be sent two packets at a time.
//!
//! Worst cost of a wrong prediction: a window that is too small is sent in a round trip, [`MIN`] packets at
//! least. Of a window that is too large, the packets that find no room are sent again, [`MAX_PACKETS`] at
//! most.

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// Packets at the beginning.
const INITIAL: u32 = 16;
/// The smallest window. With fewer packets in flight every loss would cost a timeout.
const MIN: u32 = 2;
/// The largest window in bytes: the full-size packets that fit in a receive buffer of 4 MiB.
const MAX_BYTES: usize = 2 << 20;
/// Packets at most.
const MAX_PACKETS: usize = 1024;

/// How many packets may be outstanding.
#[derive(Debug)]
pub(crate) struct Window {
    packets: u32,
    max: u32,
    /// Up to here the window grows by one for each packet.
    threshold: u32,
    /// Packets acknowledged since it last grew above the threshold.
    acknowledged: u32,
    /// `packets`, `threshold` and the next packet at the first probe, until it is known whether packets were
    /// lost.
    before: Option<(u32, u32, u64)>,
    decisions: Decisions<Self>,
}

impl Policy for Window {
    const WORST: Cost = Cost::RoundTripForPackets(MIN);

    /// The smallest window, until it is opened.
    fn new(mode: Mode) -> Self {
        let decisions = Decisions::new(mode);
        Self { packets: MIN, max: MIN, threshold: MIN, acknowledged: 0, before: None, decisions }
    }
}

impl Window {
    /// The connection begins, with packets of this length. Yes is the largest window, no the smallest one.
    pub(crate) fn open(&mut self, mtu: usize) {
        self.max = (MAX_BYTES / mtu.max(1)).min(MAX_PACKETS) as u32;
        (self.threshold, self.acknowledged) = (self.max, 0);
        self.packets = self.prescribed().unwrap_or(INITIAL);
    }

    /// Packets that may be outstanding.
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// So many packets were acknowledged. Yes doubles the window.
    pub(crate) fn acknowledged(&mut self, packets: u32) {
        match self.decisions.prescribed() {
            None => self.grow(packets),
            Some(true) => self.packets = self.packets.saturating_mul(2).min(self.max),
            Some(false) => {}
        }
    }

    fn grow(&mut self, packets: u32) {
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
        self.shrink(|_| MIN);
    }

    /// Nothing came back for several round trips: begins again, unless [`Self::was_late`] follows. `next` is
    /// the packet that would have been sent next.
    pub(crate) fn probed(&mut self, next: u64) {
        let before = self.before.unwrap_or((self.packets, self.threshold, next));
        self.timed_out();
        self.before = Some(before);
    }

    /// Nothing was lost when a loss was predicted. Returns the packet that is to be sent next; `None`: no
    /// loss was predicted, or one was found since, or all was sent again.
    pub(crate) fn was_late(&mut self) -> Option<u64> {
        let (packets, threshold, next) = self.before.take()?;
        (self.packets, self.threshold) = (self.packets.max(packets), threshold);
        Some(next)
    }

    /// An acknowledgement no longer shows whether the predicted loss was real.
    pub(crate) fn settled(&mut self) {
        self.before = None;
    }

    /// Packets were lost.
    pub(crate) fn lost(&mut self) {
        self.shrink(|threshold| threshold);
    }

    fn shrink(&mut self, to: impl FnOnce(u32) -> u32) {
        self.threshold = (self.packets / 2).max(MIN);
        self.packets = self.prescribed().unwrap_or(to(self.threshold));
        (self.acknowledged, self.before) = (0, None);
    }

    fn prescribed(&self) -> Option<u32> {
        self.decisions.prescribed().map(|yes| if yes { self.max } else { MIN })
    }
}

#[cfg(test)]
mod tests {
    use super::super::mode::MODES;
    use super::super::trial::Trial;
    use super::*;

    fn opened(mtu: usize, mode: Mode) -> Window {
        let mut window = Window::new(mode);
        window.open(mtu);
        window
    }

    /// Round trips over a path that has room for so many packets. Returns how many packets each one moves.
    fn round_trips(room: u32, mode: Mode) -> Vec<u32> {
        let mut window = opened(4096, mode);
        let round_trip = |_| {
            let moved = window.packets().min(room);
            let lost = window.packets() > room;
            // They may be acknowledged one by one or together.
            (0..moved / 2).for_each(|_| window.acknowledged(1));
            window.acknowledged(moved - moved / 2);
            if lost {
                window.lost();
            }
            moved
        };
        (0..1_000).map(round_trip).collect()
    }

    impl Trial for Window {
        fn costs(mode: Mode) -> Vec<Cost> {
            let rooms = [MIN, 3, 25, 100, 10_000];
            rooms
                .into_iter()
                .flat_map(|room| round_trips(room, mode))
                .map(Cost::RoundTripForPackets)
                .collect()
        }
    }

    #[test]
    fn grows_and_is_halved() {
        let mut window = opened(4096, Mode::Adaptive);
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
    fn a_late_peer_leaves_it_as_it_was() {
        let probed = || {
            let mut window = opened(4096, Mode::Adaptive);
            [70, 12].into_iter().for_each(|next| window.probed(next));
            assert_eq!(window.packets(), MIN);
            window
        };
        let mut late = probed();
        assert_eq!(late.was_late(), Some(70));
        assert_eq!(late.packets(), INITIAL);
        let mut lossy = [probed(), probed(), probed()];
        lossy[0].settled();
        lossy[1].lost();
        lossy[2].timed_out();
        for window in &mut lossy {
            assert_eq!(window.was_late(), None);
        }
    }

    #[test]
    fn has_bounds() {
        let mut window = opened(256, Mode::Adaptive);
        window.acknowledged(u32::MAX);
        assert_eq!(window.packets(), 1024);
        (0..40).for_each(|_| window.lost());
        assert_eq!(window.packets(), MIN);
    }

    #[test]
    fn has_the_same_bounds_in_every_mode() {
        for mode in MODES {
            let mut window = opened(256, mode);
            for round in 0..1_000 {
                assert!((MIN..=1024).contains(&window.packets()), "{mode:?}");
                match round % 7 {
                    0 => window.lost(),
                    1 => window.timed_out(),
                    _ => window.acknowledged(window.packets()),
                }
            }
        }
    }

    #[test]
    fn a_mode_decides_whatever_was_lost() {
        let sizes = |mode| {
            let mut window = opened(4096, mode);
            let sizes = (0..100).map(|_| {
                window.lost();
                window.packets()
            });
            let largest = sizes.filter(|size| *size == 512).count();
            window.timed_out();
            (largest, window.packets())
        };
        assert_eq!((sizes(Mode::Never), sizes(Mode::Always)), ((0, MIN), (100, 512)));
        assert!((25..75).contains(&sizes(Mode::Random(1)).0));
    }

    #[test]
    fn shrinks_only_by_a_loss() {
        for mode in MODES {
            let mut window = opened(1024, mode);
            window.lost();
            let sizes: Vec<_> = (0..1_000)
                .map(|_| {
                    window.acknowledged(1);
                    window.packets()
                })
                .collect();
            assert!(sizes.is_sorted(), "{mode:?}");
        }
    }
}
