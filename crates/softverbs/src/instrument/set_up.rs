// SPDX-License-Identifier: BSD-3-Clause
//! Faults in the set-up of connections: which attempts and which requests fail.

use std::net::{IpAddr, SocketAddr};

use crate::faults::{self, Action, Event, Fault};
use crate::sys::Errno;
use transport::cm::EventKind;

fn fault(event: Event) -> Option<Fault<'static>> {
    faults::plan()?.event(event)
}

/// The outcome of a connection attempt into which a fault is injected.
pub(crate) struct FailedConnect {
    pub event: EventKind,
    pub errno: Errno,
    pub reason: String,
}

/// How a connection attempt to `dst` fails before anything is sent, if a fault is injected. Logs the fault.
pub(crate) fn failed_connect(dst: &SocketAddr) -> Option<FailedConnect> {
    let fault = fault(Event::Connect)?;
    fault.log(format_args!("connection to {dst}"));
    let (event, errno) = match fault.action() {
        Action::Timeout => (EventKind::Unreachable, libc::ETIMEDOUT),
        Action::Unreachable => (EventKind::Unreachable, libc::EHOSTUNREACH),
        _ => (EventKind::Rejected, libc::ECONNREFUSED),
    };
    let text = std::io::Error::from_raw_os_error(errno);
    let reason = format!("{dst}: connect failed: {text}, by an injected fault");
    Some(FailedConnect { event, errno, reason })
}

/// Whether a connect request of `peer` is rejected before the program sees it.
pub(crate) fn rejects_request(peer: IpAddr) -> bool {
    let fault = fault(Event::Accept);
    fault.inspect(|fault| fault.log(format_args!("connect request of {peer}"))).is_some()
}
