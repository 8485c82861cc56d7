// SPDX-License-Identifier: BSD-3-Clause
//! Static probes (USDT) of the provider `softverbs`, for bpftrace, SystemTap, perf and GDB. softverbs(7)
//! documents them for users, and tools/check-probes compares.
//!
//! Each has a semaphore that a tracer increments: while it is 0, a probe costs a load and a branch, and its
//! arguments are not evaluated.

use probe::probe_lazy;

use transport::wr::{Completion, SendWr};

/// A work request was posted to a send queue. `opcode` is that of its completion (enum ibv_wc_opcode).
#[inline(always)]
pub(crate) fn post(qp: u32, wr: &SendWr) {
    probe_lazy!(softverbs, post, qp, wr.wr_id, wr.op.completion_opcode(), wr.len);
}

/// A receive was posted to the receive queue of a queue pair, not to a shared one.
#[inline(always)]
pub(crate) fn post_recv(qp: u32, wr_id: u64) {
    probe_lazy!(softverbs, post_recv, qp, wr_id);
}

/// A completion was added to a completion queue: enum ibv_wc_status, enum ibv_wc_opcode.
#[inline(always)]
pub(crate) fn complete(completion: &Completion) {
    probe_lazy!(
        softverbs,
        complete,
        completion.qp_num,
        completion.wr_id,
        completion.status,
        completion.opcode,
        completion.byte_len
    );
}

/// The connection of a queue pair is open, over TCP or, if `shared`, over memory shared with a process of
/// this host.
#[inline(always)]
pub(crate) fn connect(qp: u32, shared: bool) {
    probe_lazy!(softverbs, connect, qp, u32::from(shared));
}

/// The connection of a queue pair has ended; `failed`: neither program has closed it.
#[inline(always)]
pub(crate) fn close(qp: u32, failed: bool) {
    probe_lazy!(softverbs, close, qp, u32::from(failed));
}

/// A memory region was registered.
#[inline(always)]
pub(crate) fn register(stag: u32, addr: u64, len: u64, access: u32) {
    probe_lazy!(softverbs, register, stag, addr, len, access);
}

/// A memory region was deregistered, and no access to it is in progress.
#[inline(always)]
pub(crate) fn deregister(stag: u32) {
    probe_lazy!(softverbs, deregister, stag);
}

/// A flush to persistence was queued, for whole pages.
#[inline(always)]
pub(crate) fn flush(start: u64, len: u64) {
    probe_lazy!(softverbs, flush, start, len);
}

/// A flush to persistence is complete; `errno` is 0 if the range is durable.
#[inline(always)]
pub(crate) fn flushed(start: u64, len: u64, errno: i32) {
    probe_lazy!(softverbs, flushed, start, len, errno);
}

/// The engine thread was woken by this many events; 0: by a timeout.
#[inline(always)]
pub(crate) fn wake(events: usize) {
    probe_lazy!(softverbs, wake, events);
}
