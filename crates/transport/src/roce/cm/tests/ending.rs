// SPDX-License-Identifier: BSD-3-Clause
//! The end of connections and of identifiers.

use super::*;
use crate::limits::CM_MAX_ENDED;
use crate::roce::wire::cm::{Dreq, Rej};

/// The last event of both sides, after which the managers are empty.
fn ends(pair: &mut Pair) -> [Vec<Event>; 2] {
    let mut all = [Vec::new(), Vec::new()];
    loop {
        for (side, events) in pair.run().into_iter().enumerate() {
            all[side].extend(events.into_iter().map(|(_, event)| event));
        }
        match (0..2).filter_map(|side| Some((pair.managers[side].deadline()?, side))).min() {
            Some((_, side)) => pair.wait(side),
            None => break,
        }
    }
    assert!(pair.managers.iter().all(Manager::is_empty));
    all
}

#[test]
fn a_disconnection_is_reported_at_both_sides() {
    for side in 0..2 {
        let mut pair = Pair::new();
        let ids = pair.established([QPN, 2]);
        let id = [ids.0, ids.1][side];
        pair.managers[side].disconnect(id, &[], pair.now).unwrap();
        let began = pair.now;
        let end = || vec![Event::Disconnected, Event::TimeWaitExit];
        assert_eq!(ends(&mut pair), [end(), end()]);
        assert_eq!((pair.now - began) / MS, 536, "the local ACK timeout of the connection");
        assert_eq!(pair.managers[side].disconnect(id, &[], pair.now), Err(libc::EINVAL));
    }
}

#[test]
fn a_process_that_exits_ends_all_that_it_has_by_a_message() {
    let mut pair = Pair::new();
    let (_, established) = pair.established([QPN, 2]);
    let (_, ended) = pair.established([3, 4]);
    pair.managers[1].disconnect(ended, &[], pair.now).unwrap();
    assert!(matches!(pair.only(1).message, Message::Dreq(_)));
    let (_, requested, _) = pair.requested(5);
    let (_, accepted, _) = pair.accepted([7, 8]);
    pair.managers[1].destroy_all(pair.now);
    let mut sent = Vec::new();
    for Mad { message, .. } in pair.sent(1) {
        sent.push(match message {
            Message::Dreq(Dreq { local_comm_id, .. }) => (local_comm_id, "DREQ"),
            Message::Rej(Rej { local_comm_id, .. }) => (local_comm_id, "REJ"),
            other => panic!("{other:?}"),
        });
    }
    sent.sort_unstable();
    let mut expected = vec![
        (established.0, "DREQ"),
        (requested.0, "REJ"),
        // The peer has either received the REP or not.
        (accepted.0, "DREQ"),
        (accepted.0, "REJ"),
    ];
    expected.sort_unstable();
    assert_eq!(sent, expected);
    pair.managers[1].destroy_all(pair.now);
    assert_eq!(pair.sent(1), []);
}

/// The outputs of a side, in order: true is a message, false an event. Advances the time until there is an
/// event.
fn up_to_event(pair: &mut Pair, side: usize) -> Vec<bool> {
    loop {
        let outputs: Vec<_> = std::iter::from_fn(|| pair.managers[side].poll()).collect();
        if outputs.iter().any(|output| matches!(output, Output::Event { .. })) {
            return outputs.iter().map(|output| matches!(output, Output::Send { .. })).collect();
        }
        pair.wait(side);
    }
}

/// The program may exit when it has the event, before a thread sends later messages.
#[test]
fn the_last_message_is_sent_before_the_end_is_reported() {
    let mut pair = Pair::new();
    let (active, _) = pair.established([QPN, 2]);
    pair.managers[0].disconnect(active, &[], pair.now).unwrap();
    let dreq = pair.only(0);
    pair.deliver(1, &dreq);
    assert_eq!(up_to_event(&mut pair, 1), [true, false], "the DREP");

    let mut pair = Pair::new();
    pair.requested(QPN);
    assert_eq!(up_to_event(&mut pair, 0), [true, false], "the REJ of a request without an answer");

    let mut pair = Pair::new();
    pair.accepted([QPN, 2]);
    assert_eq!(up_to_event(&mut pair, 1), [true, true, false], "the REJ and the DREQ after a REP");

    let mut pair = Pair::new();
    pair.established([QPN, 2]);
    let (_, _, rep) = pair.accepted([3, 2]);
    pair.deliver(0, &rep);
    // The DREQ of the stale connection, and the REJ.
    assert_eq!(up_to_event(&mut pair, 0), [true, true, false]);
}

