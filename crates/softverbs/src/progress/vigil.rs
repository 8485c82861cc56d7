// SPDX-License-Identifier: BSD-3-Clause
//! Whether the hosts of the peers are still there.
//!
//! Silence is measured in what a peer's host acknowledges, not in what its program takes: a program that is
//! stopped, or posts no receives, closes the window of its socket, and its host goes on to acknowledge the
//! probes of ours. TCP_USER_TIMEOUT would count that time, too. So it is not used; the engine asks the kernel
//! now and then what it has heard of each host ([`sys::Heard`]).
//!
//! A host is lost when it has been silent for the whole time and has left at least two questions without an
//! answer. Questions are what the kernel sends again because it was not acknowledged, its probes of a closed
//! window, and on an idle connection keep-alive probes.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::engine::{Engine, Source};
use super::{By, Driven};
use crate::limits::LOOKS;
use crate::sys::{self, Heard};
use crate::{config, lock};
use transport::step::reason;

/// Questions without an answer: one may have been lost on its way.
const QUESTIONS: u32 = 2;

struct Watched {
    socket: RawFd,
    lost: Arc<AtomicBool>,
    connection: Weak<dyn Driven>,
}

#[derive(Default)]
struct Connections {
    next: u64,
    watched: HashMap<u64, Watched>,
    /// The next look is scheduled.
    scheduled: bool,
}

/// The connections of a process whose hosts are looked after.
#[derive(Default)]
pub(crate) struct Vigil {
    connections: Mutex<Connections>,
}

/// A connection that is looked after; dropped before its socket is closed.
pub(crate) struct Vigilance {
    vigil: Arc<Vigil>,
    number: u64,
    lost: Arc<AtomicBool>,
}

impl Vigilance {
    /// The host is lost: what has arrived is there, nothing more will be.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

impl Drop for Vigilance {
    fn drop(&mut self) {
        lock(&self.vigil.connections).watched.remove(&self.number);
    }
}

/// The time between two looks, and how long a host may have been silent at one, so that the next would come
/// too late.
fn times() -> (Duration, Duration) {
    let limit = config::get().peer_timeout;
    let interval = limit / LOOKS;
    (interval, limit - interval)
}

fn is_lost(heard: Heard, silence: Duration) -> bool {
    heard.silence >= silence && heard.unanswered >= QUESTIONS
}

impl Vigil {
    /// Looks after the host of a connected socket. If it is lost, the connection is driven.
    pub(crate) fn begin(
        self: &Arc<Self>,
        engine: &Engine,
        socket: &OwnedFd,
        connection: Weak<dyn Driven>,
    ) -> Vigilance {
        let lost = Arc::new(AtomicBool::new(false));
        let watched = Watched { socket: socket.as_raw_fd(), lost: lost.clone(), connection };
        let (number, first) = {
            let mut connections = lock(&self.connections);
            connections.next += 1;
            let number = connections.next;
            connections.watched.insert(number, watched);
            (number, !std::mem::replace(&mut connections.scheduled, true))
        };
        if first {
            self.schedule(engine);
        }
        Vigilance { vigil: self.clone(), number, lost }
    }

    fn schedule(self: &Arc<Self>, engine: &Engine) {
        let source: Arc<dyn Source> = self.clone();
        engine.schedule(times().0, &source).detach();
    }

    /// Takes out the connections whose hosts are lost. Under the lock, so that no socket is closed meanwhile.
    fn look(&self) -> Vec<Watched> {
        let silence = times().1;
        let mut connections = lock(&self.connections);
        let lost: Vec<u64> = connections
            .watched
            .iter()
            .filter(|(_, watched)| sys::heard(watched.socket).is_some_and(|heard| is_lost(heard, silence)))
            .map(|(number, _)| *number)
            .collect();
        let taken = lost.iter().filter_map(|number| connections.watched.remove(number)).collect();
        connections.scheduled = !connections.watched.is_empty();
        taken
    }
}

impl Source for Vigil {
    /// No descriptor leads here.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        for Watched { lost, connection, .. } in self.look() {
            lost.store(true, Ordering::Release);
            if let Some(connection) = connection.upgrade() {
                connection.drive(reason::READABLE | reason::WRITABLE | reason::HANGUP, By::Engine);
            }
        }
        if lock(&self.connections).scheduled {
            // This is the thread of the engine, so there is one.
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
    fn a_host_is_lost_that_is_silent_and_was_asked() {
        let lost = |silence_s, unanswered| {
            is_lost(Heard { silence: Duration::from_secs(silence_s), unanswered }, Duration::from_secs(18))
        };
        assert!(lost(18, 2) && lost(100, 7));
        assert!(!lost(17, 7), "it has answered just now");
        assert!(!lost(100, 0), "nobody has asked: the window of its program is closed, or nothing is sent");
        assert!(!lost(100, 1), "a single probe may be lost on its way");
    }
}
