// SPDX-License-Identifier: BSD-3-Clause
//! Connections whose events and completions are not the usual ones.

use std::ptr::null_mut;
use std::sync::Arc;

use rdma_sys::{rdma_cm_id, rdma_port_space};
use softverbs::rdma;

use crate::ready;
use crate::shared::{Shared, State};
use crate::{Conn, Peer, Provider};

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
