// SPDX-License-Identifier: BSD-3-Clause
//! Memory regions: the local one, registered with the device, and the remote one, known by its descriptor.

use std::ffi::{c_int, c_void};
use std::fmt;

use libc::{EFAULT, EINVAL, ENOMEM, ENOTSUP, EOPNOTSUPP};
use rdma_sys::{ibv_access_flags, ibv_sge};

use super::descriptor::{self, Descriptor, Refused};
use super::peer::Domain;
use crate::abi::*;
use crate::alloc::{self, Slot};
use crate::error::{Errno, Error, Result};
use crate::provider::handles::{Failed, MemRegion, provider_error};

/// All the usage bits there are.
const USAGE_ALL: c_int = 0xff;

/// The usages that allow a kind of flush.
const USAGE_FLUSH: c_int = RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;

const LOCAL_WRITE: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
const REMOTE_WRITE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
const REMOTE_READ: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
const ON_DEMAND: u32 = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;
/// `IBV_ACCESS_FLUSH_GLOBAL` and `IBV_ACCESS_FLUSH_PERSISTENT`, which older headers do not name.
const FLUSH_GLOBAL: u32 = 1 << 8;
const FLUSH_PERSISTENT: u32 = 1 << 9;

/// What the device must know about a region's transport and abilities to choose access rights.
#[derive(Clone, Copy, Default)]
struct Transport {
    /// The target of a read must be open to remote writes.
    iwarp: bool,
    /// The FLUSH bits mean something.
    flush: bool,
}

/// The access rights that a usage needs.
///
/// A region for flush is always open to remote reads, because a remote peer without native flush flushes by
/// reading.
fn access(usage: c_int, on: Transport) -> u32 {
    let read_dst = if on.iwarp { LOCAL_WRITE | REMOTE_WRITE } else { LOCAL_WRITE };
    let flush = |bit| if on.flush { REMOTE_READ | bit } else { REMOTE_READ };
    let rights = [
        (RPMA_MR_USAGE_READ_SRC, REMOTE_READ),
        (RPMA_MR_USAGE_READ_DST, read_dst),
        (RPMA_MR_USAGE_WRITE_SRC, LOCAL_WRITE),
        (RPMA_MR_USAGE_WRITE_DST, REMOTE_WRITE | LOCAL_WRITE),
        (RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, flush(FLUSH_GLOBAL)),
        (RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, flush(FLUSH_PERSISTENT)),
        (RPMA_MR_USAGE_SEND, 0),
        (RPMA_MR_USAGE_RECV, LOCAL_WRITE),
    ];
    rights.iter().filter(|(bit, _)| usage & bit != 0).fold(0, |all, (_, right)| all | right)
}

/// Says how much memory this process may lock, where a device gives the bare ENOMEM that going over it is.
struct LockLimit(bool);

impl fmt::Display for LockLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: writes to our object only.
        if !self.0 || unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } != 0 {
            return Ok(());
        }
        match limit.rlim_cur {
            libc::RLIM_INFINITY => f.write_str(", locked memory limit=none"),
            bytes => write!(f, ", locked memory limit={bytes} (ulimit -l)"),
        }
    }
}

/// A region of this process's memory that is registered with a device.
pub struct MrLocal {
    mr: MemRegion,
    usage: u8,
    domain: Domain,
}

impl MrLocal {
    /// # Safety
    /// The domain's peer must be alive and outlive the region; the memory must stay mapped as long as the region.
    pub unsafe fn register(
        domain: Domain,
        addr: *mut c_void,
        size: usize,
        usage: c_int,
    ) -> Result<Box<MrLocal>> {
        if usage == 0 || usage & !USAGE_ALL != 0 {
            return Err(Error::Inval);
        }
        let slot = Slot::new()?;
        let iwarp = usage & RPMA_MR_USAGE_READ_DST != 0 && domain.is_iwarp();
        let access = access(usage, Transport { iwarp, flush: domain.api.has_flush_access() });
        // SAFETY: by contract.
        let register =
            |access: u32| unsafe { MemRegion::register(domain.api, domain.pd, addr, size, access as c_int) };
        let failed = |failed: Failed, access: u32| {
            let limit = LockLimit(domain.api.pins_memory() && failed.raw_errno() == Some(ENOMEM));
            provider_error!(failed, "addr={addr:p}, length={size}, access={access:#x}{limit}")
        };
        let mr = match register(access) {
            // Memory that cannot be pinned, such as a file on a DAX file system: page it on demand if the device can.
            Err(first) if first.raw_errno() == Some(EOPNOTSUPP) && domain.odp => {
                let access = access | ON_DEMAND;
                register(access).map_err(|second| failed(second, access))?
            }
            result => result.map_err(|first| failed(first, access))?,
        };
        Ok(slot.fill(MrLocal { mr, usage: usage as u8, domain }))
    }

    pub fn close(self) -> Result<()> {
        self.mr.close().map_err(|failed| provider_error!(failed, ""))
    }

