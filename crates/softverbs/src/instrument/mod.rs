// SPDX-License-Identifier: BSD-3-Clause
//! Instruments of a queue pair: strict mode, fault injection, metrics.
//!
//! A queue pair reports events to one object, [`Instruments`], and does not see what they lead to. A
//! decorator of the connection's host ([`Instrumented`]) passes calls on, holds back requests and receives,
//! counts completions, and after a step applies to the connection what is due. So neither the connection nor
//! the queue pair implements a rule of strict mode or a fault. Which requests fail, and which entries of the
//! send queue they use, is decided when they are posted ([`Instruments::post`]), in the order of the program.
//! Without settings the object is empty: the connection calls the host itself, and a post and a step take a
//! branch.
//!
//! - [`adapter`]: the entries of a send queue as an adapter counts them;
//! - [`flight`]: the memory of requests in flight;
//! - [`fault_queue`]: requests that are delayed or fail;
//! - [`rnr`]: messages that find no receive;
//! - [`mod@overrun`]: completions that find no room;
//! - [`mod@counting`]: counters for metrics;
//! - [`mod@findings`]: what `rpma run --fail-on-misuse` counts;
//! - [`host`]: the decorator.
#![forbid(unsafe_code)]

mod adapter;
mod counting;
mod fault_queue;
mod findings;
mod flight;
mod host;
mod overrun;
mod private_data;
mod regions;
mod rnr;
mod set_up;
mod strict;
mod stuck;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use crate::cq::PollObserver;
use crate::faults::{self, Plan};
use crate::lock;
use crate::process::PerProcess;
use crate::progress::Outstanding;
use crate::progress::ring::Ring;
use crate::sys::Errno;
use adapter::Adapter;
use counting::Counting;
use fault_queue::FaultQueue;
use rdma_sys::rdma_cm_event_type;
use rnr::Rnr;
use rpma_metrics::{Copies, Process};
use strict::Strict;
use transport::access::Accessor;
use transport::wr::{Completion, SendWr, opcode};

pub(crate) use counting::SharedReceives;
pub use findings::attach_findings;
pub(crate) use host::{Exposed, Instrumented, Queue, Stepping};
pub(crate) use private_data::long_private_data;
pub(crate) use regions::Registration;
pub(crate) use set_up::{FailedConnect, failed_connect, rejects_request};
pub(crate) use strict::Rule;
pub(crate) use stuck::Waiting;

/// The names of links in metrics.
const SHARED_MEMORY: &str = "shared_memory";
const DIRECT_COPY: &str = "direct_copy";

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
    /// The settings of this process, for a new queue pair. Fails if its misuses could not be counted.
    pub(crate) fn of_process() -> Result<Self, Errno> {
        findings::queue_pair()?;
        Ok(Self { strict: strict::mode(), faults: faults::plan(), metrics: counting::process() })
    }
}

/// The instruments of a queue pair, shared by all threads, or none.
#[derive(Clone, Default)]
pub(crate) struct Instruments(Option<Arc<Present>>);

/// Instruments of which at least one is present.
pub(crate) struct Present {
    mode: Strict,
    /// The number of the queue pair, for the log.
    num: u32,
    adapter: Option<Adapter>,
    faults: Option<FaultQueue>,
    metrics: Option<Counting>,
    /// Locked by [`Instrumented`] during a step, so directly within the session of the connection.
    rnr: Mutex<Rnr>,
}

/// Why a request was not posted.
pub(crate) enum NotPosted {
    /// The send queue is full.
    Full(SendWr),
    /// An instrument refuses it: ENOMEM.
    Refused,
}

/// The instruments in strict mode of this process. A child after fork(2) has none.
static STRICT: PerProcess<Vec<Weak<Present>>> = PerProcess::new();

/// A memory region is being deregistered: reports requests in flight that use it.
pub(crate) fn deregisters(stag: u32) {
    if strict::mode() == Strict::Off {
        return;
    }
    let all: Vec<Arc<Present>> = lock(STRICT.get()).iter().flatten().filter_map(Weak::upgrade).collect();
    all.iter().filter_map(|present| present.adapter.as_ref()).for_each(|adapter| adapter.deregisters(stag));
}

impl Instruments {
    /// For a queue pair whose send queue has `max_send_wr` entries.
    pub(crate) fn new(accessor: Accessor, max_send_wr: u32, settings: Settings) -> Self {
        let num = accessor.qp;
        let Settings { strict: mode, faults, metrics } = settings;
        let counts = findings::attached().is_some();
        if mode == Strict::Off && faults.is_none() && metrics.is_none() && !counts {
            return Self(None);
        }
        let adapter = (mode != Strict::Off).then(|| Adapter::new(accessor, max_send_wr, mode));
        let is_strict = adapter.is_some();
        let present = Arc::new(Present {
            mode,
            num,
            adapter,
            faults: FaultQueue::of(faults, mode, num),
            metrics: metrics.map(|process| Counting::new(process, num)),
            rnr: Mutex::default(),
        });
        if is_strict {
            let mut strict = lock(STRICT.get());
            let strict = strict.get_or_insert_default();
            strict.retain(|other| other.strong_count() > 0);
            strict.push(Arc::downgrade(&present));
        }
        Self(Some(present))
    }

