// SPDX-License-Identifier: BSD-3-Clause
//! The GID table of a RoCE port: one entry for each address of the host, with a fixed index.
//!
//! Programs store an index and use it later. So an address that is removed leaves an empty entry, and gets
//! its index back when it is added again. Initially loopback is last, so that entry 0, which many programs
//! use, is an address that other hosts can reach, if there is one.
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv6Addr};

use crate::ffi::verbs::interfaces::Address;

/// Length of the table. Adapters have 16 to 256 entries; programs query each of them.
pub(crate) const LEN: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Entry {
    ip: IpAddr,
    interface: u32,
    is_present: bool,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct GidTable {
    entries: Vec<Entry>,
}

impl GidTable {
    /// Updates the table with the current addresses of the host.
    pub(super) fn update(&mut self, now: &[Address]) {
        for entry in &mut self.entries {
            entry.is_present = false;
        }
        let mut new = Vec::new();
        for address in now {
            match self.entries.iter_mut().find(|e| e.ip == address.ip && e.interface == address.interface) {
                Some(entry) => entry.is_present = true,
                None => new.push(*address),
            }
        }
        for Address { ip, interface, .. } in new {
            let entry = Entry { ip, interface, is_present: true };
            // The address has moved to another interface, for example to one that was recreated.
            let moved = self.entries.iter().position(|e| !e.is_present && e.ip == ip);
            let full = self.entries.len() >= LEN;
            let reused = moved.or_else(|| self.entries.iter().position(|e| full && !e.is_present));
            match reused.and_then(|at| self.entries.get_mut(at)) {
                Some(hole) => *hole = entry,
                None if full => log::warn!("the GID table has {LEN} entries, and none for {ip}"),
                None => self.entries.push(entry),
            }
        }
    }

    /// The address with this index and the index of its interface; `None`: the entry is empty.
    pub(super) fn get(&self, index: usize) -> Option<(IpAddr, u32)> {
        self.entries.get(index).filter(|entry| entry.is_present).map(|entry| (entry.ip, entry.interface))
    }

    /// The index of an address.
    pub(super) fn find(&self, ip: IpAddr) -> Option<usize> {
        self.entries.iter().position(|entry| entry.is_present && entry.ip == ip)
    }
}

/// The address of a GID; `None`: it is neither a unicast nor a multicast address.
pub(crate) fn ip_of(gid: [u8; 16]) -> Option<IpAddr> {
    let ip = Ipv6Addr::from(gid).to_canonical();
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    (!ip.is_unspecified() && !is_broadcast).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::roce::wire::gid;

    fn at(ip: &str, interface: u32) -> Address {
        Address { ip: ip.parse().unwrap(), interface, is_up: true }
    }

    fn shown(table: &GidTable) -> Vec<Option<String>> {
        (0..5).map(|i| table.get(i).map(|(ip, interface)| format!("{ip} {interface}"))).collect()
    }

    #[test]
    fn an_address_keeps_its_index() {
        let mut table = GidTable::default();
        let (eth, lo) = (at("10.0.0.1", 2), at("127.0.0.1", 1));
        table.update(&[eth, lo]);
        let new = at("fe80::1", 3);
        table.update(&[new, eth, lo]);
        let expected = ["10.0.0.1 2", "127.0.0.1 1", "fe80::1 3"].map(|text| Some(text.to_owned()));
        assert_eq!(shown(&table)[..3], expected);
        table.update(&[new, lo]);
        assert_eq!(table.get(0), None, "a hole");
        assert_eq!(table.find("10.0.0.1".parse().unwrap()), None);
        assert_eq!(table.find("fe80::1".parse().unwrap()), Some(2));
        table.update(&[at("10.0.0.2", 2), new, lo]);
        assert_eq!(table.get(0), None, "kept for its address");
        table.update(&[at("10.0.0.1", 7), at("10.0.0.2", 2), new, lo]);
        assert_eq!(table.get(0), Some(("10.0.0.1".parse().unwrap(), 7)), "on another interface");
    }

    #[test]
    fn two_interfaces_with_one_address_have_two_entries() {
        let mut table = GidTable::default();
        table.update(&[at("fe80::1", 2), at("fe80::1", 3)]);
        table.update(&[at("fe80::1", 3)]);
        assert_eq!((table.get(0), table.get(1).map(|(_, interface)| interface)), (None, Some(3)));
    }

    #[test]
    fn a_full_table_gives_new_addresses_the_holes() {
        let mut table = GidTable::default();
        let all: Vec<Address> =
            (0..LEN as u32).map(|i| at(&format!("10.1.{}.{}", i / 256, i % 256), 2)).collect();
        table.update(&all);
        table.update(&[&all[..], &[at("10.9.9.9", 2)]].concat());
        assert_eq!(table.find("10.9.9.9".parse().unwrap()), None, "no room");
        table.update(&[&all[1..], &[at("10.9.9.9", 2)]].concat());
        assert_eq!(table.find("10.9.9.9".parse().unwrap()), Some(0));
    }

    #[test]
    fn gids_are_addresses_and_others_are_none() {
        for text in ["10.0.0.1", "127.0.0.1", "::1", "fe80::1", "2001:db8::1", "224.0.0.1", "ff02::1"] {
            let ip = text.parse().unwrap();
            assert_eq!(ip_of(gid(ip)), Some(ip), "{text}");
        }
        for text in ["::", "0.0.0.0", "255.255.255.255"] {
            assert_eq!(ip_of(gid(text.parse().unwrap())), None, "{text}");
        }
    }
}
