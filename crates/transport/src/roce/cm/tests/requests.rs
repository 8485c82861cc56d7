// SPDX-License-Identifier: BSD-3-Clause
//! Connecting: requests, replies, rejections and their repetition.

use super::*;
use crate::roce::wire::cm::Answered;
use crate::roce::wire::tests::cm::messages;

#[test]
fn the_terms_of_both_sides_fit() {
    let mut pair = Pair::new();
    let (active, passive) = pair.established([QPN, 0x202]);
    let active = pair.managers[0].terms(active).unwrap();
    let passive = pair.managers[1].terms(passive).unwrap();
    let expected = Terms {
        route: route(0),
        dest_qp: 0x202,
        mtu: PathMtu::Mtu1024,
        rq_psn: Psn::new(0x11),
        sq_psn: Psn::new(0x22),
        responder_resources: 2,
        initiator_depth: 4,
        ack_timeout: 17,
        retry_count: 7,
        rnr_retry_count: 1,
        pkey: DEFAULT_PKEY,
        flow_label: 9,
        traffic_class: 1,
        hop_limit: 64,
        peer_srq: true,
    };
    assert_eq!(active, expected);
    let expected = Terms {
        route: route(1),
        dest_qp: QPN,
        rq_psn: Psn::new(0x22),
        sq_psn: Psn::new(0x11),
        responder_resources: 4,
        initiator_depth: 2,
        rnr_retry_count: 6,
        peer_srq: false,
        ..expected
    };
    assert_eq!(passive, expected);
}

#[test]
fn a_request_has_what_rdma_cm_reports() {
    let mut pair = Pair::new();
    pair.managers[0].connect(route(0), &connect(QPN), pair.now).unwrap();
    let req = pair.only(0);
    pair.deliver(1, &req);
    let (id, event) = pair.event(1);
    assert_eq!(id.0 >> 24, 0x41, "the slot");
    let Event::Request(request) = event else { panic!("{event:?}") };
    assert_eq!((request.route, request.service, request.source_port), (route(1), service(), 40_000));
    let param = ConnParam {
        qpn: QPN,
        srq: false,
        responder_resources: 5,
        initiator_depth: 3,
        flow_control: false,
        retry_count: 7,
        rnr_retry_count: 6,
    };
    assert_eq!(request.param, param);
    assert_eq!(&request.private_data[..8], b"request\0");
}

#[test]
fn private_data_has_the_lengths_of_infiniband() {
    let long = [7; 225];
    let mut pair = Pair::new();
    let call = |len| Connect { private_data: &long[..len], ..connect(QPN) };
    assert_eq!(pair.managers[0].connect(route(0), &call(57), pair.now), Err(libc::EINVAL));
    assert!(pair.managers[0].connect(route(0), &call(56), pair.now).is_ok());
    pair.outputs(0);
    let (_, passive, _) = pair.requested(2);
    let call = |len| Accept { private_data: &long[..len], ..accept(3) };
    let manager = &mut pair.managers[1];
    assert_eq!(manager.accept(passive, &call(197), pair.now), Err(libc::EINVAL));
    assert_eq!(manager.reject(passive, Reason::CONSUMER, &long[..149], pair.now), Err(libc::EINVAL));
    assert_eq!(manager.accept(passive, &call(196), pair.now), Ok(()));
    let (_, passive, _) = pair.requested(4);
    assert_eq!(pair.managers[1].reject(passive, Reason::CONSUMER, &long[..148], pair.now), Ok(()));
}

#[test]
fn a_request_is_repeated_early_and_then_as_by_linux() {
    let mut pair = Pair::new();
    let id = pair.managers[0].connect(route(0), &connect(QPN), pair.now).unwrap();
    let req = pair.only(0);
    let began = pair.now;
    let mut times = Vec::new();
    let failed = loop {
        pair.wait(0);
        let (mads, events) = pair.outputs(0);
        match events.first() {
            None => assert!(matches!(&mads[..], [mad] if *mad == req)),
            Some(event) => break (event.clone(), mads),
        }
        times.push((pair.now - began) / MS);
    };
    assert_eq!(times[..6], [200, 600, 1_400, 3_000, 4_831, 9_663]);
    assert_eq!((times.len(), (pair.now - began) / MS), (4 + 15, 16 * 4_831 + 13));
    assert_eq!(failed.0, (id, Event::Unreachable));
    // The peer may have the request, and gets a REJ.
    let [Mad { message: Message::Rej(rej), .. }] = &failed.1[..] else { panic!("{failed:?}") };
    assert_eq!((rej.reason, rej.remote_comm_id, rej.info_len), (Reason::TIMEOUT, 0, 8));
    assert_eq!(rej.info[..8], GUIDS[0].to_be_bytes());
}

