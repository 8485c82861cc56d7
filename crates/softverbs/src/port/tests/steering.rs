// SPDX-License-Identifier: BSD-3-Clause
//! Packets that the filter delivers to another process.

use std::process::Command;
use std::time::{Duration, Instant};

use super::in_namespace;
use super::member::{Member, exchange, start};
use crate::cm_peer::{Peer, req};
use crate::port::socket::Family;
use transport::roce::wire::cm::Message;

#[test]
fn packets_arrive_whatever_the_filter_returns() {
    in_namespace("broken");
}

pub(super) fn broken() {
    let mut members = start(Family::V4, 5);
    exchange(&mut members, 1);
    for _ in 0..20 {
        members[0].command("scramble");
        exchange(&mut members, 3);
    }
    let forwarded =
        |members: &mut [Member]| members.iter_mut().map(|member| member.report().forwarded).sum::<u32>();
    assert_ne!(forwarded(&mut members), 0);
    // It is repaired, after a while also if nothing more arrives.
    let begin = Instant::now();
    loop {
        let before = forwarded(&mut members);
        exchange(&mut members, 1);
        if forwarded(&mut members) == before {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(member: &Member, signal: &str) {
    let pid = member.process.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

#[test]
fn packets_of_one_batch_go_to_the_processes_of_their_queue_pairs() {
    in_namespace("mixed");
}

/// The filter delivers a batch as a whole to the process of its first packet.
pub(super) fn mixed() {
    for family in Family::ALL {
        let mut members = start(family, 3);
        let nums: Vec<_> = members.iter().map(|member| member.num.to_string()).collect();
        members[0].command(&format!("mix 100 {}", nums.join(" ")));
        let mut forwarded = 0;
        for member in &mut members {
            member.expects(100);
            forwarded += member.report().forwarded;
        }
        assert_ne!(forwarded, 0, "all batches had packets of one process only");
    }
}

#[test]
fn a_stopped_process_costs_others_nothing_but_a_moment() {
    in_namespace("stopped");
}

pub(super) fn stopped() {
    let mut members = start(Family::V4, 6);
    exchange(&mut members, 1);
    let mut stopped = members.remove(3);
    let position = stopped.position();
    signal(&stopped, "-STOP");
    // All packets go to its position.
    members[0].command(&format!("steer {position}"));
    // No process can forward them, until a check fails.
    std::thread::sleep(Duration::from_millis(2_500));
    exchange(&mut members, 10);
    signal(&stopped, "-CONT");
    members.push(stopped);
    exchange(&mut members, 10);
}

#[test]
fn a_stopped_process_gets_requests_only_for_a_moment() {
    in_namespace("requests");
}

pub(super) fn requests() {
    let mut members = start(Family::V4, 4);
    exchange(&mut members, 1);
    // Until no process has a reason to find the positions again.
    std::thread::sleep(Duration::from_secs(3));
    let mut stopped = members.remove(1);
    let position = stopped.position();
    signal(&stopped, "-STOP");
    // All requests go to its position, and all other packets to the right ones.
    members[0].command(&format!("default {position}"));
    let begin = Instant::now();
    while members.iter_mut().map(|member| member.query("messages")).sum::<u32>() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "no request has arrived");
        Peer::send_from_any_port(Message::Req(req(7471, 1)));
        std::thread::sleep(Duration::from_millis(20));
    }
}
