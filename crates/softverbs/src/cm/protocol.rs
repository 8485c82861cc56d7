// SPDX-License-Identifier: BSD-3-Clause
//! The types between the rdma_cm calls and the protocol of an identifier: parameters and errors of a call,
//! and the connect requests that the program gets.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::options::Options;
use crate::qp::{ConnObserver, Qp};
use crate::sys::Errno;
use transport::roce::cm::CommId;

/// Why an identifier cannot be bound to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Errno(Errno),
    /// EADDRNOTAVAIL: the port is in use, and one of the two addresses is a wildcard.
    Wildcard,
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Refused {
    /// The errno value. Logs the reason if the text of that errno would mislead, so it must not be called
    /// with a lock held.
    pub(super) fn errno(self, wanted: &SocketAddr) -> Errno {
        match self {
            Self::Errno(errno) => errno,
            Self::Wildcard => {
                log::warn!(
                    "cannot bind to {wanted}: the port is in use, and a wildcard address conflicts with every other address on it"
                );
                libc::EADDRNOTAVAIL
            }
        }
    }
}

/// The parameters of rdma_connect(3) or rdma_accept(3).
pub(crate) struct Params {
    pub private_data: Vec<u8>,
    /// `responder_resources`: inbound reads and atomic operations that may be outstanding.
    pub ird: u16,
    /// `initiator_depth`: outbound reads and atomic operations that may be outstanding.
    pub ord: u16,
    /// `rnr_retry_count`: how often a message without a posted receive at the peer is retried, 0 to 7.
    pub rnr_retry: u8,
    /// `retry_count`: how often a request without an acknowledgement is sent again, 0 to 7. TCP decides it
    /// itself.
    pub retry: u8,
    /// The queue pair of a program that changes its states itself, and whether it has a shared receive queue.
    pub qp_num: u32,
    pub srq: bool,
}

/// What an identifier requests with rdma_connect(3).
pub(super) struct Attempt {
    /// `None`: the program changes the states of the queue pair with the number `params.qp_num` itself.
    pub qp: Option<Arc<Qp>>,
    pub params: Params,
    /// The remote address.
    pub dst: SocketAddr,
    /// The timeout of rdma_resolve_addr(3).
    pub timeout: Duration,
    pub options: Options,
}

/// A connect request that the program has not fetched. Dropping it closes or rejects the connection.
pub(crate) trait Unfetched: Send {
    /// Identifies the request among those of its listener.
    fn key(&self) -> usize;
    /// Hands the connection to the program.
    fn fetch(self: Box<Self>) -> Box<dyn Request>;
}

/// A connect request that the program has fetched. Dropping it closes or rejects the connection.
pub(crate) trait Request: Send {
    /// The exchange that it belongs to, over RoCE.
    fn exchange(&self) -> Option<CommId>;
    /// The local address; `None` if the connection is lost.
    fn local(&self) -> Option<SocketAddr>;
    fn peer(&self) -> SocketAddr;
    /// Whether a message of the peer establishes the connection after rdma_accept(3), and not the call.
    fn is_awaited(&self) -> bool;
    /// Accepts the request with `qp`, whose connection `observer` observes. ECONNRESET: the peer has closed
    /// the connection. EISCONN: `qp` has had a connection. EMFILE, ENOMEM.
    fn accept(
        self: Box<Self>,
        observer: Weak<dyn ConnObserver>,
        qp: Option<&Qp>,
        params: &Params,
    ) -> Result<(), Errno>;
    /// Rejects the request, unless the peer has closed the connection.
    fn reject(&self, private_data: &[u8]);
}
