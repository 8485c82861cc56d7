// SPDX-License-Identifier: BSD-3-Clause
//! The GID table of the port: an entry for each IP address of the host, since the device serves all of them.
//!
//! IPv4 addresses are entered as IPv4-mapped IPv6 addresses. The addresses are read from the system with each
//! call, because they change. On an iWARP device an index is therefore valid only as long as they do not; on
//! a RoCE device it belongs to its address, and the table has holes.

use libc::c_int;
use rdma_sys::{ibv_context, ibv_gid};

use super::transport::Gid;
use super::{PORT, transport};
use crate::sys::set_errno;

/// `struct ibv_gid_entry`, which is missing from headers older than rdma-core 31.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct GidEntry {
    /// The GID, in network byte order.
    pub gid: [u8; 16],
    /// Its index in the table.
    pub index: u32,
    /// The number of the port.
    pub port: u32,
    /// As in `enum ibv_gid_type`.
    pub kind: u32,
    /// The index of the network interface.
    pub interface: u32,
}

/// What an index of the GID table refers to.
enum Found {
    Entry(GidEntry),
    /// An index within the table that has no address now.
    Hole,
    /// There is no such port, or the index is beyond the table.
    Nothing,
}

impl GidEntry {
    fn new(gid: &Gid) -> Self {
        let (index, port) = (gid.index as u32, u32::from(PORT));
        Self {
            gid: ::transport::roce::wire::gid(gid.ip),
            index,
            port,
            kind: transport().gid_type().verbs,
            interface: gid.interface,
        }
    }
}

/// The number of entries, holes included.
pub(super) fn count() -> usize {
    transport().gid_count()
}

/// The entry of a port with this index.
fn entry(port: u32, index: usize) -> Found {
    if port != u32::from(PORT) || index >= count() {
        return Found::Nothing;
    }
    let gids = transport().gids();
    gids.iter().find(|gid| gid.index == index).map_or(Found::Hole, |gid| Found::Entry(GidEntry::new(gid)))
}

/// Stores entry `index` of the GID table of `port` in `gid`, zeros for a hole. Returns 0, or -1 and errno
/// EINVAL if there is no such port (the only one is 1) or index.
///
/// # Safety
///
/// As for ibv_query_gid(3).
pub unsafe fn ibv_query_gid(_context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
    let found = usize::try_from(index).map_or(Found::Nothing, |index| entry(u32::from(port), index));
    let raw = match found {
        Found::Entry(entry) => entry.gid,
        Found::Hole => [0; 16],
        Found::Nothing => {
            set_errno(libc::EINVAL);
            return -1;
        }
    };
    // SAFETY: ibv_query_gid(3) requires that `gid` is valid for writes.
    unsafe { gid.write(ibv_gid { raw }) };
    0
}

/// The function that the inline ibv_query_gid_ex(3) calls: stores entry `index` of the GID table of `port`,
/// with its type and interface index, in `to`. Returns 0 or an errno value: EINVAL (`flags` is not 0, or
/// `size` is below that of an entry), ENODATA (no such port or entry, or the entry is a hole).
///
/// # Safety
///
/// As for ibv_query_gid_ex(3); `to` must be valid for writes of `size` bytes.
pub unsafe fn _ibv_query_gid_ex(
    _context: *mut ibv_context,
    port: u32,
    index: u32,
    to: *mut GidEntry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 || size < size_of::<GidEntry>() {
        return libc::EINVAL;
    }
    let Found::Entry(entry) = entry(port, index as usize) else { return libc::ENODATA };
    // SAFETY: the caller guarantees that `to` is valid for writes of `size` bytes, at least those of an entry
    // (checked above).
    unsafe { to.write(entry) };
    0
}

/// The function that the inline ibv_query_gid_table(3) calls: stores all entries except holes. Returns their
/// number, or -EINVAL if `flags` is not 0, `size` is below that of an entry, or `max` is below the number of
/// entries; then nothing is stored.
///
/// # Safety
///
/// As for ibv_query_gid_table(3); `to` must be valid for writes of `max` elements of `size` bytes.
pub unsafe fn _ibv_query_gid_table(
    _context: *mut ibv_context,
    to: *mut GidEntry,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    if flags != 0 || size < size_of::<GidEntry>() {
        return -(libc::EINVAL as isize);
    }
    let found = transport().gids();
    if found.len() > max {
        return -(libc::EINVAL as isize);
    }
    for (at, gid) in found.iter().enumerate() {
        // SAFETY: the caller guarantees `max` elements of `size` bytes each, at least those of an entry, and
        // `at` is below `max` (both checked above). An element may be unaligned, depending on `size`.
        unsafe { to.byte_add(at * size).write_unaligned(GidEntry::new(gid)) };
    }
    found.len() as isize
}

/// Stores the type of an entry in `kind`, like the private function of libibverbs that programs of rdma-core
/// call. Returns 0, or -1 and errno EINVAL if there is no such port or index.
///
/// # Safety
///
/// `kind` must be valid for writes.
pub unsafe fn ibv_query_gid_type(_context: *mut ibv_context, port: u8, index: u32, kind: *mut u32) -> c_int {
    let kind_of_entry = match entry(u32::from(port), index as usize) {
        Found::Entry(_) => transport().gid_type().sysfs,
        // As libibverbs.
        Found::Hole => 0,
        Found::Nothing => {
            set_errno(libc::EINVAL);
            return -1;
        }
    };
    // SAFETY: the caller guarantees that `kind` is valid for writes.
    unsafe { kind.write(kind_of_entry) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_the_host_has_an_entry() {
        let context = crate::context();
        let count = count();
        // SAFETY: `context` is the one of the software device; `entries` has `count` elements, at least one
        // for the loopback address, and each `gid` is a local variable.
        unsafe {
            let mut entries =
                vec![GidEntry { gid: [0; 16], index: 9, port: 9, kind: 9, interface: 0 }; count];
            let short =
                _ibv_query_gid_table(context, entries.as_mut_ptr(), count - 1, 0, size_of::<GidEntry>());
            assert_eq!(short, -(libc::EINVAL as isize), "there is no room for one");
            assert!(entries.iter().all(|entry| entry.port == 9), "nothing is stored");
            let found = _ibv_query_gid_table(context, entries.as_mut_ptr(), count, 0, size_of::<GidEntry>());
            assert_eq!(found, count as isize);
            let loopback = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
            assert!(entries.iter().any(|entry| entry.gid == loopback && entry.interface != 0));
            for (i, entry) in entries.iter().take(count).enumerate() {
                let mut gid = ibv_gid { raw: [0; 16] };
                assert_eq!(ibv_query_gid(context, 1, i as c_int, &mut gid), 0);
                assert_eq!((gid.raw, entry.index as usize, entry.port), (entry.gid, i, 1));
            }
            let mut gid = ibv_gid { raw: [7; 16] };
            for (port, index) in [(0, 0), (2, 0), (1, -1), (1, count as c_int)] {
                assert_eq!(ibv_query_gid(context, port, index, &mut gid), -1);
            }
            assert_eq!(gid.raw, [7; 16], "nothing is written");
            assert_eq!(
                _ibv_query_gid_ex(context, 1, count as u32, entries.as_mut_ptr(), 0, 32),
                libc::ENODATA
            );
            assert_eq!(_ibv_query_gid_ex(context, 1, 0, entries.as_mut_ptr(), 1, 32), libc::EINVAL);
            assert_eq!(
                _ibv_query_gid_table(context, entries.as_mut_ptr(), 1, 0, 31),
                -(libc::EINVAL as isize)
            );
        }
    }
}
