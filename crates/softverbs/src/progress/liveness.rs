// SPDX-License-Identifier: BSD-3-Clause
//! Peer liveness: whether the hosts of the peers still respond.
//!
//! A host is judged by its acknowledgements, not by what its program consumes: if a program is stopped, or
//! posts no receives, the window of its socket closes, but its host still acknowledges our probes.
//! TCP_USER_TIMEOUT would count that time, too, so it is not used; instead the engine periodically reads from
//! the kernel when something was last received from each host ([`sys::Reachability`]).
//!
//! A host is lost when it has been silent for the whole time and at least two probes are unanswered:
//! retransmissions, probes of a closed window, and keepalive probes on an idle connection.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::engine::Engine;
use super::source::Source;
use super::{By, Driven};
use crate::process::PerProcess;
use crate::sys::{self, Reachability};
use crate::{config, lock};
use transport::step::reason;

/// The number of liveness checks before a silent host is considered lost.
const LOOKS: u32 = 16;
/// The number of unanswered probes of a lost host: a single one may have been lost on the way.
const UNANSWERED_PROBES: u32 = 2;

struct Watched {
    socket: RawFd,
    lost: Arc<AtomicBool>,
    connection: Weak<dyn Driven>,
}

#[derive(Default)]
struct Connections {
    next: u64,
    watched: HashMap<u64, Watched>,
    /// The next check is scheduled.
    scheduled: bool,
}

/// The connections of a process whose hosts are checked.
#[derive(Default)]
pub(crate) struct Liveness {
    connections: Mutex<Connections>,
}

static LIVENESS: PerProcess<Arc<Liveness>> = PerProcess::new();

/// The check of one connection, which ends when this is dropped. Must be dropped before the socket is closed.
pub(crate) struct LivenessCheck {
    liveness: Arc<Liveness>,
    number: u64,
    lost: Arc<AtomicBool>,
}

impl LivenessCheck {
    /// Whether the host is lost: nothing more will arrive.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

impl Drop for LivenessCheck {
    fn drop(&mut self) {
        lock(&self.liveness.connections).watched.remove(&self.number);
    }
}

/// The interval between two checks, and the silence from which a check considers a host lost because the next
/// check would be too late.
fn times() -> (Duration, Duration) {
    let limit = config::get().peer_timeout;
    let interval = limit / LOOKS;
    (interval, limit - interval)
}

fn is_lost(host: Reachability, silence: Duration) -> bool {
    host.silence >= silence && host.unanswered >= UNANSWERED_PROBES
}

impl Liveness {
    /// The liveness state of this process.
    fn get() -> Arc<Self> {
        lock(LIVENESS.get()).get_or_insert_default().clone()
    }

    /// Checks the host of a connected socket from now on, and drives the connection if the host is lost.
    pub(crate) fn begin(engine: &Engine, socket: &OwnedFd, connection: Weak<dyn Driven>) -> LivenessCheck {
        let liveness = Self::get();
        let lost = Arc::new(AtomicBool::new(false));
        let watched = Watched { socket: socket.as_raw_fd(), lost: lost.clone(), connection };
        let (number, first) = {
            let mut connections = lock(&liveness.connections);
            connections.next += 1;
            let number = connections.next;
            connections.watched.insert(number, watched);
            (number, !std::mem::replace(&mut connections.scheduled, true))
        };
        if first {
            liveness.schedule(engine);
        }
        LivenessCheck { liveness, number, lost }
    }

    fn schedule(self: &Arc<Self>, engine: &Engine) {
        let source: Arc<dyn Source> = self.clone();
        engine.schedule(times().0, &source).detach();
    }

    /// Removes the connections whose hosts are lost; also returns whether the next check must be scheduled.
    /// Holds the lock, so that no socket is closed meanwhile.
    fn look(&self) -> (Vec<Watched>, bool) {
        let silence = times().1;
        let mut connections = lock(&self.connections);
        let lost: Vec<u64> = connections
            .watched
            .iter()
            .filter(|(_, watched)| {
                sys::reachability(watched.socket).is_some_and(|host| is_lost(host, silence))
            })
            .map(|(number, _)| *number)
            .collect();
        let taken = lost.iter().filter_map(|number| connections.watched.remove(number)).collect();
        connections.scheduled = !connections.watched.is_empty();
        (taken, connections.scheduled)
    }
}

impl Source for Liveness {
    /// Not called: no descriptor belongs to this source.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        let (lost_hosts, is_scheduled) = self.look();
        for Watched { lost, connection, .. } in lost_hosts {
            lost.store(true, Ordering::Release);
            if let Some(connection) = connection.upgrade() {
                connection.drive(reason::READABLE | reason::WRITABLE | reason::HANGUP, By::Engine);
            }
        }
        if is_scheduled {
            // This runs on the engine thread, so the engine exists.
            if let Ok(engine) = Engine::get() {
                self.schedule(&engine);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_silent_and_was_probed_is_lost() {
        let lost = |silence_s, unanswered| {
            is_lost(
                Reachability { silence: Duration::from_secs(silence_s), unanswered },
                Duration::from_secs(18),
            )
        };
        assert!(lost(18, 2) && lost(100, 7));
        assert!(!lost(17, 7), "it has just responded");
        assert!(!lost(100, 0), "no probe is unanswered: the window is closed, or nothing was sent");
        assert!(!lost(100, 1), "a single probe may be lost on its way");
    }
}
