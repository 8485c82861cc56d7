// SPDX-License-Identifier: BSD-3-Clause
//! RDMA Writes and Reads that the host carries out by direct copy, for connections of both transports: which
//! memory of the two sides they name.
//!
//! Small requests with the same operation and key are carried out together, in order, so that the host needs
//! one system call for all of them. Adjacent ranges become one.

use arrayvec::ArrayVec;

use crate::access::{Access, LOCAL_WRITE};
use crate::host::Served;
use crate::limits::MAX_SGE;
use crate::sq::{Entry, SendQueue};
use crate::wr::{Local, SendWr};

/// Ranges of the peer's memory that one system call accesses, on behalf of one or more requests.
pub const MAX_TOGETHER: usize = 64;

/// The maximum total length of requests that are carried out together.
const TOGETHER_BYTES: usize = 64 * 1024;

/// One element of a gathered send.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Registered memory.
    Memory(Access),
}

impl Part<'_> {
    /// Bytes.
    pub fn byte_len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Memory(access) => access.len,
        }
    }
}

/// The operation of a request that is carried out.
pub(crate) fn operation(sq: &SendQueue, position: u64) -> Served {
    let is_read = sq.entry(position).is_some_and(|entry| entry.wr.is_read());
    if is_read { Served::Read } else { Served::Write }
}

/// Carries out requests by `transfer`, from the `first` one on, whose first `from` bytes are done; those that
/// `permits` accepts. Returns the number of further bytes that were copied.
pub(crate) fn carry_out(
    sq: &SendQueue,
    first: u64,
    mut from: u32,
    permits: impl Fn(&SendWr) -> bool,
    transfer: impl FnOnce(&[Access], &[Part<'_>]) -> usize,
) -> usize {
    let mut ranges = ArrayVec::<Access, MAX_TOGETHER>::new();
    let mut local = ArrayVec::<Part<'_>, { MAX_TOGETHER + MAX_SGE }>::new();
    let (mut bytes, mut kind) = (0, None);
    for position in first.. {
        let Some(Entry { wr, .. }) = sq.entry(position) else { break };
        let len = (wr.len - from) as usize;
        let fits = !ranges.is_full() && local.len() < MAX_TOGETHER && bytes + len <= TOGETHER_BYTES;
        if kind.is_some_and(|kind| kind != (wr.op, wr.rkey) || !fits || !permits(wr)) {
            break;
        }
        kind = Some((wr.op, wr.rkey));
        let own_rights = if wr.is_read() { LOCAL_WRITE } else { 0 };
        let access = wr.remote(from);
        if !ranges.last_mut().is_some_and(|last| last.append(access)) {
            ranges.push(access);
        }
        match &wr.local {
            Local::Inline(inline) => local.push(Part::Bytes(&inline[from as usize..][..len])),
            Local::LongInline(inline) => local.push(Part::Bytes(&inline[from as usize..][..len])),
            memory => {
                for part in memory.parts(from, len, own_rights) {
                    let last = local
                        .last_mut()
                        .and_then(|last| if let Part::Memory(last) = last { Some(last) } else { None });
                    if !last.is_some_and(|last| last.append(part)) {
                        local.push(Part::Memory(part));
                    }
                }
            }
        }
        from = 0;
        bytes += len;
    }
    transfer(&ranges, &local).min(bytes)
}