    pub fn descriptor(&self) -> [u8; descriptor::SIZE] {
        Descriptor {
            addr: self.mr.addr() as u64,
            size: self.mr.length() as u64,
            rkey: self.mr.rkey(),
            usage: self.usage,
        }
        .encode()
    }

    pub fn addr(&self) -> *mut c_void {
        self.mr.addr()
    }

    pub fn size(&self) -> usize {
        self.mr.length()
    }

    /// The part of the region that a work request names. Whether it is inside is for the device to check.
    #[inline(always)]
    pub fn range(&self, offset: usize, len: u32) -> ibv_sge {
        ibv_sge {
            addr: (self.mr.addr() as u64).wrapping_add(offset as u64),
            length: len,
            lkey: self.mr.lkey(),
        }
    }

    pub fn advise(&self, offset: usize, len: usize, advice: c_int, flags: u32) -> Result<()> {
        let len = u32::try_from(len).map_err(|_| Error::Inval)?;
        let mut range = self.range(offset, len);
        let Domain { api, ctx, pd, .. } = self.domain;
        // SAFETY: context and domain are alive as long as the region; the range outlives the call.
        let ret = unsafe { api.ibv_advise_mr(ctx, pd, advice as u32, flags, &mut range, 1) };
        if ret == 0 {
            return Ok(());
        }
        log_error!(
            "ibv_advise_mr(addr={:#x}, length={len}, advice={advice}, flags={flags:#x}) failed: {}",
            range.addr,
            Errno(ret)
        );
        Err(match ret {
            EOPNOTSUPP => Error::NoSupp,
            EFAULT | EINVAL => Error::Inval,
            _ => Error::Provider,
        })
    }
}

// Linux has one number for both, so `advise` names it once.
const _: () = assert!(ENOTSUP == EOPNOTSUPP);

/// A region of a remote peer's memory.
#[derive(Debug)]
pub struct MrRemote {
    region: Descriptor,
}

impl MrRemote {
    pub fn from_descriptor(bytes: &[u8]) -> Result<Box<MrRemote>> {
        let region = Descriptor::decode(bytes).map_err(|refused| {
            match refused {
                Refused::TooShort => log_error!(
                    "a memory region descriptor has {} bytes, this one {}",
                    descriptor::SIZE,
                    bytes.len()
                ),
                Refused::NoUsage => log_error!("the memory region descriptor declares no usage"),
                Refused::Wraps => {
                    log_error!("the memory region of the descriptor runs past the end of the address space")
                }
            }
            Error::Inval
        })?;
        let mr = alloc::boxed(MrRemote { region })?;
        log_debug!(
            "remote memory region: addr={:#x}, size={}, rkey={:#x}, usage={:#x}",
            region.addr,
            region.size,
            region.rkey,
            region.usage
        );
        Ok(mr)
    }

    pub fn size(&self) -> usize {
        self.region.size as usize
    }

    /// The kinds of flush it may be the target of.
    pub fn flush_type(&self) -> c_int {
        c_int::from(self.region.usage) & USAGE_FLUSH
    }

    /// The remote address of an offset. Whether it is inside is for the remote end to check.
    #[inline(always)]
    pub fn addr(&self, offset: usize) -> u64 {
        self.region.addr.wrapping_add(offset as u64)
    }

    #[inline(always)]
    pub fn rkey(&self) -> u32 {
        self.region.rkey
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Transport = Transport { iwarp: false, flush: false };
    const IWARP: Transport = Transport { iwarp: true, flush: false };
    const FLUSH: Transport = Transport { iwarp: false, flush: true };

    #[test]
    fn access_of_each_usage() {
        let expected = [(1, 4), (2, 1), (4, 1), (8, 3), (16, 4), (32, 4), (64, 0), (128, 1)];
        for (usage, rights) in expected {
            assert_eq!(access(usage, PLAIN), rights, "{usage}");
        }
    }

    #[test]
    fn iwarp_opens_the_target_of_a_read() {
        assert_eq!(access(2, IWARP), 3);
        for usage in [1, 4, 8, 16, 32, 64, 128] {
            assert_eq!(access(usage, IWARP), access(usage, PLAIN), "{usage}");
        }
    }

    #[test]
    fn flush_bits_come_on_top_of_remote_read() {
        assert_eq!(access(16, FLUSH), 256 | 4);
        assert_eq!(access(32, FLUSH), 512 | 4);
        assert_eq!(access(8, FLUSH), 3);
    }

    #[test]
    fn usages_add_up() {
        assert_eq!(access(0xff, PLAIN), 7);
        assert_eq!(access(0xff, FLUSH), 7 | 256 | 512);
    }

    #[test]
    fn a_remote_region_tells_size_and_flush_types() {
        let bytes = Descriptor { addr: 0x1000, size: 77, rkey: 5, usage: 0xff }.encode();
        let mr = MrRemote::from_descriptor(&bytes).unwrap();
        assert_eq!((mr.size(), mr.flush_type(), mr.addr(16), mr.rkey()), (77, 48, 0x1010, 5));
        assert_eq!(MrRemote::from_descriptor(&bytes[..20]).unwrap_err(), Error::Inval);
    }
}
