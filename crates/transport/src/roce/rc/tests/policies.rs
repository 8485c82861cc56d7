// SPDX-License-Identifier: BSD-3-Clause
//! The heuristics in every mode: any window and any choice of acknowledgements is correct.

use super::pair::{Fate, MTU, Pair, wr};
use crate::policy::mode::{MODES, Mode};
use crate::roce::wire::Operation;
use crate::step::reason;
use crate::wr::{Op, status};

const OK: u32 = status::SUCCESS;
const PACKETS: usize = 100;

/// Posts a long write and a long read.
fn posted(mode: Mode, retries: u8) -> Pair {
    let mut pair = Pair::in_mode(mode, |_, terms| terms.retries = retries);
    pair.fill(0, 0, PACKETS * MTU, 9);
    pair.post(0, wr(1, Op::Write, 0, (PACKETS * MTU) as u32, 0x8000));
    pair.post(0, wr(2, Op::Read, 0, (PACKETS * MTU) as u32, 0x8000));
    pair
}

#[test]
fn without_a_loss_no_mode_waits_for_a_timer() {
    for mode in MODES {
        let mut pair = posted(mode, 0);
        for (id, len) in [(3, MTU + 1), (4, 8), (5, 20 * MTU), (6, 0)] {
            pair.post(0, wr(id, Op::Write, 0, len as u32, 0));
        }
        pair.settle();
        assert_eq!(pair.done(0), [1, 2, 3, 4, 5, 6].map(|id| (id, OK)), "{mode:?}");
        assert_eq!(pair.bytes(0, 0, MTU), pair.bytes(1, 0x8000, MTU));
    }
}

#[test]
fn a_full_receive_buffer_costs_round_trips_only() {
    for (mode, room) in MODES.into_iter().flat_map(|mode| [2, 8, 50].map(|room| (mode, room))) {
        let mut pair = posted(mode, 7);
        let (mut round_trips, mut timeouts, mut done) = (0, 0, Vec::new());
        while done.len() < 2 {
            let mut arrived = [0; 2];
            let mut fate = |from: usize, _: Operation| {
                arrived[from] += 1;
                if arrived[from] > room { Fate::Lost } else { Fate::Arrives }
            };
            pair.step(0, reason::POSTED | reason::READABLE);
            let sent = pair.carry(0, &mut fate);
            pair.step(1, reason::READABLE);
            let replied = pair.carry(1, &mut fate);
            if !sent && !replied {
                assert!(pair.expire(0), "nothing is under way, {mode:?}");
                timeouts += 1;
            }
            round_trips += 1;
            assert!(round_trips <= 2 * PACKETS + 2 * timeouts, "{mode:?} with room for {room}");
            done.extend(pair.done(0));
        }
        assert_eq!(done, [(1, OK), (2, OK)], "{mode:?} with room for {room}");
        // The timer fires twice before packets are sent again. Those that find room may have requested no
        // acknowledgement; sent once more, they are acknowledged as duplicates.
        let most = 4 * (2 * PACKETS).div_ceil(room) + 2;
        assert!(timeouts <= most, "{timeouts} timeouts, {mode:?} with room for {room}");
        assert_eq!(pair.bytes(0, 0, PACKETS * MTU), pair.bytes(1, 0x8000, PACKETS * MTU));
    }
}
