// SPDX-License-Identifier: BSD-3-Clause
//! A bounded queue from many posters to the one driver of a connection, and its entries in use.
//!
//! A poster claims a position, fills its slot, then publishes the stamp; the driver takes a slot once its
//! stamp is published. A slot that is claimed but not published looks empty: its poster has yet to leave its
//! reason in the turn, so the driver steps again, and waits for no poster.
//!
//! An entry is in use from its push until it is freed: that of a receive when the driver takes it
//! ([`Ring::pop`]), that of a request later ([`Ring::take`], [`Ring::free`]). No more are in use than there
//! are entries, of which there are no more than slots. So a claimed slot is empty: there are as many freed
//! entries as positions up to the one that had the slot before, entries are freed after they were taken, and
//! they are taken in order. A claimed entry ([`Ring::claim`]) whose slot stays empty may be freed before. The
//! lock in a slot is never contended; it only gives safe code access to the value.

use crate::sys::Errno;
use reserve::try_filled;

use super::sync::{AtomicU64, Mutex, Ordering, lock};

struct Slot<T> {
    /// [`filled`] of the last position whose value was put here.
    stamp: AtomicU64,
    value: Mutex<Option<T>>,
}

fn filled(position: u64) -> u64 {
    position + 1
}

pub(crate) struct Ring<T> {
    /// At least as many as entries: a power of two, since a division would dominate the look-up.
    slots: Box<[Slot<T>]>,
    /// The number of entries.
    capacity: u64,
    /// The next position to be claimed.
    tail: AtomicU64,
    /// The next position to be taken; changed by the driver alone.
    head: AtomicU64,
    /// How many entries were freed.
    freed: AtomicU64,
}

/// An entry that the driver has claimed.
#[must_use]
pub(crate) struct Claim<'a, T> {
    ring: &'a Ring<T>,
    slot: &'a Slot<T>,
    position: u64,
}

impl<T> Claim<'_, T> {
    /// The value bypasses the ring: advances the head. The entry may have been freed already.
    #[inline]
    pub(crate) fn taken(self) {
        self.ring.head.store(self.position + 1, Ordering::Relaxed);
    }

    /// Puts a value into the ring after all.
    pub(crate) fn push(self, value: T) {
        *lock(&self.slot.value) = Some(value);
        self.slot.stamp.store(filled(self.position), Ordering::Release);
    }
}

impl<T> Ring<T> {
    /// ENOMEM.
    pub(crate) fn new(capacity: u32) -> Result<Self, Errno> {
        let slot = || Slot { stamp: AtomicU64::new(0), value: Mutex::new(None) };
        let slots = try_filled((capacity as usize).next_power_of_two(), slot).ok_or(libc::ENOMEM)?;
        let (tail, head, freed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { slots, capacity: capacity.into(), tail, head, freed })
    }

    #[inline]
    fn slot(&self, position: u64) -> &Slot<T> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// Adds a value; gives it back when all entries are in use. Returns whether no other one was.
    #[inline]
    pub(crate) fn push(&self, value: T) -> Result<bool, T> {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            // The acquisition is for the slot, which its last driver has left.
            let in_use = position.checked_sub(self.freed.load(Ordering::Acquire));
            let Some(in_use) = in_use else {
                // Others have claimed it meanwhile.
                position = self.tail.load(Ordering::Relaxed);
                continue;
            };
            if in_use >= self.capacity {
                return Err(value);
            }
            let slot = self.slot(position);
            match self.tail.compare_exchange(position, position + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    *lock(&slot.value) = Some(value);
                    slot.stamp.store(filled(position), Ordering::Release);
                    return Ok(in_use == 0);
                }
                Err(now) => position = now,
            }
        }
    }

    /// Whether it has no value, nor one that is being pushed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.load(Ordering::Relaxed) == self.head.load(Ordering::Relaxed)
    }

    /// Whether no entry is in use.
    #[inline]
    pub(crate) fn is_unused(&self) -> bool {
        let freed = self.freed.load(Ordering::Acquire);
        self.tail.load(Ordering::Relaxed) == freed
    }

    /// The driver: claims the next entry for a value that does not go through the ring, if the ring is empty;
    /// `None` also when all entries are in use.
    #[inline]
    pub(crate) fn claim(&self) -> Option<Claim<'_, T>> {
        let position = self.head.load(Ordering::Relaxed);
        let in_use = position.checked_sub(self.freed.load(Ordering::Acquire))?;
        let slot = (in_use < self.capacity).then(|| self.slot(position))?;
        self.tail.compare_exchange(position, position + 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(Claim { ring: self, slot, position })
    }

    /// The driver: takes the oldest value. Its entry stays in use until [`Ring::free`].
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        let position = self.head.load(Ordering::Relaxed);
        let slot = self.slot(position);
        if slot.stamp.load(Ordering::Acquire) != filled(position) {
            return None;
        }
        let value = lock(&slot.value).take();
        self.head.store(position + 1, Ordering::Relaxed);
        value
    }

    /// The driver: takes the oldest value, and frees all entries that were taken.
    pub(crate) fn pop(&self) -> Option<T> {
        let value = self.take()?;
        self.freed.store(self.head.load(Ordering::Relaxed), Ordering::Release);
        Some(value)
    }

    /// Frees so many entries whose values were taken.
    #[inline]
    pub(crate) fn free(&self, count: u64) {
        self.freed.fetch_add(count, Ordering::Release);
    }

    /// The driver: whether there is a value to take.
    pub(crate) fn has_value(&self) -> bool {
        let position = self.head.load(Ordering::Relaxed);
        self.slot(position).stamp.load(Ordering::Acquire) == filled(position)
    }

    /// The approximate number of values.
    pub(crate) fn len(&self) -> u64 {
        self.tail.load(Ordering::Relaxed).saturating_sub(self.head.load(Ordering::Relaxed))
    }

    /// How many entries are free.
    pub(crate) fn room(&self) -> usize {
        // In this order the difference is not too small: an entry was freed after it was claimed.
        let freed = self.freed.load(Ordering::Acquire);
        let in_use = self.tail.load(Ordering::Relaxed).saturating_sub(freed);
        self.capacity.saturating_sub(in_use) as usize
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
                assert_eq!(ring.push(lap * 10 + i), Ok(i == 0));
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
            assert_eq!(ring.push(lap), Ok(true));
            assert_eq!(ring.push(99), Err(99));
            assert_eq!(ring.pop(), Some(lap));
            assert_eq!(ring.pop(), None);
        }
    }

    #[test]
    fn an_entry_is_in_use_until_it_is_freed() {
        let ring = Ring::new(4).unwrap();
        for _ in 0..3 {
            (0..4).for_each(|i| assert_eq!(ring.push(i), Ok(i == 0)));
            (0..4).for_each(|i| assert_eq!(ring.take(), Some(i)));
            assert_eq!((ring.push(4), ring.room(), ring.len()), (Err(4), 0, 0));
            ring.free(3);
            assert_eq!((ring.push(5), ring.room()), (Ok(false), 2));
            assert_eq!(ring.take(), Some(5));
            ring.free(2);
            assert_eq!(ring.room(), 4);
        }
    }

    #[test]
    fn a_ring_without_room_is_full_and_empty() {
        let ring = Ring::new(0).unwrap();
        assert_eq!((ring.push(1), ring.room()), (Err(1), 0));
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
