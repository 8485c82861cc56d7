// SPDX-License-Identifier: BSD-3-Clause
//! Peer liveness: whether the hosts of the peers still respond.
//!
//! A host is judged by its acknowledgements, not by what its program consumes: if a program is stopped, or
//! posts no receives, the window of its socket closes, but its host still acknowledges our probes.
//! TCP_USER_TIMEOUT would count that time, too, so it is not used; instead the engine periodically reads from
//! the kernel when something was last received from each host ([`sys::Reachability`]).
//!
//! A host is lost when it has been silent for the whole time and at least two probes are unanswered:
//! retransmissions, probes of a closed window, and keepalive probes on an idle connection. Only probes sent
//! after the last check that found a recent response count.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

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
/// Linux responds to at most one probe of a closed window, or keepalive probe, in this time
/// (tcp_invalid_ratelimit).
const RESPONSE_INTERVAL: Duration = Duration::from_millis(500);
/// The kernel measures the silence in jiffies, of 10 ms at most.
const JIFFIES: Duration = Duration::from_millis(20);

struct Watched {
    socket: RawFd,
    probes: Probes,
    lost: Arc<AtomicBool>,
    connection: Weak<dyn Driven>,
}

#[derive(Default)]
struct Connections {
    next: u64,
    watched: HashMap<u64, Watched>,
    /// The time of the last check, or of its scheduling; `None`: no check is scheduled.
    last_check: Option<Instant>,
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

/// The probe counter of a host at its last response.
#[derive(Default)]
struct Probes {
    /// The counter at the last check after a response; later probes are unanswered.
    answered: u32,
}

impl Probes {
    /// Whether the host is lost. `elapsed`: since the last check; `limit`: the silence of a lost host.
    fn are_lost(&mut self, now: Reachability, elapsed: Duration, limit: Duration) -> bool {
        // A counter that has decreased was reset by a response.
        if now.silence < (elapsed + JIFFIES).max(RESPONSE_INTERVAL) || now.probes < self.answered {
            self.answered = now.probes;
        }
        now.silence >= limit && now.probes - self.answered >= UNANSWERED_PROBES
    }
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
        let probes = Probes::default();
        let watched = Watched { socket: socket.as_raw_fd(), probes, lost: lost.clone(), connection };
        let (number, first) = {
            let mut connections = lock(&liveness.connections);
            connections.next += 1;
            let number = connections.next;
            connections.watched.insert(number, watched);
            let first = connections.last_check.is_none();
            if first {
                connections.last_check = Some(Instant::now());
            }
            (number, first)
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
        let limit = times().1;
        let mut connections = lock(&self.connections);
        // Before the loop, so that no response falls between two checks.
        let this_check = Instant::now();
        let elapsed = connections.last_check.map_or(Duration::ZERO, |last| this_check - last);
        let lost: Vec<u64> = connections
            .watched
            .iter_mut()
            .filter_map(|(number, Watched { socket, probes, .. })| {
                let now = sys::reachability(*socket)?;
                probes.are_lost(now, elapsed, limit).then_some(*number)
            })
            .collect();
        let taken = lost.iter().filter_map(|number| connections.watched.remove(number)).collect();
        connections.last_check = (!connections.watched.is_empty()).then_some(this_check);
        (taken, connections.last_check.is_some())
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

    /// Whether a host is lost at the last of these checks, with its silence in milliseconds and its counter.
    fn is_lost_after(timeout_ms: u64, checks: &[(u64, u32)]) -> bool {
        let timeout = Duration::from_millis(timeout_ms);
        let elapsed = timeout / LOOKS;
        let mut host = Probes::default();
        let mut lost = false;
        for &(silence_ms, probes) in checks {
            let now = Reachability { silence: Duration::from_millis(silence_ms), probes };
            lost = host.are_lost(now, elapsed, timeout - elapsed);
        }
        lost
    }

    #[test]
    fn a_host_that_is_silent_and_was_probed_is_lost() {
        let is_lost = |check| is_lost_after(1_000, &[check]);
        assert!(is_lost((938, 2)) && is_lost((5_000, 7)));
        assert!(!is_lost((937, 7)), "it has just responded");
        assert!(!is_lost((5_000, 0)), "no probe is unanswered: the window is closed, or nothing was sent");
        assert!(!is_lost((5_000, 1)), "a single probe may be lost on its way");
    }

    #[test]
    fn probes_soon_after_a_response_do_not_count() {
        let is_lost = |checks| is_lost_after(1_000, checks);
        assert!(!is_lost(&[(460, 2), (950, 2)]), "the host responds to one in half a second");
        assert!(!is_lost(&[(460, 2), (950, 3)]));
        assert!(is_lost(&[(460, 2), (1_500, 4)]));
    }

    /// A stopped program: its host drops the data for which there is no room, but responds.
    #[test]
    fn retransmissions_that_the_host_responded_to_do_not_count() {
        assert!(!is_lost_after(1_000, &[(10, 5), (950, 5)]));
        assert!(!is_lost_after(1_000, &[(950, 6), (20, 6), (950, 6)]));
        assert!(is_lost_after(1_000, &[(10, 5), (2_000, 7)]));
        assert!(!is_lost_after(20_000, &[(1_240, 5), (18_760, 6)]), "a response between two checks");
        assert!(is_lost_after(20_000, &[(1_300, 2), (18_760, 2)]));
    }

    /// A response that no check has found in time.
    #[test]
    fn a_counter_that_restarts_counts_from_there() {
        assert!(!is_lost_after(20_000, &[(10, 9), (1_300, 2), (18_760, 3)]));
        assert!(is_lost_after(20_000, &[(10, 9), (1_300, 2), (18_760, 4)]));
    }
}
