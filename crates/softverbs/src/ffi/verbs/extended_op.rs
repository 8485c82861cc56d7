// SPDX-License-Identifier: BSD-3-Clause
//! Work requests that ibv_post_send(3) does not have, flushes and atomic writes (IBTA, annex A19):
//! only the functions of extended queue pairs make them.

use rdma_sys::ibv_send_wr;

use crate::ffi::send_flags::{SEND_FENCE, SEND_SIGNALED};
use crate::sys::Errno;
use transport::roce::wire::Feth;
use transport::wr::{Local, Op, SendWr, WORD};

/// Values of `enum ibv_selectivity_level` of rdma-core 45. The flags of its `enum ibv_placement_type` are
/// those of the packet.
const RANGE: u8 = 0;
const MR: u8 = 1;

/// The fields of such a request that an RDMA Write does not have.
#[derive(Clone, Copy)]
pub(super) enum ExtendedOp {
    AtomicWrite([u8; WORD]),
    Flush { len: u32, rights: u32, whole: bool },
}

impl ExtendedOp {
    /// A flush, from the arguments of `ibv_wr_flush`. EINVAL: an unknown placement type or selectivity level,
    /// or more than 2^32 - 1 bytes.
    pub(super) fn flush(len: usize, placement: u8, selectivity: u8) -> Result<Self, Errno> {
        if placement == 0
            || placement & !(Feth::GLOBAL_VISIBILITY | Feth::PERSISTENCE) != 0
            || selectivity > MR
        {
            return Err(libc::EINVAL);
        }
        let rights = Feth::rights_of(placement);
        let whole = selectivity != RANGE;
        let len = if whole { 0 } else { u32::try_from(len).map_err(|_| libc::EINVAL)? };
        Ok(Self::Flush { len, rights, whole })
    }

    /// The request, with `wr_id`, flags and remote memory of `wr`. ENOMEM.
    pub(super) fn request(self, wr: &ibv_send_wr, signal_all: bool) -> Result<SendWr, Errno> {
        // SAFETY: the functions that make these requests set the member `rdma` of the union.
        let rdma = unsafe { wr.wr.rdma };
        let (op, local, len) = match self {
            Self::AtomicWrite(word) => (Op::AtomicWrite, Local::inline(&word)?, WORD as u32),
            Self::Flush { len, rights, whole } => (Op::Flush, Local::Flush { len, rights, whole }, 0),
        };
        Ok(SendWr {
            wr_id: wr.wr_id,
            op,
            signaled: signal_all || wr.send_flags & SEND_SIGNALED != 0,
            fence: wr.send_flags & SEND_FENCE != 0,
            solicited: false,
            imm: [0; 4],
            local,
            len,
            remote_addr: rdma.remote_addr,
            rkey: rdma.rkey,
            to: None,
        })
    }
}
