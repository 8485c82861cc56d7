// SPDX-License-Identifier: BSD-3-Clause
//! The descriptor of a memory region that is sent to the remote peer: 21 bytes, little-endian, no padding.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 8 | base address |
//! | 8 | 8 | length in bytes |
//! | 16 | 4 | remote key |
//! | 20 | 1 | usage, `RPMA_MR_USAGE_*` |
//!
//! It comes from a remote host, so nothing in it is trusted except what [`Descriptor::decode`] checks.

#![forbid(unsafe_code)]

/// The size in bytes.
pub const SIZE: usize = 21;

/// A decoded descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub addr: u64,
    pub size: u64,
    pub rkey: u32,
    pub usage: u8,
}

/// Why a descriptor is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Fewer than [`SIZE`] bytes.
    TooShort,
    /// No usage.
    NoUsage,
    /// The region extends past the end of the address space.
    Wraps,
}

impl Descriptor {
    pub fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&self.addr.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.rkey.to_le_bytes());
        bytes[20] = self.usage;
        bytes
    }

    #[cold]
    fn has_bytes(&self) -> bool {
        self.size != 0
    }

    /// Bytes after the descriptor are ignored.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, Refused> {
        let (addr, rest) = bytes.split_first_chunk().ok_or(Refused::TooShort)?;
        let (size, rest) = rest.split_first_chunk().ok_or(Refused::TooShort)?;
        let (rkey, rest) = rest.split_first_chunk().ok_or(Refused::TooShort)?;
        let usage = *rest.first().ok_or(Refused::TooShort)?;
        let this = Self {
            addr: u64::from_le_bytes(*addr),
            size: u64::from_le_bytes(*size),
            rkey: u32::from_le_bytes(*rkey),
            usage,
        };
        if usage == 0 {
            return Err(Refused::NoUsage);
        }
        // The address of the last byte; an empty region has none.
        if this.addr.wrapping_add(this.size).wrapping_sub(1) < this.addr && this.has_bytes() {
            return Err(Refused::Wraps);
        }
        Ok(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: Descriptor = Descriptor {
        addr: 0x0001_0203_0405_0607,
        size: 0x0809_0a0b_0c0d_0e0f,
        rkey: 0x1011_1213,
        usage: 0x14,
    };

    #[test]
    fn bytes_are_little_endian_and_packed() {
        assert_eq!(
            EXAMPLE.encode(),
            [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8, 0x13, 0x12, 0x11, 0x10, 0x14]
        );
    }

    #[test]
    fn round_trip_ignores_what_follows() {
        let mut bytes = EXAMPLE.encode().to_vec();
        assert_eq!(Descriptor::decode(&bytes), Ok(EXAMPLE));
        bytes.extend([0xff; 11]);
        assert_eq!(Descriptor::decode(&bytes), Ok(EXAMPLE));
    }

    #[test]
    fn every_short_length_is_refused() {
        let bytes = EXAMPLE.encode();
        for n in 0..SIZE {
            assert_eq!(Descriptor::decode(&bytes[..n]), Err(Refused::TooShort), "{n}");
        }
    }

    #[test]
    fn usage_is_required() {
        let bytes = Descriptor { usage: 0, ..EXAMPLE }.encode();
        assert_eq!(Descriptor::decode(&bytes), Err(Refused::NoUsage));
    }

    #[test]
    fn a_region_must_end_in_the_address_space() {
        let with = |addr, size| Descriptor::decode(&Descriptor { addr, size, ..EXAMPLE }.encode());
        assert!(with(u64::MAX, 1).is_ok());
        assert!(with(0, u64::MAX).is_ok());
        assert!(with(u64::MAX, 0).is_ok());
        assert_eq!(with(u64::MAX, 2), Err(Refused::Wraps));
        assert!(with(1, u64::MAX).is_ok());
        assert_eq!(with(2, u64::MAX), Err(Refused::Wraps));
    }
}
