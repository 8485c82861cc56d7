// SPDX-License-Identifier: BSD-3-Clause
//! The opening phase of a connection, which lasts until the peer has sent an FPDU.
//!
//! According to RFC 5044 the initiator sends first, and the responder may send once it has received an FPDU.
//! Kernel implementations do not follow this strictly, and lose FPDUs that they do not expect:
//!
//! - A responder in the kernel sends its MPA Reply before it listens for FPDUs. Bytes that arrive in between
//!   stay in its socket until more arrive. So an initiator that has received nothing sends zero-length RDMA
//!   Writes as probes, at growing intervals. Before the first probe it sends less than the peer's socket
//!   initially buffers, to leave room for the probe.
//! - An initiator in the kernel treats bytes directly after the Reply as a malformed Reply. So a responder
//!   whose peer did not announce an FPDU pauses briefly. It cannot wait for an FPDU, as the peer's program
//!   may be waiting for a message of ours.
//!
//! Our responder answers an announced first FPDU with a zero-length Write, so our initiator need not send
//! probes to it.

use super::ending::End;
use super::send::SendHalf;
use super::terms::Role;
use crate::iwarp::link::StreamLink;
use crate::units::Micros;

/// Seconds after the MPA Reply within which the initiator must send its first FPDU.
pub(crate) const FIRST_FPDU_TIMEOUT_S: u64 = 10;
/// Milliseconds after which an initiator that has received nothing sends an empty RDMA Write as a probe. The
/// interval then doubles, for [`PROBES`] messages in total. A responder in the kernel is ready for FPDUs by
/// the first or second probe, later on a busy machine.
const FIRST_PROBE_MS: u64 = 10;
/// The last probe is sent after 10 s.
const PROBES: u32 = 10;
/// Bytes that an initiator may send before it has received something or sent a probe: half of what the peer's
/// socket of a new TCP connection buffers unread.
pub(super) const BYTES_BEFORE_PROBE: usize = 32 * 1024;
/// Milliseconds for which a responder delays its first message if the initiator has not announced a first
/// FPDU (RFC 6581) and none has arrived.
pub(crate) const RESPONDER_PAUSE_MS: u64 = 100;

/// The state of the opening phase.
#[derive(Default)]
pub(super) struct Opening {
    role: Role,
    has_received: bool,
    round: u32,
    deadline: Option<Micros>,
}

impl Opening {
    /// Starts the opening phase of a new connection.
    pub(super) fn begin(&mut self, role: Role, send: &mut SendHalf, now: Micros) {
        self.role = role;
        send.limit(if role.initiator { BYTES_BEFORE_PROBE } else { 0 });
        if role == Role::INITIATOR_ANNOUNCED {
            send.queue_empty_write();
        }
        self.deadline = Some(match role {
            Role::RESPONDER_ANNOUNCED => now + FIRST_FPDU_TIMEOUT_S * 1_000_000,
            _ if role.initiator => now + FIRST_PROBE_MS * 1_000,
            _ => now + RESPONDER_PAUSE_MS * 1_000,
        });
    }

    /// Whether the connection is not established yet because the peer's first FPDU has not arrived.
    pub(super) fn awaits_first(&self) -> bool {
        self.role.awaits_first() && !self.has_received
    }

    /// When to call [`Self::time`].
    pub(super) fn deadline(&self) -> Option<Micros> {
        self.deadline
    }

    /// Handles an expired deadline. Fails if the peer did not send the FPDU that it announced.
    pub(super) fn time(&mut self, send: &mut SendHalf, host: &mut impl StreamLink) -> Result<(), End> {
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

    /// The peer has sent an FPDU; only the first call has an effect. Returns whether the sending half may now
    /// send more.
    pub(super) fn received(&mut self, send: &mut SendHalf, host: &mut impl StreamLink) -> bool {
        if std::mem::replace(&mut self.has_received, true) {
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
