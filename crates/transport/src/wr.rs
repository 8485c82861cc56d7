// SPDX-License-Identifier: BSD-3-Clause
//! Work requests and completions.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::access::{Access, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use crate::limits::MAX_SGE;
use crate::route::Route;
use crate::units::Errno;

/// Bytes of inline data that are stored in the work request itself; librpma needs 8.
pub const SHORT_INLINE: usize = 32;

/// Bytes of the word of an atomic operation or an atomic write, and its alignment.
pub const WORD: usize = 8;

/// Status of a completion: names and values of `enum ibv_wc_status`.
#[expect(missing_docs, reason = "the values are those of verbs.h")]
pub mod status {
    pub const SUCCESS: u32 = 0;
    pub const LOC_LEN_ERR: u32 = 1;
    pub const LOC_QP_OP_ERR: u32 = 2;
    pub const LOC_PROT_ERR: u32 = 4;
    pub const WR_FLUSH_ERR: u32 = 5;
    pub const MW_BIND_ERR: u32 = 6;
    pub const BAD_RESP_ERR: u32 = 7;
    pub const REM_INV_REQ_ERR: u32 = 9;
    pub const REM_ACCESS_ERR: u32 = 10;
    pub const REM_OP_ERR: u32 = 11;
    pub const RETRY_EXC_ERR: u32 = 12;
    pub const RNR_RETRY_EXC_ERR: u32 = 13;
}

/// Opcode of a completion: names and values of `enum ibv_wc_opcode`.
#[expect(missing_docs, reason = "the values are those of verbs.h")]
pub mod opcode {
    pub const SEND: u32 = 0;
    pub const RDMA_WRITE: u32 = 1;
    pub const RDMA_READ: u32 = 2;
    pub const COMP_SWAP: u32 = 3;
    pub const FETCH_ADD: u32 = 4;
    pub const BIND_MW: u32 = 5;
    pub const LOCAL_INV: u32 = 6;
    pub const FLUSH: u32 = 8;
    pub const ATOMIC_WRITE: u32 = 9;
    pub const RECV: u32 = 128;
    pub const RECV_RDMA_WITH_IMM: u32 = 129;
}

/// What a message carried besides its payload, in network byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extra {
    #[default]
    /// Nothing.
    Nothing,
    /// Immediate data.
    Imm([u8; 4]),
    /// The STag that the message has invalidated.
    Invalidated([u8; 4]),
}

/// A work completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The `wr_id` of the work request.
    pub wr_id: u64,
    /// One of [`status`].
    pub status: u32,
    /// One of [`opcode`].
    pub opcode: u32,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data or invalidated STag of the message.
    pub extra: Extra,
    /// The number of the queue pair.
    pub qp_num: u32,
    /// The sender requested a solicited event.
    pub solicited: bool,
    /// The sender, if it is a datagram. The receive then begins with an IP header.
    pub sender: Option<Sender>,
}

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The number of its queue pair.
    pub qp: u32,
    /// The IP header is one of IPv4.
    pub is_ipv4: bool,
}

/// The operation of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// RDMA Write.
    Write,
    /// RDMA Write that completes a receive of the peer.
    WriteWithImm,
    /// RDMA Read.
    Read,
    /// An atomic operation, with [`Local::Atomic`].
    CompareSwap,
    /// As [`Self::CompareSwap`].
    FetchAdd,
    /// Writes eight bytes with a single store (IBTA, annex A19).
    AtomicWrite,
    /// Makes what was written to the peer's memory visible or durable, with [`Local::Flush`] (IBTA, annex
    /// A19).
    Flush,
    /// Send.
    Send,
    /// Send with immediate data.
    SendWithImm,
    /// A Send that invalidates a memory window of the peer, [`SendWr::rkey`].
    SendWithInv,
    /// Binds a memory window.
    BindMw,
    /// Invalidates a memory window.
    LocalInv,
}

