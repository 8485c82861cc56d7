// SPDX-License-Identifier: BSD-3-Clause
//! Datagrams: two queue pairs whose packets the test carries.

use std::sync::Arc;

use super::*;
use crate::roce::wire::ip_header;
use crate::roce::wire::{Addresses, MULTICAST_QP};
use crate::route::Route;
use crate::step::{Awaits, Budget, Quota, Stepped, reason};
use crate::testing::packets::Packets;
use crate::testing::queues::request;
use crate::testing::recorder::{BARE, BASE, Call, Recorder, STAG};
use crate::wr::{Local, RecvWr, SendWr, Sge};

const NUMBERS: [u32; 2] = [0x11_0001, 0x22_0002];
const QKEYS: [u32; 2] = [0x1111_1111, 0x9222_2222];
const MTU: usize = 1024;

fn route(last: u8) -> Route {
    let [local, peer] = [1, last].map(|last| [10, 80, 0, last].into());
    Route { local, peer, scope: 0, traffic_class: 0, hop_limit: 64 }
}

/// A send of `len` bytes from the beginning of the memory to the second queue pair.
fn wr(id: u64, op: Op, len: u32) -> SendWr {
    SendWr {
        imm: [1, 2, 3, 4],
        local: Local::memory(&[Sge::new(BASE, len, STAG)]).unwrap(),
        len,
        to: Some(Destination { route: Arc::new(route(2)), qp: NUMBERS[1], qkey: QKEYS[1] & !OWN_QKEY }),
        ..request(id, op, true)
    }
}

struct Pair {
    qps: [Ud; 2],
    hosts: [Recorder<Packets>; 2],
}

impl Pair {
    fn new() -> Self {
        Self::with(true)
    }

    fn with(own_receives: bool) -> Self {
        let qps = [0, 1].map(|me| {
            let mut qp = Ud::new(NUMBERS[me], 4, own_receives).unwrap();
            qp.receive(Terms { mtu: PathMtu::Mtu1024, qkey: QKEYS[me] & !OWN_QKEY });
            qp.send(Psn::new(0xff_ffff));
            qp
        });
        Self { qps, hosts: [(); 2].map(|()| Recorder::new(Packets::default())) }
    }

    fn post(&mut self, wr: SendWr) {
        self.hosts[0].queues.sends.push_back(wr);
        self.step(0, reason::POSTED);
    }

    /// Posts a receive of the second side, at an offset of the memory.
    fn post_receive(&mut self, id: u64, at: u64, len: u32) {
        self.hosts[1].queues.receives.push_back(RecvWr::one(id, BASE + at, len, STAG));
    }

    fn step(&mut self, me: usize, why: u32) -> Stepped {
        let quota = Quota { bytes: usize::MAX, operations: 100 };
        self.qps[me].step(&mut self.hosts[me], why, Budget { send: quota, receive: quota })
    }

    /// Carries what the first side has sent, with the header that it arrives with.
    fn carry(&mut self) {
        let sent = std::mem::take(&mut self.hosts[0].link.sent);
        self.hosts[1].link.arrived.extend(sent.into_iter().map(|packet| [&header()[..], &packet].concat()));
        self.step(1, reason::READABLE);
    }

    fn dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.hosts[1].link.dropped)
    }
}

fn header() -> [u8; IP_HEADER_LEN] {
    ip_header(&Addresses::V4 { source: [10, 80, 0, 1], destination: [10, 80, 0, 2] }, 0, 64, 28)
}

#[test]
fn a_datagram_fills_a_receive_behind_its_header() {
    let mut pair = Pair::new();
    pair.hosts[0].memory.bytes[..7].copy_from_slice(b"message");
    pair.post_receive(7, 0x100, 100);
    let behind = pair.hosts[1].memory.bytes[0x12f..].to_vec();
    pair.post(SendWr { solicited: true, ..wr(1, Op::SendWithImm, 7) });
    assert_eq!(pair.hosts[0].link.aimed, [route(2)]);
    pair.carry();
    let sent = pair.hosts[0].completions();
    assert_eq!((sent[0].wr_id, sent[0].status, sent[0].opcode), (1, status::SUCCESS, opcode::SEND));
    let expected = Completion {
        wr_id: 7,
        opcode: opcode::RECV,
        byte_len: 47,
        extra: Extra::Imm([1, 2, 3, 4]),
        qp_num: NUMBERS[1],
        solicited: true,
        sender: Some(Sender { qp: NUMBERS[0], is_ipv4: true }),
        ..Completion::default()
    };
    assert_eq!(pair.hosts[1].completions(), [expected]);
    let memory = &pair.hosts[1].memory.bytes;
    assert_eq!((&memory[0x100..0x128], &memory[0x128..0x12f]), (&header()[..], &b"message"[..]));
    assert!(memory[0x12f..] == behind);
}

