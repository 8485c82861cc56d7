// SPDX-License-Identifier: BSD-3-Clause
//! Bytes in and out of registered memory.
//!
//! A program may have unmapped memory that it registered. That must end one connection, not the process, so no address is touched
//! before the kernel was asked about its pages ([`Checked`] remembers the answer for one batch of messages). Large payloads never come
//! this way: the socket calls read and write them in place, and answer EFAULT themselves.

use std::sync::atomic::{Ordering, fence};

use super::table::{Grant, is_registered};
use crate::sys::{self, Errno};
use std::os::fd::OwnedFd;

/// The memory is not there, or not writable, or (for durability) its file could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// Ranges of pages that the kernel has just said to be there: valid for one batch of messages, then forgotten.
#[derive(Default)]
pub(crate) struct Checked {
    /// Start and end of the pages last asked about, for writing.
    write: (u64, u64),
    read: (u64, u64),
}

impl Checked {
    /// Forgets what was found: to be called before each batch.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Makes sure that a range can be touched; `Ok(false)` when the kernel cannot be asked about it.
    fn ask(&mut self, addr: u64, len: u64, write: bool) -> Result<bool, Fault> {
        let known = if write { &mut self.write } else { &mut self.read };
        if addr >= known.0 && addr + len <= known.1 {
            return Ok(true);
        }
        match sys::populate(addr, len, write) {
            Ok(()) => {
                let mask = sys::page_size() - 1;
                *known = (addr & !mask, (addr + len + mask) & !mask);
                Ok(true)
            }
            Err(libc::EINVAL) => Ok(false),
            Err(_) => Err(Fault),
        }
    }

    /// Places `bytes` at `addr`. Eight bytes at an aligned address are placed with one store, after everything placed before.
    ///
    /// `_grant` is what allows it: it must have been acquired for writing this range.
    pub(crate) fn place(&mut self, _grant: &Grant, addr: u64, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.ask(addr, bytes.len() as u64, true)? {
            // SAFETY: the caller holds the grant to write this range.
            return unsafe { sys::copy_checked(bytes, addr) }.map_err(|_| Fault);
        }
        match <[u8; 8]>::try_from(bytes) {
            Ok(word) if addr % 8 == 0 => {
                fence(Ordering::Release);
                // SAFETY: the grant allows writing these eight bytes, the kernel found them mapped and writable, and the address is
                // aligned. A volatile store of a machine word is one store; no reference to the memory is made.
                unsafe { (addr as *mut u64).write_volatile(u64::from_ne_bytes(word)) };
            }
            // SAFETY: the grant allows writing the range and the kernel found it mapped and writable. `bytes` is memory of our own, and
            // no region can overlap it, as it was never given to a program.
            _ => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, bytes.len()) },
        }
        Ok(())
    }

    /// Copies `into.len()` bytes at `addr` out of registered memory.
    ///
    /// `_grant` is what allows it: it must have been acquired for this range.
    pub(crate) fn fetch(&mut self, _grant: &Grant, addr: u64, into: &mut [u8]) -> Result<(), Fault> {
        if into.is_empty() {
            return Ok(());
        }
        self.ask(addr, into.len() as u64, false)?;
        // SAFETY: the grant allows reading the range and the kernel found it readable (where it could not be asked, for device memory,
        // the registration is the program's word that the range stays mapped). `into` is memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, into.as_mut_ptr(), into.len()) };
        Ok(())
    }
}

/// Receives from a socket, first into `len` bytes at `addr`, then into `rest`. EFAULT when the memory is gone; EAGAIN.
///
/// `_grant` is what allows it: it must have been acquired for writing this range.
pub(crate) fn receive(
    socket: &OwnedFd,
    _grant: &Grant,
    addr: u64,
    len: usize,
    rest: &mut [u8],
) -> Result<usize, Errno> {
    // SAFETY: the grant allows writing the range and outlives the call.
    unsafe { sys::recv_into(socket, addr, len, rest) }
}

/// What one connection has written to regions that a flush must make durable, and has not flushed yet.
#[derive(Default)]
pub(crate) struct DirtyRanges {
    ranges: Vec<Dirty>,
}

#[derive(Clone, Copy)]
struct Dirty {
    stag: u32,
    start: u64,
    end: u64,
}

impl DirtyRanges {
    /// Ranges kept apart; beyond that, those of one region become one range.
    const MAX: usize = 16;

