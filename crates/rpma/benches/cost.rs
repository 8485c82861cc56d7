// SPDX-License-Identifier: BSD-3-Clause
//! `cost WAY ROUNDS`: ROUNDS writes of 8 bytes, each with its completion, for a program that counts
//! instructions. WAY is `core` (the functions behind the C interface), `polled` or `awaited` (this crate).

mod ways;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, way, rounds] = &arguments[..] else {
        // As a benchmark of cargo's it has nothing to do.
        return;
    };
    let rounds = rounds.parse().expect("a number of rounds");
    match &way[..] {
        "core" => ways::core(|write| (0..rounds).for_each(|_| write())),
        "polled" => ways::polled(|write| (0..rounds).for_each(|_| write())),
        "awaited" => ways::awaited(|writes| {
            writes(rounds);
        }),
        _ => panic!("core, polled or awaited, not {way}"),
    }
}
