// SPDX-License-Identifier: BSD-3-Clause
//! Changes of the port while the device is open: addresses that come and go (IBV_EVENT_GID_CHANGE), and
//! interfaces (IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR). The kernel raises IBV_EVENT_GID_CHANGE for each
//! GID; here an unread one stands for all that have changed since, as the program then reads the whole table.
//!
//! The kernel announces them on a socket (rtnetlink(7)), which the engine watches. What has changed follows
//! from the addresses before and after, not from the messages, which may be lost.
#![forbid(unsafe_code)]

use rdma_sys::ibv_event_type::{
    IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR, Type as Kind,
};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::ffi::verbs::events;
use crate::ffi::verbs::interfaces::{self, Address};
use crate::lock;
use crate::process::PerProcess;
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::socket::Socket;
use crate::sys::{self, Errno};

/// Interfaces and addresses (rtnetlink(7)).
const GROUPS: u32 = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Messages that are taken from the socket at a time.
const MESSAGES: usize = 64;

/// The port at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Port {
    /// The addresses and the indices of their interfaces.
    addresses: Vec<(IpAddr, u32)>,
    is_active: bool,
}

impl Port {
    fn of(addresses: &[Address]) -> Self {
        let mut port = Self::default();
        for address in addresses {
            let entry = (address.ip, address.interface);
            if !port.addresses.contains(&entry) {
                port.addresses.push(entry);
            }
        }
        port.is_active = is_active(addresses);
        port
    }

    /// The events of the transition to another one.
    fn events(&self, next: &Self) -> Vec<Kind> {
        let gone = self.addresses.iter().filter(|entry| !next.addresses.contains(entry));
        let new = next.addresses.iter().filter(|entry| !self.addresses.contains(entry));
        let mut events: Vec<_> = gone.chain(new).next().map(|_| IBV_EVENT_GID_CHANGE).into_iter().collect();
        match (self.is_active, next.is_active) {
            (false, true) => events.push(IBV_EVENT_PORT_ACTIVE),
            (true, false) => events.push(IBV_EVENT_PORT_ERR),
            _ => {}
        }
        events
    }
}

/// Whether the port is active: an interface with an address is up.
pub(super) fn is_active(addresses: &[Address]) -> bool {
    addresses.iter().any(|address| address.is_up)
}

struct Changes {
    socket: Socket,
    port: Mutex<Port>,
}

static CHANGES: PerProcess<Arc<Changes>> = PerProcess::new();

/// Raises events from now on. Errors of the socket and of the engine.
pub(super) fn watch() -> Result<(), Errno> {
    let mut watching = lock(CHANGES.get());
    if watching.is_some() {
        return Ok(());
    }
    let engine = Engine::get()?;
    // Before the addresses are read, so that no change is missed.
    let socket = Socket::noted(|| sys::route_socket(GROUPS))?;
    let port = Mutex::new(Port::of(&interfaces::addresses()));
    let changes = Arc::new(Changes { socket, port });
    engine.add(engine.token(), changes.socket.as_raw_fd(), libc::EPOLLIN as u32, changes.clone())?;
    *watching = Some(changes);
    Ok(())
}

impl Source for Changes {
    fn ready(self: Arc<Self>, _events: u32) {
        for _ in 0..MESSAGES {
            // Another error, ENOBUFS, says that messages were lost.
            if let Err(libc::ETIMEDOUT) = sys::route_reply(&self.socket, Duration::ZERO) {
                break;
            }
        }
        let now = Port::of(&interfaces::addresses());
        let mut port = lock(&self.port);
        for kind in port.events(&now) {
            events::raise_port(kind);
        }
        *port = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(addresses: &[(&str, bool)]) -> Port {
        let of =
            |(ip, is_up): &(&str, bool)| Address { ip: ip.parse().unwrap(), interface: 1, is_up: *is_up };
        Port::of(&addresses.iter().map(of).collect::<Vec<_>>())
    }

    #[test]
    fn addresses_that_come_or_go_are_an_event() {
        let one = port(&[("10.0.0.1", true)]);
        assert_eq!(one.events(&one), []);
        assert_eq!(one.events(&port(&[("10.0.0.1", true), ("::1", true)])), [IBV_EVENT_GID_CHANGE]);
        assert_eq!(one.events(&port(&[("10.0.0.2", true)])), [IBV_EVENT_GID_CHANGE]);
        assert_eq!(one.events(&port(&[])), [IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ERR]);
        assert_eq!(port(&[("10.0.0.1", true), ("10.0.0.1", true)]), one, "one GID");
    }

    #[test]
    fn the_port_is_active_while_an_interface_is_up() {
        let (up, down) = (port(&[("10.0.0.1", true)]), port(&[("10.0.0.1", false)]));
        assert_eq!(up.events(&down), [IBV_EVENT_PORT_ERR]);
        assert_eq!(down.events(&up), [IBV_EVENT_PORT_ACTIVE]);
        let other = port(&[("10.0.0.1", false), ("127.0.0.1", true)]);
        assert_eq!(up.events(&other), [IBV_EVENT_GID_CHANGE]);
    }
}
