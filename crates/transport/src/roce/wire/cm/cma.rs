// SPDX-License-Identifier: BSD-3-Clause
//! The content that rdma_cm defines for the messages of connection management: the port in the service id,
//! and the header of the private data (IBTA annex A11, RDMA IP CM service).

use super::super::bytes::{be16, put16};
use super::super::error::Malformed;
use super::super::icrc::Addresses;
use super::{array, put};

/// Bytes of the header in the private data of REQ and SIDR_REQ.
pub const CMA_HEADER_LEN: usize = 36;

/// The Q_Key of queue pairs in the port space UDP, `RDMA_UDP_QKEY`.
pub const UDP_QKEY: u32 = 0x0123_4567;

/// A port space of rdma_cm, `enum rdma_ucm_port_space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum PortSpace {
    /// `RDMA_PS_IPOIB`.
    Ipoib = 0x0002,
    /// `RDMA_PS_TCP`: connections.
    Tcp = 0x0106,
    /// `RDMA_PS_UDP`: datagrams.
    Udp = 0x0111,
    /// `RDMA_PS_IB`.
    Ib = 0x013f,
}

impl PortSpace {
    /// The port space with this number.
    pub fn from_u16(number: u16) -> Option<Self> {
        [Self::Ipoib, Self::Tcp, Self::Udp, Self::Ib].into_iter().find(|space| *space as u16 == number)
    }

    /// Whether its service ids are resolved to queue pairs for datagrams (SIDR), not connected.
    pub fn is_for_datagrams(self) -> bool {
        matches!(self, Self::Ipoib | Self::Udp)
    }
}

/// A service id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceId(
    /// The number, possibly of another kind of service.
    pub u64,
);

impl ServiceId {
    /// The service id of a port of rdma_cm.
    pub fn new(space: PortSpace, port: u16) -> Self {
        Self((u64::from(space as u16) << 16) | u64::from(port))
    }

    /// Port space and port; `None` if it is no service id of rdma_cm.
    pub fn port(self) -> Option<(PortSpace, u16)> {
        let space = u16::try_from(self.0 >> 16).ok()?;
        Some((PortSpace::from_u16(space)?, self.0 as u16))
    }

    /// Whether it belongs to a port space for datagrams.
    pub fn is_for_datagrams(self) -> bool {
        self.port().is_some_and(|(space, _)| space.is_for_datagrams())
    }
}

/// The header of the private data: the addresses that the program has passed to rdma_cm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmaHeader {
    /// The port of the active side.
    pub source_port: u16,
    /// The addresses of the active and of the passive side.
    pub addresses: Addresses,
}

const VERSION: u8 = 0;
const IPV4: u8 = 4;
const IPV6: u8 = 6;
const SOURCE_AT: usize = 4;
const DESTINATION_AT: usize = 20;
/// Where an IPv4 address is in the 16 bytes for an address.
const IPV4_OFFSET: usize = 12;

impl CmaHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; CMA_HEADER_LEN] {
        let mut out = [0; CMA_HEADER_LEN];
        out[0] = VERSION;
        put16(&mut out, 2, self.source_port);
        match &self.addresses {
            Addresses::V4 { source, destination } => {
                out[1] = IPV4 << 4;
                put(&mut out, SOURCE_AT + IPV4_OFFSET, source);
                put(&mut out, DESTINATION_AT + IPV4_OFFSET, destination);
            }
            Addresses::V6 { source, destination } => {
                out[1] = IPV6 << 4;
                put(&mut out, SOURCE_AT, source);
                put(&mut out, DESTINATION_AT, destination);
            }
        }
        out
    }

    /// Decodes the header at the front of `private_data`, and returns it with the private data of the
    /// program.
    ///
    /// # Errors
    ///
    /// [`Malformed::CmaHeader`] if it is not complete or of an unknown version.
    pub fn decode(private_data: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let Some((header, rest)) = private_data.split_first_chunk::<CMA_HEADER_LEN>() else {
            return Err(Malformed::CmaHeader);
        };
        let addresses = match (header[0], header[1] >> 4) {
            (VERSION, IPV4) => Addresses::V4 {
                source: array(header, SOURCE_AT + IPV4_OFFSET),
                destination: array(header, DESTINATION_AT + IPV4_OFFSET),
            },
            (VERSION, IPV6) => {
                Addresses::V6 { source: array(header, SOURCE_AT), destination: array(header, DESTINATION_AT) }
            }
            _ => return Err(Malformed::CmaHeader),
        };
        Ok((Self { source_port: be16(header, 2), addresses }, rest))
    }
}
