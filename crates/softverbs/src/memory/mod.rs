// SPDX-License-Identifier: BSD-3-Clause
//! Registered memory.
//!
//! [`table`] is the table of memory regions. Every access, whether by a work request of this process or by a
//! remote peer, first acquires a [`Grant`] from it. [`place`] copies bytes under grants, aligned words with a
//! single store ([`word`]); [`exchange`] carries out atomic operations; [`durable`] makes regions durable.
//! [`mapping`] finds what memory is mapped, and [`backing`] maps memory of a memfd again; [`exporters`]
//! tracks the peers that copy directly.

pub(crate) mod backing;
mod durable;
mod exchange;
mod exporters;
mod mapping;
mod place;
mod table;
mod word;

pub(crate) use backing::{Backing, examine, memfd_device};
pub(crate) use durable::make_durable;
pub(crate) use exchange::change;
pub(crate) use exporters::{Exporter, add_exporter, remove_exporter};
pub(crate) use place::{Batch, fetch, fetch_pieces, store};
#[cfg(test)]
pub(crate) use table::FULL;
pub(crate) use table::{
    Change, Changed, Grant, Region, acquire, register_at, stays_mapped, try_deregister, whole,
};
pub(crate) use table::{alloc_window, another_key, bind_window, free_window, invalidate};
#[cfg(any(test, fuzzing))]
pub(crate) use table::{deregister, register};

/// Registers a buffer in protection domain 1 and returns its STag.
#[cfg(test)]
fn region_of(buf: &mut [u8], access: u32) -> u32 {
    let region = Region { addr: buf.as_mut_ptr() as u64, len: buf.len() as u64, access, pd: 1 };
    register(region).unwrap()
}

/// Sets a flag when it is dropped, so that the threads of a failed test end.
#[cfg(test)]
struct AtEnd<'a>(&'a std::sync::atomic::AtomicBool);

#[cfg(test)]
impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}
