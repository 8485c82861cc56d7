// SPDX-License-Identifier: BSD-3-Clause
//! Memory regions: local ones, registered with a device, and remote ones, created from a descriptor.

use std::ffi::{c_int, c_void};

use libc::{EFAULT, EINVAL, ENOTSUP, EOPNOTSUPP};
use rdma_sys::{ibv_context, ibv_pd, ibv_sge};

use super::access::{Transport, access, after_refusal};
use super::descriptor::{self, Descriptor, Refused};
use super::peer::Domain;
use super::refusal::{Locked, Refusal};
use crate::abi::*;
use crate::alloc::{self, Slot};
use crate::error::{Errno, Error, Result};
use crate::failure;
use crate::provider::Api;
use crate::provider::handles::{Failed, MemRegion, provider_error};

/// All defined usage bits.
const USAGE_ALL: c_int = 0xff;

/// The usages that permit a flush.
const USAGE_FLUSH: c_int = RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT;

/// A local memory region, registered with a device.
pub struct MrLocal {
    mr: MemRegion,
    usage: u8,
    ctx: *mut ibv_context,
    pd: *mut ibv_pd,
}

impl MrLocal {
    /// # Safety
    /// The domain's peer must be alive and outlive the region; the memory must stay mapped as long as the
    /// region.
    pub unsafe fn register(
        domain: &Domain,
        addr: *mut c_void,
        size: usize,
        usage: c_int,
    ) -> Result<Box<Self>> {
        // SAFETY: the caller guarantees that the peer outlives the region and that the memory stays mapped.
        unsafe { Self::register_with(domain.api, domain, addr, size, usage) }
    }

    /// Registers memory of the library itself: it is not counted, and software RDMA accesses it without the
    /// kernel.
    ///
    /// # Safety
    /// As for [`MrLocal::register`]; there must be no reference to the memory as long as the region exists.
    pub unsafe fn register_own(
        domain: &Domain,
        addr: *mut c_void,
        size: usize,
        usage: c_int,
    ) -> Result<Box<Self>> {
        // SAFETY: the caller guarantees that the peer outlives the region and that the memory stays mapped.
        unsafe {
            let api = domain.api.plain.unwrap_or(domain.api);
            let region = Self::register_with(api, domain, addr, size, usage)?;
            (api.own_memory)(region.mr.as_ptr());
            Ok(region)
        }
    }

