// SPDX-License-Identifier: BSD-3-Clause
//! What is in a ring already, before its packets are sent.
#![forbid(unsafe_code)]

use transport::access::Access;

/// Payload that is in the ring already, behind the last packet: that of the next ones, if they have headers
/// of this length.
#[derive(Default)]
pub(super) struct Ahead {
    /// Where the payload of these packets lies, each of one length, and which one is next.
    pieces: Vec<Access>,
    next: usize,
    headers: usize,
    /// The place of the next packet in the ring: the ring may restart at its first byte.
    at: u64,
}

impl Ahead {
    /// Nothing is ahead.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// Begins with these pieces of one length, of packets with headers of this length. The first one is sent
    /// now; the next frame has this place.
    pub(super) fn begin(&mut self, pieces: impl Iterator<Item = Access>, headers: usize, at: u64) {
        self.pieces.clear();
        self.pieces.extend(pieces);
        (self.next, self.headers, self.at) = (1, headers, at);
    }

    pub(super) fn pieces(&self) -> &[Access] {
        &self.pieces
    }

    /// Whether the payload `from` of a packet that is sent at this place is there, behind headers of this
    /// length. The next frame follows after `frame` bytes.
    pub(super) fn take(&mut self, from: Access, headers: usize, at: u64, frame: usize) -> bool {
        let is_next = self.pieces.get(self.next) == Some(&from) && self.headers == headers && self.at == at;
        if is_next {
            self.next += 1;
            self.at += frame as u64;
        }
        is_next
    }
}
