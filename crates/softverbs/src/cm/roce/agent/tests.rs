// SPDX-License-Identifier: BSD-3-Clause
//! The agent of connection management over RoCE while many messages wait, arrive or have to be sent.
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;
use crate::channel::EventQueue;
use crate::cm::calls;
use crate::cm_peer::{rej, req};
use crate::namespace;
use crate::port::Agent as _;
use crate::qp;
use transport::roce::wire::cm::{Dreq, Message, PortSpace, ServiceId, Transport};

/// Set in the process in a new network namespace, where no other test uses UDP port 4791.
const ALONE: &str = "SOFTVERBS_TEST_ALONE";

#[test]
fn a_flood_does_not_grow_the_queue() {
    alone("a_flood_does_not_grow_the_queue", flood);
}

#[test]
fn a_call_returns_while_messages_arrive() {
    alone("a_call_returns_while_messages_arrive", call_during_a_flood_of_messages);
}

#[test]
fn a_call_returns_while_requests_arrive() {
    alone("a_call_returns_while_requests_arrive", call_during_a_flood_of_requests);
}

#[test]
fn the_messages_of_a_call_are_sent_while_another_thread_reports_an_event() {
    alone("the_messages_of_a_call_are_sent_while_another_thread_reports_an_event", send_beside_an_event);
}

#[test]
fn the_exit_of_the_process_waits_briefly_for_a_lock() {
    alone("the_exit_of_the_process_waits_briefly_for_a_lock", exit_with_a_held_lock);
}

#[test]
fn no_event_of_a_request_precedes_its_object() {
    alone("no_event_of_a_request_precedes_its_object", withdraw_requests);
}

/// Runs a test of this module in a process of its own.
fn alone(name: &str, test: fn()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let Some(mut command) = namespace::command() else { return };
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("cm::roce::agent::tests::{name}")]);
    let output = command.env(ALONE, "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

/// A message that is answered by a DREP, as there is no such connection.
fn stray(agent: &Agent) -> Mad {
    let dreq = Dreq {
        local_comm_id: 5,
        remote_comm_id: u32::from(agent.port.slot()) << 24,
        remote_qpn: 7,
        private_data: [0; Dreq::PRIVATE_DATA_LEN],
    };
    Mad { transaction: 1, message: Message::Dreq(dreq) }
}

fn exit_with_a_held_lock() {
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

fn send_beside_an_event() {
    let agent = Agent::get().unwrap();
    let mad = stray(&agent);
    let _reporting = lock(&agent.reporting);
    let route = Route { local: HERE, remote: PEER };
    let received = agent.call(|state, now| state.manager.receive(&mad, route, now));
    assert_eq!((received, lock(&agent.state).messages.len()), (Received::Taken, 0));
}

fn flood() {
    let agent = Agent::get().unwrap();
    let mad = stray(&agent);
    let waiting = || lock(&agent.state).messages.len();
    let sending = lock(&agent.sending);
    for _ in 0..MAX_WAITING_OUTPUTS {
        assert_eq!(agent.received(&mad, HERE, PEER), Ok(true));
    }
    assert_eq!(agent.received(&mad, HERE, PEER), Err(Full));
    assert_eq!(waiting(), MAX_WAITING_OUTPUTS);
    // The engine, this thread and the owner.
    let references = Arc::strong_count(&agent);
    assert!(references < 10, "the engine is to call it {references} times");
    drop(sending);
    let begin = Instant::now();
    while waiting() > 0 {
        agent.deliver();
        assert!(begin.elapsed() < Duration::from_secs(10), "{} wait", waiting());
    }
    assert_eq!(agent.received(&mad, HERE, PEER), Ok(true));
}

fn call_during_a_flood_of_messages() {
    let agent = Agent::get().unwrap();
    let mad = stray(&agent);
    assert_calls_return(&agent, |_| mad.clone());
}

/// Each request is an event, and is rejected, as the listener has no identifier.
fn call_during_a_flood_of_requests() {
    let agent = Agent::get().unwrap();
    let bound = cm::Bound::Any;
    agent.change(|state, _| {
        state.manager.listen(ServiceId::new(PortSpace::Tcp, 7471), Transport::Rc, bound, 4096)
    });
    assert_calls_return(&agent, |n| Mad { transaction: 1, message: Message::Req(req(7471, n)) });
}

/// Calls return while two threads receive messages of a peer as fast as they can. `message`: by number.
fn assert_calls_return(agent: &Agent, message: impl Fn(u32) -> Mad + Sync) {
    let (message, stop, returned) = (&message, &AtomicBool::new(false), &AtomicBool::new(false));
    std::thread::scope(|threads| {
        for thread in 0..2 {
            threads.spawn(move || {
                let mut number = 1 + (thread << 31);
                while !stop.load(Ordering::Relaxed) {
                    let _ = agent.received(&message(number), HERE, PEER);
                    number += 1;
                }
            });
        }
        threads.spawn(move || {
            for _ in 0..10 {
                std::thread::sleep(Duration::from_millis(10));
                agent.call(|_, _| ());
            }
            returned.store(true, Ordering::Relaxed);
        });
        let begin = Instant::now();
        while !returned.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(returned.load(Ordering::Relaxed), "calls have not returned for {:?}", begin.elapsed());
    });
}

/// A peer withdraws its requests: one before its identifier has an object, which events carry, and one
/// afterwards.
fn withdraw_requests() {
    let agent = Agent::get().unwrap();
    let channel = Arc::new(EventQueue::new().unwrap());
    let listener = calls::create(Some(channel.clone()), PortSpace::Tcp, qp::Kind::Rc);
    listener.set_handle(1);
    agent.change(|state, _| {
        let service = ServiceId::new(PortSpace::Tcp, 7471);
        let number = state.manager.listen(service, Transport::Rc, cm::Bound::Any, 8);
        state.listeners.insert(number, Arc::downgrade(&listener));
    });
    let receive = |message| {
        assert_eq!(agent.received(&Mad { transaction: 1, message }, HERE, PEER), Ok(true));
        let begin = Instant::now();
        // The engine may report the event.
        while !lock(&agent.state).events.is_empty() || agent.reporting.try_lock().is_err() {
            agent.deliver();
            assert!(begin.elapsed() < Duration::from_secs(10));
        }
    };
    for (number, is_first) in [(1, true), (2, false)] {
        receive(Message::Req(req(7471, number)));
        let request = channel.try_take().unwrap().request.unwrap().fetch();
        let id = calls::create_requested(Some(channel.clone()), PortSpace::Tcp, qp::Kind::Rc, request);
        if !is_first {
            id.set_handle(2);
        }
        receive(rej(number, 0, Reason::TIMEOUT));
        let event = channel.try_take().map(|event| (event.kind, event.id));
        assert_eq!(event, (!is_first).then_some((RDMA_CM_EVENT_REJECTED, 2)));
        if is_first {
            id.set_handle(2);
        }
        id.destroy();
    }
    listener.destroy();
}
