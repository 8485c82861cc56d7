// SPDX-License-Identifier: BSD-3-Clause
//! RoCE v2: RDMA over UDP.
//!
//! ```text
//! wire      packet formats and the ICRC
//! link      the packets of a queue pair: what a connection calls besides Host
//! rc        a reliable connection: requester and responder
//! uc        an unreliable connection
//! ud        datagrams
//! cm        connection management
//! ```

mod cause;
pub mod cm;
mod inbound;
pub mod link;
mod packet;
mod payload;
pub mod rc;
mod request;
mod state;
pub mod uc;
pub mod ud;
mod unreliable;
pub mod wire;
