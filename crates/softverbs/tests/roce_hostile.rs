// SPDX-License-Identifier: BSD-3-Clause
//! What others send to UDP port 4791, and a program that changes its queue pairs meanwhile. The environment
//! is read once in a process, so each test starts itself again with SOFTVERBS_TRANSPORT=roce.

mod common;

use common::cm_peer::{flow_of, packet};
use common::resident_pages;
use common::restart::child;
use libc::c_int;
use rdma_sys::*;
use softverbs::verbs;
use std::mem::zeroed;
use std::net::{Ipv4Addr, UdpSocket};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use transport::roce::wire::{
    Aeth, Bth, DEFAULT_PKEY, Extension, Opcode, Operation, Psn, Reth, Syndrome, UDP_PORT,
};

const STATE: u32 = 1;
const INIT: u32 = STATE | 1 << 4 | 1 << 5 | 1 << 3;
const RTR: u32 = STATE | 1 << 7 | 1 << 8 | 1 << 20 | 1 << 12 | 1 << 17 | 1 << 15;
const RTS: u32 = STATE | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 16 | 1 << 13;
/// The first PSN of both sides.
const PSN: u32 = 0x40_0000;
const LEN: usize = 4096;

/// The index of the GID of 127.0.0.1.
fn loopback() -> u8 {
    let wanted = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    let is_it = |index: &u8| {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is that of the device, and the GID is written in the form `raw`.
        unsafe {
            verbs::ibv_query_gid(softverbs::context(), 1, (*index).into(), &mut gid) == 0 && gid.raw == wanted
        }
    };
    (0..=255).find(is_it).expect("the GID of 127.0.0.1")
}

/// A queue pair with 4096 bytes, of which others may write the first half.
struct End {
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    mr: *mut ibv_mr,
    bytes: Box<[u8; LEN]>,
}

// SAFETY: verbs objects may be used by any thread; the bytes are looked at by one.
unsafe impl Sync for End {}

impl End {
    fn new() -> Self {
        let mut bytes = Box::new([0xa5; LEN]);
        // SAFETY: the objects are made in order, all-zero attributes are valid, and the bytes live as long.
        unsafe {
            let pd = verbs::ibv_alloc_pd(softverbs::context());
            let cq = verbs::ibv_create_cq(softverbs::context(), 16, null_mut(), null_mut(), 0);
            let mut attr: ibv_qp_init_attr = zeroed();
            (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, ibv_qp_type::IBV_QPT_RC);
            (attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge) = (4, 4, 1);
            let qp = verbs::ibv_create_qp(pd, &mut attr);
            let mr = verbs::ibv_reg_mr(pd, bytes.as_mut_ptr().cast(), LEN / 2, 0b111);
            assert!(!qp.is_null() && !mr.is_null());
            Self { pd, cq, qp, mr, bytes }
        }
    }

    fn num(&self) -> u32 {
        // SAFETY: the queue pair lives.
        unsafe { (*self.qp).qp_num }
    }

    fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> c_int {
        // SAFETY: the queue pair lives.
        unsafe { verbs::ibv_modify_qp(self.qp, attr, mask as c_int) }
    }

    fn connect(&self, peer: u32, index: u8) {
        let steps = [
            (ibv_qp_state::IBV_QPS_INIT, INIT),
            (ibv_qp_state::IBV_QPS_RTR, RTR),
            (ibv_qp_state::IBV_QPS_RTS, RTS),
        ];
        for (state, mask) in steps {
            assert_eq!(self.modify(&mut attributes(state, peer, index), mask), 0, "to state {state}");
        }
    }

