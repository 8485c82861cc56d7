// SPDX-License-Identifier: BSD-3-Clause
//! The resolution of service ids (SIDR).

use super::*;
use crate::roce::wire::Addresses;
use crate::roce::wire::cm::{CmaHeader, SidrRep, SidrReq, SidrStatus};
use crate::roce::wire::tests::cm::messages;

const S: Micros = 1_000 * MS;
/// The time after which a request that is not answered has failed: 16 intervals of 4.29 s.
const WORST: Micros = 69 * S;
const NUMBER: u32 = 0x202;
const QKEY: u32 = 0x0123_4567;

fn service() -> ServiceId {
    ServiceId::new(PortSpace::Udp, 7001)
}

fn resolve(private_data: &[u8]) -> Resolve<'_> {
    Resolve { service: service(), source_port: 40_000, pkey: DEFAULT_PKEY, private_data }
}

fn valid(private_data: &[u8]) -> SidrAnswer<'_> {
    SidrAnswer::Valid { qpn: NUMBER, qkey: QKEY, private_data }
}

fn refused(private_data: &[u8]) -> SidrAnswer<'_> {
    SidrAnswer::Refused { status: SidrStatus::REJECTED, private_data }
}

fn padded<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out[..data.len()].copy_from_slice(data);
    out
}

/// Two managers, the second of which listens for datagrams beside connections.
fn pair() -> (Pair, ListenerId) {
    let mut pair = Pair::new();
    let listener = pair.managers[1].listen(service(), Transport::Rc, Bound::Any, 2);
    (pair, listener)
}

fn sidr_req(mad: &Mad) -> &SidrReq {
    match &mad.message {
        Message::SidrReq(req) => req,
        other => panic!("{other:?}"),
    }
}

fn sidr_rep(mad: &Mad) -> &SidrRep {
    match &mad.message {
        Message::SidrRep(rep) => rep,
        other => panic!("{other:?}"),
    }
}

/// A request has arrived and its event was fetched: the ids of both sides, and the message.
fn requested(pair: &mut Pair) -> (CommId, CommId, Mad) {
    let active = pair.managers[0].resolve(route(0), &resolve(b"request"), pair.now).unwrap();
    let req = pair.only(0);
    pair.deliver(1, &req);
    let (passive, event) = pair.event(1);
    let Event::SidrRequest(request) = event else { panic!("{event:?}") };
    assert_eq!((request.route, request.service, request.source_port), (route(1), service(), 40_000));
    assert_eq!(request.private_data, padded::<180>(b"request"));
    pair.managers[1].fetched(passive);
    (active, passive, req)
}

fn reply_event(status: SidrStatus, private_data: &[u8]) -> Event {
    let (qpn, qkey) = if status == SidrStatus::VALID { (NUMBER, QKEY) } else { (0, 0) };
    Event::SidrReply(Box::new(SidrReply {
        route: route(0),
        status,
        qpn,
        qkey,
        private_data: padded(private_data),
    }))
}

#[test]
fn a_service_is_resolved_to_a_queue_pair_and_a_qkey() {
    let (mut pair, listener) = pair();
    let (active, passive, req) = requested(&mut pair);
    assert_eq!(sidr_req(&req).request_id, active.0);
    pair.managers[1].answer(passive, &valid(b"reply"), pair.now).unwrap();
    let rep = pair.only(1);
    assert_eq!((rep.transaction, sidr_rep(&rep).request_id), (req.transaction, active.0));
    assert_eq!(sidr_rep(&rep).service_id, service());
    pair.deliver(0, &rep);
    assert_eq!(pair.outputs(0), (vec![], vec![(active, reply_event(SidrStatus::VALID, b"reply"))]));
    // A second copy of the reply.
    pair.deliver(0, &rep);
    assert_eq!(pair.outputs(0), (vec![], vec![]));
    assert!(pair.managers[0].is_empty() && pair.managers[0].has_held());
    pair.managers[0].destroy(active, pair.now);
    pair.managers[1].destroy(passive, pair.now);
    pair.managers[1].stop_listening(listener, pair.now);
    assert_eq!(pair.sent(1), []);
    pair.wait(1);
    assert!(pair.managers.iter().all(|manager| manager.is_empty() && !manager.has_held()));
}

#[test]
fn a_program_refuses_a_request_by_a_call_or_by_destroying_it() {
    type Refuse = fn(&mut Manager, CommId, ListenerId, Micros);
    let refuse: [(Refuse, &[u8]); 4] = [
        (|manager, id, _, now| manager.answer(id, &refused(b"no"), now).unwrap(), b"no"),
        (|manager, id, _, now| manager.destroy(id, now), b""),
        (|manager, _, listener, now| manager.stop_listening(listener, now), b""),
        // The process exits.
        (|manager, _, _, now| manager.destroy_all(now), b""),
    ];
    for (refuse, data) in refuse {
        let (mut pair, listener) = pair();
        let active = pair.managers[0].resolve(route(0), &resolve(b""), pair.now).unwrap();
        let req = pair.only(0);
        pair.deliver(1, &req);
        let (passive, _) = pair.event(1);
        refuse(&mut pair.managers[1], passive, listener, pair.now);
        assert_eq!(pair.run()[0], [(active, reply_event(SidrStatus::REJECTED, data))]);
    }
}

