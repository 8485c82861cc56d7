// SPDX-License-Identifier: BSD-3-Clause
//! Memory that peers may read or write.

use std::fmt;
use std::fs::File;
use std::ops::{BitOr, BitOrAssign};
use std::sync::atomic::AtomicU64;

use rpma_core::abi::{
    RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, RPMA_MR_USAGE_READ_SRC,
    RPMA_MR_USAGE_WRITE_DST,
};
use rpma_core::descriptor;
use rustix::fs::OFlags;

use crate::error::{Error, ErrorKind, Result};
use crate::peer::{Peer, Provider};
use crate::region::{Region, Source};
use crate::words;

/// The call that errors name.
const CALL: &str = "Peer::expose";

/// What memory is exposed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Memory {
    /// So many bytes of new memory, all zero.
    Anonymous(usize),
    /// The beginning of a file, of this length in bytes; a shorter file is extended. It must be open for
    /// reading and writing, whatever peers may do. Other processes see what peers write. A file that somebody
    /// truncates meanwhile ends a process that accesses the lost part (SIGBUS).
    File(File, usize),
}

impl From<usize> for Memory {
    fn from(len: usize) -> Self {
        Self::Anonymous(len)
    }
}

impl From<(File, usize)> for Memory {
    fn from((file, len): (File, usize)) -> Self {
        Self::File(file, len)
    }
}

/// What peers may do with exposed memory; combined with `|` and `|=`.
///
/// ```
/// use rpma::Access;
///
/// let mut access = Access::READ;
/// access |= Access::WRITE;
/// assert_eq!(access, Access::READ | Access::WRITE);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(i32);