    /// What decorates the host of the connection.
    #[inline]
    pub(crate) fn present(&self) -> Option<&Present> {
        self.0.as_deref()
    }

    fn adapter(&self) -> Option<&Adapter> {
        self.present()?.adapter.as_ref()
    }

    fn metrics(&self) -> Option<&Counting> {
        self.present()?.metrics.as_ref()
    }

    /// Posts a request to a send queue; `denied`: the remote memory does not permit its access, so on an
    /// adapter it fails. The result is that of [`Ring::push`] or, if it was not posted, that of `otherwise`.
    #[inline]
    pub(crate) fn post<E>(
        &self,
        sends: &Ring<SendWr>,
        wr: SendWr,
        denied: bool,
        otherwise: impl FnOnce(NotPosted) -> Result<bool, E>,
    ) -> Result<bool, E> {
        // A result that both arms share would have room for a request, and each post would copy it.
        match self.present() {
            None => match sends.push(wr) {
                Ok(alone) => Ok(alone),
                Err(wr) => otherwise(NotPosted::Full(wr)),
            },
            Some(present) => present.post(sends, wr, denied).or_else(otherwise),
        }
    }

    /// Whether that many more requests can be posted, for a post of all or none of them.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.adapter().is_none_or(|adapter| adapter.has_room(count))
    }

    /// A read or an atomic operation is posted with IBV_SEND_INLINE. EINVAL if an adapter would refuse it.
    #[cold]
    pub(crate) fn check_inline(&self, wr_id: u64) -> Result<(), Errno> {
        self.adapter().map_or(Ok(()), |adapter| adapter.check_inline(wr_id))
    }

    /// A receive was posted.
    #[inline]
    pub(crate) fn receive_posted(&self) {
        if let Some(metrics) = self.metrics() {
            metrics.receive_posted();
        }
    }

    /// What observes the polls of completions.
    pub(crate) fn observer(&self) -> Option<Arc<dyn PollObserver>> {
        Some(self.0.clone()?)
    }

    /// What is outstanding on the send queue, as far as an instrument knows.
    pub(crate) fn outstanding(&self) -> Outstanding {
        self.adapter().map_or(Outstanding::Completion, Adapter::outstanding)
    }

    /// The connection gets this peer.
    pub(crate) fn connects(&self, peer: SocketAddr) {
        if let Some(metrics) = self.metrics() {
            metrics.connection().set_peer(peer);
        }
    }

    /// The link uses memory that is shared with the peer and, `with_copies`, direct copies.
    pub(crate) fn shares(&self, with_copies: bool, copies: impl FnOnce() -> Weak<dyn Copies>) {
        if let Some(metrics) = self.metrics() {
            let name = if with_copies { DIRECT_COPY } else { SHARED_MEMORY };
            metrics.connection().shares(name, copies());
        }
    }

    /// This memory is no longer shared.
    pub(crate) fn shares_no_more(&self, copies: &dyn Copies) {
        if let Some(metrics) = self.metrics() {
            metrics.connection().shares_no_more(copies);
        }
    }

    /// Whether messages without a receive are repeated rather than end the connection; the peer repeats them
    /// this often (`rnr_retry_count` of rdma_connect(3)).
    pub(crate) fn repeats(&self, rnr_retry: u8) -> bool {
        let Some(present) = self.present() else { return false };
        lock(&present.rnr).set_limit(rnr_retry);
        present.mode == Strict::Adapter && rnr_retry > 0
    }

    /// An event of the connection is reported to the program.
    pub(crate) fn event(&self, kind: rdma_cm_event_type::Type) {
        if let Some(metrics) = self.metrics() {
            metrics.event(kind);
        }
    }

    /// The program ends the connection.
    pub(crate) fn disconnects(&self) {
        if let Some(adapter) = self.adapter() {
            adapter.disconnects();
        }
    }

    /// The connection has ended.
    pub(crate) fn ends(&self) {
        if let Some(adapter) = self.adapter() {
            adapter.ends();
        }
    }

    /// The queue pair enters RESET: its requests were dropped. Called with the session locked, so that no
    /// step applies a fault of a dropped request.
    pub(crate) fn dropped(&self) {
        let Some(present) = self.present() else { return };
        // Completions that the program polls until they are discarded report no changed memory.
        self.ends();
        if let Some(faults) = &present.faults {
            faults.reset();
        }
        lock(&present.rnr).reset();
        if let Some(metrics) = &present.metrics {
            metrics.reset();
        }
    }

    /// The completions of a queue pair in RESET were discarded, too: its send queue is empty.
    pub(crate) fn discarded(&self) {
        if let Some(adapter) = self.adapter() {
            adapter.reset();
        }
        if let Some(metrics) = self.metrics() {
            metrics.connection().discarded();
        }
    }

    /// The queue pair is destroyed.
    pub(crate) fn destroyed(&self) {
        self.ends();
        if let Some(metrics) = self.metrics() {
            metrics.destroyed();
        }
    }

    /// librpma flushes by reads to this address.
    pub(crate) fn flushes_by(&self, target: u64) {
        if let Some(metrics) = self.metrics() {
            metrics.connection().flushes_by(target);
        }
    }

    /// Whether a read to this address is a flush of librpma, which has its type where other requests have
    /// immediate data.
    pub(crate) fn is_flush(&self, target: u64) -> bool {
        self.metrics().is_some_and(|metrics| metrics.connection().is_flush(target))
    }
}

