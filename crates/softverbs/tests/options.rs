// SPDX-License-Identifier: BSD-3-Clause
//! rdma_set_option(3), and calls of rdma_cm with little or no effect over iWARP.

mod common;
use common::ids::*;
use common::verbs_h::*;
use common::*;
use libc::c_int;
use rdma_sys::*;
use softverbs::rdma as cm;
use std::net::{TcpListener, TcpStream};
use std::ptr::null_mut;

/// An identifier with a route to `port` and a queue pair.
fn ready(id: Id, host: &str, port: u16) {
    // SAFETY: the identifier is not destroyed yet, and the addresses outlive the call.
    unsafe {
        let mut to = address(host, port);
        assert_eq!(cm::rdma_resolve_addr(id, null_mut(), (&raw mut to).cast(), 1000), 0);
        assert_eq!(cm::rdma_resolve_route(id, 1000), 0);
        assert_eq!(cm::rdma_create_qp(id, null_mut(), &mut bare_attributes(4)), 0);
    }
}

fn dst_port(id: Id) -> u16 {
    // SAFETY: the identifier is not destroyed yet.
    u16::from_be(unsafe { cm::rdma_get_dst_port(id) })
}

/// An option of the socket of this process with this local port and, unless it is 0, this remote port.
fn option_of(local: u16, remote: u16, level: c_int, name: c_int) -> c_int {
    let port = |fd, call: unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut u32) -> c_int| {
        // SAFETY: `storage` is writable for `len` bytes, and both families have their port within it.
        unsafe {
            let (mut storage, mut len) = (address("::", 0), size_of::<libc::sockaddr_storage>() as u32);
            match call(fd, (&raw mut storage).cast(), &mut len) {
                // Both families have the port at the same offset.
                0 => u16::from_be((*(&raw const storage).cast::<libc::sockaddr_in>()).sin_port),
                _ => 0,
            }
        }
    };
    let fd = (3..1024)
        .find(|fd| port(*fd, libc::getsockname) == local && port(*fd, libc::getpeername) == remote)
        .expect("a socket with this port");
    let (mut value, mut len) = (0, size_of::<c_int>() as u32);
    // SAFETY: `value` is writable for `len` bytes.
    assert_eq!(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &mut len) }, 0);
    value
}

#[test]
fn a_type_of_service_is_set_on_the_socket() {
    for (host, level, name) in
        [("127.0.0.1", libc::IPPROTO_IP, libc::IP_TOS), ("::1", libc::IPPROTO_IPV6, libc::IPV6_TCLASS)]
    {
        // A listener: before it is bound, when it is, and when it listens.
        let listener = new_id();
        assert_eq!(set(listener, ID, TOS, 0x20u8), 0);
        bind(listener, host);
        let port = src_port(listener);
        assert_eq!(option_of(port, 0, level, name), 0x20);
        assert_eq!(set(listener, ID, TOS, 0x40u8), 0);
        assert_eq!(option_of(port, 0, level, name), 0x40);
        // SAFETY: the identifier is not destroyed yet.
        assert_eq!(unsafe { cm::rdma_listen(listener, 0) }, 0);
        assert_eq!(set(listener, ID, TOS, 0x60u8), 0);
        assert_eq!(option_of(port, 0, level, name), 0x60);
        destroy(listener);

        // A connection.
        let peer = TcpListener::bind((host, 0)).unwrap();
        let to = peer.local_addr().unwrap().port();
        let id = new_id();
        // SAFETY: the channel outlives the identifier.
        unsafe {
            let events = cm::rdma_create_event_channel();
            assert_eq!(set(id, ID, TOS, 0x80u8), 0);
            ready(id, host, to);
            assert_eq!((src_port(id), dst_port(id)), (0, to));
            assert_eq!(cm::rdma_migrate_id(id, events), 0);
            assert_eq!(cm::rdma_connect(id, null_mut()), 0);
            let (_stream, from) = peer.accept().unwrap();
            assert_eq!(src_port(id), from.port(), "the port that the peer sees");
            assert_eq!(option_of(from.port(), to, level, name), 0x80);
            destroy(id);
            cm::rdma_destroy_event_channel(events);
        }
    }
}

