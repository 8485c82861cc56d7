// SPDX-License-Identifier: BSD-3-Clause
//! Synchronous identifiers: rdma_create_ep(3), rdma_get_request(3) and blocking calls, for programs without
//! an event channel.

mod common;
use common::verbs_h::*;
use common::*;
use rdma_sys::*;
use softverbs::{rdma as cm, verbs};
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use rdma_cm_event_type::{
    RDMA_CM_EVENT_ADDR_RESOLVED as ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST as CONNECT_REQUEST,
    RDMA_CM_EVENT_DISCONNECTED as DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED as ESTABLISHED,
    RDMA_CM_EVENT_REJECTED as REJECTED, RDMA_CM_EVENT_ROUTE_RESOLVED as ROUTE_RESOLVED,
};

const PASSIVE: i32 = 1;
const FAMILY: i32 = 8;

type Id = *mut rdma_cm_id;

/// A result of rdma_getaddrinfo, freed at the end.
struct Info(*mut rdma_addrinfo);

/// A port space, and the type of queue pairs.
type Service = (rdma_port_space::Type, ibv_qp_type::Type);

const RELIABLE: Service = (rdma_port_space::RDMA_PS_TCP, 0);
const UNRELIABLE: Service = (rdma_port_space::RDMA_PS_IB, ibv_qp_type::IBV_QPT_UC);

impl Info {
    fn get(host: &CStr, port: u16, flags: i32) -> Self {
        Self::of(RELIABLE, host, port, flags)
    }

    fn of((space, qp_type): Service, host: &CStr, port: u16, flags: i32) -> Self {
        // SAFETY: all-zero hints are valid, and both names are C strings.
        unsafe {
            let mut hints: rdma_addrinfo = std::mem::zeroed();
            hints.ai_flags = flags;
            (hints.ai_port_space, hints.ai_qp_type) = (space as i32, qp_type as i32);
            let service = CString::new(port.to_string()).unwrap();
            let mut res = null_mut();
            assert_eq!(cm::rdma_getaddrinfo(host.as_ptr(), service.as_ptr(), &hints, &mut res), 0);
            Self(res)
        }
    }

    fn endpoint(&self, attr: Option<&mut ibv_qp_init_attr>) -> Id {
        let mut id = null_mut();
        let attr = attr.map_or(null_mut(), |attr| attr);
        // SAFETY: the result is not freed yet, the attributes are NULL or outlive the call.
        assert_eq!(unsafe { cm::rdma_create_ep(&mut id, self.0, null_mut(), attr) }, 0);
        id
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: freed exactly once.
        unsafe { cm::rdma_freeaddrinfo(self.0) };
    }
}

/// Attributes like those of the examples of librdmacm: without queues and without a type.
fn attributes() -> ibv_qp_init_attr {
    let mut attr = bare_attributes(4);
    attr.qp_type = 0;
    attr
}

/// A listening endpoint and its port.
fn listener(host: &CStr, attr: Option<&mut ibv_qp_init_attr>) -> (Id, u16) {
    listener_of(RELIABLE, host, attr)
}

fn listener_of(service: Service, host: &CStr, attr: Option<&mut ibv_qp_init_attr>) -> (Id, u16) {
    let id = Info::of(service, host, 0, PASSIVE).endpoint(attr);
    // SAFETY: the endpoint is bound and not destroyed yet.
    unsafe {
        assert_eq!(cm::rdma_listen(id, 0), 0);
        (id, u16::from_be((*id).route.addr.__bindgen_anon_1.src_sin.sin_port))
    }
}

/// The last event of an identifier: kind, status, private data.
fn last(id: Id) -> (u32, i32, Vec<u8>) {
    // SAFETY: the identifier is not destroyed yet, nor its event until the next call for it.
    unsafe {
        let event = (*id).event.read();
        assert_eq!(event.id, id);
        let conn = event.param.conn;
        let len = usize::from(conn.private_data_len);
        let data = if len == 0 { &[] } else { std::slice::from_raw_parts(conn.private_data.cast(), len) };
        (event.event, event.status, data.to_vec())
    }
}