    /// Writes 8 bytes to the peer; the status of the completion.
    fn write(&self, peer: &Self) -> u32 {
        // SAFETY: the objects live, and all-zero requests and completions are valid.
        unsafe {
            let mut sge = ibv_sge { addr: (*self.mr).addr as u64, length: 8, lkey: (*self.mr).lkey };
            let mut wr: ibv_send_wr = zeroed();
            (wr.sg_list, wr.num_sge, wr.opcode) = (&mut sge, 1, ibv_wr_opcode::IBV_WR_RDMA_WRITE);
            wr.send_flags = 2;
            (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = ((*peer.mr).addr as u64, (*peer.mr).rkey);
            let (ops, mut bad) = (&(*softverbs::context()).ops, null_mut());
            assert_eq!(ops.post_send.unwrap()(self.qp, &mut wr, &mut bad), 0);
            let (mut wc, begin): (ibv_wc, _) = (zeroed(), Instant::now());
            while ops.poll_cq.unwrap()(self.cq, 1, &mut wc) == 0 {
                assert!(begin.elapsed() < Duration::from_secs(20), "a write does not complete");
                std::thread::yield_now();
            }
            wc.status
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // SAFETY: each is destroyed once, and nothing uses it any more.
        unsafe {
            assert_eq!(verbs::ibv_destroy_qp(self.qp), 0);
            assert_eq!(verbs::ibv_dereg_mr(self.mr), 0);
            assert_eq!(verbs::ibv_destroy_cq(self.cq), 0);
            assert_eq!(verbs::ibv_dealloc_pd(self.pd), 0);
        }
    }
}

fn attributes(state: u32, peer: u32, index: u8) -> ibv_qp_attr {
    // SAFETY: all-zero attributes are valid.
    let mut attr: ibv_qp_attr = unsafe { zeroed() };
    (attr.qp_state, attr.port_num, attr.qp_access_flags) = (state, 1, 0b111);
    (attr.path_mtu, attr.dest_qp_num, attr.rq_psn, attr.sq_psn) = (ibv_mtu::IBV_MTU_1024, peer, PSN, PSN);
    (attr.max_dest_rd_atomic, attr.max_rd_atomic, attr.min_rnr_timer) = (4, 4, 12);
    (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (14, 7, 7);
    (attr.ah_attr.is_global, attr.ah_attr.port_num, attr.ah_attr.grh.sgid_index) = (1, 1, index);
    attr.ah_attr.grh.dgid.raw = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    attr
}

/// Sends one of the packets that must change nothing.
fn attack(socket: &UdpSocket, num: u32, key: u32, addr: u64, random: &mut fastrand::Rng) {
    let ahead = Psn::new(PSN + 0x10_0000 + random.u32(..0x1000));
    let (reth, ack) = (
        Extension::Reth(Reth { va: addr, rkey: key, len: 8 }),
        Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 1 }),
    );
    let bth = |operation, psn| Bth::new(Opcode::Rc(operation), num, psn);
    let (flow, kind) = (flow_of(socket), random.u8(..10));
    let write = bth(Operation::WriteOnly, Psn::new(PSN + random.u32(..64)));
    let bytes = match kind {
        // Far ahead, and behind: a duplicate of nothing.
        0 => packet(&flow, &bth(Operation::WriteOnly, ahead), &reth, &[0; 8]),
        1 => {
            packet(&flow, &bth(Operation::WriteOnly, Psn::new(PSN - 1 - random.u32(..1000))), &reth, &[0; 8])
        }
        // An acknowledgement of what was not sent.
        2 => packet(&flow, &bth(Operation::Acknowledge, ahead), &ack, &[]),
        // Those of another partition and of another service.
        3 => packet(&flow, &Bth { pkey: DEFAULT_PKEY & 0x7f00, ..write }, &reth, &[0; 8]),
        4 => {
            let mut bytes = packet(&flow, &write, &reth, &[0; 8]);
            bytes[0] |= 0x20;
            bytes
        }
        // Damaged.
        5 => {
            let mut bytes = packet(&flow, &write, &reth, &[0; 8]);
            let at = random.usize(8..bytes.len());
            bytes[at] ^= 1 << random.u8(..8);
            bytes
        }
        // Truncated, and longer than any packet.
        6 => packet(&flow, &write, &reth, &[0; 8])[..random.usize(..40)].to_vec(),
        7 => packet(&flow, &write, &reth, &vec![0; random.usize(5_000..60_000)]),
        // For any other queue pair of any slot, and noise.
        8 => packet(&flow, &Bth { dest_qp: num ^ random.u32(1..1 << 24), ..write }, &reth, &[0; 8]),
        _ => (0..random.usize(..100)).map(|_| random.u8(..)).collect(),
    };
    let _ = socket.send_to(&bytes, ("127.0.0.1", UDP_PORT));
}

#[test]
fn a_flood_costs_time_and_nothing_else() {
    if !child("a_flood_costs_time_and_nothing_else", &[]) {
        return;
    }
    let (a, b, index) = (End::new(), End::new(), loopback());
    a.connect(b.num(), index);
    b.connect(a.num(), index);
    assert_eq!(a.write(&b), 0);
    let (before, stop, sent) = (resident_pages(), AtomicBool::new(false), AtomicU32::new(0));
    // SAFETY: the region lives.
    let (num, key, addr) = unsafe { (b.num(), (*b.mr).rkey, (*b.mr).addr as u64) };
    std::thread::scope(|threads| {
        for source in ["127.0.0.1:0", "127.0.0.2:0"] {
            let (stop, sent) = (&stop, &sent);
            threads.spawn(move || {
                let socket = UdpSocket::bind(source).unwrap();
                let mut random = fastrand::Rng::with_seed(4791);
                while !stop.load(Ordering::Relaxed) {
                    // The socket buffer loses some of them, but not nearly all.
                    (0..100).for_each(|_| attack(&socket, num, key, addr + 1024, &mut random));
                    sent.fetch_add(100, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let begin = Instant::now();
        let mut writes = 0;
        while begin.elapsed() < Duration::from_secs(1) {
            assert_eq!(a.write(&b), 0, "write {writes}");
            writes += 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(writes > 0, "no write completes in a flood");
    });
    assert_eq!((a.write(&b), b.write(&a)), (0, 0), "after the flood");
    assert!(b.bytes.iter().all(|byte| *byte == 0xa5), "memory was changed");
    let more = resident_pages().saturating_sub(before);
    assert!(more < 64 << 8, "{more} pages more after {} packets", sent.into_inner());
}

#[test]
fn queue_pairs_are_modified_and_destroyed_while_packets_arrive() {
    if !child("queue_pairs_are_modified_and_destroyed_while_packets_arrive", &[]) {
        return;
    }
    let (index, stop, num) = (loopback(), AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let mut random = fastrand::Rng::with_seed(1);
            while !stop.load(Ordering::Relaxed) {
                let num = num.load(Ordering::Relaxed);
                for operation in [Operation::WriteOnly, Operation::SendFirst, Operation::ReadRequest] {
                    let extension = match operation {
                        Operation::SendFirst => Extension::None,
                        _ => Extension::Reth(Reth { va: 0, rkey: 5, len: 8 }),
                    };
                    let payload: &[u8] = if operation == Operation::ReadRequest { &[] } else { &[0; 8] };
                    let bth = Bth::new(Opcode::Rc(operation), num, Psn::new(PSN + random.u32(..2)));
                    let bytes = packet(&flow_of(&socket), &bth, &extension, payload);
                    let _ = socket.send_to(&bytes, ("127.0.0.1", UDP_PORT));
                }
            }
        });
        for round in 0..20 {
            let end = End::new();
            num.store(end.num(), Ordering::Relaxed);
            std::thread::scope(|threads| {
                for thread in 0..2 {
                    let end = &end;
                    threads.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(round * 2 + thread);
                        for _ in 0..100 {
                            let masks = [STATE, INIT, RTR, RTS];
                            let state = random.u32(..8);
                            let mask = match state {
                                1..=3 if random.u8(..4) > 0 => masks[state as usize],
                                _ => masks[random.usize(..4)],
                            };
                            let result = end.modify(&mut attributes(state, 0x77, index), mask);
                            assert!([0, libc::EINVAL, libc::EOPNOTSUPP].contains(&result), "{result}");
                        }
                    });
                }
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}
