// SPDX-License-Identifier: BSD-3-Clause
//! Work requests of the memory placement extensions (IBTA, annex A19), which ibv_post_send(3) does not have:
//! only the functions of extended queue pairs make them.

use rdma_sys::ibv_send_wr;

use crate::ffi::send_flags::{SEND_FENCE, SEND_SIGNALED};
use crate::sys::Errno;
use transport::wr::{Local, Op, SendWr};

/// Bytes that an atomic write stores.
pub(super) const WORD: usize = 8;

/// What such a request has besides the fields of an RDMA Write.
#[derive(Clone, Copy)]
pub(super) enum Placement {
    AtomicWrite([u8; WORD]),
}

impl Placement {
    /// The request, with `wr_id`, flags and remote memory of `wr`. ENOMEM.
    pub(super) fn request(self, wr: &ibv_send_wr, signal_all: bool) -> Result<SendWr, Errno> {
        // SAFETY: the functions that make these requests set the member `rdma` of the union.
        let rdma = unsafe { wr.wr.rdma };
        let Self::AtomicWrite(word) = self;
        Ok(SendWr {
            wr_id: wr.wr_id,
            op: Op::AtomicWrite,
            signaled: signal_all || wr.send_flags & SEND_SIGNALED != 0,
            fence: wr.send_flags & SEND_FENCE != 0,
            solicited: false,
            imm: [0; 4],
            local: Local::inline(&word)?,
            len: WORD as u32,
            remote_addr: rdma.remote_addr,
            rkey: rdma.rkey,
        })
    }
}
