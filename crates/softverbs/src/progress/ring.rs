// SPDX-License-Identifier: BSD-3-Clause
//! A bounded queue from many posters to the one driver of a connection.
//!
//! Each slot has a stamp that determines which side may access it. A poster claims a position, fills the
//! slot, then publishes the stamp; the driver takes a slot once its stamp is published. A slot that is
//! claimed but not published looks empty: its poster has yet to leave a reason in the turn, which causes
//! another step, so the driver never waits for a poster. The lock in a slot is never contended, as the stamp
//! decides which thread may take it; it only gives safe code access to the value.

use crate::sys::Errno;
use reserve::try_filled;

use super::sync::{AtomicU64, Mutex, Ordering, lock};

struct Slot<T> {
    /// [`free`] or [`filled`] at a position. The two never coincide, even in a ring with one slot.
    stamp: AtomicU64,
    value: Mutex<Option<T>>,
}

fn free(position: u64) -> u64 {
    2 * position
}

fn filled(position: u64) -> u64 {
    2 * position + 1
}

pub(crate) struct Ring<T> {
    slots: Box<[Slot<T>]>,
    /// The next position to be claimed.
    tail: AtomicU64,
    /// The next position to be taken; changed by the driver alone.
    head: AtomicU64,
}

impl<T> Ring<T> {
    /// ENOMEM.
    pub(crate) fn new(capacity: u32) -> Result<Self, Errno> {
        let mut stamps = (0..u64::from(capacity)).map(free);
        let slot = || Slot { stamp: AtomicU64::new(stamps.next().unwrap_or(0)), value: Mutex::new(None) };
        let slots = try_filled(capacity as usize, slot).ok_or(libc::ENOMEM)?;
        Ok(Self { slots, tail: AtomicU64::new(0), head: AtomicU64::new(0) })
    }

    fn slot(&self, position: u64) -> Option<&Slot<T>> {
        // A queue with capacity 0 is always full.
        let index = position.checked_rem(self.slots.len() as u64)?;
        self.slots.get(index as usize)
    }

    /// Adds a value; returns it if the ring is full.
    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            let Some(slot) = self.slot(position) else { return Err(value) };
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp == free(position) {
                match self.tail.compare_exchange(position, position + 1, Ordering::Relaxed, Ordering::Relaxed)
                {
                    Ok(_) => {
                        *lock(&slot.value) = Some(value);
                        slot.stamp.store(filled(position), Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => position = now,
                }
            } else if stamp < free(position) {
                return Err(value);
            } else {
                position = self.tail.load(Ordering::Relaxed);
            }
        }
    }

    /// Called by the driver: takes the oldest value.
    pub(crate) fn pop(&self) -> Option<T> {
        let position = self.head.load(Ordering::Relaxed);
        let slot = self.slot(position)?;
        if slot.stamp.load(Ordering::Acquire) != filled(position) {
            return None;
        }
        let value = lock(&slot.value).take();
        self.head.store(position + 1, Ordering::Relaxed);
        slot.stamp.store(free(position + self.slots.len() as u64), Ordering::Release);
        value
    }

    /// Called by the driver: whether there is a value to take.
    pub(crate) fn has_value(&self) -> bool {
        let position = self.head.load(Ordering::Relaxed);
        self.slot(position).is_some_and(|slot| slot.stamp.load(Ordering::Acquire) == filled(position))
    }

    /// The approximate number of values.
    pub(crate) fn len(&self) -> u64 {
        self.tail.load(Ordering::Relaxed).saturating_sub(self.head.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_come_out_in_order_and_a_full_ring_returns_them() {
        let ring = Ring::new(3).unwrap();
        for lap in 0..5 {
            for i in 0..3 {
                assert_eq!(ring.push(lap * 10 + i), Ok(()));
            }
            assert_eq!(ring.push(99), Err(99));
            assert_eq!(ring.len(), 3);
            for i in 0..3 {
                assert!(ring.has_value());
                assert_eq!(ring.pop(), Some(lap * 10 + i));
            }
            assert_eq!(ring.pop(), None);
            assert!(!ring.has_value());
        }
    }

    #[test]
    fn a_ring_of_one_is_full_with_one() {
        let ring = Ring::new(1).unwrap();
        for lap in 0..3 {
            assert_eq!(ring.push(lap), Ok(()));
            assert_eq!(ring.push(99), Err(99));
            assert_eq!(ring.pop(), Some(lap));
            assert_eq!(ring.pop(), None);
        }
    }

    #[test]
    fn a_ring_without_room_is_full_and_empty() {
        let ring = Ring::new(0).unwrap();
        assert_eq!(ring.push(1), Err(1));
        assert_eq!(ring.pop(), None);
    }

    #[test]
    fn every_value_of_many_posters_comes_out_once_and_in_the_order_of_its_poster() {
        let ring = std::sync::Arc::new(Ring::new(8).unwrap());
        let posters: Vec<_> = (0..4u64)
            .map(|poster| {
                let ring = ring.clone();
                std::thread::spawn(move || {
                    for i in 0..5_000u64 {
                        let mut value = (poster, i);
                        while let Err(back) = ring.push(value) {
                            value = back;
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = [0u64; 4];
        while next.iter().sum::<u64>() < 20_000 {
            match ring.pop() {
                Some((poster, i)) => {
                    assert_eq!(next[poster as usize], i);
                    next[poster as usize] += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        assert_eq!(ring.pop(), None);
    }
}
