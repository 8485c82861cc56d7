// SPDX-License-Identifier: BSD-3-Clause
//! Which thread checks the sockets of a completion queue: the engine when the kernel wakes it, the engine at
//! its ticks, or a sleeping thread of the program.
//!
//! At least one of these states always holds; one ends only after another has begun:
//!
//! ```text
//! armed     the kernel wakes the engine
//! ticking   the engine checks at each tick; it arms at a tick without activity of the program
//! sleepers  the kernel wakes these threads; the last one that wakes up arms, or leaves that to the tick
//! ```
//!
//! If arming fails in the kernel, the set stays ticking or becomes ticking.
//!
//! A set becomes quiet only through polls that moved bytes (or would have, had the engine not been first) and
//! through sleeps that ended, once [`Trust`] has counted enough of them. While it is quiet because the
//! program sleeps repeatedly, a request for a completion event, which precedes each sleep, does not arm it.
//!
//! The kernel reports events of sockets only. A peer on this host that puts bytes into shared memory has to
//! send a notification over a socket, a system call that is superfluous while the program polls. So
//! notifications of the peers are requested (`notify_requested`) while the set is armed or a thread sleeps on
//! it, and after that until polls have made it quiet: then it is on the engine's list for a tick, which
//! requests them again.
//!
//! The lock `armed` is held during calls of the kernel and the peers, so the words always agree with their
//! state.

use std::time::Duration;

use super::sync::{AtomicBool, AtomicU32, Mutex, Ordering, lock};
use crate::policy::Policy;
use crate::policy::mode::Mode;
use crate::policy::trust::{TICK, Trust};

/// Whether the engine keeps a watch on its tick list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tick {
    /// Check it again after this time.
    Again(Duration),
    /// The kernel or a sleeping thread has taken over.
    Over,
}

/// The actions of an [`Attention`], called under its lock.
pub(crate) trait Orders {
    /// Makes the kernel wake the engine for the set, also for bytes that are there already, or stops that.
    /// False if the kernel refused.
    fn wake_engine(&self, wanted: bool) -> bool;
    /// Puts the set on the engine's tick list.
    fn tick(&self);
    /// Requests notifications of the peers that share memory with this process, and drives connections for
    /// which they have already put bytes there.
    fn request_notifications(&self);
}

pub(crate) struct Attention {
    /// The kernel wakes the engine for this set.
    armed: Mutex<bool>,
    /// The inverse of `armed`, readable without the lock.
    quiet: AtomicBool,
    /// Notifications of the peers are requested; false only while the set is ticking, not armed, and no
    /// thread sleeps on it. Changed under `armed`.
    notify_requested: AtomicBool,
    /// On the engine's tick list; changed under `armed`.
    ticking: AtomicBool,
    /// Threads that sleep on the set; changed under `armed`.
    sleepers: AtomicU32,
    /// The program has moved bytes, or has slept, since the last tick.
    fresh: AtomicBool,
    /// The set is quiet because the program sleeps for completions, probably again soon.
    sleeps: AtomicBool,
    trust: Trust,
}