#[test]
fn an_unanswered_request_is_repeated_and_then_unreachable() {
    let (mut pair, _) = pair();
    let begin = pair.now;
    let active = pair.managers[0].resolve(route(0), &resolve(b""), begin).unwrap();
    let first = pair.only(0);
    let mut copies = 0;
    loop {
        pair.wait(0);
        let (mads, events) = pair.outputs(0);
        if !events.is_empty() {
            assert_eq!((mads, events), (vec![], vec![(active, Event::Unreachable)]));
            break;
        }
        assert_eq!(mads, std::slice::from_ref(&first));
        copies += 1;
    }
    // Four early copies in the first interval, and a retry after each of 15 intervals.
    assert!((15..=15 * 6).contains(&copies), "{copies}");
    assert!((WORST - 5 * S..=WORST).contains(&(pair.now - begin)), "{}", pair.now - begin);
    assert!(pair.managers[0].is_empty());
}

#[test]
fn a_repeated_request_gets_the_same_answer_and_is_reported_once() {
    let (mut pair, listener) = pair();
    let (active, passive, req) = requested(&mut pair);
    pair.deliver(1, &req);
    assert_eq!(pair.outputs(1), (vec![], vec![]), "the program has not decided");
    pair.managers[1].answer(passive, &valid(b"reply"), pair.now).unwrap();
    let rep = pair.only(1);
    // A program that serves all peers by one queue pair destroys the identifier of the request at once.
    pair.managers[1].destroy(passive, pair.now);
    pair.deliver(1, &req);
    assert_eq!(pair.only(1), rep);
    // Even without a listener.
    pair.managers[1].stop_listening(listener, pair.now);
    pair.now += WORST - S;
    pair.managers[1].expire(pair.now);
    pair.deliver(1, &req);
    let again = pair.only(1);
    pair.deliver(0, &again);
    assert_eq!(pair.event(0), (active, reply_event(SidrStatus::VALID, b"reply")));
    pair.wait(1);
    assert_eq!(pair.managers[1].receive(&req, route(1), pair.now), Received::NoListener);
    assert!(pair.managers[1].is_empty());
}

#[test]
fn a_request_without_a_listener_is_for_others() {
    let mut pair = Pair::new();
    pair.managers[0].resolve(route(0), &resolve(b""), pair.now).unwrap();
    let req = pair.only(0);
    assert_eq!(pair.managers[1].receive(&req, route(1), pair.now), Received::NoListener);
    let answer = refusal(&req, Reason::INVALID_SERVICE_ID).unwrap();
    assert_eq!((answer.transaction, sidr_rep(&answer).status), (req.transaction, SidrStatus::UNSUPPORTED));
    pair.deliver(0, &answer);
    assert_eq!(pair.event(0).1, reply_event(SidrStatus::UNSUPPORTED, b""));
    assert_eq!(refusal(&answer, Reason::INVALID_COMM_ID), None, "a reply is not answered");
}

#[test]
fn connections_and_datagrams_do_not_share_a_listener() {
    let (mut pair, _) = pair();
    let call = Resolve { service: super::service(), ..resolve(b"") };
    pair.managers[0].resolve(route(0), &call, pair.now).unwrap();
    let req = pair.only(0);
    pair.deliver(1, &req);
    assert_eq!(sidr_rep(&pair.only(1)).status, SidrStatus::REJECTED);
    let call = Connect { service: service(), ..connect(QPN) };
    let id = pair.managers[0].connect(route(0), &call, pair.now).unwrap();
    assert_eq!(pair.run()[0], [(id, rejected(Reason::CONSUMER, b""))]);
}

#[test]
fn a_request_with_other_addresses_or_without_the_header_is_refused() {
    let (mut pair, _) = pair();
    pair.managers[0].resolve(route(0), &resolve(b""), pair.now).unwrap();
    let req = pair.only(0);
    // The version, and the last byte of the source address.
    for at in [0, 19] {
        let mut wrong = req.clone();
        let Message::SidrReq(message) = &mut wrong.message else { unreachable!() };
        message.private_data[at] ^= 1;
        pair.deliver(1, &wrong);
        assert_eq!(sidr_rep(&pair.only(1)).status, SidrStatus::REJECTED, "byte {at}");
    }
}