#[test]
fn a_repeated_request_is_answered_by_mra_rep_or_rej() {
    let mut pair = Pair::new();
    let (_, passive, req) = pair.requested(QPN);
    pair.deliver(1, &req);
    let Message::Mra(mra) = pair.only(1).message else { panic!() };
    assert_eq!((mra.answered, mra.service_timeout), (Answered::Req, 24));
    pair.managers[1].accept(passive, &accept(2), pair.now).unwrap();
    let rep = pair.only(1);
    pair.deliver(1, &req);
    assert_eq!(pair.only(1), rep);

    let (_, passive, req) = pair.requested(3);
    pair.managers[1].reject(passive, Reason::CONSUMER, b"no", pair.now).unwrap();
    let rej = pair.only(1);
    pair.now += 60_000 * MS;
    pair.deliver(1, &req);
    assert_eq!(pair.only(1), rej);
    pair.run();
    assert_eq!(pair.managers[1].reject(passive, Reason::CONSUMER, b"no", pair.now), Err(libc::EINVAL));
}

#[test]
fn an_mra_postpones_the_end_once() {
    let mut pair = Pair::new();
    let (active, passive, req) = pair.requested(QPN);
    pair.deliver(1, &req);
    let mra = pair.only(1);
    pair.deliver(0, &mra);
    let began = pair.now;
    pair.wait(0);
    assert_eq!((pair.now - began) / MS, 68_719 + 4_831 + 1);
    pair.deliver(0, &mra);
    pair.wait(0);
    assert_eq!((pair.now - began) / MS, 68_719 + 2 * 4_831 + 2, "a second MRA changes nothing");
    pair.outputs(0);
    pair.managers[1].accept(passive, &accept(2), pair.now).unwrap();
    let [events, _] = pair.run();
    assert!(matches!(&events[..], [(id, Event::Response(_))] if *id == active));
}

#[test]
fn a_repeated_reply_is_answered_by_mra_rtu_or_rej() {
    let mut pair = Pair::new();
    let (active, passive, rep) = pair.accepted([QPN, 2]);
    pair.deliver(0, &rep);
    pair.outputs(0);
    pair.deliver(0, &rep);
    let Message::Mra(mra) = pair.only(0).message else { panic!() };
    assert_eq!((mra.answered, mra.remote_comm_id), (Answered::Rep, passive.0));
    pair.managers[0].establish(active, &[]).unwrap();
    let rtu = pair.only(0);
    pair.deliver(0, &rep);
    assert_eq!(pair.only(0), rtu);

    let (active, passive, rep) = pair.accepted([3, 4]);
    pair.deliver(0, &rep);
    pair.outputs(0);
    pair.managers[0].reject(active, Reason::CONSUMER, b"no", pair.now).unwrap();
    let rej = pair.only(0);
    pair.deliver(0, &rep);
    assert_eq!(pair.only(0), rej);
    pair.deliver(1, &rej);
    assert_eq!(pair.event(1), (passive, rejected(Reason::CONSUMER, b"no")));
}

#[test]
fn data_replaces_the_rtu() {
    let mut pair = Pair::new();
    let (_, passive, _) = pair.accepted([QPN, 2]);
    pair.managers[1].received_data(passive);
    assert_eq!(pair.event(1), (passive, Event::Established));
    pair.managers[1].received_data(passive);
    assert!(pair.managers[1].poll().is_none());
    assert_eq!(pair.managers[1].deadline(), None, "the REP is not repeated");
}

#[test]
fn a_rep_to_an_unknown_communication_id_is_rejected() {
    let mut pair = Pair::new();
    let (_, passive, rep) = pair.accepted([QPN, 2]);
    pair.managers[0] = manager(0, 100);
    pair.deliver(0, &rep);
    let rej = pair.only(0);
    pair.deliver(1, &rej);
    assert_eq!(pair.event(1), (passive, rejected(Reason::INVALID_COMM_ID, b"")));
}

#[test]
fn a_request_that_the_peer_gives_up_cannot_be_accepted() {
    let mut pair = Pair::new();
    let (active, passive, _) = pair.requested(QPN);
    pair.managers[0].destroy(active, pair.now);
    let rej = pair.only(0);
    pair.deliver(1, &rej);
    assert_eq!(pair.event(1), (passive, rejected(Reason::TIMEOUT, b"")));
    assert_eq!(pair.managers[1].accept(passive, &accept(2), pair.now), Err(libc::EINVAL));
}

