// SPDX-License-Identifier: BSD-3-Clause
//! Work requests and completions, as a connection sees them.

use crate::limits::MAX_INLINE;

/// Status of a completion: the values of `enum ibv_wc_status`.
pub(crate) mod status {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const LOC_LEN_ERR: u32 = 1;
    pub(crate) const LOC_QP_OP_ERR: u32 = 2;
    pub(crate) const LOC_PROT_ERR: u32 = 4;
    pub(crate) const WR_FLUSH_ERR: u32 = 5;
    pub(crate) const REM_ACCESS_ERR: u32 = 10;
    pub(crate) const REM_OP_ERR: u32 = 11;
}

/// Opcode of a completion: the values of `enum ibv_wc_opcode`.
pub(crate) mod opcode {
    pub(crate) const SEND: u32 = 0;
    pub(crate) const RDMA_WRITE: u32 = 1;
    pub(crate) const RDMA_READ: u32 = 2;
    pub(crate) const RECV: u32 = 128;
    pub(crate) const RECV_RDMA_WITH_IMM: u32 = 129;
}

/// What a program learns of a work request that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completion {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub byte_len: u32,
    /// Immediate data as it was on the wire, if there was any.
    pub imm: Option<[u8; 4]>,
    pub qp_num: u32,
    /// The sender asked for a solicited event.
    pub solicited: bool,
}

/// What a work request of the send queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Write,
    WriteWithImm,
    Read,
    Send,
    SendWithImm,
}

impl Op {
    pub(super) fn completion_opcode(self) -> u32 {
        match self {
            Op::Send | Op::SendWithImm => opcode::SEND,
            Op::Write | Op::WriteWithImm => opcode::RDMA_WRITE,
            Op::Read => opcode::RDMA_READ,
        }
    }
}

/// Where the payload is, or for a read where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// Registered memory. Its key is checked each time bytes move.
    Memory { addr: u64, lkey: u32 },
    /// Bytes taken at posting time.
    Inline([u8; MAX_INLINE]),
}

/// A work request of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWr {
    pub wr_id: u64,
    pub op: Op,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
    /// Immediate data in the byte order of the wire.
    pub imm: [u8; 4],
    pub local: Local,
    pub len: u32,
    pub remote_addr: u64,
    pub rkey: u32,
}

impl SendWr {
    pub(crate) fn is_read(&self) -> bool {
        self.op == Op::Read
    }
}

/// A work request of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecvWr {
    pub wr_id: u64,
    pub addr: u64,
    pub len: u32,
    pub lkey: u32,
}
