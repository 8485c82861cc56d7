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
/// Memory windows: half of the slots of the levels of the table up to 2^21, since their STags have 24 bits
/// that are drawn.
pub(crate) const MAX_MW: u32 = (1 << 11) + (1 << 14) + (1 << 17) + (1 << 20);
/// Bytes of a message: RFC 5041 has a 32-bit message offset, verbs limit a message to 2^31 bytes.
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;
/// Bytes of private data that a program may send: rdma_cm has an 8-bit length, of which siw leaves 251 bytes
/// beside the enhanced block of RFC 6581.
pub(crate) const MAX_PRIVATE_DATA: usize = 251;
/// Bytes of private data that the connection manager of InfiniBand and RoCE leaves to a program: in a REQ
/// message, which has 92 and of them 36 for the addresses of rdma_cm, in a REP, and in a REJ (InfiniBand
/// Architecture Specification, volume 1, 12.6).
pub(crate) const ADAPTER_REQUEST_DATA: usize = 56;
pub(crate) const ADAPTER_ACCEPT_DATA: usize = 196;
pub(crate) const ADAPTER_REJECT_DATA: usize = 148;
/// The timer that an adapter's RNR NAK carries if nobody has set another one (`min_rnr_timer` 0 of
/// ibv_modify_qp(3), as rdma_cm has it).
pub(crate) const RNR_TIMER_US: u64 = 655_360;
/// A message is repeated for ever (`rnr_retry_count` of rdma_connect(3)).
pub(crate) const RNR_UNLIMITED: u8 = 7;
/// Bytes of a request of which strict mode notices that they change while it is in flight, and how many are
/// read at a time.
pub(crate) const FLIGHT_BYTES: usize = 1 << 20;
pub(crate) const FLIGHT_STEP: usize = 4096;
/// Bytes of private data in an event: rdma_cm has an 8-bit length.
pub(crate) const MAX_PRIVATE_DATA_IN: usize = 255;
/// Connections that the kernel completes for a listener before they are accepted, unless the program sets
/// another number.
pub(crate) const BACKLOG: i32 = 1024;
/// Connections accepted before another one of which the request is looked for again, before that of the other
/// one is told: a few system calls a connection.
pub(crate) const YOUNGEST: usize = 64;
/// Offers of shared memory for connections the MPA Request of which has not arrived, at a listener. It
/// follows the offer at once.
pub(crate) const MAX_OFFERS: usize = 256;
/// Files of listeners in the directory of a user, above which those of killed processes are looked for.
pub(crate) const RENDEZVOUS_FILES: usize = 256;
/// Messages about incoming connections that a listener logs in an interval of [`LIMITED_LOG_INTERVAL_S`]; the
/// others are counted.
pub(crate) const LIMITED_LOG_LINES: u32 = 5;
/// Seconds for which they are counted: a port that is attacked for a day takes less than a megabyte of the
/// log.
pub(crate) const LIMITED_LOG_INTERVAL_S: u64 = 60;
/// Seconds after the TCP connection within which the complete MPA Request must arrive (siw: 5).
pub(crate) const REQUEST_TIMEOUT_S: u64 = 5;
/// How often, while a silent host is not yet taken for lost, the engine asks what the kernel has heard of it.
pub(crate) const LOOKS: u32 = 16;
/// How often a TCP connection that is refused is tried again, and milliseconds until the first time; each
/// wait is twice the one before.
pub(crate) const REFUSALS: u32 = 5;
pub(crate) const REFUSED_MS: u64 = 2;
/// Milliseconds for which a closing connection waits for the peer's FIN.
pub(crate) const LINGER_MS: u64 = 2_000;
/// What the engine does on a connection, in each direction, before it serves the next one: this many bytes,
/// or segments and requests. An aligned 8-byte write takes the kernel 0.6 us, so this is 150 us of a peer
/// that floods the connection with them.
pub(crate) const ENGINE_BYTES: usize = 1 << 20;
pub(crate) const ENGINE_OPERATIONS: usize = 256;
/// What a call of the program does on a connection, in each direction, before it leaves the rest to the
/// engine: about 100 us of bytes, or a millisecond of small operations, as waking the engine for them would
/// cost the program more.
pub(crate) const PROGRAM_BYTES: usize = 512 << 10;
pub(crate) const PROGRAM_OPERATIONS: usize = 1024;
/// Steps that a call of the program performs for reasons that other threads have left, before it leaves them
/// to the engine.
pub(crate) const PROGRAM_ROUNDS: u32 = 8;
/// After so long a thread that waits for a completion is looked at in strict mode: other threads may post
/// meanwhile.
pub(crate) const STUCK_WAIT_MS: u64 = 1000;
/// Ended connections of a completion queue whose reasons are kept. Only those of a shared receive queue are
/// more than one.
pub(crate) const ENDINGS: usize = 16;
/// How long ibv_dereg_mr(3) waits for a peer process that was stopped while it copied to or from the region:
/// a copy of the longest size takes well under a millisecond, so this is for a peer that waits for a
/// processor. After it the call fails with EBUSY.
pub(crate) const REVOKE_WAIT: Duration = Duration::from_secs(5);
