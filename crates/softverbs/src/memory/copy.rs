// SPDX-License-Identifier: BSD-3-Clause
//! Bytes in and out of registered memory.
//!
//! A program may unmap memory that it registered, at any time. That must end one connection, not the process, so the kernel does the
//! copying, and answers EFAULT where a plain copy would fault: the socket calls for large payloads, in place, and
//! `process_vm_writev`/`process_vm_readv` on our own process for small ones.
//!
//! There are two exceptions, both behind a question to the kernel whether the pages are there: an aligned 8-byte write, which must be one
//! store, and all of it where a sandbox forbids those two calls. There the memory must not go in the instant between question and copy.

use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use super::table::Grant;
use crate::sys::{self, Errno};

/// The memory is not there, or not writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// Whether the error of a copy through the kernel is about the call and not about the memory.
fn is_forbidden(e: Errno) -> bool {
    matches!(e, libc::ENOSYS | libc::EPERM)
}

/// Places `bytes` at `addr`. Eight bytes at an aligned address are placed with one store, after everything placed before.
///
/// `_grant` is what allows it: it must have been acquired for writing this range.
pub(crate) fn place(_grant: &Grant, addr: u64, bytes: &[u8]) -> Result<(), Fault> {
    let word =
        <[u8; 8]>::try_from(bytes).ok().filter(|_| addr % 8 == 0 && sys::populate(addr, 8, true).is_ok());
    if let Some(word) = word {
        fence(Ordering::Release);
        // SAFETY: the grant allows writing these eight bytes, the kernel has just found them mapped and writable, and the address is
        // aligned. A volatile store of a machine word is one store; no reference to the memory is made.
        unsafe { (addr as *mut u64).write_volatile(u64::from_ne_bytes(word)) };
        return Ok(());
    }
    // SAFETY: the grant allows writing the range.
    match unsafe { sys::copy_to(bytes, addr) } {
        Ok(()) => Ok(()),
        Err(e) if is_forbidden(e) => {
            sys::populate(addr, bytes.len() as u64, true).map_err(|_| Fault)?;
            // SAFETY: the grant allows writing the range and the kernel has just found it mapped and writable. `bytes` is memory of our
            // own, and no region can overlap it, as it was never given to a program.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, bytes.len()) };
            Ok(())
        }
        Err(_) => Err(Fault),
    }
}

/// Copies `into.len()` bytes at `addr` out of registered memory.
///
/// `_grant` is what allows it: it must have been acquired for this range.
pub(crate) fn fetch(_grant: &Grant, addr: u64, into: &mut [u8]) -> Result<(), Fault> {
    match sys::copy_from(addr, into) {
        Ok(()) => Ok(()),
        Err(e) if is_forbidden(e) => {
            sys::populate(addr, into.len() as u64, false).map_err(|_| Fault)?;
            // SAFETY: the grant allows reading the range and the kernel has just found it readable; `into` is memory of our own.
            unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, into.as_mut_ptr(), into.len()) };
            Ok(())
        }
        Err(_) => Err(Fault),
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

#[cfg(test)]
mod tests {
    use super::super::{LOCAL_WRITE, deregister, grant_of};
    use super::*;

    #[test]
    fn bytes_go_in_and_come_out() {
        let mut memory = vec![0u8; 10_000];
        let addr = memory.as_mut_ptr() as u64;
        let (stag, grant) = grant_of(&mut memory, LOCAL_WRITE);
        let sent: Vec<u8> = (0..9_001u32).map(|i| (i % 251) as u8).collect();
        place(&grant, addr + 3, &sent).unwrap();
        let mut got = vec![0u8; sent.len()];
        fetch(&grant, addr + 3, &mut got).unwrap();
        assert_eq!(got, sent);
        let aligned = (addr + 15) & !7;
        place(&grant, aligned, &7u64.to_ne_bytes()).unwrap();
        let mut word = [0u8; 8];
        fetch(&grant, aligned, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 7);
        drop(grant);
        deregister(stag);
    }

    #[test]
    fn memory_that_is_gone_is_a_fault() {
        let mut memory = vec![0u8; 16];
        let (stag, grant) = grant_of(&mut memory, LOCAL_WRITE);
        assert_eq!(place(&grant, 0x1000, &[1; 8]), Err(Fault));
        assert_eq!(fetch(&grant, 0x1000, &mut [0; 4]), Err(Fault));
        drop(grant);
        deregister(stag);
    }
}
