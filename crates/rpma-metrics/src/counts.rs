// SPDX-License-Identifier: BSD-3-Clause
//! What is counted of a connection: live counters, and sums of them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// RDMA write, also with immediate data.
    Write,
    /// RDMA read.
    Read,
    /// Send.
    Send,
    /// Receive.
    Recv,
    /// Atomic write of librpma.
    AtomicWrite,
    /// Flush of librpma to visibility.
    FlushVisibility,
    /// Flush of librpma to persistence.
    FlushPersistent,
    /// Compare-and-swap, fetch-and-add.
    Atomic,
}

/// A one-sided operation of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ServedKind {
    /// RDMA write, also with immediate data, and atomic write.
    Write,
    /// RDMA read.
    Read,
    /// Compare-and-swap, fetch-and-add.
    Atomic,
}

/// What a peer has executed directly in the memory of this process: operations and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// RDMA writes of the peer.
    pub write: (u64, u64),
    /// Its RDMA reads.
    pub read: (u64, u64),
    /// Its atomic operations.
    pub atomic: (u64, u64),
}

impl Copied {
    /// The operations and bytes of each kind.
    pub(super) fn kinds(self) -> [(ServedKind, (u64, u64)); 3] {
        let Self { write, read, atomic } = self;
        [(ServedKind::Write, write), (ServedKind::Read, read), (ServedKind::Atomic, atomic)]
    }
}

/// The names of [`ServedKind`] in the text.
pub(super) const SERVED: [&str; 3] = ["write", "read", "atomic"];

/// The names of the kinds in the text.
pub(super) const KINDS: [&str; 8] =
    ["write", "read", "send", "recv", "atomic_write", "flush_visibility", "flush_persistent", "atomic"];

/// The names of `enum ibv_wc_status` in the text; the last one is for any other value of a provider.
pub(super) const STATUSES: [&str; 25] = [
    "success",
    "loc_len_err",
    "loc_qp_op_err",
    "loc_eec_op_err",
    "loc_prot_err",
    "wr_flush_err",
    "mw_bind_err",
    "bad_resp_err",
    "loc_access_err",
    "rem_inv_req_err",
    "rem_access_err",
    "rem_op_err",
    "retry_exc_err",
    "rnr_retry_exc_err",
    "loc_rdd_viol_err",
    "rem_inv_rd_req_err",
    "rem_abort_err",
    "inv_eecn_err",
    "inv_eec_state_err",
    "fatal_err",
    "resp_timeout_err",
    "general_err",
    "tm_err",
    "tm_rndv_incomplete",
    "other",
];

/// The upper limits of the latency buckets, in nanoseconds; the last bucket has none.
pub(super) const BOUNDS: [u64; 43] = bounds();

const fn bounds() -> [u64; 43] {
    let mut bounds = [0; 43];
    let steps = [1000, 1500, 2000, 3000, 5000, 7000];
    let (mut at, mut scale) = (0, 1);
    while at < bounds.len() {
        bounds[at] = steps[at % steps.len()] * scale;
        at += 1;
        if at % steps.len() == 0 {
            scale *= 10;
        }
    }
    bounds
}

const BUCKETS: usize = BOUNDS.len() + 1;

fn zeros<const N: usize>() -> [AtomicU64; N] {
    [const { AtomicU64::new(0) }; N]
}

/// Latencies of one kind.
struct Latencies {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// Live counters.
pub struct Counts {
    operations: [AtomicU64; KINDS.len()],
    bytes: [AtomicU64; KINDS.len()],
    statuses: [AtomicU64; STATUSES.len()],
    latencies: [Latencies; KINDS.len()],
    /// Messages received, of which `bytes` has the bytes.
    received: AtomicU64,
    served: [AtomicU64; SERVED.len()],
    served_bytes: [AtomicU64; SERVED.len()],
}

impl Counts {
    pub fn new() -> Self {
        Self {
            operations: zeros(),
            bytes: zeros(),
            statuses: zeros(),
            latencies: std::array::from_fn(|_| Latencies { buckets: zeros(), nanos: AtomicU64::new(0) }),
            received: AtomicU64::new(0),
            served: zeros(),
            served_bytes: zeros(),
        }
    }

    /// A message was received.
    pub fn received(&self, bytes: u64) {
        self.received.fetch_add(1, Relaxed);
        self.moved(Kind::Recv, bytes);
    }

    /// One-sided operations of the peer were carried out.
    pub fn served(&self, kind: ServedKind, completed: u64, bytes: u64) {
        self.served[kind as usize].fetch_add(completed, Relaxed);
        self.served_bytes[kind as usize].fetch_add(bytes, Relaxed);
    }

    pub(super) fn copied(&self, copied: Copied) {
        for (kind, (completed, bytes)) in copied.kinds() {
            self.served(kind, completed, bytes);
        }
    }

    /// A request was posted.
    pub fn posted(&self, kind: Kind, bytes: u64) {
        self.operations[kind as usize].fetch_add(1, Relaxed);
        self.moved(kind, bytes);
    }

    pub fn moved(&self, kind: Kind, bytes: u64) {
        self.bytes[kind as usize].fetch_add(bytes, Relaxed);
    }

    /// A completion was polled.
    pub fn completed(&self, status: u32) {
        let at = usize::try_from(status).unwrap_or(usize::MAX).min(STATUSES.len() - 1);
        self.statuses[at].fetch_add(1, Relaxed);
    }

    pub(super) fn took(&self, kind: Kind, nanos: u64) {
        let latencies = &self.latencies[kind as usize];
        latencies.buckets[BOUNDS.partition_point(|bound| *bound < nanos)].fetch_add(1, Relaxed);
        latencies.nanos.fetch_add(nanos, Relaxed);
    }
}

/// A snapshot of counters.
#[derive(Clone, Debug)]
pub struct Sums {
    pub operations: [u64; KINDS.len()],
    pub bytes: [u64; KINDS.len()],
    pub statuses: [u64; STATUSES.len()],
    pub latencies: [([u64; BUCKETS], u64); KINDS.len()],
    pub received: u64,
    pub served: [u64; SERVED.len()],
    pub served_bytes: [u64; SERVED.len()],
}

impl Sums {
    pub const fn new() -> Self {
        Self {
            operations: [0; KINDS.len()],
            bytes: [0; KINDS.len()],
            statuses: [0; STATUSES.len()],
            latencies: [([0; BUCKETS], 0); KINDS.len()],
            received: 0,
            served: [0; SERVED.len()],
            served_bytes: [0; SERVED.len()],
        }
    }

    pub fn add(&mut self, counts: &Counts) {
        self.add_by(counts, |count| count.load(Relaxed));
    }

    /// Moves the counts here.
    pub(super) fn take(&mut self, counts: &Counts) {
        self.add_by(counts, |count| count.swap(0, Relaxed));
    }

    fn add_by(&mut self, counts: &Counts, value: impl Fn(&AtomicU64) -> u64) {
        let each = |sums: &mut [u64], counts: &[AtomicU64]| {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = sum.wrapping_add(value(count));
            }
        };
        each(&mut self.operations, &counts.operations);
        each(&mut self.bytes, &counts.bytes);
        each(&mut self.statuses, &counts.statuses);
        for ((buckets, nanos), latencies) in self.latencies.iter_mut().zip(&counts.latencies) {
            each(buckets, &latencies.buckets);
            *nanos += value(&latencies.nanos);
        }
        self.received += value(&counts.received);
        each(&mut self.served, &counts.served);
        each(&mut self.served_bytes, &counts.served_bytes);
    }
}
