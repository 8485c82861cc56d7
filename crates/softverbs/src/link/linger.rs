// SPDX-License-Identifier: BSD-3-Clause
//! Closing a socket after the connection has ended: the last bytes are sent, then the FIN; what the peer
//! still sends is discarded until its FIN. Closing immediately could make the kernel send a reset, and the
//! peer would lose data that it has not yet read.
//!
//! The end of the process closes all sockets. So exit(3) waits, for a limited time, until the peer's host has
//! acknowledged the FIN, or the peer has sent its own: then a reset discards nothing that the peer can read.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::{lock, lock_until};
use crate::process::PerProcess;
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
/// The interval at which a process that exits checks its sockets.
const INTERVAL: Duration = Duration::from_millis(1);

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

/// Those of this process, by token.
static LINGERING: PerProcess<HashMap<u64, Arc<Linger>>> = PerProcess::new();

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
    linger.note();
    if engine.add(linger.token, fd, events, source.clone()).is_err() {
        return linger.forget();
    }
    let timer = engine.schedule(Duration::from_millis(LINGER_MS), &source);
    if let Some(state) = &mut *lock(&linger.state) {
        state.timer = Some(timer);
    }
}

/// Waits until the end of the process may close the sockets, until `deadline` at most: a peer may be stopped.
/// The thread that exits may hold locks itself, as a signal handler may call exit(3), and the engine may wait
/// for them: so this thread waits for no lock without a limit, and sends itself. No effect in a child after
/// fork(2), to which the sockets do not belong.
pub(super) fn drain(deadline: Instant) {
    let existing = LINGERING.existing().and_then(|lingering| lock_until(lingering, deadline));
    let mut lingering: Vec<_> =
        existing.iter().flat_map(|table| table.iter().flat_map(HashMap::values)).cloned().collect();
    drop(existing);
    loop {
        lingering.retain(|linger| !linger.may_close());
        if lingering.is_empty() || Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(INTERVAL);
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
    fn note(self: &Arc<Self>) {
        let mut lingering = lock(LINGERING.get());
        let lingering = lingering.get_or_insert_default();
        // Without memory the process does not wait for it.
        if lingering.try_reserve(1).is_ok() {
            lingering.insert(self.token, self.clone());
        }
    }

    fn forget(&self) {
        if let Some(lingering) = &mut *lock(LINGERING.get()) {
            lingering.remove(&self.token);
        }
    }

    fn end(&self) {
        if let Some(state) = lock(&self.state).take() {
            self.engine.remove(self.token, state.socket.as_raw_fd());
        }
        self.forget();
    }

    /// Whether the peer loses nothing if the socket is closed now. Sends and discards until then.
    fn may_close(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return false };
        let Some(state) = &mut *state else { return true };
        state.step() || state.sent == state.unsent.len() && sys::unacknowledged(&state.socket) == 0
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;

    use super::*;

    /// As the thread that exits may hold it.
    #[test]
    fn the_exit_of_the_process_waits_briefly_for_a_lock() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = Socket::noted(|| {
            let (socket, _) = listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            Ok(OwnedFd::from(socket))
        });
        start(&Engine::get().unwrap(), socket.unwrap(), b"last");
        let lingering: Vec<_> = lock(LINGERING.get()).iter().flatten().map(|(_, one)| one.clone()).collect();
        for held in 0..2 {
            let table = (held == 0).then(|| lock(LINGERING.get()));
            let states: Vec<_> = lingering.iter().filter(|_| held == 1).map(|one| lock(&one.state)).collect();
            let deadline = Instant::now() + Duration::from_millis(50);
            std::thread::scope(|threads| {
                threads.spawn(|| drain(deadline)).join().unwrap();
            });
            assert!(Instant::now() >= deadline, "it has not waited");
            drop((table, states));
        }
    }
}
