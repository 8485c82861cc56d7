// SPDX-License-Identifier: BSD-3-Clause
//! The memory that programs have registered: who may touch which bytes.
//!
//! [`table`] holds the one table of memory regions. Every access, of this process's own work requests or of a peer, asks it for a
//! [`Grant`] first. [`place`] moves bytes under a grant, [`durable`] makes what was changed durable.

mod durable;
mod place;
mod table;

pub(crate) use durable::make_durable;
pub(crate) use place::{Batch, fetch};
pub(crate) use table::{Grant, Region, acquire, deregister, register};

/// A registered buffer, of protection domain 1.
#[cfg(test)]
fn region_of(buf: &mut [u8], access: u32) -> u32 {
    let region = Region { addr: buf.as_mut_ptr() as u64, len: buf.len() as u64, access, pd: 1 };
    register(region).unwrap()
}
