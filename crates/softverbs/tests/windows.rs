// SPDX-License-Identifier: BSD-3-Clause
//! Memory windows over a connection, with the calls that the inline functions of `verbs.h` make.

mod common;
use common::*;
use rdma_sys::*;
use softverbs::verbs;
use std::ptr::null_mut;

const SEND: u32 = ibv_wr_opcode::IBV_WR_SEND;
const WRITE: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
const READ: u32 = ibv_wr_opcode::IBV_WR_RDMA_READ;
const BIND: u32 = ibv_wr_opcode::IBV_WR_BIND_MW;
const INVALIDATE: u32 = ibv_wr_opcode::IBV_WR_LOCAL_INV;
const MW_BIND: i32 = 1 << 4;
const ZERO_BASED: u32 = 1 << 5;
const RIGHTS: u32 = (REMOTE_WRITE | REMOTE_READ) as u32;

/// The server has a region of 4096 bytes, the client one for the source of writes and the result of reads.
struct Ends {
    client: End,
    server: End,
    near: Vec<u8>,
    far: Vec<u8>,
    local: *mut ibv_mr,
    region: *mut ibv_mr,
}

impl Ends {
    fn new() -> Self {
        let (client, server) = pair(c"127.0.0.1", 16);
        let (mut near, mut far) = (vec![7u8; 4096], vec![0u8; 4096]);
        let local = client.register(&mut near, LOCAL_WRITE);
        let region = server.register(&mut far, LOCAL_WRITE | MW_BIND);
        Self { client, server, near, far, local, region }
    }

    fn alloc(&self, kind: u32) -> *mut ibv_mw {
        // SAFETY: the protection domain is not deallocated yet.
        let mw = unsafe { (*(*self.server.pd).context).ops.alloc_mw.unwrap()(self.server.pd, kind) };
        assert!(!mw.is_null());
        mw
    }

    fn info(&self, offset: u64, length: u64, access: u32) -> ibv_mw_bind_info {
        let addr = self.far.as_ptr() as u64 + offset;
        ibv_mw_bind_info { mr: self.region, addr, length, mw_access_flags: access }
    }

    fn bind(&self, mw: *mut ibv_mw, wr_id: u64, info: ibv_mw_bind_info) -> i32 {
        let mut bind = ibv_mw_bind { wr_id, send_flags: SIGNALED, bind_info: info };
        // SAFETY: the queue pair and the window still exist.
        unsafe { (*(*mw).context).ops.bind_mw.unwrap()(self.server.qp, mw, &mut bind) }
    }

    /// Writes or reads 8 bytes of the server through a key.
    fn access(&self, opcode: u32, addr: u64, rkey: u32) -> u32 {
        let mut wr = request(opcode, 1, SIGNALED);
        wr.wr.rdma.remote_addr = addr;
        wr.wr.rdma.rkey = rkey;
        assert_eq!(self.client.post(&mut wr, Some(&mut sge(self.local, 0, 8))), 0);
        self.client.poll().status
    }

    /// Whether the peer may read there now; if not, the connection ends.
    fn may_read(&self, addr: u64, rkey: u32) -> bool {
        self.access(READ, addr, rkey) == 0
    }

    fn post(&self, wr: &mut ibv_send_wr) -> (u64, u32, u32) {
        assert_eq!(self.server.post(wr, None), 0);
        let wc = self.server.poll();
        (wc.wr_id, wc.status, wc.opcode)
    }

    fn post_bind(&self, mw: *mut ibv_mw, rkey: u32, info: ibv_mw_bind_info) -> ibv_send_wr {
        let mut wr = request(BIND, 5, SIGNALED);
        wr.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw, rkey, bind_info: info };
        wr
    }

    fn addr(&self, offset: u64) -> u64 {
        self.far.as_ptr() as u64 + offset
    }

    fn destroy(self) {
        dereg(self.local);
        self.client.destroy();
        self.server.destroy();
    }
}

fn rkey(mw: *mut ibv_mw) -> u32 {
    // SAFETY: the window is not deallocated yet.
    unsafe { (*mw).rkey }
}

