// SPDX-License-Identifier: BSD-3-Clause
//! Processes that share the port, and come and go.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::member::{Member, exchange, nothing_is_left, start};
use super::{SEED, in_namespace, this_binary};
use crate::port::socket::Family;

/// They fit the receive buffer of a socket.
const PACKETS: u32 = 40;

#[test]
fn two_processes_exchange_packets() {
    in_namespace("two");
}

pub(super) fn two() {
    for family in Family::ALL {
        let mut members = start(family, 2);
        assert_ne!(members[0].num >> 16, members[1].num >> 16, "a slot each");
        exchange(&mut members, 100);
    }
    nothing_is_left();
}

#[test]
fn sixty_four_processes_exchange_packets_while_some_are_killed() {
    in_namespace("many");
}

pub(super) fn many() {
    let seed = std::env::var(SEED).map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("{SEED}={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut members = start(Family::V4, 64);
    for _ in 0..10 {
        // All send at once, and some die meanwhile.
        let nums: Vec<_> = members.iter().map(|member| member.num).collect();
        members.iter_mut().for_each(|member| member.begin_send(1, &nums));
        random.shuffle(&mut members);
        let killed = random.usize(1..20);
        for member in members.drain(..killed) {
            std::thread::sleep(Duration::from_micros(random.u64(..2_000)));
            drop(member);
        }
        members.iter_mut().for_each(Member::end_send);
        members.extend(start(Family::V4, killed));
    }
    assert_eq!(members.len(), 64);
    exchange(&mut members, 1);
    // By now the filter has all positions.
    let before: u32 = members.iter_mut().map(|member| member.report().forwarded).sum();
    exchange(&mut members, 2);
    let after: u32 = members.iter_mut().map(|member| member.report().forwarded).sum();
    assert!(after - before < 64 * 64, "{} of {} packets were forwarded", after - before, 64 * 64 * 2);
    drop(members);
    nothing_is_left();
}

#[test]
fn containers_of_one_network_namespace_share_the_port() {
    in_namespace("containers");
}

pub(super) fn containers() {
    let inside = |command: &[String]| {
        let flags =
            ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"].map(str::to_owned);
        Member::spawn_as(&[&flags, command].concat(), Family::V4, None)
    };
    let mut members: Vec<_> = (0..3).map(|_| inside(&this_binary("process::member"))).collect();
    members.extend((0..2).map(|_| Member::spawn_as(&this_binary("process::member"), Family::V4, None)));
    members.iter_mut().for_each(|member| member.started().unwrap());
    exchange(&mut members, 50);
    drop(members);
    nothing_is_left();
}

#[test]
fn a_child_after_fork_has_a_slot_and_a_port_of_its_own() {
    in_namespace("forked");
}

pub(super) fn forked() {
    let mut parent = Member::start(Family::V4);
    parent.command("fork");
    exchange(std::slice::from_mut(&mut parent), 10);
}

#[test]
fn a_process_that_exits_forwards_the_packets_of_others() {
    in_namespace("exits");
}

pub(super) fn exits() {
    for _ in 0..20 {
        let mut leaving = Member::start(Family::V4);
        let mut staying = Member::start(Family::V4);
        // It belongs to the exit of a process that had the slot before.
        staying.command(&format!("confirm {}", leaving.num));
        staying.send(1, &[leaving.num]);
        leaving.expects(1);
        // What it sends arrives at its own socket.
        leaving.command("steer 0");
        leaving.leave(PACKETS, staying.num);
        staying.expects(PACKETS);
    }
    // It waits for a process that is stopped, a second at most; not if it gets its locks too late, as on a
    // busy machine.
    let waits = || {
        let mut leaving = Member::start(Family::V4);
        let staying = Member::start(Family::V4);
        leaving.command("steer 0");
        kill_process(Pid::from_child(&staying.process), Signal::STOP).unwrap();
        let begin = Instant::now();
        leaving.leave(PACKETS, staying.num);
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?}");
        took >= Duration::from_secs(1)
    };
    assert!((0..5).any(|_| waits()), "it does not wait");
}

#[test]
fn a_handler_that_interrupts_a_poll_exits_soon() {
    in_namespace("interrupted");
}

pub(super) fn interrupted() {
    // A process that waits for a processor exits later.
    let exits_soon = |_| {
        let member = Member::start(Family::V4);
        let begin = Instant::now();
        member.exit("interrupt");
        begin.elapsed() < Duration::from_secs(1)
    };
    assert!((0..5).any(exits_soon));
}

#[test]
fn a_process_without_descriptors_waits_for_offers_idle() {
    in_namespace("exhausted");
}

pub(super) fn exhausted() {
    let mut members = start(Family::V4, 2);
    let num = members[0].num;
    members[0].command("exhaust");
    members[1].command(&format!("connect {num}"));
    let used = members[0].query("use");
    assert!(used < 100, "{used} ms of 300");
}
