// SPDX-License-Identifier: BSD-3-Clause
//! The access flags that a memory region is registered with.

#![forbid(unsafe_code)]

use std::ffi::c_int;

use libc::{EINVAL, EOPNOTSUPP};
use rdma_sys::ibv_access_flags;

use crate::abi::*;
use crate::provider::native::{ACCESS_FLUSH_GLOBAL, ACCESS_FLUSH_PERSISTENT};

const LOCAL_WRITE: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
const REMOTE_WRITE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
const REMOTE_READ: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
const ON_DEMAND: u32 = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;

/// The device properties that determine the access flags.
#[derive(Clone, Copy, Default)]
pub(crate) struct Transport {
    /// The destination of a read requires remote write access.
    pub iwarp: bool,
    /// The device supports targets of native flush to visibility.
    pub flush_visibility: bool,
    /// The device supports targets of native flush to persistence.
    pub flush_persistent: bool,
}

/// The access flags that a usage requires.
///
/// If the device supports both, a region for flush is registered for both kinds of initiator: those that
/// flush by a read and those that flush natively. An initiator chooses according to its own device, without
/// information about ours.
pub(crate) fn access(usage: c_int, on: Transport) -> u32 {
    use self::{
        RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT as FLUSH_PERSISTENT,
        RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY as FLUSH_VISIBILITY, RPMA_MR_USAGE_READ_DST as READ_DST,
        RPMA_MR_USAGE_READ_SRC as READ_SRC, RPMA_MR_USAGE_RECV as RECV, RPMA_MR_USAGE_WRITE_DST as WRITE_DST,
        RPMA_MR_USAGE_WRITE_SRC as WRITE_SRC,
    };
    // An access right, and the usages that require it. Sending requires none.
    let right = |bit, required_by| if usage & required_by != 0 { bit } else { 0 };
    right(LOCAL_WRITE, READ_DST | WRITE_SRC | WRITE_DST | RECV)
        | right(REMOTE_READ, READ_SRC | FLUSH_VISIBILITY | FLUSH_PERSISTENT)
        | right(REMOTE_WRITE, if on.iwarp { WRITE_DST | READ_DST } else { WRITE_DST })
        | right(ACCESS_FLUSH_GLOBAL, if on.flush_visibility { FLUSH_VISIBILITY } else { 0 })
        | right(ACCESS_FLUSH_PERSISTENT, if on.flush_persistent { FLUSH_PERSISTENT } else { 0 })
}

/// Whether these access flags include on-demand paging.
pub(crate) fn on_demand(access: u32) -> bool {
    access & ON_DEMAND != 0
}

/// The access flags of the next attempt after registration with these flags failed with this errno. Each
/// attempt sets or clears one bit of the previous one:
///
/// * memory that cannot be pinned, such as a file on a DAX file system, is paged on demand if the device
///   supports it (`odp`);
/// * a device may accept a target of native flush to persistence only in persistent memory, and any device
///   may reject such targets: the region is then registered only for initiators that flush by a read.
pub(crate) fn after_refusal(access: u32, errno: Option<c_int>, odp: bool) -> Option<u32> {
    let without = |bit: u32| (access & bit != 0).then_some(access & !bit);
    match errno {
        Some(EOPNOTSUPP) if odp && !on_demand(access) => Some(access | ON_DEMAND),
        Some(EOPNOTSUPP | EINVAL) => {
            without(ACCESS_FLUSH_PERSISTENT).or_else(|| without(ACCESS_FLUSH_GLOBAL))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{EIO, ENOMEM};

    const PLAIN: Transport = Transport { iwarp: false, flush_visibility: false, flush_persistent: false };
    const IWARP: Transport = Transport { iwarp: true, ..PLAIN };
    const FLUSH: Transport = Transport { flush_visibility: true, flush_persistent: true, ..PLAIN };

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
        assert_eq!(access(48, Transport { flush_visibility: true, ..PLAIN }), 256 | 4);
        assert_eq!(access(48, Transport { flush_persistent: true, ..PLAIN }), 512 | 4);
    }

    #[test]
    fn usages_add_up() {
        assert_eq!(access(0xff, PLAIN), 7);
        assert_eq!(access(0xff, FLUSH), 7 | 256 | 512);
    }

    /// All attempts on a device that fails each of them with the same errno.
    fn attempts(first: u32, errno: c_int, odp: bool) -> Vec<u32> {
        let mut all = vec![first];
        while let Some(next) = after_refusal(all[all.len() - 1], Some(errno), odp) {
            all.push(next);
        }
        all
    }

    #[test]
    fn the_bit_for_persistent_memory_goes_first() {
        for odp in [false, true] {
            assert_eq!(attempts(4 | 256 | 512, EINVAL, odp), [4 | 256 | 512, 4 | 256, 4]);
            assert_eq!(attempts(4 | 512, EINVAL, odp), [4 | 512, 4]);
            assert_eq!(attempts(7, EINVAL, odp), [7]);
        }
    }

    #[test]
    fn what_cannot_be_pinned_is_paged() {
        assert_eq!(attempts(7, EOPNOTSUPP, true), [7, 7 | 64]);
        assert_eq!(attempts(7, EOPNOTSUPP, false), [7]);
        assert_eq!(attempts(4 | 512, EOPNOTSUPP, true), [4 | 512, 4 | 512 | 64, 4 | 64]);
        assert_eq!(attempts(4 | 512, EOPNOTSUPP, false), [4 | 512, 4]);
    }

    #[test]
    fn other_refusals_are_final() {
        for errno in [EIO, ENOMEM] {
            assert_eq!(attempts(4 | 256 | 512, errno, true), [4 | 256 | 512]);
        }
        assert_eq!(after_refusal(4 | 512, None, true), None);
    }
}
