// SPDX-License-Identifier: BSD-3-Clause
//! The transport of the process.
//!
//! It is a setting, or with `auto`, which `rpma run` sets, a choice: RoCE if the user can bind UDP port 4791,
//! which belongs to one user of a network namespace, otherwise iWARP. The first function that depends on the
//! transport makes the choice, and keeps the port bound, so it does not race with other users. A probe in
//! `rpma run`, before the program starts, would; and the kernel would deliver packets to the socket of the
//! probe, since it joins the SO_REUSEPORT group of the user. Children of fork(2) inherit the choice.
#![forbid(unsafe_code)]

use once_cell::race::OnceBox;

use crate::config::{self, Transport};
use crate::port::{Port, Unavailable};

/// What to do about peers with different transports, for the log.
pub(crate) const REMEDY: &str =
    "both ends need the same transport (SOFTVERBS_TRANSPORT, rpma run --transport)";

pub(crate) fn transport() -> Transport {
    static CHOSEN: OnceBox<Transport> = OnceBox::new();
    if let Some(chosen) = CHOSEN.get() {
        return *chosen;
    }
    let (transport, unavailable) = choose();
    // Threads may make the choice at the same time: the first result counts.
    if let (Ok(()), Some(unavailable)) = (CHOSEN.set(Box::new(transport)), unavailable) {
        log::warn!(
            "soft0 uses iWARP, and so must its peers (rpma run --transport iwarp), because RoCE is not available: \
             {}",
            unavailable.why()
        );
    }
    *CHOSEN.get_or_init(|| Box::new(transport))
}

/// The transport, and why it is not RoCE if the setting leaves the choice.
fn choose() -> (Transport, Option<Unavailable>) {
    if let Some(transport) = config::get().transport {
        return (transport, None);
    }
    match Port::open_first() {
        Ok(_) => (Transport::Roce, None),
        Err(unavailable) => (Transport::Iwarp, Some(unavailable)),
    }
}
