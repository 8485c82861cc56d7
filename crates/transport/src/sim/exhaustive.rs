// SPDX-License-Identifier: BSD-3-Clause
//! All small worlds: two requests of every kind, the stream divided at every byte, and each way to end at
//! every such point. There is no seed: all sequences of choices are enumerated.

use super::memory::{self, COUNTERS, PERSISTENT, READABLE, SINKS, SOURCE, WRITABLE};
use super::plan::{Disk, Plan, SidePlan};
use super::random::{Count, Draw};
use super::request::Mix;
use super::world::Sim;
use crate::iwarp::conn::{Framing, Role, Sizes};
use crate::step::Quota;
use crate::step::reason;
use crate::wr::{Local, Op, SendWr, Sge};

/// Opcode, region of the peer, bytes. The longest needs a second segment, and is gathered.
const KINDS: [(Op, usize, usize); 10] = [
    (Op::Write, PERSISTENT, 8),
    (Op::WriteWithImm, WRITABLE, 3),
    (Op::Read, READABLE, 70),
    (Op::Read, PERSISTENT, 8),
    (Op::Send, READABLE, 0),
    (Op::SendWithImm, READABLE, 5),
    (Op::SendWithInv, READABLE, 5),
    (Op::Send, READABLE, 115),
    (Op::FetchAdd, COUNTERS, 8),
    (Op::CompareSwap, COUNTERS, 8),
];

fn plan(crc: bool) -> Plan {
    let side = SidePlan {
        framing: Framing { crc, mulpdu: 128, segment: None, ord: 1 },
        sizes: Sizes { buffer: 128, direct: 65, behind_direct: 20, ..Sizes::default() },
        wait: true,
        max_send_wr: 2,
        send_cq: 8,
        recv_cq: 8,
        budget: Quota::of_bytes(1 << 16),
        disk: Disk::Slow,
        mix: Mix { scatter: 256, ..Mix::default() },
        ..SidePlan::default()
    };
    let announces = SidePlan { role: Role::INITIATOR_ANNOUNCED, requests: 2, ..side };
    let awaits = SidePlan { role: Role::RESPONDER_ANNOUNCED, ..side };
    Plan { sides: [announces, awaits], capacity: [4000; 2], arrival: 4000, ..Plan::default() }
}

fn request(index: usize, kind: usize) -> SendWr {
    let (op, region, len) = KINDS[kind];
    let atomic = matches!(op, Op::FetchAdd | Op::CompareSwap);
    let own = if op == Op::Read || atomic { SINKS } else { SOURCE };
    let (mut addr, lkey) = (memory::base(0, own) + 64 * index as u64, memory::stag(0, own));
    let lens = if op == Op::Read { READ_LENS } else { LENS };
    let lens = lens.iter().copied().filter(|_| len as u32 == lens.iter().sum());
    let mut entries: Vec<Sge> = lens
        .map(|len| {
            addr += 200;
            Sge::new(addr, len, lkey)
        })
        .collect();
    if entries.is_empty() {
        entries.push(Sge::new(addr, len as u32, lkey));
    }
    SendWr {
        wr_id: 10_000 + index as u64,
        op,
        signaled: true,
        fence: false,
        solicited: false,
        imm: [1, 2, 3, index as u8],
        local: match entries[..] {
            [sink] if atomic => {
                Local::Atomic { addr: sink.addr, lkey: sink.lkey(), compare_add: index as u64, swap: 5 }
            }
            _ => Local::memory(&entries).unwrap(),
        },
        len: len as u32,
        remote_addr: memory::base(1, region) + 8,
        rkey: if op == Op::SendWithInv { memory::window(1, index) } else { memory::stag(1, region) },
        to: None,
    }
}

/// The entries of the longest Send: it is cut within one of them.
const LENS: &[u32] = &[1, 114 - 30, 30];
/// Those of the longest read.
const READ_LENS: &[u32] = &[60, 1, 9];

/// Steps both sides until nothing moves, without timers and without new receives.
fn run_dry(sim: &mut Sim) {
    loop {
        let mut moved = false;
        for me in 0..2 {
            sim.wake(me);
            moved |= sim.step(me) | sim.disk(me);
        }
        sim.actions += 1;
        assert!(sim.actions < 1000, "no progress");
        if !moved {
            return;
        }
    }
}

/// One small world. The pieces are those in which bytes arrive, or those that the link takes.
fn world(sim: &mut Sim, count: &mut Count) {
    let crc = count.below(2) == 1;
    sim.begin(plan(crc), Draw::new(0));
    let early = count.below(2) == 0;
    for _ in 0..if early { 2 } else { 0 } {
        sim.post_receive(1);
    }
    for index in 0..2 {
        let wr = request(index, count.below(KINDS.len()));
        sim.posted(0, wr);
    }
    let narrow = !crc && count.below(2) == 1;
    if narrow {
        sim.pipes[0].capacity = 1 + count.below(100);
    }
    sim.open(0);
    sim.open(1);
    sim.sides[0].reasons |= reason::POSTED;
    run_dry(sim);
    let way = if narrow { 0 } else { count.below(5) };
    // Where the stream is cut. In a narrow link that is where it was full.
    let at = if narrow { usize::MAX } else { count.below(sim.pipes[0].on_the_way() + 1) };
    sim.arrive(0, at);
    run_dry(sim);
    match way {
        0 => {}
        1 => sim.reset(),
        2 => drop(sim.disconnect(0)),
        3 => drop(sim.disconnect(1)),
        _ => {
            sim.disconnect(0);
            run_dry(sim);
            sim.arrive(0, usize::MAX);
            // Then its process has ended.
            sim.exit(0);
        }
    }
    run_dry(sim);
    sim.phase_2();
}

#[test]
fn every_tiny_world() {
    let (mut sim, mut count, mut worlds) = (Sim::new(), Count::default(), 0u64);
    loop {
        let choices = count.choices();
        let run = std::panic::AssertUnwindSafe(|| world(&mut sim, &mut count));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("world {worlds} fails; its choices begin with {choices:?}");
            std::panic::resume_unwind(panic);
        }
        worlds += 1;
        if !count.next() {
            break;
        }
    }
    println!("{worlds} worlds");
    assert!(worlds > 50_000);
}
