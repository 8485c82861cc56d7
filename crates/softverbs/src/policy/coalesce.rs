// SPDX-License-Identifier: BSD-3-Clause
//! Whether another post will follow at once, so that a small request can wait for it and go out with it.
//!
//! A system call for each of two small requests would be most of the time, so a request never waits if the
//! one before needed none. Whether one will be followed is predicted from those before it, signalled and
//! unsignalled ones apart: a program that waits for each completion is recognized by that. A program that
//! takes completions and posts a request behind each of them is recognized sooner: as long as it has
//! completions to take, and has posted behind them before, its requests wait for the one that follows the
//! last completion.
//!
//! A request that waits goes out with the next post, a full batch, an empty poll, or when the program arms an
//! event; failing that, the engine sends it after the delay. Worst cost of a wrong prediction: that delay, at
//! most an eighth of the time for which the predictions were right, or [`MIN_DELAY_NS`] if that is longer,
//! and never more than [`MAX_DELAY_NS`]; with completions to take, [`MORE_DELAY_NS`]. Or a system call for
//! one request, if the one before needed none.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::mode::{Decisions, Mode};
use super::{Cost, Policy};

/// Small requests in a row, each followed by the next one within [`CLOSE_NS`], after which such a request
/// waits for the one behind it. Verbs leave the source of a request to the provider until it completes; the
/// example of librpma 0.9.0 for atomic writes changes it before, nine requests long, and works where requests
/// are sent at once.
const CLOSE_RUN: u32 = 16;
/// Nanoseconds between two posts that follow one another closely: well below the cost of a system call.
const CLOSE_NS: u64 = 1_000;
/// After so many posts in a row, each of which has waited for the completion of the one before, the clock is
/// not read, until a post does not wait.
const TIMELESS: u8 = 2;
/// The share of the time for which each such request has been followed closely that the next one may wait for
/// a request that does not come.
const DELAY_SHARE: u64 = 8;
/// The shortest and the longest time for which it waits: two system calls that send, and what makes waking
/// the engine that often negligible, also in a virtual machine: each time it takes the processor from the
/// program for 5 to 40 us.
const MIN_DELAY_NS: u64 = 10_000;
const MAX_DELAY_NS: u64 = 800_000;
/// The time for which it waits if the program has completions to take.
const MORE_DELAY_NS: u64 = 100_000;
/// Maximum number of requests that are combined.
const BURST: u64 = 64;
/// Bytes of a small request: copying it costs less than sending it on its own.
const SMALL: u32 = 4096;

/// Requests of one kind in a row that were followed closely by the next request.
struct Run {
    length: AtomicU32,
    /// The length of the run before this one.
    before: AtomicU32,
    /// When the run began, moved forward for each short interruption.
    since: AtomicU64,
}

impl Run {
    fn new() -> Self {
        Self { length: AtomicU32::new(0), before: AtomicU32::new(0), since: AtomicU64::new(u64::MAX) }
    }

    /// The last post was followed by one that began after `gap`.
    fn followed(&self, closely: bool, gap: u64, now: u64) {
        let length = self.length.load(Ordering::Relaxed);
        let lost = match closely {
            true => 0,
            // Once, and shorter than a request waits: the thread was probably displaced. What this has cost
            // is taken off the time for which the predictions were right.
            false if length > 0 && gap < MAX_DELAY_NS => gap + DELAY_SHARE * gap,
            false => u64::MAX,
        };
        let since = self.since.load(Ordering::Relaxed).saturating_add(lost);
        self.since.store(since.min(now), Ordering::Relaxed);
        if !closely {
            self.before.store(length, Ordering::Relaxed);
        }
        self.length.store(if closely { length.wrapping_add(1) } else { 0 }, Ordering::Relaxed);
    }

    /// How long the next one may wait. `more`: the program has completions to take, after each of which it
    /// may post another one.
    fn delay(&self, now: u64, more: bool) -> Option<Duration> {
        let length = self.length.load(Ordering::Relaxed);
        if length < CLOSE_RUN {
            let posts_behind_each = length > 0 || self.before.load(Ordering::Relaxed) > 0;
            return (more && posts_behind_each).then_some(Duration::from_nanos(MORE_DELAY_NS));
        }
        let right = now.saturating_sub(self.since.load(Ordering::Relaxed));
        Some(Duration::from_nanos((right / DELAY_SHARE).clamp(MIN_DELAY_NS, MAX_DELAY_NS)))
    }
}

/// The kind of a post.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unsignalled,
    Signalled,
    /// It does not wait, and predicts nothing about others.
    Large,
}

