// SPDX-License-Identifier: BSD-3-Clause
//! Connections whose events and completions are not the usual ones.

use std::ptr::null_mut;
use std::sync::Arc;

use rdma_sys::{ibv_context, ibv_cq, rdma_cm_id, rdma_port_space};
use softverbs::rdma;

use super::*;
use crate::ready;
use crate::shared::{Shared, State};
use crate::{Closed, Conn, Peer, Provider};

/// A connection, and the end that connected to it.
struct Ends {
    shared: Arc<Shared>,
    conn: Conn,
    client: Conn,
    peer: Peer,
}

fn ends() -> Ends {
    let peer = Peer::open("127.0.0.1:0", Provider::Soft).unwrap();
    let listener = peer.listen("127.0.0.1:0").unwrap();
    let (at, from) = (listener.local_addr().unwrap(), peer.clone());
    let client = std::thread::spawn(move || from.connect(at).wait().unwrap());
    let (shared, _) = listener.wait_accept().unwrap().begin_with(&[], &[], None).unwrap();
    let conn = Conn::wait_established(shared.clone()).unwrap();
    Ends { shared, conn, client: client.join().unwrap(), peer }
}

/// Another identifier on the channel of a connection resolves an address.
#[test]
fn an_event_that_librpma_does_not_define() {
    let Ends { shared, conn, client, peer } = ends();
    let mut other: *mut rdma_cm_id = null_mut();
    // SAFETY: the context of a queue pair is its identifier, and both live as long as the connection, as does
    // the channel. The address of the identifier is its own.
    unsafe {
        let id: *mut rdma_cm_id = (*shared.link.conn.queue_pair()).qp_context.cast();
        let space = rdma_port_space::RDMA_PS_TCP;
        assert_eq!(rdma::rdma_create_id((*id).channel, &mut other, null_mut(), space), 0);
        let own = (&raw mut (*id).route.addr).cast();
        assert_eq!(rdma::rdma_resolve_addr(other, null_mut(), own, 1000), 0);
    }
    let [_, events] = shared.link.fds();
    ready::wait_for([events].into_iter()).unwrap();
    conn.process();
    assert_eq!(shared.now(State::how), None);
    let receive = conn.recv(peer.buf(8).unwrap());
    client.send(peer.buf(5).unwrap()).wait().unwrap();
    assert_eq!(receive.wait().unwrap().len, 5);
    // SAFETY: it was created here, and its event is acknowledged.
    assert_eq!(unsafe { rdma::rdma_destroy_id(other) }, 0);
}

unsafe extern "C" fn no_poll(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
    -1
}

/// The context of the completion queue of a connection.
fn context(shared: &Shared) -> *mut *mut ibv_context {
    // SAFETY: the queue lives as long as the connection; only the address of a field is computed.
    unsafe { &raw mut (*shared.link.conn.cq().as_ptr()).context }
}

/// Operations end, and the device keeps access to their buffers as long as the queue pair exists.
#[test]
fn completions_that_cannot_be_polled() {
    let Ends { shared, conn, client, peer } = ends();
    let pool = peer.pool(8, 1).unwrap();
    let receive = conn.recv(pool.try_take().unwrap());
    // SAFETY: no other thread uses the completion queue. The copy of its context has the same functions but
    // one, and lives until the original is back.
    let original = unsafe {
        let original = context(&shared).read();
        let mut copy = Box::new(original.read());
        copy.ops.poll_cq = Some(no_poll);
        context(&shared).write(Box::into_raw(copy));
        original
    };
    conn.process();
    let failed = receive.try_take().expect("it still waits").unwrap_err();
    assert_eq!((failed.error.kind(), failed.buf.len()), (ErrorKind::Lost, 0), "{failed:?}");
    assert_eq!(conn.wait_closed().unwrap(), Closed::Lost);
    let later = conn.send(peer.buf(8).unwrap()).wait().unwrap_err();
    assert_eq!((later.error.kind(), later.buf.len()), (ErrorKind::Lost, 8));
    assert_eq!(client.wait_closed().unwrap(), Closed::Closed);
    // SAFETY: as above; the copy came from a box.
    drop(unsafe { Box::from_raw(context(&shared).replace(original)) });
    drop(failed);
    assert!(pool.try_take().is_none(), "its buffer is free");
    drop((shared, conn));
    assert!(pool.try_take().is_some());
}
