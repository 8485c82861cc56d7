// SPDX-License-Identifier: BSD-3-Clause
//! Unreliable connections: two queue pairs whose packets the test carries.

use super::*;
use crate::access::{LOCAL_WRITE, REMOTE_WRITE};
use crate::host::Ended;
use crate::roce::wire::{DEFAULT_PKEY, Extension, PSN_AT, PathMtu, Reth};
use crate::step::{Budget, Quota, Stepped, reason};
use crate::testing::packets::Packets;
use crate::testing::queues::request;
use crate::testing::recorder::{BARE, BASE, Call, Recorder, STAG};
use crate::wr::{Completion, Extra, Local, RecvWr, Sge, opcode};

const NUMBERS: [u32; 2] = [0x11_0001, 0x22_0002];
/// A PSN that wraps around soon.
const FIRST: u32 = 0xff_fffe;

const OK: u32 = status::SUCCESS;

/// Requests go from the first side to the second.
struct Pair {
    qps: [Uc; 2],
    hosts: [Recorder<Packets>; 2],
}

/// A request with payload from the beginning of the memory, and the remote offset 0x1000.
fn wr(id: u64, op: Op, len: u32) -> SendWr {
    SendWr {
        imm: [1, 2, 3, 4],
        local: Local::memory(&[Sge::new(BASE, len, STAG)]).unwrap(),
        len,
        remote_addr: BASE + 0x1000,
        rkey: STAG,
        ..request(id, op, true)
    }
}

impl Pair {
    fn new() -> Self {
        Self::with(true, LOCAL_WRITE | REMOTE_WRITE)
    }

    fn with(own_receives: bool, access: u32) -> Self {
        let qps = [0, 1].map(|me| {
            let mut qp = Uc::new(NUMBERS[me], 4, own_receives).unwrap();
            qp.receive(ReceiveTerms {
                mtu: PathMtu::Mtu256,
                dest_qp: NUMBERS[1 - me],
                pkey: DEFAULT_PKEY,
                rq_psn: Psn::new(FIRST),
                reads: 0,
                rnr_timer: 0,
                access,
            });
            qp.send(Psn::new(FIRST));
            qp
        });
        Self { qps, hosts: [(); 2].map(|()| Recorder::new(Packets::default())) }
    }

    fn step(&mut self, me: usize, why: u32) -> Stepped {
        let quota = Quota { bytes: usize::MAX, operations: 100 };
        self.qps[me].step(&mut self.hosts[me], why, Budget { send: quota, receive: quota })
    }

    /// Posts a request and returns its packets.
    fn sends(&mut self, wr: SendWr) -> Vec<Vec<u8>> {
        self.hosts[0].queues.sends.push_back(wr);
        self.step(0, reason::POSTED);
        std::mem::take(&mut self.hosts[0].link.sent)
    }

    /// The first side moves from SQE to RTS.
    fn resume(&mut self) {
        self.qps[0].resume();
        self.hosts[0].queues.resume();
    }

    /// Posts a receive of the second side, at an offset of the memory.
    fn post_receive(&mut self, id: u64, at: u64, len: u32) {
        self.hosts[1].queues.receives.push_back(RecvWr::one(id, BASE + at, len, STAG));
    }

    fn arrives<'a>(&mut self, packets: impl IntoIterator<Item = &'a Vec<u8>>) {
        // One by one, or the batch would need packets of one length.
        for packet in packets {
            self.hosts[1].link.arrived.push_back(packet.clone());
            self.step(1, reason::READABLE);
        }
    }

    fn dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.hosts[1].link.dropped)
    }
}

fn operations(packets: &[Vec<u8>]) -> Vec<Operation> {
    let operation = |packet: &Vec<u8>| match Packet::parse(packet).unwrap().bth.opcode {
        Opcode::Uc(operation) => operation,
        other => panic!("{other}"),
    };
    packets.iter().map(operation).collect()
}

