// SPDX-License-Identifier: BSD-3-Clause
//! Instruments of a queue pair: strict mode, fault injection, metrics.
//!
//! A decorator of the connection's host ([`Instrumented`]) passes calls on, holds back requests and receives,
//! counts completions, and after a step applies to the connection what is due. So neither the connection nor
//! the queue pair implements a rule of strict mode or a fault. Which requests fail, and which entries of the
//! send queue they use, is decided when they are posted ([`Instruments::post`]), in the order of the program.
//! A queue pair without settings has no instruments: its connection calls the host itself, and a post and a
//! step take a branch.
//!
//! - [`adapter`]: the entries of a send queue as an adapter counts them;
//! - [`flight`]: the memory of requests in flight;
//! - [`fault_queue`]: requests that are delayed or fail;
//! - [`rnr`]: messages that find no receive;
//! - [`mod@counting`]: counters for metrics;
//! - [`host`]: the decorator.
#![forbid(unsafe_code)]

mod adapter;
mod counting;
mod fault_queue;
mod flight;
mod host;
mod rnr;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use crate::faults::{self, Plan};
use crate::process::PerProcess;
use crate::progress::Outstanding;
use crate::strict::{self, Strict};
use crate::sys::Errno;
use crate::{lock, metrics};
use adapter::Adapter;
use counting::Counting;
use fault_queue::FaultQueue;
use rnr::Rnr;
use rpma_metrics::{Event, Process};
use transport::access::Accessor;
use transport::roce::rc::RNR_UNLIMITED;
use transport::wr::{Completion, SendWr, opcode};

pub(crate) use host::{Exposed, Instrumented, Queue};

/// Which instruments a queue pair has.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub strict: Strict,
    /// The faults to inject.
    pub faults: Option<&'static Plan>,
    /// The counters of the process, if it has metrics.
    pub metrics: Option<&'static Process>,
}

impl Settings {
    /// The settings of this process.
    pub(crate) fn of_process() -> Self {
        Self { strict: strict::mode(), faults: faults::plan(), metrics: metrics::process() }
    }
}

/// The instruments of a queue pair, shared by all threads.
pub(crate) struct Instruments {
    mode: Strict,
    /// The number of the queue pair, for the log.
    num: u32,
    adapter: Option<Adapter>,
    faults: Option<FaultQueue>,
    metrics: Option<Counting>,
}

/// The state of instruments that only the holder of the turn uses.
#[derive(Default)]
pub(crate) struct State {
    rnr: Rnr,
}

impl State {
    /// How often the peer repeats a message without a receive (`rnr_retry_count` of rdma_connect(3)).
    pub(crate) fn set_rnr_retry(&mut self, limit: u8) {
        self.rnr.set_limit(limit);
    }
}

/// The instruments in strict mode of this process. A child after fork(2) has none.
static STRICT: PerProcess<Vec<Weak<Instruments>>> = PerProcess::new();

/// A memory region is being deregistered: reports requests in flight that use it.
pub(crate) fn deregisters(stag: u32) {
    let all: Vec<Arc<Instruments>> = lock(STRICT.get()).iter().flatten().filter_map(Weak::upgrade).collect();
    all.iter()
        .filter_map(|instruments| instruments.adapter.as_ref())
        .for_each(|adapter| adapter.deregisters(stag));
}

impl Instruments {
    /// For a send queue with `max_send_wr` entries.
    pub(crate) fn new(num: u32, max_send_wr: u32, settings: Settings) -> Option<Arc<Self>> {
        let Settings { strict: mode, faults, metrics } = settings;
        if mode == Strict::Off && faults.is_none() && metrics.is_none() {
            return None;
        }
        let adapter = (mode != Strict::Off).then(|| Adapter::new(num, max_send_wr, mode));
        let is_strict = adapter.is_some();
        let this = Arc::new(Self {
            mode,
            num,
            adapter,
            faults: FaultQueue::of(faults, mode, num),
            metrics: metrics.map(|process| Counting::new(process, num)),
        });
        if is_strict {
            let mut all = lock(STRICT.get());
            let all = all.get_or_insert_default();
            all.retain(|instruments| instruments.strong_count() > 0);
            all.push(Arc::downgrade(&this));
        }
        Some(this)
    }

