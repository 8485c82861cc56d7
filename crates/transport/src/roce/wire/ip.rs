// SPDX-License-Identifier: BSD-3-Clause
//! The IP header before a datagram (IBTA A17.4.5.1): a UDP socket delivers its fields, not the header.

use super::icrc::Addresses;

const UDP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const PROTOCOL_UDP: u8 = 17;
const DONT_FRAGMENT: u8 = 0x40;
/// Bytes before a received packet of a queue pair without a peer, and before the data of a datagram: an IPv6
/// header, or 20 bytes of zeros and an IPv4 header.
pub const IP_HEADER_LEN: usize = 40;

/// The header of a UDP datagram with these addresses and this many bytes of data. The identification of an
/// IPv4 header is 0.
pub fn ip_header(
    addresses: &Addresses,
    traffic_class: u8,
    hop_limit: u8,
    data: usize,
) -> [u8; IP_HEADER_LEN] {
    let mut header = [0; IP_HEADER_LEN];
    let len = (UDP_LEN + data) as u16;
    match addresses {
        Addresses::V4 { source, destination } => {
            let ipv4 = &mut header[IP_HEADER_LEN - IPV4_LEN..];
            (ipv4[0], ipv4[1]) = (0x45, traffic_class);
            ipv4[2..4].copy_from_slice(&(len + IPV4_LEN as u16).to_be_bytes());
            (ipv4[6], ipv4[8], ipv4[9]) = (DONT_FRAGMENT, hop_limit, PROTOCOL_UDP);
            ipv4[12..16].copy_from_slice(source);
            ipv4[16..20].copy_from_slice(destination);
            let sum = checksum(ipv4);
            ipv4[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Addresses::V6 { source, destination } => {
            let first = 6 << 28 | u32::from(traffic_class) << 20;
            header[..4].copy_from_slice(&first.to_be_bytes());
            header[4..6].copy_from_slice(&len.to_be_bytes());
            (header[6], header[7]) = (PROTOCOL_UDP, hop_limit);
            header[8..24].copy_from_slice(source);
            header[24..40].copy_from_slice(destination);
        }
    }
    header
}

/// The checksum of an IPv4 header whose checksum field is 0: a receiver distinguishes the two headers by it.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    // Ten words have a carry below 16.
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded >> 16) + folded) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That of an acknowledgement of rxe whose identification is 0x769e and its checksum 0xaf7c.
    #[test]
    fn an_ipv4_header_is_behind_20_zeros_and_has_a_checksum() {
        let addresses = Addresses::V4 { source: [10, 80, 0, 2], destination: [10, 80, 0, 1] };
        let header = ip_header(&addresses, 0, 64, 20);
        assert_eq!(header[..20], [0; 20]);
        let expected = [0x45, 0, 0, 0x30, 0, 0, 0x40, 0, 0x40, 0x11, 0x26, 0x1b, 10, 80, 0, 2, 10, 80, 0, 1];
        assert_eq!(header[20..], expected);
    }

    #[test]
    fn an_ipv6_header_has_traffic_class_and_length() {
        let addresses = Addresses::V6 { source: [1; 16], destination: [2; 16] };
        let header = ip_header(&addresses, 0xb8, 3, 1000);
        assert_eq!(header[..8], [0x6b, 0x80, 0, 0, 0x03, 0xf0, 17, 3]);
        assert_eq!((&header[8..24], &header[24..]), (&[1; 16][..], &[2; 16][..]));
    }
}