#[test]
fn a_forged_reply_is_ignored() {
    let (mut pair, _) = pair();
    let (_, passive, req) = requested(&mut pair);
    pair.managers[1].answer(passive, &valid(b""), pair.now).unwrap();
    let rep = pair.only(1);
    pair.deliver(0, &Mad { transaction: rep.transaction ^ 1 << 40, ..rep.clone() });
    let other = SidrRep { request_id: sidr_rep(&rep).request_id ^ 1, ..sidr_rep(&rep).clone() };
    pair.deliver(0, &Mad { message: Message::SidrRep(other), ..rep.clone() });
    let elsewhere = Route { remote: "192.0.2.9".parse().unwrap(), ..route(0) };
    assert_eq!(pair.managers[0].receive(&rep, elsewhere, pair.now), Received::Taken);
    assert_eq!(pair.outputs(0), (vec![], vec![]));
    // A passive side that gets a reply with its own ids.
    let own = SidrRep { request_id: passive.0, ..sidr_rep(&rep).clone() };
    pair.deliver(1, &Mad { transaction: req.transaction, message: Message::SidrRep(own) });
    assert_eq!(pair.outputs(1), (vec![], vec![]));
    pair.deliver(0, &rep);
    assert!(matches!(pair.event(0).1, Event::SidrReply(_)));
}

#[test]
fn an_active_side_that_has_destroyed_its_identifier_sends_and_reports_nothing() {
    let (mut pair, _) = pair();
    let (active, passive, _) = requested(&mut pair);
    pair.managers[0].destroy(active, pair.now);
    assert!(pair.managers[0].is_empty() && !pair.managers[0].has_held());
    pair.managers[1].answer(passive, &valid(b""), pair.now).unwrap();
    assert_eq!(pair.run(), [vec![], vec![]]);
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let (mut pair, _) = pair();
    let now = pair.now;
    assert_eq!(pair.managers[0].resolve(route(0), &resolve(&[1; 181]), now), Err(libc::EINVAL));
    assert!(pair.managers[0].resolve(route(0), &resolve(&[1; 180]), now).is_ok());
    let mixed = Route { remote: "::1".parse().unwrap(), ..route(0) };
    assert_eq!(pair.managers[0].resolve(mixed, &resolve(b""), now), Err(libc::EINVAL));
    pair.sent(0);
    let (active, id, _) = requested(&mut pair);
    let none = SidrAnswer::Valid { qpn: 0, qkey: QKEY, private_data: b"" };
    for wrong in [none, valid(&[2; 137]), refused(&[2; 137])] {
        assert_eq!(pair.managers[1].answer(id, &wrong, now), Err(libc::EINVAL), "{wrong:?}");
    }
    assert_eq!(pair.managers[0].answer(active, &valid(b""), now), Err(libc::EINVAL), "the active side");
    pair.managers[1].answer(id, &valid(&[2; 136]), now).unwrap();
    assert_eq!(pair.managers[1].answer(id, &valid(b""), now), Err(libc::EINVAL), "twice");
}

#[test]
fn pending_requests_are_limited_and_further_ones_dropped() {
    let (mut pair, _) = pair();
    let mut pending = Vec::new();
    for _ in 0..3 {
        pair.managers[0].resolve(route(0), &resolve(b""), pair.now).unwrap();
        let req = pair.only(0);
        pair.deliver(1, &req);
        let (mads, events) = pair.outputs(1);
        assert_eq!(mads, []);
        pending.extend(events);
    }
    assert_eq!(pending.len(), 2, "the backlog");
    pair.managers[1].fetched(pending[0].0);
    // The peer repeats the request that was dropped.
    pair.wait(0);
    let events = &pair.run()[1];
    assert_eq!(events.len(), 1);
}

#[test]
fn requests_of_the_kernel_are_accepted() {
    let requests = messages("SIDR_REQ");
    assert_eq!(requests.len(), 2, "IPv4 and IPv6");
    for (transaction, message) in requests {
        let Message::SidrReq(req) = &message else { panic!("{message:?}") };
        let (header, _) = CmaHeader::decode(&req.private_data).unwrap();
        let route = match header.addresses {
            Addresses::V4 { source, destination } => {
                Route { local: destination.into(), remote: source.into() }
            }
            Addresses::V6 { source, destination } => {
                Route { local: destination.into(), remote: source.into() }
            }
        };
        let mut manager = manager(1, 1);
        manager.listen(req.service_id, Transport::Rc, Bound::Address(route.local), 1);
        let mad = Mad { transaction, message: message.clone() };
        assert_eq!(manager.receive(&mad, route, 0), Received::Taken);
        let Some(Output::Event { id, event: Event::SidrRequest(request) }) = manager.poll() else {
            panic!("no request")
        };
        assert_eq!((request.route, request.source_port), (route, header.source_port));
        manager.answer(id, &valid(b""), 0).unwrap();
        let Some(Output::Send { route: by, mad }) = manager.poll() else { panic!("no reply") };
        assert_eq!((by, mad.transaction, sidr_rep(&mad).request_id), (route, transaction, req.request_id));
    }
}
