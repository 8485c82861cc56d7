// SPDX-License-Identifier: BSD-3-Clause
//! Every bound on what a program or a hostile peer may request of a connection, with the reason for its value.
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
/// ACKs and NAKs that may wait beside the responses of reads, which may be duplicates, too: acknowledgements
/// between two reads are merged.
pub(crate) const SPARE_REPLIES: usize = 4;