#[test]
fn psns_count_datagrams_and_the_q_key_may_be_the_own_one() {
    let mut pair = Pair::new();
    pair.post(wr(1, Op::Send, 0));
    let mut to_own = wr(2, Op::Send, 5);
    to_own.to = Some(Destination { route: Arc::new(route(3)), qp: MULTICAST_QP, qkey: QKEYS[1] });
    pair.post(to_own);
    let sent: Vec<_> = pair.hosts[0].link.sent.iter().map(|packet| Packet::parse(packet).unwrap()).collect();
    let deth = |qkey| Extension::Deth(Deth { qkey, source_qp: NUMBERS[0] });
    assert_eq!((sent[0].bth.psn.get(), sent[0].bth.dest_qp), (0xff_ffff, NUMBERS[1]));
    assert_eq!(sent[0].extension, deth(QKEYS[1] & !OWN_QKEY));
    assert_eq!((sent[1].bth.psn.get(), sent[1].bth.dest_qp, sent[1].bth.pad), (0, MULTICAST_QP, 3));
    assert_eq!(sent[1].extension, deth(QKEYS[0]));
    assert_eq!(pair.hosts[0].link.aimed, [route(2), route(3)]);
}

#[test]
fn a_full_link_keeps_sends_in_the_queue() {
    let mut pair = Pair::new();
    pair.hosts[0].link.room = Some(1);
    pair.post(wr(1, Op::Send, 1));
    pair.post(wr(2, Op::Send, 2));
    assert_eq!((pair.hosts[0].statuses(), pair.qps[0].outstanding()), (vec![(1, 0)], 1));
    pair.hosts[0].link.room = None;
    pair.step(0, reason::POSTED);
    assert_eq!(pair.hosts[0].statuses(), [], "the link has not reported room");
    pair.step(0, reason::WRITABLE);
    assert_eq!(pair.hosts[0].statuses(), [(2, 0)]);
}

#[test]
fn what_has_no_receive_or_another_q_key_is_dropped() {
    let mut pair = Pair::new();
    pair.post(wr(1, Op::Send, 1));
    pair.carry();
    assert_eq!(pair.dropped(), [Dropped::NoReceive]);
    pair.post_receive(7, 0, 41);
    let mut other = wr(2, Op::Send, 1);
    other.to.as_mut().unwrap().qkey += 1;
    pair.post(other);
    pair.carry();
    assert_eq!(pair.dropped(), [Dropped::Qkey]);
    pair.qps[1].set_qkey(1);
    pair.post(wr(3, Op::Send, 1));
    pair.carry();
    assert_eq!((pair.dropped(), pair.hosts[1].statuses()), (vec![Dropped::Qkey], vec![]));
    let mut right = wr(4, Op::Send, 1);
    right.to.as_mut().unwrap().qkey = 1;
    pair.post(right);
    pair.carry();
    assert_eq!(pair.hosts[1].statuses(), [(7, 0)]);
}

#[test]
fn malformed_packets_are_dropped() {
    let mut pair = Pair::new();
    pair.post_receive(7, 0, 1000);
    pair.post(wr(1, Op::Send, 4));
    let sent = [&header()[..], &pair.hosts[0].link.sent[0]].concat();
    let change = |at: usize, value: u8| {
        let mut packet = sent.clone();
        packet[at] = value;
        packet
    };
    // A packet of RC, another partition.
    let packets = [
        sent[..10].to_vec(),
        sent[..IP_HEADER_LEN + 15].to_vec(),
        change(IP_HEADER_LEN, 4),
        change(IP_HEADER_LEN + 2, 0),
    ];
    for packet in packets {
        pair.hosts[1].link.arrived.push_back(packet);
        pair.step(1, reason::READABLE);
    }
    let malformed = Dropped::Malformed;
    assert_eq!(pair.dropped(), [malformed, malformed, malformed, Dropped::Pkey]);
    assert_eq!(pair.hosts[1].statuses(), []);
}

#[test]
fn a_receive_that_is_too_short_stays_unless_it_is_shared() {
    for own in [true, false] {
        let mut pair = Pair::with(own);
        pair.post_receive(7, 0, 47);
        pair.post(wr(1, Op::Send, 8));
        pair.carry();
        assert_eq!(pair.dropped(), [Dropped::TooLong]);
        assert_eq!(pair.hosts[1].statuses(), if own { vec![] } else { vec![(7, status::LOC_LEN_ERR)] });
        assert_eq!(pair.qps[1].has_receive(), own);
        pair.post(wr(2, Op::Send, 7));
        pair.carry();
        assert_eq!(pair.hosts[1].statuses(), if own { vec![(7, 0)] } else { vec![] });
        assert!(pair.qps[1].is_open());
    }
}

