// SPDX-License-Identifier: BSD-3-Clause
//! The flags of a send request (`enum ibv_send_flags`) as integers, which is how `ibv_send_wr` stores them.

use libc::c_uint;
use rdma_sys::ibv_send_flags;

pub(super) const SEND_FENCE: c_uint = ibv_send_flags::IBV_SEND_FENCE.0;
pub(super) const SEND_SIGNALED: c_uint = ibv_send_flags::IBV_SEND_SIGNALED.0;
pub(super) const SEND_SOLICITED: c_uint = ibv_send_flags::IBV_SEND_SOLICITED.0;
pub(super) const SEND_INLINE: c_uint = ibv_send_flags::IBV_SEND_INLINE.0;
