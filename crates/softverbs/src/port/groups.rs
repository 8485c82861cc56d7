// SPDX-License-Identifier: BSD-3-Clause
//! Multicast groups. The sockets of the port join them, for which the kernel sends the messages of IGMP and
//! MLD; a socket joins a group on an interface once, so members are counted. Each packet of a group is
//! delivered to the queue pairs that are attached to it, whoever has joined it.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, Weak};

use rustix::net::sockopt;

use super::Port;
use super::socket::Family;
use crate::limits::{MAX_GROUP_QPS, MAX_GROUPS};
use crate::lock;
use crate::sys::{self, Errno, to_errno};

/// A group on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    /// The interface is that of a local address.
    V4(Ipv4Addr, Ipv4Addr),
    /// The index of the interface.
    V6(Ipv6Addr, u32),
}

#[derive(Default)]
pub(super) struct Groups {
    /// With the number of their members.
    joined: Mutex<HashMap<Group, usize>>,
    /// The queue pairs that are attached to a group.
    attached: Mutex<HashMap<IpAddr, Vec<u32>>>,
}

/// A membership of the process; dropping it leaves the group.
pub(crate) struct Membership {
    port: Weak<Port>,
    group: Group,
}

impl Port {
    /// Joins a group on the interface that has the address `local`.
    /// EINVAL: not a multicast address, or `local` is of the other family. ENODEV: no interface has the
    /// address. ENOBUFS: net.ipv4.igmp_max_memberships. ENOMEM: net.core.optmem_max, over IPv6.
    pub(crate) fn join(self: &Arc<Self>, group: IpAddr, local: IpAddr) -> Result<Membership, Errno> {
        let group = match (group, local) {
            (IpAddr::V4(group), IpAddr::V4(local)) if group.is_multicast() => Group::V4(group, local),
            (IpAddr::V6(group), IpAddr::V6(local)) if group.is_multicast() => {
                // 0: the kernel selects one.
                Group::V6(group, sys::interface_of(local).unwrap_or(0))
            }
            _ => return Err(libc::EINVAL),
        };
        let mut groups = lock(&self.groups.joined);
        if !groups.contains_key(&group) {
            self.change_membership(group, true)?;
        }
        *groups.entry(group).or_default() += 1;
        Ok(Membership { port: Arc::downgrade(self), group })
    }

    /// Delivers the packets of a group to a queue pair, too. ENOMEM: there are [`MAX_GROUPS`], or the group
    /// has [`MAX_GROUP_QPS`].
    pub(crate) fn attach_to_group(&self, num: u32, group: IpAddr) -> Result<(), Errno> {
        let mut attached = lock(&self.groups.attached);
        let has_room = attached.len() < MAX_GROUPS;
        match attached.get_mut(&group) {
            Some(nums) if nums.contains(&num) => {}
            Some(nums) if nums.len() < MAX_GROUP_QPS => nums.push(num),
            None if has_room => drop(attached.insert(group, vec![num])),
            _ => return Err(libc::ENOMEM),
        }
        Ok(())
    }

    /// Returns whether the queue pair was attached.
    pub(crate) fn detach_from_group(&self, num: u32, group: IpAddr) -> bool {
        let mut attached = lock(&self.groups.attached);
        let Some(nums) = attached.get_mut(&group) else { return false };
        let before = nums.len();
        nums.retain(|other| *other != num);
        let was_attached = nums.len() < before;
        if nums.is_empty() {
            attached.remove(&group);
        }
        was_attached
    }

    /// The queue pairs that are attached to a group.
    pub(super) fn attached_to(&self, group: IpAddr) -> Vec<u32> {
        lock(&self.groups.attached).get(&group).cloned().unwrap_or_default()
    }

    fn change_membership(&self, group: Group, joins: bool) -> Result<(), Errno> {
        let family = if matches!(group, Group::V4(..)) { Family::V4 } else { Family::V6 };
        let socket = self.sockets.get(family).ok_or(libc::EAFNOSUPPORT)?;
        to_errno(match (group, joins) {
            (Group::V4(group, local), true) => sockopt::set_ip_add_membership(socket, &group, &local),
            (Group::V4(group, local), false) => sockopt::set_ip_drop_membership(socket, &group, &local),
            (Group::V6(group, interface), true) => {
                sockopt::set_ipv6_add_membership(socket, &group, interface)
            }
            (Group::V6(group, interface), false) => {
                sockopt::set_ipv6_drop_membership(socket, &group, interface)
            }
        })
    }
}

/// A queue pair is destroyed: its number is attached to no group any more.
pub(crate) fn detach_from_groups(num: u32) {
    if let Some(port) = Port::bound() {
        lock(&port.groups.attached).retain(|_, nums| {
            nums.retain(|other| *other != num);
            !nums.is_empty()
        });
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let Some(port) = self.port.upgrade().filter(|port| port.is_own()) else { return };
        let mut groups = lock(&port.groups.joined);
        let Some(members) = groups.get_mut(&self.group) else { return };
        *members -= 1;
        if *members == 0 {
            groups.remove(&self.group);
            // It fails if the interface is gone, and with it the membership.
            let _ = port.change_membership(self.group, false);
        }
    }
}
