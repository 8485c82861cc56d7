// SPDX-License-Identifier: BSD-3-Clause
//! The object of a queue pair: the `ibv_qp_ex` of the program, and the data of softverbs behind it.

use rdma_sys::{ibv_qp, ibv_qp_cap, ibv_qp_ex};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::roce::Modified;
use super::wr_builder::Builder;
use crate::ffi::object::Object;
use crate::qp::Qp;

/// The data behind the C structure of a queue pair.
pub(crate) struct QpOwn {
    pub(crate) qp: Arc<Qp>,
    pub(super) cap: ibv_qp_cap,
    /// On a RoCE device: the state and the attributes that ibv_modify_qp(3) has set.
    pub(super) modified: Arc<Mutex<Modified>>,
    /// Whether the program has requested IBV_EVENT_SQ_DRAINED.
    pub(super) notifies_drained: Arc<AtomicBool>,
    /// The requests being built by the calls from `ibv_wr_start` on, if the queue pair was created with send
    /// operations.
    pub(super) builder: Option<Builder>,
}

pub(crate) type QpObject = Object<ibv_qp, QpOwn, ibv_qp_ex>;
