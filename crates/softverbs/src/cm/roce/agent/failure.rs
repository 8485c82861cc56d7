// SPDX-License-Identifier: BSD-3-Clause
//! The causes of failed connection attempts, for the log and for the event.
#![forbid(unsafe_code)]

use log::Level;
use transport::roce::wire::UDP_PORT;
use transport::roce::wire::cm::Reason;

use crate::choice::REMEDY;
use crate::cm::addr::is_of_this_host;
use crate::cm::id::Id;
use crate::port;

/// Logs that a connection attempt has timed out, and returns the message.
pub(super) fn unanswered(id: &Id) -> String {
    let peer = id.state().dst.map(|dst| dst.to_string()).unwrap_or_default();
    let why = format!(
        "{peer}: connect failed: no answer from UDP port {UDP_PORT}; a program there may use iWARP, and this one uses \
         RoCE; {REMEDY}"
    );
    log::warn!(peer:% = peer, operation = "connect"; "{why}");
    why
}

/// Logs why a peer has rejected a connection, and returns the message.
pub(super) fn rejected(id: &Id, reason: Reason) -> String {
    let peer = id.state().dst.map(|dst| dst.to_string()).unwrap_or_default();
    let (level, why) = match reason {
        Reason::INVALID_SERVICE_ID => {
            let other = id.state().dst.filter(|dst| is_of_this_host(dst) && port::accepts_tcp(dst.port()));
            let other = other.map_or_else(String::new, |dst| {
                format!(
                    "; a program accepts TCP connections on port {}, maybe by iWARP, and this one uses RoCE; \
                     {REMEDY}",
                    dst.port()
                )
            });
            let why = format!(
                "{peer}: connect failed: no program listens on this port of rdma_cm over RoCE{other}"
            );
            (Level::Warn, why)
        }
        // The remote program may have rejected the request on purpose, which does not deserve a warning.
        _ => (Level::Info, format!("{peer} rejected the connection: {reason}")),
    };
    log::log!(level, peer:% = peer, operation = "connect"; "{why}");
    why
}
