// SPDX-License-Identifier: BSD-3-Clause
//! The invariant CRC, the last 4 bytes of a packet (IBTA 7.8.1, A17.3.3).
//!
//! It is the CRC-32 of Ethernet over the IP and UDP headers and the packet, with the fields that routers
//! change replaced by ones. It covers the identification of the IPv4 header, which no socket delivers.
//! A sender fixes it: an unconnected socket with `IP_MTU_DISCOVER` = `IP_PMTUDISC_PROBE` sends 0. A receiver
//! solves for it: the CRC is linear, so the difference between the received CRC and the one for
//! identification 0 is the contribution of the identification alone. Shifted back to where that field is, the
//! difference must have 16 zero bits; the other 16 are the identification. So 16 of the 32 bits of protection
//! are left, and more if the caller knows which identifications are plausible ([`check`] returns the one that
//! it found). IPv6 has no such field, and full protection.

use std::net::IpAddr;

use crc32fast::Hasher;

use super::bth::{BTH_LEN, CONGESTION_AT};
use super::bytes::put16;
use super::{Extension, Opcode, Operation, Packet};

/// Bytes of the ICRC.
pub const ICRC_LEN: usize = 4;

const UDP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const MAX_PSEUDO_LEN: usize = IPV6_LEN + UDP_LEN;
/// Offset of the identification in the IPv4 header.
const ID_AT: usize = 4;
const DONT_FRAGMENT: u16 = 0x4000;
const PROTOCOL_UDP: u8 = 17;
/// What replaces a field that is not covered.
const MASK: u8 = 0xff;
/// Bytes of the headers and a short packet.
const FRONT_LEN: usize = 128;
/// The crate handles so many bytes together.
const BLOCK_LEN: usize = 64;
/// The CRC of 8 bytes 0xff, which stand for the local route header of InfiniBand.
const AFTER_LRH: u32 = 0x2144_df1c;

/// Source and destination address of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Source address.
        source: [u8; 4],
        /// Destination address.
        destination: [u8; 4],
    },
    /// IPv6.
    V6 {
        /// Source address.
        source: [u8; 16],
        /// Destination address.
        destination: [u8; 16],
    },
}

impl Addresses {
    /// Those of a packet between two addresses; `None` if they are of different families.
    pub fn between(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(Self::V4 { source: source.octets(), destination: destination.octets() })
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Self::V6 { source: source.octets(), destination: destination.octets() })
            }
            _ => None,
        }
    }
}

/// The fields of the IP and UDP headers that the ICRC covers, except length and IPv4 identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The addresses.
    pub addresses: Addresses,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port: [`UDP_PORT`](super::UDP_PORT).
    pub destination_port: u16,
}

/// The ICRC does not match. The packet is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadIcrc;

/// Divides a datagram into the packet and its ICRC; `None` if it has no room for a BTH and an ICRC.
#[inline]
pub fn split(datagram: &[u8]) -> Option<(&[u8], [u8; ICRC_LEN])> {
    let (packet, icrc) = datagram.split_last_chunk()?;
    (packet.len() >= BTH_LEN).then_some((packet, *icrc))
}

/// The ICRC of a packet, which is the concatenation of `parts`, from the BTH to the pad. The first part
/// contains at least the BTH.
///
/// An IPv4 packet has identification `id` and the flag DF; `id` is ignored for IPv6.
#[inline]
pub fn icrc(flow: &Flow, id: u16, parts: &[&[u8]]) -> [u8; ICRC_LEN] {
    let len = parts.iter().map(|part| part.len()).sum();
    sum(flow, id, len, parts, &[]).to_le_bytes()
}

/// Checks the ICRC at the end of a datagram. Returns the identification of an IPv4 packet, for which the flag
/// DF is assumed; `None` for IPv6.
///
/// # Errors
///
/// [`BadIcrc`], also if the datagram is too short to have an ICRC.
#[inline]
pub fn check(flow: &Flow, datagram: &[u8]) -> Result<Option<u16>, BadIcrc> {
    check_expecting(flow, 0, datagram)
}

