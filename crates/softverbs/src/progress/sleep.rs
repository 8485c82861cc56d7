// SPDX-License-Identifier: BSD-3-Clause
//! A thread of the program that sleeps for completions, and is woken by the socket itself.
//!
//! A blocking read of a completion channel would be woken by the engine, which was woken by the socket: two
//! switches of threads for one message. So a thread that asks for an event, and would sleep, promises to look
//! at the sockets of the channel's completion queues, and waits for them and for the channel.

use arrayvec::ArrayVec;
use std::sync::Arc;

use super::By;
use super::watch::Watch;
use crate::cancel;
use crate::channel::EventQueue;
use crate::sys::{self, Errno};

/// epoll sets up to which a thread that sleeps on a completion channel waits for them itself. With more it
/// leaves them to the engine.
const SLEEP_SETS: usize = 8;

/// The watches behind a completion channel, if a thread may sleep on all of them.
pub(crate) type Watches = ArrayVec<Arc<Watch>, SLEEP_SETS>;

/// Watches that a thread sleeps on.
struct Asleep(Watches);

impl Asleep {
    fn on(watches: Watches) -> Self {
        watches.iter().for_each(|watch| watch.sleep());
        Self(watches)
    }

    fn wake(mut self) -> Watches {
        let watches = std::mem::take(&mut self.0);
        watches.iter().for_each(|watch| watch.wake());
        watches
    }
}

/// Also of a thread that is cancelled in its sleep.
impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.iter().for_each(|watch| watch.wake());
    }
}

/// Takes the oldest event of a channel, waiting for one if its descriptor is a blocking one: a cancellation
/// point. Moves the bytes behind `watches` meanwhile. `keep` is dropped when the thread waits no more, also
/// if it is cancelled. The error is what a read of the descriptor would give: EAGAIN or EINTR.
pub(crate) fn take<T, K: 'static>(
    queue: &EventQueue<T>,
    mut watches: Watches,
    mut keep: Option<K>,
) -> Result<T, Errno> {
    loop {
        if let Some(event) = queue.try_take() {
            return Ok(event);
        }
        if sys::is_non_blocking(queue) {
            return Err(libc::EAGAIN);
        }
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // The descriptor of the channel is the first one. On the stack, because the thread may be cancelled.
        let mut fds = [readable(queue.fd()); SLEEP_SETS + 1];
        for (fd, watch) in fds[1..].iter_mut().zip(&watches) {
            *fd = readable(watch.fd());
        }
        let asleep = Asleep::on(watches);
        let used = asleep.0.len() + 1;
        let ((asleep, kept), waited) =
            cancel::waiting((asleep, keep), || sys::wait_readable(&mut fds[..used]));
        keep = kept;
        if waited.is_ok() {
            let _taker = queue.will_take();
            for (watch, _) in asleep.0.iter().zip(&fds[1..]).filter(|(_, fd)| fd.revents != 0) {
                watch.look(By::Sleeper);
            }
            if let Some(event) = queue.try_take() {
                return Ok(event);
            }
        }
        watches = asleep.wake();
        match waited {
            Err(libc::EINTR) if sys::handlers_restart() => {}
            Err(libc::EINTR) => return Err(libc::EINTR),
            // poll(2) asks for more than a read does: no more descriptors than the process may have now, and
            // memory for them.
            Err(_) => {
                drop(watches);
                return queue.take_keeping(keep);
            }
            Ok(()) => {}
        }
    }
}
