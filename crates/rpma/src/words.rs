// SPDX-License-Identifier: BSD-3-Clause
//! Copies to and from memory that others may access at the same time, by atomic words.
//!
//! All accesses are to whole aligned words: Rust does not permit atomic accesses of different sizes to the
//! same bytes at the same time.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// The size of a word in bytes.
pub(crate) const SIZE: usize = 8;

fn bytes_of(word: &AtomicU64) -> [u8; SIZE] {
    word.load(Ordering::Relaxed).to_ne_bytes()
}

/// Replaces some bytes of a word, from `at` on, and writes no other one.
fn merge(word: &AtomicU64, at: usize, from: &[u8]) {
    let replaced = |old: u64| {
        let mut bytes = old.to_ne_bytes();
        bytes[at..at + from.len()].copy_from_slice(from);
        Some(u64::from_ne_bytes(bytes))
    };
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, replaced);
}

/// The first word, the first byte in it, and how many of `len` bytes precede the first whole word.
fn split(offset: usize, len: usize) -> (usize, usize, usize) {
    let at = offset % SIZE;
    (offset / SIZE, at, if at == 0 { 0 } else { (SIZE - at).min(len) })
}

/// Copies the bytes at `offset`, which are all in `words`.
pub(crate) fn copy_out(words: &[AtomicU64], offset: usize, to: &mut [u8]) {
    let (first, at, head) = split(offset, to.len());
    let mut words = words[first..].iter();
    let (to_head, to) = to.split_at_mut(head);
    if let Some(word) = (head > 0).then(|| words.next()).flatten() {
        to_head.copy_from_slice(&bytes_of(word)[at..at + head]);
    }
    let mut whole = to.chunks_exact_mut(SIZE);
    for (to, word) in whole.by_ref().zip(words.by_ref()) {
        to.copy_from_slice(&bytes_of(word));
    }
    let tail = whole.into_remainder();
    if let (false, Some(word)) = (tail.is_empty(), words.next()) {
        tail.copy_from_slice(&bytes_of(word)[..tail.len()]);
    }
}

/// Copies bytes to `offset`, all of them in `words`.
pub(crate) fn copy_in(words: &[AtomicU64], offset: usize, from: &[u8]) {
    let (first, at, head) = split(offset, from.len());
    let mut words = words[first..].iter();
    let (from_head, from) = from.split_at(head);
    if let Some(word) = (head > 0).then(|| words.next()).flatten() {
        merge(word, at, from_head);
    }
    let whole = from.chunks_exact(SIZE);
    let tail = whole.remainder();
    for (from, word) in whole.zip(words.by_ref()) {
        word.store(u64::from_ne_bytes(from.try_into().unwrap_or_default()), Ordering::Relaxed);
    }
    if let (false, Some(word)) = (tail.is_empty(), words.next()) {
        merge(word, 0, tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range() {
        let words = [const { AtomicU64::new(0) }; 4];
        for offset in 0..=32 {
            for len in 0..=32 - offset {
                copy_in(&words, 0, &[0xff; 32]);
                let from: Vec<u8> = (0..len as u8).collect();
                copy_in(&words, offset, &from);
                let mut all = [0; 32];
                copy_out(&words, 0, &mut all);
                let mut expected = [0xff; 32];
                expected[offset..offset + len].copy_from_slice(&from);
                assert_eq!(all, expected, "{len} bytes at {offset}");
                let mut out = vec![0; len];
                copy_out(&words, offset, &mut out);
                assert_eq!(out, from, "{len} bytes at {offset}");
            }
        }
    }

    /// Under Miri also: no access is a data race with one of another size.
    #[test]
    fn neighbours_in_one_word() {
        let words = [const { AtomicU64::new(0) }; 2];
        std::thread::scope(|scope| {
            for at in [1, 4, 7] {
                let words = &words;
                scope.spawn(move || {
                    for number in 0..=50 {
                        copy_in(words, at, &[number; 3]);
                        let mut seen = [0; 3];
                        copy_out(words, at, &mut seen);
                        assert_eq!(seen, [number; 3]);
                    }
                });
            }
            scope.spawn(|| words[0].load(Ordering::Acquire));
        });
        let mut all = [0; 16];
        copy_out(&words, 0, &mut all);
        assert_eq!(all, [[0].as_slice(), &[50; 9], &[0; 6]].concat()[..]);
    }
}
