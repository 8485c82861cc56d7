// SPDX-License-Identifier: BSD-3-Clause
//! Sockets to the routing tables of the kernel (rtnetlink(7)).

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, socket_with,
};

use super::event::poll;
use super::{Errno, to_errno};

/// Bytes of the longest datagram that the kernel sends.
const DATAGRAM_LEN: usize = 32 << 10;

/// A close-on-exec socket to the routing tables, which also receives the messages of these groups.
pub(crate) fn route_socket(groups: u32) -> Result<OwnedFd, Errno> {
    // The protocol NETLINK_ROUTE is 0.
    let kind = SocketType::RAW;
    let fd = to_errno(socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, None))?;
    to_errno(bind(&fd, &SocketAddrNetlink::new(0, groups)))?;
    Ok(fd)
}

/// Sends a request to the kernel.
pub(crate) fn route_request(fd: &OwnedFd, request: &[u8]) -> Result<(), Errno> {
    // A netlink socket that is not connected sends to the kernel.
    to_errno(retry_on_intr(|| rustix::net::send(fd, request, SendFlags::empty()))).map(drop)
}

/// The next datagram of the kernel; waits for it at most so long. ETIMEDOUT.
pub(crate) fn route_reply(fd: &OwnedFd, timeout: Duration) -> Result<Vec<u8>, Errno> {
    let mut fds = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    let ms = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    let ready = loop {
        match poll(&mut fds, ms) {
            Err(libc::EINTR) => {}
            result => break result?,
        }
    };
    if ready == 0 {
        return Err(libc::ETIMEDOUT);
    }
    let mut bytes = vec![0; DATAGRAM_LEN];
    let received = retry_on_intr(|| recvfrom(fd, &mut *bytes, RecvFlags::empty()));
    let (_, len, from) = to_errno(received)?;
    // Another process may send to the socket, too.
    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
    bytes.truncate(if from.is_some_and(|from| from.pid() == 0) { len } else { 0 });
    Ok(bytes)
}
