// SPDX-License-Identifier: BSD-3-Clause
//! One direction of a TCP connection: bytes that were written, those of them that have arrived, those that
//! were read.

use crate::units::Micros;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// So many bytes.
    Bytes(usize),
    /// No byte yet.
    Nothing,
    /// The end of the stream.
    End,
    /// The connection was reset.
    Reset,
}

/// The whole stream is kept for the checker; three offsets are the bytes that were sent, have arrived and
/// were read.
#[derive(Debug, Default)]
pub struct Pipe {
    bytes: Vec<u8>,
    arrived: usize,
    read: usize,
    /// What both sockets buffer together.
    pub capacity: usize,
    /// The writer has ended the stream; its end follows the bytes.
    pub fin: bool,
    /// The end has arrived.
    pub fin_arrived: bool,
    /// The connection was reset: bytes that have arrived can be read, the others are lost.
    pub reset: bool,
    /// The reader discards all bytes that arrive.
    pub swallowing: bool,
    /// The reader has closed its end: writing fails.
    pub refused: bool,
    /// Bytes were in transit when the connection was reset.
    pub lossy: bool,
    /// The writer has to wait for room.
    pub wants_room: bool,
    /// Nothing arrives before this time.
    pub frozen_until: Micros,
}

impl Pipe {
    /// A stream with room for so many bytes.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// A new stream in the same allocation.
    pub fn begin(&mut self, capacity: usize) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Self { bytes, capacity, ..Self::default() };
    }

    /// Bytes that the writer can write now.
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.bytes.len() - self.read)
    }

    /// The writer can write so many bytes from now on.
    pub fn set_room(&mut self, n: usize) {
        self.capacity = self.unread().saturating_add(n);
    }

    /// Bytes written since the beginning.
    pub fn written(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes read since the beginning.
    pub fn bytes_read(&self) -> u64 {
        self.read as u64
    }

    /// Bytes that have arrived since the beginning.
    pub fn bytes_arrived(&self) -> u64 {
        self.arrived as u64
    }

    /// Bytes that were written and have not arrived.
    pub fn on_the_way(&self) -> usize {
        self.bytes.len() - self.arrived
    }

    /// Bytes that were written and not read.
    pub fn unread(&self) -> usize {
        self.bytes.len() - self.read
    }

    /// Bytes that can be read now.
    pub fn readable(&self) -> usize {
        self.arrived - self.read
    }

    /// Appends to the stream; the caller checks [`Self::room`].
    pub fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether something can arrive now, be it the end.
    pub fn can_arrive(&self, now: Micros) -> bool {
        !self.reset && now >= self.frozen_until && (self.on_the_way() > 0 || (self.fin && !self.fin_arrived))
    }

    /// Up to `n` bytes arrive, or the end behind the last of them.
    pub fn arrive(&mut self, n: usize) {
        let n = n.min(self.on_the_way());
        self.arrived += n;
        if self.swallowing {
            self.read = self.arrived;
        }
        if self.fin && self.on_the_way() == 0 {
            self.fin_arrived = true;
        }
    }

    /// What a read would return now.
    pub fn look(&self) -> Found {
        match self.readable() {
            0 if self.reset => Found::Reset,
            0 if self.fin_arrived => Found::End,
            0 => Found::Nothing,
            n => Found::Bytes(n),
        }
    }

    /// Reads the next `into.len()` bytes, which have arrived.
    pub fn read(&mut self, into: &mut [u8]) {
        into.copy_from_slice(self.peek(into.len()));
        self.skip(into.len());
    }

    /// The next `n` bytes, which have arrived.
    pub fn peek(&self, n: usize) -> &[u8] {
        &self.bytes[self.read..self.arrived][..n]
    }

    /// The next `n` bytes are read.
    pub fn skip(&mut self, n: usize) {
        self.read += n;
    }

    /// Resets the connection: what has not arrived is lost.
    pub fn cut(&mut self) {
        if self.reset {
            return;
        }
        self.reset = true;
        self.lossy |= self.on_the_way() > 0;
        self.bytes.truncate(self.arrived);
    }

    /// The reader discards the bytes that have arrived and all later ones.
    pub fn swallow(&mut self) {
        self.swallowing = true;
        self.read = self.arrived;
    }
}