/// As [`check`], faster if the identification is `id`.
///
/// # Errors
///
/// As [`check`].
#[inline]
pub fn check_expecting(flow: &Flow, id: u16, datagram: &[u8]) -> Result<Option<u16>, BadIcrc> {
    let (packet, received) = split(datagram).ok_or(BadIcrc)?;
    compare(flow, id, received, packet, &[])
}

/// The ICRC that rxe (Linux 6.12) computes for a FLUSH request, which consists of headers only.
///
/// rxe has no payload offset for FLUSH in its table of opcodes, so it adds the headers a second time, as
/// payload, with nothing masked. It drops a FLUSH with the ICRC of the standard.
pub fn icrc_of_rxe_flush(flow: &Flow, id: u16, headers: &[u8]) -> [u8; ICRC_LEN] {
    sum(flow, id, headers.len(), &[headers], headers).to_le_bytes()
}

/// As [`check`], but accepts only a FLUSH request, with the ICRC of rxe ([`icrc_of_rxe_flush`]).
///
/// # Errors
///
/// As [`check`].
pub fn check_rxe_flush(flow: &Flow, datagram: &[u8]) -> Result<Option<u16>, BadIcrc> {
    let (packet, received) = split(datagram).ok_or(BadIcrc)?;
    match Packet::parse(packet) {
        Ok(Packet { bth, extension: Extension::Flush(..), .. })
            if bth.opcode == Opcode::Rc(Operation::Flush) =>
        {
            compare(flow, 0, received, packet, packet)
        }
        _ => Err(BadIcrc),
    }
}

