// SPDX-License-Identifier: BSD-3-Clause
//! Every limit on what a program or a peer may request of a connection, with the reason for its value.

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
