// SPDX-License-Identifier: BSD-3-Clause
//! A thread of the program that sleeps for completions, and is woken by the socket itself.
//!
//! A blocking read of a completion channel would be woken by the engine, which was woken by the socket: two switches of threads for one
//! message. So a thread that asks for an event, and would sleep, promises to look at the sockets of the channel's completion queues, and
//! waits for them and for the channel.

use std::sync::Arc;

use super::By;
use super::watch::Watch;
use crate::channel::EventQueue;
use crate::sys::{self, Errno};

/// Watches that a thread sleeps on.
struct Asleep<'a>(&'a [Arc<Watch>]);

impl<'a> Asleep<'a> {
    fn on(watches: &'a [Arc<Watch>]) -> Self {
        watches.iter().for_each(|watch| watch.sleep());
        Self(watches)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|watch| watch.wake());
    }
}

/// Takes the oldest event of a channel, waiting for one if its descriptor is a blocking one; moves the bytes behind `watches` meanwhile.
/// The error is what a read of the descriptor would give: EAGAIN or EINTR.
pub(crate) fn take<T>(queue: &EventQueue<T>, watches: &[Arc<Watch>]) -> Result<T, Errno> {
    loop {
        if let Some(event) = queue.try_take() {
            return Ok(event);
        }
        if sys::is_non_blocking(queue.fd()) {
            return Err(libc::EAGAIN);
        }
        let asleep = Asleep::on(watches);
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds: Vec<libc::pollfd> = watches.iter().map(|watch| readable(watch.fd())).collect();
        fds.push(readable(queue.fd()));
        let waited = sys::wait_readable(&mut fds);
        if waited.is_ok() {
            let _taker = queue.will_take();
            for (watch, _) in watches.iter().zip(&fds).filter(|(_, fd)| fd.revents != 0) {
                watch.look(By::Sleeper);
            }
            if let Some(event) = queue.try_take() {
                return Ok(event);
            }
        }
        drop(asleep);
        match waited {
            Err(libc::EINTR) if sys::handlers_restart() => {}
            Err(libc::EINTR) => return Err(libc::EINTR),
            // poll(2) asks for more than a read does: no more descriptors than the process may have now, and memory for them.
            Err(_) => return queue.take(),
            Ok(()) => {}
        }
    }
}