    /// Notes that `len` bytes at `addr` were written, if the region asks for durability.
    pub(crate) fn note(&mut self, grant: &Grant, addr: u64, len: u64) {
        if grant.is_persistent() {
            self.add(grant.stag(), addr, addr + len);
        }
    }

    fn add(&mut self, stag: u32, start: u64, end: u64) {
        let full = self.ranges.len() >= Self::MAX;
        for dirty in self.ranges.iter_mut().filter(|d| d.stag == stag) {
            let touches = start <= dirty.end && end >= dirty.start;
            if touches || full {
                dirty.start = dirty.start.min(start);
                dirty.end = dirty.end.max(end);
                return;
            }
        }
        if full {
            // Regions that are gone have nothing left to flush; a long connection may have seen many.
            self.ranges.retain(|dirty| is_registered(dirty.stag));
        }
        self.ranges.push(Dirty { stag, start, end });
    }

    /// Makes durable what was written to the region of `grant`.
    pub(crate) fn flush(&mut self, grant: &Grant) -> Result<(), Fault> {
        let mut result = Ok(());
        self.ranges.retain(|dirty| {
            if dirty.stag != grant.stag() {
                return true;
            }
            if let Err(e) = sys::make_durable(dirty.start, dirty.end - dirty.start) {
                let text = std::io::Error::from_raw_os_error(e);
                log::error!("cannot make {} bytes durable: {text}", dirty.end - dirty.start);
                result = Err(Fault);
            }
            false
        });
        result
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FLUSH_PERSISTENT, LOCAL_WRITE, Region, acquire, deregister, register};
    use super::*;

    fn grant_of(buf: &mut [u8], access: u32) -> (u32, Grant) {
        let region = Region { addr: buf.as_mut_ptr() as u64, len: buf.len() as u64, access, pd: 1 };
        let stag = register(region).unwrap();
        (stag, acquire(stag, 1, region.addr, region.len, 0).ok().unwrap())
    }

    #[test]
    fn bytes_go_in_and_come_out() {
        let mut memory = vec![0u8; 10_000];
        let addr = memory.as_mut_ptr() as u64;
        let (stag, grant) = grant_of(&mut memory, LOCAL_WRITE);
        let mut checked = Checked::default();
        let sent: Vec<u8> = (0..9_001u32).map(|i| (i % 251) as u8).collect();
        checked.place(&grant, addr + 3, &sent).unwrap();
        let mut got = vec![0u8; sent.len()];
        checked.fetch(&grant, addr + 3, &mut got).unwrap();
        assert_eq!(got, sent);
        let aligned = (addr + 15) & !7;
        checked.place(&grant, aligned, &7u64.to_ne_bytes()).unwrap();
        let mut word = [0u8; 8];
        checked.fetch(&grant, aligned, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 7);
        drop(grant);
        deregister(stag);
    }

    #[test]
    fn memory_that_is_gone_is_a_fault() {
        let mut memory = vec![0u8; 16];
        let (stag, grant) = grant_of(&mut memory, LOCAL_WRITE);
        let mut checked = Checked::default();
        assert_eq!(checked.place(&grant, 0x1000, &[1; 8]), Err(Fault));
        assert_eq!(checked.fetch(&grant, 0x1000, &mut [0; 4]), Err(Fault));
        drop(grant);
        deregister(stag);
    }

    #[test]
    fn dirty_ranges_merge_and_are_flushed_once() {
        let mut memory = vec![0u8; 64 * 1024];
        let addr = memory.as_mut_ptr() as u64;
        let (stag, grant) = grant_of(&mut memory, LOCAL_WRITE | FLUSH_PERSISTENT);
        let mut dirty = DirtyRanges::default();
        dirty.note(&grant, addr, 8);
        dirty.note(&grant, addr + 8, 8);
        assert_eq!(dirty.ranges.len(), 1);
        for i in 0..100 {
            dirty.note(&grant, addr + 100 + i * 16, 8);
        }
        assert!(dirty.ranges.len() <= DirtyRanges::MAX);
        dirty.ranges.extend([Dirty { stag: stag ^ 1, start: 0, end: 1 }; 100]);
        let (other, others_grant) = grant_of(&mut [0; 64], LOCAL_WRITE | FLUSH_PERSISTENT);
        dirty.note(&others_grant, addr, 8);
        assert!(dirty.ranges.len() <= DirtyRanges::MAX + 1, "regions that are gone are forgotten");
        assert_eq!(dirty.flush(&grant), Ok(()));
        assert_eq!(dirty.ranges.len(), 1);
        drop(others_grant);
        deregister(other);
        drop(grant);
        deregister(stag);
    }
}