#[test]
fn a_send_is_cut_into_packets_and_complete_when_they_are_sent() {
    let mut pair = Pair::new();
    pair.hosts[0].memory.bytes[..600].fill(0x55);
    pair.post_receive(7, 0x2000, 1000);
    let behind = pair.hosts[1].memory.bytes[0x2000 + 600..].to_vec();
    let packets = pair.sends(SendWr { solicited: true, ..wr(1, Op::SendWithImm, 600) });
    use Operation::{SendFirst, SendLastImm, SendMiddle};
    assert_eq!(operations(&packets), [SendFirst, SendMiddle, SendLastImm]);
    for (n, packet) in (0..).zip(&packets) {
        let bth = Packet::parse(packet).unwrap().bth;
        assert_eq!((bth.psn, bth.dest_qp), (Psn::new(FIRST + n), NUMBERS[1]));
        assert_eq!((bth.ack_req, bth.solicited), (false, n == 2));
    }
    let sent = pair.hosts[0].completions();
    assert_eq!((sent.len(), sent[0].wr_id, sent[0].status, sent[0].opcode), (1, 1, OK, opcode::SEND));
    pair.arrives(&packets);
    let expected = Completion {
        wr_id: 7,
        opcode: opcode::RECV,
        byte_len: 600,
        extra: Extra::Imm([1, 2, 3, 4]),
        qp_num: NUMBERS[1],
        solicited: true,
        ..Completion::default()
    };
    assert_eq!(pair.hosts[1].completions(), [expected]);
    let memory = &pair.hosts[1].memory.bytes;
    assert!(memory[0x2000..0x2000 + 600].iter().all(|byte| *byte == 0x55));
    assert!(memory[0x2000 + 600..] == behind);
    assert_eq!(pair.hosts[1].link.sent.len(), 0, "nothing is acknowledged");
}

#[test]
fn writes_with_immediate_data_take_a_receive_and_others_none() {
    let mut pair = Pair::new();
    pair.hosts[0].memory.bytes[..300].fill(0x55);
    let packets = pair.sends(wr(1, Op::Write, 300));
    assert_eq!(operations(&packets), [Operation::WriteFirst, Operation::WriteLast]);
    pair.arrives(&packets);
    assert!(pair.hosts[1].memory.bytes[0x1000..0x1000 + 300].iter().all(|byte| *byte == 0x55));
    assert_eq!(pair.hosts[1].completions(), []);
    pair.post_receive(7, 0, 0);
    let packets = pair.sends(wr(2, Op::WriteWithImm, 300));
    assert_eq!(operations(&packets), [Operation::WriteFirst, Operation::WriteLastImm]);
    pair.arrives(&packets);
    let got = pair.hosts[1].completions();
    assert_eq!((got[0].wr_id, got[0].status, got[0].byte_len), (7, OK, 300));
    assert_eq!((got[0].opcode, got[0].extra), (opcode::RECV_RDMA_WITH_IMM, Extra::Imm([1, 2, 3, 4])));
    assert_eq!(pair.hosts[0].statuses(), [(1, OK), (2, OK)]);
}

#[test]
fn a_lost_packet_ends_its_message_and_the_receive_is_used_by_the_next() {
    for lost in 0..3 {
        let mut pair = Pair::new();
        pair.post_receive(7, 0x2000, 1000);
        pair.post_receive(8, 0x3000, 1000);
        let mut packets = pair.sends(wr(1, Op::Send, 600));
        packets.remove(lost);
        pair.arrives(&packets);
        assert_eq!(pair.hosts[1].completions(), [], "packet {lost} is lost");
        let next = pair.sends(wr(2, Op::Send, 500));
        pair.arrives(&next);
        let got = pair.hosts[1].completions();
        assert_eq!((got.len(), got[0].wr_id, got[0].status, got[0].byte_len), (1, 7, OK, 500));
        assert_eq!(pair.hosts[0].statuses(), [(1, OK), (2, OK)]);
        assert!(pair.hosts[1].link.dropped.iter().all(|why| *why == Dropped::Psn));
    }
}

#[test]
fn late_and_repeated_packets_are_dropped() {
    let mut pair = Pair::new();
    (0..4).for_each(|id| pair.post_receive(id, 0x2000, 1000));
    let messages: Vec<_> = (1..4).map(|id| pair.sends(wr(id, Op::Send, 300))).collect();
    pair.arrives(&messages[0]);
    pair.arrives(&messages[0]);
    assert_eq!((pair.hosts[1].statuses(), pair.dropped()), (vec![(0, OK)], vec![Dropped::Psn; 2]));
    // A repeated packet in the middle of a message does not end it.
    pair.arrives([&messages[2][0], &messages[2][0], &messages[0][1], &messages[2][1]]);
    assert_eq!((pair.hosts[1].statuses(), pair.dropped()), (vec![(1, OK)], vec![Dropped::Psn; 2]));
    pair.arrives(&messages[1]);
    assert_eq!((pair.hosts[1].statuses(), pair.dropped()), (vec![], vec![Dropped::Psn; 2]));
}