/// Otherwise the identifier would use and destroy the connection of another one.
#[test]
fn a_communication_id_is_not_reused_while_an_identifier_has_it() {
    let mut pair = Pair::new();
    let numbers = |numbers: &'static [u32]| {
        let mut numbers = numbers.iter().copied();
        move || numbers.next().unwrap()
    };
    // Each attempt draws communication ids until one is free, and then a transaction id.
    pair.managers[0] = Manager::new(settings(0), numbers(&[1, 9, 1, 2, 9, 1, 9]));
    let (first, _) = pair.established([QPN, 2]);
    pair.managers[0].disconnect(first, &[], pair.now).unwrap();
    ends(&mut pair);
    let second = pair.managers[0].connect(route(0), &connect(3), pair.now).unwrap();
    assert_eq!([first.0 & 0xff, second.0 & 0xff], [1, 2]);
    pair.outputs(0);
    pair.managers[0].destroy(first, pair.now);
    let third = pair.managers[0].connect(route(0), &connect(4), pair.now).unwrap();
    assert_eq!(third, first);
    pair.outputs(0);
    pair.managers[0].destroy(third, pair.now);
    assert!(matches!(pair.only(0).message, Message::Rej(_)));
    pair.managers[0].destroy(third, pair.now);
    assert_eq!(pair.sent(0), []);
}

#[test]
fn crossing_disconnections_end_both_sides() {
    let mut pair = Pair::new();
    let (active, passive) = pair.established([QPN, 2]);
    pair.managers[0].disconnect(active, &[], pair.now).unwrap();
    pair.managers[1].disconnect(passive, &[], pair.now).unwrap();
    pair.managers[1].disconnect(passive, &[], pair.now).unwrap();
    let end = || vec![Event::Disconnected, Event::TimeWaitExit];
    assert_eq!(ends(&mut pair), [end(), end()]);
}

#[test]
fn a_lost_rtu_is_replaced_by_the_dreq() {
    let mut pair = Pair::new();
    let (active, passive, rep) = pair.accepted([QPN, 2]);
    pair.deliver(0, &rep);
    pair.managers[0].establish(active, &[]).unwrap();
    pair.outputs(0);
    pair.managers[0].disconnect(active, &[], pair.now).unwrap();
    assert_eq!(pair.run()[1], [(passive, Event::Established), (passive, Event::Disconnected)]);
}

#[test]
fn a_peer_that_does_not_answer_is_disconnected_after_all_retries() {
    let mut pair = Pair::new();
    let (active, _) = pair.established([QPN, 2]);
    pair.managers[0].disconnect(active, &[], pair.now).unwrap();
    let began = pair.now;
    let end = loop {
        pair.wait(0);
        let (_, events) = pair.outputs(0);
        if let [event] = &events[..] {
            break event.clone();
        }
    };
    assert_eq!(end, (active, Event::Disconnected));
    assert_eq!((pair.now - began) / MS, 16 * 4_831 + 13);
}

