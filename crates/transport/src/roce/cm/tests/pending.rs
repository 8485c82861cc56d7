// SPDX-License-Identifier: BSD-3-Clause
//! Listeners and pending requests.

use super::*;
use crate::limits::CM_MAX_ENDED;
use crate::roce::wire::cm::{Answered, Rej};

/// A REQ with another communication id and queue pair of the peer.
fn request(id: u32) -> Mad {
    let mut pair = Pair::new();
    pair.managers[0].connect(route(0), &connect(QPN + id), pair.now).unwrap();
    let mut mad = pair.only(0);
    req(&mut mad).local_comm_id = id;
    mad
}

/// The REJ by which the peer withdraws such a request before it has a reply.
fn withdrawal(id: u32) -> Mad {
    let mut info = [0; Rej::INFO_LEN];
    info[..8].copy_from_slice(&GUIDS[0].to_be_bytes());
    let rej = Rej {
        local_comm_id: id,
        remote_comm_id: 0,
        answered: Answered::Other,
        info_len: 8,
        reason: Reason::TIMEOUT,
        info,
        private_data: [0; Rej::PRIVATE_DATA_LEN],
    };
    Mad { transaction: 1, message: Message::Rej(rej) }
}

#[test]
fn the_most_specific_listener_gets_a_request() {
    let mut pair = Pair::new();
    let address = route(1).local;
    let bounds = [Bound::AnyV6, Bound::Address([10, 80, 0, 9].into()), Bound::AnyV4, Bound::Address(address)];
    let mut expected = Vec::new();
    for (n, bound) in bounds.into_iter().enumerate() {
        let listener = pair.managers[1].listen(service(), Transport::Rc, bound, 8);
        pair.deliver(1, &request(n as u32 + 1));
        let Event::Request(request) = pair.event(1).1 else { panic!() };
        expected.push((bound, request.listener == listener));
    }
    let is_used: Vec<_> = expected.iter().map(|(_, is_used)| *is_used).collect();
    assert_eq!(is_used, [false, false, true, true]);
}

#[test]
fn a_request_without_a_listener_can_be_refused() {
    let mut pair = Pair::new();
    let mut mad = request(1);
    req(&mut mad).service_id = ServiceId::new(PortSpace::Tcp, 7002);
    assert_eq!(pair.managers[1].receive(&mad, route(1), pair.now), Received::NoListener);
    let answer = refusal(&mad, Reason::INVALID_SERVICE_ID).unwrap();
    assert_eq!(answer.transaction, mad.transaction);
    let Message::Rej(rej) = answer.message else { panic!() };
    let expected = (Reason::INVALID_SERVICE_ID, 0, 1);
    assert_eq!((rej.reason, rej.local_comm_id, rej.remote_comm_id), expected);
}

#[test]
fn a_full_backlog_drops_requests_until_one_is_fetched() {
    let mut pair = Pair::new();
    pair.managers[1] = manager(1, 1);
    pair.managers[1].listen(service(), Transport::Rc, Bound::Any, 1);
    pair.deliver(1, &request(1));
    let (first, _) = pair.event(1);
    pair.deliver(1, &request(2));
    assert!(pair.managers[1].poll().is_none());
    pair.managers[1].fetched(first);
    pair.deliver(1, &request(2));
    assert!(matches!(pair.event(1).1, Event::Request(_)));
}

#[test]
fn one_host_does_not_use_up_the_backlog() {
    let mut pair = Pair::new();
    for n in 1..=5 {
        pair.deliver(1, &request(n));
    }
    assert_eq!(pair.outputs(1).1.len(), 4);
}

/// The event of a request remains queued when the peer withdraws the request.
#[test]
fn a_withdrawn_request_is_pending_until_it_is_fetched_or_destroyed() {
    let mut pair = Pair::new();
    let mut requests = Vec::new();
    let mut withdraw = |pair: &mut Pair, id| {
        pair.deliver(1, &request(id));
        pair.deliver(1, &withdrawal(id));
        let is_request = |(_, event): &(CommId, Event)| matches!(event, Event::Request(_));
        requests.extend(pair.outputs(1).1.into_iter().filter(is_request).map(|(id, _)| id));
        requests.clone()
    };
    let of = (1..=5).map(|id| withdraw(&mut pair, id)).last().unwrap();
    assert_eq!(of.len(), 4, "the limit of a host");
    pair.wait(1);
    assert_eq!(withdraw(&mut pair, 6).len(), 4, "after the time wait, too");
    pair.managers[1].fetched(of[0]);
    assert_eq!(withdraw(&mut pair, 7).len(), 5);
    pair.managers[1].destroy(of[1], pair.now);
    assert_eq!(withdraw(&mut pair, 8).len(), 6);
}

#[test]
fn a_listener_rejects_its_pending_requests_when_it_ends() {
    let mut pair = Pair::new();
    pair.managers[1] = manager(1, 1);
    let listener = pair.managers[1].listen(service(), Transport::Rc, Bound::Any, 8);
    pair.deliver(1, &request(1));
    let (fetched, _) = pair.event(1);
    pair.managers[1].fetched(fetched);
    pair.deliver(1, &request(2));
    let (pending, _) = pair.event(1);
    pair.managers[1].stop_listening(listener, pair.now);
    let Message::Rej(rej) = pair.only(1).message else { panic!() };
    assert_eq!((rej.reason, rej.remote_comm_id), (Reason::CONSUMER, 2));
    assert_eq!(pair.managers[1].receive(&request(3), route(1), pair.now), Received::NoListener);
    pair.managers[1].accept(fetched, &accept(9), pair.now).unwrap();
    pair.managers[1].destroy(fetched, pair.now);
    assert!(pair.managers[1].has_held(), "the event of the second request");
    pair.managers[1].destroy(pending, pair.now);
    assert!(!pair.managers[1].has_held());
}

#[test]
fn a_pending_request_ends_when_its_peer_has_given_up() {
    let mut pair = Pair::new();
    let (_, passive, _) = pair.requested(QPN);
    let began = pair.now;
    pair.wait(1);
    assert_eq!(pair.event(1), (passive, rejected(Reason::TIMEOUT, b"")));
    assert_eq!((pair.now - began) / 1_000_000, 146);
    pair.wait(1);
    assert!(pair.managers[1].is_empty());
    pair.managers[1].destroy(passive, pair.now);
    assert!(!pair.managers[1].has_held());
}

#[test]
fn rejected_requests_are_remembered_up_to_a_limit() {
    let mut pair = Pair::new();
    let first = request(1);
    for n in 0..=CM_MAX_ENDED as u32 {
        let mut mad = first.clone();
        (req(&mut mad).local_comm_id, req(&mut mad).local_qpn) = (n + 1, QPN + n + 1);
        pair.deliver(1, &mad);
        let (id, _) = pair.event(1);
        pair.managers[1].fetched(id);
        pair.managers[1].reject(id, Reason::CONSUMER, b"", pair.now).unwrap();
        pair.outputs(1);
    }
    let mut last = first.clone();
    req(&mut last).local_comm_id = CM_MAX_ENDED as u32 + 1;
    pair.deliver(1, &last);
    assert!(matches!(pair.only(1).message, Message::Rej(_)));
    pair.deliver(1, &first);
    assert!(matches!(pair.event(1).1, Event::Request(_)), "the oldest is forgotten");
}
