// SPDX-License-Identifier: BSD-3-Clause
//! The path MTU: the most payload that a packet carries (IBTA chapter 9).

/// A path MTU. All packets of a message but the last have exactly this much payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes: the largest on Ethernet with its usual interface MTU of 1500.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl PathMtu {
    /// All path MTUs, from the smallest.
    pub const ALL: [Self; 5] = [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// Bytes of headers that rdma_cm subtracts from the MTU of an interface: GRH or IPv6 (40), UDP (8), BTH
    /// (12), XRCETH (4), AtomicETH (28), ICRC (4).
    const OVERHEAD: usize = 96;

    /// Bytes of payload.
    #[inline]
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    /// The number in `enum ibv_mtu` and in messages of connection management, 1..=5.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The path MTU with a number of `enum ibv_mtu`; `None` if there is none.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.code() == code)
    }

    /// The largest path MTU for an interface with this MTU, computed as rdma_cm of Linux does; `None` if even
    /// the smallest is too large.
    pub fn of_interface(mtu: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|path| path.bytes() + Self::OVERHEAD <= mtu)
    }
}