impl Op {
    /// The name in log messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "RDMA write",
            Self::WriteWithImm => "RDMA write with immediate data",
            Self::Read => "RDMA read",
            Self::CompareSwap => "compare-and-swap",
            Self::FetchAdd => "fetch-and-add",
            Self::AtomicWrite => "atomic write",
            Self::Flush => "flush",
            Self::Send => "send",
            Self::SendWithImm => "send with immediate data",
            Self::SendWithInv => "send with invalidate",
            Self::BindMw => "bind of a memory window",
            Self::LocalInv => "local invalidate",
        }
    }

    /// The [`opcode`] of its completion.
    pub fn completion_opcode(self) -> u32 {
        match self {
            Self::Send | Self::SendWithImm | Self::SendWithInv => opcode::SEND,
            Self::Write | Self::WriteWithImm => opcode::RDMA_WRITE,
            Self::Read => opcode::RDMA_READ,
            Self::CompareSwap => opcode::COMP_SWAP,
            Self::FetchAdd => opcode::FETCH_ADD,
            Self::AtomicWrite => opcode::ATOMIC_WRITE,
            Self::Flush => opcode::FLUSH,
            Self::BindMw => opcode::BIND_MW,
            Self::LocalInv => opcode::LOCAL_INV,
        }
    }
}

/// A scatter/gather entry: a range of registered memory. Its key is checked each time bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    key: NonZeroU32,
}

/// The entries of a work request. If there are several, empty ones are left out: their keys are never
/// checked.
pub type Entries = ArrayVec<Sge, MAX_SGE>;

impl Sge {
    /// A range of the region with the key `lkey`.
    pub fn new(addr: u64, len: u32, lkey: u32) -> Self {
        // No region has the key 0 or 1.
        Self { addr, len, key: NonZeroU32::new(lkey).unwrap_or(NonZeroU32::MIN) }
    }

    /// The key of the region.
    pub fn lkey(&self) -> u32 {
        self.key.get()
    }
}

/// The parts of `entries` that hold the `len` bytes from byte `from` on, in order.
fn parts(entries: &[Sge], from: u32, len: usize, rights: u32) -> impl Iterator<Item = Access> + Clone {
    let (mut skip, mut left) = (from, len);
    entries.iter().filter_map(move |entry| {
        let skipped = skip.min(entry.len);
        skip -= skipped;
        let len = left.min((entry.len - skipped) as usize);
        left -= len;
        let addr = entry.addr.wrapping_add(u64::from(skipped));
        (len > 0).then_some(Access { stag: entry.lkey(), addr, len, rights })
    })
}

/// A copy on the heap, for data that few requests have, so that the others stay small. ENOMEM.
fn try_boxed<T: Copy>(values: &[T]) -> Result<Box<[T]>, Errno> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(values.len()).map_err(|_| libc::ENOMEM)?;
    copy.extend_from_slice(values);
    Ok(copy.into_boxed_slice())
}

/// The local memory of a request: the source of its payload, or the destination of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// Registered memory: one entry, whose length is that of the request.
    Memory {
        /// The first byte.
        addr: u64,
        /// The key of the region.
        lkey: u32,
    },
    /// Registered memory: several entries, whose lengths add up to that of the request.
    Entries(Box<[Sge]>),
    /// Inline data, copied when the request was posted.
    Inline([u8; SHORT_INLINE]),
    /// Inline data that exceeds [`SHORT_INLINE`].
    LongInline(Box<[u8]>),
    /// No payload: binds a window to a range of the region that starts at [`SendWr::remote_addr`];
    /// [`SendWr::rkey`] becomes the key of the window.
    Window {
        /// The STag of the region.
        region: u32,
        /// Remote rights of the window, and whether it is zero-based.
        access: u32,
        /// Bytes.
        len: u64,
    },
    /// Registered memory for the previous value of the remote word, and the operands.
    Atomic {
        /// The destination of the previous value.
        addr: u64,
        /// The key of its region.
        lkey: u32,
        /// The value to add or to compare with.
        compare_add: u64,
        /// The value to store.
        swap: u64,
    },
    /// No payload: flushes a range of the peer's memory that starts at [`SendWr::remote_addr`].
    Flush {
        /// Bytes.
        len: u32,
        /// The rights that the flush requires: [`FLUSH_GLOBAL`](crate::access::FLUSH_GLOBAL),
        /// [`FLUSH_PERSISTENT`](crate::access::FLUSH_PERSISTENT) or both.
        rights: u32,
        /// Flushes the whole region instead of the range.
        whole: bool,
    },
}

