// SPDX-License-Identifier: BSD-3-Clause
//! A connection manager whose answers wait.
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::time::Instant;

use super::*;
use crate::namespace;
use crate::port::Agent as _;
use transport::roce::wire::cm::{Dreq, Message};

/// Set in the process in a new network namespace, where no other test uses UDP port 4791.
const ALONE: &str = "SOFTVERBS_TEST_ALONE";

#[test]
fn a_flood_does_not_grow_the_queue() {
    if std::env::var_os(ALONE).is_some() {
        return flood();
    }
    let Some(mut command) = namespace::command() else { return };
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "cm::roce::agent::tests::a_flood_does_not_grow_the_queue"]);
    let output = command.env(ALONE, "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

fn flood() {
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