/// The checksum of the IP and UDP headers, of `parts`, which make a packet of `len` bytes, and of `more`.
///
/// A CRC of a few bytes takes long when they are divided, or are no multiple of [`BLOCK_LEN`]. So a short
/// packet is copied behind its headers, and the front is filled up with zeros: they change nothing if the
/// register is 0 before them. The value that it should have is added to the first bytes behind them.
#[inline]
fn sum(flow: &Flow, id: u16, len: usize, parts: &[&[u8]], more: &[u8]) -> u32 {
    let (first, others): (&[u8], &[&[u8]]) = match parts {
        [first, others @ ..] => (first, others),
        [] => (&[], &[]),
    };
    debug_assert!(first.len() >= BTH_LEN, "the BTH is divided");
    let (bth, tail) = first.split_at(first.len().min(BTH_LEN));
    let mut headers = [0; MAX_PSEUDO_LEN];
    let headers_len = pseudo_header(flow, id, len, &mut headers);
    let is_short = headers_len + len + more.len() <= FRONT_LEN;
    let used = headers_len + if is_short { len + more.len() } else { bth.len() };
    let (mut front, start) = ([0; FRONT_LEN], FRONT_LEN - used);
    let mut at = start;
    let mut add = |bytes: &[u8]| {
        front[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    add(&headers[..headers_len]);
    add(bth);
    if is_short {
        add(tail);
        others.iter().for_each(|part| add(part));
        add(more);
    }
    if let Some(masked) = front.get_mut(start + headers_len + CONGESTION_AT) {
        *masked = MASK;
    }
    for (byte, register) in front[start..].iter_mut().zip((!AFTER_LRH).to_le_bytes()) {
        *byte ^= register;
    }
    let mut hasher = Hasher::new_with_initial(!0);
    hasher.update(&front[FRONT_LEN - used.next_multiple_of(BLOCK_LEN)..]);
    if !is_short {
        hasher.update(tail);
        others.iter().for_each(|part| hasher.update(part));
        hasher.update(more);
    }
    hasher.finalize()
}

/// Writes the masked IP and UDP headers of a packet of `len` bytes to the front of `out`, which is zero, and
/// returns their length.
#[inline]
fn pseudo_header(flow: &Flow, id: u16, len: usize, out: &mut [u8; MAX_PSEUDO_LEN]) -> usize {
    // The conversions lose nothing: a UDP datagram has less than 65,536 bytes.
    let udp_len = (UDP_LEN + len + ICRC_LEN) as u16;
    let udp_at = match &flow.addresses {
        Addresses::V4 { source, destination } => {
            out[0] = 0x45; // version, 5 words
            out[1] = MASK; // TOS
            put16(out, 2, udp_len.wrapping_add(IPV4_LEN as u16));
            put16(out, ID_AT, id);
            put16(out, 6, DONT_FRAGMENT);
            out[8] = MASK; // TTL
            out[9] = PROTOCOL_UDP;
            out[10..12].fill(MASK); // checksum
            out[12..16].copy_from_slice(source);
            out[16..IPV4_LEN].copy_from_slice(destination);
            IPV4_LEN
        }
        Addresses::V6 { source, destination } => {
            out[0] = 0x6f; // version, traffic class
            out[1..4].fill(MASK); // traffic class, flow label
            put16(out, 4, udp_len);
            out[6] = PROTOCOL_UDP;
            out[7] = MASK; // hop limit
            out[8..24].copy_from_slice(source);
            out[24..IPV6_LEN].copy_from_slice(destination);
            IPV6_LEN
        }
    };
    put16(out, udp_at, flow.source_port);
    put16(out, udp_at + 2, flow.destination_port);
    put16(out, udp_at + 4, udp_len);
    out[udp_at + 6..udp_at + UDP_LEN].fill(MASK); // checksum
    udp_at + UDP_LEN
}

/// Compares `received` with the ICRC of `packet` followed by `more`. `id`: probably the identification.
#[inline]
fn compare(
    flow: &Flow,
    id: u16,
    received: [u8; ICRC_LEN],
    packet: &[u8],
    more: &[u8],
) -> Result<Option<u16>, BadIcrc> {
    let difference = u32::from_le_bytes(received) ^ sum(flow, id, packet.len(), &[packet], more);
    match flow.addresses {
        Addresses::V6 { .. } if difference == 0 => Ok(None),
        Addresses::V6 { .. } => Err(BadIcrc),
        Addresses::V4 { .. } if difference == 0 => Ok(Some(id)),
        Addresses::V4 { .. } => {
            let from_id = IPV4_LEN - ID_AT + UDP_LEN + packet.len() + more.len();
            let actual = identification(difference, from_id).map(|difference| difference ^ id);
            actual.map(Some).ok_or(BadIcrc)
        }
    }
}

/// The identification whose contribution to the CRC is `difference`; `None` if none has this one. The CRC
/// covers `covered` bytes from the identification on.
fn identification(difference: u32, covered: usize) -> Option<u16> {
    // The register that contains the identification before any of these bytes shifts it. The first byte is in
    // the lowest bits.
    let register = shift_back(difference, covered);
    u16::try_from(register).ok().map(u16::swap_bytes)
}

// Polynomials modulo that of the CRC, in its reflected form: bit 31 is the coefficient of x^0.

const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;
/// The multiplicative inverse of x.
const X_INVERSE: u32 = ((ONE ^ POLYNOMIAL) << 1) | 1;

/// The product of two polynomials.
#[inline]
const fn multiply(mut a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        // Without branches, which random bits would mispredict.
        product ^= a & ((b >> bit) & 1).wrapping_neg();
        a = (a >> 1) ^ (POLYNOMIAL & (a & 1).wrapping_neg());
    }
    product
}

const DIGIT_BITS: u32 = 7;
const DIGITS: usize = 3;
const DIGIT_VALUES: usize = 1 << DIGIT_BITS;

/// Powers of x^-8: of digit d at position p, x^(-8 * d * 128^p).
static BACK: [[u32; DIGIT_VALUES]; DIGITS] = {
    let mut table = [[ONE; DIGIT_VALUES]; DIGITS];
    let mut byte = ONE;
    let mut bits = 0;
    while bits < 8 {
        byte = multiply(byte, X_INVERSE);
        bits += 1;
    }
    let mut position = 0;
    while position < DIGITS {
        let mut digit = 1;
        while digit < DIGIT_VALUES {
            table[position][digit] = multiply(table[position][digit - 1], byte);
            digit += 1;
        }
        byte = multiply(table[position][DIGIT_VALUES - 1], byte);
        position += 1;
    }
    table
};

/// The register of the CRC before it was shifted over `bytes` zero bytes, fewer than 2^21.
fn shift_back(mut register: u32, bytes: usize) -> u32 {
    for (position, powers) in BACK.iter().enumerate() {
        let digit = (bytes >> (position as u32 * DIGIT_BITS)) % DIGIT_VALUES;
        if digit != 0 {
            register = multiply(register, powers[digit]);
        }
    }
    register
}
