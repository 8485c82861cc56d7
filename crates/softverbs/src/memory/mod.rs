// SPDX-License-Identifier: BSD-3-Clause
//! The memory that programs have registered: who may touch which bytes.
//!
//! [`table`] holds the one table of memory regions. Every access, of this process's own work requests or of a peer, asks it for a
//! [`Grant`] first. [`copy`] moves bytes under a grant, [`dirty`] remembers which of them a flush must make
//! durable.

mod copy;
mod dirty;
mod table;

pub(crate) use copy::{fetch, place, receive};
pub(crate) use dirty::{Dirty, DirtyRanges};
pub(crate) use table::acquire;
pub(crate) use table::{Denied, Grant, Region, deregister, register};

/// Access right: the program's own receives and reads may write here.
pub(crate) const LOCAL_WRITE: u32 = 1;
/// Access right: a peer's RDMA Write may write here.
pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
/// Access right: a peer's RDMA Read may read here.
pub(crate) const REMOTE_READ: u32 = 1 << 2;
/// Access right: a peer's atomic operations may work here.
pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
/// A flush of this region, or a read from it, makes earlier writes durable.
pub(crate) const FLUSH_PERSISTENT: u32 = 1 << 9;

/// A registered buffer, and the right to do anything with it.
#[cfg(test)]
fn grant_of(buf: &mut [u8], access: u32) -> (u32, Grant) {
    let region = Region { addr: buf.as_mut_ptr() as u64, len: buf.len() as u64, access, pd: 1 };
    let stag = register(region).unwrap();
    (stag, acquire(stag, 1, region.addr, region.len, 0).ok().unwrap())
}
