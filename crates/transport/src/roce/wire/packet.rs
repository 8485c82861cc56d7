// SPDX-License-Identifier: BSD-3-Clause
//! A packet between the UDP header and the ICRC (IBTA 9.2, 9.3).

use arrayvec::ArrayVec;

use super::bth::{BTH_LEN, Bth};
use super::error::Malformed;
use super::extension::{Extension, MAX_EXTENSION_LEN};

/// Bytes of the longest headers: BTH and AtomicETH.
pub const MAX_HEADERS: usize = BTH_LEN + MAX_EXTENSION_LEN;

/// Packets are a multiple of this many bytes long.
const ALIGNMENT: usize = 4;

/// A packet, with its payload in the buffer that it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// The extension headers of its opcode.
    pub extension: Extension,
    /// The payload without pad.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a datagram whose ICRC was checked and removed ([`icrc::split`](super::icrc::split)).
    ///
    /// # Errors
    ///
    /// Any of [`Malformed`] that concerns packets. All of them are dropped silently.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let Some((bth, rest)) = datagram.split_first_chunk::<BTH_LEN>() else {
            return Err(Malformed::Short(datagram.len()));
        };
        let bth = Bth::decode(bth)?;
        let Some((extension, padded)) = Extension::decode(bth.opcode, rest) else {
            return Err(Malformed::Short(datagram.len()));
        };
        if padded.len() % ALIGNMENT != 0 {
            return Err(Malformed::Length(datagram.len()));
        }
        let Some(len) = padded.len().checked_sub(usize::from(bth.pad)) else {
            return Err(Malformed::Pad(bth.pad));
        };
        if !padded.is_empty() && !bth.opcode.operation().is_some_and(|operation| operation.has_payload()) {
            return Err(Malformed::Payload(padded.len()));
        }
        Ok(Self { bth, extension, payload: &padded[..len] })
    }
}

impl Packet<'_> {
    /// Encodes the headers. The extension must be the one of the opcode, and [`Bth::pad`] the pad of the
    /// payload that follows ([`pad_len`]).
    #[inline]
    pub fn encode_headers(bth: &Bth, extension: &Extension) -> ArrayVec<u8, MAX_HEADERS> {
        let mut bytes = [0; MAX_HEADERS];
        let mut extensions = [0; MAX_EXTENSION_LEN];
        let len = extension.encode(&mut extensions);
        bytes[..BTH_LEN].copy_from_slice(&bth.encode());
        bytes[BTH_LEN..].copy_from_slice(&extensions);
        let mut out = ArrayVec::from(bytes);
        out.truncate(BTH_LEN + len);
        debug_assert!(
            Extension::decode(bth.opcode, &out[BTH_LEN..]).is_some_and(|(again, rest)| rest.is_empty()
                && std::mem::discriminant(&again) == std::mem::discriminant(extension)),
            "{extension:?} in a packet of opcode {}",
            bth.opcode
        );
        out
    }
}

/// Bytes of pad after a payload of `len` bytes: 0..=3, of any value, covered by the ICRC.
#[inline]
pub fn pad_len(len: usize) -> u8 {
    (len.wrapping_neg() % ALIGNMENT) as u8
}
