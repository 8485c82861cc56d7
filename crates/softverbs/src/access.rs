// SPDX-License-Identifier: BSD-3-Clause
//! Access to registered memory: the request, and the reasons for which it is denied.
#![forbid(unsafe_code)]

/// Access right: receives and RDMA Reads of this process may write to the region.
pub(crate) const LOCAL_WRITE: u32 = 1;
/// Access right: RDMA Writes of a remote peer may write to the region.
pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
/// Access right: RDMA Reads of a remote peer may read the region.
pub(crate) const REMOTE_READ: u32 = 1 << 2;
/// Access right: atomic operations of a remote peer may modify the region.
pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
/// Access flag: windows may be bound to the region.
pub(crate) const MW_BIND: u32 = 1 << 4;
/// Access flag: the bytes of the region or window are accessed by their offset from its beginning.
pub(crate) const ZERO_BASED: u32 = 1 << 5;
/// Access right: a flush of the region, or any RDMA Read from it, makes earlier writes durable.
pub(crate) const FLUSH_PERSISTENT: u32 = 1 << 9;

/// STags from here on name no region: in a Read Request they stand for what the read is to fill, until it is answered. So whatever rights the
/// memory has, an RDMA Write with such an STag writes nowhere, and the peer does not learn a key.
pub(crate) const FIRST_SINK: u32 = 0xff00_0000;

/// A range of a memory region, and the access rights that are required (0: to be read by a work request of this process).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub stag: u32,
    pub addr: u64,
    pub len: usize,
    pub rights: u32,
}

/// Who accesses registered memory: a queue pair, whether for its program or for its peer. Regions ask for its protection domain, windows
/// of type 2 for its number, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    pub pd: u32,
    pub qp: u32,
}

impl From<u32> for Party {
    /// Somebody in a protection domain, who is no queue pair.
    fn from(pd: u32) -> Self {
        Self { pd, qp: 0 }
    }
}

/// What a window is to be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    /// The STag of the window from then on: the window is known by the upper 24 bits.
    pub rkey: u32,
    /// The STag of the region.
    pub region: u32,
    /// The first byte, by its address in accesses to the region.
    pub addr: u64,
    /// 0 unbinds a window of type 1.
    pub len: u64,
    /// Remote rights, and whether the bytes of the window are accessed by their offsets.
    pub access: u32,
}

/// Why an access is denied, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// No region has this STag.
    Stag,
    /// The region belongs to another protection domain.
    Pd,
    /// The region was registered without the required right.
    Rights,
    /// The end of the range exceeds 64 bits.
    Wrap,
    /// The range is not entirely within the region.
    Bounds,
}

/// Why eight bytes could not be changed by an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unchanged {
    /// The memory region does not permit the access.
    Denied(Denied),
    /// The memory is not aligned to eight bytes.
    Misaligned,
    /// It is no longer mapped, or not writable.
    Fault,
}

/// Why data could not be copied to or from registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// The memory region does not permit the access.
    Denied(Denied),
    /// The region permits it, but the memory is no longer mapped, or is mapped without the protection that the access needs.
    Fault,
}
