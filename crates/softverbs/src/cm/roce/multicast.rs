// SPDX-License-Identifier: BSD-3-Clause
//! The multicast groups of an identifier for datagrams.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use crate::cm::path;
use crate::port::{Membership, Port};
use crate::sys::{self, Errno};

struct Joined {
    group: IpAddr,
    /// `None`: the program only sends to it.
    membership: Option<Membership>,
}

/// The groups that an identifier has joined, oldest first.
#[derive(Default)]
pub(super) struct Groups(Vec<Joined>);

impl Groups {
    /// Joins a group with the local address `source` of an interface. ENETUNREACH: there is no route to it.
    /// Other errors of [`Port::get`] and [`Port::join`].
    pub(super) fn join(&mut self, group: IpAddr, source: IpAddr, receives: bool) -> Result<(), Errno> {
        if !group.is_multicast() || group.is_ipv4() != source.is_ipv4() {
            return Err(libc::EINVAL);
        }
        check_route(source, group)?;
        let membership = if receives { Some(Port::get()?.join(group, source)?) } else { None };
        self.0.push(Joined { group, membership });
        Ok(())
    }

    /// Leaves a group. Returns whether this identifier has received from it. EADDRNOTAVAIL: it has not
    /// joined.
    pub(super) fn leave(&mut self, group: IpAddr) -> Result<bool, Errno> {
        let at = self.0.iter().position(|joined| joined.group == group).ok_or(libc::EADDRNOTAVAIL)?;
        Ok(self.0.remove(at).membership.is_some())
    }
}

/// Datagrams to the group would be lost without a message to the program. Over IPv4 the route is that of the
/// interface of the local address.
fn check_route(local: IpAddr, group: IpAddr) -> Result<(), Errno> {
    let IpAddr::V6(ip) = local else { return Ok(()) };
    let interface = sys::interface_of(ip)?;
    path::find(local, group, interface).map(drop).inspect_err(|&e| {
        let remedy = match local.is_loopback() {
            true => "; root can add one (ip -6 route add local ff00::/8 dev lo), or use the address of another interface, or IPv4",
            false => "; ip -6 route show table local shows those to groups (ff00::/8)",
        };
        let error = std::io::Error::from_raw_os_error(e);
        log::warn!("rdma_join_multicast: there is no route to {group} from {local}: {error}{remedy}");
    })
}
