// SPDX-License-Identifier: BSD-3-Clause
//! Faults in the set-up of connections: which attempts and which requests fail.

use std::net::{IpAddr, SocketAddr};

use crate::faults::{self, Action, Event, Fault};
use crate::sys::Errno;

fn fault(event: Event) -> Option<Fault<'static>> {
    faults::plan()?.event(event)
}

/// The error with which a connection attempt to `dst` fails before connect(2) is called, if it is to fail.
pub(crate) fn connect_error(dst: &SocketAddr) -> Option<Errno> {
    let fault = fault(Event::Connect)?;
    fault.log(format_args!("connection to {dst}"));
    Some(match fault.action() {
        Action::Timeout => libc::ETIMEDOUT,
        Action::Unreachable => libc::EHOSTUNREACH,
        _ => libc::ECONNREFUSED,
    })
}

/// Whether a connect request of `peer` is rejected before the program sees it.
pub(crate) fn rejects_request(peer: IpAddr) -> bool {
    let fault = fault(Event::Accept);
    fault.inspect(|fault| fault.log(format_args!("connect request of {peer}"))).is_some()
}
