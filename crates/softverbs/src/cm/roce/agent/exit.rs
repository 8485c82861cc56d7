// SPDX-License-Identifier: BSD-3-Clause
//! The end of the process.
//!
//! When a process ends, the kernel's rdma_cm sends a DREQ for each of its connections, once. softverbs sends
//! them when the process calls exit(3), after the handlers and destructors of the program, which may still
//! use their connections. A process that is killed or calls _exit(2) sends none: see [`super::watch`].
//!
//! Other threads still run, and the thread that exits may have been interrupted anywhere by a signal handler
//! that called exit(3). So a lock is awaited for a limited time; then the process ends without the messages.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::{AGENT, Agent};
use crate::lock::lock_until;
use crate::{clock, port};
use transport::roce::cm::Output;

/// How long the locks are awaited at the end of the process. Other threads hold them for microseconds.
pub(super) const MAX_DELAY: Duration = Duration::from_millis(100);

/// Ends the connections and attempts of this process, and forwards the packets for other processes that have
/// reached its sockets. Without effect in a child after fork(2), to which the connections of its parent do
/// not belong.
pub(in crate::cm) fn at_exit() {
    let deadline = Instant::now() + MAX_DELAY;
    let running = AGENT.existing().and_then(|running| lock_until(running, deadline)?.clone());
    if let Some(agent) = running {
        agent.end(deadline);
    }
    port::drain(deadline);
}

impl Agent {
    /// Sends what waits and the last message of each exchange, and reports nothing more.
    fn end(&self, deadline: Instant) {
        let Some(mut state) = lock_until(&self.state, deadline) else { return };
        state.manager.destroy_all(clock::now());
        let mut messages = state.messages.take();
        messages.extend(std::iter::from_fn(|| state.manager.poll()).filter_map(|output| match output {
            Output::Send { route, mad } => Some((route, mad)),
            Output::Event { .. } => None,
        }));
        drop(state);
        for (route, mad) in messages {
            self.port.send_message(&mad, route.local, route.remote);
        }
    }
}
