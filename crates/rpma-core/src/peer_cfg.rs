// SPDX-License-Identifier: BSD-3-Clause
//! Peer configurations: one side declares its own, and the other side applies it.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

use crate::alloc;
use crate::error::{Error, Result};

/// The length in bytes of a descriptor.
pub const DESCRIPTOR_SIZE: usize = 1;

/// A peer configuration: the properties that a peer declares to its remote peer.
#[derive(Debug)]
pub struct PeerCfg {
    /// As in the descriptor: 1 if direct write to persistent memory is declared, otherwise 0.
    direct_write_to_pmem: AtomicU8,
}

impl PeerCfg {
    pub fn new() -> Result<Box<Self>> {
        Self::with(false)
    }

    fn with(direct_write_to_pmem: bool) -> Result<Box<Self>> {
        alloc::boxed(Self { direct_write_to_pmem: AtomicU8::new(direct_write_to_pmem.into()) })
    }

    pub fn set_direct_write_to_pmem(&self, supported: bool) {
        self.direct_write_to_pmem.store(supported.into(), Ordering::SeqCst);
    }

    pub fn direct_write_to_pmem(&self) -> bool {
        self.direct_write_to_pmem.load(Ordering::SeqCst) != 0
    }

    /// The form that an application sends to the other side: a C `bool`.
    pub fn descriptor(&self) -> [u8; DESCRIPTOR_SIZE] {
        [self.direct_write_to_pmem.load(Ordering::SeqCst)]
    }

    /// Any nonzero first byte declares direct write; further bytes are ignored.
    #[inline]
    pub fn from_descriptor(descriptor: &[u8]) -> Result<Box<Self>> {
        let Some(&declared) = descriptor.first() else {
            log_error!(
                "peer configuration descriptor too short: 0 bytes, expected at least {DESCRIPTOR_SIZE}"
            );
            return Err(Error::Inval);
        };
        let cfg = Self::with(declared != 0)?;
        log_info!(
            "direct write to persistent memory declared by the remote peer: {}",
            if declared != 0 { "yes" } else { "no" }
        );
        Ok(cfg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_round_trip() {
        let cfg = PeerCfg::new().unwrap();
        assert_eq!(cfg.descriptor(), [0]);
        cfg.set_direct_write_to_pmem(true);
        assert_eq!(cfg.descriptor(), [1]);
        assert!(PeerCfg::from_descriptor(&[1]).unwrap().direct_write_to_pmem());
        assert!(!PeerCfg::from_descriptor(&[0, 1, 1]).unwrap().direct_write_to_pmem());
    }

    #[test]
    fn any_other_byte_means_yes() {
        for byte in 1..=255 {
            assert_eq!(PeerCfg::from_descriptor(&[byte]).unwrap().descriptor(), [1], "{byte}");
        }
    }

    #[test]
    fn an_empty_descriptor_is_refused() {
        assert_eq!(PeerCfg::from_descriptor(&[]).unwrap_err(), Error::Inval);
    }
}
