// SPDX-License-Identifier: BSD-3-Clause
//! The work requests that an extended queue pair is building, between `ibv_wr_start` and `ibv_wr_complete`.
//!
//! They hold copies of scatter/gather lists and inline data, because the program may reuse both after each
//! call.

use arrayvec::ArrayVec;
use rdma_sys::{ibv_send_wr, ibv_sge};

use super::extended_op::ExtendedOp;
use super::section::Section;
use crate::sys::Errno;
use transport::limits::{MAX_INLINE, MAX_SGE};

/// A work request with its scatter/gather list or its inline data.
pub(super) struct Built {
    pub(super) wr: ibv_send_wr,
    pub(super) entries: ArrayVec<ibv_sge, MAX_SGE>,
    pub(super) inline: ArrayVec<u8, MAX_INLINE>,
    /// For a request that ibv_post_send(3) does not have.
    pub(super) extended: Option<ExtendedOp>,
}

/// The requests built so far, and the first error of a call, which `ibv_wr_complete` returns.
#[derive(Default)]
pub(crate) struct Requests {
    pub(super) built: Vec<Built>,
    pub(super) error: Option<Errno>,
}

// SAFETY: the raw pointers in a request are addresses of the program, valid on all its threads. They are
// dereferenced only by `ibv_wr_complete`, on the thread that is inside the section.
unsafe impl Send for Requests {}

/// The section between `ibv_wr_start` and `ibv_wr_complete` or `ibv_wr_abort`.
pub(crate) type Builder = Section<Requests>;
