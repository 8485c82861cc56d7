// SPDX-License-Identifier: BSD-3-Clause
//! The interface between a connection and its driver: the reasons for a step, its budget, and its result.

/// What has happened since the last step: bits, combined with `|`.
pub mod reason {
    /// A work request was posted to the send queue.
    pub const POSTED: u32 = 1;
    /// The link may be readable.
    pub const READABLE: u32 = 1 << 1;
    /// The link may be writable.
    pub const WRITABLE: u32 = 1 << 2;
    /// The peer has closed its side, or the link has failed: nothing arrives after the bytes that the link
    /// holds.
    pub const HANGUP: u32 = 1 << 3;
    /// A receive was posted.
    pub const RECEIVE: u32 = 1 << 4;
    /// A completion queue that was full has room again.
    pub const ROOM: u32 = 1 << 5;
    /// A flush to persistence is complete.
    pub const DURABLE: u32 = 1 << 6;
    /// A deadline may have passed.
    pub const TIME: u32 = 1 << 7;
    /// The program ends the connection.
    pub const DISCONNECT: u32 = 1 << 8;
    /// The budget of the last step was used up.
    pub const AGAIN: u32 = 1 << 9;
    /// All reasons.
    pub const ALL: u32 = (1 << 10) - 1;
}

/// How much a step may move in each direction before the driver serves other connections.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// For sending.
    pub send: Quota,
    /// For receiving.
    pub receive: Quota,
}

/// A number of bytes and of operations. Operations are limited too, since a small one takes as long as
/// thousands of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quota {
    /// Bytes sent or received over the link, or copied directly.
    pub bytes: usize,
    /// DDP segments, and requests that are carried out by direct copy.
    pub operations: usize,
}

impl Quota {
    /// A limit on bytes alone.
    pub fn of_bytes(bytes: usize) -> Self {
        Self { bytes, operations: usize::MAX }
    }

    pub(crate) fn is_used_up(self) -> bool {
        self.bytes == 0 || self.operations == 0
    }

    /// Subtracts the work that was done.
    pub fn charge(&mut self, operations: usize, bytes: usize) {
        self.operations = self.operations.saturating_sub(operations);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stepped {
    /// The budget is used up: step again with [`reason::AGAIN`].
    pub again: bool,
    /// Bytes received and sent.
    pub moved: usize,
    /// Segments and requests that were processed, as [`Quota`] counts them.
    pub operations: usize,
    /// The event, besides those of the link, after which the driver must step the connection.
    pub awaits: Awaits,
}

/// What blocks a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Awaits {
    #[default]
    /// Nothing but events of the link and posted requests.
    Nothing,
    /// A posted receive.
    Receive,
    /// Room in the completion queue of the receive queue.
    Room,
}
