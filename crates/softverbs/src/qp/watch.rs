// SPDX-License-Identifier: BSD-3-Clause
//! What the engine watches a connection's socket for.
//!
//! It follows from three conditions. Each has one writer at a time: [`BLOCKED`] is changed under `tx`, [`STALLED`] under `rx`, [`LEASED`]
//! is set by the engine and cleared under `tx`. They may be read without a lock, so that an empty poll takes none. Sequentially consistent,
//! because a thread that sets one looks at other flags of the queue pair next, whose writers look at this one.
#![forbid(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use crate::engine::{Engine, Source};
use crate::lock;
use crate::sys::Errno;

/// The receiving half waits for a receive: only the end of the connection is of interest.
pub(super) const STALLED: u8 = 1;
/// The socket takes no more for now.
pub(super) const BLOCKED: u8 = 2;
/// A program that polls serves the socket: the engine leaves it alone.
pub(super) const LEASED: u8 = 4;

const READ_EVENTS: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
pub(super) const WRITE_EVENT: u32 = libc::EPOLLOUT as u32;
pub(super) const END_EVENTS: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// A socket that the engine knows, and the events that it was last told to watch for.
struct Watched {
    engine: Arc<Engine>,
    token: u64,
    fd: RawFd,
    events: u32,
}

#[derive(Default)]
pub(super) struct Watch {
    conditions: AtomicU8,
    socket: Mutex<Option<Watched>>,
}

fn wanted(conditions: u8) -> u32 {
    if conditions & LEASED != 0 {
        return 0;
    }
    let read = if conditions & STALLED != 0 { libc::EPOLLRDHUP as u32 } else { READ_EVENTS };
    if conditions & BLOCKED != 0 { read | WRITE_EVENT } else { read }
}

impl Watch {
    /// Has the engine watch the socket. With a token it is a socket that the engine watches already, for another source.
    pub(super) fn begin(
        &self,
        engine: &Arc<Engine>,
        token: Option<u64>,
        fd: RawFd,
        source: Arc<dyn Source>,
    ) -> Result<(), Errno> {
        let known = token.is_some();
        let token = token.unwrap_or_else(|| engine.token());
        let events = wanted(0);
        *lock(&self.socket) = Some(Watched { engine: engine.clone(), token, fd, events });
        if known { engine.replace(token, fd, events, source) } else { engine.add(token, fd, events, source) }
    }

    /// Has the engine forget the socket, which may then be closed.
    pub(super) fn end(&self) {
        // Not under our lock: the engine may drop its source here.
        let socket = lock(&self.socket).take();
        if let Some(Watched { engine, token, fd, .. }) = socket {
            engine.remove(token, fd);
        }
    }

    /// The engine, as long as it watches.
    pub(super) fn engine(&self) -> Option<Arc<Engine>> {
        lock(&self.socket).as_ref().map(|socket| socket.engine.clone())
    }

    pub(super) fn is(&self, condition: u8) -> bool {
        self.conditions.load(Ordering::SeqCst) & condition != 0
    }

    /// Changes a condition, and what is watched for if that follows.
    pub(super) fn set(&self, condition: u8, holds: bool) {
        if self.is(condition) == holds {
            return;
        }
        let mut socket = lock(&self.socket);
        let before = if holds {
            self.conditions.fetch_or(condition, Ordering::SeqCst)
        } else {
            self.conditions.fetch_and(!condition, Ordering::SeqCst)
        };
        let now = if holds { before | condition } else { before & !condition };
        if let Some(socket) = &mut *socket {
            let events = wanted(now);
            if events != socket.events && socket.engine.watch(socket.token, socket.fd, events).is_ok() {
                socket.events = events;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_follows_from_the_conditions() {
        let (read, end) = (READ_EVENTS, libc::EPOLLRDHUP as u32);
        let expected = [read, end, read | WRITE_EVENT, end | WRITE_EVENT, 0, 0, 0, 0];
        for (conditions, events) in expected.into_iter().enumerate() {
            assert_eq!(wanted(conditions as u8), events, "{conditions}");
        }
    }

    #[test]
    fn conditions_are_kept_apart() {
        let watch = Watch::default();
        watch.set(BLOCKED, true);
        watch.set(LEASED, true);
        watch.set(BLOCKED, false);
        assert!(watch.is(LEASED) && !watch.is(BLOCKED) && !watch.is(STALLED));
    }
}
