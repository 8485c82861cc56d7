// SPDX-License-Identifier: BSD-3-Clause
//! Requests of connection management for which no process listens.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{in_namespace, wait_until};
use crate::cm_peer::{HERE, PEER, cm_packet, flow, req};
use crate::port::Port;
use crate::port::datagram::{Datagram, Via};
use crate::port::forward::Requester;
use crate::port::management::{self, Full, Message};
use crate::sys::IpFields;
use transport::policy::backoff::Backoff;
use transport::policy::{Cost, Policy};
use transport::roce::wire::UDP_PORT;
use transport::roce::wire::cm::{Mad, Message as CmMessage};

/// A message of a peer, as it arrives.
pub(super) fn arrived(message: CmMessage) -> Message {
    let mad = Mad { transaction: 1, message };
    let bytes = cm_packet(&flow(PEER, HERE, UDP_PORT), &mad);
    let (source, destination) = (IpAddr::from(PEER), IpAddr::from(HERE));
    let ip = IpFields::default();
    let datagram =
        Datagram { source, source_port: UDP_PORT, destination, ip, bytes: &bytes, via: Via::Network };
    Message::copy(&datagram).unwrap()
}

/// A connection manager without listeners.
struct Agent {
    port: Arc<Port>,
    /// The process that has the exchange reports it during this call.
    held_at: u32,
    calls: AtomicU32,
}

impl management::Agent for Agent {
    fn received(&self, mad: &Mad, _local: IpAddr, remote: IpAddr) -> Result<bool, Full> {
        let CmMessage::Req(req) = &mad.message else { panic!("{mad:?}") };
        if self.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.held_at {
            let (address, ca_guid, comm_id) = (remote, req.local_ca_guid, req.local_comm_id);
            self.port.held_elsewhere(&Requester { address, ca_guid, comm_id });
        }
        Ok(false)
    }
}

/// Receives a request `times` times; `held_at`: see [`Agent`]. Returns the number of messages that were sent.
fn received(times: u32, held_at: u32) -> u32 {
    let port = Port::get().unwrap();
    let agent = Arc::new(Agent { port: port.clone(), held_at, calls: AtomicU32::new(0) });
    let weak: Weak<dyn management::Agent> = Arc::downgrade(&(agent.clone() as Arc<dyn management::Agent>));
    port.set_agent(weak);
    // A service without a listener.
    let message = arrived(CmMessage::Req(req(7471, 0x99)));
    for _ in 0..times {
        port.manage(&message);
        assert_eq!(port.deferred_and_sent().0, 1);
    }
    wait_until(|| port.deferred_and_sent().0 == 0);
    let Cost::Delay(worst) = Backoff::WORST else { panic!("{:?}", Backoff::WORST) };
    // A request that was deferred again in spite of the notice is rejected by then.
    std::thread::sleep(worst + Duration::from_millis(20));
    port.deferred_and_sent().1
}

#[test]
fn a_repeated_request_is_deferred_once() {
    in_namespace("repeated");
}

pub(super) fn repeated() {
    assert_eq!(received(100, 0), 1, "one rejection");
}

#[test]
fn a_request_that_another_process_has_is_not_rejected() {
    in_namespace("held");
}

/// The notice arrives while the listener is looked up again.
pub(super) fn held() {
    assert_eq!(received(1, 2), 0);
}
