// SPDX-License-Identifier: BSD-3-Clause
//! Accesses to registered memory, and why they are denied.

use std::fmt;

/// Access right: receives and RDMA Reads of this process may write to the region.
pub const LOCAL_WRITE: u32 = 1;
/// Access right: RDMA Writes of a remote peer may write to the region.
pub const REMOTE_WRITE: u32 = 1 << 1;
/// Access right: RDMA Reads of a remote peer may read the region.
pub const REMOTE_READ: u32 = 1 << 2;
/// Access right: atomic operations of a remote peer may modify the region.
pub const REMOTE_ATOMIC: u32 = 1 << 3;
/// Access flag: windows may be bound to the region.
pub const MW_BIND: u32 = 1 << 4;
/// Access flag: the bytes of the region or window are accessed by their offset from its beginning.
pub const ZERO_BASED: u32 = 1 << 5;
/// Access right: a flush makes earlier writes to the region visible.
pub const FLUSH_GLOBAL: u32 = 1 << 8;
/// Access right: a flush of the region, or any RDMA Read from it, makes earlier writes durable.
pub const FLUSH_PERSISTENT: u32 = 1 << 9;

/// STags from this value on belong to no region. A Read Request uses one as its sink STag, which is valid for
/// the response only. So an RDMA Write with such an STag is always denied, whatever rights the memory has,
/// and the peer learns no key.
pub const FIRST_SINK: u32 = 0xff00_0000;

/// A range of a memory region, and the rights that the access requires (0: a local work request reads it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The STag of the region or window.
    pub stag: u32,
    /// The first byte.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
    /// Access rights, combined with `|`.
    pub rights: u32,
}

impl Access {
    /// Appends an access that begins where this one ends; false if `next` does not.
    pub fn append(&mut self, next: Self) -> bool {
        let end = self.addr.checked_add(self.len as u64);
        let follows = self.stag == next.stag && self.rights == next.rights && end == Some(next.addr);
        let len = self.len.checked_add(next.len).filter(|_| follows);
        self.len = len.unwrap_or(self.len);
        len.is_some()
    }
}

/// The originator of an access: a queue pair, for its program or for its peer. Regions check its protection
/// domain, windows of type 2 also its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// The number of its protection domain.
    pub pd: u32,
    /// Its number.
    pub qp: u32,
}

impl From<u32> for Accessor {
    /// An accessor in a protection domain that is not a queue pair.
    fn from(pd: u32) -> Self {
        Self { pd, qp: 0 }
    }
}

/// A bind request for a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The new STag of the window; the upper 24 bits identify the window.
    pub rkey: u32,
    /// The STag of the region.
    pub region: u32,
    /// The first byte, as an access to the region addresses it.
    pub addr: u64,
    /// 0 unbinds a window of type 1.
    pub len: u64,
    /// Remote rights, and whether the bytes of the window are accessed by their offsets.
    pub access: u32,
}

/// The description of a region that lets a peer access it directly: with these rights, `len` bytes from the
/// address `start` on. The owner has them at that address plus `delta`, modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The STag of the region.
    pub stag: u32,
    /// Remote rights.
    pub rights: u32,
    /// The first byte, as an access addresses it.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The offset from an access's address to the owner's.
    pub delta: u64,
    /// Where the first byte is in a file that a peer on the same host may map.
    pub file: Option<FileOffset>,
}

/// A byte of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOffset {
    /// The number of the file descriptor in the process that owns it.
    pub descriptor: u32,
    /// The number of the file in its file system.
    pub inode: u64,
    /// The offset from the beginning of the file.
    pub offset: u64,
}

impl Exported {
    /// The address in the owner's memory if the access is permitted. The fields may have any value: they come
    /// from the peer.
    pub fn find(&self, access: Access) -> Option<u64> {
        let end = access.addr.checked_add(access.len as u64)?;
        let permitted = self.stag == access.stag && self.rights & access.rights == access.rights;
        let inside = access.addr >= self.start && end <= self.start.checked_add(self.len)?;
        (permitted && inside).then(|| access.addr.wrapping_add(self.delta))
    }
}

/// Why an access is denied, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
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

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stag => "there is no memory region with this key",
            Self::Pd => "the memory region is of another protection domain",
            Self::Rights => "the memory region has not been registered for this access",
            Self::Wrap => "the range exceeds the address space",
            Self::Bounds => "the range is not in the memory region",
        })
    }
}

/// Why eight bytes could not be changed by an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// The memory region does not permit the access.
    Denied(Denied),
    /// The memory is not aligned to eight bytes.
    Misaligned,
    /// It is no longer mapped, or not writable.
    Fault,
}

/// Why data could not be copied to or from registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The memory region does not permit the access.
    Denied(Denied),
    /// The region permits it, but the memory is no longer mapped, or is mapped without the protection that
    /// the access needs.
    Fault,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_key_permits_accesses_within_its_bounds_only() {
        let exported = Exported {
            stag: 7,
            rights: REMOTE_READ,
            start: 100,
            len: 50,
            delta: 1u64.wrapping_neg(),
            file: None,
        };
        let at = |addr, len| Access { stag: 7, addr, len, rights: REMOTE_READ };
        assert_eq!(exported.find(at(100, 50)), Some(99));
        assert_eq!(exported.find(at(149, 1)), Some(148));
        assert_eq!(exported.find(at(99, 2)), None);
        assert_eq!(exported.find(at(100, 51)), None);
        assert_eq!(exported.find(at(u64::MAX, 2)), None);
        assert_eq!(exported.find(Access { stag: 8, ..at(100, 1) }), None);
        assert_eq!(exported.find(Access { rights: REMOTE_WRITE, ..at(100, 1) }), None);
        let nonsense = Exported { start: u64::MAX, len: u64::MAX, ..exported };
        assert_eq!(nonsense.find(at(u64::MAX, 0)), None);
    }
}