impl Local {
    /// ENOMEM.
    pub fn memory(entries: &[Sge]) -> Result<Self, Errno> {
        match entries {
            [] => Ok(Self::Memory { addr: 0, lkey: 0 }),
            [only] => Ok(Self::Memory { addr: only.addr, lkey: only.lkey() }),
            several => Ok(Self::Entries(try_boxed(several)?)),
        }
    }

    /// ENOMEM.
    pub fn inline(bytes: &[u8]) -> Result<Self, Errno> {
        let mut short = [0; SHORT_INLINE];
        match short.get_mut(..bytes.len()) {
            Some(front) => {
                front.copy_from_slice(bytes);
                Ok(Self::Inline(short))
            }
            None => Ok(Self::LongInline(try_boxed(bytes)?)),
        }
    }

    /// The registered memory that holds the `len` bytes from byte `from` on, in order; empty for inline data.
    pub fn parts(&self, from: u32, len: usize, rights: u32) -> impl Iterator<Item = Access> + Clone {
        let (only, several) = match self {
            Self::Memory { addr, lkey } | Self::Atomic { addr, lkey, .. } => {
                let addr = addr.wrapping_add(u64::from(from));
                (Some(Access { stag: *lkey, addr, len, rights }), &[][..])
            }
            Self::Entries(entries) => (None, &entries[..]),
            Self::Inline(_) | Self::LongInline(_) | Self::Window { .. } | Self::Flush { .. } => {
                (None, &[][..])
            }
        };
        only.into_iter().chain(parts(several, from, len, rights))
    }
}

/// A work request of the send queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWr {
    /// The number that the program chose.
    pub wr_id: u64,
    /// The operation.
    pub op: Op,
    /// Success creates a completion, too.
    pub signaled: bool,
    /// The request waits for all earlier RDMA Reads and atomic operations.
    pub fence: bool,
    /// The peer's completion raises a solicited event.
    pub solicited: bool,
    /// Immediate data in network byte order.
    pub imm: [u8; 4],
    /// The local memory.
    pub local: Local,
    /// Bytes of the payload.
    pub len: u32,
    /// The address of the first byte in the peer's memory.
    pub remote_addr: u64,
    /// The key of the peer's memory.
    pub rkey: u32,
    /// Where a datagram goes.
    pub to: Option<Destination>,
}

/// The destination of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// That of its address handle, which the program may destroy before the datagram is sent.
    pub route: Arc<Route>,
    /// The number of the queue pair.
    pub qp: u32,
    /// Its Q_Key. With [`OWN_QKEY`] that of the sending queue pair is used.
    pub qkey: u32,
}

/// The bit of a Q_Key that stands for the Q_Key of the queue pair itself.
pub const OWN_QKEY: u32 = 1 << 31;

/// The request in log messages: operation, length and addresses.
impl fmt::Display for SendWr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = if let Local::Flush { len, .. } = self.local { len } else { self.len };
        write!(f, "{}, {len} bytes", self.op.name())?;
        let mut parts = self.local.parts(0, self.len as usize, 0);
        if let Some(part) = parts.next() {
            write!(f, ", local address {:#x}, lkey {:#x}", part.addr, part.stag)?;
            match parts.count() {
                0 => {}
                more => write!(f, " and {more} more")?,
            }
        }
        if self.is_answered() || matches!(self.op, Op::Write | Op::WriteWithImm) {
            write!(f, ", remote address {:#x}, rkey {:#x}", self.remote_addr, self.rkey)?;
        }
        if let Some(Destination { route, qp, .. }) = &self.to {
            write!(f, ", to queue pair {qp:#x} of {}", route.peer)?;
        }
        write!(f, ", wr_id {:#x}", self.wr_id)
    }
}

impl SendWr {
    /// The route of a datagram.
    pub(crate) fn route(&self) -> Option<&Route> {
        self.to.as_ref().map(|to| &*to.route)
    }

    /// Whether it is an RDMA Read.
    pub fn is_read(&self) -> bool {
        self.op == Op::Read
    }