/// The communication id of the REQ has 24 random bits; whoever guesses it does not know the transaction id.
#[test]
fn an_answer_to_a_request_without_its_transaction_id_is_ignored() {
    let mut pair = Pair::new();
    let (active, passive, req) = pair.requested(QPN);
    pair.deliver(1, &req);
    let mra = pair.only(1);
    pair.managers[1].accept(passive, &accept(2), pair.now).unwrap();
    let rep = pair.only(1);
    let mut rej = refusal(&req, Reason::CONSUMER).unwrap();
    rej.transaction ^= 1 << 40;
    let forged = |mad: &Mad| Mad { transaction: mad.transaction ^ 1 << 40, ..mad.clone() };
    let due = pair.managers[0].deadline();
    for mad in [forged(&mra), forged(&rep), rej] {
        pair.deliver(0, &mad);
        assert_eq!((pair.outputs(0), pair.managers[0].deadline()), ((vec![], vec![]), due), "{mad:?}");
    }
    pair.deliver(0, &rep);
    assert!(matches!(pair.event(0), (id, Event::Response(_)) if id == active));
}

/// Every implementation of connection management repeats the transaction id of a REQ, as the specification
/// has it.
#[test]
fn the_kernel_repeats_the_transaction_id_of_a_request() {
    let requests: Vec<_> = messages("REQ").into_iter().map(|(transaction, _)| transaction).collect();
    let answers: Vec<_> = ["REP", "REJ", "MRA"].into_iter().flat_map(messages).collect();
    assert!(answers.len() > 5);
    assert!(answers.iter().all(|(transaction, _)| requests.contains(transaction)));
}

/// Among the processes of a host, the two messages may take different ways. The request is then pending as if
/// the REJ had been lost: until the program accepts it, at the latest.
#[test]
fn a_rejection_that_overtakes_its_request_is_repeated_when_the_request_is_accepted() {
    for has_exited in [false, true] {
        let mut pair = Pair::new();
        let active = pair.managers[0].connect(route(0), &connect(QPN), pair.now).unwrap();
        let req = pair.only(0);
        pair.managers[0].destroy(active, pair.now);
        let rej = pair.only(0);
        pair.deliver(1, &rej);
        assert_eq!(pair.outputs(1), (vec![], vec![]), "there is no request yet");
        pair.deliver(1, &req);
        let (passive, event) = pair.event(1);
        assert!(matches!(event, Event::Request(_)));
        if has_exited {
            pair.managers[0] = manager(0, 100);
        }
        pair.managers[1].fetched(passive);
        pair.managers[1].accept(passive, &accept(2), pair.now).unwrap();
        let reason = if has_exited { Reason::INVALID_COMM_ID } else { Reason::TIMEOUT };
        assert_eq!(pair.run(), [vec![], vec![(passive, rejected(reason, b""))]]);
    }
}

/// The reason for which a changed REQ is rejected.
fn reason(change: impl FnOnce(&mut Req)) -> Reason {
    let mut pair = Pair::new();
    pair.managers[0].connect(route(0), &connect(QPN), pair.now).unwrap();
    let mut mad = pair.only(0);
    change(req(&mut mad));
    pair.deliver(1, &mad);
    let Message::Rej(rej) = pair.only(1).message else { panic!() };
    assert_eq!((rej.answered, rej.local_comm_id), (Answered::Req, 0));
    assert!(pair.managers[1].is_empty());
    rej.reason
}

#[test]
fn an_unacceptable_request_is_rejected() {
    for other in [Transport::Uc, Transport::Rd, Transport::Extended] {
        assert_eq!(reason(|req| req.transport = other), Reason::INVALID_TRANSPORT);
    }
    assert_eq!(reason(|req| req.path_mtu = 6), Reason::INVALID_MTU);
    assert_eq!(reason(|req| req.path_mtu = 0), Reason::INVALID_MTU);
    assert_eq!(reason(|req| req.primary.local_gid[15] ^= 1), Reason::INVALID_GID);
    assert_eq!(reason(|req| req.primary.remote_gid[15] ^= 1), Reason::INVALID_GID);
    assert_eq!(reason(|req| req.private_data[0] = 1), Reason::CONSUMER);
    assert_eq!(reason(|req| req.private_data[19] ^= 1), Reason::INVALID_GID);
    for qpn in RESERVED {
        assert_eq!(reason(|req| req.local_qpn = qpn), Reason::CONSUMER);
    }
    assert_eq!(reason(|req| req.local_comm_id = 0), Reason::CONSUMER);
}

