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

/// The operation of a write or a read that is carried out.
pub(crate) fn served(wr: &SendWr) -> Served {
    if wr.is_read() { Served::Read } else { Served::Write }
}

/// That of the request at a position of the send queue.
pub(crate) fn operation(sq: &SendQueue, position: u64) -> Served {
    sq.entry(position).map_or(Served::Write, |entry| served(&entry.wr))
}

/// Carries out one request by `transfer`. Returns the number of bytes that were copied.
pub(crate) fn carry_out_one(wr: &SendWr, transfer: impl FnOnce(&[Access], &[Part<'_>]) -> usize) -> usize {
    let len = wr.len as usize;
    let local = match &wr.local {
        Local::Memory { addr, lkey } => {
            let rights = if wr.is_read() { LOCAL_WRITE } else { 0 };
            Part::Memory(Access { stag: *lkey, addr: *addr, len, rights })
        }
        Local::Inline(inline) => Part::Bytes(&inline[..len]),
        _ => return 0,
    };
    transfer(&[wr.remote(0)], &[local]).min(len)
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
