// SPDX-License-Identifier: BSD-3-Clause
//! The harness of the fuzz target `sidr`: the connection manager of a process, which receives messages from
//! any sender, most of them for the resolution of service ids.
//!
//! Asserted is that each request of the program gets one outcome at most, and success only by an answer with
//! both of its ids from the host that it was sent to; that requests of peers are reported up to the backlog;
//! that no message is answered by more messages than a reply and a DREQ; and that nothing is left to do once
//! the program has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::connection::input::Input;
use crate::roce::cm::{
    Bound, CommId, Event, Limits, ListenerId, Manager, Output, Received, Resolve, Route, Settings,
    SidrAnswer, Timing, refusal,
};
use crate::roce::wire::DEFAULT_PKEY;
use crate::roce::wire::cm::{
    CMA_HEADER_LEN, CmaHeader, Mad, Message, PortSpace, Reason, ServiceId, SidrRep, SidrReq, SidrStatus,
    Transport,
};
use crate::units::Micros;

const BACKLOG: u32 = 3;
/// Requests that the program has not fetched.
const MOST_PENDING: usize = 8;
/// Steps of time until everything that the program has ended is forgotten.
const MOST_TIMERS: usize = 100_000;

/// One process to its end.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut run = Run::new();
    while !input.is_empty() {
        run.act(&mut input);
    }
    run.finish();
}

struct Run {
    manager: Manager,
    listener: ListenerId,
    now: Micros,
    /// The requests of the program without an outcome, with the peer and the transaction id.
    requests: BTreeMap<CommId, (IpAddr, u64)>,
    /// Requests of peers: reported, and fetched.
    reported: BTreeSet<CommId>,
    fetched: BTreeSet<CommId>,
}

fn service() -> ServiceId {
    ServiceId::new(PortSpace::Udp, 7001)
}

fn route(host: u8) -> Route {
    Route { local: [10, 80, 0, 1].into(), remote: [10, 80, 0, 2 + host % 3].into() }
}

