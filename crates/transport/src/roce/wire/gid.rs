// SPDX-License-Identifier: BSD-3-Clause
//! GIDs (annex A17).

use std::net::IpAddr;

/// The GID of an address: the address itself, an IPv4 address mapped to IPv6.
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_mapped_to_a_gid() {
        let gid = gid("10.0.0.1".parse().unwrap());
        assert_eq!(gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
    }
}
