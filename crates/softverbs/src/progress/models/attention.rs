// SPDX-License-Identifier: BSD-3-Clause
//! A set of sockets always has somebody who has promised to look at it.

use loom::sync::Arc;
use loom::thread;

use super::super::attention::{Attention, Orders, Tick};
use super::super::sync::{AtomicBool, AtomicU32, Ordering::Relaxed};
use super::check;
use crate::policy::mode::Mode;
use crate::policy::trust::MIN_TRUST;

struct Set {
    attention: Attention,
    /// What the kernel was told.
    armed: AtomicBool,
    /// On the engine's list.
    ticking: AtomicU32,
    sleepers: AtomicU32,
    /// How often the peers were asked to ring.
    bells: AtomicU32,
}

impl Orders for Set {
    fn wake_engine(&self, wanted: bool) -> bool {
        self.armed.store(wanted, Relaxed);
        true
    }

    fn have_bells_rung(&self) {
        self.bells.fetch_add(1, Relaxed);
    }

    fn tick(&self) {
        assert_eq!(self.ticking.fetch_add(1, Relaxed), 0, "on the list twice");
    }
}

impl Set {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            attention: Attention::new(Mode::Adaptive),
            armed: AtomicBool::new(true),
            ticking: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            bells: AtomicU32::new(0),
        })
    }

    /// So many polls in a row that moved bytes that they are believed.
    fn quieted() -> Arc<Self> {
        let set = Self::new();
        (0..MIN_TRUST).for_each(|_| set.attention.polled(&*set));
        assert!(!set.armed.load(Relaxed));
        assert_eq!(set.ticking.load(Relaxed), 1);
        set
    }

    /// The engine's tick, if the set is on its list.
    fn tick(&self) {
        if self.ticking.swap(0, Relaxed) > 0 && self.attention.tick(self, || false) == Tick::Again {
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

    /// What holds once all have done what they did.
    fn assert_looked_at(&self) {
        let ticking = self.ticking.load(Relaxed) > 0;
        assert!(
            self.armed.load(Relaxed) || ticking || self.sleepers.load(Relaxed) > 0,
            "nobody looks at the set"
        );
        assert!(self.attention.notify_requested() || ticking, "nobody looks at shared memory");
        // A program that does nothing more is noticed by the second tick.
        self.tick();
        self.tick();
        assert_eq!(self.ticking.load(Relaxed), 0);
        assert_eq!(self.armed.load(Relaxed), self.sleepers.load(Relaxed) == 0);
        assert!(self.attention.notify_requested(), "no peer rings");
    }
}

/// Runs what two threads do to a set, beside what the model's own thread does.
fn three(
    set: fn() -> Arc<Set>,
    first: fn(&Set),
    second: fn(&Set),
    third: fn(&Set),
) -> impl Fn() + Sync + Send + 'static {
    move || {
        let set = set();
        let threads = [first, second].map(|act| {
            let set = set.clone();
            thread::spawn(move || act(&set))
        });
        third(&set);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        set.assert_looked_at();
    }
}

/// The next poll that moves bytes makes it quiet.
fn nearly_quiet() -> Arc<Set> {
    let set = Set::new();
    (1..MIN_TRUST).for_each(|_| set.attention.polled(&*set));
    assert!(set.armed.load(Relaxed));
    set
}

/// Quiet, and the program has not polled since the last tick.
fn about_to_be_armed() -> Arc<Set> {
    let set = Set::quieted();
    set.tick();
    assert!(!set.armed.load(Relaxed));
    set
}

#[test]
fn a_thread_sleeps_while_the_engine_ticks() {
    check(three(about_to_be_armed, Set::tick, Set::nap, |_| {}));
    check(three(about_to_be_armed, Set::tick, Set::nap, Set::nap));
}

