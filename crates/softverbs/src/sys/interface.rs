// SPDX-License-Identifier: BSD-3-Clause
//! The interface of an IPv6 address.

use std::net::{IpAddr, Ipv6Addr};

use super::Errno;
use crate::cancel::whole;

/// The scope ID of addresses on the same link as a link-local address of this host: the index of its
/// interface. 0 for other addresses. EADDRNOTAVAIL: it is not an address of this host. Other errors: the
/// table cannot be read.
pub(crate) fn scope_of(local: IpAddr) -> Result<u32, Errno> {
    match local {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => interface_of(ip),
        _ => Ok(0),
    }
}

/// The index of the interface that has an address. EADDRNOTAVAIL: none has it. Other errors: the table cannot
/// be read.
pub(crate) fn interface_of(ip: Ipv6Addr) -> Result<u32, Errno> {
    let text = whole(|| std::fs::read_to_string("/proc/thread-self/net/if_inet6"));
    let text = text.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
    interface_in(&text, ip).ok_or(libc::EADDRNOTAVAIL)
}

/// The interface with an address in the text of /proc/net/if_inet6.
fn interface_in(text: &str, ip: Ipv6Addr) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        let index = u32::from_str_radix(words.next()?, 16).ok()?;
        (Ipv6Addr::from(address) == ip).then_some(index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_has_the_interface_of_the_table() {
        let text = "00000000000000000000000000000001 01 80 10 80       lo\n\
                    fe800000000000000000000000001234 1f 40 20 80     eth0\n";
        let of = |ip: &str| interface_in(text, ip.parse().unwrap());
        assert_eq!((of("fe80::1234"), of("::1"), of("fe80::1235")), (Some(31), Some(1), None));
        assert_eq!(scope_of("127.0.0.1".parse().unwrap()), Ok(0));
        assert_eq!(scope_of("::1".parse().unwrap()), Ok(0));
        assert_eq!(scope_of("fe80::ffff:1".parse().unwrap()), Err(libc::EADDRNOTAVAIL));
    }
}
