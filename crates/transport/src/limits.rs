// SPDX-License-Identifier: BSD-3-Clause
//! Every limit on what a program or a peer may request of a connection, with the reason for its value.

/// Scatter/gather entries of a work request: enough for common programs. librpma never uses more than one.
pub const MAX_SGE: usize = 16;
/// Ranges of the peer's memory that one system call accesses, on behalf of one or more requests.
pub const MAX_TOGETHER: usize = 64;
/// Bytes of inline data: the maximum that perftest requests.
pub const MAX_INLINE: usize = 220;
/// Bytes of inline data that are stored in the work request itself; librpma needs 8.
pub const SHORT_INLINE: usize = 32;
/// Maximum IRD and ORD, the numbers of outstanding RDMA Reads and atomic operations in each direction: the
/// limit of siw.
pub const MAX_READS: u16 = 128;
/// Seconds after the MPA Reply within which the initiator must send its first FPDU.
pub const FIRST_FPDU_TIMEOUT_S: u64 = 10;
/// Milliseconds after which an initiator that has received nothing sends an empty RDMA Write as a probe. The
/// interval then doubles, for [`PROBES`] messages in total. A responder in the kernel is ready for FPDUs by
/// the first or second probe, later on a busy machine.
pub const FIRST_PROBE_MS: u64 = 10;
/// The last probe is sent after 10 s.
pub const PROBES: u32 = 10;
/// Bytes that an initiator may send before it has received something or sent a probe: half of what the peer's
/// socket of a new TCP connection buffers unread.
pub const UNHEARD_BYTES: usize = 32 * 1024;
/// Milliseconds for which a responder delays its first message if the initiator has not announced a first
/// FPDU (RFC 6581) and none has arrived.
pub const RESPONDER_PAUSE_MS: u64 = 100;
/// Placements in one system call. The kernel accepts 1024, but each needs entries in two arrays on the stack.
pub const PLACE_BATCH: usize = 128;
/// Milliseconds that a message waits for a receive after the peer has closed the connection.
pub const STALLED_END_MS: u64 = 1_000;