fn dealloc(mw: *mut ibv_mw) {
    // SAFETY: each window is deallocated exactly once.
    assert_eq!(unsafe { (*(*mw).context).ops.dealloc_mw.unwrap()(mw) }, 0);
}

fn invalidation(rkey: u32) -> ibv_send_wr {
    let mut wr = request(INVALIDATE, 6, SIGNALED);
    wr.__bindgen_anon_1.invalidate_rkey = rkey;
    wr
}

#[test]
fn a_window_of_type_1_permits_access_to_a_part_of_a_region() {
    let ends = Ends::new();
    let mw = ends.alloc(1);
    let before = rkey(mw);
    assert_eq!(ends.bind(mw, 3, ends.info(1024, 64, RIGHTS)), 0);
    let wc = ends.server.poll();
    assert_eq!((wc.wr_id, wc.status, wc.opcode, wc.byte_len), (3, 0, 5, 0), "IBV_WC_BIND_MW");
    assert_ne!(rkey(mw), before);
    // SAFETY: the region is still registered.
    assert_eq!(unsafe { verbs::ibv_dereg_mr(ends.region) }, libc::EBUSY);
    // SAFETY: the region is still registered.
    let result = unsafe { verbs::ibv_rereg_mr(ends.region, 1 << 2, null_mut(), null_mut(), 0, 1) };
    assert_eq!(result, IBV_REREG_MR_ERR_INPUT);
    assert_eq!(ends.access(WRITE, ends.addr(1024 + 56), rkey(mw)), 0);
    assert_eq!(ends.access(READ, ends.addr(1024 + 56), rkey(mw)), 0);
    assert!(ends.far[1080..1088] == [7; 8] && ends.far.iter().filter(|byte| **byte != 0).count() == 8);
    // Zero-based, with another key; then unbound.
    assert_eq!(ends.bind(mw, 4, ends.info(2048, 64, RIGHTS | ZERO_BASED)), 0);
    assert_eq!((ends.server.poll().wr_id, ends.access(WRITE, 56, rkey(mw))), (4, 0));
    assert_eq!(ends.access(READ, 0, rkey(mw)), 0, "after the write");
    assert_eq!(ends.far[2048 + 56..2048 + 64], [7; 8]);
    let nothing = ibv_mw_bind_info { mr: null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
    assert_eq!((ends.bind(mw, 5, nothing), ends.server.poll().wr_id), (0, 5));
    assert!(!ends.may_read(0, rkey(mw)));
    dereg(ends.region);
    dealloc(mw);
    ends.destroy();
}

/// A denied access ends the connection: beyond the window, an old key, the key of the region, a right that
/// the window lacks.
#[test]
fn a_window_permits_nothing_else() {
    for case in 0..5 {
        let ends = Ends::new();
        let mw = ends.alloc(1);
        assert_eq!((ends.bind(mw, 1, ends.info(0, 64, RIGHTS)), ends.server.poll().status), (0, 0));
        let old = rkey(mw);
        assert_eq!(
            (ends.bind(mw, 2, ends.info(0, 64, REMOTE_READ as u32)), ends.server.poll().status),
            (0, 0)
        );
        assert!(ends.may_read(ends.addr(0), rkey(mw)));
        // SAFETY: the region is still registered.
        let of_region = unsafe { (*ends.region).rkey };
        match case {
            0 => assert!(!ends.may_read(ends.addr(57), rkey(mw))),
            1 => assert!(!ends.may_read(ends.addr(0), old)),
            2 => assert!(!ends.may_read(ends.addr(0), of_region)),
            3 => {
                // A refused write has completed already; the read after it has not.
                ends.access(WRITE, ends.addr(0), rkey(mw));
                assert!(!ends.may_read(ends.addr(0), rkey(mw)));
            }
            _ => {
                let last = rkey(mw);
                dealloc(mw);
                assert!(!ends.may_read(ends.addr(0), last));
            }
        }
        assert!(ends.far == [0; 4096]);
        if case < 4 {
            dealloc(mw);
        }
        dereg(ends.region);
        ends.destroy();
    }
}

/// An invalid bind completes with IBV_WC_MW_BIND_ERR, and the connection ends.
#[test]
fn an_invalid_bind_fails_in_its_completion() {
    for case in 0..4 {
        let ends = Ends::new();
        let mw = ends.alloc(1);
        let mut unbindable = vec![0u8; 64];
        let other = ends.server.register(&mut unbindable, LOCAL_WRITE);
        let mut info = ends.info(4000, 96, RIGHTS);
        match case {
            0 => info.length = 97,
            1 => info.addr = ends.addr(0) - 1,
            2 => info.mr = other,
            _ => info.length = u64::MAX,
        }
        assert_eq!(ends.bind(mw, 3, info), 0);
        let wc = ends.server.poll();
        assert_eq!((wc.wr_id, wc.status), (3, 6), "IBV_WC_MW_BIND_ERR");
        dereg(other);
        dereg(ends.region);
        dealloc(mw);
        ends.destroy();
    }
}

#[test]
fn binds_with_invalid_arguments_are_not_posted() {
    let ends = Ends::new();
    // SAFETY: the context is that of the software device; the memory outlives the region.
    let (pd, foreign) = unsafe {
        let pd = verbs::ibv_alloc_pd(softverbs::context());
        let foreign = verbs::ibv_reg_mr(pd, ends.far.as_ptr() as *mut _, 64, LOCAL_WRITE | MW_BIND);
        (pd, foreign)
    };
    // SAFETY: the protection domain is not deallocated yet.
    let none = unsafe { (*(*pd).context).ops.alloc_mw.unwrap()(pd, 3) };
    assert!(none.is_null(), "no such type");
    let [one, two] = [1, 2].map(|kind| ends.alloc(kind));
    let key = rkey(one);
    let good = ends.info(0, 64, RIGHTS);
    let refused = |mw, info| (ends.bind(mw, 3, info), rkey(one) == key);
    assert_eq!(refused(two, good), (libc::EINVAL, true));
    assert_eq!(refused(one, ibv_mw_bind_info { mr: null_mut(), ..good }), (libc::EINVAL, true));
    assert_eq!(
        refused(one, ibv_mw_bind_info { mw_access_flags: MW_BIND as u32, ..good }),
        (libc::EINVAL, true)
    );
    assert_eq!(refused(one, ibv_mw_bind_info { mr: foreign, ..good }), (libc::EPERM, true));
    let refused = |mw, rkey, info| ends.server.post(&mut ends.post_bind(mw, rkey, info), None);
    let key = rkey(two);
    assert_eq!(refused(one, rkey(one), good), libc::EINVAL, "of type 1");
    assert_eq!(refused(null_mut(), key, good), libc::EINVAL);
    assert_eq!(refused(two, key ^ 0x100, good), libc::EINVAL, "not its key");
    assert_eq!(refused(two, key, ibv_mw_bind_info { mr: null_mut(), ..good }), libc::EINVAL);
    assert_eq!(refused(two, key, ibv_mw_bind_info { mr: foreign, ..good }), libc::EPERM);
    assert_eq!(ends.server.try_poll(), None);
    assert_eq!(ends.post(&mut ends.post_bind(two, key, good)), (5, 0, 5), "the queue pair is unchanged");
    [one, two].into_iter().for_each(dealloc);
    dereg(foreign);
    dereg(ends.region);
    // SAFETY: no object uses it any more.
    assert_eq!(unsafe { verbs::ibv_dealloc_pd(pd) }, 0);
    ends.destroy();
}

/// Windows of type 2: bound and invalidated in order with other requests, with keys that the program chooses,
/// and for one connection.
#[test]
fn a_window_of_type_2_is_bound_and_invalidated_by_work_requests() {
    let ends = Ends::new();
    let mut received = vec![0u8; 64];
    let inbox = ends.client.register(&mut received, LOCAL_WRITE);
    let mw = ends.alloc(2);
    for round in 0..20u64 {
        let key = rkey(mw) & !0xff | (rkey(mw) + round as u32) & 0xff;
        assert_eq!(ends.client.post_recv(9, Some(&mut sge(inbox, 0, 64))), 0);
        let mut bind = ends.post_bind(mw, key, ends.info(64 * round, 64, RIGHTS));
        bind.send_flags = 0;
        assert_eq!(ends.server.post(&mut bind, None), 0);
        assert_eq!(ends.server.post(&mut request(SEND, 7, SIGNALED), None), 0);
        let wc = ends.server.poll();
        assert_eq!((wc.wr_id, wc.status), (7, 0), "the bind was not signalled");
        assert_eq!(ends.client.poll().wr_id, 9);
        assert_eq!(ends.access(WRITE, ends.addr(64 * round), key), 0);
        assert_eq!(ends.access(READ, ends.addr(64 * round), key), 0);
        assert_eq!(ends.far[64 * round as usize..][..8], [7; 8]);
        // SAFETY: the region is still registered.
        assert_eq!(unsafe { verbs::ibv_dereg_mr(ends.region) }, libc::EBUSY);
        assert_eq!(ends.post(&mut invalidation(key)), (6, 0, 6), "IBV_WC_LOCAL_INV");
    }
    let last = rkey(mw) & !0xff | (rkey(mw) + 19) & 0xff;
    assert!(!ends.may_read(ends.addr(64 * 19), last));
    dereg(ends.region);
    dereg(inbox);
    dealloc(mw);
    ends.destroy();
}

#[test]
fn an_unbound_window_cannot_be_invalidated_nor_a_bound_one_bound_again() {
    for case in 0..3 {
        let ends = Ends::new();
        let mw = ends.alloc(2);
        let mut bind = ends.post_bind(mw, rkey(mw), ends.info(0, 64, RIGHTS));
        let wrong = match case {
            0 => ends.post(&mut invalidation(rkey(mw))),
            1 => {
                assert_eq!(ends.post(&mut bind).1, 0);
                ends.post(&mut bind)
            }
            // SAFETY: the region is still registered.
            _ => ends.post(&mut invalidation(unsafe { (*ends.region).rkey })),
        };
        assert_eq!(wrong.1, 6, "IBV_WC_MW_BIND_ERR");
        dealloc(mw);
        dereg(ends.region);
        assert_eq!(ends.near[0], 7);
        ends.destroy();
    }
}

/// The calls of an extended queue pair that bind and invalidate, in one list with others.
#[test]
fn an_extended_queue_pair_binds_and_invalidates() {
    const WITH_SEND: u64 = 1 << 2;
    const WITH_RDMA_READ: u64 = 1 << 4;
    const WITH_LOCAL_INV: u64 = 1 << 7;
    const WITH_BIND_MW: u64 = 1 << 8;
    OPERATIONS.set(WITH_SEND | WITH_RDMA_READ | WITH_LOCAL_INV | WITH_BIND_MW);
    let ends = Ends::new();
    OPERATIONS.set(0);
    let mw = ends.alloc(2);
    // SAFETY: the queue pair is an extended one and not destroyed yet; its calls are made between start and
    // complete.
    let invalidation = unsafe {
        let qp = verbs::ibv_qp_to_qp_ex(ends.server.qp);
        assert!(!qp.is_null());
        let begin = |wr_id| {
            (*qp).wr_id = wr_id;
            (*qp).wr_flags = SIGNALED;
        };
        (*qp).wr_start.unwrap()(qp);
        begin(1);
        (*qp).wr_bind_mw.unwrap()(qp, mw, rkey(mw), &ends.info(0, 64, RIGHTS));
        begin(2);
        (*qp).wr_send.unwrap()(qp);
        assert_eq!(ends.client.post_recv(9, None), 0);
        assert_eq!((*qp).wr_complete.unwrap()(qp), 0);
        assert_eq!((ends.server.poll(), ends.server.poll().wr_id), (wc(1, 5), 2));
        assert!(ends.may_read(ends.addr(0), rkey(mw)));
        // A list with an invalid request is not posted at all.
        (*qp).wr_start.unwrap()(qp);
        begin(3);
        (*qp).wr_local_inv.unwrap()(qp, rkey(mw));
        begin(4);
        (*qp).wr_bind_mw.unwrap()(qp, null_mut(), rkey(mw), &ends.info(0, 64, RIGHTS));
        assert_eq!((*qp).wr_complete.unwrap()(qp), libc::EINVAL);
        assert!(ends.may_read(ends.addr(0), rkey(mw)));
        (*qp).wr_start.unwrap()(qp);
        begin(5);
        (*qp).wr_local_inv.unwrap()(qp, rkey(mw));
        assert_eq!((*qp).wr_complete.unwrap()(qp), 0);
        ends.server.poll()
    };
    assert_eq!(invalidation, wc(5, 6));
    dereg(ends.region);
    dealloc(mw);
    ends.destroy();
}

/// A completion without bytes.
fn wc(wr_id: u64, opcode: u32) -> Wc {
    Wc { wr_id, status: 0, opcode, byte_len: 0, imm: None }
}

const SEND_INVALIDATE: u32 = ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
const FLUSH_ERR: u32 = 5;

/// A Send of the client that invalidates a window of the server.
fn send_invalidating(ends: &Ends, rkey: u32) -> u32 {
    let mut wr = request(SEND_INVALIDATE, 8, SIGNALED);
    wr.__bindgen_anon_1.invalidate_rkey = rkey;
    assert_eq!(ends.client.post(&mut wr, Some(&mut sge(ends.local, 0, 8))), 0);
    ends.client.poll().status
}

/// The next completion: id, status, and the rkey that the message has invalidated.
fn received_by(end: &End) -> (u64, u32, Option<u32>) {
    const WITH_INV: u32 = 1 << 3;
    // SAFETY: the completion queue is not destroyed yet; all-zero is a valid completion, and the member of
    // the union is an integer.
    unsafe {
        let poll = (*(*end.cq).context).ops.poll_cq.unwrap();
        let mut wc: ibv_wc = std::mem::zeroed();
        while poll(end.cq, 1, &mut wc) == 0 {}
        let invalidated = (wc.wc_flags == WITH_INV).then_some(wc.__bindgen_anon_1.invalidated_rkey);
        (wc.wr_id, wc.status, invalidated)
    }
}

#[test]
fn the_peer_invalidates_a_window_with_a_send() {
    let ends = Ends::new();
    let mut received = vec![0u8; 64];
    let inbox = ends.server.register(&mut received, LOCAL_WRITE);
    let mw = ends.alloc(2);
    for round in 0..20 {
        let key = rkey(mw) & !0xff | (rkey(mw) + round) & 0xff;
        assert_eq!(ends.post(&mut ends.post_bind(mw, key, ends.info(0, 64, RIGHTS))).1, 0);
        assert_eq!(ends.access(WRITE, ends.addr(0), key), 0);
        assert_eq!(ends.server.post_recv(9, Some(&mut sge(inbox, 0, 64))), 0);
        assert_eq!(send_invalidating(&ends, key), 0);
        assert_eq!(received_by(&ends.server), (9, 0, Some(key)));
        assert_eq!((&received[..8], &ends.far[..8]), (&[7; 8][..], &[7; 8][..]));
    }
    assert!(!ends.may_read(ends.addr(0), rkey(mw) & !0xff | (rkey(mw) + 19) & 0xff));
    // The window is no longer bound.
    dereg(ends.region);
    dereg(inbox);
    dealloc(mw);
    ends.destroy();
}

#[test]
fn a_peer_that_invalidates_other_keys_is_disconnected() {
    for case in 0..4 {
        let (ends, others) = (Ends::new(), Ends::new());
        let mut received = vec![0u8; 64];
        let inbox = ends.server.register(&mut received, LOCAL_WRITE);
        let (mw, foreign) = (ends.alloc(2), others.alloc(2));
        assert_eq!(
            others.post(&mut others.post_bind(foreign, rkey(foreign), others.info(0, 64, RIGHTS))).1,
            0
        );
        assert_eq!(ends.server.post_recv(9, Some(&mut sge(inbox, 0, 64))), 0);
        // SAFETY: the regions are still registered.
        let (region, unbound) = unsafe { ((*ends.region).rkey, rkey(mw)) };
        send_invalidating(&ends, [region, unbound, rkey(foreign), 0xdead_be00][case]);
        assert_eq!(received_by(&ends.server), (9, FLUSH_ERR, None));
        assert_eq!(
            others.access(READ, others.addr(0), rkey(foreign)),
            0,
            "the other connection is not affected"
        );
        dealloc(foreign);
        dereg(others.region);
        others.destroy();
        dealloc(mw);
        dereg(inbox);
        dereg(ends.region);
        ends.destroy();
    }
}
