// SPDX-License-Identifier: BSD-3-Clause
//! A connection manager whose locks are held by others.
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::time::Instant;

use super::*;
use crate::namespace;
use crate::port::Agent as _;
use transport::roce::wire::cm::{Dreq, Message};

/// Set in the process in a new network namespace, where no other test uses UDP port 4791.
const ALONE: &str = "SOFTVERBS_TEST_ALONE";

/// Starts the test `name` again in a new network namespace. True in that process.
fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let Some(mut command) = namespace::command() else { return false };
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("cm::roce::agent::tests::{name}")]);
    let output = command.env(ALONE, "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    false
}

#[test]
fn the_exit_of_the_process_waits_briefly_for_a_lock() {
    if !is_alone("the_exit_of_the_process_waits_briefly_for_a_lock") {
        return;
    }
    let agent = Agent::get().unwrap();
    for held in 0..2 {
        let begin = Instant::now();
        let state = (held == 0).then(|| lock(&agent.state));
        let running = (held == 1).then(|| lock(AGENT.get()));
        std::thread::scope(|threads| {
            threads.spawn(at_exit).join().unwrap();
        });
        drop((state, running));
        assert!(begin.elapsed() >= exit::MAX_DELAY, "it has not waited");
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_flood_does_not_grow_the_queue() {
    if !is_alone("a_flood_does_not_grow_the_queue") {
        return;
    }
    let agent = Agent::get().unwrap();
    let (here, peer) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from([127, 0, 0, 9]));
    // Answered by a DREP, as there is no such connection.
    let dreq = Dreq {
        local_comm_id: 5,
        remote_comm_id: u32::from(agent.port.slot()) << 24,
        remote_qpn: 7,
        private_data: [0; Dreq::PRIVATE_DATA_LEN],
    };
    let mad = Mad { transaction: 1, message: Message::Dreq(dreq) };
    let waiting = || lock(&agent.state).outputs.len();
    let delivery = lock(&agent.delivery);
    for _ in 0..MAX_WAITING_OUTPUTS {
        assert_eq!(agent.received(&mad, here, peer), Ok(true));
    }
    assert_eq!(agent.received(&mad, here, peer), Err(Full));
    assert_eq!(waiting(), MAX_WAITING_OUTPUTS);
    drop(delivery);
    let begin = Instant::now();
    while waiting() > 0 {
        agent.deliver();
        assert!(begin.elapsed() < Duration::from_secs(10), "{} wait", waiting());
    }
    assert_eq!(agent.received(&mad, here, peer), Ok(true));
}