    /// # Safety
    /// As for [`MrLocal::register`]; `api` must be the domain's, or the one behind it.
    #[inline(always)]
    unsafe fn register_with(
        api: Api,
        domain: &Domain,
        addr: *mut c_void,
        size: usize,
        usage: c_int,
    ) -> Result<Box<Self>> {
        if usage == 0 {
            return Err(failure::invalid(format_args!("usage is 0")));
        }
        if usage & !USAGE_ALL != 0 {
            return Err(failure::invalid(format_args!(
                "usage is {usage:#x}: only the bits {USAGE_ALL:#x} are defined"
            )));
        }
        let slot = Slot::new()?;
        alloc::ready()?;
        let Domain { ctx, pd, abilities, .. } = *domain;
        let always = api.has_flush_access;
        let access = access(
            usage,
            Transport {
                iwarp: usage & RPMA_MR_USAGE_READ_DST != 0 && domain.is_iwarp(),
                flush_visibility: always || abilities.native.flush_visibility,
                flush_persistent: always || abilities.native.flush_persistent,
            },
        );
        // SAFETY: the caller guarantees that the peer, and so `pd`, outlives the region, and that the memory
        // stays mapped.
        let mr = unsafe {
            match MemRegion::register(api, pd, addr, size, access as c_int) {
                Ok(mr) => mr,
                Err(failed) => register_otherwise(api, domain, addr, size, access, failed)?,
            }
        };
        Ok(slot.fill(Self { mr, usage: usage as u8, ctx, pd }))
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

    /// The scatter/gather element for a part of the region. The device checks that it is inside.
    #[inline(always)]
    pub fn range(&self, offset: usize, len: u32) -> ibv_sge {
        ibv_sge {
            addr: (self.mr.addr() as u64).wrapping_add(offset as u64),
            length: len,
            lkey: self.mr.lkey(),
        }
    }

    pub fn advise(&self, offset: usize, len: usize, advice: c_int, flags: u32) -> Result<()> {
        let len = u32::try_from(len)
            .map_err(|_| failure::invalid(format_args!("len is {len}, more than UINT32_MAX")))?;
        let mut range = self.range(offset, len);
        let Self { ctx, pd, .. } = *self;
        // SAFETY: context and domain are alive as long as the region; the range outlives the call.
        let ret = unsafe { self.mr.api().ibv_advise_mr(ctx, pd, advice as u32, flags, &mut range, 1) };
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

// Linux has one value for both, so `advise` compares with only one of them.
const _: () = assert!(ENOTSUP == EOPNOTSUPP);

/// Registers memory with other access flags after the device rejected the first ones, until no combination is
/// left to try.
///
/// # Safety
/// As for [`MrLocal::register`]; `api` must be the domain's, or the one behind it.
#[cold]
unsafe fn register_otherwise(
    api: Api,
    domain: &Domain,
    addr: *mut c_void,
    size: usize,
    mut access: u32,
    mut failed: Failed,
) -> Result<MemRegion> {
    let Domain { pd, abilities, .. } = *domain;
    while let Some(next) = after_refusal(access, failed.raw_errno(), abilities.odp) {
        if access & !next != 0 {
            log_info!(
                "memory of {size} bytes cannot be registered for every native flush: access {access:#x} \
                 failed ({}), retrying with {next:#x}",
                failed.why
            );
        }
        access = next;
        // SAFETY: the caller guarantees the requirements of `MrLocal::register`: a live protection domain
        // that outlives the region, and memory that stays mapped.
        match unsafe { MemRegion::register(api, pd, addr, size, access as c_int) } {
            Ok(mr) => return Ok(mr),
            Err(again) => failed = again,
        }
    }
    let locked = if api.pins_memory { Locked::now() } else { None };
    let addr = addr as usize;
    log_error!("{}", Refusal { failed, addr, size, access, odp: abilities.odp, locked });
    Err(Error::Provider)
}

/// A memory region of a remote peer.
#[derive(Clone, Copy, Debug)]
pub struct MrRemote {
    region: Descriptor,
    /// The number of bytes that reads and that writes may access: the region's size, or 0 without the usage
    /// that they require.
    readable: u64,
    writable: u64,
}

/// The usages with which a region can be read.
const READABLE: c_int = RPMA_MR_USAGE_READ_SRC | USAGE_FLUSH;

/// How an operation accesses a remote memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    Read,
    Write,
    /// A flush, whose usage has been checked already.
    Flush,
}

impl MrRemote {
    #[inline]
    pub fn from_descriptor(bytes: &[u8]) -> Result<Box<Self>> {
        let region = Descriptor::decode(bytes).map_err(|refused| {
            match refused {
                Refused::TooShort => log_error!(
                    "memory region descriptor too short: {} bytes, expected at least {}",
                    bytes.len(),
                    descriptor::SIZE
                ),
                Refused::NoUsage => log_error!("the memory region descriptor declares no usage"),
                Refused::Wraps => {
                    log_error!(
                        "the memory region of the descriptor extends past the end of the 64-bit address space"
                    )
                }
            }
            Error::Inval
        })?;
        let size_with = |usage: c_int| if c_int::from(region.usage) & usage != 0 { region.size } else { 0 };
        // A region for either flush can be read, as a flush may be executed as a read.
        let (readable, writable) = (size_with(READABLE), size_with(RPMA_MR_USAGE_WRITE_DST));
        let mr = alloc::boxed(Self { region, readable, writable })?;
        let region = &mr.region;
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

    /// The types of flush it supports.
    pub fn flush_type(&self) -> c_int {
        c_int::from(self.region.usage) & USAGE_FLUSH
    }

    pub fn is_readable(&self) -> bool {
        c_int::from(self.region.usage) & READABLE != 0
    }

    pub fn is_writable(&self) -> bool {
        c_int::from(self.region.usage) & RPMA_MR_USAGE_WRITE_DST != 0
    }

    /// Whether the descriptor permits an access to `len` bytes at `offset`.
    #[inline(always)]
    pub fn permits(&self, access: RemoteAccess, offset: usize, len: u64) -> bool {
        let size = match access {
            RemoteAccess::Read => self.readable,
            RemoteAccess::Write => self.writable,
            RemoteAccess::Flush => self.region.size,
        };
        match size.checked_sub(offset as u64) {
            Some(rest) => len <= rest,
            None => false,
        }
    }

    /// The remote address of an offset. The remote device checks that it is inside.
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

    #[test]
    fn a_remote_region_tells_size_and_flush_types() {
        let bytes = Descriptor { addr: 0x1000, size: 77, rkey: 5, usage: 0xff }.encode();
        let mr = MrRemote::from_descriptor(&bytes).unwrap();
        assert_eq!((mr.size(), mr.flush_type(), mr.addr(16), mr.rkey()), (77, 48, 0x1010, 5));
        assert_eq!(MrRemote::from_descriptor(&bytes[..20]).unwrap_err(), Error::Inval);
    }

    #[test]
    fn a_remote_region_permits_what_its_descriptor_says() {
        use RemoteAccess::{Flush, Read, Write};
        let of = |usage| {
            MrRemote::from_descriptor(&Descriptor { addr: 0x1000, size: 64, rkey: 5, usage }.encode())
                .unwrap()
        };
        let (source, destination, both) = (of(1), of(8), of(9));
        for (offset, len, inside) in [
            (0, 64, true),
            (63, 1, true),
            (64, 0, true),
            (0, 65, false),
            (63, 2, false),
            (64, 1, false),
            (65, 0, false),
            (usize::MAX, 1, false),
            (usize::MAX - 7, 16, false),
        ] {
            assert_eq!(source.permits(Read, offset, len), inside, "{offset} {len}");
            assert_eq!(destination.permits(Write, offset, len), inside, "{offset} {len}");
            assert_eq!(both.permits(Flush, offset, len), inside, "{offset} {len}");
        }
        assert!(!source.permits(Write, 0, 1) && !destination.permits(Read, 0, 1));
    }
}
