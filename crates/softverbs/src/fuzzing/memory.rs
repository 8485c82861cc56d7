// SPDX-License-Identifier: BSD-3-Clause
//! The memory of the process under test: an array whose regions are in the table of memory regions.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{self, Batch, Region};
use crate::sys::Process;
use transport::access::{Access, Bind, Denied, Unchanged, Unreachable};
use transport::testing::connection::memory::{LEN, Table};
use transport::testing::memory::{Memory, Placement};

/// The protection domain of the connection.
const PD: u32 = 1;

/// The array, and the placements of a step.
pub(super) struct Array {
    words: Box<[AtomicU64]>,
    batch: Batch,
    direct: Batch,
}

impl Array {
    pub(super) fn new() -> Self {
        let batch = || Batch::new().expect("memory for a batch");
        let words = (0..LEN as u64 / 8).map(AtomicU64::new).collect();
        Self { words, batch: batch(), direct: batch() }
    }
}

impl Table for Array {
    fn base(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    fn word(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    fn register(&mut self, addr: u64, len: usize, access: u32, own: bool) -> u32 {
        let pd = if own { PD } else { PD + 1 };
        memory::register(Region { addr, len: len as u64, access, pd }).expect("room in the table")
    }

    fn deregister(&mut self, stag: u32) {
        memory::deregister(stag);
    }

    fn bind(&mut self, window: Bind) -> Result<(), Denied> {
        memory::bind_window(window, PD.into())
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Denied> {
        memory::invalidate(stag, 0, PD)
    }
}

impl Memory for Array {
    fn check(&mut self, access: Access) -> Result<(), Denied> {
        memory::acquire(access, PD).map(drop)
    }

    fn place(&mut self, access: Access, from: usize) -> Result<(), Denied> {
        self.batch.add(access, PD, from)
    }

    fn settle(&mut self, _batch: &[Placement], input: &[u8]) -> Result<(), usize> {
        self.batch.carry_out(Process::own(), input)
    }

    fn store(&mut self, access: Access, bytes: &[u8]) -> Result<(), Unreachable> {
        self.direct.add(access, PD, 0).expect("permitted a moment ago");
        self.direct.carry_out(Process::own(), bytes).map_err(|_| Unreachable::Fault)
    }

    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable> {
        memory::fetch(Process::own(), from, PD, into)
    }

    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged> {
        memory::change(access, PD, update)
    }

    fn whole(&mut self, stag: u32, rights: u32) -> Result<Access, Denied> {
        memory::whole(stag, rights, PD)
    }

    fn is_persistent(&mut self, read: Access) -> Result<bool, Denied> {
        Ok(memory::acquire(read, PD)?.persistent(read).is_some())
    }
}
