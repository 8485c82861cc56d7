// SPDX-License-Identifier: BSD-3-Clause
//! Two connected ends in one process, created with the calls that a program makes.
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod cm_peer;
pub(crate) mod drops;
pub(crate) mod ids;
pub(crate) mod namespace;
pub(crate) mod restart;
pub(crate) mod verbs_h;

use libc::c_int;
use rdma_sys::*;
use rustix::event::{PollFd, PollFlags, poll};
use softverbs::{rdma as cm, verbs};
use std::os::fd::BorrowedFd;
use std::ptr::{null, null_mut};
use std::time::Duration;

pub(crate) const LOCAL_WRITE: c_int = 1;
pub(crate) const REMOTE_WRITE: c_int = 2;
pub(crate) const REMOTE_READ: c_int = 4;
pub(crate) const REMOTE_ATOMIC: c_int = 8;
pub(crate) const SIGNALED: u32 = 2;
/// Scatter/gather entries of a request.
pub(crate) const SGE: u32 = 10;

/// One end of a connection, with a completion queue and its channel.
pub(crate) struct End {
    pub pd: *mut ibv_pd,
    pub comp: *mut ibv_comp_channel,
    pub cq: *mut ibv_cq,
    pub id: *mut rdma_cm_id,
    pub events: *mut rdma_event_channel,
    pub qp: *mut ibv_qp,
}

/// The fields of a completion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub byte_len: u32,
    pub imm: Option<u32>,
}

thread_local! {
    /// The operations of the extended queue pairs that this thread creates (`enum
    /// ibv_qp_create_send_ops_flags`); 0: they are not extended.
    pub static OPERATIONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

unsafe fn attributes(pd: *mut ibv_pd, cq: *mut ibv_cq, depth: u32) -> ibv_qp_init_attr_ex {
    // SAFETY: all-zero attributes are valid.
    let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    attr.send_cq = cq;
    attr.recv_cq = cq;
    attr.cap.max_send_wr = depth;
    attr.cap.max_recv_wr = depth;
    attr.cap.max_send_sge = SGE;
    attr.cap.max_recv_sge = SGE;
    attr.cap.max_inline_data = 8;
    attr.qp_type = ibv_qp_type::IBV_QPT_RC;
    attr.comp_mask = 1;
    attr.pd = pd;
    if OPERATIONS.get() != 0 {
        attr.comp_mask |= 1 << 6;
        attr.send_ops_flags = OPERATIONS.get();
    }
    attr
}

pub(crate) fn param(private_data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: private_data.len() as u8,
        responder_resources: 255,
        initiator_depth: 255,
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}

/// Takes the next event of a channel: kind, status, private data.
pub(crate) fn next_event(events: *mut rdma_event_channel) -> (u32, i32, Vec<u8>) {
    // SAFETY: the channel is not destroyed yet; the event is acknowledged exactly once.
    unsafe {
        let mut event = null_mut();
        assert_eq!(cm::rdma_get_cm_event(events, &mut event), 0);
        let conn = (*event).param.conn;
        let mut data = vec![0; usize::from(conn.private_data_len)];
        std::ptr::copy_nonoverlapping(conn.private_data.cast(), data.as_mut_ptr(), data.len());
        let seen = ((*event).event, (*event).status, data);
        cm::rdma_ack_cm_event(event);
        seen
    }
}

impl End {
    pub(crate) fn new(depth: u32) -> (Self, ibv_qp_init_attr_ex) {
        // SAFETY: the arguments are objects that were just created.
        unsafe {
            let context = softverbs::context();
            let pd = verbs::ibv_alloc_pd(context);
            let comp = verbs::ibv_create_comp_channel(context);
            let cq = verbs::ibv_create_cq(context, depth as c_int * 2, null_mut(), comp, 0);
            let events = cm::rdma_create_event_channel();
            assert!(!pd.is_null() && !cq.is_null() && !events.is_null());
            let attr = attributes(pd, cq, depth);
            (Self { pd, comp, cq, id: null_mut(), events, qp: null_mut() }, attr)
        }
    }

    /// Polls until there is a completion; a second without one is a failure.
    pub(crate) fn poll(&self) -> Wc {
        for _ in 0..10_000_000u64 {
            if let Some(wc) = self.try_poll() {
                return wc;
            }
        }
        panic!("no completion");
    }

    pub(crate) fn try_poll(&self) -> Option<Wc> {
        // SAFETY: the queue is not destroyed yet; the entry is read only if the poll has returned one.
        unsafe {
            let poll = (*(*self.cq).context).ops.poll_cq.unwrap();
            let mut wc: ibv_wc = std::mem::zeroed();
            match poll(self.cq, 1, &mut wc) {
                0 => None,
                1 => Some(Wc {
                    wr_id: wc.wr_id,
                    status: wc.status,
                    opcode: wc.opcode,
                    byte_len: wc.byte_len,
                    imm: (wc.wc_flags & 2 != 0).then(|| u32::from_be(wc.__bindgen_anon_1.imm_data)),
                }),
                other => panic!("poll_cq: {other}"),
            }
        }
    }

    pub(crate) fn register(&self, memory: &mut [u8], access: c_int) -> *mut ibv_mr {
        // SAFETY: the memory outlives the region in every test.
        let mr = unsafe { verbs::ibv_reg_mr(self.pd, memory.as_mut_ptr().cast(), memory.len(), access) };
        assert!(!mr.is_null());
        mr
    }

    pub(crate) fn post(&self, wr: &mut ibv_send_wr, sge: Option<&mut ibv_sge>) -> c_int {
        if let Some(sge) = sge {
            wr.sg_list = sge;
            wr.num_sge = 1;
        }
        let mut bad = null_mut();
        // SAFETY: the queue pair is not destroyed yet, the request and its entry are valid for the call.
        unsafe { (*(*self.qp).context).ops.post_send.unwrap()(self.qp, wr, &mut bad) }
    }

    /// Posts a request with several entries.
    pub(crate) fn post_entries(&self, wr: &mut ibv_send_wr, list: &mut [ibv_sge]) -> c_int {
        wr.sg_list = list.as_mut_ptr();
        wr.num_sge = list.len() as c_int;
        self.post(wr, None)
    }

    pub(crate) fn post_recv(&self, wr_id: u64, sge: Option<&mut ibv_sge>) -> c_int {
        self.post_recv_entries(wr_id, sge.map(std::slice::from_mut).unwrap_or_default())
    }

    /// Posts a receive with several entries.
    pub(crate) fn post_recv_entries(&self, wr_id: u64, list: &mut [ibv_sge]) -> c_int {
        let sg_list = if list.is_empty() { null_mut() } else { list.as_mut_ptr() };
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), num_sge: list.len() as c_int, sg_list };
        let mut bad = null_mut();
        // SAFETY: the queue pair is not destroyed yet, the request and its entries are valid for the call.
        unsafe { (*(*self.qp).context).ops.post_recv.unwrap()(self.qp, &mut wr, &mut bad) }
    }

    pub(crate) fn destroy(self) {
        // SAFETY: both are destroyed once, the queue pair first.
        unsafe {
            cm::rdma_destroy_qp(self.id);
            assert_eq!(cm::rdma_destroy_id(self.id), 0);
        }
        self.destroy_unconnected();
    }

    /// Destroys an end whose queue pair was never connected.
    pub(crate) fn destroy_unconnected(self) {
        // SAFETY: each object is destroyed once, and after the objects that use it.
        unsafe {
            assert_eq!(verbs::ibv_destroy_cq(self.cq), 0);
            assert_eq!(verbs::ibv_destroy_comp_channel(self.comp), 0);
            cm::rdma_destroy_event_channel(self.events);
            assert_eq!(verbs::ibv_dealloc_pd(self.pd), 0);
        }
    }
}