impl Access {
    /// Read it.
    pub const READ: Self = Self(RPMA_MR_USAGE_READ_SRC);
    /// Write it, also atomically.
    pub const WRITE: Self = Self(RPMA_MR_USAGE_WRITE_DST);
    /// Flush it to visibility: behind [`Flush::Visible`](crate::Flush::Visible), what was written is seen
    /// here.
    pub const VISIBLE: Self = Self(RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
    /// Flush it to persistence: behind [`Flush::Persistent`](crate::Flush::Persistent), what was written
    /// survives a loss of power. For files; with an adapter, for files on persistent memory (DAX).
    ///
    /// It is accepted for all memory, but no flush makes [`Memory::Anonymous`] durable: with software RDMA
    /// the flush succeeds, and what was written is lost with this process. A file on tmpfs is lost with
    /// the host.
    pub const PERSISTENT: Self = Self(RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT);

    fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// Memory of this process that peers may access at any time, as long as this object exists.
///
/// So there is never a `&[u8]` to it: bytes are copied in and out, words are atomic. A copy that races with a
/// write of a peer has some bytes of before and some of after it. A copy in changes no byte outside of its
/// range.
///
/// ```compile_fail,E0608
/// # fn f(memory: rpma::Exposed) -> u8 {
/// memory[0]
/// # }
/// ```
pub struct Exposed {
    region: Region,
    access: Access,
    is_durable: bool,
}

impl Peer {
    /// Memory that peers may access as `access` says, once they have its [`Offer`]. New memory is allocated
    /// as that of [`Self::buf`].
    ///
    /// # Errors
    /// As for [`Self::buf`]; [`ErrorKind::Invalid`] if `access` is empty, or if the file is not open for
    /// reading and writing or cannot be mapped.
    pub fn expose(&self, memory: impl Into<Memory>, access: Access) -> Result<Exposed> {
        Exposed::new(self, memory.into(), access)
    }
}

impl Exposed {
    pub(crate) fn new(peer: &Peer, memory: Memory, access: Access) -> Result<Self> {
        if access.0 == 0 {
            return Err(Error::new(ErrorKind::Invalid, "Peer::expose: access is empty"));
        }
        let region = match memory {
            Memory::Anonymous(len) => Region::new(CALL, peer, Source::New, len, access.0)?,
            Memory::File(file, len) => {
                check_mode(&file)?;
                grow(&file, len)?;
                Region::new(CALL, peer, Source::File(&file, 0), len, access.0)?
            }
        };
        // Software executes the flush at the target. With an adapter it depends on the platform, which
        // `direct_write_to_pmem` declares.
        let is_durable = access.has(Access::PERSISTENT) && peer.provider() == Provider::Soft;
        Ok(Self { region, access, is_durable })
    }

    /// Declares that what an adapter writes to this memory is persistent once it is visible: persistent
    /// memory, and a host whose adapter does not write into the processor's cache (DDIO off, or eADR).
    /// Software needs no such declaration. Without it, peers cannot flush to persistence.
    #[must_use]
    pub fn direct_write_to_pmem(self) -> Self {
        Self { is_durable: self.access.has(Access::PERSISTENT), ..self }
    }

    /// What a peer must know to access the memory.
    pub fn offer(&self) -> Offer {
        Offer { descriptor: self.region.mr().descriptor(), is_durable: self.is_durable }
    }

    /// The size in bytes, never 0.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    fn check(&self, call: &str, offset: usize, len: usize) -> Result<()> {
        let size = self.len();
        if size.checked_sub(offset).is_some_and(|rest| len <= rest) {
            return Ok(());
        }
        Err(Error::outside(&format!("Exposed::{call}"), offset as u64, len as u64, size as u64))
    }

    /// All of it, and up to 7 bytes behind it.
    fn words(&self) -> &[AtomicU64] {
        let addr = self.region.addr().cast::<AtomicU64>();
        // SAFETY: the mapping begins with a page and consists of whole pages, so these words are aligned and
        // mapped as long as the region. Atomics may be shared with anyone who writes.
        unsafe { std::slice::from_raw_parts(addr.as_ptr(), self.len().div_ceil(words::SIZE)) }
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`].
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.check("copy_out", offset, to.len())?;
        words::copy_out(self.words(), offset, to);
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`].
    pub fn copy_in(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.check("copy_in", offset, from.len())?;
        words::copy_in(self.words(), offset, from);
        Ok(())
    }

    /// The 8 bytes at `offset`, a multiple of 8, in the byte order of this host. Peers write them at once
    /// with [`Conn::store`](crate::Conn::store); a load with
    /// [`Ordering::Acquire`](std::sync::atomic::Ordering::Acquire) sees what was written before.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`]; [`ErrorKind::Invalid`] if `offset` is not a multiple of 8.
    pub fn word(&self, offset: usize) -> Result<&AtomicU64> {
        self.check("word", offset, 8)?;
        if offset % words::SIZE != 0 {
            return Err(Error::new(
                ErrorKind::Invalid,
                format_args!("Exposed::word: the offset {offset} is not a multiple of 8"),
            ));
        }
        Ok(&self.words()[offset / words::SIZE])
    }

    /// Ends all access of peers: an operation that comes later fails with [`ErrorKind::NotPermitted`] there.
    /// So does dropping this object.
    ///
    /// # Errors
    /// [`ErrorKind::Provider`] if the provider did not end it: software waits 5 s for accesses in progress.
    /// Peers may still have access, so the memory stays mapped until the process exits.
    pub fn revoke(self) -> Result<()> {
        self.region.close()
    }
}

/// Fails unless a file is open for reading and writing, as its mapping is whatever peers may do: this process
/// copies bytes in, too.
fn check_mode(file: &File) -> Result<()> {
    let mode = rustix::fs::fcntl_getfl(file).map_err(|errno| file_error(&errno))?;
    if mode & OFlags::RWMODE == OFlags::RDWR {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, format_args!("{CALL}: the file is not open for reading and writing")))
}

fn file_error(error: &dyn fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format_args!("{CALL}: the file: {error}"))
}

/// Makes a file at least `len` bytes long.
fn grow(file: &File, len: usize) -> Result<()> {
    let failed = |error| file_error(&error);
    if file.metadata().map_err(failed)?.len() < len as u64 {
        file.set_len(len as u64).map_err(failed)?;
    }
    Ok(())
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exposed({} bytes, {:?})", self.len(), self.access)
    }
}

/// What a peer must know to access [`Exposed`] memory: its address, size, key and access rights.
///
/// It is sent with a connection ([`Incoming::accept`](crate::Incoming::accept),
/// [`Connect::offer`](crate::Connect::offer)), or as bytes in a way of the program's own. Whoever has it may
/// access the memory through a connection of the peer that exposed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    descriptor: [u8; descriptor::SIZE],
    is_durable: bool,
}

impl Offer {
    /// The length of its bytes.
    pub const SIZE: usize = descriptor::SIZE + 1;

    /// The descriptor of `rpma_mr_get_descriptor`, followed by that of `rpma_peer_cfg_get_descriptor`.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..descriptor::SIZE].copy_from_slice(&self.descriptor);
        bytes[descriptor::SIZE] = self.is_durable.into();
        bytes
    }
}
