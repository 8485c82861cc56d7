// SPDX-License-Identifier: BSD-3-Clause
//! The attributes of a connection that `ibv_modify_qp` sets, as the connection uses them. An unreliable one
//! has those of [`ReceiveTerms`] that name no read and no acknowledgement, and of [`SendTerms`] only the PSN.

use crate::limits::MAX_READS;
use crate::roce::wire::{PathMtu, Psn};
use crate::units::Micros;

/// What a queue pair is given in the transition to RTR.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveTerms {
    /// Payload bytes of a packet.
    pub mtu: PathMtu,
    /// The queue pair number of the peer.
    pub dest_qp: u32,
    /// The P_Key of packets that are sent.
    pub pkey: u16,
    /// The PSN of the first request of the peer.
    pub rq_psn: Psn,
    /// `max_dest_rd_atomic`: reads and atomic operations of the peer that may be outstanding, at most
    /// [`MAX_READS`].
    pub reads: u16,
    /// `min_rnr_timer`: the code of the time for which the peer waits after an RNR NAK.
    pub rnr_timer: u8,
    /// `qp_access_flags`: the remote operations that the queue pair permits.
    pub access: u32,
}

/// What a queue pair is given in the transition to RTS.
#[derive(Clone, Copy, Debug)]
pub struct SendTerms {
    /// The PSN of the first request.
    pub sq_psn: Psn,
    /// `timeout`: the code of the local ACK timeout.
    pub timeout: u8,
    /// `retry_cnt`: how often requests are sent again without progress, 0 to 7.
    pub retries: u8,
    /// `rnr_retry`: how often a request is sent again after an RNR NAK without progress; 7 is unlimited.
    pub rnr_retries: u8,
    /// `max_rd_atomic`: reads and atomic operations that may be outstanding.
    pub reads: u16,
}

/// `rnr_retry` (`rnr_retry_count` of rdma_connect(3)) without a limit.
pub const RNR_UNLIMITED: u8 = 7;
/// The local ACK timeout is never shorter, in microseconds: below, a peer that shares its processor with this
/// side would be late by scheduling alone.
const MIN_TIMEOUT_US: Micros = 1_000;

impl SendTerms {
    /// Microseconds after which requests without progress are sent again: 4.096 us * 2^timeout (IBTA
    /// 9.7.6.1.3); `None` for the code 0.
    pub(super) fn timeout_us(&self) -> Option<Micros> {
        let code = self.timeout & 31;
        (code > 0).then(|| ((4_096u64 << code) / 1_000).max(MIN_TIMEOUT_US))
    }

    /// Reads and atomic operations that may be outstanding: at least one, or the first would wait for ever.
    pub(super) fn reads(&self) -> usize {
        usize::from(self.reads.clamp(1, MAX_READS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        let terms =
            |timeout| SendTerms { sq_psn: Psn::new(0), timeout, retries: 7, rnr_retries: 7, reads: 1 };
        assert_eq!(terms(0).timeout_us(), None);
        assert_eq!(terms(1).timeout_us(), Some(MIN_TIMEOUT_US));
        assert_eq!(terms(14).timeout_us(), Some(67_108));
        assert_eq!(terms(31).timeout_us(), Some(8_796_093_022));
        assert_eq!(terms(0).reads(), 1);
    }
}
