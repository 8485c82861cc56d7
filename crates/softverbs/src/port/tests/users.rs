// SPDX-License-Identifier: BSD-3-Clause
//! Another user of the host.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use super::member::{Member, exchange, nothing_is_left, start};
use super::{in_namespace, in_namespace_with, this_binary};
use crate::port::socket::Family;

/// A user of no process here.
pub(super) const OTHER_USER: u32 = 54_321;

/// Whether this process may start others as another user.
pub(super) fn may_change_user() -> bool {
    let may = Command::new(std::env::current_exe().unwrap()).arg("--list").uid(OTHER_USER).output();
    let may = may.is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("skipped: no other user permitted");
    }
    may
}

#[test]
fn the_port_and_slots_of_another_user_are_left_alone() {
    in_namespace("users");
}

pub(super) fn users() {
    if !may_change_user() {
        return;
    }
    // Slots are skipped.
    let mut hog = Member::spawn_as(&this_binary("process::hostile"), Family::V4, Some(OTHER_USER));
    hog.started().unwrap();
    hog.command("hold 1 200");
    let mut members = start(Family::V4, 8);
    assert!(members.iter().all(|member| member.num >> 16 > 200));
    exchange(&mut members, 10);
    // Only the user who has bound the port may share it.
    let mut other = Member::spawn_as(&this_binary("process::member"), Family::V4, Some(OTHER_USER));
    assert_eq!(other.started(), Err(libc::EADDRINUSE));
    drop((members, other));
    nothing_is_left();
    // No slot.
    hog.command("hold 201 254");
    let mut member = Member::spawn_as(&this_binary("process::member"), Family::V4, None);
    assert_eq!(member.started(), Err(libc::EAGAIN));
}

#[test]
fn a_datagram_of_another_user_is_not_believed() {
    in_namespace("hostile");
}

pub(super) fn hostile() {
    let mut random = fastrand::Rng::with_seed(4791);
    let mut members = start(Family::V4, 2);
    exchange(&mut members, 1);
    let (num, peer) = (members[0].num, members[1].num);
    let free: Vec<_> = (1..=254).filter(|slot| ![num >> 16, peer >> 16].contains(slot)).collect();
    let users = if may_change_user() { &[None, Some(OTHER_USER)][..] } else { &[None] };
    for user in users {
        let mut hostile = Member::spawn_as(&this_binary("process::hostile"), Family::V4, *user);
        hostile.started().unwrap();
        let slot = free[random.usize(..free.len())];
        hostile.command(&format!("hold {slot} {slot}"));
        let before = members[0].report();
        let count = before.got + u32::from(user.is_none());
        hostile.command(&format!("forge {num}"));
        // What was sent before it has arrived.
        members[1].send(1, &[num]);
        members[0].expects(count + 1);
        assert_eq!(members[0].report().distrusted - before.distrusted, u32::from(user.is_some()));
        // Garbage has no effect.
        hostile.command(&format!("garbage {num} {}", random.u32(..)));
        members[1].send(1, &[num]);
        members[0].expects(count + 2);
    }
}

#[test]
fn the_port_of_another_user_is_an_error_until_it_is_free() {
    in_namespace("before");
}

pub(super) fn before() {
    if !may_change_user() {
        return;
    }
    let mut hostile = Member::spawn_as(&this_binary("process::hostile"), Family::V4, Some(OTHER_USER));
    hostile.started().unwrap();
    // One that has its slot, and not yet the port.
    let mut late = Member::spawn_as(&this_binary("process::late"), Family::V4, None);
    late.started().unwrap();
    let slot = late.num >> 16;
    for address in 0..3 {
        hostile.command(&format!("port {address}"));
        let mut early = Member::spawn_as(&this_binary("process::member"), Family::V4, None);
        assert_eq!(early.started(), Err(libc::EADDRINUSE), "address {address}");
        assert_eq!(late.bind(), Err(libc::EADDRINUSE), "address {address}");
        hostile.command("release");
    }
    late.bind().unwrap();
    assert_eq!(late.num >> 16, slot);
    exchange(&mut start(Family::V4, 2), 1);
}