#[test]
fn a_send_that_fails_leads_to_sqe_and_receives_go_on() {
    let mut request = wr(2, Op::Send, 8);
    request.local = Local::memory(&[Sge::new(BASE, 8, 0x999)]).unwrap();
    let mut nowhere = wr(2, Op::Send, 8);
    nowhere.to = None;
    for (failing, status) in [
        (wr(2, Op::Send, MTU as u32 + 1), status::LOC_LEN_ERR),
        (request, status::LOC_PROT_ERR),
        (nowhere, status::LOC_QP_OP_ERR),
        (wr(2, Op::Write, 8), status::LOC_QP_OP_ERR),
    ] {
        let mut pair = Pair::new();
        let behind = SendWr { signaled: false, ..wr(3, Op::Send, 8) };
        pair.hosts[0].queues.sends.extend([wr(1, Op::Send, MTU as u32), failing, behind]);
        pair.step(0, reason::POSTED);
        let flushed = status::WR_FLUSH_ERR;
        let at = |wanted: &dyn Fn(&Call) -> bool| pair.hosts[0].calls.iter().position(wanted).unwrap();
        let in_sqe = at(&|call| *call == Call::SendFailed);
        let completed = at(&|call| matches!(call, Call::SendDone(done) if done.status != status::SUCCESS));
        assert!(in_sqe < completed, "the program may call ibv_modify_qp at once");
        assert_eq!(pair.hosts[0].statuses(), [(1, 0), (2, status), (3, flushed)]);
        pair.post(wr(4, Op::Send, 8));
        assert_eq!(pair.hosts[0].statuses(), [(4, flushed)]);
        assert_eq!(pair.hosts[0].link.sent.len(), 1);
        let sent = [&header()[..], &pair.hosts[0].link.sent[0]].concat();
        pair.hosts[0].link.arrived.push_back(sent);
        pair.hosts[0].queues.receives.push_back(RecvWr::one(7, BASE, 2000, STAG));
        pair.qps[0].set_qkey(QKEYS[1] & !OWN_QKEY);
        pair.step(0, reason::READABLE);
        assert_eq!(pair.hosts[0].statuses(), [(7, 0)]);
    }
}

#[test]
fn sends_are_begun_again_after_sqd() {
    let mut pair = Pair::new();
    pair.qps[0].drain(true);
    assert!(pair.qps[0].has_drained() && !pair.qps[0].has_drained(), "reported once");
    pair.post(wr(1, Op::Send, 8));
    assert_eq!(pair.hosts[0].statuses(), []);
    pair.qps[0].drain(false);
    pair.step(0, reason::POSTED);
    assert_eq!((pair.hosts[0].statuses(), pair.qps[0].has_drained()), (vec![(1, 0)], false));
}

#[test]
fn memory_of_a_receive_that_cannot_be_written_ends_the_queue_pair() {
    let mut pair = Pair::new();
    let wrong = RecvWr::one(7, BASE, 100, BARE);
    pair.hosts[1].queues.receives.extend([wrong, RecvWr::one(8, BASE, 100, STAG)]);
    let before = pair.hosts[1].memory.bytes.clone();
    pair.post(wr(1, Op::Send, 8));
    pair.carry();
    assert_eq!(pair.hosts[1].statuses(), [(7, status::LOC_PROT_ERR), (8, status::WR_FLUSH_ERR)]);
    assert!(pair.qps[1].is_over() && before == pair.hosts[1].memory.bytes);
}

#[test]
fn a_full_completion_queue_keeps_one_completion_and_drops_datagrams() {
    let mut pair = Pair::new();
    pair.hosts[1].queues.recv_cq.room = 1;
    (0..4).for_each(|id| pair.post_receive(id, 0, 100));
    for id in 1..=3 {
        pair.post(wr(id, Op::Send, 8));
    }
    pair.carry();
    assert_eq!((pair.hosts[1].statuses(), pair.dropped()), (vec![(0, 0)], vec![Dropped::NoReceive]));
    pair.hosts[1].queues.recv_cq.room = 10;
    assert_eq!(pair.step(1, reason::ROOM).awaits, Awaits::Nothing);
    pair.post(wr(4, Op::Send, 8));
    pair.carry();
    assert_eq!(pair.hosts[1].statuses(), [(1, 0), (2, 0)]);
}

#[test]
fn the_end_takes_what_has_arrived_and_flushes_the_rest() {
    let mut pair = Pair::new();
    pair.post_receive(7, 0, 100);
    pair.post_receive(8, 0, 100);
    pair.post(wr(1, Op::Send, 8));
    let sent = pair.hosts[0].link.sent.remove(0);
    pair.hosts[1].link.arrived.push_back([&header()[..], &sent].concat());
    pair.hosts[1].queues.sends.push_back(wr(9, Op::Send, MTU as u32));
    pair.hosts[1].link.room = Some(0);
    pair.step(1, reason::DISCONNECT);
    let flushed = status::WR_FLUSH_ERR;
    assert_eq!(pair.hosts[1].statuses(), [(7, 0), (9, flushed), (8, flushed)]);
    assert!(pair.qps[1].is_over() && pair.hosts[1].queues.ended);
}
