// SPDX-License-Identifier: BSD-3-Clause
//! The end of the process, whose sockets may hold packets for other processes: the kernel would drop them
//! with the sockets. Some may be the last messages of the process itself, which nothing repeats: a REJ, or
//! those of an unreliable queue pair.
//!
//! The engine forwards them, since the thread that exits must not wait for the locks of the port, which a
//! thread that it has interrupted may hold. The process then stays until the others have received what it has
//! forwarded: afterwards its slot belongs to nobody, and they drop what it has sent ([`super::owners`]).
#![forbid(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::forward::Message;
use super::slot::{self, MAX_SLOT};
use super::{PORT, Port};
use crate::cancel::whole;
use crate::lock::{lock, lock_until};
use crate::progress::By;
use crate::progress::source::Source;

/// How long the end of the process may be delayed after [`drain`] has been called, by processes that are slow
/// on a busy host, or stopped.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// After which time the process repeats its question, and looks which of the others have ended.
const INTERVAL: Duration = Duration::from_millis(5);

#[derive(Default)]
pub(super) struct Exit {
    /// The slots to which packets were forwarded, a bit each, until they confirm that they have got them.
    forwarded: [AtomicU64; 4],
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Exit {
    /// A packet was forwarded to a slot.
    pub(super) fn forwarded(&self, slot: u8) {
        let (word, bit) = self.bit(slot);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The process of a slot has received all packets that were forwarded to it, or has ended.
    pub(super) fn confirmed(&self, slot: u8) {
        let (word, bit) = self.bit(slot);
        word.fetch_and(!bit, Ordering::Relaxed);
    }

    fn bit(&self, slot: u8) -> (&AtomicU64, u64) {
        (&self.forwarded[usize::from(slot / 64)], 1 << (slot % 64))
    }

    fn unconfirmed(&self) -> impl Iterator<Item = u8> {
        (1..=MAX_SLOT).filter(|slot| {
            let (word, bit) = self.bit(*slot);
            word.load(Ordering::Relaxed) & bit != 0
        })
    }

    /// Ends the wait if all have confirmed.
    pub(super) fn check(&self) {
        if self.unconfirmed().next().is_none() {
            *lock(&self.is_over) = true;
            self.over.notify_all();
        }
    }
}

/// Forwards what the sockets of this process hold for other processes; locks are awaited, and packets are
/// received, until `until`. Without effect in a child after fork(2) that does not use the port.
pub(crate) fn drain(until: Instant) {
    let bound = PORT.existing().and_then(|bound| lock_until(bound, until)?.clone());
    let Some(port) = bound else { return };
    let deadline = Instant::now() + MAX_DELAY;
    // If it fails, what has arrived already is forwarded.
    let _ = whole(|| pass_loopback(deadline));
    let drain = Arc::new(Drain { port: port.clone(), until });
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !port.engine.kick_until(drain.clone(), until) {
            return;
        }
        let is_over = lock(&port.exit.is_over);
        let waited = port.exit.over.wait_timeout_while(is_over, left.min(INTERVAL), |is_over| !*is_over);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 {
            return;
        }
    }
}

/// Waits until the loopback interface has delivered what this thread has sent: the kernel may defer that to
/// a thread of its own, and delivers a datagram of this processor after those before it.
fn pass_loopback(deadline: Instant) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(deadline.saturating_duration_since(Instant::now())))?;
    socket.send_to(&[0], socket.local_addr()?)?;
    socket.recv(&mut [0]).map(drop)
}

struct Drain {
    port: Arc<Port>,
    until: Instant,
}

impl Source for Drain {
    fn ready(self: Arc<Self>, _events: u32) {
        let Self { port, until } = &*self;
        while port.receive(lock(&port.receiver), By::Engine) && Instant::now() < *until {}
        for slot in port.exit.unconfirmed() {
            if slot::is_unclaimed(slot) {
                port.exit.confirmed(slot);
            } else {
                port.send_to_slot(slot, &Message::Confirm);
            }
        }
        port.exit.check();
    }
}
