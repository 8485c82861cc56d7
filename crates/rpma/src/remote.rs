// SPDX-License-Identifier: BSD-3-Clause
//! Memory of a peer.

#![forbid(unsafe_code)]

use std::fmt;
use std::ops::{Bound, RangeBounds};

use rpma_core::abi::{RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY};
use rpma_core::descriptor;
use rpma_core::mr::MrRemote;

use crate::error::{Error, ErrorKind, Result};

/// The smallest memory that can be flushed: a flush may be executed as a read of so many bytes.
const LEAST_FLUSH: usize = 8;

/// What a flush guarantees when its operation is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// The writes before it are visible to the peer's program.
    Visible,
    /// They survive a loss of power at the peer.
    Persistent,
}

/// Memory that a peer has exposed: where it is, and what its owner permits.
#[derive(Clone, Copy)]
pub struct Remote {
    mr: MrRemote,
    is_durable: bool,
}

impl Remote {
    /// From the bytes of an [`Offer`](crate::Offer); what follows them is not read. The bytes of
    /// `rpma_mr_get_descriptor` alone are memory that cannot be flushed to persistence.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if this is no offer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mr = MrRemote::from_descriptor(bytes).map_err(|code| Error::of("Remote::from_bytes", code))?;
        let is_durable = bytes.get(descriptor::SIZE).is_some_and(|declared| *declared != 0);
        Ok(Self { mr: *mr, is_durable })
    }

    pub(crate) fn mr(&self) -> &MrRemote {
        &self.mr
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// The size in bytes.
    pub fn len(&self) -> u64 {
        self.mr.size() as u64
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A range of it, in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] if it is not inside, or begins after its end.
    pub fn slice(&self, range: impl RangeBounds<u64>) -> Result<RemoteSlice> {
        let size = self.len();
        // No memory has u64::MAX bytes: a bound behind that is outside as well.
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => size.max(from),
        };
        match end.checked_sub(from) {
            Some(len) if end <= size => {
                Ok(RemoteSlice { remote: *self, offset: from as usize, len: len as usize })
            }
            Some(len) => Err(Error::outside("Remote::slice", from, len, size)),
            None => Err(Error::new(
                ErrorKind::OutOfRange { offset: from, len: 0, size },
                format_args!("Remote::slice: the range {from}..{end} begins after its end"),
            )),
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({} bytes)", self.len())
    }
}

/// A range of a peer's memory, inside of it.
#[derive(Clone, Copy, Debug)]
pub struct RemoteSlice {
    remote: Remote,
    offset: usize,
    len: usize,
}

impl RemoteSlice {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn mr(&self) -> &MrRemote {
        self.remote.mr()
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Fails unless a buffer of this length fits.
    #[inline(always)]
    pub(crate) fn fits(&self, call: &str, len: usize) -> Result<()> {
        if len == self.len && u32::try_from(len).is_ok() { Ok(()) } else { Err(self.misfit(call, len)) }
    }

    #[cold]
    fn misfit(&self, call: &str, len: usize) -> Error {
        if len == self.len {
            return Error::new(
                ErrorKind::Invalid,
                format_args!("Conn::{call}: {len} bytes; one operation transfers less than 4 GiB"),
            );
        }
        let kind = ErrorKind::OutOfRange { offset: self.offset as u64, len: len as u64, size: self.len() };
        Error::new(
            kind,
            format_args!("Conn::{call}: a buffer of {len} bytes for {} bytes of the peer", self.len),
        )
    }

    /// Fails unless its offset and its address are multiples of 8: the memory of a program in C may begin at
    /// any address.
    pub(crate) fn is_aligned(&self, call: &str) -> Result<()> {
        let (offset, addr) = (self.offset, self.mr().addr(self.offset));
        if offset % 8 == 0 && addr % 8 == 0 {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format_args!("Conn::{call}: the offset {offset} or the address {addr:#x} is not a multiple of 8"),
        ))
    }

    /// Offset and length of a flush of this range. It may be executed as a read of 8 bytes at the offset,
    /// which must be inside, too: otherwise it begins earlier.
    pub(crate) fn flushed(&self) -> (usize, usize) {
        let size = self.remote.mr.size();
        let offset = self.offset.min(size.saturating_sub(LEAST_FLUSH));
        (offset, (self.offset - offset + self.len).max(LEAST_FLUSH))
    }

    #[inline(always)]
    pub(crate) fn readable(&self, call: &str) -> Result<()> {
        self.permits(call, self.mr().is_readable(), "read")
    }

    #[inline(always)]
    pub(crate) fn writable(&self, call: &str) -> Result<()> {
        self.permits(call, self.mr().is_writable(), "write")
    }