#[test]
fn a_listener_accepts_one_family_or_both() {
    for (only, reachable) in [(1, false), (0, true)] {
        let id = new_id();
        assert_eq!(set(id, ID, AFONLY, only as c_int), 0);
        bind(id, "::");
        fails(set(id, ID, AFONLY, only as c_int), libc::EINVAL);
        // SAFETY: the identifier is not destroyed yet.
        assert_eq!(unsafe { cm::rdma_listen(id, 0) }, 0);
        let port = src_port(id);
        assert!(TcpStream::connect(("::1", port)).is_ok());
        assert_eq!(TcpStream::connect(("127.0.0.1", port)).is_ok(), reachable, "only: {only}");
        destroy(id);
    }
}

#[test]
fn an_unknown_option_is_refused() {
    let id = new_id();
    // The sizes of the values.
    fails(set(id, ID, TOS, 0u16), libc::EINVAL);
    fails(set(id, ID, REUSEADDR, 0u8), libc::EINVAL);
    fails(set(id, ID, AFONLY, 0u64), libc::EINVAL);
    fails(set(id, ID, ACK_TIMEOUT, 0 as c_int), libc::EINVAL);
    assert_eq!(set(id, ID, ACK_TIMEOUT, 14u8), 0);
    assert_eq!(set(id, ID, REUSEADDR, 1 as c_int), 0);
    for (level, name, errno) in [
        (ID, 4, libc::ENOSYS),
        (ID, -1, libc::ENOSYS),
        (IB, 7, libc::ENOSYS),
        (2, 0, libc::ENOSYS),
        (IB, IB_PATH, libc::EINVAL),
    ] {
        fails(set(id, level, name, [0u8; 72]), errno);
    }
    // SAFETY: NULL is refused.
    unsafe {
        fails(cm::rdma_set_option(id, ID, TOS, null_mut(), 1), libc::EINVAL);
        fails(set(null_mut(), ID, TOS, 0u8), libc::EINVAL);
        bind(id, "127.0.0.1");
        assert_eq!(set(id, ID, REUSEADDR, 1 as c_int), 0);
        fails(set(id, ID, REUSEADDR, 0 as c_int), libc::EINVAL);
        assert_eq!(cm::rdma_listen(id, 0), 0);
        fails(set(id, ID, REUSEADDR, 1 as c_int), libc::EINVAL);
    }
    destroy(id);
}

#[test]
fn calls_that_iwarp_lacks_fail() {
    let id = new_id();
    let mut attr = rdma_cm_join_mc_attr_ex { comp_mask: 1, join_flags: 0, addr: null_mut() };
    // SAFETY: the identifier is not destroyed yet, the structures outlive the calls.
    unsafe {
        let mut group = address("224.0.0.1", 0);
        let group = (&raw mut group).cast();
        fails(cm::rdma_join_multicast(id, group, null_mut()), libc::EOPNOTSUPP);
        fails(cm::rdma_join_multicast_ex(id, &mut attr, null_mut()), libc::EOPNOTSUPP);
        fails(cm::rdma_leave_multicast(id, group), libc::EOPNOTSUPP);

        let mut ece = ibv_ece { vendor_id: 7, options: 7, comp_mask: 0 };
        assert_eq!(cm::rdma_set_local_ece(id, &mut ece), 0);
        assert_eq!(cm::rdma_get_remote_ece(id, &mut ece), 0);
        assert_eq!((ece.vendor_id, ece.options, ece.comp_mask), (0, 0, 0));
        fails(cm::rdma_set_local_ece(id, &mut ece), libc::EINVAL);
        ece = ibv_ece { vendor_id: 7, options: 7, comp_mask: 1 };
        fails(cm::rdma_set_local_ece(id, &mut ece), libc::EINVAL);
        fails(cm::rdma_set_local_ece(id, null_mut()), libc::EINVAL);
        fails(cm::rdma_get_remote_ece(id, null_mut()), libc::EINVAL);
        ready(id, "127.0.0.1", 1);
        ece.comp_mask = 0;
        fails(cm::rdma_set_local_ece(id, &mut ece), libc::EINVAL);
        fails(cm::rdma_get_remote_ece(id, &mut ece), libc::EINVAL);
    }
    destroy(id);
}