impl Run {
    fn new() -> Self {
        let limits = Limits { process: MOST_PENDING, address: 4 };
        let timing = Timing { response_timeout: 14, max_retries: 3, packet_life: 14 };
        let mut state = 7u32;
        let mut manager = Manager::new(Settings { slot: 3, ca_guid: 0x1111, timing, limits }, move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        });
        let listener = manager.listen(service(), Transport::Rc, Bound::Any, BACKLOG);
        let (reported, fetched) = (BTreeSet::new(), BTreeSet::new());
        Self { manager, listener, now: 1_000_000, requests: BTreeMap::new(), reported, fetched }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let [kind, host] = input.bytes();
        let route = route(host);
        match kind & 15 {
            0 | 1 => {
                let private_data = vec![host; usize::from(host)];
                let call = Resolve {
                    service: service(),
                    source_port: 4711,
                    pkey: DEFAULT_PKEY,
                    private_data: &private_data,
                };
                if let Ok(id) = self.manager.resolve(route, &call, self.now) {
                    let Some(Output::Send { mad, .. }) = self.manager.poll() else { panic!("no SIDR_REQ") };
                    self.requests.insert(id, (route.remote, mad.transaction));
                }
            }
            2..=5 => self.receive(route, request(route, kind, host), input),
            6 | 7 => {
                // Of the program's own ids, often the right ones.
                let at = usize::from(input.byte()) % self.requests.len().max(1);
                let own = self.requests.iter().nth(at).map(|(id, (_, transaction))| (id.0, *transaction));
                let (request_id, transaction) = own.unwrap_or((7, 7));
                self.receive(route, Mad { transaction, message: answer(request_id, host) }, input);
            }
            8 => {
                let bytes = input.take(usize::from(kind >> 4) * 18).to_vec();
                if let Ok(mad) = Mad::decode(&bytes) {
                    self.take(route, &mad);
                }
            }
            9 | 10 => {
                if let Some(id) = self.reported.pop_first() {
                    self.manager.fetched(id);
                    self.fetched.insert(id);
                }
            }
            11 => {
                let Some(id) = self.fetched.pop_first() else { return };
                let private_data = [host; 200];
                let private_data = &private_data[..usize::from(host).min(200)];
                let answer = match host & 1 {
                    0 => SidrAnswer::Valid { qpn: u32::from(host), qkey: 9, private_data },
                    _ => SidrAnswer::Refused { status: SidrStatus::REJECTED, private_data },
                };
                let _ = self.manager.answer(id, &answer, self.now);
                self.poll(None, 1);
                if host & 2 == 0 {
                    self.manager.destroy(id, self.now);
                    self.poll(None, 1);
                }
            }
            12 => {
                let all = self.requests.keys().chain(&self.fetched).chain(&self.reported);
                let Some(id) = all.copied().nth(usize::from(host) % 8) else { return };
                self.manager.destroy(id, self.now);
                self.requests.remove(&id);
                self.reported.remove(&id);
                self.fetched.remove(&id);
                self.poll(None, 1);
            }
            13 => {
                self.now += Micros::from(host) << (kind >> 4);
                self.manager.expire(self.now);
                self.poll(None, usize::MAX);
            }
            14 if kind == 0xfe => {
                self.manager.stop_listening(self.listener, self.now);
                self.listener = self.manager.listen(service(), Transport::Rc, Bound::Any, BACKLOG);
                self.poll(None, usize::MAX);
            }
            _ => {
                if let Some(at) = self.manager.deadline() {
                    self.now = self.now.max(at);
                    self.manager.expire(self.now);
                    self.poll(None, usize::MAX);
                }
            }
        }
    }

    /// A message arrives, perhaps with a few bytes changed.
    fn receive(&mut self, route: Route, mad: Mad, input: &mut Input<'_>) {
        let mut bytes = mad.encode();
        let changes = input.byte();
        for _ in 0..changes % 4 * (changes >> 7) {
            let [at, value] = input.bytes();
            bytes[usize::from(at)] = value;
        }
        if let Ok(mad) = Mad::decode(&bytes) {
            self.take(route, &mad);
        }
    }

    fn take(&mut self, route: Route, mad: &Mad) {
        if self.manager.receive(mad, route, self.now) == Received::NoListener {
            let refused = refusal(mad, Reason::INVALID_SERVICE_ID);
            assert!(refused.is_none_or(|refused| refused.transaction == mad.transaction));
        }
        self.poll(Some((route.remote, mad)), 2);
    }

    /// Takes what the manager has to send, at most `most` messages, and what it reports, because of a message
    /// of a host.
    fn poll(&mut self, cause: Option<(IpAddr, &Mad)>, most: usize) {
        let mut sent = 0;
        while let Some(output) = self.manager.poll() {
            match output {
                Output::Send { mad, .. } => {
                    sent += 1;
                    assert_eq!(Mad::decode(&mad.encode()).as_ref(), Ok(&mad));
                }
                Output::Event { id, event: Event::SidrReply(_) } => {
                    let (peer, transaction) = self.requests.remove(&id).expect("an outcome of a request");
                    let (from, mad) = cause.expect("an answer");
                    let Message::SidrRep(rep) = &mad.message else { panic!("{mad:?}") };
                    assert_eq!((from, mad.transaction, rep.request_id), (peer, transaction, id.0));
                }
                Output::Event { id, event: Event::Unreachable } => {
                    assert!(self.requests.remove(&id).is_some(), "an outcome of a request");
                }
                Output::Event { id, event: Event::SidrRequest(_) } => {
                    assert!(self.reported.insert(id) && self.reported.len() <= MOST_PENDING);
                }
                // A REQ for this service.
                Output::Event { id, .. } => self.manager.destroy(id, self.now),
            }
        }
        assert!(sent <= most, "{sent} messages");
    }

    fn finish(&mut self) {
        self.manager.destroy_all(self.now);
        for _ in 0..MOST_TIMERS {
            while let Some(output) = self.manager.poll() {
                assert!(matches!(output, Output::Send { .. }), "{output:?} after the end of the program");
            }
            let Some(at) = self.manager.deadline() else {
                #[cfg(test)]
                assert!(self.manager.is_empty() && !self.manager.has_held());
                return;
            };
            self.now = self.now.max(at);
            self.manager.expire(self.now);
        }
        panic!("a resolution does not come to its end");
    }
}

fn request(route: Route, kind: u8, host: u8) -> Mad {
    let mut private_data = [host; SidrReq::PRIVATE_DATA_LEN];
    if let Ok(addresses) = route.reversed().addresses() {
        private_data[..CMA_HEADER_LEN].copy_from_slice(&CmaHeader { source_port: 4711, addresses }.encode());
    }
    let service_id = if kind & 0x70 == 0x70 { ServiceId::new(PortSpace::Tcp, 7001) } else { service() };
    let req = SidrReq { request_id: u32::from(host >> 2), pkey: DEFAULT_PKEY, service_id, private_data };
    Mad { transaction: u64::from(kind >> 4), message: Message::SidrReq(req) }
}

fn answer(request_id: u32, host: u8) -> Message {
    Message::SidrRep(SidrRep {
        request_id,
        status: if host & 0x80 == 0 { SidrStatus::VALID } else { SidrStatus::REJECTED },
        info_len: 0,
        qpn: 0x202,
        service_id: service(),
        qkey: u32::from(host),
        info: [0; SidrRep::INFO_LEN],
        private_data: [host; SidrRep::PRIVATE_DATA_LEN],
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_inputs() {
        crate::testing::random_inputs(4_000, 400, super::run);
    }
}
