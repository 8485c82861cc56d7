// SPDX-License-Identifier: BSD-3-Clause
//! The multicast groups of an identifier for datagrams.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use crate::port::{Membership, Port};
use crate::sys::Errno;

struct Joined {
    group: IpAddr,
    /// `None`: the program only sends to it.
    membership: Option<Membership>,
}

/// The groups that an identifier has joined, oldest first.
#[derive(Default)]
pub(super) struct Groups(Vec<Joined>);

impl Groups {
    /// Joins a group with the local address `source` of an interface. Errors of [`Port::get`] and
    /// [`Port::join`].
    pub(super) fn join(&mut self, group: IpAddr, source: IpAddr, receives: bool) -> Result<(), Errno> {
        if !group.is_multicast() || group.is_ipv4() != source.is_ipv4() {
            return Err(libc::EINVAL);
        }
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
