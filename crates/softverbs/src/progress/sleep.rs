// SPDX-License-Identifier: BSD-3-Clause
//! Threads of the program that sleep for completions and are woken by the sockets directly.
//!
//! The engine, woken by a socket, would have to wake a blocking read of a completion channel: two context
//! switches for one message. So a thread that would sleep for an event takes over the sockets of the
//! channel's completion queues, and waits for them and for the channel.

use arrayvec::ArrayVec;
use std::sync::Arc;

use super::By;
use super::watch::Watch;
use crate::cancel;
use crate::channel::EventQueue;
use crate::sys::{self, Errno};

/// The maximum number of epoll sets for which a thread that sleeps on a completion channel waits. With more
/// it leaves them to the engine.
const SLEEP_SETS: usize = 8;

/// The watches behind a completion channel, if a thread may sleep on all of them.
pub(crate) type Watches = ArrayVec<Arc<Watch>, SLEEP_SETS>;

/// The watches on which a thread sleeps.
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

/// Also runs when the sleeping thread is cancelled.
impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.iter().for_each(|watch| watch.wake());
    }
}

/// Takes the oldest event of a channel; if its descriptor is blocking, waits for one, which is a cancellation
/// point. Meanwhile drives the connections of `watches`. `keep` is dropped after the wait, also if the thread
/// is cancelled. The error is that of a read of the descriptor: EAGAIN or EINTR.
pub(crate) fn take<T, K: 'static>(
    queue: &EventQueue<T>,
    mut watches: Watches,
    mut keep: Option<K>,
) -> Result<T, Errno> {
    let mut blocked = None;
    loop {
        if let Some(event) = queue.try_take() {
            return Ok(event);
        }
        if sys::is_non_blocking(queue) {
            return Err(libc::EAGAIN);
        }
        let signals = blocked.get_or_insert_with(sys::BlockedSignals::new);
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // The first element is the channel. On the stack, because the thread may be cancelled.
        let mut fds = [readable(queue.fd()); SLEEP_SETS + 1];
        for (fd, watch) in fds[1..].iter_mut().zip(&watches) {
            *fd = readable(watch.fd());
        }
        let asleep = Asleep::on(watches);
        let used = asleep.0.len() + 1;
        let ((asleep, kept), mut waited) =
            cancel::waiting((asleep, keep), || signals.wait_readable(&mut fds[..used]));
        keep = kept;
        if waited.is_ok() {
            {
                let _taker = queue.will_take();
                for (watch, _) in asleep.0.iter().zip(&fds[1..]).filter(|(_, fd)| fd.revents != 0) {
                    watch.look(By::Sleeper);
                }
                if let Some(event) = queue.try_take() {
                    return Ok(event);
                }
            }
            // The next ppoll(2) runs no handlers if a descriptor is readable again.
            waited = signals.run_handlers();
        }
        watches = asleep.wake();
        match waited {
            Err(libc::EINTR) if sys::handlers_restart() => {}
            Err(libc::EINTR) => return Err(libc::EINTR),
            // poll(2) can fail where a read would not: with more elements than RLIMIT_NOFILE, or for lack of
            // memory.
            Err(_) => {
                drop((watches, blocked));
                return queue.take_keeping(keep);
            }
            Ok(()) => {}
        }
    }
}