    #[inline(always)]
    fn permits(&self, call: &str, is_permitted: bool, access: &str) -> Result<()> {
        if is_permitted { Ok(()) } else { Err(not_permitted(call, access)) }
    }

    pub(crate) fn flushable(&self, how: Flush) -> Result<()> {
        let (usage, kind, what) = match how {
            Flush::Visible => (RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, ErrorKind::NotPermitted, "visibility"),
            Flush::Persistent => (RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, ErrorKind::NotDurable, "persistence"),
        };
        let is_declared = how == Flush::Visible || self.remote.is_durable();
        if is_declared && self.mr().flush_type() & usage != 0 {
            let size = self.remote.mr.size();
            if size >= LEAST_FLUSH {
                return Ok(());
            }
            return Err(Error::new(
                ErrorKind::Invalid,
                format_args!("Conn::flush: a flush needs memory of at least {LEAST_FLUSH} bytes, not {size}"),
            ));
        }
        Err(Error::new(
            kind,
            format_args!("Conn::flush: the peer did not expose this memory for flush to {what}"),
        ))
    }
}

#[cold]
fn not_permitted(call: &str, access: &str) -> Error {
    Error::new(
        ErrorKind::NotPermitted,
        format_args!("Conn::{call}: the peer did not expose this memory for {access} access"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpma_core::descriptor::Descriptor;

    fn offer(size: u64, usage: u8, is_durable: u8) -> Vec<u8> {
        let mut bytes = Descriptor { addr: 0x1000, size, rkey: 7, usage }.encode().to_vec();
        bytes.push(is_durable);
        bytes
    }

    #[test]
    fn slices_are_inside() {
        let remote = Remote::from_bytes(&offer(64, 9, 0)).unwrap();
        assert_eq!(remote.slice(..).unwrap().len(), 64);
        assert_eq!(remote.slice(60..64).unwrap().len(), 4);
        assert_eq!(remote.slice(60..=63).unwrap().len(), 4);
        assert!(remote.slice(64..64).unwrap().is_empty());
        for (from, end) in [(0, 65), (65, 65), (8, 7), (u64::MAX, u64::MAX)] {
            let kind = remote.slice(from..end).unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::OutOfRange { size: 64, .. }), "{from}..{end}: {kind:?}");
        }
        assert!(remote.slice(0..=u64::MAX).is_err());
        let text = |range: (Bound<u64>, Bound<u64>)| remote.slice(range).unwrap_err().to_string();
        let (from, end) = (Bound::Included, Bound::Excluded);
        assert_eq!(text((from(10), end(5))), "Remote::slice: the range 10..5 begins after its end");
        let outside = "Remote::slice: 10 bytes at offset 60 are outside the memory of 64 bytes";
        assert_eq!(text((from(60), end(70))), outside);
        let behind = "Remote::slice: 0 bytes at offset 65 are outside the memory of 64 bytes";
        assert_eq!(text((from(65), Bound::Unbounded)), behind);
    }

    #[test]
    fn the_address_of_a_store_is_aligned() {
        let kind = |addr, from| {
            let mut bytes = Descriptor { addr, size: 64, rkey: 7, usage: 8 }.encode().to_vec();
            bytes.push(0);
            let to = Remote::from_bytes(&bytes).unwrap().slice(from..from + 8).unwrap();
            to.is_aligned("store").err().map(|error| error.kind())
        };
        assert_eq!((kind(0x1000, 0), kind(0x1000, 16)), (None, None));
        for (addr, from) in [(0x1000, 4), (0x1004, 0), (0x1004, 4)] {
            assert_eq!(kind(addr, from), Some(ErrorKind::Invalid), "{addr:#x} + {from}");
        }
    }

    #[test]
    fn rights_are_those_of_the_offer() {
        let all = |usage, durable| Remote::from_bytes(&offer(64, usage, durable)).unwrap().slice(..).unwrap();
        let kind = |result: Result<()>| result.err().map(|error| error.kind());
        assert_eq!(kind(all(1, 0).readable("read")), None);
        assert_eq!(kind(all(1, 0).writable("write")), Some(ErrorKind::NotPermitted));
        assert_eq!(kind(all(8, 0).readable("read")), Some(ErrorKind::NotPermitted));
        assert_eq!(kind(all(16, 0).flushable(Flush::Visible)), None);
        assert_eq!(kind(all(8, 1).flushable(Flush::Visible)), Some(ErrorKind::NotPermitted));
        assert_eq!(kind(all(32, 1).flushable(Flush::Persistent)), None);
        assert_eq!(kind(all(32, 0).flushable(Flush::Persistent)), Some(ErrorKind::NotDurable));
        assert_eq!(kind(all(16, 1).flushable(Flush::Persistent)), Some(ErrorKind::NotDurable));
    }
}