#[test]
fn the_device_is_listed() {
    // SAFETY: the list ends with NULL and is freed exactly once.
    unsafe {
        let mut count = 77;
        let list = cm::rdma_get_devices(&mut count);
        assert_eq!((count, *list, *list.add(1)), (1, softverbs::context(), null_mut()));
        cm::rdma_free_devices(list);
        let list = cm::rdma_get_devices(null_mut());
        assert_eq!(*list, softverbs::context());
        cm::rdma_free_devices(list);
        cm::rdma_free_devices(null_mut());
    }
}

/// The result of rdma_init_qp_attr for a state: the state, rights, port, and the mask.
fn init(id: Id, state: ibv_qp_state::Type) -> Result<(u32, u32, u8, c_int), c_int> {
    // SAFETY: all-zero attributes are valid; both outlive the call.
    unsafe {
        let (mut attr, mut mask): (ibv_qp_attr, c_int) = (std::mem::zeroed(), -1);
        attr.qp_state = state;
        match cm::rdma_init_qp_attr(id, &mut attr, &mut mask) {
            0 => Ok((attr.qp_state, attr.qp_access_flags, attr.port_num, mask)),
            _ => Err(errno()),
        }
    }
}

#[test]
fn a_program_that_modifies_its_queue_pair_gets_the_attributes() {
    use ibv_qp_state::*;
    const ALL: c_int = 1 | RIGHTS_AND_PORT;
    const RIGHTS_AND_PORT: c_int = 1 << 3 | 1 << 5;
    let id = new_id();
    assert_eq!(init(id, IBV_QPS_INIT), Err(libc::EINVAL), "no device");
    bind(id, "127.0.0.1");
    assert_eq!(init(id, IBV_QPS_INIT), Ok((IBV_QPS_INIT, 0b110, 1, ALL)));
    for state in [IBV_QPS_RTR, IBV_QPS_RTS] {
        assert_eq!(init(id, state), Ok((state, 0b110, 1, RIGHTS_AND_PORT)), "the connection sets it");
    }
    for state in [IBV_QPS_RESET, IBV_QPS_SQD, IBV_QPS_ERR, 77] {
        assert_eq!(init(id, state), Err(libc::EINVAL));
    }
    destroy(id);

    let (client, server) = pair(c"127.0.0.1", 4);
    assert_eq!(init(client.id, IBV_QPS_INIT).unwrap().3, RIGHTS_AND_PORT, "too late");
    client.destroy();
    server.destroy();
}

#[test]
fn an_iwarp_connection_is_established_without_the_program() {
    // SAFETY: the identifiers are not destroyed yet.
    unsafe {
        let id = new_id();
        fails(cm::rdma_establish(id), libc::EINVAL);
        fails(cm::rdma_notify(id, ibv_event_type::IBV_EVENT_COMM_EST), libc::EINVAL);
        destroy(id);

        let (client, server) = pair(c"127.0.0.1", 4);
        assert_eq!((src_port(client.id), dst_port(client.id)), (dst_port(server.id), src_port(server.id)));
        assert_ne!(src_port(client.id), 0);
        assert_eq!(cm::rdma_notify(client.id, ibv_event_type::IBV_EVENT_COMM_EST), 0);
        fails(cm::rdma_establish(client.id), libc::EINVAL);
        let qp = std::mem::replace(&mut (*client.id).qp, null_mut());
        assert_eq!(cm::rdma_establish(client.id), 0, "its queue pair is not the identifier's");
        (*client.id).qp = qp;
        client.destroy();
        server.destroy();
    }
}

#[test]
fn rdma_reject_ece_rejects() {
    // SAFETY: each object is destroyed exactly once.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let (listen_id, port) = listen(events, c"127.0.0.1");
        let client = connect(c"127.0.0.1", port, 4, b"");
        let (id, _) = take_request(events);
        assert_eq!(cm::rdma_reject_ece(id, b"no".as_ptr().cast(), 2), 0);
        let rejected = rdma_cm_event_type::RDMA_CM_EVENT_REJECTED;
        assert_eq!(next_event(client.events), (rejected, -libc::ECONNREFUSED, b"no".to_vec()));
        fails(cm::rdma_reject_ece(id, null_mut(), 0), libc::EINVAL);
        assert_eq!((cm::rdma_destroy_id(id), cm::rdma_destroy_id(listen_id)), (0, 0));
        cm::rdma_destroy_event_channel(events);
        client.destroy();
    }
}
