// SPDX-License-Identifier: BSD-3-Clause
//! The slot of a process: the highest byte of its queue pair numbers.
//!
//! A process claims a slot by binding the slot's UDP port at 127.0.0.1, which only one socket can bind. Other
//! processes forward packets to that port. The kernel closes it when the process ends, for whatever reason. A
//! slot whose port another user or an unrelated program has bound is skipped.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddr};

use rustix::net::AddressFamily;

use super::Unavailable;
use crate::limits::SLOT_BUFFER_LEN;
use crate::socket::Socket;
use crate::sys::{self, Errno};

/// Slots are numbered from 1 to this. Slot 0 has queue pairs 0 and 1 and the queries, slot 255 the multicast
/// queue pair number.
pub(super) const MAX_SLOT: u8 = 254;
/// The UDP port of slot 0. All slot ports are below the default range of ephemeral ports, so that clients of
/// other protocols rarely occupy one.
pub(super) const BASE_PORT: u16 = 24_700;

/// The loopback address of a slot.
pub(super) fn address(slot: u8) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, BASE_PORT + u16::from(slot)).into()
}

/// The slot with this loopback address.
pub(super) fn at(address: SocketAddr) -> Option<u8> {
    let slot = u8::try_from(address.port().checked_sub(BASE_PORT)?).ok()?;
    ((1..=MAX_SLOT).contains(&slot) && self::address(slot) == address).then_some(slot)
}

/// A slot that this process has claimed.
pub(super) struct Slot {
    number: u8,
    socket: Socket,
    user: u32,
}

impl Slot {
    /// Claims a free slot, starting at a random one: to a peer, a queue pair number that it has seen recently
    /// indicates a stale connection. EAGAIN: no slot is free.
    pub(super) fn claim() -> Result<Self, Unavailable> {
        let mut random = [0];
        getrandom::fill(&mut random).map_err(|_| libc::EIO)?;
        Self::claim_from(random[0])
    }

    fn claim_from(first: u8) -> Result<Self, Unavailable> {
        let mut other = None;
        for slot in (0..MAX_SLOT).map(|i| ((u16::from(first) + u16::from(i)) % u16::from(MAX_SLOT)) as u8 + 1)
        {
            match bind(slot) {
                Ok(socket) => return Ok(Self { number: slot, socket, user: sys::effective_user() }),
                Err(libc::EADDRINUSE) => {}
                // EACCES, EPERM: a policy of the host forbids this port.
                Err(e @ (libc::EACCES | libc::EPERM)) => other = Some(e),
                Err(errno) => {
                    let text = std::io::Error::from_raw_os_error(errno);
                    let why = format!("cannot bind a UDP socket to {}: {text}", address(slot));
                    return Err(Unavailable { errno, why });
                }
            }
        }
        let why = format!(
            "no slot for this process: all UDP ports from {} to {} of 127.0.0.1 are taken, by other \
             processes with RoCE queue pairs or by another program (ss -ulnp shows them); end some of them, \
             or run this one in a network namespace of its own",
            BASE_PORT + 1,
            BASE_PORT + u16::from(MAX_SLOT)
        );
        Err(Unavailable { errno: other.unwrap_or(libc::EAGAIN), why })
    }

    pub(super) fn number(&self) -> u8 {
        self.number
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The effective user of the process when it claimed the slot.
    pub(super) fn user(&self) -> u32 {
        self.user
    }
}

/// Whether no process of any user has a slot. Claims the slot briefly, which
/// [`Slot::claim`] of another process would skip; unlike /proc/net/udp, which is read piece by piece, it
/// misses no claim.
pub(crate) fn is_unclaimed(slot: u8) -> bool {
    !(1..=MAX_SLOT).contains(&slot) || bind(slot).is_ok()
}

fn bind(slot: u8) -> Result<Socket, Errno> {
    let socket = Socket::noted(|| sys::datagram_socket(AddressFamily::INET))?;
    sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, SLOT_BUFFER_LEN);
    // The loopback interface of a network namespace may be down: slots can be claimed nevertheless, but
    // packets cannot be forwarded.
    sys::set_option(&socket, libc::IPPROTO_IP, libc::IP_FREEBIND, 1);
    sys::bind_datagrams(&socket, &address(slot))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_address_and_an_address_one_slot() {
        for slot in 1..=MAX_SLOT {
            assert_eq!(at(address(slot)), Some(slot));
        }
        assert_eq!(at(address(0)), None);
        assert_eq!(at(address(255)), None);
        assert_eq!(at("127.0.0.2:24701".parse().unwrap()), None);
        assert_eq!(at("[::1]:24701".parse().unwrap()), None);
        assert_eq!(at("127.0.0.1:4791".parse().unwrap()), None);
    }

    #[test]
    fn a_slot_that_is_taken_is_skipped_and_freed_when_dropped() {
        let first = Slot::claim_from(7).unwrap();
        let second = Slot::claim_from(first.number() - 1).unwrap();
        assert_ne!(first.number(), second.number());
        let number = first.number();
        assert!(!is_unclaimed(number));
        drop(first);
        assert!(is_unclaimed(number));
        assert!(is_unclaimed(0) && is_unclaimed(255), "no process can have them");
    }
}
