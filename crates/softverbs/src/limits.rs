// SPDX-License-Identifier: BSD-3-Clause
//! Every bound on what a program or a hostile peer may request, with the reason for its value.
//!
//! A constant belongs here if someone else could choose the number that it bounds, and memory, time or log
//! would be used up without it. Timers, retry counts, budgets and batch sizes are decisions of the module
//! that uses them, and are there; predictions are in `policy`.
#![forbid(unsafe_code)]

use std::time::Duration;

/// Entries of a completion queue: the maximum that siw reports. At 56 bytes each, with their times, they take
/// less than 64 MiB.
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
/// Bytes of private data that a program may send: rdma_cm has an 8-bit length, of which siw leaves 251 bytes
/// beside the enhanced block of RFC 6581.
pub(crate) const MAX_PRIVATE_DATA: usize = 251;
/// Bytes of private data in an event: rdma_cm has an 8-bit length.
pub(crate) const MAX_PRIVATE_DATA_IN: usize = 255;
/// The backlog of a listener, unless the program sets another one.
pub(crate) const BACKLOG: i32 = 1024;
/// Connect requests over RoCE that the program has not fetched, of a process and of one remote host. Each
/// takes about a kilobyte, and no descriptor. One host cannot fill a listener with the default backlog.
pub(crate) const MAX_REQUESTS: usize = 4096;
pub(crate) const MAX_REQUESTS_OF_HOST: usize = 512;
const _: () = assert!(MAX_REQUESTS_OF_HOST < BACKLOG as usize && (BACKLOG as usize) < MAX_REQUESTS);
/// Messages and events of connection management over RoCE that wait to be sent and reported, each up to half
/// a kilobyte. While there are as many, received messages are dropped, which their senders repeat.
pub(crate) const MAX_WAITING_OUTPUTS: usize = 4096;
/// Multicast groups to which queue pairs of a process are attached, and queue pairs of one group: the limits
/// of rxe. A packet of a group is copied for each of them.
pub(crate) const MAX_GROUPS: usize = 8192;
pub(crate) const MAX_GROUP_QPS: usize = 56;
/// Offers of shared memory at a listener for connections whose MPA Request has not arrived yet. It follows
/// the offer at once.
pub(crate) const MAX_OFFERS: usize = 256;
/// The number of files in the directory of a user's listeners above which those of killed processes are
/// removed.
pub(crate) const RENDEZVOUS_FILES: usize = 256;
/// How long exit(3) waits for peers and other processes, which may be slow on a busy host, or stopped.
pub(crate) const MAX_EXIT_DELAY: Duration = Duration::from_secs(1);
/// How long a process that exits goes on to receive at most: other hosts may send without end.
pub(crate) const MAX_EXIT_RECEIVE: Duration = Duration::from_millis(100);
/// Mappings of memory of peers on this host that a process may have: their number is limited
/// (vm.max_map_count), and the program needs some.
pub(crate) const MAX_IMPORTS: u32 = 4096;
/// Messages about incoming connections that a listener logs in each interval of [`LIMITED_LOG_INTERVAL_S`];
/// further ones are only counted.
pub(crate) const LIMITED_LOG_LINES: u32 = 5;
/// Seconds of that interval: a port that is attacked for a day causes less than a megabyte of log.
pub(crate) const LIMITED_LOG_INTERVAL_S: u64 = 60;
/// Seconds after the TCP connection within which the complete MPA Request must arrive (siw: 5).
pub(crate) const REQUEST_TIMEOUT_S: u64 = 5;
/// Bytes of datagrams that may wait at the loopback port of a slot, where any process of the host can send
/// them; the kernel doubles it for its own needs.
pub(crate) const SLOT_BUFFER_LEN: i32 = 1 << 20;
/// Reads of /proc/net/udp within 20 ms for slots that were not in it (`port/owners.rs`): another user whose
/// processes claim many slots could cause one read for each.
pub(crate) const OWNER_READS: u32 = 16;
/// Connect requests over RoCE for services without a listener that a process defers (`port/management.rs`),
/// each with its message of 280 bytes. Further ones are dropped, and the peer repeats them.
pub(crate) const MAX_DEFERRED: usize = 64;
/// Datagrams by which a process copies messages of connection management to all others within 20 ms
/// (`port/management.rs`), one for each process: a flood costs a tenth of a processor, however many processes
/// there are. Further messages are not copied, and their senders repeat them.
pub(crate) const CM_COPIES: u32 = 512;
/// There are at most 254 processes.
const _: () = assert!(CM_COPIES > 254);
/// Ended connections of a completion queue whose reasons are kept. There is more than one only with a shared
/// receive queue.
pub(crate) const ENDINGS: usize = 16;
/// How long ibv_dereg_mr(3) waits for a peer process that is copying to or from the region. The longest copy
/// takes well under a millisecond, so this covers a peer that waits for a processor. If the peer is stopped,
/// the call then fails with EBUSY.
pub(crate) const REVOKE_WAIT: Duration = Duration::from_secs(5);
