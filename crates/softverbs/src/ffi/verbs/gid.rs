// SPDX-License-Identifier: BSD-3-Clause
//! The GID table of the port: one entry for each IP address of the host, since the device serves all of them.
//!
//! IPv4 addresses are entered as IPv4-mapped IPv6 addresses. The table is read from the system with each
//! call, because addresses change; an index is therefore valid only as long as they do not.

use libc::{c_int, sockaddr};
use rdma_sys::{ibv_context, ibv_gid};
use std::ffi::CStr;
use std::net::IpAddr;
use std::ptr::null_mut;

use super::PORT;
use crate::cm::addr;
use crate::sys::set_errno;

/// `struct ibv_gid_entry`, which is missing from headers older than rdma-core 31.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GidEntry {
    gid: [u8; 16],
    index: u32,
    port: u32,
    kind: u32,
    interface: u32,
}

/// The type of each entry: IBV_GID_TYPE_IB, used for every transport but RoCE.
const KIND: u32 = 0;

/// An address of the host and the index of its interface.
struct Local {
    gid: [u8; 16],
    interface: u32,
}

impl Local {
    /// The table entry with this index.
    fn entry(&self, index: usize) -> GidEntry {
        let port = u32::from(PORT);
        GidEntry { gid: self.gid, index: index as u32, port, kind: KIND, interface: self.interface }
    }
}

/// The addresses of the host, loopback addresses last: a program that uses the first entry should get an
/// address that other hosts can reach. Empty if getifaddrs(3) fails.
fn table() -> Vec<Local> {
    let mut all = Vec::new();
    let mut list: *mut libc::ifaddrs = null_mut();
    // SAFETY: `list` is a local variable that getifaddrs sets to the address of its result.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let mut next: *const libc::ifaddrs = list;
    while !next.is_null() {
        // SAFETY: `next` is not NULL, so it is an entry of the list that getifaddrs has returned, which is
        // freed only after the loop.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: getifaddrs(3) returns for each interface NULL or an address that is as long as its family
        // requires.
        let Ok(address) = (unsafe { addr::read(entry.ifa_addr.cast::<sockaddr>()) }) else { continue };
        let ip = address.ip();
        let gid = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        // SAFETY: `ifa_name` is a C string (getifaddrs(3)) in the list, which outlives `name`.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        // SAFETY: `name` is a CStr, so its pointer is a C string; if_nametoindex only reads it.
        let interface = unsafe { libc::if_nametoindex(name.as_ptr()) };
        all.push((ip.is_loopback(), Local { gid, interface }));
    }
    // SAFETY: `list` was returned by getifaddrs, and no reference into it is used afterwards: the addresses
    // were copied.
    unsafe { libc::freeifaddrs(list) };
    all.sort_by_key(|(loopback, _)| *loopback);
    all.into_iter().map(|(_, local)| local).collect()
}

/// The number of entries.
pub(super) fn count() -> usize {
    table().len()
}

/// The entry of a port with this index, if both exist.
fn entry(port: u32, index: usize) -> Option<GidEntry> {
    let local = table().into_iter().nth(index).filter(|_| port == u32::from(PORT))?;
    Some(local.entry(index))
}

/// Stores entry `index` of the GID table of `port` in `gid`. Returns 0, or -1 and errno EINVAL if there is no
/// such port (the only one is 1) or entry.
///
/// # Safety
///
/// As for ibv_query_gid(3).
pub unsafe fn ibv_query_gid(_context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
    let Some(entry) = usize::try_from(index).ok().and_then(|index| entry(u32::from(port), index)) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    // SAFETY: ibv_query_gid(3) requires that `gid` is valid for writes.
    unsafe { gid.write(ibv_gid { raw: entry.gid }) };
    0
}

/// The function that the inline ibv_query_gid_ex(3) calls: stores entry `index` of the GID table of `port`,
/// with its type and interface index, in `to`. Returns 0 or an errno value: EINVAL (`flags` is not 0, or
/// `size` is below that of an entry), ENODATA (no such port or entry).
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
    let Some(entry) = entry(port, index as usize) else { return libc::ENODATA };
    // SAFETY: the caller guarantees that `to` is valid for writes of `size` bytes, at least those of an entry
    // (checked above).
    unsafe { to.write(entry) };
    0
}

/// The function that the inline ibv_query_gid_table(3) calls: stores all entries. Returns their number, or
/// -EINVAL if `flags` is not 0, `size` is below that of an entry, or `max` is below the number of entries;
/// then nothing is stored.
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
    let found = table();
    if found.len() > max {
        return -(libc::EINVAL as isize);
    }
    for (at, local) in found.iter().enumerate() {
        // SAFETY: the caller guarantees `max` elements of `size` bytes each, at least those of an entry, and
        // `at` is below `max` (both checked above). An element may be unaligned, depending on `size`.
        unsafe { to.byte_add(at * size).write_unaligned(local.entry(at)) };
    }
    found.len() as isize
}

/// Stores the type of an entry in `kind`, like the private function of libibverbs that programs of rdma-core
/// call. Returns 0, or -1 and errno EINVAL if there is no such port or entry.
///
/// # Safety
///
/// `kind` must be valid for writes.
pub unsafe fn ibv_query_gid_type(_context: *mut ibv_context, port: u8, index: u32, kind: *mut u32) -> c_int {
    let Some(entry) = entry(u32::from(port), index as usize) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    // SAFETY: the caller guarantees that `kind` is valid for writes.
    unsafe { kind.write(entry.kind) };
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