#[test]
fn a_listener_for_unreliable_connections_accepts_these_only() {
    let mut pair = Pair { managers: [0, 1].map(|host| manager(host, 1)), now: 1_000_000 };
    pair.managers[1].listen(service(), Transport::Uc, Bound::Any, 8);
    let call = Connect { transport: Transport::Uc, ..connect(QPN) };
    pair.managers[0].connect(route(0), &call, pair.now).unwrap();
    let mut mad = pair.only(0);
    assert_eq!(req(&mut mad).transport, Transport::Uc);
    pair.deliver(1, &mad);
    assert!(matches!(pair.event(1).1, Event::Request(_)));
    let active = pair.managers[0].connect(route(0), &connect(QPN + 1), pair.now).unwrap();
    assert_eq!(pair.run(), [vec![(active, rejected(Reason::INVALID_TRANSPORT, b""))], vec![]]);
}

#[test]
fn a_reply_with_a_reserved_queue_pair_number_is_dropped() {
    let mut pair = Pair::new();
    let (active, _, rep) = pair.accepted([QPN, 2]);
    for qpn in RESERVED {
        let mut forged = rep.clone();
        let Message::Rep(rep) = &mut forged.message else { panic!() };
        rep.local_qpn = qpn;
        pair.deliver(0, &forged);
        assert_eq!(pair.outputs(0), (vec![], vec![]), "{qpn:#x}");
    }
    pair.deliver(0, &rep);
    assert!(matches!(pair.event(0), (id, Event::Response(_)) if id == active));
}

#[test]
fn a_request_to_another_address_is_another_request() {
    let mut pair = Pair::new();
    let (_, first, mut mad) = pair.requested(QPN);
    let elsewhere = Route { local: [10, 80, 0, 7].into(), ..route(1) };
    req(&mut mad).local_qpn = 2;
    req(&mut mad).primary.remote_gid[15] = 7;
    req(&mut mad).private_data[35] = 7;
    assert_eq!(pair.managers[1].receive(&mad, elsewhere, pair.now), Received::Taken);
    let Some(Output::Event { id, event: Event::Request(request) }) = pair.managers[1].poll() else {
        panic!("no request")
    };
    assert!(id != first && request.route == elsewhere);
}

#[test]
fn a_queue_pair_number_in_use_is_stale() {
    let mut pair = Pair::new();
    let (active, passive) = pair.established([QPN, 2]);
    // The peer was restarted, and has the same queue pair number by accident.
    pair.managers[0] = manager(0, 100);
    let again = pair.managers[0].connect(route(0), &connect(QPN), pair.now).unwrap();
    assert_ne!(again, active);
    let events = pair.run();
    assert_eq!(events[0], [(again, rejected(Reason::STALE_CONNECTION, b""))]);
    assert_eq!(events[1], [(passive, Event::Disconnected)]);
    // During the time wait it still is.
    pair.managers[0].connect(route(0), &connect(QPN), pair.now).unwrap();
    assert_eq!(pair.run()[1], []);
    pair.wait(1);
    assert_eq!(pair.event(1), (passive, Event::TimeWaitExit));
    pair.managers[0].connect(route(0), &connect(QPN), pair.now).unwrap();
    assert!(matches!(pair.run()[1][..], [(_, Event::Request(_))]));
}

#[test]
fn a_reply_with_a_queue_pair_number_in_use_is_stale() {
    let mut pair = Pair::new();
    let (first, _) = pair.established([QPN, 2]);
    pair.managers[1] = manager(1, 100);
    pair.managers[1].listen(service(), Transport::Rc, Bound::Any, 8);
    let (active, passive, rep) = pair.accepted([3, 2]);
    pair.deliver(0, &rep);
    let events = pair.run();
    let stale = rejected(Reason::STALE_CONNECTION, b"");
    assert_eq!(events[0], [(active, stale.clone()), (first, Event::Disconnected)]);
    assert_eq!(events[1], [(passive, stale)]);
}

/// The address of a GID.
fn address(gid: [u8; 16]) -> IpAddr {
    IpAddr::from(gid).to_canonical()
}

#[test]
fn requests_of_the_kernel_are_accepted() {
    let requests = messages("REQ");
    assert!(requests.len() > 5);
    for (transaction, message) in requests {
        let Message::Req(req) = &message else { panic!("{message:?}") };
        let route = Route { local: address(req.primary.remote_gid), remote: address(req.primary.local_gid) };
        let mut manager = manager(1, 1);
        manager.listen(req.service_id, Transport::Rc, Bound::Address(route.local), 1);
        let mad = Mad { transaction, message: message.clone() };
        assert_eq!(manager.receive(&mad, route, 0), Received::Taken);
        let Some(Output::Event { id, event: Event::Request(request) }) = manager.poll() else {
            panic!("{:?}", manager.poll())
        };
        assert_eq!((request.route, request.param.qpn), (route, req.local_qpn));
        manager.accept(id, &accept(9), 0).unwrap();
        let Some(Output::Send { route: by, mad }) = manager.poll() else { panic!() };
        assert_eq!((by, mad.transaction), (route, transaction));
    }
}
