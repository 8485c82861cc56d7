// SPDX-License-Identifier: BSD-3-Clause
//! The interface between a connection and its driver: the reasons for a step, its budget, its result, and the
//! traits of a connection of any transport.

use crate::units::{Errno, Micros};

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

impl Budget {
    /// The work of both directions together, if so much of the budget is left.
    pub(crate) fn used(self, left: Self) -> Quota {
        Quota {
            bytes: self.receive.bytes - left.receive.bytes + (self.send.bytes - left.send.bytes),
            operations: self.receive.operations - left.receive.operations
                + (self.send.operations - left.send.operations),
        }
    }
}

/// The operations that an atomic operation of the peer counts as. In memory that may be unmapped at any time
/// the host needs a process for it, which takes 25 to 40 us; other operations take 0.6 us.
pub(crate) const ATOMIC_OPERATIONS: usize = 64;

/// A number of bytes and of operations. Operations are limited too, since a small one takes as long as
/// thousands of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quota {
    /// Bytes sent or received over the link, or copied directly.
    pub bytes: usize,
    /// DDP segments or packets, and requests that are carried out by direct copy. An atomic operation of the
    /// peer is more than one.
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

/// The state of a connection of any transport.
pub trait Progress {
    /// When a step with [`reason::TIME`] is due.
    fn deadline(&self) -> Option<Micros>;
    /// Whether all requests that were taken from the host are completed.
    fn has_completed_all(&self) -> bool;
    /// The connection moves messages.
    fn is_open(&self) -> bool;
    /// The connection has ended.
    fn is_over(&self) -> bool;
    /// Whether it has taken a receive whose completion is not in the completion queue yet.
    fn has_receive(&self) -> bool;
    /// Whether the next acknowledgements of the peer free entries of the send queue. False where a request is
    /// complete without one.
    fn awaits_entries(&self) -> bool {
        false
    }
    /// From now on a message without a receive ends the connection; a step with [`reason::RECEIVE`] follows.
    /// Without effect where no message waits for a receive: the peer sends it again.
    fn wait_no_more(&mut self) {}
}

/// A connection that a driver steps, with a host that has a link of its transport.
pub trait Connection<H>: Progress {
    /// Does what can be done now: `why` has the reasons of the step.
    fn step(&mut self, host: &mut H, why: u32, budget: Budget) -> Stepped;
    /// What a flush to persistence waited for, by the number that
    /// [`Host::make_durable`](crate::host::Host::make_durable) was given; a step with [`reason::DURABLE`]
    /// follows.
    fn durable(&mut self, host: &mut H, number: u64, durable: bool);
    /// Ends a connection that was never opened, or whose link is gone.
    fn lose(&mut self, host: &mut H, errno: Errno);
    /// Takes one more request, which fails with this status and ends the connection; the caller has checked
    /// [`Progress::has_completed_all`].
    fn fail_next(&mut self, host: &mut H, status: u32);
    /// The queue pair is destroyed: nothing completes any more.
    fn abandon(&mut self, host: &mut H);
}

/// Implements [`Connection`] by the methods of a type, for hosts with this link; in braces, the methods of
/// [`Progress`] whose default does not suffice.
macro_rules! connection {
    ($conn:ty, $link:path $(, { $($progress:tt)* })?) => {
        impl $crate::step::Progress for $conn {
            fn deadline(&self) -> Option<$crate::units::Micros> {
                self.deadline()
            }

            fn has_completed_all(&self) -> bool {
                self.has_completed_all()
            }

            fn is_open(&self) -> bool {
                self.is_open()
            }

            fn is_over(&self) -> bool {
                self.is_over()
            }

            fn has_receive(&self) -> bool {
                self.has_receive()
            }

            $($($progress)*)?
        }

        impl<H: $link> $crate::step::Connection<H> for $conn {
            #[inline]
            fn step(
                &mut self,
                host: &mut H,
                why: u32,
                budget: $crate::step::Budget,
            ) -> $crate::step::Stepped {
                self.step(host, why, budget)
            }

            fn durable(&mut self, host: &mut H, number: u64, durable: bool) {
                self.durable(host, number, durable);
            }

            fn lose(&mut self, host: &mut H, errno: $crate::units::Errno) {
                self.lose(host, errno);
            }

            fn fail_next(&mut self, host: &mut H, status: u32) {
                self.fail_next(host, status);
            }

            fn abandon(&mut self, host: &mut H) {
                self.abandon(host);
            }
        }
    };
}
pub(crate) use connection;
