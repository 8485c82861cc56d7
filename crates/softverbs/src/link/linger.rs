// SPDX-License-Identifier: BSD-3-Clause
//! Closing a socket after the connection has ended: the last bytes are sent, then the FIN; what the peer
//! still sends is discarded until its FIN. Closing immediately could make the kernel send a reset, and the
//! peer would lose data that it has not yet read.
#![forbid(unsafe_code)]

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::lock;
use crate::progress::engine::Engine;
use crate::progress::source::Source;
use crate::progress::timers::Timer;
use crate::socket::Socket;
use crate::sys;

const READ: u32 = libc::EPOLLIN as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;
/// Milliseconds for which a closing connection waits for the peer's FIN.
const LINGER_MS: u64 = 2_000;
/// Maximum number of consecutive reads, so that a peer that keeps sending does not occupy the engine.
const READS: usize = 16;

struct State {
    socket: Socket,
    unsent: Vec<u8>,
    sent: usize,
    /// Closes the socket when it expires.
    timer: Option<Timer>,
}

struct Linger {
    engine: Arc<Engine>,
    token: u64,
    state: Mutex<Option<State>>,
}

/// Sends `last`, then the FIN. The engine waits [`LINGER_MS`] for the FIN of the peer, then closes the
/// socket.
pub(super) fn start(engine: &Arc<Engine>, socket: Socket, last: &[u8]) {
    // If the allocation fails, the peer sees the end without the final bytes.
    let mut unsent = Vec::new();
    if unsent.try_reserve_exact(last.len()).is_ok() {
        unsent.extend_from_slice(last);
    }
    let mut state = State { socket, unsent, sent: 0, timer: None };
    if state.step() {
        return;
    }
    let fd = state.socket.as_raw_fd();
    let events = state.wanted();
    let linger =
        Arc::new(Linger { engine: engine.clone(), token: engine.token(), state: Mutex::new(Some(state)) });
    let source: Arc<dyn Source> = linger.clone();
    if engine.add(linger.token, fd, events, source.clone()).is_ok() {
        let timer = engine.schedule(Duration::from_millis(LINGER_MS), &source);
        if let Some(state) = &mut *lock(&linger.state) {
            state.timer = Some(timer);
        }
    }
}

impl State {
    fn wanted(&self) -> u32 {
        if self.sent < self.unsent.len() { READ | WRITE } else { READ }
    }

    /// Sends and discards as much as possible; true when the socket can be closed.
    fn step(&mut self) -> bool {
        while self.sent < self.unsent.len() {
            match sys::send(&self.socket, &self.unsent[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(libc::EAGAIN) => break,
                Err(_) => return true,
            }
        }
        if self.sent == self.unsent.len() {
            sys::shutdown_write(&self.socket);
        }
        for _ in 0..READS {
            match sys::discard(&self.socket) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) => return e != libc::EAGAIN,
            }
        }
        false
    }
}

impl Linger {
    fn end(&self) {
        if let Some(state) = lock(&self.state).take() {
            self.engine.remove(self.token, state.socket.as_raw_fd());
        }
    }
}

impl Source for Linger {
    fn ready(self: Arc<Self>, _events: u32) {
        let over = {
            let mut guard = lock(&self.state);
            let Some(state) = &mut *guard else { return };
            let before = state.wanted();
            let over = state.step();
            if !over && state.wanted() != before {
                let _ = self.engine.watch(self.token, state.socket.as_raw_fd(), state.wanted());
            }
            over
        };
        if over {
            self.end();
        }
    }

    fn timeout(self: Arc<Self>) {
        self.end();
    }
}
