// SPDX-License-Identifier: BSD-3-Clause
//! One-sided operations that the host carries out itself in the memory of the peer, for connections of both
//! transports: the interface of the host, and which memory of the two sides they name.
//!
//! RDMA Writes and Reads are direct copies. Small ones with the same operation and key are carried out
//! together, in order, so that the host needs one system call for all of them. Adjacent ranges become one.
//!
//! An atomic operation or an atomic write is one access to a word ([`WordAccess`]), on its own.

use arrayvec::ArrayVec;

use crate::access::{Access, LOCAL_WRITE};
use crate::host::{Host, Served};
use crate::limits::MAX_SGE;
use crate::sq::{Entry, SendQueue};
use crate::wr::{Local, Op, SendWr, WORD};

/// Ranges of the peer's memory that one system call accesses, on behalf of one or more requests.
pub const MAX_TOGETHER: usize = 64;

/// Parts of the local memory of these requests: the last one adds up to [`MAX_SGE`].
pub const MAX_LOCAL_PARTS: usize = MAX_TOGETHER + MAX_SGE;

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

/// An access to eight aligned bytes of the peer's memory, which hold a number in host byte order. It is
/// atomic with respect to all other accesses to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordAccess {
    /// Stores this number, visible after everything that was stored before.
    Store(u64),
    /// Adds this number, modulo 2^64.
    Add(u64),
    /// Stores `swap` if the number is `compare`.
    CompareSwap {
        /// The number to compare with.
        compare: u64,
        /// The number to store.
        swap: u64,
    },
}

impl WordAccess {
    /// The number after the access.
    pub fn apply(self, original: u64) -> u64 {
        match self {
            Self::Store(number) => number,
            Self::Add(number) => original.wrapping_add(number),
            Self::CompareSwap { compare, swap } if original == compare => swap,
            Self::CompareSwap { .. } => original,
        }
    }

    /// The access that a request makes; for a store its local memory is read. `None`: it goes over the link,
    /// where an error is reported as well.
    fn of(wr: &SendWr, host: &mut impl Host) -> Option<Self> {
        let mut word = [0; WORD];
        match &wr.local {
            Local::Atomic { compare_add, swap, .. } => {
                return Some(match wr.op {
                    Op::FetchAdd => Self::Add(*compare_add),
                    _ => Self::CompareSwap { compare: *compare_add, swap: *swap },
                });
            }
            Local::Inline(inline) => word.copy_from_slice(&inline[..WORD]),
            memory => {
                let mut rest = &mut word[..];
                for part in memory.parts(0, WORD, 0) {
                    let (bytes, behind) = rest.split_at_mut(part.len);
                    host.fetch(part, bytes).ok()?;
                    rest = behind;
                }
                if !rest.is_empty() {
                    return None;
                }
            }
        }
        Some(Self::Store(u64::from_ne_bytes(word)))
    }
}

/// A host that may execute one-sided operations itself, in the memory of the peer.
pub trait DirectAccess: Host {
    /// Copies bytes directly between the memory of the peer and local memory: from `local` to `remote` for
    /// RDMA Writes, in the other direction for RDMA Reads. The rights of `remote` distinguish the two; all
    /// its ranges have the same rights and STag. Both lists have the same total length and are processed in
    /// order. Returns the number of bytes that were copied, counted from the start; with 0 the request goes
    /// over the link, which reports any error. Called only while no earlier request is outstanding, and the
    /// peer must have acted on everything that was sent: a host whose link is a stream ensures that, over
    /// RoCE the peer has acknowledged it.
    fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize;
    /// As [`DirectAccess::transfer`], for one request.
    fn transfer_one(&mut self, wr: &SendWr) -> usize {
        ranges(wr).map_or(0, |(remote, local)| self.transfer(&[remote], &[local]))
    }
    /// Whether [`DirectAccess::access_word`] is possible with this memory of the peer. Asked before each
    /// call.
    fn may_access_word(&mut self, _remote: Access) -> bool {
        true
    }
    /// Accesses a word of the peer's memory directly, and returns the previous number; of a store, any
    /// number. `None`: nothing was done, and the request goes over the link. What
    /// [`DirectAccess::transfer`] requires of the peer holds here, too.
    fn access_word(&mut self, remote: Access, word: WordAccess) -> Option<u64>;
    /// Whether [`DirectAccess::transfer`], or [`DirectAccess::access_word`] for an atomic operation, is
    /// likely to succeed for this access once no earlier request is outstanding.
    fn may_transfer(&self, remote: Access) -> bool;
    /// `completed` requests of the program were executed directly, with `bytes` of payload. The peer does not
    /// see them.
    fn transferred(&mut self, _operation: Served, _completed: u64, _bytes: u64) {}
}

