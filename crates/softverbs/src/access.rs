// SPDX-License-Identifier: BSD-3-Clause
//! Access to registered memory: what is asked for, and why it may be refused.
#![forbid(unsafe_code)]

/// Access right: this process's own receives and reads may write here.
pub(crate) const LOCAL_WRITE: u32 = 1;
/// Access right: a peer's RDMA Write may write here.
pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
/// Access right: a peer's RDMA Read may read here.
pub(crate) const REMOTE_READ: u32 = 1 << 2;
/// Access right: a peer's atomic operations may modify memory here.
pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
/// A flush of this region, or a read from it, makes earlier writes durable.
pub(crate) const FLUSH_PERSISTENT: u32 = 1 << 9;

/// A range of a memory region, and the rights that an access to it needs (0: a read by this process's own work requests).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub stag: u32,
    pub addr: u64,
    pub len: usize,
    pub rights: u32,
}

/// Why an access is refused, in the order in which the checks are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No region has this STag.
    Stag,
    /// The region belongs to another protection domain.
    Pd,
    /// The region was registered without the right.
    Rights,
    /// The end of the range does not fit in 64 bits.
    Wrap,
    /// The range leaves the region.
    Bounds,
}

/// Why bytes could not be moved to or from registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// The region does not allow it.
    Denied(Denied),
    /// The region allows it, but the memory is not mapped any more, or not as the access needs it.
    Fault,
}
