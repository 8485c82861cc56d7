// SPDX-License-Identifier: BSD-3-Clause
//! The transport of the process.
//!
//! It is a setting, or with `auto`, which `rpma run` sets, a choice: RoCE if the user can bind UDP port 4791,
//! which belongs to one user of a network namespace, otherwise iWARP. The first function that depends on the
//! transport makes the choice, and keeps the port bound, so it does not race with other users. A probe in
//! `rpma run`, before the program starts, would; and the kernel would deliver packets to the socket of the
//! probe, since it joins the SO_REUSEPORT group of the user. Children of fork(2) inherit the choice.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::config::{self, Transport};
use crate::port::Port;

/// What to do about peers with different transports, for the log.
pub(crate) const REMEDY: &str =
    "both ends need the same transport (SOFTVERBS_TRANSPORT, rpma run --transport)";

pub(crate) fn transport() -> Transport {
    static CHOSEN: OnceBox<Transport> = OnceBox::new();
    *CHOSEN.get_or_init(|| Box::new(config::get().transport.unwrap_or_else(choose)))
}

/// Threads may make the choice at the same time; the first result counts, and one of them logs.
fn choose() -> Transport {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    match Port::open_first() {
        Ok(_) => Transport::Roce,
        Err(unavailable) => {
            if !LOGGED.swap(true, Ordering::Relaxed) {
                log::warn!(
                    "soft0 uses iWARP, and so must its peers (rpma run --transport iwarp), because RoCE is not \
                     available: {}",
                    unavailable.why()
                );
            }
            Transport::Iwarp
        }
    }
}