#[test]
fn a_thread_goes_to_sleep_while_the_engine_ticks() {
    check(three(about_to_be_armed, Set::tick, Set::go_to_sleep, |_| {}));
    check(three(about_to_be_armed, Set::tick, Set::go_to_sleep, Set::nap));
}

#[test]
fn two_threads_sleep() {
    check(three(Set::new, Set::nap, Set::nap, |_| {}));
}

#[test]
fn a_poll_makes_the_set_quiet_while_a_thread_wakes_up() {
    check(three(nearly_quiet, Set::nap, |set| set.attention.polled(set), |_| {}));
    check(three(nearly_quiet, Set::nap, |set| set.attention.polled(set), Set::tick));
}

#[test]
fn a_poll_makes_the_set_quiet_while_the_engine_ticks() {
    let polls = |set: &Set| (0..MIN_TRUST).for_each(|_| set.attention.polled(set));
    check(three(about_to_be_armed, Set::tick, polls, |_| {}));
}

#[test]
fn the_program_arms_while_others_make_the_set_quiet() {
    check(three(nearly_quiet, |set| set.attention.arm(set), |set| set.attention.polled(set), |_| {}));
    check(three(about_to_be_armed, |set| set.attention.arm(set), Set::tick, Set::nap));
}

#[test]
fn a_set_that_was_armed_is_armed_when_the_call_returns() {
    check(|| {
        let set = Set::quieted();
        let thread = thread::spawn({
            let set = set.clone();
            move || set.tick()
        });
        set.attention.arm(&*set);
        assert!(set.armed.load(Relaxed), "the kernel was not told");
        thread.join().unwrap();
        set.assert_looked_at();
    });
}

#[test]
fn a_thread_that_wakes_up_leaves_a_set_to_the_tick_if_there_is_one() {
    check(|| {
        let set = about_to_be_armed();
        set.nap();
        assert!(!set.armed.load(Relaxed), "it has come to poll");
        set.assert_looked_at();
        set.nap();
        assert!(set.armed.load(Relaxed), "nobody would look");
    });
}

#[test]
fn a_set_that_was_armed_before_its_tick_is_listed_once() {
    check(|| {
        let set = Set::quieted();
        set.attention.arm(&*set);
        (0..MIN_TRUST).for_each(|_| set.attention.polled(&*set));
        assert!(!set.armed.load(Relaxed));
        set.assert_looked_at();
    });
}

#[test]
fn the_program_does_not_arm_what_a_thread_sleeps_on() {
    check(|| {
        let set = Set::new();
        set.go_to_sleep();
        set.attention.arm(&*set);
        assert!(!set.armed.load(Relaxed), "both would be woken");
        set.assert_looked_at();
    });
}

#[test]
fn a_program_that_sleeps_again_and_again_is_left_to_its_sleeps_until_a_tick_misses_it() {
    check(|| {
        let set = Set::new();
        (0..MIN_TRUST).for_each(|_| set.nap());
        set.attention.arm(&*set);
        assert!(!set.armed.load(Relaxed), "it arms before each sleep");
        set.assert_looked_at();
        // What makes it quiet now is something else.
        (0..MIN_TRUST).for_each(|_| set.attention.polled(&*set));
        assert!(!set.armed.load(Relaxed));
        set.attention.arm(&*set);
        assert!(set.armed.load(Relaxed), "it is not asleep, and asks for an event");
        set.assert_looked_at();
    });
}

#[test]
fn a_thread_that_is_about_to_be_left_to_its_sleeps_wakes_up_while_the_engine_ticks() {
    fn nearly_trusted() -> Arc<Set> {
        let set = Set::new();
        (1..MIN_TRUST).for_each(|_| set.nap());
        assert!(set.armed.load(Relaxed));
        set
    }
    check(three(nearly_trusted, Set::nap, Set::tick, |_| {}));
    check(three(nearly_trusted, Set::nap, |set| set.attention.polled(set), |_| {}));
    check(three(nearly_trusted, Set::nap, Set::nap, |_| {}));
}
