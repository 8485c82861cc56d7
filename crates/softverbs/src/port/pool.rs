// SPDX-License-Identifier: BSD-3-Clause
//! Buffers that are used again, for packets to send and for received ones.
#![forbid(unsafe_code)]

use std::sync::Mutex;

use crate::lock;

/// Free buffers of `LEN` bytes, at most `FREE`.
#[derive(Default)]
pub(super) struct Pool<const LEN: usize, const FREE: usize>(Mutex<Vec<Vec<u8>>>);

impl<const LEN: usize, const FREE: usize> Pool<LEN, FREE> {
    /// `None` without memory.
    pub(super) fn get(&self) -> Option<Vec<u8>> {
        let free = lock(&self.0).pop();
        free.or_else(|| {
            let mut new = Vec::new();
            new.try_reserve_exact(LEN).ok()?;
            new.resize(LEN, 0);
            Some(new)
        })
    }

    /// Takes a buffer back, or frees it.
    pub(super) fn put(&self, buffer: Vec<u8>) {
        let mut free = lock(&self.0);
        if free.len() < FREE && free.try_reserve(1).is_ok() {
            free.push(buffer);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        lock(&self.0).len()
    }
}
