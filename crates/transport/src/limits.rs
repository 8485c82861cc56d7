// SPDX-License-Identifier: BSD-3-Clause
//! Every bound on what a program or a hostile peer may request of a connection, with the reason for its
//! value.
//!
//! A constant belongs here if someone else could choose the number that it bounds, and memory, time or log
//! would be used up without it. Timers, retry counts, budgets and batch sizes are decisions of the module
//! that uses them, and are there; predictions are in `policy`.

/// Scatter/gather entries of a work request: enough for common programs. librpma never uses more than one.
pub const MAX_SGE: usize = 16;
/// Bytes of a message: RFC 5041 has a 32-bit message offset, verbs limit a message to 2^31 bytes, and so does
/// InfiniBand (IBTA 9.7.1).
pub const MAX_MESSAGE: u32 = 1 << 31;
/// Bytes of inline data: the maximum that perftest requests.
pub const MAX_INLINE: usize = 220;
/// Maximum IRD and ORD, the numbers of outstanding RDMA Reads and atomic operations in each direction: the
/// limit of siw.
pub const MAX_READS: u16 = 128;
/// ACKs and NAKs that may wait beside the responses of reads, which may be duplicates, too, and one that has
/// begun: acknowledgements between two reads are merged.
pub(crate) const SPARE_REPLIES: usize = 4;
/// Packets of a RoCE queue pair that wait for its connection: twice what the window of a peer of this library
/// permits. More are dropped, which the peer finds as a loss.
pub const MAX_WAITING_PACKETS: usize = 2048;
/// Maximum of packets that are deferred while an ATOMIC WRITE waits for a flush to persistence, or an atomic
/// operation for the next step: the largest window of a peer of this library. Their payload is 4 MiB at most.
/// Further packets are dropped, and the peer retransmits them, which uses a retry.
pub(crate) const MAX_DEFERRED_PACKETS: usize = 1024;
/// Connection management of RoCE, times as codes n for 4.096 us * 2^n: the shortest and the longest timeout
/// of the peer that is used, 67 ms, below which a busy machine would be considered lost, and 17 s, four times
/// the default.
pub(crate) const CM_MIN_TIMEOUT: u8 = 14;
pub(crate) const CM_MAX_TIMEOUT: u8 = 22;
/// The service timeout in an MRA, and the longest one that is accepted: 69 s, that of rdma_cm.
pub(crate) const CM_SERVICE_TIMEOUT: u8 = 24;
/// The shortest and the longest time wait: 0.5 s, twice the packet life time of rdma_cm, and 8.6 s. The local
/// ACK timeout, which the peer chooses, determines it.
pub(crate) const CM_MIN_TIME_WAIT: u8 = 17;
pub(crate) const CM_MAX_TIME_WAIT: u8 = 21;
/// Exchanges of attempts and connections that have ended, or that a program has destroyed while a peer does
/// not answer the DREQ. They answer messages that the peer repeats; without them, a lost REJ becomes a second
/// connect request.
pub(crate) const CM_MAX_ENDED: usize = 4096;