#[test]
fn a_message_that_begins_within_another_replaces_it() {
    let mut pair = Pair::new();
    pair.post_receive(7, 0x2000, 1000);
    let first = pair.sends(wr(1, Op::Send, 600));
    pair.arrives(&first[..1]);
    // With the expected PSN, as of a sender whose request has failed between its packets.
    let mut only = pair.sends(wr(2, Op::Send, 8));
    only[0][PSN_AT..][..3].copy_from_slice(&[0xff, 0xff, 0xff]);
    pair.arrives(&only);
    assert_eq!((pair.hosts[1].statuses(), pair.dropped()), (vec![(7, OK)], vec![]));
    // A packet of another operation ends the message and is dropped itself.
    pair.post_receive(8, 0x2000, 1000);
    let send = pair.sends(wr(3, Op::Send, 300));
    let write = pair.sends(wr(4, Op::Write, 300));
    let mut last = write[1].clone();
    last[PSN_AT..][..3].copy_from_slice(&send[1][PSN_AT..][..3]);
    pair.arrives([&send[0], &last, &send[1]]);
    assert_eq!((pair.hosts[1].statuses(), pair.dropped()), (vec![], vec![Dropped::Malformed, Dropped::Psn]));
}

#[test]
fn the_first_packet_may_have_any_psn_and_a_gap_any_length() {
    for psn in [0, FIRST - 5, FIRST + 0x7f_0000, FIRST - 0x7f_0000] {
        let mut pair = Pair::new();
        (0..3).for_each(|id| pair.post_receive(id, 0, 100));
        let mut only = pair.sends(wr(1, Op::Send, 8)).remove(0);
        let mut late_by = |packets: u32| {
            let psn = Psn::new(psn.wrapping_sub(packets));
            only[PSN_AT..][..3].copy_from_slice(&psn.get().to_be_bytes()[1..]);
            only.clone()
        };
        let late = LATE as u32;
        let packets = [late_by(0), late_by(1), late_by(late - 1), late_by(late), late_by(0)];
        pair.arrives(&packets);
        // The fourth is so late that it is the first one after a gap.
        assert_eq!(pair.hosts[1].statuses(), [(0, OK), (1, OK), (2, OK)], "{psn:x}");
        assert_eq!(pair.dropped(), [Dropped::Psn; 2]);
    }
}

#[test]
fn what_has_no_receive_or_is_not_permitted_is_dropped() {
    let mut pair = Pair::new();
    let packets = pair.sends(wr(1, Op::Send, 300));
    pair.arrives(&packets);
    assert_eq!(pair.dropped(), [Dropped::NoReceive, Dropped::Psn]);
    let packets = pair.sends(wr(2, Op::WriteWithImm, 8));
    pair.arrives(&packets);
    assert_eq!(pair.dropped(), [Dropped::NoReceive]);
    let before = pair.hosts[1].memory.bytes.clone();
    let packets = pair.sends(SendWr { rkey: BARE, ..wr(3, Op::Write, 300) });
    pair.arrives(&packets);
    assert_eq!(pair.dropped(), [Dropped::Access, Dropped::Psn]);
    let packets = pair.sends(SendWr { remote_addr: BASE + 0xfff8, ..wr(4, Op::Write, 16) });
    pair.arrives(&packets);
    assert_eq!(pair.dropped(), [Dropped::Access]);
    let mut closed = Pair::with(true, LOCAL_WRITE);
    let packets = closed.sends(wr(5, Op::Write, 8));
    closed.arrives(&packets);
    assert_eq!(closed.dropped(), [Dropped::Access]);
    assert!(before == pair.hosts[1].memory.bytes);
    // The queue pair goes on.
    pair.post_receive(7, 0, 1000);
    let packets = pair.sends(wr(6, Op::Send, 300));
    pair.arrives(&packets);
    assert_eq!(pair.hosts[1].statuses(), [(7, OK)]);
}