/// Waits for an event of a synchronous identifier, which the next call takes.
fn await_event(id: Id) {
    // SAFETY: the identifier is not destroyed yet, nor its own channel.
    unsafe {
        let mut fd = libc::pollfd { fd: (*(*id).channel).fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&mut fd, 1, 10_000), 1, "its own channel tells");
    }
}

/// Fetches a request of a listening endpoint and calls `answer` with it, in another thread.
fn serve(host: &'static CStr, answer: impl FnOnce(Id) + Send + 'static) -> (u16, thread::JoinHandle<()>) {
    let (tell, port) = mpsc::channel();
    let server = thread::spawn(move || {
        let (listen, port) = listener(host, Some(&mut attributes()));
        tell.send(port).unwrap();
        let mut id = null_mut();
        // SAFETY: both endpoints are destroyed exactly once.
        unsafe {
            assert_eq!(cm::rdma_get_request(listen, &mut id), 0);
            assert_eq!((*(*id).event).listen_id, listen);
            answer(id);
            cm::rdma_destroy_ep(id);
            cm::rdma_destroy_ep(listen);
        }
    });
    (port.recv().unwrap(), server)
}

fn echo(host: &'static CStr) {
    const LEN: usize = 16;
    // SAFETY: the endpoints are destroyed once, after everything that uses them.
    unsafe {
        let (port, server) = serve(host, |id| {
            assert_eq!(last(id), (CONNECT_REQUEST, 0, b"hello".to_vec()));
            assert!(!(*id).qp.is_null() && (*id).channel.is_null());
            let (mut got, mut sent) = ([0; LEN], [0; LEN]);
            let (target, source) = (reg_msgs(id, &mut got), reg_msgs(id, &mut sent));
            assert_eq!(post_recv(id, 1, target), 0);
            assert_eq!(cm::rdma_accept(id, null_mut()), 0);
            assert_eq!(last(id), (ESTABLISHED, 0, vec![]));
            assert_eq!(get_recv_comp(id), (1, 0, LEN as u32));
            sent = got;
            sent.reverse();
            assert_eq!(post_send(id, 2, source, LEN), 0);
            assert_eq!(get_send_comp(id).1, 0);
            assert_eq!(cm::rdma_disconnect(id), 0);
            assert_eq!(last(id).0, DISCONNECTED);
            assert_eq!(cm::rdma_disconnect(id), 0, "the connection has ended");
            dereg(target);
            dereg(source);
        });
        let id = Info::get(host, port, 0).endpoint(Some(&mut attributes()));
        assert_eq!(last(id).0, ROUTE_RESOLVED);
        let (mut got, mut sent) = ([0; LEN], *b"0123456789abcdef");
        let (target, source) = (reg_msgs(id, &mut got), reg_msgs(id, &mut sent));
        assert_eq!(post_recv(id, 1, target), 0);
        assert_eq!(cm::rdma_connect(id, &mut param(b"hello")), 0);
        assert_eq!(last(id).0, ESTABLISHED);
        assert_eq!(post_send(id, 2, source, LEN), 0);
        assert_eq!(get_send_comp(id).1, 0);
        assert_eq!(get_recv_comp(id), (1, 0, LEN as u32));
        assert_eq!(&got, b"fedcba9876543210");
        assert_eq!(cm::rdma_disconnect(id), 0);
        assert_eq!(last(id).0, DISCONNECTED);
        dereg(target);
        dereg(source);
        cm::rdma_destroy_ep(id);
        server.join().unwrap();
    }
}

#[test]
fn two_endpoints_without_an_event_channel_exchange_messages() {
    echo(c"127.0.0.1");
    echo(c"::1");
}

