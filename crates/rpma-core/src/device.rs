// SPDX-License-Identifier: BSD-3-Clause
//! The capabilities of a device that are relevant here.

use rdma_sys::{ibv_context, ibv_device_attr_ex, ibv_odp_general_caps, ibv_odp_transport_cap_bits};

use crate::config::NativeOps;
use crate::error::Result;
use crate::provider::Api;
use crate::provider::handles::{provider_error, query_device};
use crate::provider::native::{DEVICE_ATOMIC_WRITE, DEVICE_FLUSH_GLOBAL, DEVICE_FLUSH_PERSISTENT};

/// The capabilities of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// On-demand paging is supported for reads and writes of reliable connections.
    pub odp: bool,
    /// The operations that the device supports natively.
    pub native: NativeOps,
}

impl Abilities {
    /// # Safety
    /// `ctx` must be a live context of `api`.
    pub unsafe fn of(api: Api, ctx: *mut ibv_context) -> Result<Self> {
        // SAFETY: the caller guarantees a live `ctx` of `api`.
        let attr =
            unsafe { query_device(api, ctx) }.map_err(|failed| provider_error!(failed, "context={ctx:p}"))?;
        Ok(Self::from(&attr))
    }
}

impl From<&ibv_device_attr_ex> for Abilities {
    fn from(attr: &ibv_device_attr_ex) -> Self {
        const GENERAL: u64 = ibv_odp_general_caps::IBV_ODP_SUPPORT.0 as u64;
        const RC: u32 = ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_WRITE.0
            | ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_READ.0;
        let odp = attr.odp_caps;
        let has = |bit| attr.device_cap_flags_ex & bit != 0;
        Self {
            odp: odp.general_caps & GENERAL != 0 && odp.per_transport_caps.rc_odp_caps & RC == RC,
            native: NativeOps {
                atomic_write: has(DEVICE_ATOMIC_WRITE),
                flush_visibility: has(DEVICE_FLUSH_GLOBAL),
                flush_persistent: has(DEVICE_FLUSH_PERSISTENT),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    #[test]
    fn capability_bits() {
        // SAFETY: the attributes are integers, for which all zero is valid.
        let mut attr = unsafe { MaybeUninit::<ibv_device_attr_ex>::zeroed().assume_init() };
        assert_eq!(Abilities::from(&attr), Abilities::default());
        let none = NativeOps::default();
        for (bit, native) in [
            (38, NativeOps { flush_visibility: true, ..none }),
            (39, NativeOps { flush_persistent: true, ..none }),
            (40, NativeOps { atomic_write: true, ..none }),
            (41, none),
        ] {
            attr.device_cap_flags_ex = 1 << bit;
            assert_eq!(Abilities::from(&attr), Abilities { odp: false, native }, "{bit}");
        }
    }

    #[test]
    fn paging_on_demand_needs_reads_and_writes() {
        // SAFETY: the attributes are integers, for which all zero is valid.
        let mut attr = unsafe { MaybeUninit::<ibv_device_attr_ex>::zeroed().assume_init() };
        for (general, rc, odp) in [(1, 12, true), (0, 12, false), (1, 4, false), (1, 8, false), (3, 15, true)]
        {
            attr.odp_caps.general_caps = general;
            attr.odp_caps.per_transport_caps.rc_odp_caps = rc;
            assert_eq!(Abilities::from(&attr).odp, odp, "{general} {rc}");
        }
    }
}
