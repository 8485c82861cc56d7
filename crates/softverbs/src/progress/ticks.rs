// SPDX-License-Identifier: BSD-3-Clause
//! The ticks of the engine: what it checks, and when. Ticks of one interval coincide, so that the engine
//! wakes up once for all objects.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::source::Ticking;
use crate::lock;

#[derive(Default)]
struct List {
    /// The first of the times.
    next: Option<Instant>,
    objects: Vec<(Instant, Arc<dyn Ticking>)>,
}

pub(super) struct Ticks {
    began: Instant,
    list: Mutex<List>,
}

impl Ticks {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), list: Mutex::default() }
    }

    /// Lists an object for the next tick of this interval.
    pub(super) fn add(&self, now: Instant, interval: Duration, object: Arc<dyn Ticking>) {
        let since = now.duration_since(self.began).as_micros() % interval.as_micros();
        let at = now + interval - Duration::from_micros(since as u64);
        let mut list = lock(&self.list);
        list.next = Some(list.next.map_or(at, |next| next.min(at)));
        list.objects.push((at, object));
    }

    /// The time of the next tick.
    pub(super) fn next(&self) -> Option<Instant> {
        lock(&self.list).next
    }

    /// Takes the objects whose time has come off the list.
    pub(super) fn take_due(&self, now: Instant) -> Vec<Arc<dyn Ticking>> {
        let mut list = lock(&self.list);
        if list.next.is_none_or(|next| next > now) {
            return Vec::new();
        }
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut list.objects).into_iter().partition(|(at, _)| *at <= now);
        list.next = later.iter().map(|(at, _)| *at).min();
        list.objects = later;
        due.into_iter().map(|(_, object)| object).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::attention::Tick;

    struct Object;

    impl Ticking for Object {
        fn tick(self: Arc<Self>) -> Tick {
            Tick::Over
        }
    }

    #[test]
    fn objects_of_one_interval_have_the_same_ticks() {
        let ticks = Ticks::new();
        let at = |micros| ticks.began + Duration::from_micros(micros);
        let add = |micros, interval| ticks.add(at(micros), Duration::from_micros(interval), Arc::new(Object));
        assert_eq!(ticks.next(), None);
        add(810, 800);
        assert_eq!(ticks.next(), Some(at(1600)));
        add(820, 200);
        add(999, 200);
        add(1000, 200);
        assert_eq!(ticks.next(), Some(at(1000)));
        let due = [999, 1000, 1199, 1599, 1600].map(|micros| ticks.take_due(at(micros)).len());
        assert_eq!((due, ticks.next()), ([0, 2, 0, 1, 1], None));
    }
}