/// A post of one request or several that is about to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Post {
    /// Bytes of the longest payload that is sent, or of the longest read that may be direct.
    pub len: u32,
    /// One of the requests is signalled.
    pub signaled: bool,
    /// All earlier requests are complete, and the program has polled their completions.
    pub alone: bool,
    /// The program has armed an event: it may sleep until the requests complete.
    pub is_armed: bool,
    /// The program has left completions in its last poll, so it polls again soon, and may post again after
    /// each of them.
    pub more: bool,
    /// How many requests are in the ring.
    pub queued: u64,
}

impl Post {
    #[inline]
    fn kind(&self) -> Kind {
        match self {
            Self { len, .. } if *len > SMALL => Kind::Large,
            Self { signaled: true, .. } => Kind::Signalled,
            Self { signaled: false, .. } => Kind::Unsignalled,
        }
    }
}

/// How closely small requests have been followed by the next one. Only a prediction depends on it, so it
/// needs no order among threads.
pub(crate) struct Coalescer {
    /// The kind of the last request, and when its post returned; not of those that needed no system call.
    last: AtomicU8,
    returned: AtomicU64,
    /// Posts in a row of a program that waits for each completion. From the second one on no time is
    /// measured.
    waits: AtomicU8,
    /// The last request was carried out, or put into shared memory, without a system call.
    needs_no_call: AtomicBool,
    runs: [Run; 2],
    decisions: Decisions<Self>,
}

impl Policy for Coalescer {
    const WORST: Cost = Cost::Delay(Duration::from_nanos(MAX_DELAY_NS));

    fn new(mode: Mode) -> Self {
        Self {
            last: AtomicU8::new(Kind::Large as u8),
            returned: AtomicU64::new(0),
            waits: AtomicU8::new(0),
            needs_no_call: AtomicBool::new(false),
            runs: [Run::new(), Run::new()],
            decisions: Decisions::new(mode),
        }
    }
}

impl Coalescer {
    /// A post is about to be sent. Gives how long it may wait for the next one; it has returned then, unless
    /// the caller says otherwise by [`Coalescer::returns`].
    #[inline]
    pub(crate) fn begins(&self, post: &Post, clock: impl FnOnce() -> u64) -> Option<Duration> {
        let kind = post.kind();
        let (delay, now) = match self.decisions.prescribed() {
            None if self.needs_no_call.load(Ordering::Relaxed) => return None,
            None => self.predicts(kind, post, self.follows(kind, post)?, clock)?,
            // Any post, a large one, too. No prediction has been right before.
            Some(true) => (Duration::from_nanos(MIN_DELAY_NS), clock()),
            Some(false) => return None,
        };
        if post.queued >= BURST || (kind == Kind::Signalled && post.is_armed) {
            return None;
        }
        self.returned.store(now, Ordering::Relaxed);
        Some(delay)
    }

