// SPDX-License-Identifier: BSD-3-Clause
//! The world around a connection, for tests.
//!
//! [`world`] implements [`crate::host::Host`] once, for all of them: the simulation, which joins two
//! connections by its network and checks what they do; unit tests, which script one side ([`recorder`]) and
//! compare what it calls; and fuzz targets, which feed it ([`connection`]). [`memory`] and [`queues`] are the
//! same for every transport, as is the recorder; [`stream`] and [`packets`] are their links.
//!
//! The module is compiled for tests, with `--cfg fuzzing`, and with the feature `testing`, which no library
//! enables.

pub mod connection;
pub mod memory;
pub mod packets;
pub mod queues;
pub mod rc;
pub mod recorder;
pub mod sidr;
pub mod stream;
pub mod ud;
pub mod world;

/// Runs `input` with random bytes, fewer than `longest`: few of the rounds of a fuzzer, but in every run of
/// the tests. Fewer still under Miri.
#[cfg(test)]
fn random_inputs(rounds: u64, longest: usize, mut input: impl FnMut(&[u8])) {
    for seed in 0..if cfg!(miri) { 5 } else { rounds } {
        let mut draw = crate::sim::random::Draw::new(seed);
        let bytes: Vec<u8> = (0..draw.below(longest)).map(|_| draw.below(256) as u8).collect();
        input(&bytes);
    }
}
