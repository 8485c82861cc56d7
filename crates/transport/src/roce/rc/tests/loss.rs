// SPDX-License-Identifier: BSD-3-Clause
//! The time of a transfer over a link that loses packets, on a virtual clock: losses cost round trips, not
//! local ACK timeouts.

use super::pair::{Fate, MTU, Pair, wr};
use crate::sim::random::Draw;
use crate::step::reason;
use crate::units::Micros;
use crate::wr::{Op, status};

/// The time of a packet from one side to the other.
const ONE_WAY_US: Micros = 100;
/// The local ACK timeout that rdma_cm of Linux 6.1 sets: 2.1 s.
const TIMEOUT: u8 = 19;
/// The limit on the time of a transfer: a third of one timeout.
const LIMIT_US: Micros = 700_000;
const MESSAGES: u64 = 200;
const MESSAGE_LEN: u32 = 64 * MTU as u32;

/// Transfers messages over a link that loses `loss` of 256 packets. Returns the time.
fn transfer(op: Op, loss: u32, seed: u64) -> Micros {
    let mut draw = Draw::new(seed);
    let mut pair = Pair::with(|_, terms| terms.timeout = TIMEOUT);
    let begin = pair.hosts[0].now;
    let (mut posted, mut done) = (0, 0);
    while done < MESSAGES {
        while posted < MESSAGES && posted - done < 16 {
            pair.post(0, wr(posted, op, 0, MESSAGE_LEN, 0x8000));
            posted += 1;
        }
        let now = pair.hosts[0].now;
        for me in 0..2 {
            let is_due = pair.conns[me].deadline().is_some_and(|deadline| deadline <= now);
            let time = if is_due { reason::TIME } else { 0 };
            pair.step(me, reason::POSTED | reason::READABLE | time);
        }
        let mut fate = |_, _| if draw.chance(loss) { Fate::Lost } else { Fate::Arrives };
        let moved = [0, 1].map(|me| pair.carry(me, &mut fate));
        let next = match moved {
            [false, false] => (0..2).filter_map(|me| pair.conns[me].deadline()).min().expect("a timer"),
            _ => now + ONE_WAY_US,
        };
        pair.hosts.iter_mut().for_each(|host| host.now = next.max(now));
        for (_, status) in pair.done(0) {
            assert_eq!(status, status::SUCCESS);
            done += 1;
        }
    }
    pair.hosts[0].now - begin
}

/// The responder requests the packets of a burst that its link had no room for, before any timer expires.
#[test]
fn the_end_of_a_burst_without_room_is_requested() {
    let mut pair = Pair::new();
    pair.post(0, wr(1, Op::Write, 0, MESSAGE_LEN / 8, 0x8000));
    pair.fill(0, 0, 8 * MTU, 1);
    pair.step(0, reason::POSTED);
    let mut packets = 0;
    pair.carry(0, &mut |_, _| {
        packets += 1;
        if packets > 4 { Fate::Lost } else { Fate::Arrives }
    });
    pair.hosts[1].link.has_lost = true;
    pair.settle();
    assert_eq!(pair.done(0), [(1, status::SUCCESS)]);
    assert_eq!(pair.bytes(1, 0x8000, 8 * MTU), pair.bytes(0, 0, 8 * MTU));
    // Between two messages nothing is requested.
    pair.hosts[1].link.has_lost = true;
    pair.step(1, reason::READABLE);
    assert!(pair.hosts[1].link.sent.is_empty());
}

/// The same burst without a loss: packets of another queue pair had no room. The NAK is for the packet behind
/// the window, which was not sent, and acknowledges all before it. There is no timer.
#[test]
fn a_nak_for_a_packet_that_was_not_sent_is_an_acknowledgement() {
    let mut pair = Pair::with(|_, terms| (terms.timeout, terms.retries) = (0, 0));
    pair.post(0, wr(1, Op::Write, 0, MESSAGE_LEN, 0x8000));
    pair.step(0, reason::POSTED);
    let packets = MESSAGE_LEN as usize / MTU;
    assert!((1..packets).contains(&pair.hosts[0].link.sent.len()), "the window");
    pair.carry(0, &mut |_, _| Fate::Arrives);
    pair.hosts[1].link.has_lost = true;
    pair.settle();
    assert_eq!((pair.done(0), pair.carried[0].len()), (vec![(1, status::SUCCESS)], packets));
}

/// As many packets as the window permits, which grew while nothing was lost.
fn burst(pair: &mut Pair) -> usize {
    for id in 0..16 {
        pair.post(0, wr(id, Op::Write, 0, MESSAGE_LEN, 0x8000));
    }
    pair.step(0, reason::POSTED);
    pair.hosts[0].link.sent.len()
}

/// The thread of a peer that waits for a processor is late, and is sent as much as before.
#[test]
fn a_pause_of_the_peer_is_no_loss() {
    for lost in [false, true] {
        let mut pair = Pair::new();
        (0..8).for_each(|id| pair.post(0, wr(id, Op::Write, 0, MESSAGE_LEN, 0x8000)));
        pair.settle();
        let mut window = burst(&mut pair);
        assert!(window > 500, "{window}");
        for _ in 0..5 {
            pair.carry(0, &mut |_, _| if lost { Fate::Lost } else { Fate::Arrives });
            while pair.hosts[0].link.sent.is_empty() {
                assert!(pair.expire(0));
            }
            let before = pair.carried[0].len();
            pair.settle();
            let resent = pair.carried[0].len() - before + window - 16 * 64;
            let next = burst(&mut pair);
            if lost {
                assert!(next < window, "{next}");
                break;
            }
            assert_eq!(resent, 2);
            assert!(next >= window, "{next}");
            window = next;
        }
    }
}

/// A late peer has the same window again if it has answered writes while a read behind them is outstanding.
#[test]
fn a_pause_of_the_peer_with_a_read_keeps_the_window() {
    let mut pair = Pair::new();
    (0..8).for_each(|id| pair.post(0, wr(id, Op::Write, 0, MESSAGE_LEN, 0x8000)));
    pair.settle();
    let window = burst(&mut pair);
    pair.settle();
    pair.fill(1, 0x8000, MTU, 1);
    (0..7).for_each(|id| pair.post(0, wr(id, Op::Write, 0, MESSAGE_LEN, 0x9000)));
    pair.post(0, wr(7, Op::Read, 0x8000, MTU as u32, 0x8000));
    pair.step(0, reason::POSTED);
    pair.carry(0, &mut |_, _| Fate::Arrives);
    while pair.hosts[0].link.sent.is_empty() {
        assert!(pair.expire(0));
    }
    assert_eq!(pair.hosts[0].link.sent.len(), 2, "the smallest window");
    pair.settle();
    assert_eq!(pair.bytes(0, 0x8000, MTU), pair.bytes(1, 0x8000, MTU));
    let next = burst(&mut pair);
    assert!(next >= window, "{next} of {window}");
}

/// One packet in 85 is lost, in each direction: 150 losses of requests alone.
#[test]
fn a_loss_costs_round_trips() {
    for op in [Op::Read, Op::Write] {
        for seed in 0..20 {
            let took = transfer(op, 3, seed);
            assert!(took < LIMIT_US, "{op:?}, seed {seed}: {took} us");
        }
    }
}