impl Present {
    #[cold]
    fn post(&self, sends: &Ring<SendWr>, wr: SendWr, denied: bool) -> Result<bool, NotPosted> {
        // The instruments only see requests for which the queue has an entry.
        if sends.room() == 0 {
            return Err(NotPosted::Full(wr));
        }
        let (mut alone, mut is_full) = (false, false);
        // Another thread may have taken the entry.
        let mut push = |wr| sends.push(wr).map(|only| alone = only).inspect_err(|_| is_full = true);
        let wr_id = wr.wr_id;
        let refuses = denied && self.mode == Strict::Adapter;
        let push = |wr| match &self.faults {
            None => push(wr),
            Some(faults) => faults.post(wr, refuses, push),
        };
        let push = |wr| match &self.adapter {
            None => push(wr),
            Some(adapter) => adapter.post(wr, push),
        };
        let posted = match &self.metrics {
            None => push(wr),
            Some(metrics) => metrics.post(wr, push),
        };
        match posted {
            Ok(()) => {
                if let Some(findings) = findings::attached() {
                    findings.operation();
                }
                if let Some(adapter) = self.adapter.as_ref().filter(|_| denied) {
                    adapter.denied(wr_id);
                }
                Ok(alone)
            }
            Err(wr) if is_full => Err(NotPosted::Full(wr)),
            Err(_) => Err(NotPosted::Refused),
        }
    }
}

impl PollObserver for Present {
    fn polled(&self, completion: &Completion) -> bool {
        if let Some(metrics) = &self.metrics {
            metrics.taken(completion);
        }
        completion.opcode & opcode::RECV == 0 && self.adapter.as_ref().is_some_and(Adapter::taken)
    }

    fn report(&self) {
        if let Some(adapter) = &self.adapter {
            adapter.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::plan_of;
    use fault_queue::Due;
    use rnr::Late;
    use transport::testing::queues::request;
    use transport::wr::{Op, status};

    fn post(instruments: &Instruments, ring: &Ring<SendWr>) -> bool {
        let wr = request(1, Op::Write, true);
        instruments.post(ring, wr, false, |_| Err(())).is_ok()
    }

    #[test]
    fn a_reset_queue_pair_has_the_instruments_of_a_new_one() {
        let faults = Some(plan_of("wc:FATAL@n=2; wc:RETRY_EXC@n=3"));
        let settings = Settings { strict: Strict::Adapter, faults, metrics: None };
        let instruments = Instruments::new(Accessor { pd: 1, qp: 1 }, 2, settings);
        let present = instruments.present().unwrap();
        let due = || present.faults.as_ref().unwrap().due();
        let used = Ring::new(2).unwrap();
        assert!(post(&instruments, &used) && post(&instruments, &used) && !instruments.has_room(1));
        lock(&present.rnr).set_limit(1);
        assert_eq!(lock(&present.rnr).late(1, Strict::Adapter, || 0), Late::Repeated);
        instruments.ends();

        instruments.dropped();
        assert_eq!((due(), lock(&present.rnr).deadline()), (Due::Nothing, None));
        instruments.discarded();
        assert!(instruments.has_room(2), "all entries are free");
        assert_eq!(instruments.outstanding(), Outstanding::Nothing);

        let ring = Ring::new(2).unwrap();
        assert!(post(&instruments, &ring));
        assert_eq!(due(), Due::Fail(status::RETRY_EXC_ERR), "the first request fails");
        assert_eq!(instruments.outstanding(), Outstanding::Completion);
    }
}
