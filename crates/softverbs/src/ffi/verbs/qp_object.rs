// SPDX-License-Identifier: BSD-3-Clause
//! The object that a queue pair is for the program.

use rdma_sys::{ibv_qp, ibv_qp_cap, ibv_qp_ex};
use std::sync::Arc;

use super::wr_builder::Builder;
use crate::ffi::object::Object;
use crate::qp::Qp;

pub(crate) struct QpOwn {
    pub(crate) qp: Arc<Qp>,
    pub(super) cap: ibv_qp_cap,
    /// What `ibv_wr_start` and the calls behind it build, if the queue pair was created for them.
    pub(super) builder: Option<Builder>,
}

pub(crate) type QpObject = Object<ibv_qp, QpOwn, ibv_qp_ex>;
