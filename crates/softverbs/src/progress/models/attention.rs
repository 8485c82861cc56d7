// SPDX-License-Identifier: BSD-3-Clause
//! Some thread is always responsible for checking a set of sockets.

use loom::sync::Arc;
use loom::thread;

use super::super::attention::{Attention, Orders, Tick};
use super::super::sync::{AtomicBool, AtomicU32, Ordering::Relaxed};
use super::check_all;
use crate::policy::mode::Mode;
use crate::policy::trust::MIN_TRUST;

struct Set {
    attention: Attention,
    mode: Mode,
    /// The state of the kernel.
    armed: AtomicBool,
    /// The kernel refuses to wake the engine, once.
    refuses: AtomicBool,
    /// The number of times that the set is on the engine's list.
    ticking: AtomicU32,
    sleepers: AtomicU32,
    /// The number of requests for notifications.
    requests: AtomicU32,
}

impl Orders for Set {
    fn wake_engine(&self, wanted: bool) -> bool {
        if wanted && self.refuses.swap(false, Relaxed) {
            return false;
        }
        self.armed.store(wanted, Relaxed);
        true
    }

    fn request_notifications(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    fn tick(&self) {
        assert_eq!(self.ticking.fetch_add(1, Relaxed), 0, "on the list twice");
    }
}

impl Set {
    fn new(mode: Mode) -> Arc<Self> {
        Arc::new(Self {
            attention: Attention::new(mode),
            mode,
            armed: AtomicBool::new(true),
            refuses: AtomicBool::new(false),
            ticking: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            requests: AtomicU32::new(0),
        })
    }

    /// A set made quiet by enough polls that moved bytes, in modes that permit it.
    fn quieted(mode: Mode) -> Arc<Self> {
        let set = Self::new(mode);
        let polls = if matches!(mode, Mode::Random(_)) { u32::MAX } else { MIN_TRUST };
        for _ in (0..polls).take_while(|_| set.armed.load(Relaxed)) {
            set.attention.polled(&*set);
        }
        assert_eq!(set.armed.load(Relaxed), mode == Mode::Never);
        assert_eq!(set.ticking.load(Relaxed), u32::from(mode != Mode::Never));
        set
    }

    /// Checks the effect of a prediction.
    fn assert_armed_if_adaptive(&self, armed: bool, why: &str) {
        assert!(self.mode != Mode::Adaptive || self.armed.load(Relaxed) == armed, "{why}");
    }

    /// The engine's tick, if the set is on its list.
    fn tick(&self) {
        if self.ticking.swap(0, Relaxed) > 0 && self.attention.tick(self, || false) != Tick::Over {
            Orders::tick(self);
        }
    }

    fn go_to_sleep(&self) {
        self.attention.sleep(self);
        self.sleepers.fetch_add(1, Relaxed);
    }

    fn nap(&self) {
        self.go_to_sleep();
        self.sleepers.fetch_sub(1, Relaxed);
        self.attention.wake(self);
    }

