// SPDX-License-Identifier: BSD-3-Clause
//! The work requests of an extended queue pair that are being built.

use arrayvec::ArrayVec;
use rdma_sys::{ibv_send_wr, ibv_sge};

use super::section::Section;
use crate::sys::Errno;
use transport::limits::{MAX_INLINE, MAX_SGE};

/// A work request with its data.
pub(super) struct Built {
    pub(super) wr: ibv_send_wr,
    pub(super) entries: ArrayVec<ibv_sge, MAX_SGE>,
    pub(super) inline: ArrayVec<u8, MAX_INLINE>,
}

#[derive(Default)]
pub(crate) struct Requests {
    pub(super) built: Vec<Built>,
    pub(super) error: Option<Errno>,
}

// SAFETY: the addresses in it are memory of the program that the request is about, which any thread may post;
// they are not dereferenced before `ibv_wr_complete`.
unsafe impl Send for Requests {}

/// What is built between `ibv_wr_start` and `ibv_wr_complete`.
pub(crate) type Builder = Section<Requests>;
