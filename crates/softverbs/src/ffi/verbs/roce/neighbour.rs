// SPDX-License-Identifier: BSD-3-Clause
//! The MAC addresses of neighbours, from the routing and neighbour tables of the kernel (rtnetlink(7)).
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use libc::{
    NDA_DST, NDA_LLADDR, NUD_FAILED, NUD_INCOMPLETE, RTA_DST, RTA_GATEWAY, RTA_OIF, RTA_SRC, RTM_GETNEIGH,
    RTM_GETROUTE, RTM_NEWNEIGH, RTM_NEWROUTE,
};

use crate::ffi::verbs::interfaces;
use crate::sys::{self, Errno};

/// Timeout of a neighbour, as in libibverbs.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a neighbour at the transition to RTR, as in the kernel.
const RTR_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of the kernel.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(1);

/// The constants of netlink(7) that do not have the type of their field in libc.
const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;
const NLM_F_REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const NLM_F_DUMP: u16 = libc::NLM_F_DUMP as u16;
/// The MAC address is unknown.
const NUD_WITHOUT_ADDRESS: u16 = NUD_INCOMPLETE | NUD_FAILED;
/// `struct nlmsghdr`, `struct rtmsg`, `struct ndmsg`, `struct rtattr`.
const NLMSGHDR_LEN: usize = 16;
const RTMSG_LEN: usize = 12;
const NDMSG_LEN: usize = 12;
const RTATTR_LEN: usize = 4;

/// The MAC address for packets from `local` to `peer`: that of the peer, or of the next router. `scope`: the
/// interface, if the addresses are link-local. Has the kernel resolve it if it is unknown.
///
/// EHOSTUNREACH: no answer. ENETUNREACH and others: there is no route.
pub(super) fn find(local: IpAddr, peer: IpAddr, scope: u32) -> Result<[u8; 6], Errno> {
    let (interface, next) = route(local, peer, scope)?;
    resolve(local, interface, next, TIMEOUT)
}

/// Checks that the peer, or the next router, answers at the transition to RTR. Succeeds if the interface has
/// no neighbours, and if the kernel does not say.
///
/// ETIMEDOUT: no answer.
pub(super) fn check(local: IpAddr, peer: IpAddr, scope: u32) -> Result<(), Errno> {
    let resolved = || {
        let (interface, next) = route(local, peer, scope)?;
        match interfaces::has_neighbours(interface) {
            true => resolve(local, interface, next, RTR_TIMEOUT).map(drop),
            false => Ok(()),
        }
    };
    match resolved() {
        Err(libc::EHOSTUNREACH) => Err(libc::ETIMEDOUT),
        _ => Ok(()),
    }
}