#[test]
fn a_receive_of_a_message_that_is_dropped_stays_unless_it_is_shared() {
    for own in [true, false] {
        let mut pair = Pair::with(own, LOCAL_WRITE);
        pair.post_receive(7, 0, 299);
        let packets = pair.sends(wr(1, Op::Send, 300));
        pair.arrives(&packets);
        assert_eq!(pair.dropped(), [Dropped::TooLong]);
        assert_eq!(pair.hosts[1].statuses(), if own { vec![] } else { vec![(7, status::LOC_LEN_ERR)] });
        assert_eq!(pair.qps[1].has_receive(), own);
        let mut pair = Pair::with(own, LOCAL_WRITE);
        pair.post_receive(7, 0, 1000);
        let packets = pair.sends(wr(1, Op::Send, 600));
        pair.arrives([&packets[0], &packets[2]]);
        assert_eq!(pair.hosts[1].statuses(), if own { vec![] } else { vec![(7, status::REM_INV_REQ_ERR)] });
        assert!(pair.qps[1].is_open());
    }
}

#[test]
fn memory_of_a_receive_that_cannot_be_written_ends_the_queue_pair() {
    let mut pair = Pair::new();
    pair.hosts[1].queues.receives.extend([RecvWr::one(7, BASE, 100, BARE), RecvWr::one(8, BASE, 100, STAG)]);
    let packets = pair.sends(wr(1, Op::Send, 8));
    pair.arrives(&packets);
    assert_eq!(pair.hosts[1].statuses(), [(7, status::LOC_PROT_ERR), (8, status::WR_FLUSH_ERR)]);
    assert_eq!(pair.hosts[1].ended, Some(Ended::Completed));
}

#[test]
fn malformed_packets_end_the_message_only_if_they_have_its_psn() {
    let mut pair = Pair::new();
    pair.post_receive(7, 0, 1000);
    let packets = pair.sends(wr(1, Op::Send, 600));
    let of_rc = |packet: &[u8]| {
        let mut packet = packet.to_vec();
        packet[0] &= 0x1f;
        packet
    };
    let other_partition = {
        let mut packet = packets[1].clone();
        packet[2] = 0;
        packet
    };
    let (rc, short) = (of_rc(&packets[1]), packets[1][..11].to_vec());
    pair.arrives([&packets[0], &rc, &other_partition, &short, &packets[1], &packets[2]]);
    assert_eq!(pair.dropped(), [Dropped::Malformed, Dropped::Pkey, Dropped::Malformed]);
    assert_eq!(pair.hosts[1].statuses(), [(7, OK)]);
    // The middle of a message has the length of the path MTU.
    pair.post_receive(8, 0, 1000);
    let packets = pair.sends(wr(2, Op::Send, 600));
    let cut = packets[1][..packets[1].len() - 4].to_vec();
    pair.arrives([&packets[0], &cut, &packets[2]]);
    assert_eq!((pair.dropped(), pair.hosts[1].statuses()), (vec![Dropped::Malformed, Dropped::Psn], vec![]));
}

#[test]
fn a_full_link_keeps_the_rest_of_a_message() {
    let mut pair = Pair::new();
    pair.hosts[0].link.room = Some(2);
    let packets = pair.sends(wr(1, Op::Send, 600));
    assert_eq!((packets.len(), pair.hosts[0].statuses()), (2, vec![]));
    pair.hosts[0].link.room = None;
    pair.step(0, reason::POSTED);
    assert_eq!(pair.hosts[0].link.sent.len(), 0, "the link has not reported room");
    pair.step(0, reason::WRITABLE);
    let rest = std::mem::take(&mut pair.hosts[0].link.sent);
    assert_eq!((operations(&rest), pair.hosts[0].statuses()), (vec![Operation::SendLast], vec![(1, OK)]));
}

