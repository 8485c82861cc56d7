// SPDX-License-Identifier: BSD-3-Clause
//! Connection management of RoCE (IBTA chapter 12, annex A11), as rdma_cm uses it, as values.
//!
//! ```text
//! manager    all exchanges of a process: which one a message belongs to
//! exchange   one communication id: REQ, REP, RTU, and DREQ, DREP at the end
//! resolution one request id for datagrams: SIDR_REQ, SIDR_REP
//! repeat     the repetition of an unanswered message
//! listeners  services, and limits on pending requests
//! terms      what calls pass in, and the attributes of the queue pair
//! event      messages to send, and events to report
//! ```
//!
//! Each message is a datagram to queue pair 1 ([`crate::roce::wire::cm`]). The port spaces TCP and IB have
//! connections; in the port space UDP, a service id is resolved to a queue pair (SIDR). Path migration is not
//! included. Timeouts, retries and answers are those of Linux (`drivers/infiniband/core/cm.c`, `cma.c`), so
//! programs see the same events. Differences: a message is repeated early (`repeat.rs`); a DREQ is answered
//! before the program has called rdma_disconnect(3); a destroyed identifier continues to notify its peer; a
//! lost RTU is reported as ESTABLISHED when the DREQ arrives; no DREQ is sent for a process that is killed,
//! so the driver of a peer on the same host reports its death ([`Manager::peer_died`]).

mod event;
mod exchange;
mod listeners;
mod manager;
mod repeat;
mod resolution;
mod terms;
#[cfg(test)]
mod tests;

pub use event::{ConnParam, Event, Output, Request, Response, SidrReply, SidrRequest};
pub use manager::{LocalPeer, Manager, Received, refusal};
pub use terms::{
    Accept, Bound, CommId, Connect, Limits, ListenerId, REJECT_DATA_LEN, REPLY_DATA_LEN, REQUEST_DATA_LEN,
    Resolve, Route, SIDR_REPLY_DATA_LEN, SIDR_REQUEST_DATA_LEN, Settings, SidrAnswer, Terms, Timing,
};
