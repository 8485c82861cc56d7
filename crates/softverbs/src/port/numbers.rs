// SPDX-License-Identifier: BSD-3-Clause
//! Queue pair numbers: the slot of the process and 16 random bits.
//!
//! A number is not reused for some time after its release: packets in flight must not reach another queue
//! pair, and a peer may still have the old connection.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Unavailable;
use super::slot::Slot;
use crate::lock;
use crate::process::PerProcess;
use crate::sys::Errno;

/// Minimum time between the release of a number and its reuse: longer than the lifetime of a packet in the
/// network and the TIMEWAIT state of a connection with usual timeouts.
const REST: Duration = Duration::from_secs(5);
const WORDS: usize = (1 << 16) / 64;

/// The numbers of a process.
struct Numbers {
    slot: Arc<Slot>,
    /// Numbers in use or at rest. Number 0 is reserved for the checks of the port.
    taken: Box<Bits>,
    at_rest: Box<Bits>,
    /// Numbers at rest, oldest first, with the time of their release.
    resting: VecDeque<(Instant, u16)>,
}

static NUMBERS: PerProcess<Numbers> = PerProcess::new();

/// A number for a new queue pair. The first call claims the slot of the process. EAGAIN: no slot is free.
/// ENOMEM: all 65,535 numbers are in use or at rest.
pub(crate) fn allocate_number() -> Result<u32, Errno> {
    let mut guard = lock(NUMBERS.get());
    let mut random = [0; 2];
    getrandom::fill(&mut random).map_err(|_| libc::EIO)?;
    let numbers = Numbers::get(&mut guard).map_err(Unavailable::logged)?;
    let slot = u32::from(numbers.slot.number());
    let low = numbers.take(u16::from_ne_bytes(random), Instant::now()).ok_or(libc::ENOMEM)?;
    Ok(slot << 16 | u32::from(low))
}

/// Releases the number of a destroyed queue pair. No effect in a child of fork(2) on a number of the parent.
pub(crate) fn release_number(num: u32) {
    if let Some(numbers) = &mut *lock(NUMBERS.get()) {
        if u32::from(numbers.slot.number()) == num >> 16 {
            numbers.release(num as u16, Instant::now());
        }
    }
}

/// The slot of this process; the first call claims it.
pub(super) fn slot() -> Result<Arc<Slot>, Unavailable> {
    Numbers::get(&mut lock(NUMBERS.get())).map(|numbers| numbers.slot.clone())
}

/// Releases the slot of a process that has no number.
pub(super) fn give_up() {
    *lock(NUMBERS.get()) = None;
}

impl Numbers {
    fn get(guard: &mut Option<Self>) -> Result<&mut Self, Unavailable> {
        if guard.is_none() {
            *guard = Some(Self::new(Slot::claim()?));
        }
        guard.as_mut().ok_or_else(|| libc::EAGAIN.into())
    }

    fn new(slot: Slot) -> Self {
        let mut taken = Box::new(Bits([0; WORDS]));
        taken.set(0, true);
        Self { slot: Arc::new(slot), taken, at_rest: Box::new(Bits([0; WORDS])), resting: VecDeque::new() }
    }

    /// The first free number from `first` on.
    fn take(&mut self, first: u16, now: Instant) -> Option<u16> {
        while let Some(&(since, low)) = self.resting.front() {
            if now.duration_since(since) < REST {
                break;
            }
            self.resting.pop_front();
            self.taken.set(low, false);
            self.at_rest.set(low, false);
        }
        let low = self.taken.first_clear(first)?;
        self.taken.set(low, true);
        Some(low)
    }

    fn release(&mut self, low: u16, now: Instant) {
        if low == 0 || !self.taken.has(low) || self.at_rest.has(low) {
            return;
        }
        if self.resting.try_reserve(1).is_err() {
            // Out of memory: the number stays taken.
            return;
        }
        self.at_rest.set(low, true);
        self.resting.push_back((now, low));
    }
}

/// A set of numbers of 16 bits.
struct Bits([u64; WORDS]);

impl Bits {
    fn has(&self, number: u16) -> bool {
        self.0[usize::from(number / 64)] & 1 << (number % 64) != 0
    }

    fn set(&mut self, number: u16, value: bool) {
        let word = &mut self.0[usize::from(number / 64)];
        let bit = 1 << (number % 64);
        if value { *word |= bit } else { *word &= !bit }
    }

    /// The first number that is not in the set, from `first` on and then from 0.
    fn first_clear(&self, first: u16) -> Option<u16> {
        let start = usize::from(first / 64);
        // The first word is visited twice: first its upper bits, finally all of it.
        (0..=WORDS).find_map(|i| {
            let at = (start + i) % WORDS;
            let from = if i == 0 { u64::MAX << (first % 64) } else { u64::MAX };
            let clear = !self.0[at] & from;
            (clear != 0).then(|| (at * 64) as u16 + clear.trailing_zeros() as u16)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_slot_and_is_not_reused_at_once() {
        let mut numbers = Numbers::new(Slot::claim().unwrap());
        let begin = Instant::now();
        assert_eq!(numbers.take(0, begin), Some(1), "0 is reserved");
        assert_eq!(numbers.take(1, begin), Some(2));
        numbers.release(1, begin);
        assert_eq!(numbers.take(1, begin + REST / 2), Some(3));
        assert_eq!(numbers.take(1, begin + REST), Some(1));
    }

    #[test]
    fn all_numbers_can_be_in_use() {
        let mut numbers = Numbers::new(Slot::claim().unwrap());
        let begin = Instant::now();
        let taken = (0..u16::MAX).map(|_| numbers.take(77, begin).unwrap());
        assert_eq!(taken.collect::<std::collections::HashSet<_>>().len(), 65_535);
        assert_eq!(numbers.take(77, begin), None);
        numbers.release(5, begin);
        numbers.release(5, begin);
        assert_eq!((numbers.resting.len(), numbers.take(77, begin)), (1, None));
        assert_eq!(numbers.take(77, begin + REST), Some(5));
    }
}