#[test]
fn a_message_that_has_begun_is_sent_in_sqd() {
    let mut pair = Pair::new();
    pair.hosts[0].link.room = Some(1);
    pair.sends(wr(1, Op::Send, 600));
    pair.qps[0].drain(true);
    assert!(!pair.qps[0].has_drained());
    pair.hosts[0].link.room = None;
    pair.sends(wr(2, Op::Send, 8));
    pair.step(0, reason::WRITABLE);
    assert!(pair.qps[0].has_drained() && !pair.qps[0].has_drained(), "reported once");
    assert_eq!(pair.hosts[0].statuses(), [(1, OK)]);
    pair.qps[0].drain(false);
    pair.step(0, reason::POSTED);
    assert_eq!(pair.hosts[0].statuses(), [(2, OK)]);
}

#[test]
fn a_request_that_fails_leads_to_sqe_and_receives_go_on() {
    let bare = Local::memory(&[Sge::new(BASE, 8, 0x999)]).unwrap();
    for (failing, status) in [
        (SendWr { local: bare, ..wr(2, Op::Send, 8) }, status::LOC_PROT_ERR),
        (wr(2, Op::Read, 8), status::LOC_QP_OP_ERR),
        (wr(2, Op::SendWithInv, 8), status::LOC_QP_OP_ERR),
        (wr(2, Op::AtomicWrite, 8), status::LOC_QP_OP_ERR),
    ] {
        let mut pair = Pair::new();
        pair.hosts[0].queues.sends.extend([wr(1, Op::Send, 8), failing, wr(3, Op::Send, 8)]);
        pair.step(0, reason::POSTED);
        assert!(pair.hosts[0].calls.contains(&Call::SendFailed));
        assert_eq!(pair.hosts[0].statuses(), [(1, OK), (2, status), (3, status::WR_FLUSH_ERR)]);
        assert!(pair.qps[0].is_open());
        pair.resume();
        pair.hosts[0].link.sent.clear();
        let packets = pair.sends(wr(4, Op::Send, 8));
        assert_eq!(Packet::parse(&packets[0]).unwrap().bth.psn, Psn::new(FIRST + 1));
        assert_eq!(pair.hosts[0].statuses(), [(4, OK)]);
    }
}

#[test]
fn memory_that_is_gone_in_the_middle_of_a_message_ends_it_at_the_peer_too() {
    let mut pair = Pair::new();
    pair.post_receive(7, 0x2000, 1000);
    pair.hosts[0].link.room = Some(1);
    let mut packets = pair.sends(wr(1, Op::Send, 600));
    pair.hosts[0].memory.mapped_to = BASE;
    pair.hosts[0].link.room = None;
    pair.step(0, reason::WRITABLE);
    assert_eq!(pair.hosts[0].statuses(), [(1, status::LOC_PROT_ERR)]);
    pair.resume();
    packets.extend(pair.sends(SendWr { local: Local::Inline([7; 32]), ..wr(2, Op::Send, 8) }));
    pair.arrives(&packets);
    let got = pair.hosts[1].completions();
    assert_eq!((got.len(), got[0].wr_id, got[0].status, got[0].byte_len), (1, 7, OK, 8));
}

#[test]
fn the_first_packet_establishes_the_connection() {
    let mut pair = Pair::new();
    let packets = pair.sends(wr(1, Op::Write, 600));
    pair.arrives(&packets[1..]);
    assert!(!pair.hosts[1].queues.established, "of a message that is dropped");
    let packets = pair.sends(wr(2, Op::Write, 8));
    pair.arrives(&packets);
    let established = pair.hosts[1].calls.iter().filter(|call| **call == Call::Established).count();
    assert_eq!(established, 1);
}

#[test]
fn messages_without_payload_name_no_memory() {
    let mut pair = Pair::new();
    pair.post_receive(7, 0, 0);
    let nothing = Local::memory(&[]).unwrap();
    let write = SendWr { local: nothing.clone(), rkey: 0, ..wr(1, Op::Write, 0) };
    let packets = pair.sends(write);
    assert_eq!(
        Packet::parse(&packets[0]).unwrap().extension,
        Extension::Reth(Reth { va: BASE + 0x1000, rkey: 0, len: 0 })
    );
    pair.arrives(&packets);
    let packets = pair.sends(SendWr { local: nothing, ..wr(2, Op::Send, 0) });
    pair.arrives(&packets);
    assert_eq!((pair.hosts[1].statuses(), pair.dropped()), (vec![(7, OK)], vec![]));
}
