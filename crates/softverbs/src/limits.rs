// SPDX-License-Identifier: BSD-3-Clause
//! Every bound on what a program or a peer may ask for, each with its reason.
#![forbid(unsafe_code)]

/// Entries of one completion queue: what siw reports; 48 bytes each keep it under 64 MiB.
pub(crate) const MAX_CQE: u32 = 1 << 20;
/// Work requests of one send or receive queue: enough for any librpma program, bounded so that one QP stays under 16 MiB.
pub(crate) const MAX_QP_WR: u32 = 1 << 16;
/// Work requests of one shared receive queue.
pub(crate) const MAX_SRQ_WR: u32 = 1 << 20;
/// Scatter/gather entries of a work request: librpma never uses more than one.
pub(crate) const MAX_SGE: u32 = 1;
/// Bytes of inline data kept inside a work request; librpma asks for 8.
pub(crate) const MAX_INLINE: usize = 32;
/// Reads a peer may have outstanding towards us (IRD), and we towards a peer (ORD): siw's own limit.
pub(crate) const MAX_READS: u16 = 128;
/// Memory regions: the 24 index bits of an STag, less index 0, which would make STags 0 and 1 (both have a meaning on the wire).
pub(crate) const MAX_MR: u32 = (1 << 24) - 1;
/// Length of one message: RFC 5041 keeps the message offset in 32 bits, verbs limit is 2^31.
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;
/// Private data a program may send: the field is 8 bits wide in rdma_cm, and siw handles 251 bytes beside the enhanced block.
pub(crate) const MAX_PRIVATE_DATA: usize = 251;
/// Private data handed to a program: its length is 8 bits wide in rdma_cm.
pub(crate) const MAX_PRIVATE_DATA_IN: usize = 255;
/// Connections of one listener that have not finished their MPA Request: bounds what strangers can make us hold.
pub(crate) const MAX_HALF_OPEN: usize = 1024;
/// Connect requests of one listener that the program has not fetched yet.
pub(crate) const MAX_UNFETCHED: usize = 1024;
/// Seconds a peer has to send its whole MPA Request after TCP connects (siw: 5).
pub(crate) const REQUEST_TIMEOUT_S: u64 = 5;
/// Seconds an initiator has to send its first FPDU after our Reply.
pub(crate) const FIRST_FPDU_TIMEOUT_S: u64 = 10;
/// Milliseconds after which an initiator that has heard nothing sends an empty message; then twice as many, and so on, [`KNOCKS`] times in
/// all. The kernel's responder is listening after one or two, on a busy machine later.
pub(crate) const FIRST_KNOCK_MS: u64 = 10;
/// The last one comes after 10 s.
pub(crate) const KNOCKS: u32 = 10;
/// Bytes an initiator sends before it has heard its peer or knocked: half of what a new TCP connection takes unread.
pub(crate) const UNHEARD_BYTES: usize = 32 * 1024;
/// Milliseconds a responder waits with its first message for one of an initiator that did not announce any.
pub(crate) const RESPONDER_PAUSE_MS: u64 = 100;
/// Milliseconds a closing connection waits for the peer's FIN before it is dropped.
pub(crate) const LINGER_MS: u64 = 2_000;
/// Bytes that the engine moves for one connection, each way, before it looks at the next one.
pub(crate) const ENGINE_BUDGET: usize = 1 << 20;
/// Bytes that a call of the program moves for one connection, each way, before it leaves the rest to the engine: about 100 us.
pub(crate) const PROGRAM_BUDGET: usize = 512 << 10;
/// Times that a call of the program looks again because others have left work, before it leaves that to the engine.
pub(crate) const PROGRAM_ROUNDS: u32 = 8;
/// Connections that an empty poll of a completion queue looks at one by one; with more it asks the kernel which of them are ready.
pub(crate) const POLL_DIRECTLY: usize = 4;
/// Completion queues' sockets that a thread which sleeps on a channel waits for itself; with more it leaves them to the engine.
pub(crate) const SLEEP_SETS: usize = 8;
/// Placements carried out in one call: the kernel takes up to 1024, and each has to have its place in an array on the stack.
pub(crate) const PLACE_BATCH: usize = 128;
/// Microseconds between the engine's looks at sockets that the program serves by polling: what a program that stops polling without a
/// word may wait for its next message, once.
pub(crate) const TICK_US: u64 = 200;
/// Polls in a row that must move bytes before the engine leaves the sockets to them; doubled up to the other each time that was wrong.
pub(crate) const MIN_TRUST: u32 = 4;
pub(crate) const MAX_TRUST: u32 = 1024;
/// Milliseconds that messages of a peer that has ended wait for the next receive.
pub(crate) const STALLED_END_MS: u64 = 1_000;
/// Unsignalled small writes in a row, each posted within [`BURST_NS`] of the one before, that go out at once; what follows goes out
/// together. Nothing is gained by waiting for the engine before.
pub(crate) const BURST_AFTER: u32 = 4;
/// Nanoseconds between posts of one burst: well below a system call.
pub(crate) const BURST_NS: u64 = 1_000;
/// Requests of a burst that are sent together at most.
pub(crate) const BURST: u64 = 32;
/// What is small: a write that costs less to copy than to send on its own.
pub(crate) const SMALL: u32 = 4096;