/// Unreliable connections have the port space IB, of a RoCE device.
#[test]
fn two_endpoints_for_unreliable_connections_exchange_messages() {
    if !restart::child_alone("two_endpoints_for_unreliable_connections_exchange_messages") {
        return;
    }
    const LEN: usize = 8;
    let (tell, port) = mpsc::channel();
    let server = thread::spawn(move || {
        let (listen, port) = listener_of(UNRELIABLE, c"127.0.0.1", Some(&mut attributes()));
        tell.send(port).unwrap();
        let mut id = null_mut();
        // SAFETY: both endpoints are destroyed exactly once, the endpoint after its regions.
        unsafe {
            // The requests have the type of the endpoint, whatever the program writes here.
            (*listen).qp_type = RELIABLE.1;
            assert_eq!(cm::rdma_get_request(listen, &mut id), 0);
            assert_eq!(((*id).qp_type, (*(*id).qp).qp_type), (UNRELIABLE.1, UNRELIABLE.1));
            let mut both = [0; 2 * LEN];
            let (target, source) = both.split_at_mut(LEN);
            let (target, source) = (reg_msgs(id, target), reg_msgs(id, source));
            assert_eq!(post_recv(id, 1, target), 0);
            assert_eq!(cm::rdma_accept(id, null_mut()), 0);
            assert_eq!(last(id).0, ESTABLISHED);
            assert_eq!(get_recv_comp(id), (1, 0, LEN as u32));
            both.copy_within(..LEN, LEN);
            both[LEN..].reverse();
            assert_eq!(post_send(id, 2, source, LEN), 0);
            assert_eq!(get_send_comp(id).1, 0);
            // The client disconnects when it has received the message. A DREQ of this side might overtake it.
            await_event(id);
            assert_eq!((cm::rdma_disconnect(id), last(id).0), (0, DISCONNECTED));
            dereg(target);
            dereg(source);
            cm::rdma_destroy_ep(id);
            cm::rdma_destroy_ep(listen);
        }
    });
    let port = port.recv().unwrap();
    let id = Info::of(UNRELIABLE, c"127.0.0.1", port, 0).endpoint(Some(&mut attributes()));
    // SAFETY: the endpoint is destroyed exactly once, after its regions.
    unsafe {
        assert_eq!((*(*id).qp).qp_type, UNRELIABLE.1);
        let (mut got, mut sent) = ([0; LEN], *b"01234567");
        let (target, source) = (reg_msgs(id, &mut got), reg_msgs(id, &mut sent));
        assert_eq!(post_recv(id, 1, target), 0);
        assert_eq!(cm::rdma_connect(id, null_mut()), 0);
        assert_eq!(post_send(id, 2, source, LEN), 0);
        assert_eq!(get_send_comp(id).1, 0);
        assert_eq!(get_recv_comp(id), (1, 0, LEN as u32));
        assert_eq!(&got, b"76543210");
        assert_eq!((cm::rdma_disconnect(id), last(id).0), (0, DISCONNECTED));
        dereg(target);
        dereg(source);
        cm::rdma_destroy_ep(id);
    }
    server.join().unwrap();
}

#[test]
fn a_reliable_connection_to_a_listener_for_unreliable_ones_is_rejected() {
    if !restart::child_alone("a_reliable_connection_to_a_listener_for_unreliable_ones_is_rejected") {
        return;
    }
    // IB_CM_REJ_INVALID_TRANSPORT_TYPE
    const INVALID_TRANSPORT: i32 = 9;
    let (listen, port) = listener_of(UNRELIABLE, c"127.0.0.1", None);
    let reliable = (rdma_port_space::RDMA_PS_IB, ibv_qp_type::IBV_QPT_RC);
    let id = Info::of(reliable, c"127.0.0.1", port, 0).endpoint(Some(&mut attributes()));
    // SAFETY: each endpoint is destroyed exactly once.
    unsafe {
        fails(cm::rdma_connect(id, null_mut()), libc::ECONNREFUSED);
        let (kind, status, _) = last(id);
        assert_eq!((kind, status), (REJECTED, INVALID_TRANSPORT));
        cm::rdma_destroy_ep(id);
        cm::rdma_destroy_ep(listen);
    }
}

