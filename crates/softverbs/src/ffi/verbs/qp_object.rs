// SPDX-License-Identifier: BSD-3-Clause
//! The object of a queue pair: the `ibv_qp_ex` of the program, and the data of softverbs behind it.

use rdma_sys::{ibv_qp, ibv_qp_cap, ibv_qp_ex};
use std::mem::offset_of;
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

/// `struct ibv_qp_ex` of newer headers, whose last member the installed one may lack.
#[repr(C)]
pub(crate) struct QpEx {
    pub(super) qp: ibv_qp_ex,
    more: [usize; 2],
}

/// `wr_flush` of `struct ibv_qp_ex`, which is behind `wr_atomic_write`.
pub(super) type Flush = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8);
const WR_FLUSH_AT: usize = offset_of!(ibv_qp_ex, wr_atomic_write) + size_of::<usize>();
const _: () = assert!(WR_FLUSH_AT + size_of::<usize>() <= size_of::<QpEx>());

impl QpEx {
    pub(super) fn new() -> Self {
        // SAFETY: all-zero is a valid QpEx: it holds only integers and nullable pointers.
        unsafe { std::mem::zeroed() }
    }

    /// Stores `wr_flush`.
    pub(super) fn set_flush(&mut self, flush: Flush) {
        // SAFETY: the member is within this structure (checked above), in the installed `ibv_qp_ex` or behind
        // it, where it has this type in both cases; the structure is borrowed exclusively.
        unsafe { (&raw mut *self).byte_add(WR_FLUSH_AT).cast::<Option<Flush>>().write(Some(flush)) };
    }
}

pub(crate) type QpObject = Object<ibv_qp, QpOwn, QpEx>;