#[test]
fn a_destroyed_identifier_notifies_its_peer_and_reports_nothing() {
    let mut pair = Pair::new();
    let (active, _) = pair.established([QPN, 2]);
    pair.managers[0].destroy(active, pair.now);
    pair.outputs(0);
    pair.wait(0);
    assert_eq!(
        ends(&mut pair),
        [vec![], vec![Event::Disconnected, Event::TimeWaitExit]],
        "by a repeated DREQ"
    );

    let mut pair = Pair::new();
    let (_, passive, rep) = pair.accepted([3, 4]);
    pair.managers[1].destroy(passive, pair.now);
    assert_eq!(ends(&mut pair), [vec![rejected(Reason::CONSUMER, b"")], vec![]]);
    // The peer may have the reply.
    let mut pair = Pair::new();
    let (active, passive, _) = pair.accepted([3, 4]);
    pair.deliver(0, &rep_of(&rep, passive, active));
    pair.outputs(0);
    pair.managers[0].establish(active, &[]).unwrap();
    pair.managers[1].destroy(passive, pair.now);
    let [ended, _] = ends(&mut pair);
    assert_eq!(ended, [Event::Disconnected, Event::TimeWaitExit]);
}

#[test]
fn a_dreq_may_overtake_the_rep() {
    let mut pair = Pair::new();
    let (active, passive, rep) = pair.accepted([QPN, 2]);
    pair.managers[1].destroy(passive, pair.now);
    let sent = pair.sent(1);
    assert!(matches!(&sent[0].message, Message::Rej(_)), "which is lost");
    pair.deliver(0, &sent[1]);
    assert_eq!(pair.event(0), (active, rejected(Reason::CONSUMER, b"")));
    pair.deliver(0, &rep);
    assert_eq!(pair.sent(0), []);
}

/// A REP between other communication ids.
fn rep_of(mad: &Mad, passive: CommId, active: CommId) -> Mad {
    let Message::Rep(mut rep) = mad.message.clone() else { panic!() };
    (rep.local_comm_id, rep.remote_comm_id) = (passive.0, active.0);
    Mad { transaction: mad.transaction, message: Message::Rep(rep) }
}

#[test]
fn an_accepted_request_can_be_disconnected() {
    let mut pair = Pair::new();
    let (_, passive, _) = pair.accepted([QPN, 2]);
    pair.managers[1].disconnect(passive, &[], pair.now).unwrap();
    assert_eq!(ends(&mut pair), [vec![rejected(Reason::CONSUMER, b"")], vec![Event::ConnectError]]);
}

#[test]
fn only_a_connection_can_be_disconnected() {
    let mut pair = Pair::new();
    let (active, passive, _) = pair.requested(QPN);
    assert_eq!(pair.managers[0].disconnect(active, &[], pair.now), Err(libc::EINVAL));
    assert_eq!(pair.managers[0].establish(active, &[]), Err(libc::EINVAL));
    assert_eq!(pair.managers[1].disconnect(passive, &[], pair.now), Err(libc::EINVAL));
    assert_eq!(pair.managers[1].establish(passive, &[]), Err(libc::EINVAL));
    assert_eq!(pair.managers[1].disconnect(CommId(9), &[], pair.now), Err(libc::EINVAL));
}

#[test]
fn a_dreq_to_an_unknown_communication_id_is_answered() {
    let mut pair = Pair::new();
    let dreq = Dreq {
        local_comm_id: 5,
        remote_comm_id: 6,
        remote_qpn: 7,
        private_data: [0; Dreq::PRIVATE_DATA_LEN],
    };
    pair.deliver(0, &Mad { transaction: 8, message: Message::Dreq(dreq) });
    let mad = pair.only(0);
    let Message::Drep(drep) = mad.message else { panic!() };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id, mad.transaction), (6, 5, 8));
}

#[test]
fn a_guessed_message_ends_nothing() {
    let mut pair = Pair::new();
    let (active, passive) = pair.established([QPN, 2]);
    let dreq = |local, remote_qpn| {
        let dreq = Dreq {
            local_comm_id: local,
            remote_comm_id: passive.0,
            remote_qpn,
            private_data: [0; Dreq::PRIVATE_DATA_LEN],
        };
        Mad { transaction: 8, message: Message::Dreq(dreq) }
    };
    let rej = Rej {
        local_comm_id: active.0 + 1,
        remote_comm_id: passive.0,
        answered: crate::roce::wire::cm::Answered::Other,
        info_len: 0,
        reason: Reason::CONSUMER,
        info: [0; Rej::INFO_LEN],
        private_data: [0; 148],
    };
    pair.deliver(1, &dreq(active.0 + 1, 2));
    pair.deliver(1, &dreq(active.0, 3));
    pair.deliver(1, &Mad { transaction: 8, message: Message::Rej(rej) });
    assert_eq!(pair.sent(1).len(), 2, "a DREP for each DREQ");
    let elsewhere = Route { remote: [10, 80, 0, 9].into(), ..route(1) };
    pair.managers[1].receive(&dreq(active.0, 2), elsewhere, pair.now);
    assert!(matches!(pair.managers[1].poll(), Some(Output::Send { route, .. }) if route == elsewhere));
    assert!(pair.managers[1].poll().is_none());
    pair.deliver(1, &dreq(active.0, 2));
    assert_eq!(pair.event(1), (passive, Event::Disconnected));
}