pub(crate) fn request(opcode: u32, wr_id: u64, flags: u32) -> ibv_send_wr {
    // SAFETY: an all-zero work request is a valid one.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    wr.opcode = opcode;
    wr.wr_id = wr_id;
    wr.send_flags = flags;
    wr
}

pub(crate) fn sge(mr: *mut ibv_mr, offset: usize, length: usize) -> ibv_sge {
    // SAFETY: the caller keeps the region registered.
    unsafe { ibv_sge { addr: (*mr).addr as u64 + offset as u64, length: length as u32, lkey: (*mr).lkey } }
}

/// A listening id on a free port of the loopback address, and that port.
pub(crate) fn listen(events: *mut rdma_event_channel, host: &std::ffi::CStr) -> (*mut rdma_cm_id, u16) {
    // SAFETY: the arguments are objects that were just created; a bound id has an address.
    unsafe {
        let mut id = null_mut();
        assert_eq!(cm::rdma_create_id(events, &mut id, null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
        let mut hints: rdma_addrinfo = std::mem::zeroed();
        hints.ai_flags = 1;
        let mut info = null_mut();
        assert_eq!(cm::rdma_getaddrinfo(host.as_ptr(), null(), &hints, &mut info), 0);
        assert_eq!(cm::rdma_bind_addr(id, (*info).ai_src_addr), 0);
        cm::rdma_freeaddrinfo(info);
        assert_eq!(cm::rdma_listen(id, 0), 0);
        let port = u16::from_be((*id).route.addr.__bindgen_anon_1.src_sin.sin_port);
        (id, port)
    }
}

/// A listener at 127.0.0.1, its channel and its port.
pub(crate) fn listener() -> (*mut rdma_cm_id, *mut rdma_event_channel, u16) {
    // SAFETY: the channel was just created.
    let events = unsafe { cm::rdma_create_event_channel() };
    let (id, port) = listen(events, c"127.0.0.1");
    (id, events, port)
}

/// Whether an event of connection management is queued, or is within this time.
pub(crate) fn has_event(end: &End, within: Duration) -> bool {
    has_event_of(end.events, within)
}

/// As [`has_event`], of a channel.
pub(crate) fn has_event_of(events: *mut rdma_event_channel, within: Duration) -> bool {
    // SAFETY: the channel lives, and with it its descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw((*events).fd) };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&within.try_into().unwrap())) == Ok(1)
}

/// Resolves the address and requests a connection. Returns the end without waiting for the connection.
pub(crate) fn connect(host: &std::ffi::CStr, port: u16, depth: u32, private_data: &[u8]) -> End {
    connect_with(host, port, depth, &mut param(private_data))
}

/// As [`connect`], with parameters.
pub(crate) fn connect_with(host: &std::ffi::CStr, port: u16, depth: u32, param: &mut rdma_conn_param) -> End {
    let (mut end, mut attr) = End::new(depth);
    // SAFETY: the arguments are objects that were just created.
    unsafe {
        assert_eq!(cm::rdma_create_id(null_mut(), &mut end.id, null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
        let service = std::ffi::CString::new(port.to_string()).unwrap();
        let mut info = null_mut();
        assert_eq!(cm::rdma_getaddrinfo(host.as_ptr(), service.as_ptr(), null(), &mut info), 0);
        assert_eq!(cm::rdma_resolve_addr(end.id, null_mut(), (*info).ai_dst_addr, 1000), 0);
        cm::rdma_freeaddrinfo(info);
        assert_eq!(cm::rdma_resolve_route(end.id, 1000), 0);
        assert_eq!(cm::rdma_create_qp_ex(end.id, &mut attr), 0);
        end.qp = (*end.id).qp;
        assert_eq!(cm::rdma_migrate_id(end.id, end.events), 0);
        assert_eq!(cm::rdma_connect(end.id, param), 0);
    }
    end
}

/// Takes a connection request and its private data.
pub(crate) fn take_request(listen_events: *mut rdma_event_channel) -> (*mut rdma_cm_id, Vec<u8>) {
    // SAFETY: the channel is not destroyed yet; the event is acknowledged exactly once.
    unsafe {
        let mut event = null_mut();
        assert_eq!(cm::rdma_get_cm_event(listen_events, &mut event), 0);
        assert_eq!((*event).event, rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
        let conn = (*event).param.conn;
        let mut data = vec![0; usize::from(conn.private_data_len)];
        std::ptr::copy_nonoverlapping(conn.private_data.cast(), data.as_mut_ptr(), data.len());
        let id = (*event).id;
        cm::rdma_ack_cm_event(event);
        (id, data)
    }
}

/// Accepts a request. Returns the end without waiting until it is established.
pub(crate) fn accept(id: *mut rdma_cm_id, depth: u32, private_data: &[u8]) -> End {
    accept_with(id, depth, &mut param(private_data))
}

/// As [`accept`], with parameters.
pub(crate) fn accept_with(id: *mut rdma_cm_id, depth: u32, param: &mut rdma_conn_param) -> End {
    let (mut end, mut attr) = End::new(depth);
    // SAFETY: the caller passes the identifier of a request; the attributes outlive the calls.
    unsafe {
        end.id = id;
        assert_eq!(cm::rdma_create_qp_ex(id, &mut attr), 0);
        end.qp = (*id).qp;
        assert_eq!(cm::rdma_accept(id, param), 0);
        assert_eq!(cm::rdma_migrate_id(id, end.events), 0);
    }
    end
}

/// Two established ends: the connecting one, and the accepting one.
pub(crate) fn pair(host: &std::ffi::CStr, depth: u32) -> (End, End) {
    // SAFETY: the listener is destroyed exactly once.
    unsafe {
        let listen_events = cm::rdma_create_event_channel();
        let (listen_id, port) = listen(listen_events, host);
        let client = connect(host, port, depth, b"from the client");
        let (id, data) = take_request(listen_events);
        assert_eq!(data, b"from the client");
        let server = accept(id, depth, b"from the server");
        let established = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;
        assert_eq!(next_event(client.events), (established, 0, b"from the server".to_vec()));
        assert_eq!(next_event(server.events), (established, 0, vec![]));
        assert_eq!(cm::rdma_destroy_id(listen_id), 0);
        cm::rdma_destroy_event_channel(listen_events);
        (client, server)
    }
}

pub(crate) fn dereg(mr: *mut ibv_mr) {
    // SAFETY: each region is deregistered exactly once.
    assert_eq!(unsafe { verbs::ibv_dereg_mr(mr) }, 0);
}

/// Pages of this process in memory.
pub(crate) fn resident_pages() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse().unwrap()
}