    /// Posts a request with `push`; `denied`: the remote memory does not permit its access, so on an adapter
    /// it fails. The request is given back when the send queue is full.
    #[cold]
    pub(crate) fn post(
        &self,
        wr: SendWr,
        accessor: Accessor,
        denied: bool,
        push: impl FnOnce(SendWr) -> Result<(), SendWr>,
    ) -> Result<(), SendWr> {
        let denied = denied && self.mode == Strict::Adapter;
        let push = |wr| match &self.faults {
            None => push(wr),
            Some(faults) => faults.post(wr, denied, push),
        };
        let push = |wr| match &self.adapter {
            None => push(wr),
            Some(adapter) => adapter.post(wr, accessor, push),
        };
        match &self.metrics {
            None => push(wr),
            Some(metrics) => metrics.post(wr, push),
        }
    }

    /// A receive was posted.
    #[cold]
    pub(crate) fn receive_posted(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.receive_posted();
        }
    }

    /// librpma flushes by reads to this address.
    pub(crate) fn flushes_by(&self, target: u64) {
        if let Some(metrics) = &self.metrics {
            metrics.connection().flushes_by(target);
        }
    }

    /// Whether a read to this address is a flush of librpma, which has its type where other requests have
    /// immediate data.
    pub(crate) fn is_flush(&self, target: u64) -> bool {
        self.metrics.as_ref().is_some_and(|metrics| metrics.connection().is_flush(target))
    }

    /// The connection has this peer.
    pub(crate) fn set_peer(&self, peer: SocketAddr) {
        if let Some(metrics) = &self.metrics {
            metrics.connection().set_peer(peer);
        }
    }

    /// An event of the connection for the program.
    pub(crate) fn event(&self, event: Event) {
        if let Some(metrics) = &self.metrics {
            metrics.event(event);
        }
    }

    /// The queue pair is destroyed.
    pub(crate) fn destroyed(&self) {
        self.ends();
        if let Some(metrics) = &self.metrics {
            metrics.destroyed();
        }
    }

    /// How many more requests the instruments permit.
    pub(crate) fn room(&self) -> usize {
        self.adapter.as_ref().map_or(usize::MAX, Adapter::room)
    }

    /// A post of several requests is refused because [`Self::room`] is too small.
    pub(crate) fn refuse(&self) {
        if let Some(adapter) = &self.adapter {
            adapter.report();
        }
    }

    /// A read or an atomic operation is posted with IBV_SEND_INLINE. EINVAL in [`Strict::Adapter`].
    pub(crate) fn check_inline(&self, wr_id: u64) -> Result<(), Errno> {
        self.adapter.as_ref().map_or(Ok(()), |adapter| adapter.check_inline(wr_id))
    }

    /// Whether a message without a receive waits for one, with this RNR retry count of the peer.
    pub(crate) fn waits_for_receives(&self, rnr_retry: u8) -> bool {
        rnr_retry >= RNR_UNLIMITED || (self.mode == Strict::Adapter && rnr_retry > 0)
    }

    /// The program ends the connection.
    pub(crate) fn disconnects(&self) {
        if let Some(adapter) = &self.adapter {
            adapter.disconnects();
        }
    }

    /// The connection has ended.
    pub(crate) fn ends(&self) {
        if let Some(adapter) = &self.adapter {
            adapter.ends();
        }
    }

    /// The program has polled the oldest completion, of a request or of a receive. True if [`Self::tell`] has
    /// something to report, once the caller holds no lock.
    #[cold]
    pub(crate) fn taken(&self, completion: &Completion) -> bool {
        if let Some(metrics) = &self.metrics {
            metrics.taken(completion);
        }
        completion.opcode & opcode::RECV == 0 && self.adapter.as_ref().is_some_and(Adapter::taken)
    }

    /// Reports what [`Self::taken`] has found.
    pub(crate) fn tell(&self) {
        if let Some(adapter) = &self.adapter {
            adapter.tell();
        }
    }

    /// What is outstanding on the send queue, as far as strict mode knows.
    pub(crate) fn outstanding(&self) -> Outstanding {
        self.adapter.as_ref().map_or(Outstanding::Completion, Adapter::outstanding)
    }
}