    /// Records the kind of a post. Returns the run of the post before, and whether the program has waited for
    /// that; `None` if neither that post nor this one, both large, predicts anything, or if the program waits
    /// for this one, too.
    #[inline]
    fn follows(&self, kind: Kind, post: &Post) -> Option<(Option<&Run>, bool)> {
        let last = self.last.load(Ordering::Relaxed);
        self.last.store(kind as u8, Ordering::Relaxed);
        // A program that has its completion has waited for it, however little time that takes.
        let waited = post.alone && last == Kind::Signalled as u8;
        let waits = if waited { self.waits.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.waits.store(waits, Ordering::Relaxed);
        // Then completions of others that are in the queue do not matter.
        let waits_again = waits >= TIMELESS && kind == Kind::Signalled;
        let last = self.runs.get(usize::from(last));
        (!waits_again && (last.is_some() || kind != Kind::Large)).then_some((last, waited))
    }

    #[inline(never)]
    fn predicts(
        &self,
        kind: Kind,
        post: &Post,
        (last, waited): (Option<&Run>, bool),
        clock: impl FnOnce() -> u64,
    ) -> Option<(Duration, u64)> {
        let now = clock();
        if let Some(run) = last {
            let gap = now.saturating_sub(self.returned.load(Ordering::Relaxed));
            run.followed(gap < CLOSE_NS && !waited, gap, now);
        }
        self.runs.get(kind as usize)?.delay(now, post.more).map(|delay| (delay, now))
    }

    /// The post returns.
    #[inline]
    pub(crate) fn returns(&self, post: &Post, clock: impl FnOnce() -> u64) {
        let is_timed =
            self.waits.load(Ordering::Relaxed) < TIMELESS && !self.needs_no_call.load(Ordering::Relaxed);
        if post.kind() != Kind::Large && is_timed {
            self.returned.store(clock(), Ordering::Relaxed);
        }
    }

    /// Whether the last request was carried out, or put into shared memory, without a system call.
    #[inline]
    pub(crate) fn needs_no_call(&self) -> bool {
        self.needs_no_call.load(Ordering::Relaxed)
    }

    /// A request has been carried out, or has left for the peer.
    #[inline]
    pub(crate) fn sent(&self, needed_no_call: bool) {
        self.needs_no_call.store(needed_no_call, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const US: u64 = 1_000;

    fn of(kind: Kind) -> Post {
        let len = if kind == Kind::Large { SMALL + 1 } else { SMALL };
        let signaled = kind == Kind::Signalled;
        Post { len, signaled, alone: false, is_armed: false, more: false, queued: 1 }
    }

    /// Posts `count` requests of a kind, each `gap` ns after the one before has returned. Returns the last
    /// delay, and the time.
    fn post(
        coalescer: &Coalescer,
        kind: Kind,
        count: u32,
        gap: u64,
        mut now: u64,
    ) -> (Option<Duration>, u64) {
        let mut delay = None;
        for _ in 0..count {
            now += gap;
            delay = coalescer.begins(&of(kind), || now);
            coalescer.returns(&of(Kind::Unsignalled), || now);
        }
        (delay, now)
    }

    #[test]
    fn a_request_waits_only_after_a_run_of_close_ones() {
        for kind in [Kind::Unsignalled, Kind::Signalled] {
            let coalescer = Coalescer::new(Mode::Adaptive);
            let (delay, now) = post(&coalescer, kind, CLOSE_RUN, 100, 0);
            assert_eq!(delay, None);
            let (delay, now) = post(&coalescer, kind, 2, 100, now);
            assert!(delay.is_some());
            let (delay, _) = post(&coalescer, kind, 1, 2 * CLOSE_NS, now);
            assert_eq!(delay, None, "the one before was not followed");
        }
        let large = Coalescer::new(Mode::Adaptive);
        assert_eq!(post(&large, Kind::Large, 100, 100, 0).0, None);
    }

    #[test]
    fn a_wrong_prediction_costs_an_eighth_of_the_time_of_the_right_ones() {
        for (begin, run) in [(0, 100 * US), (0, 400 * US), (0, 10_000 * US), (1_000_000 * US, 100 * US)] {
            // One post is made after the run.
            let longest = (run / DELAY_SHARE + US).min(MAX_DELAY_NS);
            let coalescer = Coalescer::new(Mode::Adaptive);
            let (_, start) = post(&coalescer, Kind::Unsignalled, 1, 5 * CLOSE_NS, begin);
            let posts = u32::try_from(run / 500).unwrap();
            let (delay, _) = post(&coalescer, Kind::Unsignalled, posts, 500, start);
            let delay = u64::try_from(delay.unwrap().as_nanos()).unwrap();
            assert!((MIN_DELAY_NS..=longest).contains(&delay), "{delay} ns after {run} ns");
        }
    }

    #[test]
    fn a_short_interruption_costs_eight_times_its_length() {
        let kind = Kind::Unsignalled;
        for (gap, count) in [(40 * US, 1), (40 * US, 2), (MAX_DELAY_NS, 1)] {
            let coalescer = Coalescer::new(Mode::Adaptive);
            let (_, began) = post(&coalescer, kind, 1, 5 * CLOSE_NS, 1_000_000 * US);
            let (_, now) = post(&coalescer, kind, 8_000, 500, began);
            let right = now - began;
            let (_, now) = post(&coalescer, kind, count, gap, now);
            let (delay, _) = post(&coalescer, kind, CLOSE_RUN, 500, now);
            let (lost, rest) = (DELAY_SHARE * 40 * US, right + u64::from(CLOSE_RUN) * 500);
            let kept = if count == 1 && gap < MAX_DELAY_NS { (rest - lost) / DELAY_SHARE } else { 0 };
            let delay = delay.map_or(0, |delay| delay.as_nanos() as u64);
            assert!(delay.abs_diff(kept.max(MIN_DELAY_NS)) < US, "{delay} ns and not {kept}");
        }
    }

    #[test]
    fn a_program_that_takes_completions_waits_from_the_second_post_on() {
        let coalescer = Coalescer::new(Mode::Adaptive);
        post(&coalescer, Kind::Signalled, 2, 100, 0);
        let delay = coalescer.begins(&Post { more: true, ..of(Kind::Signalled) }, || 300).unwrap();
        assert_eq!(delay, Duration::from_nanos(MORE_DELAY_NS));
    }

    /// Runs of close posts of one kind, of different lengths and with a pause behind each. Returns the
    /// delays.
    fn delays(kind: Kind, more: bool, mode: Mode) -> Vec<Duration> {
        let coalescer = Coalescer::new(mode);
        let (mut now, mut delays) = (1_000_000 * US, Vec::new());
        for posts in [1, 2, 17, 300, 1, 5_000, 20] {
            now += 10_000 * US;
            let began = now;
            for _ in 0..posts {
                now += 500;
                let delay = coalescer.begins(&Post { more, ..of(kind) }, || now).unwrap_or_default();
                let right = now - began;
                let longest = (right / DELAY_SHARE).clamp(MIN_DELAY_NS, MAX_DELAY_NS);
                assert!(more || delay <= Duration::from_nanos(longest), "{mode:?}");
                delays.push(delay);
                coalescer.returns(&of(Kind::Unsignalled), || now);
            }
        }
        delays
    }

    #[cfg(not(loom))]
    impl transport::policy::trial::Trial for Coalescer {
        fn costs(mode: Mode) -> Vec<Cost> {
            let kinds = [Kind::Unsignalled, Kind::Signalled, Kind::Large];
            let cases = kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]);
            cases.flat_map(|(kind, more)| delays(kind, more, mode)).map(Cost::Delay).collect()
        }
    }

    #[test]
    fn a_mode_decides_whatever_the_request_is() {
        for kind in [Kind::Unsignalled, Kind::Signalled, Kind::Large] {
            let waits = |mode| {
                let coalescer = Coalescer::new(mode);
                (0..100)
                    .filter(|now| {
                        coalescer.begins(&Post { alone: true, more: true, ..of(kind) }, || *now).is_some()
                    })
                    .count()
            };
            assert_eq!((waits(Mode::Never), waits(Mode::Always)), (0, 100));
            assert!((25..75).contains(&waits(Mode::Random(1))));
        }
    }

    #[test]
    fn a_program_that_waits_for_each_completion_is_never_delayed() {
        let coalescer = Coalescer::new(Mode::Adaptive);
        for now in 0..1_000 {
            assert!(coalescer.begins(&Post { alone: true, ..of(Kind::Signalled) }, || now).is_none());
            coalescer.returns(&of(Kind::Unsignalled), || now);
        }
    }

    #[test]
    fn a_program_that_waits_needs_no_clock_until_it_does_not_wait() {
        let coalescer = Coalescer::new(Mode::Adaptive);
        let (looks, now) = (Cell::new(0), Cell::new(0));
        let clock = || {
            looks.set(looks.get() + 1);
            now.set(now.get() + 100);
            now.get()
        };
        let post = |alone| {
            let post = Post { alone, ..of(Kind::Signalled) };
            let delay = coalescer.begins(&post, clock);
            coalescer.returns(&post, clock);
            delay
        };
        for _ in 0..10 {
            now.set(now.get() + 10 * US);
            assert_eq!(post(true), None);
        }
        assert!(looks.get() < 10, "{} looks at the clock", looks.get());
        let sent = (0..100).take_while(|_| post(false).is_none()).count();
        assert_eq!(sent, CLOSE_RUN as usize);
    }

    #[test]
    fn a_program_that_waits_again_is_not_delayed_by_completions_of_others() {
        let coalescer = Coalescer::new(Mode::Adaptive);
        post(&coalescer, Kind::Signalled, 5, 100, 0);
        let alone = Post { alone: true, more: true, ..of(Kind::Signalled) };
        let delays = (0..10).map(|i| coalescer.begins(&alone, || 1_000 + i * 10 * US));
        assert!(delays.skip(2).all(|delay| delay.is_none()));
    }

    #[test]
    fn a_request_never_waits_after_one_that_needed_no_call() {
        for kind in [Kind::Unsignalled, Kind::Signalled] {
            let coalescer = Coalescer::new(Mode::Adaptive);
            let (delay, now) = post(&coalescer, kind, CLOSE_RUN + 2, 100, 0);
            assert!(delay.is_some());
            coalescer.sent(true);
            let (delay, now) = post(&coalescer, kind, 100, 100, now);
            assert_eq!(delay, None);
            coalescer.sent(false);
            let (delay, _) = post(&coalescer, kind, CLOSE_RUN + 2, 100, now);
            assert!(delay.is_some(), "system calls are worth waiting for again");
        }
    }

    #[test]
    fn a_full_batch_is_sent_and_so_is_what_a_thread_may_sleep_for() {
        let coalescer = Coalescer::new(Mode::Always);
        let waits = |post| coalescer.begins(&post, || 0).is_some();
        let signalled = of(Kind::Signalled);
        assert!(waits(signalled) && waits(Post { queued: BURST - 1, ..signalled }));
        assert!(!waits(Post { queued: BURST, ..signalled }));
        assert!(!waits(Post { is_armed: true, ..signalled }));
        assert!(waits(Post { is_armed: true, ..of(Kind::Unsignalled) }), "it has no completion");
    }
}
