// SPDX-License-Identifier: BSD-3-Clause
//! Messages of connection management between link-local addresses.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};

use super::icmp::run;
use super::{in_namespace, wait_until};
use crate::lock;
use crate::port::Port;
use crate::port::management::{Agent, Full};
use transport::roce::wire::cm::{Dreq, Mad, Message};

/// Records between which addresses messages have arrived.
#[derive(Default)]
struct Arrivals(Mutex<Vec<(IpAddr, IpAddr)>>);

impl Agent for Arrivals {
    fn received(&self, _mad: &Mad, local: IpAddr, remote: IpAddr) -> Result<bool, Full> {
        lock(&self.0).push((local, remote));
        Ok(true)
    }
}

#[test]
fn a_message_to_a_link_local_address_has_its_interface() {
    in_namespace("link-local");
}

pub(super) fn link_local() {
    run("ip link add one type veth peer name two && ip link set one up && ip link set two up && \
         ip addr add fe80::1234/64 dev one nodad");
    let port = Port::get().unwrap();
    let arrivals = Arc::new(Arrivals::default());
    let weak: Weak<dyn Agent> = Arc::downgrade(&(arrivals.clone() as Arc<dyn Agent>));
    port.set_agent(weak);
    let dreq = Dreq {
        local_comm_id: 5,
        remote_comm_id: u32::from(port.slot()) << 24,
        remote_qpn: 7,
        private_data: [0; Dreq::PRIVATE_DATA_LEN],
    };
    let address: IpAddr = "fe80::1234".parse().unwrap();
    let mad = Mad { transaction: 1, message: Message::Dreq(dreq) };
    // The first ones may be lost while the interface comes up.
    wait_until(|| {
        port.send_message(&mad, address, address);
        lock(&arrivals.0).contains(&(address, address))
    });
    assert!(lock(&arrivals.0).iter().all(|arrival| *arrival == (address, address)));
}