/// A process that cannot read /proc cannot tell which slots are its user's.
fn without_proc(transport: u32) {
    let hidden = ["unshare", "--mount", "sh", "-ec", "mount -t tmpfs none /proc; exec \"$@\"", "sh"];
    let command = [&hidden.map(str::to_owned)[..], &this_binary("process::chooser")].concat();
    let mut process = Member::spawn_as(&command, Family::V4, None);
    process.started().unwrap();
    assert_eq!((process.num, process.query("is-bound")), (transport, 0));
}

#[test]
fn auto_is_roce_for_the_user_who_has_the_port_and_iwarp_for_others() {
    in_namespace_with("chosen", &[("SOFTVERBS_TRANSPORT", "auto")]);
}

pub(super) fn chosen() {
    const IWARP: u32 = 1;
    const ROCE: u32 = 2;
    let start = |user| {
        let mut process = Member::spawn_as(&this_binary("process::chooser"), Family::V4, user);
        process.started().unwrap();
        process
    };
    let mut first = start(None);
    assert_eq!((first.num, first.query("is-bound")), (ROCE, 1), "no other process can take the port now");
    first.command("child");
    assert_eq!(start(None).num, ROCE);
    without_proc(IWARP);
    if !may_change_user() {
        return;
    }
    let mut other = start(Some(OTHER_USER));
    assert_eq!((other.num, other.query("is-bound")), (IWARP, 0));
    drop(first);
    nothing_is_left();
    // The choice of a process does not change; that of the next one is made anew.
    assert_eq!(other.query("transport"), IWARP);
    other.command("child");
    let other = start(Some(OTHER_USER));
    assert_eq!((other.num, start(None).num), (ROCE, IWARP));
    // A user whose processes do not trust each other.
    assert_eq!(start(Some(65534)).num, IWARP);
    // No slot.
    drop(other);
    nothing_is_left();
    let mut hog = Member::spawn_as(&this_binary("process::hostile"), Family::V4, Some(OTHER_USER));
    hog.started().unwrap();
    hog.command("hold 1 254");
    assert_eq!(start(None).num, IWARP);
}

#[test]
fn another_user_gets_no_message_of_connection_management() {
    in_namespace("listening");
}

pub(super) fn listening() {
    let users = if may_change_user() { &[None, Some(OTHER_USER)][..] } else { &[None] };
    for user in users {
        let mut members = start(Family::V4, 2);
        let mut hostile = Member::spawn_as(&this_binary("process::hostile"), Family::V4, *user);
        hostile.started().unwrap();
        let taken: Vec<_> = members.iter().map(|member| member.num >> 16).collect();
        let free = (1..=254).find(|slot| !taken.contains(slot)).unwrap();
        hostile.command(&format!("hold {free} {free}"));
        let is_trusted = u32::from(user.is_none());
        // Its socket claims a port, for which it gets no requests.
        hostile.command("service 7471");
        assert_eq!(members[0].query("listen 7471"), libc::EADDRINUSE as u32);
        assert_eq!(members[0].query("find 7471"), is_trusted);
        // What it passes on to a listener is dropped.
        assert_eq!(members[0].query("listen 7472"), 0);
        assert_eq!(members[1].query("find 7472"), 1);
        let (num, before) = (members[0].num, members[0].report());
        hostile.command(&format!("forge-message {num} 7472"));
        let begin = Instant::now();
        while members[0].query("messages") + members[0].report().distrusted == before.distrusted {
            assert!(begin.elapsed() < Duration::from_secs(10), "it has not arrived");
        }
        assert_eq!(members[0].query("messages"), is_trusted);
        // It gets no positions: only a socket of the group may query them.
        hostile.command("query");
        exchange(&mut members, 1);
        assert_eq!(hostile.query("answers"), 0);
        exchange(&mut members, 1);
    }
}

#[test]
fn a_process_that_executes_another_program_leaves_the_port() {
    in_namespace("executes");
}

pub(super) fn executes() {
    let mut members = start(Family::V4, 3);
    members[0].query("listen 7471");
    exchange(&mut members, 1);
    members[0].command("exec");
    let begin = Instant::now();
    while members[1].query("find 7471") == 1 {
        assert!(begin.elapsed() < Duration::from_secs(10), "the new program has its sockets");
    }
    let executed = members.remove(0);
    exchange(&mut members, 10);
    drop(members);
    nothing_is_left();
    if may_change_user() {
        let mut other = Member::spawn_as(&this_binary("process::member"), Family::V4, Some(OTHER_USER));
        other.started().unwrap();
    }
    drop(executed);
}