/// A request was carried out, but the memory for its result is not accessible.
pub(crate) struct NoResult;

/// Carries out a request that is an access to a word, and stores the result of an atomic operation in local
/// memory. False: nothing was done. The batch of the host must be empty.
pub(crate) fn carry_out_word(host: &mut impl DirectAccess, wr: &SendWr) -> Result<bool, NoResult> {
    let remote = wr.remote(0);
    // Before the source is read, which may need a system call.
    if remote.addr % WORD as u64 != 0 || !host.may_access_word(remote) {
        return Ok(false);
    }
    let Some(word) = WordAccess::of(wr, host) else { return Ok(false) };
    let Some(original) = host.access_word(remote, word) else { return Ok(false) };
    if wr.is_atomic() {
        for sink in wr.local.parts(0, WORD, LOCAL_WRITE) {
            host.place(sink, 0).map_err(|_| NoResult)?;
        }
        host.settle(&original.to_ne_bytes()).map_err(|_| NoResult)?;
    }
    Ok(true)
}

/// The operation of a request that is carried out.
pub(crate) fn served(wr: &SendWr) -> Served {
    match wr.op {
        Op::Read => Served::Read,
        Op::CompareSwap | Op::FetchAdd => Served::Atomic,
        _ => Served::Write,
    }
}

/// That of the request at a position of the send queue.
pub(crate) fn operation(sq: &SendQueue, position: u64) -> Served {
    sq.entry(position).map_or(Served::Write, |entry| served(&entry.wr))
}

/// The memory of the peer and the local memory of a request; `None` if the latter is not one range. That of a
/// read is never [`Part::Bytes`], which a read would write to.
#[inline]
pub fn ranges(wr: &SendWr) -> Option<(Access, Part<'_>)> {
    let len = wr.len as usize;
    let local = match &wr.local {
        Local::Memory { addr, lkey } => {
            let rights = if wr.is_read() { LOCAL_WRITE } else { 0 };
            Part::Memory(Access { stag: *lkey, addr: *addr, len, rights })
        }
        Local::Inline(inline) if !wr.is_read() => Part::Bytes(&inline[..len]),
        _ => return None,
    };
    Some((wr.remote(0), local))
}

/// Carries out requests from the `first` one on, whose first `from` bytes are done; those that `permits`
/// accepts. Returns the number of further bytes that were copied. `NoResult`: that of the first request,
/// which was carried out.
pub(crate) fn carry_out(
    host: &mut impl DirectAccess,
    sq: &SendQueue,
    first: u64,
    from: u32,
    permits: impl Fn(&SendWr) -> bool,
) -> Result<usize, NoResult> {
    let Some(Entry { wr, .. }) = sq.entry(first).filter(|entry| entry.wr.is_of_word()) else {
        return Ok(copy(host, sq, first, from, permits));
    };
    match carry_out_word(host, wr) {
        Ok(done) => Ok(if done { WORD } else { 0 }),
        Err(NoResult) => {
            host.transferred(served(wr), 1, WORD as u64);
            Err(NoResult)
        }
    }
}

/// [`carry_out`] for RDMA Writes and Reads. For reads the host gets no [`Part::Bytes`]. A function apart: its
/// arrays would be on the stack of all steps, in threads with small stacks.
#[inline(never)]
fn copy(
    host: &mut impl DirectAccess,
    sq: &SendQueue,
    first: u64,
    mut from: u32,
    permits: impl Fn(&SendWr) -> bool,
) -> usize {
    let mut ranges = ArrayVec::<Access, MAX_TOGETHER>::new();
    let mut local = ArrayVec::<Part<'_>, MAX_LOCAL_PARTS>::new();
    let (mut bytes, mut kind) = (0, None);
    for position in first.. {
        let Some(Entry { wr, .. }) = sq.entry(position) else { break };
        let len = (wr.len - from) as usize;
        let fits = !ranges.is_full() && local.len() < MAX_TOGETHER && bytes + len <= TOGETHER_BYTES;
        if wr.is_read() && matches!(wr.local, Local::Inline(_) | Local::LongInline(_)) {
            break;
        }
        let is_like = |kind| kind == (wr.op, wr.rkey) && fits && permits(wr) && !wr.is_of_word();
        if kind.is_some_and(|kind| !is_like(kind)) {
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
    host.transfer(&ranges, &local).min(bytes)
}
