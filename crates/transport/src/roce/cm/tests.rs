// SPDX-License-Identifier: BSD-3-Clause
//! Rules of connection management, one by one. The simulation (`sim/cm`) tests what follows from them.

mod ending;
mod hostile;
mod pending;
mod requests;
mod sidr;

use std::net::IpAddr;

use super::*;
use crate::roce::wire::cm::{Mad, Message, PortSpace, Reason, Req, ServiceId, Transport};
use crate::roce::wire::{DEFAULT_PKEY, PathMtu, Psn};
use crate::units::Micros;

const GUIDS: [u64; 2] = [0x0a0b, 0x0c0d];
const MS: Micros = 1_000;
/// A queue pair of the active side.
const QPN: u32 = 0x101;
/// Numbers that no queue pair of a connection has.
const RESERVED: [u32; 3] = [0, 1, 0xff_ffff];

fn service() -> ServiceId {
    ServiceId::new(PortSpace::Tcp, 7001)
}

fn route(from: usize) -> Route {
    let address = |host| IpAddr::from([10, 80, 0, host as u8 + 1]);
    Route { local: address(from), remote: address(1 - from) }
}

fn connect(qpn: u32) -> Connect<'static> {
    Connect {
        service: service(),
        transport: Transport::Rc,
        source_port: 40_000,
        qpn,
        srq: false,
        starting_psn: Psn::new(0x11),
        mtu: PathMtu::Mtu1024,
        pkey: DEFAULT_PKEY,
        ack_timeout: 17,
        responder_resources: 3,
        initiator_depth: 5,
        retry_count: 7,
        rnr_retry_count: 6,
        flow_label: 9,
        traffic_class: 1,
        hop_limit: 64,
        private_data: b"request",
    }
}

fn accept(qpn: u32) -> Accept<'static> {
    Accept {
        qpn,
        srq: true,
        starting_psn: Psn::new(0x22),
        responder_resources: 4,
        initiator_depth: 2,
        rnr_retry_count: 1,
        target_ack_delay: 15,
        private_data: b"reply",
    }
}

/// Two managers without a network: the test delivers the messages, or does not.
struct Pair {
    managers: [Manager; 2],
    now: Micros,
}

impl Pair {
    /// The second one has a listener.
    fn new() -> Self {
        let mut pair = Self { managers: [0, 1].map(|host| manager(host, 1)), now: 1_000_000 };
        pair.managers[1].listen(service(), Transport::Rc, Bound::Any, 8);
        pair
    }

    /// What a side has produced.
    fn outputs(&mut self, side: usize) -> (Vec<Mad>, Vec<(CommId, Event)>) {
        let (mut mads, mut events) = (Vec::new(), Vec::new());
        while let Some(output) = self.managers[side].poll() {
            match output {
                Output::Send { route: by, mad } => {
                    assert_eq!(by, route(side));
                    mads.push(mad);
                }
                Output::Event { id, event } => events.push((id, event)),
            }
        }
        (mads, events)
    }

    /// The messages of a side, which has no event.
    fn sent(&mut self, side: usize) -> Vec<Mad> {
        let (mads, events) = self.outputs(side);
        assert_eq!(events, []);
        mads
    }

    /// The only message of a side, which has no event.
    fn only(&mut self, side: usize) -> Mad {
        let mads = self.sent(side);
        assert_eq!(mads.len(), 1, "{mads:?}");
        mads.into_iter().next().unwrap()
    }

    /// The only event of a side, whose messages are lost.
    fn event(&mut self, side: usize) -> (CommId, Event) {
        let (_, events) = self.outputs(side);
        assert_eq!(events.len(), 1, "{events:?}");
        events.into_iter().next().unwrap()
    }

    fn deliver(&mut self, to: usize, mad: &Mad) {
        assert_eq!(self.managers[to].receive(mad, route(to), self.now), Received::Taken);
    }

    /// Delivers all messages until there are none. Returns the events of both sides.
    fn run(&mut self) -> [Vec<(CommId, Event)>; 2] {
        let mut all = [Vec::new(), Vec::new()];
        loop {
            let mut is_done = true;
            for (side, reported) in all.iter_mut().enumerate() {
                let (mads, events) = self.outputs(side);
                reported.extend(events);
                for mad in mads {
                    is_done = false;
                    self.deliver(1 - side, &mad);
                }
            }
            if is_done {
                return all;
            }
        }
    }

    /// Lets time pass at a side until its next deadline.
    fn wait(&mut self, side: usize) {
        self.now = self.managers[side].deadline().expect("something is due");
        self.managers[side].expire(self.now);
    }

    /// A REQ has arrived.
    fn requested(&mut self, qpn: u32) -> (CommId, CommId, Mad) {
        let active = self.managers[0].connect(route(0), &connect(qpn), self.now).unwrap();
        let req = self.only(0);
        self.deliver(1, &req);
        let (passive, event) = self.event(1);
        assert!(matches!(event, Event::Request(_)));
        (active, passive, req)
    }

    /// A REP has been sent.
    fn accepted(&mut self, qpns: [u32; 2]) -> (CommId, CommId, Mad) {
        let (active, passive, _) = self.requested(qpns[0]);
        self.managers[1].fetched(passive);
        self.managers[1].accept(passive, &accept(qpns[1]), self.now).unwrap();
        (active, passive, self.only(1))
    }

    fn established(&mut self, qpns: [u32; 2]) -> (CommId, CommId) {
        let (active, passive, rep) = self.accepted(qpns);
        self.deliver(0, &rep);
        assert!(matches!(self.event(0).1, Event::Response(_)));
        self.managers[0].establish(active, &[]).unwrap();
        assert_eq!(self.run(), [vec![], vec![(passive, Event::Established)]]);
        (active, passive)
    }
}

fn settings(host: usize) -> Settings {
    Settings {
        slot: 0x40 + host as u8,
        ca_guid: GUIDS[host],
        timing: Timing::default(),
        limits: Limits { process: 16, address: 4 },
    }
}

/// Communication ids count upwards from a number.
fn manager(host: usize, mut first: u32) -> Manager {
    Manager::new(settings(host), move || {
        first += 1;
        first
    })
}

fn rejected(reason: Reason, text: &[u8]) -> Event {
    let mut private_data = Box::new([0; REJECT_DATA_LEN]);
    private_data[..text.len()].copy_from_slice(text);
    Event::Rejected { reason, private_data }
}

fn req(mad: &mut Mad) -> &mut Req {
    match &mut mad.message {
        Message::Req(req) => req,
        other => panic!("{other:?}"),
    }
}
