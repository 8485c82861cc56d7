// SPDX-License-Identifier: BSD-3-Clause
//! Registered memory: what a world needs of it, and an implementation with byte arrays.

use crate::access::{Access, Denied, FLUSH_PERSISTENT, Unchanged, Unreachable};

/// A placement of a batch: the access, and where its bytes are in the input.
pub type Placement = (Access, usize);

/// The table of memory regions of a process, with the accesses of [`crate::host::Host`] to it.
pub trait Memory {
    /// Checks an access.
    fn check(&mut self, access: Access) -> Result<(), Denied>;
    /// Checks a placement, which is carried out by [`Memory::settle`].
    fn place(&mut self, access: Access, _from: usize) -> Result<(), Denied> {
        self.check(access)
    }
    /// Carries out placements in order; `Err(k)`: the memory of the k-th is gone.
    fn settle(&mut self, batch: &[Placement], input: &[u8]) -> Result<(), usize> {
        for (k, (access, from)) in batch.iter().enumerate() {
            self.store(*access, &input[*from..][..access.len]).map_err(|_| k)?;
        }
        Ok(())
    }
    /// Places bytes at once; the access was checked.
    fn store(&mut self, access: Access, bytes: &[u8]) -> Result<(), Unreachable>;
    /// Checks an access and copies its bytes.
    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable>;
    /// Checks an access to eight bytes and replaces them; returns the previous number.
    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged>;
    /// The access with these rights to all of a region.
    fn whole(&mut self, stag: u32, rights: u32) -> Result<Access, Denied>;
    /// Checks an access. Whether it must find earlier writes durable.
    fn is_persistent(&mut self, access: Access) -> Result<bool, Denied>;
}

/// Whether a region can be accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Registered and mapped.
    #[default]
    Mapped,
    /// Registered, but not mapped any more.
    Unmapped,
    /// Not registered any more.
    Deregistered,
    /// Registered in another protection domain.
    Foreign,
}

/// A memory region.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its key.
    pub stag: u32,
    /// Its first byte.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
    /// Access rights.
    pub rights: u32,
    /// Whether it can be accessed.
    pub state: State,
}

/// Regions of one array of bytes. They may overlap.
#[derive(Debug)]
pub struct Regions {
    /// The array.
    pub bytes: Vec<u8>,
    base: u64,
    /// The table.
    pub table: Vec<Region>,
    /// The memory from this address on is not mapped any more.
    pub mapped_to: u64,
}

impl Regions {
    /// Memory with these contents at the address `base`.
    pub fn new(base: u64, bytes: Vec<u8>, table: Vec<Region>) -> Self {
        Self { bytes, base, table, mapped_to: u64::MAX }
    }

    /// The index of the region with an STag, whether it is registered or not.
    pub fn find(&self, stag: u32) -> Option<usize> {
        self.table.iter().position(|region| region.stag == stag)
    }

    /// The checks of the table of memory regions, in its order; the index of the region.
    pub fn allowed(&self, access: Access) -> Result<usize, Denied> {
        let index = self.find(access.stag).ok_or(Denied::Stag)?;
        let region = &self.table[index];
        match region.state {
            State::Deregistered => return Err(Denied::Stag),
            State::Foreign => return Err(Denied::Pd),
            State::Mapped | State::Unmapped => {}
        }
        if access.rights & !region.rights != 0 {
            return Err(Denied::Rights);
        }
        let end = access.addr.checked_add(access.len as u64).ok_or(Denied::Wrap)?;
        if access.addr < region.addr || end > region.addr + region.len as u64 {
            return Err(Denied::Bounds);
        }
        Ok(index)
    }

    /// Whether an access is permitted, and its bytes are mapped.
    pub fn is_mapped(&self, access: Access) -> bool {
        self.allowed(access).is_ok_and(|index| {
            let is_there = access.addr + access.len as u64 <= self.mapped_to;
            is_there && self.table[index].state == State::Mapped
        })
    }

    /// The bytes of a range in the array.
    pub fn at(&self, addr: u64, len: usize) -> &[u8] {
        &self.bytes[(addr - self.base) as usize..][..len]
    }

    /// The bytes of a permitted access, if they are mapped: not outside the array.
    fn mapped(&mut self, access: Access) -> Option<&mut [u8]> {
        let state = self.table[self.find(access.stag)?].state;
        let is_mapped = state != State::Unmapped && access.addr + access.len as u64 <= self.mapped_to;
        let from = access.addr.checked_sub(self.base).filter(|_| is_mapped)? as usize;
        self.bytes.get_mut(from..from + access.len)
    }
}

impl Memory for Regions {
    fn check(&mut self, access: Access) -> Result<(), Denied> {
        self.allowed(access).map(drop)
    }

    fn store(&mut self, access: Access, bytes: &[u8]) -> Result<(), Unreachable> {
        self.mapped(access).ok_or(Unreachable::Fault)?.copy_from_slice(bytes);
        Ok(())
    }

    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable> {
        self.allowed(from).map_err(Unreachable::Denied)?;
        into.copy_from_slice(self.mapped(from).ok_or(Unreachable::Fault)?);
        Ok(())
    }

    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged> {
        self.allowed(access).map_err(Unchanged::Denied)?;
        if access.addr % 8 != 0 {
            return Err(Unchanged::Misaligned);
        }
        let word = self.mapped(access).ok_or(Unchanged::Fault)?;
        let original = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        word.copy_from_slice(&update(original).to_ne_bytes());
        Ok(original)
    }

    fn whole(&mut self, stag: u32, rights: u32) -> Result<Access, Denied> {
        let Region { addr, len, .. } = self.table[self.find(stag).ok_or(Denied::Stag)?];
        let access = Access { stag, addr, len, rights };
        self.allowed(access).map(|_| access)
    }

    fn is_persistent(&mut self, access: Access) -> Result<bool, Denied> {
        Ok(self.table[self.allowed(access)?].rights & FLUSH_PERSISTENT != 0)
    }
}
