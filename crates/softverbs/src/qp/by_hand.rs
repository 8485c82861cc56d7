// SPDX-License-Identifier: BSD-3-Clause
//! Queue pairs that the program connects by hand: the transitions of ibv_modify_qp(3).

use std::net::IpAddr;

use super::Qp;
use crate::sys::Errno;
use transport::roce::rc::{ReceiveTerms, SendTerms};

/// Where the packets of a queue pair go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "until the queue pair has a connection of RoCE")]
pub(crate) struct Route {
    pub local: IpAddr,
    pub peer: IpAddr,
    /// The interface of a link-local address; else 0.
    pub scope: u32,
    pub traffic_class: u8,
    pub hop_limit: u8,
}

/// Attributes of a connected queue pair that change; `None`: as before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(dead_code, reason = "until the queue pair has a connection of RoCE")]
pub(crate) struct Change {
    /// `qp_access_flags`.
    pub access: Option<u32>,
    /// `min_rnr_timer`.
    pub rnr_timer: Option<u8>,
}

impl Qp {
    /// INIT to RTR.
    pub(crate) fn ready_to_receive(&self, _route: Route, _terms: ReceiveTerms) -> Result<(), Errno> {
        Err(libc::EOPNOTSUPP)
    }

    /// RTR to RTS.
    pub(crate) fn ready_to_send(&self, _terms: SendTerms) -> Result<(), Errno> {
        Err(libc::EOPNOTSUPP)
    }

    /// RTS to SQD and back: in SQD no request is begun.
    pub(crate) fn drain(&self, _on: bool) -> Result<(), Errno> {
        Err(libc::EOPNOTSUPP)
    }

    /// Changes attributes without a transition of the connection.
    pub(crate) fn change(&self, _change: Change) -> Result<(), Errno> {
        Err(libc::EOPNOTSUPP)
    }

    /// Any state to RESET: everything outstanding is dropped without completions.
    pub(crate) fn reset(&self) -> Result<(), Errno> {
        Err(libc::EOPNOTSUPP)
    }
}