impl Attention {
    /// An armed set.
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            armed: Mutex::new(true),
            quiet: AtomicBool::new(false),
            notify_requested: AtomicBool::new(true),
            ticking: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
            fresh: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            trust: Trust::new(mode),
        }
    }

    fn set_armed(&self, armed: &mut bool, wanted: bool, orders: &impl Orders) {
        if *armed != wanted && orders.wake_engine(wanted) {
            *armed = wanted;
            self.quiet.store(!wanted, Ordering::Release);
            if wanted {
                self.sleeps.store(false, Ordering::Relaxed);
                self.request_notifications(orders);
            }
        }
    }

    /// Whether a peer that puts bytes into shared memory must notify. Read by a thread that has found no
    /// bytes there, before it leaves.
    pub(crate) fn notify_requested(&self) -> bool {
        self.notify_requested.load(Ordering::SeqCst)
    }

    /// Requests notifications unless they are requested already. The caller holds the lock.
    fn request_notifications(&self, orders: &impl Orders) {
        if !self.notify_requested.load(Ordering::Relaxed) {
            self.notify_requested.store(true, Ordering::SeqCst);
            orders.request_notifications();
        }
    }

    /// Arms: from now on the kernel wakes the engine, also for bytes that are there already. If the kernel
    /// refuses, the set stays on the tick list.
    pub(crate) fn arm(&self, orders: &impl Orders) {
        let looked_at = self.sleeps.load(Ordering::Acquire) || self.sleepers.load(Ordering::Acquire) > 0;
        if self.quiet.load(Ordering::Acquire) && !looked_at {
            self.set_armed(&mut lock(&self.armed), true, orders);
        }
    }

    /// A poll of the program has moved bytes.
    pub(crate) fn polled(&self, orders: &impl Orders) {
        self.fresh.store(true, Ordering::Relaxed);
        self.would_poll(orders);
    }

    /// The program polls, and would have moved bytes that the engine has moved. That does not show that it
    /// still serves a set that is quiet.
    pub(crate) fn would_poll(&self, orders: &impl Orders) {
        if self.quiet.load(Ordering::Relaxed) && !self.notify_requested.load(Ordering::Relaxed) {
            return;
        }
        if self.trust.look() {
            let mut armed = lock(&self.armed);
            self.set_armed(&mut armed, false, orders);
            if !*armed && self.sleepers.load(Ordering::Acquire) == 0 {
                self.notify_requested.store(false, Ordering::SeqCst);
            }
            if !self.ticking.swap(true, Ordering::AcqRel) {
                orders.tick();
            }
        }
    }

    /// Whether the kernel does not wake the engine for this set.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Acquire)
    }

    /// A message has arrived and been consumed without a poll: the program does not wait by polling.
    pub(crate) fn waits_otherwise(&self) {
        self.trust.reset();
    }

    /// A thread is about to sleep on the set: the kernel wakes it instead of the engine.
    pub(crate) fn sleep(&self, orders: &impl Orders) {
        let mut armed = lock(&self.armed);
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        self.set_armed(&mut armed, false, orders);
        self.request_notifications(orders);
    }

    /// The thread woke up. If it sleeps regularly, leaves the set to the next tick; otherwise arms.
    pub(crate) fn wake(&self, orders: &impl Orders) {
        let mut armed = lock(&self.armed);
        if self.sleepers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.fresh.store(true, Ordering::Relaxed);
            if !self.ticking.load(Ordering::Acquire) {
                if !self.trust.look() {
                    self.set_armed(&mut armed, true, orders);
                    if *armed {
                        return;
                    }
                }
                self.ticking.store(true, Ordering::Release);
                orders.tick();
            }
            self.sleeps.store(true, Ordering::Release);
        }
    }

    /// The engine's tick. `look` drives the connections with work and returns whether there were any: if so,
    /// the program does not serve the set.
    pub(crate) fn tick(&self, orders: &impl Orders, look: impl FnOnce() -> bool) -> Tick {
        if self.fresh.swap(false, Ordering::Relaxed) {
            return Tick::Again(self.trust.confirmed());
        }
        let mut armed = lock(&self.armed);
        if self.sleepers.load(Ordering::Acquire) > 0 {
            self.ticking.store(false, Ordering::Release);
            return Tick::Over;
        }
        self.trust.ended();
        self.set_armed(&mut armed, true, orders);
        let after = if *armed { Tick::Over } else { Tick::Again(TICK) };
        self.ticking.store(after != Tick::Over, Ordering::Release);
        drop(armed);
        if look() {
            self.trust.refuted();
        }
        after
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::policy::Cost;
    use crate::policy::trust::MIN_TRUST;
    use transport::policy::trial::Trial;

    struct NoOrders;

    impl Orders for NoOrders {
        fn wake_engine(&self, _: bool) -> bool {
            true
        }

        fn tick(&self) {}

        fn request_notifications(&self) {}
    }

    /// A program polls every 10 us until `last_poll`; a message arrives directly after that. Returns how long
    /// it waits until the engine checks.
    fn unseen_for(last_poll: Duration, mode: Mode) -> Duration {
        let attention = Attention::new(mode);
        let (mut poll, mut tick) = (Duration::ZERO, TICK);
        loop {
            while poll <= last_poll.min(tick) {
                attention.polled(&NoOrders);
                poll += Duration::from_micros(10);
            }
            let mut has_looked = false;
            let after = attention.tick(&NoOrders, || {
                has_looked = true;
                false
            });
            let Tick::Again(interval) = after else {
                assert!(has_looked, "the set is armed, and checked once more");
                assert!(*lock(&attention.armed));
                return tick - last_poll;
            };
            tick += interval;
        }
    }

    /// A kernel that refuses to wake the engine this many times.
    struct Refusing {
        refusals: Cell<u32>,
        ticks: Cell<u32>,
    }

    impl Refusing {
        fn new(refusals: u32) -> Self {
            Self { refusals: Cell::new(refusals), ticks: Cell::new(0) }
        }
    }

    impl Orders for Refusing {
        fn wake_engine(&self, wanted: bool) -> bool {
            let refuses = wanted && self.refusals.get() > 0;
            self.refusals.set(self.refusals.get() - u32::from(refuses));
            !refuses
        }

        fn tick(&self) {
            self.ticks.set(self.ticks.get() + 1);
        }

        fn request_notifications(&self) {}
    }

    #[test]
    fn the_engine_checks_at_each_tick_until_the_kernel_wakes_it() {
        let (attention, orders) = (Attention::new(Mode::Always), Refusing::new(2));
        attention.polled(&orders);
        let mut looks = 0;
        let mut tick = || {
            attention.tick(&orders, || {
                looks += 1;
                false
            })
        };
        let ticks: Vec<_> = (0..4).map(|_| tick()).collect();
        let again = |tick: &Tick| *tick != Tick::Over;
        assert_eq!(ticks.iter().map(again).collect::<Vec<_>>(), [true, true, true, false]);
        assert_eq!((looks, orders.ticks.get()), (3, 1));
    }

    #[test]
    fn a_thread_that_wakes_up_leaves_the_set_to_the_tick_if_the_kernel_refuses() {
        let (attention, orders) = (Attention::new(Mode::Never), Refusing::new(1));
        attention.sleep(&orders);
        attention.wake(&orders);
        assert_eq!(orders.ticks.get(), 1, "the engine does not check");
        let ticks: Vec<_> = (0..2).map(|_| attention.tick(&orders, || false)).collect();
        assert_eq!(ticks, [Tick::Again(TICK), Tick::Over]);
        assert!(*lock(&attention.armed));
    }

    /// A wrong decision counts when the set is quiet, so its trial is here.
    impl Trial for Trust {
        fn costs(mode: Mode) -> Vec<Cost> {
            let times = ((u64::from(MIN_TRUST) * 10)..2_000).chain((2_000..100_000).step_by(77));
            let times = times.map(Duration::from_micros);
            times.map(|last_poll| Cost::Delay(unseen_for(last_poll, mode))).collect()
        }
    }
}
