// SPDX-License-Identifier: BSD-3-Clause
//! Every limit on what a program or a peer may request, with the reason for its value.
#![forbid(unsafe_code)]

use std::time::Duration;

/// Entries of a completion queue: the maximum that siw reports. At 48 bytes each they take less than 64 MiB.
pub(crate) const MAX_CQE: u32 = 1 << 20;
/// Work requests of a send or receive queue: enough for any librpma program, and a queue pair stays below 16
/// MiB.
pub(crate) const MAX_QP_WR: u32 = 1 << 16;
/// Work requests of a shared receive queue.
pub(crate) const MAX_SRQ_WR: u32 = 1 << 20;
/// Memory regions: the maximum that siw reports has 24 bits, too. With so many, one guess of an STag in 256
/// would be right.
pub(crate) const MAX_MR: u32 = (1 << 24) - 1;
/// Memory windows: half of the slots of the levels of the table up to 2^21, since 24 bits of their STags are
/// drawn.
pub(crate) const MAX_MW: u32 = (1 << 11) + (1 << 14) + (1 << 17) + (1 << 20);
/// Bytes of a message: RFC 5041 has a 32-bit message offset, verbs limit a message to 2^31 bytes.
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;
/// Bytes of private data that a program may send: rdma_cm has an 8-bit length, of which siw leaves 251 bytes
/// beside the enhanced block of RFC 6581.
pub(crate) const MAX_PRIVATE_DATA: usize = 251;
/// Bytes of private data that the connection manager of InfiniBand and RoCE leaves to a program: in a REQ
/// message (92, less 36 for the addresses of rdma_cm), in a REP, and in a REJ (InfiniBand Architecture
/// Specification, volume 1, 12.6).
pub(crate) const ADAPTER_REQUEST_DATA: usize = 56;
pub(crate) const ADAPTER_ACCEPT_DATA: usize = 196;
pub(crate) const ADAPTER_REJECT_DATA: usize = 148;
/// The default timer of an adapter's RNR NAK (`min_rnr_timer` 0 of ibv_modify_qp(3), which rdma_cm sets).
pub(crate) const RNR_TIMER_US: u64 = 655_360;
/// The RNR retry count that means unlimited retries (`rnr_retry_count` of rdma_connect(3)).
pub(crate) const RNR_UNLIMITED: u8 = 7;
/// Bytes of a request in flight that strict mode checks for changes, and bytes that it reads at a time.
pub(crate) const FLIGHT_BYTES: usize = 1 << 20;
pub(crate) const FLIGHT_STEP: usize = 4096;
/// Bytes of private data in an event: rdma_cm has an 8-bit length.
pub(crate) const MAX_PRIVATE_DATA_IN: usize = 255;
/// The backlog of a listener, unless the program sets another one.
pub(crate) const BACKLOG: i32 = 1024;
/// The number of older accepted connections whose requests are checked once more before a newer request is
/// reported, to keep the order: a few system calls a connection.
pub(crate) const YOUNGEST: usize = 64;
/// Offers of shared memory at a listener for connections whose MPA Request has not arrived yet. It follows
/// the offer at once.
pub(crate) const MAX_OFFERS: usize = 256;
/// The number of files in the directory of a user's listeners above which those of killed processes are
/// removed.
pub(crate) const RENDEZVOUS_FILES: usize = 256;
/// Messages about incoming connections that a listener logs in each interval of [`LIMITED_LOG_INTERVAL_S`];
/// further ones are only counted.
pub(crate) const LIMITED_LOG_LINES: u32 = 5;
/// Seconds of that interval: a port that is attacked for a day causes less than a megabyte of log.
pub(crate) const LIMITED_LOG_INTERVAL_S: u64 = 60;
/// Seconds after the TCP connection within which the complete MPA Request must arrive (siw: 5).
pub(crate) const REQUEST_TIMEOUT_S: u64 = 5;
/// The number of liveness checks before a silent host is considered lost.
pub(crate) const LOOKS: u32 = 16;
/// The number of retries of a refused TCP connection, and the milliseconds before the first one; each wait is
/// twice the previous one.
pub(crate) const REFUSALS: u32 = 5;
pub(crate) const REFUSED_MS: u64 = 2;
/// Milliseconds for which a closing connection waits for the peer's FIN.
pub(crate) const LINGER_MS: u64 = 2_000;
/// The budget of the engine for a connection, in each direction, before it serves the next one: bytes, and
/// segments and requests. The kernel takes 0.6 us for an aligned 8-byte write, so a peer that floods the
/// connection with them gets 150 us.
pub(crate) const ENGINE_BYTES: usize = 1 << 20;
pub(crate) const ENGINE_OPERATIONS: usize = 256;
/// The budget of a call of the program for a connection, in each direction, before it leaves the rest to the
/// engine: about 100 us of bytes, or a millisecond of small operations, for which waking the engine would
/// cost the program more.
pub(crate) const PROGRAM_BYTES: usize = 512 << 10;
pub(crate) const PROGRAM_OPERATIONS: usize = 1024;
/// Steps that a call of the program performs for reasons that other threads have left, before it leaves them
/// to the engine.
pub(crate) const PROGRAM_ROUNDS: u32 = 8;
/// Milliseconds after which strict mode checks a thread that waits for a completion: other threads may post
/// before that.
pub(crate) const STUCK_WAIT_MS: u64 = 1000;
/// Ended connections of a completion queue whose reasons are kept. There is more than one only with a shared
/// receive queue.
pub(crate) const ENDINGS: usize = 16;
/// How long ibv_dereg_mr(3) waits for a peer process that is copying to or from the region. The longest copy
/// takes well under a millisecond, so this covers a peer that waits for a processor. If the peer is stopped,
/// the call then fails with EBUSY.
pub(crate) const REVOKE_WAIT: Duration = Duration::from_secs(5);
