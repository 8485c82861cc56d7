// SPDX-License-Identifier: BSD-3-Clause
//! The TCP socket of a connection being established: its options, and the MPA Reply.
//!
//! The keepalive settings follow from the peer timeout: the first probe is sent after half of it, and three
//! more in the other half. [`crate::progress::liveness`] evaluates the result.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt;

use crate::config;
use crate::sys;
use transport::iwarp::wire::mpa::{self, Frame};

/// Sets the options of a socket before it connects or listens; accepted sockets inherit them. TCP_NODELAY
/// sends small messages without delay, and keepalive probes test an idle connection.
pub(crate) fn prepare(socket: &OwnedFd) {
    let limit = config::get().peer_timeout;
    let seconds = |d: Duration| Duration::from_secs(d.as_secs().max(1));
    // Errors are ignored: a connection works without these options.
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, seconds(limit / 2));
    let _ = sockopt::set_tcp_keepintvl(socket, seconds(limit / 8));
    let _ = sockopt::set_tcp_keepcnt(socket, 4);
}

/// Limits the interval between retransmissions and zero-window probes, which the kernel doubles each time, to
/// an eighth of the peer timeout. TCP_RTO_MAX_MS exists since Linux 6.15; the error of older kernels is
/// ignored. To be set on an established connection or a listening socket: a socket that is connecting would
/// give up earlier.
pub(super) fn limit_intervals(socket: &OwnedFd) {
    const TCP_RTO_MAX_MS: i32 = 44;
    let interval = config::get().peer_timeout / 8;
    let millis = i32::try_from(interval.as_millis()).unwrap_or(i32::MAX);
    sys::set_option(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, millis.clamp(1_000, 120_000));
}

/// Sends an MPA Reply. False if the connection is lost, or the private data is too long. The send buffer of a
/// new connection is much larger than a frame, so there is no partial send.
pub(crate) fn send_reply(socket: &OwnedFd, frame: &Frame, private_data: &[u8]) -> bool {
    let mut bytes = Vec::with_capacity(mpa::MAX_FRAME_LEN);
    mpa::encode(frame, private_data, &mut bytes).is_ok() && sys::send(socket, &bytes) == Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn an_accepted_socket_inherits_the_options_of_its_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let options = || {
            let near = TcpStream::connect(addr).unwrap();
            let far: OwnedFd = listener.accept().unwrap().0.into();
            drop(near);
            [
                (libc::IPPROTO_TCP, libc::TCP_NODELAY),
                (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
                (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
                (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
                (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
            ]
            .map(|(level, option)| sys::get_option::<i32>(far.as_raw_fd(), level, option).unwrap())
        };
        let before = options();
        prepare(&listener.try_clone().unwrap().into());
        let after = options();
        assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{before:?} {after:?}");
    }
}
