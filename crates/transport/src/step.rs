// SPDX-License-Identifier: BSD-3-Clause
//! A step of a connection, as its driver sees it: why it is made, how much it may do, what came of it.

/// What has happened since the last step; values to be combined with `|`.
pub mod reason {
    /// A work request was posted to the send queue.
    pub const POSTED: u32 = 1;
    /// The link may have bytes.
    pub const READABLE: u32 = 1 << 1;
    /// The link may take bytes.
    pub const WRITABLE: u32 = 1 << 2;
    /// The peer has closed its side, or the link has failed: nothing will follow what the link has.
    pub const HANGUP: u32 = 1 << 3;
    /// A receive was posted.
    pub const RECEIVE: u32 = 1 << 4;
    /// There is room in a completion queue that had none.
    pub const ROOM: u32 = 1 << 5;
    /// What a flush covers is durable.
    pub const DURABLE: u32 = 1 << 6;
    /// A deadline may have passed.
    pub const TIME: u32 = 1 << 7;
    /// The program ends the connection.
    pub const DISCONNECT: u32 = 1 << 8;
    /// The budget of the last step was used up.
    pub const AGAIN: u32 = 1 << 9;
    /// All of them.
    pub const ALL: u32 = (1 << 10) - 1;
}

/// What a step may do each way before other connections have their turn.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Of what is sent.
    pub send: Quota,
    /// Of what is received.
    pub receive: Quota,
}

/// Bytes, and DDP segments or requests that are carried out by direct copy: a small one takes as long as
/// thousands of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quota {
    /// Bytes of the link and of transfers past it.
    pub bytes: usize,
    /// DDP segments, and requests that are carried out by direct copy.
    pub operations: usize,
}

impl Quota {
    /// Of bytes alone.
    pub fn of_bytes(bytes: usize) -> Self {
        Self { bytes, operations: usize::MAX }
    }

    pub(crate) fn is_used_up(self) -> bool {
        self.bytes == 0 || self.operations == 0
    }

    /// Takes off what was done.
    pub fn charge(&mut self, operations: usize, bytes: usize) {
        self.operations = self.operations.saturating_sub(operations);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// What came of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stepped {
    /// The budget is used up: step again with [`reason::AGAIN`].
    pub again: bool,
    /// Bytes taken from the link and given to it.
    pub moved: usize,
    /// Segments and requests that were dealt with, as [`Quota`] counts them.
    pub operations: usize,
    /// What must lead to a step, besides events of the link.
    pub awaits: Awaits,
}

/// What a connection cannot go on without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Awaits {
    #[default]
    /// It goes on with events of the link and what is posted.
    Nothing,
    /// A posted receive.
    Receive,
    /// Room in the completion queue of the receives.
    Room,
}
