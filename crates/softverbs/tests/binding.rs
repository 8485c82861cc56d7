// SPDX-License-Identifier: BSD-3-Clause
//! The local addresses to which identifiers can be bound at the same time, and the address of an active
//! identifier.

mod common;
use common::ids::*;
use common::verbs_h::*;
use common::*;
use libc::{EADDRINUSE, EADDRNOTAVAIL, EINVAL, c_int};
use softverbs::rdma as cm;
use std::ptr::null_mut;

/// Binds an identifier; returns the errno of a failure.
fn try_bind(id: Id, host: &str, port: u16) -> Result<(), c_int> {
    let mut local = address(host, port);
    // SAFETY: the identifier is not destroyed yet, and the address outlives the call.
    match unsafe { cm::rdma_bind_addr(id, (&raw mut local).cast()) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// Whether another identifier can be bound to this address now, with and without RDMA_OPTION_ID_REUSEADDR.
fn another(host: &str, port: u16) -> [Result<(), c_int>; 2] {
    [true, false].map(|reuse| {
        let id = new_id();
        assert_eq!(set(id, ID, REUSEADDR, c_int::from(reuse)), 0);
        let bound = try_bind(id, host, port);
        destroy(id);
        bound
    })
}

fn listen(id: Id) -> Result<(), c_int> {
    // SAFETY: the identifier is not destroyed yet.
    match unsafe { cm::rdma_listen(id, 0) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

/// A port that is free at every address.
fn free_port() -> u16 {
    let id = new_id();
    bind(id, "::");
    let port = src_port(id);
    destroy(id);
    port
}

#[test]
fn an_address_belongs_to_one_identifier() {
    let in_use = [Err(EADDRINUSE); 2];
    let not_available = [Err(EADDRNOTAVAIL); 2];
    for (host, wildcard, elsewhere) in [("127.0.0.1", "0.0.0.0", Some("127.0.0.2")), ("::1", "::", None)] {
        let (id, port) = (new_id(), free_port());
        assert_eq!(try_bind(id, host, port), Ok(()));
        for listens in [false, true] {
            assert_eq!(another(host, port), in_use, "{host}, listens: {listens}");
            assert_eq!(another(wildcard, port), not_available, "{wildcard}, listens: {listens}");
            if let Some(elsewhere) = elsewhere {
                assert_eq!(another(elsewhere, port), [Ok(()); 2], "{elsewhere}");
            }
            assert_eq!(another(host, 0), [Ok(()); 2], "another port");
            if !listens {
                assert_eq!(try_bind(id, host, 0), Err(EINVAL), "it is bound");
                assert_eq!(listen(id), Ok(()));
            }
        }
        destroy(id);
        assert_eq!(another(wildcard, port), [Ok(()); 2], "destroyed");

        let id = new_id();
        assert_eq!(try_bind(id, wildcard, port), Ok(()));
        assert_eq!(another(host, port), not_available);
        assert_eq!(another(wildcard, port), not_available);
        destroy(id);
        assert_eq!(another(host, port), [Ok(()); 2], "destroyed");
    }
}

#[test]
fn an_ipv6_wildcard_excludes_ipv4_unless_it_is_for_ipv6_only() {
    for (only, expected) in [(1, Ok(())), (0, Err(EADDRNOTAVAIL))] {
        let id = new_id();
        assert_eq!(set(id, ID, AFONLY, only as c_int), 0);
        bind(id, "::");
        let port = src_port(id);
        assert_eq!(another("127.0.0.1", port), [expected; 2], "only: {only}");
        assert_eq!(another("0.0.0.0", port), [expected; 2], "only: {only}");
        destroy(id);
    }
}

#[test]
fn identifiers_that_permit_it_share_an_address_until_one_listens() {
    let (first, second) = (new_id(), new_id());
    let port = free_port();
    assert_eq!(set(first, ID, REUSEADDR, 1 as c_int), 0);
    assert_eq!(try_bind(first, "127.0.0.1", port), Ok(()));
    assert_eq!(another("127.0.0.1", port), [Ok(()), Err(EADDRINUSE)], "both must permit it");
    assert_eq!(another("0.0.0.0", port), [Ok(()), Err(EADDRNOTAVAIL)]);
    assert_eq!(set(second, ID, REUSEADDR, 1 as c_int), 0);
    assert_eq!(try_bind(second, "127.0.0.1", port), Ok(()));
    assert_eq!(listen(first), Err(EADDRINUSE), "a listener does not share its address");
    destroy(second);
    assert_eq!(listen(first), Ok(()));
    assert_eq!(another("127.0.0.1", port), [Err(EADDRINUSE); 2]);
    destroy(first);

    // The option can be set after the identifier is bound.
    let id = new_id();
    bind(id, "127.0.0.1");
    let port = src_port(id);
    assert_eq!(another("127.0.0.1", port), [Err(EADDRINUSE); 2]);
    assert_eq!(set(id, ID, REUSEADDR, 1 as c_int), 0);
    assert_eq!(another("127.0.0.1", port), [Ok(()), Err(EADDRINUSE)]);
    destroy(id);
}

/// Whether a TCP socket without SO_REUSEADDR can be bound to this address.
fn is_free_for_tcp(host: &str, port: u16) -> bool {
    let local = address(host, port);
    // SAFETY: the address outlives the call, and the descriptor is closed exactly once.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let len = size_of::<libc::sockaddr_in>() as u32;
        let bound = libc::bind(fd, (&raw const local).cast(), len) == 0;
        libc::close(fd);
        bound
    }
}

/// A server is restarted while connections of its predecessor are established or in TIME_WAIT.
#[test]
fn old_connections_of_a_server_do_not_block_its_address() {
    let (client, server) = pair(c"127.0.0.1", 4);
    let port = src_port(server.id);
    for host in ["127.0.0.1", "0.0.0.0"] {
        assert_eq!(another(host, port), [Ok(()); 2], "established");
    }
    // SAFETY: the identifier is not destroyed yet.
    assert_eq!(unsafe { cm::rdma_disconnect(server.id) }, 0);
    server.destroy();
    client.destroy();
    assert!(!is_free_for_tcp("127.0.0.1", port), "no connection is in TIME_WAIT: this proves nothing");
    for host in ["127.0.0.1", "0.0.0.0"] {
        assert_eq!(another(host, port), [Ok(()); 2], "TIME_WAIT");
    }
    let id = new_id();
    assert_eq!(try_bind(id, "127.0.0.1", port), Ok(()));
    assert_eq!(another("127.0.0.1", port), [Err(EADDRINUSE); 2]);
    assert_eq!(listen(id), Ok(()));
    destroy(id);
}

#[test]
fn the_address_of_a_bound_identifier_stays_when_it_is_resolved() {
    let (mut to, mut other) = (address("127.0.0.1", 7204), address("127.0.0.9", 0));
    let (mut of_ipv6, mut to_ipv6) = (address("::1", 0), address("::1", 7204));
    let [to, other, of_ipv6, to_ipv6] =
        [&mut to, &mut other, &mut of_ipv6, &mut to_ipv6].map(|a| (&raw mut *a).cast());
    for from in [other, of_ipv6, null_mut()] {
        let id = new_id();
        bind(id, "127.0.0.2");
        let port = src_port(id);
        // SAFETY: the identifier is not destroyed yet, and the addresses outlive the calls.
        unsafe {
            fails(cm::rdma_resolve_addr(id, from, to_ipv6, 1000), EINVAL);
            assert_eq!(cm::rdma_resolve_addr(id, from, to, 1000), 0);
            let source = (*id).route.addr.__bindgen_anon_1.src_sin;
            assert_eq!(u32::from_be(source.sin_addr.s_addr), 0x7f00_0002);
        }
        assert_eq!(src_port(id), port);
        destroy(id);
    }
    // The address of an unbound identifier.
    let id = new_id();
    // SAFETY: the identifier is not destroyed yet, and the addresses outlive the call.
    assert_eq!(unsafe { cm::rdma_resolve_addr(id, other, to, 1000) }, 0);
    assert_eq!(another("127.0.0.9", src_port(id)), [Err(EADDRINUSE); 2]);
    destroy(id);
    let id = new_id();
    bind(id, "127.0.0.1");
    assert_eq!(listen(id), Ok(()));
    // SAFETY: the identifier is not destroyed yet, and the destination outlives the call.
    fails(unsafe { cm::rdma_resolve_addr(id, null_mut(), to, 1000) }, EINVAL);
    destroy(id);
}