#[test]
fn destroyed_connections_that_the_peer_does_not_end_are_limited() {
    let mut pair = Pair::new();
    for n in 0..=CM_MAX_ENDED as u32 {
        let (active, passive) = pair.established([QPN + 2 * n, QPN + 2 * n + 1]);
        pair.managers[1].kill(passive);
        pair.managers[0].destroy(active, pair.now);
        assert!(matches!(pair.only(0).message, Message::Dreq(_)), "which is lost");
    }
    assert_eq!(pair.managers[0].count(), CM_MAX_ENDED);
    assert_eq!(ends(&mut pair), [vec![], vec![]]);
}

#[test]
fn the_death_of_a_peer_ends_the_attempt_or_connection() {
    let died = |pair: &mut Pair, side: usize| {
        let peers: Vec<_> = pair.managers[side].local_peers().collect();
        assert_eq!(peers, [], "another GUID");
        // Both managers are on one host.
        pair.managers[side].set_guid(GUIDS[1 - side]);
        let peers: Vec<_> = pair.managers[side].local_peers().collect();
        let other = LocalPeer { comm_id: peers[0].comm_id + 1, ..peers[0] };
        pair.managers[side].peer_died(&other, pair.now);
        assert_eq!(pair.outputs(side), (vec![], vec![]), "another peer");
        pair.managers[side].peer_died(&peers[0], pair.now);
        assert_eq!(pair.managers[side].local_peers().count(), 0);
        let (sent, events) = pair.outputs(side);
        assert_eq!(sent, [], "no process would receive it");
        pair.managers[side].peer_died(&peers[0], pair.now);
        assert_eq!(pair.outputs(side), (vec![], vec![]), "a second time");
        events
    };

    for side in 0..2 {
        let mut pair = Pair::new();
        let ids = pair.established([QPN, 2]);
        let id = [ids.0, ids.1][side];
        assert_eq!(died(&mut pair, side), [(id, Event::Disconnected)]);
        pair.wait(side);
        assert_eq!(pair.event(side), (id, Event::TimeWaitExit));
        assert!(pair.managers[side].is_empty());
        // The DREP of a process that died.
        let mut pair = Pair::new();
        let ids = pair.established([QPN, 2]);
        let id = [ids.0, ids.1][side];
        pair.managers[side].disconnect(id, &[], pair.now).unwrap();
        pair.outputs(side);
        assert_eq!(died(&mut pair, side), [(id, Event::Disconnected)]);
    }
    let mut pair = Pair::new();
    let (_, passive, _) = pair.requested(QPN);
    assert_eq!(died(&mut pair, 1), [(passive, rejected(Reason::TIMEOUT, b""))]);
    assert_eq!(pair.managers[1].accept(passive, &accept(2), pair.now), Err(libc::EINVAL));
    let mut pair = Pair::new();
    let (active, passive, rep) = pair.accepted([QPN, 2]);
    assert_eq!(died(&mut pair, 1), [(passive, rejected(Reason::TIMEOUT, b""))]);
    pair.deliver(0, &rep);
    assert!(matches!(pair.event(0), (_, Event::Response(_))));
    assert_eq!(died(&mut pair, 0), [(active, rejected(Reason::CONSUMER, b""))]);
    assert_eq!(pair.managers[0].establish(active, &[]), Err(libc::EINVAL));
}
