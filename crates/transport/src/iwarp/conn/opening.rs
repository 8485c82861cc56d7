// SPDX-License-Identifier: BSD-3-Clause
//! The first moments of a connection, until the peer has sent an FPDU.
//!
//! In the standard the initiator sends first: the responder may send when it has received an FPDU. Kernels do
//! not keep that strictly, and lose what they do not expect:
//!
//! - A responder in the kernel sends its MPA Reply before it listens for FPDUs. Bytes that arrive in between
//!   stay in its socket until more arrive. So an initiator that has received nothing sends zero-length RDMA
//!   Writes as probes, at growing intervals. Until the first one it sends less than the socket takes at
//!   first; else there would be no room left for a probe.
//! - An initiator in the kernel takes bytes that follow the Reply at once for a malformed Reply. So a
//!   responder whose peer did not announce an FPDU pauses briefly; it cannot wait for one, as the peer's
//!   program may be waiting for ours.
//!
//! A responder answers an announced first FPDU with a zero-length Write, so an initiator of ours need not
//! send probes.

use super::ending::End;
use super::send::SendHalf;
use super::terms::Role;
use crate::host::Host;
use crate::limits::{FIRST_FPDU_TIMEOUT_S, FIRST_PROBE_MS, PROBES, RESPONDER_PAUSE_MS, UNHEARD_BYTES};
use crate::units::Micros;

/// What is still to be done for a peer that has not been heard.
#[derive(Default)]
pub(super) struct Opening {
    role: Role,
    heard: bool,
    round: u32,
    deadline: Option<Micros>,
}

impl Opening {
    /// Begins to send on a new connection.
    pub(super) fn begin(&mut self, role: Role, send: &mut SendHalf, now: Micros) {
        self.role = role;
        send.limit(if role.initiator { UNHEARD_BYTES } else { 0 });
        if role == Role::INITIATOR_ANNOUNCED {
            send.queue_empty_write();
        }
        self.deadline = Some(match role {
            Role::RESPONDER_TOLD => now + FIRST_FPDU_TIMEOUT_S * 1_000_000,
            _ if role.initiator => now + FIRST_PROBE_MS * 1_000,
            _ => now + RESPONDER_PAUSE_MS * 1_000,
        });
    }

    /// The connection is not there before the peer's first FPDU is.
    pub(super) fn awaits_first(&self) -> bool {
        self.role.awaits_first() && !self.heard
    }

    /// When [`Self::time`] has something to do.
    pub(super) fn deadline(&self) -> Option<Micros> {
        self.deadline
    }

    /// Does what is due. The error is that of a peer that did not send what it announced.
    pub(super) fn time(&mut self, send: &mut SendHalf, host: &mut impl Host) -> Result<(), End> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        let now = host.now();
        if now < deadline {
            return Ok(());
        }
        self.deadline = None;
        if self.role.awaits_first() {
            return Err(End::Link(libc::ETIMEDOUT));
        }
        send.limit(usize::MAX);
        if self.role.initiator {
            send.send_probe();
            self.round += 1;
            if self.round < PROBES {
                self.deadline = Some(now + (FIRST_PROBE_MS << self.round) * 1_000);
            }
        }
        Ok(())
    }

    /// The peer has sent an FPDU; only the first one matters. True when the sending half has something new to
    /// do.
    pub(super) fn heard(&mut self, send: &mut SendHalf, host: &mut impl Host) -> bool {
        if std::mem::replace(&mut self.heard, true) {
            return false;
        }
        self.deadline = None;
        send.limit(usize::MAX);
        if self.role.awaits_first() {
            send.queue_empty_write();
            host.established();
        }
        true
    }
}
