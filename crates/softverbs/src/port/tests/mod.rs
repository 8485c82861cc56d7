// SPDX-License-Identifier: BSD-3-Clause
//! The port with real sockets and processes.
//!
//! A test runs its body, a *world*, in a new process in a new network namespace. The world starts *members*:
//! processes with one queue pair number each, which carry out commands. World and members are this test
//! binary with another test, which is ignored otherwise.

mod copies;
mod deferred;
mod endpoint;
mod group;
mod icmp;
mod link_local;
mod member;
mod process;
mod steering;
mod threads;
mod users;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Port, Sender};
use crate::namespace;
use transport::route::Route;

/// The world of the process.
const WORLD: &str = "SOFTVERBS_TEST_WORLD";
/// The variable that repeats a run with its seed.
const SEED: &str = "SEED";

fn this_binary(test: &str) -> Vec<String> {
    let binary = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    let test = format!("port::tests::{test}");
    [&binary, "--exact", &test, "--ignored", "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec()
}

/// Runs a world in a new network namespace; skips it if the host does not permit that.
fn in_namespace(world: &str) {
    in_namespace_with(world, &[]);
}

/// As [`in_namespace`], with these variables.
fn in_namespace_with(world: &str, variables: &[(&str, &str)]) {
    let Some(mut command) = namespace::command() else { return };
    command.args(this_binary("world")).env(WORLD, world).envs(variables.iter().copied());
    let status = command.status().unwrap();
    assert!(status.success(), "{world}: {status}");
}

#[test]
#[ignore = "started by other tests"]
fn world() {
    let Ok(world) = std::env::var(WORLD) else { return };
    match world.as_str() {
        "two" => group::two(),
        "many" => group::many(),
        "broken" => steering::broken(),
        "mixed" => steering::mixed(),
        "stopped" => steering::stopped(),
        "requests" => steering::requests(),
        "containers" => group::containers(),
        "users" => users::users(),
        "hostile" => users::hostile(),
        "before" => users::before(),
        "chosen" => users::chosen(),
        "listening" => users::listening(),
        "executes" => users::executes(),
        "forked" => group::forked(),
        "exhausted" => group::exhausted(),
        "exits" => group::exits(),
        "interrupted" => group::interrupted(),
        "writable" => endpoint::writable(),
        "buffer" => endpoint::buffer(),
        "icmp" => icmp::icmp(),
        "polling" => threads::polling(),
        "rebinds" => threads::rebinds(),
        "stops" => threads::stops(),
        "repeated" => deferred::repeated(),
        "held" => deferred::held(),
        "rejections" => copies::rejections(),
        "floods" => copies::floods(),
        "link-local" => link_local::link_local(),
        other => panic!("{other}"),
    }
}

/// A sender for queue pair `num`.
fn sender_to(port: &Arc<Port>, num: u32, local: IpAddr, peer: IpAddr, traffic_class: u8) -> Sender {
    let mut sender = port.sender(num);
    assert!(sender.aim(&Route { local, peer, scope: 0, traffic_class, hop_limit: 0 }));
    sender
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::yield_now();
    }
}
