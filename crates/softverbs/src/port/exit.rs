// SPDX-License-Identifier: BSD-3-Clause
//! The end of the process, whose sockets may hold packets for other processes: the kernel would drop them
//! with the sockets. Some may be the last messages of the process itself, which nothing repeats: a REJ, or
//! those of an unreliable queue pair.
//!
//! The engine forwards them, since the thread that exits must not wait without a limit for the locks of the
//! port, which it may hold itself: a signal handler may call exit(3). The process then waits until the
//! receivers have confirmed the packets: once its slot is unclaimed, they drop what it has forwarded
//! ([`super::owners`]).
#![forbid(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::forward::Message;
use super::slot::{self, MAX_SLOT};
use super::{PORT, Port};
use crate::cancel::whole;
use crate::clock;
use crate::limits::{MAX_EXIT_DELAY, MAX_EXIT_RECEIVE};
use crate::lock::{lock, lock_until};
use crate::progress::By;
use crate::progress::source::Source;
use transport::units::Micros;

/// The interval at which the process repeats [`Message::Confirm`] and checks which receivers have ended.
const INTERVAL: Duration = Duration::from_millis(5);

pub(super) struct Exit {
    /// When a packet was last forwarded to each slot, in time of [`clock`]; 0: all packets are confirmed.
    /// On the heap: threads with small stacks open the port.
    forwarded: Box<[AtomicU64; 256]>,
}

impl Default for Exit {
    fn default() -> Self {
        Self { forwarded: Box::new([const { AtomicU64::new(0) }; 256]) }
    }
}

impl Exit {
    /// A packet was forwarded to a slot.
    pub(super) fn forwarded(&self, slot: u8) {
        self.forwarded[usize::from(slot)].store(clock::now().max(1), Ordering::Relaxed);
    }

    /// The process of a slot has received all packets that were forwarded to it, or has ended.
    pub(super) fn confirmed(&self, slot: u8) {
        self.forwarded[usize::from(slot)].store(0, Ordering::Relaxed);
    }

    /// The slots to which packets were forwarded since a time and that have not confirmed them.
    fn unconfirmed(&self, since: Micros) -> impl Iterator<Item = u8> {
        (1..=MAX_SLOT)
            .filter(move |slot| self.forwarded[usize::from(*slot)].load(Ordering::Relaxed) >= since.max(1))
    }
}

/// Forwards the packets for other processes that are in the sockets of this process. Locks are awaited until
/// `until`. No effect in a child after fork(2) that does not use the port.
pub(crate) fn drain(until: Instant) {
    let bound = PORT.existing().and_then(|bound| lock_until(bound, until)?.clone());
    let Some(port) = bound else { return };
    let deadline = Instant::now() + MAX_EXIT_DELAY;
    // If it fails, what has arrived already is forwarded. The engine needs the rest of the time.
    let _ = whole(|| pass_loopback(until.saturating_duration_since(Instant::now()) / 2));
    // Packets that were forwarded earlier are not waited for.
    let since = clock::now().saturating_sub(MAX_EXIT_DELAY.as_micros() as Micros);
    let drain = Arc::new(Drain { port: port.clone(), since, has_received: AtomicBool::new(false) });
    // The engine waits for `receiver`, in vain if this thread holds it; else it may only be late.
    if !port.engine.kick_until(drain.clone(), until) || lock_until(&port.receiver, until).is_none() {
        return;
    }
    let mut kicked = Instant::now();
    while !drain.is_over() && Instant::now() < deadline {
        if kicked.elapsed() >= INTERVAL {
            port.engine.kick_until(drain.clone(), until);
            kicked = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the loopback interface has delivered what this thread has sent, unless the thread has moved to
/// another processor since: the kernel may defer that to a thread of its own, and delivers the datagrams of a
/// processor in order.
fn pass_loopback(timeout: Duration) -> io::Result<()> {
    let end = Instant::now() + timeout;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.send_to(&[0], socket.local_addr()?)?;
    loop {
        // It fails if no time is left.
        socket.set_read_timeout(Some(end.saturating_duration_since(Instant::now())))?;
        match socket.recv(&mut [0]) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            received => return received.map(drop),
        }
    }
}

struct Drain {
    port: Arc<Port>,
    /// Earlier packets are not waited for.
    since: Micros,
    /// The engine has received what the sockets held when the process began to exit.
    has_received: AtomicBool,
}

impl Drain {
    fn is_over(&self) -> bool {
        self.has_received.load(Ordering::Acquire) && self.port.exit.unconfirmed(self.since).next().is_none()
    }
}

impl Source for Drain {
    fn ready(self: Arc<Self>, _events: u32) {
        let (port, begin) = (&self.port, Instant::now());
        while port.receive(lock(&port.receiver), By::Engine) && begin.elapsed() < MAX_EXIT_RECEIVE {}
        self.has_received.store(true, Ordering::Release);
        for slot in port.exit.unconfirmed(self.since) {
            // Another user, who may have claimed it since, does not answer.
            if slot::is_unclaimed(slot) || !port.owners.is_ours(slot) {
                port.exit.confirmed(slot);
            } else {
                port.send_to_slot(slot, &Message::Confirm);
            }
        }
    }
}
