// SPDX-License-Identifier: BSD-3-Clause
//! Who will look at the sockets behind a completion queue: the engine when the kernel wakes it, the engine's
//! tick, or a thread that sleeps.
//!
//! One of the three always holds; a state ends only after another one has begun:
//!
//! ```text
//! armed     the kernel wakes the engine
//! ticking   the engine looks with each tick; the tick that finds no sign of the program arms
//! sleepers  threads that the kernel wakes; the last one that wakes up arms, or leaves that to the tick
//! ```
//!
//! A set that is to be armed while the kernel refuses that stays, or becomes, one that the engine looks at.
//!
//! Only polls that moved bytes (or would have, had the engine not been first), and sleeps that ended, make a
//! set quiet, if [`Trust`] finds that there were enough. While it is quiet because the program sleeps again
//! and again, arming the completion queue, which comes before each sleep, does not end that.
//!
//! The kernel reports events of its own sockets only. A peer on this host that puts bytes into shared memory
//! has to send a notification over a socket, a system call that a program which polls does not need. So the
//! peers of a set are asked for notifications (`notify_requested`) while the set is armed or a thread sleeps
//! on it, and from then on until polls have made it quiet: then it is on the engine's list for a tick, which
//! asks for them again.
//!
//! The lock `armed` is held while the kernel and the peers are called, so the words always agree with what
//! those do.

use super::sync::{AtomicBool, AtomicU32, Mutex, Ordering, lock};
use crate::policy::mode::Mode;
use crate::policy::trust::Trust;

/// What the engine does with a watch after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tick {
    /// It looks again with the next one.
    Again,
    /// The kernel, or a thread that sleeps, has taken over.
    Over,
}

/// What is done on behalf of an [`Attention`], under its lock.
pub(crate) trait Orders {
    /// Has the kernel wake the engine for the set, for what is there already, too; or not. False when the
    /// kernel refused.
    fn wake_engine(&self, wanted: bool) -> bool;
    /// Puts the set on the engine's list of those to look at with each tick.
    fn tick(&self);
    /// Asks the peers that share memory with this process for notifications from now on, and drives what they
    /// have put there already.
    fn request_notifications(&self);
}

pub(crate) struct Attention {
    /// The engine is woken by the kernel.
    armed: Mutex<bool>,
    /// As `armed`, to be looked at without the lock.
    quiet: AtomicBool,
    /// The peers were asked for notifications; false only while the set is ticking, not armed, and nobody
    /// sleeps on it. Changed under `armed`.
    notify_requested: AtomicBool,
    /// On the engine's list of those to look at with each tick; changed under `armed`.
    ticking: AtomicBool,
    /// Threads that sleep on the set; changed under `armed`.
    sleepers: AtomicU32,
    /// The program has moved bytes, or has slept, since the last tick.
    fresh: AtomicBool,
    /// It is quiet because the program sleeps for completions, and will again.
    sleeps: AtomicBool,
    trust: Trust,
}

impl Attention {
    /// Of a set that the kernel wakes the engine for.
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
                self.tell(orders);
            }
        }
    }

    /// Whether a peer that puts bytes into shared memory must notify; read by a thread that finds nothing
    /// there and leaves.
    pub(crate) fn notify_requested(&self) -> bool {
        self.notify_requested.load(Ordering::SeqCst)
    }

    /// The caller holds the lock.
    fn tell(&self, orders: &impl Orders) {
        if !self.notify_requested.load(Ordering::Relaxed) {
            self.notify_requested.store(true, Ordering::SeqCst);
            orders.request_notifications();
        }
    }

    /// The kernel wakes the engine from now on, for what is there already, too. If it refuses, the tick does.
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

    /// The program polls, and would have moved bytes that the engine has moved. That is no sign that it looks
    /// after a set that is quiet.
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

    /// The program has let a message pass without a poll: it does not wait by polling.
    pub(crate) fn waits_otherwise(&self) {
        self.trust.reset();
    }

    /// A thread is about to sleep on the set: it is the one that the kernel wakes.
    pub(crate) fn sleep(&self, orders: &impl Orders) {
        let mut armed = lock(&self.armed);
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        self.set_armed(&mut armed, false, orders);
        self.tell(orders);
    }

    /// The thread sleeps no more. If it has slept again and again it will now, which the next tick will show;
    /// else the kernel is armed.
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

    /// The engine's tick. `look` drives what the set has, and says whether there was anything: then the
    /// program does not look after it.
    pub(crate) fn tick(&self, orders: &impl Orders, look: impl FnOnce() -> bool) -> Tick {
        if self.fresh.swap(false, Ordering::Relaxed) {
            self.trust.confirmed();
            return Tick::Again;
        }
        let mut armed = lock(&self.armed);
        if self.sleepers.load(Ordering::Acquire) > 0 {
            self.ticking.store(false, Ordering::Release);
            return Tick::Over;
        }
        self.set_armed(&mut armed, true, orders);
        let after = if *armed { Tick::Over } else { Tick::Again };
        self.ticking.store(after == Tick::Again, Ordering::Release);
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
    use std::time::Duration;

    use super::*;
    use crate::policy::mode::MODES;
    use crate::policy::trust::{MIN_TRUST, TICK, WORST};

    struct Nobody;

    impl Orders for Nobody {
        fn wake_engine(&self, _: bool) -> bool {
            true
        }

        fn tick(&self) {}

        fn request_notifications(&self) {}
    }

    /// A program polls every 10 us until `last_poll`; something arrives at once after that. Returns for how
    /// long nobody looks.
    fn unseen_for(last_poll: Duration, mode: Mode) -> Duration {
        let attention = Attention::new(mode);
        let (mut poll, mut tick) = (Duration::ZERO, TICK);
        loop {
            while poll <= last_poll.min(tick) {
                attention.polled(&Nobody);
                poll += Duration::from_micros(10);
            }
            let mut has_looked = false;
            let after = attention.tick(&Nobody, || {
                has_looked = true;
                false
            });
            if after == Tick::Over {
                assert!(has_looked, "the set is armed, and looked at once more");
                assert!(*lock(&attention.armed));
                return tick - last_poll;
            }
            tick += TICK;
        }
    }

    /// A kernel that refuses to wake the engine, so often.
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
    fn the_engine_looks_with_each_tick_until_the_kernel_wakes_it() {
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
        assert_eq!(ticks, [Tick::Again, Tick::Again, Tick::Again, Tick::Over]);
        assert_eq!((looks, orders.ticks.get()), (3, 1));
    }

    #[test]
    fn a_thread_that_wakes_up_leaves_the_set_to_the_tick_if_the_kernel_refuses() {
        let (attention, orders) = (Attention::new(Mode::Never), Refusing::new(1));
        attention.sleep(&orders);
        attention.wake(&orders);
        assert_eq!(orders.ticks.get(), 1, "nobody looks");
        let ticks: Vec<_> = (0..2).map(|_| attention.tick(&orders, || false)).collect();
        assert_eq!(ticks, [Tick::Again, Tick::Over]);
        assert!(*lock(&attention.armed));
    }

    #[test]
    fn what_arrives_behind_the_last_poll_waits_for_two_ticks_at_most() {
        for mode in MODES {
            for micros in (u64::from(MIN_TRUST) * 10)..2_000 {
                let unseen = unseen_for(Duration::from_micros(micros), mode);
                assert!(unseen <= WORST, "{unseen:?} after {micros} us, {mode:?}");
            }
        }
    }
}
