// SPDX-License-Identifier: BSD-3-Clause
//! The local end of an identifier: its TCP socket and its address.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::binding::{self, permit_rebind};
use super::connect::{Handshake, Outgoing};
use super::listen::Listener;
use super::prepare;
use crate::cm::addr;
use crate::cm::id::{Connecting, Id, Listening, Protocol};
use crate::cm::options::Options;
use crate::cm::ports::Binding;
use crate::cm::protocol::{Attempt, Refused};
use crate::socket::Socket;
use crate::sys::Errno;
use crate::{config, lock};
use transport::iwarp::cm::negotiate::{self, Offer};
use transport::iwarp::wire::mpa;
use transport::roce::cm::Terms;

#[derive(Default)]
struct State {
    /// The address of rdma_bind_addr(3), kept until the identifier is destroyed.
    binding: Option<Binding>,
    /// The socket bound by rdma_bind_addr(3), until rdma_listen(3) or rdma_connect(3) takes it.
    socket: Option<Socket>,
}

/// The local end of an identifier over TCP.
#[derive(Default)]
pub(in crate::cm) struct Local(Mutex<State>);

impl Protocol for Local {
    /// EMFILE, ENFILE, EAFNOSUPPORT from socket(2), and the errors of [`binding::claim`].
    fn bind(&self, wanted: &SocketAddr, options: Options) -> Result<SocketAddr, Refused> {
        let socket = Socket::new(addr::family(wanted))?;
        options.apply(&socket);
        let binding = binding::claim(&socket, wanted, options.reuse)?;
        let bound = binding.addr();
        *lock(&self.0) = State { binding: Some(binding), socket: Some(socket) };
        Ok(bound)
    }

    fn bound(&self) -> Option<SocketAddr> {
        lock(&self.0).binding.as_ref().map(Binding::addr)
    }

    fn source(&self, dst: &SocketAddr) -> Result<SocketAddr, Errno> {
        self.bound().map_or_else(|| addr::source_for(dst), Ok)
    }

    fn claim(&self) -> Result<(), Refused> {
        lock(&self.0).binding.as_ref().ok_or(libc::EINVAL)?.claim()
    }

    /// Errors of listen(2), EMFILE, ENOMEM.
    fn listen(&self, id: &Arc<Id>, backlog: i32) -> Result<Arc<dyn Listening>, Errno> {
        let socket = lock(&self.0).socket.take().ok_or(libc::EINVAL)?;
        permit_rebind(&socket);
        let listener = Listener::start(id, socket, backlog).inspect_err(|_| lock(&self.0).binding = None)?;
        Ok(listener)
    }

    /// EINVAL: the private data does not fit into an MPA Request. EMFILE, ENFILE, ENOMEM.
    fn connect(
        &self,
        id: &Arc<Id>,
        attempt: Attempt,
        has_source: &mut dyn FnMut(&SocketAddr),
    ) -> Result<Arc<dyn Connecting>, Errno> {
        let bound = lock(&self.0).socket.take();
        // After an error the bound socket is closed, so the address is free again.
        let started = start(id, bound, attempt, has_source).inspect_err(|_| lock(&self.0).binding = None)?;
        Ok(started)
    }

    fn needs_queue_pair(&self) -> bool {
        true
    }

    /// The end of the queue pair closes the connection.
    fn disconnect(&self) {}

    /// The MPA Reply has established the connection.
    fn establish(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// The first FPDU establishes the connection.
    fn received_data(&self) {}

    fn terms(&self) -> Option<Terms> {
        None
    }

    fn release(&self) {
        let State { binding, socket } = std::mem::take(&mut *lock(&self.0));
        // In this order, so that the address is not given to another identifier while this socket has it.
        drop(socket);
        drop(binding);
    }

    fn permit_reuse(&self) {
        let state = lock(&self.0);
        if let Some(binding) = &state.binding {
            binding.permit_reuse();
        }
        if let Some(socket) = &state.socket {
            permit_rebind(socket);
        }
    }

    fn apply_tos(&self, options: Options) {
        if let Some(socket) = &lock(&self.0).socket {
            options.apply_tos(socket);
        }
    }
}

/// Starts an attempt, on the bound socket if there is one.
fn start(
    id: &Arc<Id>,
    bound: Option<Socket>,
    Attempt { qp, params, dst, timeout, options }: Attempt,
    has_source: &mut dyn FnMut(&SocketAddr),
) -> Result<Arc<Outgoing>, Errno> {
    let qp = qp.ok_or(libc::EINVAL)?;
    let offer = Offer { ird: params.ird, ord: params.ord, crc: config::get().crc };
    let mut request = Vec::new();
    mpa::encode(&negotiate::request(offer), &params.private_data, &mut request).map_err(|_| libc::EINVAL)?;
    let is_bound = bound.is_some();
    let socket = bound.map_or_else(|| Socket::new(addr::family(&dst)), Ok)?;
    if is_bound {
        permit_rebind(&socket);
    } else {
        options.apply(&socket);
    }
    let handshake = Handshake { qp, request, offer, rnr_retry: params.rnr_retry, dst, timeout };
    prepare(&socket);
    let connected = addr::connect(&socket, &dst);
    if !is_bound && matches!(connected, Ok(()) | Err(libc::EINPROGRESS)) {
        has_source(&addr::local(&socket)?);
    }
    Outgoing::start(id, socket, connected, handshake)
}