    /// Checks that the set is watched after all threads have finished.
    fn assert_looked_at(&self) {
        let ticking = self.ticking.load(Relaxed) > 0;
        assert!(
            self.armed.load(Relaxed) || ticking || self.sleepers.load(Relaxed) > 0,
            "no thread checks the set"
        );
        assert!(self.attention.notify_requested() || ticking, "no thread checks the shared memory");
        // The second tick detects a program that does nothing more.
        self.tick();
        if self.refuses.load(Relaxed) {
            self.tick();
        }
        self.tick();
        assert_eq!(self.ticking.load(Relaxed), 0);
        assert_eq!(self.armed.load(Relaxed), self.sleepers.load(Relaxed) == 0);
        assert!(self.attention.notify_requested(), "the peers do not notify");
    }
}

/// Runs two threads beside the model's main thread.
fn three(set: fn(Mode) -> Arc<Set>, first: fn(&Set), second: fn(&Set), third: fn(&Set)) {
    check_all(|mode| {
        move || {
            let set = set(mode);
            let threads = [first, second].map(|act| {
                let set = set.clone();
                thread::spawn(move || act(&set))
            });
            third(&set);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            set.assert_looked_at();
        }
    });
}

/// A set that the next poll which moves bytes makes quiet.
fn nearly_quiet(mode: Mode) -> Arc<Set> {
    let set = Set::new(mode);
    (1..MIN_TRUST).for_each(|_| set.attention.polled(&*set));
    set.assert_armed_if_adaptive(true, "quiet already");
    set
}

/// A quiet set; the program has not polled since the last tick.
fn about_to_be_armed(mode: Mode) -> Arc<Set> {
    let set = Set::quieted(mode);
    set.tick();
    assert_eq!(set.armed.load(Relaxed), mode == Mode::Never);
    set
}

#[test]
fn a_thread_sleeps_while_the_engine_ticks() {
    three(about_to_be_armed, Set::tick, Set::nap, |_| {});
    three(about_to_be_armed, Set::tick, Set::nap, Set::nap);
}

#[test]
fn a_thread_goes_to_sleep_while_the_engine_ticks() {
    three(about_to_be_armed, Set::tick, Set::go_to_sleep, |_| {});
    three(about_to_be_armed, Set::tick, Set::go_to_sleep, Set::nap);
}

#[test]
fn two_threads_sleep() {
    three(Set::new, Set::nap, Set::nap, |_| {});
}

#[test]
fn a_poll_makes_the_set_quiet_while_a_thread_wakes_up() {
    three(nearly_quiet, Set::nap, |set| set.attention.polled(set), |_| {});
    three(nearly_quiet, Set::nap, |set| set.attention.polled(set), Set::tick);
}

#[test]
fn a_poll_makes_the_set_quiet_while_the_engine_ticks() {
    let polls = |set: &Set| (0..MIN_TRUST).for_each(|_| set.attention.polled(set));
    three(about_to_be_armed, Set::tick, polls, |_| {});
}

#[test]
fn the_program_arms_while_others_make_the_set_quiet() {
    three(nearly_quiet, |set| set.attention.arm(set), |set| set.attention.polled(set), |_| {});
    three(about_to_be_armed, |set| set.attention.arm(set), Set::tick, Set::nap);
}

#[test]
fn a_set_that_was_armed_is_armed_when_the_call_returns() {
    check_all(|mode| {
        move || {
            let set = Set::quieted(mode);
            let thread = thread::spawn({
                let set = set.clone();
                move || set.tick()
            });
            set.attention.arm(&*set);
            assert!(set.armed.load(Relaxed), "the kernel is not armed");
            thread.join().unwrap();
            set.assert_looked_at();
        }
    });
}

#[test]
fn a_thread_that_wakes_up_leaves_a_set_to_the_tick_if_there_is_one() {
    check_all(|mode| {
        move || {
            let set = about_to_be_armed(mode);
            set.nap();
            set.assert_armed_if_adaptive(false, "it may begin to poll");
            set.assert_looked_at();
            set.nap();
            set.assert_armed_if_adaptive(true, "no thread would check it");
            set.assert_looked_at();
        }
    });
}

#[test]
fn a_set_that_was_armed_before_its_tick_is_listed_once() {
    check_all(|mode| {
        move || {
            let set = Set::quieted(mode);
            set.attention.arm(&*set);
            (0..MIN_TRUST).for_each(|_| set.attention.polled(&*set));
            set.assert_armed_if_adaptive(false, "the polls are believed");
            set.assert_looked_at();
        }
    });
}

#[test]
fn the_program_does_not_arm_a_set_on_which_a_thread_sleeps() {
    check_all(|mode| {
        move || {
            let set = Set::new(mode);
            set.go_to_sleep();
            set.attention.arm(&*set);
            assert!(!set.armed.load(Relaxed), "both would be woken");
            set.assert_looked_at();
        }
    });
}

#[test]
fn a_set_stays_quiet_while_the_program_sleeps_regularly_until_a_tick_misses_it() {
    check_all(|mode| {
        move || {
            let set = Set::new(mode);
            (0..MIN_TRUST).for_each(|_| set.nap());
            set.attention.arm(&*set);
            set.assert_armed_if_adaptive(false, "it arms before each sleep");
            set.assert_looked_at();
            // Now polls make it quiet.
            (0..MIN_TRUST).for_each(|_| set.attention.polled(&*set));
            set.assert_armed_if_adaptive(false, "the polls are believed");
            set.attention.arm(&*set);
            assert!(set.armed.load(Relaxed), "it does not sleep, and requests an event");
            set.assert_looked_at();
        }
    });
}

#[test]
fn a_sleep_that_makes_the_set_quiet_ends_while_the_engine_ticks() {
    fn nearly_trusted(mode: Mode) -> Arc<Set> {
        let set = Set::new(mode);
        (1..MIN_TRUST).for_each(|_| set.nap());
        set.assert_armed_if_adaptive(true, "trusted already");
        set
    }
    three(nearly_trusted, Set::nap, Set::tick, |_| {});
    three(nearly_trusted, Set::nap, |set| set.attention.polled(set), |_| {});
    three(nearly_trusted, Set::nap, Set::nap, |_| {});
}

#[test]
fn a_kernel_that_refuses_to_wake_the_engine_leaves_the_set_to_the_tick() {
    fn refused(mode: Mode) -> Arc<Set> {
        let set = about_to_be_armed(mode);
        set.refuses.store(true, Relaxed);
        set
    }
    fn asleep(mode: Mode) -> Arc<Set> {
        let set = Set::new(mode);
        set.refuses.store(true, Relaxed);
        set
    }
    three(refused, Set::tick, Set::nap, |_| {});
    three(refused, Set::tick, |set| set.attention.arm(set), |_| {});
    three(refused, Set::tick, |set| set.attention.polled(set), |_| {});
    three(asleep, Set::nap, Set::nap, Set::tick);
}
