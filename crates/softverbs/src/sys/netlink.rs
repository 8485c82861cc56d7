// SPDX-License-Identifier: BSD-3-Clause
//! Sockets to the routing tables of the kernel (rtnetlink(7)).

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use super::{Errno, again, check, check_len, owned};

/// Bytes of the longest datagram that the kernel sends.
const DATAGRAM_LEN: usize = 32 << 10;

/// A close-on-exec socket to the routing tables, which also receives the messages of these groups.
pub(crate) fn route_socket(groups: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: socket takes no pointers.
    let fd = owned(unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
    })?;
    // SAFETY: all-zero is a valid sockaddr_nl.
    let mut addr: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    addr.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    addr.nl_groups = groups;
    let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: `addr` is readable for `len` bytes and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), len) })?;
    Ok(fd)
}

/// Sends a request to the kernel.
pub(crate) fn route_request(fd: &OwnedFd, request: &[u8]) -> Result<(), Errno> {
    // SAFETY: `request` is readable for its length. A netlink socket that is not connected sends to the
    // kernel.
    check_len(again(|| unsafe { libc::send(fd.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) }))
        .map(drop)
}

/// The next datagram of the kernel; waits for it at most so long. ETIMEDOUT.
pub(crate) fn route_reply(fd: &OwnedFd, timeout: Duration) -> Result<Vec<u8>, Errno> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let ms = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `poll` is one structure that outlives the call.
    if check(again(|| unsafe { libc::poll(&mut poll, 1, ms) }))? == 0 {
        return Err(libc::ETIMEDOUT);
    }
    let mut bytes = vec![0; DATAGRAM_LEN];
    // SAFETY: all-zero is a valid sockaddr_nl.
    let mut from: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    let mut from_len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: `bytes` is writable for its length, and `from` for `from_len` bytes; all outlive the call.
    let len = check_len(again(|| unsafe {
        let from = (&raw mut from).cast();
        libc::recvfrom(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0, from, &mut from_len)
    }))?;
    // Another process may send to the socket, too.
    bytes.truncate(if from.nl_pid == 0 { len } else { 0 });
    Ok(bytes)
}