    /// Whether it is an atomic operation.
    pub fn is_atomic(&self) -> bool {
        matches!(self.op, Op::CompareSwap | Op::FetchAdd)
    }

    /// Whether the request completes with a response of the peer, and so counts towards the ORD.
    pub fn is_answered(&self) -> bool {
        matches!(self.op, Op::Read | Op::CompareSwap | Op::FetchAdd | Op::AtomicWrite | Op::Flush)
    }

    /// Whether the response stores bytes in the memory of this side.
    pub fn returns_data(&self) -> bool {
        matches!(self.op, Op::Read | Op::CompareSwap | Op::FetchAdd) && self.len > 0
    }

    /// Whether the request may be carried out directly: by a copy or, if [`Self::is_of_word`], by one access.
    pub fn transferable(&self) -> bool {
        self.len > 0 && (self.is_read() || self.op == Op::Write || self.is_of_word())
    }

    /// Whether the request must be one access to eight bytes of the peer's memory, which a copy does not
    /// guarantee: an atomic operation or an atomic write. librpma posts the latter as a fenced write.
    pub fn is_of_word(&self) -> bool {
        let is_store = self.op == Op::Write && self.fence && self.len as usize == WORD;
        is_store || self.op == Op::AtomicWrite || self.is_atomic()
    }

    /// The range of the peer's memory that a write, a read or an atomic operation accesses, from byte `from`
    /// on.
    pub fn remote(&self, from: u32) -> Access {
        let rights = match self.op {
            Op::Read => REMOTE_READ,
            Op::CompareSwap | Op::FetchAdd => REMOTE_ATOMIC,
            _ => REMOTE_WRITE,
        };
        let addr = self.remote_addr.wrapping_add(u64::from(from));
        Access { stag: self.rkey, addr, len: (self.len - from) as usize, rights }
    }
}

/// The registered memory of a receive.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Room {
    One(Sge),
    /// Several entries and the sum of their lengths. An array of one element, since a fallible allocation of
    /// a single value is not stable.
    Several(Box<[(u32, Entries); 1]>),
}

/// A work request of a receive queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecvWr {
    /// The number that the program chose.
    pub wr_id: u64,
    room: Room,
}

impl RecvWr {
    /// A receive with one entry.
    pub fn one(wr_id: u64, addr: u64, len: u32, lkey: u32) -> Self {
        Self { wr_id, room: Room::One(Sge::new(addr, len, lkey)) }
    }

    /// `len` is the sum of the lengths of the entries. ENOMEM.
    pub fn new(wr_id: u64, entries: &Entries, len: u32) -> Result<Self, Errno> {
        let room = match entries[..] {
            [] => Room::One(Sge::new(0, 0, 0)),
            [only] => Room::One(only),
            _ => {
                let mut one = Vec::new();
                one.try_reserve_exact(1).map_err(|_| libc::ENOMEM)?;
                one.push((len, entries.clone()));
                Room::Several(one.into_boxed_slice().try_into().map_err(|_| libc::ENOMEM)?)
            }
        };
        Ok(Self { wr_id, room })
    }

    /// The length of the longest message that fits.
    pub fn capacity(&self) -> u32 {
        match &self.room {
            Room::One(entry) => entry.len,
            Room::Several(several) => several[0].0,
        }
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[Sge] {
        match &self.room {
            Room::One(entry) => std::slice::from_ref(entry),
            Room::Several(several) => &several[0].1,
        }
    }

    /// The memory of the `len` bytes from byte `from` on, in order.
    pub(crate) fn parts(&self, from: u32, len: usize) -> impl Iterator<Item = Access> + Clone {
        parts(self.entries(), from, len, LOCAL_WRITE)
    }
}

// Longer lists and inline data are on the heap so that requests of librpma, with one entry and at most 8
// inline bytes, stay this small: they are copied from ring to ring, whose slots are options.
const _: () = assert!(size_of::<SendWr>() == 88 && size_of::<Option<SendWr>>() == 88);
const _: () = assert!(size_of::<RecvWr>() == 24 && size_of::<Option<RecvWr>>() == 32);