fn resolve(local: IpAddr, interface: u32, next: IpAddr, timeout: Duration) -> Result<[u8; 6], Errno> {
    // Subscribed before the neighbour table is read, so that no change is missed.
    let changes = sys::route_socket(libc::RTMGRP_NEIGH as u32)?;
    let deadline = Instant::now() + timeout;
    let mut has_asked = false;
    loop {
        if let Some(mac) = known(interface, next)? {
            return Ok(mac);
        }
        if !has_asked {
            has_asked = true;
            request(local, next, interface);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(libc::EHOSTUNREACH);
        }
        match sys::route_reply(&changes, left) {
            // ENOBUFS: there were too many changes.
            Ok(_) | Err(libc::ENOBUFS | libc::ETIMEDOUT) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Makes the kernel resolve the neighbour, by a datagram to the discard port.
fn request(local: IpAddr, next: IpAddr, interface: u32) {
    let scoped = |ip, port| match SocketAddr::new(ip, port) {
        SocketAddr::V6(mut v6) if v6.ip().is_unicast_link_local() => {
            v6.set_scope_id(interface);
            SocketAddr::V6(v6)
        }
        other => other,
    };
    let sent = UdpSocket::bind(scoped(local, 0)).and_then(|socket| socket.send_to(&[0], scoped(next, 9)));
    if let Err(e) = sent {
        log::debug!("no datagram can be sent to {next}: {e}");
    }
}

/// The interface and the next hop of a route.
fn route(local: IpAddr, peer: IpAddr, scope: u32) -> Result<(u32, IpAddr), Errno> {
    let bits = if peer.is_ipv4() { 32 } else { 128 };
    let mut body = vec![family(peer), bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    attribute(&mut body, RTA_DST, &octets(peer));
    attribute(&mut body, RTA_SRC, &octets(local));
    if scope != 0 {
        attribute(&mut body, RTA_OIF, &scope.to_ne_bytes());
    }
    let socket = sys::route_socket(0)?;
    sys::route_request(&socket, &message(RTM_GETROUTE, NLM_F_REQUEST, &body))?;
    let reply = sys::route_reply(&socket, KERNEL_TIMEOUT)?;
    let (kind, payload) = messages(&reply).next().ok_or(libc::EIO)?;
    if kind == NLMSG_ERROR {
        return Err(error(payload));
    }
    if kind != RTM_NEWROUTE {
        return Err(libc::EIO);
    }
    let (mut interface, mut next) = (None, peer);
    for (kind, value) in attributes(payload.get(RTMSG_LEN..).unwrap_or_default()) {
        match kind {
            RTA_OIF => interface = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)),
            RTA_GATEWAY => next = address(value).unwrap_or(peer),
            _ => {}
        }
    }
    Ok((interface.ok_or(libc::EIO)?, next))
}

/// The MAC address of a neighbour, if the kernel has it.
fn known(interface: u32, ip: IpAddr) -> Result<Option<[u8; 6]>, Errno> {
    let mut body = vec![0; NDMSG_LEN];
    if let Some(to) = body.first_mut() {
        *to = family(ip);
    }
    let socket = sys::route_socket(0)?;
    sys::route_request(&socket, &message(RTM_GETNEIGH, NLM_F_REQUEST | NLM_F_DUMP, &body))?;
    let mut found = None;
    loop {
        let reply = sys::route_reply(&socket, KERNEL_TIMEOUT)?;
        for (kind, payload) in messages(&reply) {
            match kind {
                NLMSG_DONE => return Ok(found),
                NLMSG_ERROR => return Err(error(payload)),
                RTM_NEWNEIGH => found = found.or_else(|| mac_of(payload, interface, ip)),
                _ => {}
            }
        }
    }
}

/// The MAC address in an entry of the neighbour table, if the entry is for `ip`.
fn mac_of(entry: &[u8], interface: u32, ip: IpAddr) -> Option<[u8; 6]> {
    let index = u32::from_ne_bytes(*entry.get(4..)?.first_chunk()?);
    let state = u16::from_ne_bytes(*entry.get(8..)?.first_chunk()?);
    if index != interface || state & NUD_WITHOUT_ADDRESS != 0 {
        return None;
    }
    let (mut is_of_ip, mut mac) = (false, None);
    for (kind, value) in attributes(entry.get(NDMSG_LEN..)?) {
        match kind {
            NDA_DST => is_of_ip = address(value) == Some(ip),
            NDA_LLADDR => mac = value.try_into().ok(),
            _ => {}
        }
    }
    mac.filter(|_| is_of_ip)
}

fn family(ip: IpAddr) -> u8 {
    (if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// The errno of a message NLMSG_ERROR.
fn error(payload: &[u8]) -> Errno {
    payload.first_chunk().map_or(libc::EIO, |bytes| i32::from_ne_bytes(*bytes).saturating_neg())
}

/// A request. Its body is a multiple of 4 bytes long.
fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let len = (NLMSGHDR_LEN + body.len()) as u32;
    let header = [len.to_ne_bytes(), [0; 4], 1u32.to_ne_bytes(), [0; 4]];
    let mut bytes: Vec<u8> = header.concat();
    bytes.splice(4..8, [kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
    bytes.extend_from_slice(body);
    bytes
}

/// Appends an attribute, whose value is a multiple of 4 bytes long.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&((RTATTR_LEN + value.len()) as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
}

/// The messages of a datagram: types and payloads. Ends at a truncated message.
fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*rest.get(4..)?.first_chunk()?);
        let payload = rest.get(NLMSGHDR_LEN..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// The attributes of a message: their types and values. Ends where one is cut off.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(RTATTR_LEN..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn entry(interface: u32, state: u16, ip: &str) -> Vec<u8> {
        let mut body = vec![2, 0, 0, 0];
        body.extend_from_slice(&interface.to_ne_bytes());
        body.extend_from_slice(&state.to_ne_bytes());
        body.extend_from_slice(&[0, 0]);
        attribute(&mut body, NDA_DST, &octets(ip.parse().unwrap()));
        attribute(&mut body, NDA_LLADDR, &MAC);
        body.extend_from_slice(&[0, 0]);
        body
    }

    #[test]
    fn an_entry_has_the_mac_of_its_address_and_interface() {
        let ip = "10.0.0.2".parse().unwrap();
        assert_eq!(mac_of(&entry(2, 2, "10.0.0.2"), 2, ip), Some(MAC));
        assert_eq!(mac_of(&entry(3, 2, "10.0.0.2"), 2, ip), None, "another interface");
        assert_eq!(mac_of(&entry(2, 2, "10.0.0.3"), 2, ip), None, "another address");
        assert_eq!(mac_of(&entry(2, 0x20, "10.0.0.2"), 2, ip), None, "it has failed");
    }

    #[test]
    fn what_is_cut_off_is_not_read() {
        let whole = [message(28, 0, &entry(2, 2, "10.0.0.2")), message(3, 0, &[0; 4])].concat();
        assert_eq!(messages(&whole).map(|(kind, _)| kind).collect::<Vec<_>>(), [28, 3]);
        for len in 0..whole.len() {
            let cut = whole.get(..len).unwrap();
            assert!(messages(cut).count() < 2, "{len}");
            for (_, payload) in messages(cut) {
                attributes(payload.get(NDMSG_LEN..).unwrap_or_default()).for_each(drop);
            }
        }
        assert_eq!(messages(&[0; 64]).count(), 0, "a length of 0");
        assert_eq!(attributes(&[0; 64]).count(), 0);
    }

    #[test]
    fn the_route_to_loopback_is_by_lo_and_has_no_router() {
        let lo: IpAddr = "127.0.0.1".parse().unwrap();
        let (interface, next) = route(lo, lo, 0).unwrap();
        assert!(interface != 0);
        assert_eq!(next, lo);
        assert_eq!(known(interface, "127.0.0.99".parse().unwrap()), Ok(None));
    }
}
