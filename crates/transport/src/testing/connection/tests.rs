// SPDX-License-Identifier: BSD-3-Clause
//! The harness itself, on inputs that look random, with memory in byte arrays.

use super::input::Input;
use super::memory::{LEN, Table};
use super::{Start, run};
use crate::access::{Bind, Denied};
use crate::iwarp::conn::Role;
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
    let roles = [Role::INITIATOR, Role::INITIATOR_ANNOUNCED, Role::RESPONDER, Role::RESPONDER_TOLD];
    for seed in 0..1_000 {
        let mut draw = Draw::new(seed);
        let bytes: Vec<u8> = (0..draw.below(400)).map(|_| draw.below(256) as u8).collect();
        let start = Start {
            crc: draw.below(4) == 0,
            ord: draw.below(4) as u32,
            role: draw.one_of(&roles),
            early: &[],
        };
        let words = (0..LEN as u64 / 8).flat_map(u64::to_ne_bytes).collect();
        run(&mut Input::new(&bytes), start, Regions::new(BASE, words, Vec::new()));
    }
}