#[test]
fn resolving_needs_no_channel() {
    // SAFETY: the identifier is destroyed exactly once.
    unsafe {
        let (info, mut id) = (Info::get(c"127.0.0.1", 7204, 0), null_mut());
        assert_eq!(cm::rdma_create_id(null_mut(), &mut id, null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
        fails(cm::rdma_resolve_route(id, 100), libc::EINVAL);
        assert_eq!(cm::rdma_resolve_addr(id, null_mut(), (*info.0).ai_dst_addr, 100), 0);
        assert_eq!(last(id), (ADDR_RESOLVED, 0, vec![]));
        assert_eq!(cm::rdma_resolve_route(id, 100), 0);
        assert_eq!(last(id), (ROUTE_RESOLVED, 0, vec![]));
        assert!((*id).channel.is_null() && !(*id).pd.is_null());
        fails(cm::rdma_migrate_id(id, null_mut()), libc::EINVAL);
        fails(cm::rdma_connect(id, null_mut()), libc::EINVAL);
        fails(cm::rdma_accept(id, null_mut()), libc::EINVAL);
        fails(cm::rdma_listen(id, 0), libc::EINVAL);
        fails(cm::rdma_disconnect(id), libc::EINVAL);
        assert!((*id).channel.is_null(), "a refused call creates none");
        assert_eq!(cm::rdma_destroy_id(id), 0);
    }
}

#[test]
fn a_failed_connection_is_the_error_of_the_call() {
    // SAFETY: the endpoints are destroyed exactly once.
    unsafe {
        let (port, server) = serve(c"127.0.0.1", |id| {
            let text = b"not you";
            assert_eq!(cm::rdma_reject(id, text.as_ptr().cast(), text.len() as u8), 0);
        });
        let id = Info::get(c"127.0.0.1", port, 0).endpoint(Some(&mut attributes()));
        fails(cm::rdma_connect(id, null_mut()), libc::ECONNREFUSED);
        assert_eq!(last(id), (REJECTED, -libc::ECONNREFUSED, b"not you".to_vec()));
        server.join().unwrap();
        cm::rdma_destroy_ep(id);

        // The listener is closed.
        let id = Info::get(c"127.0.0.1", port, 0).endpoint(Some(&mut attributes()));
        fails(cm::rdma_connect(id, null_mut()), libc::ECONNREFUSED);
        assert_eq!(last(id).0, REJECTED);
        cm::rdma_destroy_ep(id);
    }
}

#[test]
fn a_listener_that_opens_a_little_later_is_reached() {
    // On a busy machine that may take longer than the retries; then repeat.
    let reached = (0..10).any(|_| {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let server = thread::spawn(move || {
            begun.recv().unwrap();
            thread::sleep(std::time::Duration::from_millis(5));
            // SAFETY: the endpoints are destroyed exactly once.
            unsafe {
                let listen = Info::get(c"127.0.0.1", port, PASSIVE).endpoint(Some(&mut attributes()));
                assert_eq!(cm::rdma_listen(listen, 1), 0);
                ended.recv().unwrap_err();
                cm::rdma_destroy_ep(listen);
            }
        });
        // SAFETY: the endpoint is destroyed exactly once.
        let reached = unsafe {
            let id = Info::get(c"127.0.0.1", port, 0).endpoint(Some(&mut attributes()));
            begin.send(()).unwrap();
            // Nobody fetches the request: an initiator that reaches the listener sends it and waits.
            let (sender, receiver) = mpsc::channel();
            let address = id as usize;
            let client =
                thread::spawn(move || sender.send(cm::rdma_connect(address as Id, null_mut())).unwrap());
            let refused = receiver.recv_timeout(std::time::Duration::from_millis(500)).is_ok();
            drop(end);
            client.join().unwrap();
            cm::rdma_destroy_ep(id);
            !refused
        };
        server.join().unwrap();
        reached
    });
    assert!(reached);
}

#[test]
fn a_request_without_a_possible_queue_pair_is_rejected() {
    // SAFETY: the endpoints are destroyed exactly once.
    unsafe {
        let mut too_many = attributes();
        too_many.cap.max_send_wr = u32::MAX;
        let (listen, port) = listener(c"127.0.0.1", Some(&mut too_many));
        let client = thread::spawn(move || {
            let id = Info::get(c"127.0.0.1", port, 0).endpoint(Some(&mut attributes()));
            fails(cm::rdma_connect(id, null_mut()), libc::ECONNREFUSED);
            cm::rdma_destroy_ep(id);
        });
        let mut id = null_mut();
        fails(cm::rdma_get_request(listen, &mut id), libc::EINVAL);
        assert!(id.is_null());
        client.join().unwrap();
        cm::rdma_destroy_ep(listen);
    }
}

/// The peer ends the connection first; the call takes that event and does not wait for another.
#[test]
fn a_connection_that_the_peer_has_ended_is_disconnected_at_once() {
    // SAFETY: the endpoints are destroyed exactly once.
    unsafe {
        let (port, server) = serve(c"127.0.0.1", |id| {
            assert_eq!((cm::rdma_accept(id, null_mut()), cm::rdma_disconnect(id)), (0, 0));
        });
        let id = Info::get(c"127.0.0.1", port, 0).endpoint(Some(&mut attributes()));
        assert_eq!(cm::rdma_connect(id, null_mut()), 0);
        server.join().unwrap();
        await_event(id);
        assert_eq!((cm::rdma_disconnect(id), last(id).0), (0, DISCONNECTED));
        assert_eq!(cm::rdma_disconnect(id), 0);
        cm::rdma_destroy_ep(id);
    }
}

/// A connection ends with its queue pair, without an event: the call must not wait for one.
#[test]
fn a_connection_without_its_queue_pair_is_disconnected_at_once() {
    // SAFETY: the endpoints are destroyed exactly once.
    unsafe {
        let (port, server) = serve(c"127.0.0.1", |id| {
            assert_eq!(cm::rdma_accept(id, null_mut()), 0);
            cm::rdma_destroy_qp(id);
            assert_eq!(cm::rdma_disconnect(id), 0);
        });
        let id = Info::get(c"127.0.0.1", port, 0).endpoint(Some(&mut attributes()));
        assert_eq!((cm::rdma_connect(id, null_mut()), cm::rdma_disconnect(id)), (0, 0));
        cm::rdma_destroy_ep(id);
        server.join().unwrap();
    }
}

#[test]
fn an_identifier_becomes_asynchronous_and_synchronous_again() {
    // SAFETY: the endpoints are destroyed once, the channel after them.
    unsafe {
        let (port, server) = serve(c"127.0.0.1", |id| {
            let events = cm::rdma_create_event_channel();
            assert_eq!(cm::rdma_migrate_id(id, events), 0);
            assert!((*id).event.is_null() && (*id).channel == events);
            assert_eq!(cm::rdma_accept(id, null_mut()), 0);
            assert_eq!(next_event(events).0, ESTABLISHED);
            // The disconnect event must be kept for a later call.
            assert_eq!(cm::rdma_migrate_id(id, null_mut()), 0);
            assert!(!(*id).channel.is_null() && (*id).channel != events);
            cm::rdma_destroy_event_channel(events);
            assert_eq!((cm::rdma_disconnect(id), last(id).0), (0, DISCONNECTED));
        });
        let id = Info::get(c"127.0.0.1", port, 0).endpoint(Some(&mut attributes()));
        assert_eq!(cm::rdma_connect(id, null_mut()), 0);
        let events = cm::rdma_create_event_channel();
        assert_eq!(cm::rdma_migrate_id(id, events), 0);
        assert!((*id).event.is_null() && (*id).channel == events);
        assert_eq!(next_event(events).0, DISCONNECTED);
        server.join().unwrap();
        let mut other = null_mut();
        fails(cm::rdma_get_request(id, &mut other), libc::EINVAL);
        cm::rdma_destroy_ep(id);
        cm::rdma_destroy_event_channel(events);
    }
}

/// Creates a queue pair with one completion queue.
///
/// # Safety
///
/// The protection domain must not have been deallocated.
unsafe fn queue_pair(pd: *mut ibv_pd) -> (*mut ibv_qp, *mut ibv_cq) {
    // SAFETY: the protection domain is not deallocated yet.
    unsafe {
        let cq = verbs::ibv_create_cq((*pd).context, 16, null_mut(), null_mut(), 0);
        let mut attr = bare_attributes(4);
        (attr.send_cq, attr.recv_cq) = (cq, cq);
        let qp = verbs::ibv_create_qp(pd, &mut attr);
        assert!(!cq.is_null() && !qp.is_null());
        (qp, cq)
    }
}

/// A queue pair that the program creates and modifies itself with rdma_init_qp_attr(3), passed by address or
/// by number.
#[test]
fn a_queue_pair_of_the_program_is_connected() {
    /// Brings a queue pair to the states in which it sends and receives, before or after it is connected.
    unsafe fn modify(id: Id, qp: *mut ibv_qp) {
        use ibv_qp_state::{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            // SAFETY: all-zero attributes are valid; the identifier and the queue pair are not destroyed yet.
            unsafe {
                let (mut attr, mut mask): (ibv_qp_attr, i32) = (std::mem::zeroed(), 0);
                attr.qp_state = state;
                assert_eq!(cm::rdma_init_qp_attr(id, &mut attr, &mut mask), 0);
                assert_eq!(verbs::ibv_modify_qp(qp, &mut attr, mask), 0, "state {state}");
            }
        }
    }
    for by_number in [false, true] {
        let both = Arc::new(Barrier::new(2));
        let use_own = move |id: Id, connect: unsafe fn(Id, *mut rdma_conn_param) -> i32| {
            // SAFETY: the identifier lives; the queue pair is destroyed once, before its queue.
            unsafe {
                let (qp, cq) = queue_pair((*id).pd);
                modify(id, qp);
                let mut with = param(b"");
                fails(connect(id, &mut with), libc::EINVAL);
                if by_number {
                    with.qp_num = (*qp).qp_num;
                } else {
                    (*id).qp = qp;
                }
                assert_eq!((connect(id, &mut with), last(id).0), (0, ESTABLISHED));
                modify(id, qp);
                assert_eq!(cm::rdma_establish(id) == 0, by_number, "not for a queue pair of the identifier");
                (*id).qp = null_mut();
                both.wait();
                assert_eq!((cm::rdma_disconnect(id), last(id).0), (0, DISCONNECTED));
                assert_eq!((verbs::ibv_destroy_qp(qp), verbs::ibv_destroy_cq(cq)), (0, 0));
            }
        };
        let (tell, port) = mpsc::channel();
        let accepts = use_own.clone();
        let server = thread::spawn(move || {
            let (listen, port) = listener(c"127.0.0.1", None);
            tell.send(port).unwrap();
            let mut id = null_mut();
            // SAFETY: both endpoints are destroyed exactly once.
            unsafe {
                assert_eq!(cm::rdma_get_request(listen, &mut id), 0);
                accepts(id, cm::rdma_accept);
                cm::rdma_destroy_ep(id);
                cm::rdma_destroy_ep(listen);
            }
        });
        let port = port.recv().unwrap();
        let id = Info::get(c"127.0.0.1", port, 0).endpoint(None);
        use_own(id, cm::rdma_connect);
        // SAFETY: destroyed exactly once.
        unsafe { cm::rdma_destroy_ep(id) };
        server.join().unwrap();
    }
}

/// A call that fails does not leave its queue pair to the identifier: the next call has another one.
#[test]
fn a_refused_call_leaves_the_queue_pair_to_the_program() {
    let (port, server) = serve(c"127.0.0.1", |id| {
        // SAFETY: the endpoint is not destroyed yet.
        unsafe {
            assert_eq!(cm::rdma_accept(id, null_mut()), 0);
            assert_eq!((cm::rdma_disconnect(id), last(id).0), (0, DISCONNECTED));
        }
    });
    let to = Info::get(c"127.0.0.1", port, 0);
    // SAFETY: each object is destroyed exactly once; the address outlives the calls.
    unsafe {
        let id = Info::get(c"127.0.0.1", 0, PASSIVE).endpoint(None);
        for call in [cm::rdma_connect, cm::rdma_accept] {
            let (refused, cq) = queue_pair((*id).pd);
            (*id).qp = refused;
            // It has neither a remote address nor a connect request.
            fails(call(id, &mut param(b"")), libc::EINVAL);
            (*id).qp = null_mut();
            assert_eq!((verbs::ibv_destroy_qp(refused), verbs::ibv_destroy_cq(cq)), (0, 0));
        }
        assert_eq!(cm::rdma_resolve_addr(id, null_mut(), (*to.0).ai_dst_addr, 1000), 0);
        assert_eq!(cm::rdma_resolve_route(id, 1000), 0);
        let (qp, cq) = queue_pair((*id).pd);
        (*id).qp = qp;
        assert_eq!((cm::rdma_connect(id, &mut param(b"")), last(id).0), (0, ESTABLISHED));
        assert_eq!((cm::rdma_disconnect(id), last(id).0), (0, DISCONNECTED));
        (*id).qp = null_mut();
        assert_eq!((verbs::ibv_destroy_qp(qp), verbs::ibv_destroy_cq(cq)), (0, 0));
        cm::rdma_destroy_ep(id);
    }
    server.join().unwrap();
}

/// The number of a destroyed queue pair is invalid.
#[test]
fn the_number_of_a_destroyed_queue_pair_is_refused() {
    // SAFETY: each object is destroyed exactly once.
    unsafe {
        let id = Info::get(c"127.0.0.1", 7204, 0).endpoint(None);
        let cq = verbs::ibv_create_cq((*id).verbs, 16, null_mut(), null_mut(), 0);
        let mut numbers = Vec::new();
        for _ in 0..40 {
            let mut attr = bare_attributes(4);
            (attr.send_cq, attr.recv_cq) = (cq, cq);
            let qp = verbs::ibv_create_qp((*id).pd, &mut attr);
            numbers.push((*qp).qp_num);
            assert_eq!(verbs::ibv_destroy_qp(qp), 0);
        }
        for number in numbers {
            let mut with = param(b"");
            with.qp_num = number;
            fails(cm::rdma_connect(id, &mut with), libc::EINVAL);
        }
        assert_eq!(verbs::ibv_destroy_cq(cq), 0);
        cm::rdma_destroy_ep(id);
    }
}

#[test]
fn invalid_arguments_of_an_endpoint_are_refused_and_nothing_is_stored() {
    // SAFETY: the results of rdma_getaddrinfo are not freed yet; the calls only compare the foreign
    // protection domain.
    unsafe {
        let active = Info::get(c"127.0.0.1", 7204, 0);
        let passive = Info::get(c"127.0.0.1", 0, PASSIVE);
        let mut foreign = ibv_pd { context: 0x40 as *mut ibv_context, handle: 1 };
        let refused = |from: &Info, change: &dyn Fn(&mut rdma_addrinfo), pd, attr, errno| {
            let (mut res, mut id) = (from.0.read(), null_mut());
            change(&mut res);
            fails(cm::rdma_create_ep(&mut id, &mut res, pd, attr), errno);
            assert!(id.is_null());
        };
        let datagram = ibv_qp_type::IBV_QPT_UD as i32;
        refused(&active, &|res| res.ai_qp_type = datagram, null_mut(), null_mut(), libc::EOPNOTSUPP);
        let unreliable = UNRELIABLE.1 as i32;
        refused(&active, &|res| res.ai_qp_type = unreliable, null_mut(), null_mut(), libc::EOPNOTSUPP);
        let datagrams = rdma_port_space::RDMA_PS_UDP as i32;
        refused(&active, &|res| res.ai_port_space = datagrams, null_mut(), null_mut(), libc::EOPNOTSUPP);
        refused(&active, &|res| res.ai_port_space = 77, null_mut(), null_mut(), libc::EINVAL);
        refused(&active, &|res| res.ai_dst_len = 0, null_mut(), null_mut(), libc::EINVAL);
        refused(&passive, &|res| res.ai_src_len = 0, null_mut(), null_mut(), libc::EINVAL);
        for from in [&active, &passive] {
            refused(from, &|_| {}, &mut foreign, &mut attributes(), libc::EINVAL);
        }
        let mut too_many = attributes();
        too_many.cap.max_recv_wr = u32::MAX;
        refused(&active, &|_| {}, null_mut(), &mut too_many, libc::EINVAL);
        fails(cm::rdma_create_ep(null_mut(), active.0, null_mut(), null_mut()), libc::EINVAL);

        let idle = passive.endpoint(None);
        let mut id = null_mut();
        fails(cm::rdma_get_request(idle, &mut id), libc::EINVAL);
        cm::rdma_destroy_ep(idle);
        for ps in [rdma_port_space::RDMA_PS_UDP, rdma_port_space::RDMA_PS_IPOIB, rdma_port_space::RDMA_PS_IB]
        {
            fails(cm::rdma_create_id(null_mut(), &mut id, null_mut(), ps), libc::EOPNOTSUPP);
        }
        fails(cm::rdma_create_id(null_mut(), &mut id, null_mut(), 7), libc::EINVAL);
        assert!(id.is_null());
    }
}

#[test]
fn addresses_are_resolved_for_either_side() {
    // SAFETY: all-zero hints are valid; the results live until they are freed.
    unsafe {
        let passive = Info::get(c"::1", 7204, PASSIVE).0.read();
        assert_eq!((passive.ai_flags, passive.ai_family), (PASSIVE, libc::AF_INET6));
        assert!(passive.ai_src_len > 0 && passive.ai_dst_len == 0 && passive.ai_dst_addr.is_null());
        assert_eq!(passive.ai_qp_type, ibv_qp_type::IBV_QPT_RC as i32);
        assert_eq!(passive.ai_port_space, rdma_port_space::RDMA_PS_TCP as i32);

        // Every destination gets the source address of the program.
        let source = Info::get(c"127.0.0.1", 0, PASSIVE);
        let mut hints: rdma_addrinfo = std::mem::zeroed();
        hints.ai_src_len = (*source.0).ai_src_len;
        hints.ai_src_addr = (*source.0).ai_src_addr;
        let mut res = null_mut();
        assert_eq!(cm::rdma_getaddrinfo(c"127.0.0.1".as_ptr(), c"7204".as_ptr(), &hints, &mut res), 0);
        let both = Info(res);
        assert!((*both.0).ai_src_len == hints.ai_src_len && (*both.0).ai_dst_len > 0);
        assert_ne!((*both.0).ai_src_addr, hints.ai_src_addr, "a copy");
        let id = both.endpoint(None);
        assert_eq!((*id).route.addr.__bindgen_anon_1.src_sin.sin_addr.s_addr, 0x7f00_0001u32.to_be());
        cm::rdma_destroy_ep(id);

        // Without names the addresses are those of the hints.
        hints.ai_flags = PASSIVE;
        assert_eq!(cm::rdma_getaddrinfo(null(), null(), &hints, &mut res), 0);
        assert_eq!((*Info(res).0).ai_src_len, hints.ai_src_len);
        hints.ai_flags = 0;
        let ask = |change: &dyn Fn(&mut rdma_addrinfo), node: *const libc::c_char| {
            let mut res = null_mut();
            let mut hints = hints;
            change(&mut hints);
            let ret = cm::rdma_getaddrinfo(node, null(), &hints, &mut res);
            cm::rdma_freeaddrinfo(res);
            ret
        };
        assert_eq!(ask(&|_| {}, null()), libc::EAI_NONAME, "no destination");
        let v4 = c"127.0.0.1".as_ptr();
        let family = |hints: &mut rdma_addrinfo, family| {
            hints.ai_flags = FAMILY;
            hints.ai_family = family;
        };
        assert_eq!(ask(&|hints| family(hints, libc::AF_INET), v4), 0);
        assert_ne!(ask(&|hints| family(hints, libc::AF_INET6), v4), 0);
        assert_eq!(ask(&|hints| family(hints, libc::AF_IB), v4), libc::EAI_FAMILY);
        assert_eq!(ask(&|hints| hints.ai_family = libc::AF_INET6, v4), 0, "the flag does not request it");
        let udp = rdma_port_space::RDMA_PS_UDP as i32;
        let both = |hints: &mut rdma_addrinfo| {
            hints.ai_qp_type = ibv_qp_type::IBV_QPT_RC as i32;
            hints.ai_port_space = udp;
        };
        assert_eq!(ask(&both, v4), libc::EAI_SOCKTYPE);
    }
}
