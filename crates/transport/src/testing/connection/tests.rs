// SPDX-License-Identifier: BSD-3-Clause
//! The harness itself, on inputs that look random, with memory in byte arrays.

use super::memory::{LEN, Table};
use super::run;
use crate::access::{Bind, Denied};
use crate::sim::random::Draw;
use crate::testing::memory::{Region, Regions, State};

const BASE: u64 = 0x1_0000;

impl Table for Regions {
    fn base(&self) -> u64 {
        BASE
    }

    fn word(&self, index: usize) -> u64 {
        u64::from_ne_bytes(self.at(BASE + 8 * index as u64, 8).try_into().unwrap())
    }

    fn register(&mut self, addr: u64, len: usize, rights: u32, own: bool) -> u32 {
        let stag = 0x100 * (self.table.len() as u32 + 1);
        let state = if own { State::Mapped } else { State::Foreign };
        self.table.push(Region { stag, addr, len, rights, state });
        stag
    }

    fn deregister(&mut self, stag: u32) {
        let region = self.find(stag).expect("registered");
        self.table[region].state = State::Deregistered;
    }

    fn bind(&mut self, _window: Bind) -> Result<(), Denied> {
        Err(Denied::Stag)
    }

    fn invalidate(&mut self, _stag: u32) -> Result<(), Denied> {
        Err(Denied::Stag)
    }
}

/// Few of the rounds of the fuzzer, but in every run of the tests.
#[test]
fn random_inputs() {
    for seed in 0..2_000 {
        let mut draw = Draw::new(seed);
        let mut bytes: Vec<u8> = (0..draw.below(400)).map(|_| draw.below(256) as u8).collect();
        if let Some(first) = bytes.first_mut() {
            // Of half of all inputs: a frame that is in order.
            *first = if draw.chance(128) { *first & 0x13 | 8 } else { *first };
        }
        run(&bytes, || {
            let words = (0..LEN as u64 / 8).flat_map(u64::to_ne_bytes).collect();
            Regions::new(BASE, words, Vec::new())
        });
    }
}
