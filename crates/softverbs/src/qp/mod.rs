// SPDX-License-Identifier: BSD-3-Clause
//! Queue pairs: one reliable connection each, from the first posted receive to the last completion.
//!
//! Three threads may move the bytes of a queue pair: one that posts (sends at once what the socket takes), one that polls its completion
//! queue (receives and sends), and the engine (both, when nobody polls). While a program polls, it holds a *lease*: the engine stops
//! watching the socket, so that no thread switch and no contention stands between the socket and the poller; it takes over again within
//! two milliseconds of the last poll, and at once when the program arms its queue to sleep.
//!
//! Locks, in this order: `rx`, `tx`, `rq`, then the leaves (`watch`, completion ring, channel). The end of a connection is decided
//! under `rx` alone, once; a poster or the sending half that meets an error leaves it in `tx.failure` and has the engine look.
#![forbid(unsafe_code)]

mod durable;
mod opening;
mod posting;
pub(crate) mod receive;
pub(crate) mod rx;
pub(crate) mod send;
pub(crate) mod tx;
mod watch;

use once_cell::sync::Lazy;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::cq::{Completion, Cq, status};
use crate::engine::{Engine, Source};
use crate::limits::{FIRST_FPDU_TIMEOUT_S, LINGER_MS, RX_BUDGET};
use crate::sys::{self, Errno};
use crate::{config, lock};
use iwarp::stream;
use opening::Opening;
pub(crate) use opening::Role;
pub(crate) use posting::Posting;
use receive::{PostError, RecvQueue, RecvWr, Srq};
use rx::{End, Ran, Rx};
use send::Progress;
use tx::{Failure, Flushed, Link, Tx};
use watch::{BLOCKED, END_EVENTS, LEASED, STALLED, WRITE_EVENT, Watch};

/// The last four bytes of an Immediate Data message that belongs to the Send after it. The standard knows immediate data only as a
/// message of its own (it completes a receive); verbs know a Send with immediate data, which completes one receive and not two.
/// Adapters leave these bytes zero.
pub(crate) const IMMEDIATE_OF_SEND: [u8; 4] = *b"Send";

/// A poll this recent means that the program is polling.
const POLLING: Duration = Duration::from_micros(50);
/// So many polls that found nothing since bytes last came in mean that the program waits by polling. One that looks at its queue now and
/// then, and waits for its memory to change, must not have the engine leave.
const BUSY_POLLS: u32 = 4;
/// A poll this old means that the program has stopped.
const POLLED: Duration = Duration::from_micros(500);

/// Who learns of the beginning and the end of a connection.
pub(crate) trait Owner: Send + Sync {
    /// The connection can be used.
    fn established(&self);
    /// The connection is over; told once.
    fn ended(&self);
}

const INIT: u8 = 0;
const READY: u8 = 1;
const ERROR: u8 = 2;
const DESTROYED: u8 = 3;

/// What a queue pair is made of.
pub(crate) struct Parts {
    pub num: u32,
    pub pd: u32,
    pub send_cq: Arc<Cq>,
    pub recv_cq: Arc<Cq>,
    pub srq: Option<Arc<Srq>>,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub signal_all: bool,
}

/// A connection that is ready for FPDUs.
pub(crate) struct Connection {
    pub socket: OwnedFd,
    /// The socket's token, if the engine watches it already.
    pub token: Option<u64>,
    pub crc: bool,
    /// Reads that the peer takes at a time.
    pub ord: u32,
    pub role: Role,
    /// What arrived behind the peer's MPA frame.
    pub early: Vec<u8>,
    /// A message without a receive waits for one, instead of ending the connection.
    pub wait_for_receives: bool,
    pub owner: Weak<dyn Owner>,
}

pub(crate) struct Qp {
    pub(crate) num: u32,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
    pub(crate) signal_all: bool,
    pub(crate) tx: Mutex<Tx>,
    rx: Mutex<Rx>,
    rq: Mutex<RecvQueue>,
    state: AtomicU8,
    watch: Watch,
    owner: OnceLock<Weak<dyn Owner>>,
    opening: OnceLock<Arc<Opening>>,
    /// The peer has sent an FPDU; set under `rx`.
    heard: AtomicBool,
    wait_for_receives: AtomicBool,
    /// The sending half left a failure behind, for whoever holds `rx`; set under `tx` only.
    failed: AtomicBool,
    /// Making a peer's writes durable took long the last time.
    slow_media: AtomicBool,
    /// The receiving half waits for a receive.
    stalled: AtomicBool,
    /// Requests wait for the next post or poll, to go out with what that brings; changed under `tx` only.
    deferred: AtomicBool,
    /// When a program that does not wait for events last polled, in nanoseconds since [`now`]'s beginning; 0: never.
    polled: AtomicU64,
    /// Such polls since the engine last saw bytes come in.
    polls: AtomicU32,
}

fn now() -> u64 {
    static START: Lazy<Instant> = Lazy::new(Instant::now);
    START.elapsed().as_nanos() as u64 + 1
}

impl Qp {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let qp = Arc::new(Self {
            num: parts.num,
            send_cq: parts.send_cq,
            recv_cq: parts.recv_cq,
            srq: parts.srq,
            signal_all: parts.signal_all,
            tx: Mutex::new(Tx::new(parts.max_send_wr, parts.pd)),
            rx: Mutex::new(Rx::new(parts.pd)),
            rq: Mutex::new(RecvQueue::new(parts.max_recv_wr)),
            state: AtomicU8::new(INIT),
            watch: Watch::default(),
            owner: OnceLock::new(),
            opening: OnceLock::new(),
            heard: AtomicBool::new(false),
            wait_for_receives: AtomicBool::new(true),
            failed: AtomicBool::new(false),
            slow_media: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            deferred: AtomicBool::new(false),
            polled: AtomicU64::new(0),
            polls: AtomicU32::new(0),
        });
        qp.send_cq.attach(&qp);
        if !Arc::ptr_eq(&qp.send_cq, &qp.recv_cq) {
            qp.recv_cq.attach(&qp);
        }
        if let Some(srq) = &qp.srq {
            srq.add_user(1);
        }
        qp
    }

    /// Begins to move messages over a connection. Whatever the error, the queue pair is then in the state of a connection that ended.
    pub(crate) fn connect(self: &Arc<Self>, connection: Connection) -> Result<(), Errno> {
        let engine = Engine::get()?;
        let socket = Arc::new(connection.socket);
        let fd = socket.as_raw_fd();
        let mss = sys::get_option(&socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG).unwrap_or(1448);
        let mss = usize::try_from(mss).unwrap_or(0);
        let _ = self.owner.set(connection.owner);
        self.wait_for_receives.store(connection.wait_for_receives, Ordering::Relaxed);
        let mut rx = lock(&self.rx);
        if self.state.compare_exchange(INIT, READY, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Err(libc::EISCONN);
        }
        let role = connection.role;
        rx.connect(socket.clone(), connection.crc, &connection.early, role == Role::RESPONDER_TOLD);
        let watched = self.watch.begin(&engine, connection.token, fd, self.clone());
        if let Err(e) = watched {
            self.tear_down(&mut rx, End::Socket(e));
            return Err(e);
        }
        let mut tx = lock(&self.tx);
        tx.connect(Link {
            socket,
            crc: connection.crc,
            mulpdu: stream::mulpdu(mss),
            // A peer that checks CRCs is an adapter, which is faster so, or a kernel that ends a connection over a CRC field in two parts.
            segment: connection.crc.then_some(mss),
            ord: connection.ord,
        });
        self.open(&mut tx, &engine, role);
        drop(tx);
        drop(rx);
        if role == Role::RESPONDER_TOLD {
            let source: Arc<dyn Source> = self.clone();
            engine.schedule(Duration::from_secs(FIRST_FPDU_TIMEOUT_S), &source);
        }
        if !connection.early.is_empty() {
            engine.kick(self.clone());
        }
        Ok(())
    }

    /// A completion with what all completions of this queue pair share.
    pub(crate) fn completion(&self) -> Completion {
        Completion { qp_num: self.num, ..Completion::default() }
    }

    fn flushed_receive(&self, wr: &RecvWr) -> Completion {
        Completion { wr_id: wr.wr_id, status: status::WR_FLUSH_ERR, opcode: 128, ..self.completion() }
    }

    // ---- posting -------------------------------------------------------------------------------------------------------------------

    /// Begins to post to the send queue; EINVAL before there is a connection.
    pub(crate) fn posting(self: &Arc<Self>) -> Result<Posting<'_>, Errno> {
        let tx = lock(&self.tx);
        match self.state.load(Ordering::Acquire) {
            INIT | DESTROYED => Err(libc::EINVAL),
            _ => Ok(Posting::new(self, tx)),
        }
    }

    /// Posts a receive; ENOMEM when the queue is full.
    pub(crate) fn post_receive(self: &Arc<Self>, wr: RecvWr) -> Result<(), Errno> {
        {
            let mut rq = lock(&self.rq);
            rq.post(wr, |wr| self.flushed_receive(wr)).map_err(|PostError::Full| libc::ENOMEM)?;
            rq.deliver(&self.recv_cq);
        }
        self.receive_posted();
        Ok(())
    }

    /// A receive was posted: a message that waits for one can go on.
    pub(crate) fn receive_posted(self: &Arc<Self>) {
        if self.stalled.load(Ordering::SeqCst) && self.stalled.swap(false, Ordering::SeqCst) {
            self.kick();
        }
    }

    fn kick(self: &Arc<Self>) {
        if let Some(engine) = self.watch.engine() {
            engine.kick(self.clone());
        }
    }

    // ---- what the receiving half calls ---------------------------------------------------------------------------------------------

    pub(crate) fn waits_for_receives(&self) -> bool {
        self.wait_for_receives.load(Ordering::Relaxed)
    }

    /// Takes the next posted receive. When there is none, the next one to be posted has the engine continue.
    pub(crate) fn take_posted_receive(self: &Arc<Self>) -> Option<RecvWr> {
        let take = || match &self.srq {
            Some(srq) => srq.take(self),
            None => lock(&self.rq).take(),
        };
        if let Some(wr) = take() {
            return Some(wr);
        }
        // A receive posted before the flag was up would go unnoticed, one posted after it is not.
        self.stalled.store(true, Ordering::SeqCst);
        let wr = take();
        if wr.is_some() {
            self.stalled.store(false, Ordering::SeqCst);
        }
        wr
    }

    pub(crate) fn complete_receive(&self, completion: Completion) {
        let mut rq = lock(&self.rq);
        rq.complete(completion);
        rq.deliver(&self.recv_cq);
    }

    // ---- moving bytes --------------------------------------------------------------------------------------------------------------

    /// Sends what can be sent, and has the engine watch for room when the socket is full, or look at what went wrong.
    fn flush_tx(self: &Arc<Self>, tx: &mut MutexGuard<'_, Tx>) {
        self.deferred.store(false, Ordering::Relaxed);
        let flushed = tx.flush(&self.send_cq, self.num);
        self.watch.set(BLOCKED, flushed == Flushed::Blocked);
        // Not every caller can look at it: most do not hold `rx`.
        if flushed == Flushed::Failed && !self.failed.swap(true, Ordering::AcqRel) {
            self.kick();
        }
    }

    /// Delivers completions that a full completion queue kept back.
    pub(crate) fn deliver_kept(&self) {
        lock(&self.tx).sq.retire(&self.send_cq, self.num);
        lock(&self.rq).deliver(&self.recv_cq);
    }

    /// A poll of a completion queue found nothing: move the bytes of this connection. `sleeps` says that the program waits for events,
    /// so that this poll does not mean more to come.
    pub(crate) fn progress_by_poller(self: &Arc<Self>, sleeps: bool) {
        if self.state.load(Ordering::Acquire) != READY {
            return;
        }
        if !sleeps {
            self.polled.store(now(), Ordering::Relaxed);
            self.polls.fetch_add(1, Ordering::Relaxed);
        }
        if let Ok(mut rx) = self.rx.try_lock() {
            self.serve(&mut rx);
        }
    }

    /// The program is about to sleep until there is a completion: the engine takes over what its polls have served.
    pub(crate) fn program_sleeps(self: &Arc<Self>) {
        self.polled.store(0, Ordering::SeqCst);
        self.take_back();
    }

    fn serve(self: &Arc<Self>, rx: &mut Rx) {
        if rx.draining {
            if rx.drain() {
                self.let_go(rx);
            }
            return;
        }
        if self.state.load(Ordering::Acquire) != READY {
            return;
        }
        let ran = rx.run(self, RX_BUDGET);
        let waiting = self.deferred.load(Ordering::Relaxed) || self.watch.is(BLOCKED);
        if rx.take_wake_tx() || waiting {
            let mut tx = lock(&self.tx);
            self.flush_tx(&mut tx);
        }
        let failure = if self.failed.load(Ordering::Acquire) { lock(&self.tx).failure } else { None };
        match (ran, failure) {
            (Err(end), _) => self.tear_down(rx, end),
            (Ok(_), Some(failure)) => self.tear_down(rx, End::Sending(failure)),
            (Ok(ran), None) => self.watch.set(STALLED, ran == Ran::Stalled),
        }
    }

    /// Leaves the socket to a program that polls, if one does.
    fn lease(self: &Arc<Self>) -> bool {
        let polled = self.polled.load(Ordering::Relaxed);
        if self.polls.swap(0, Ordering::Relaxed) < BUSY_POLLS
            || polled == 0
            || now().saturating_sub(polled) > POLLING.as_nanos() as u64
        {
            return false;
        }
        let Some(engine) = self.watch.engine() else { return false };
        self.watch.set(LEASED, true);
        // The program may have gone to sleep in between, and then nobody serves it if not the engine.
        if self.polled.load(Ordering::SeqCst) == 0 {
            self.take_back();
            return false;
        }
        engine.lease(self.clone());
        true
    }

    /// Has the engine serve the socket again, if a program that polls did.
    fn take_back(self: &Arc<Self>) {
        if !self.watch.is(LEASED) {
            return;
        }
        // Under `tx`, as whoever posts decides there whether a poll will come to send what was posted.
        let mut tx = lock(&self.tx);
        self.watch.set(LEASED, false);
        if self.deferred.load(Ordering::Relaxed) {
            self.flush_tx(&mut tx);
        }
    }

    // ---- the end -------------------------------------------------------------------------------------------------------------------

    /// Ends the connection on behalf of the program: outstanding work requests complete with a flush error.
    pub(crate) fn disconnect(self: &Arc<Self>) {
        let mut rx = lock(&self.rx);
        self.tear_down(&mut rx, End::Local);
    }

    fn tear_down(self: &Arc<Self>, rx: &mut Rx, end: End) {
        if self.state.compare_exchange(READY, ERROR, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        log_end(self.num, &end);
        let mut terminate = None;
        let mut tx = lock(&self.tx);
        match end {
            End::Refused(message) => terminate = message,
            End::Terminated(message) => {
                if let (Some(status), Some((_, wr))) = (rx::status_of(&message), tx.sq.oldest_read()) {
                    wr.progress = Progress::Done(status);
                }
            }
            End::Sending(Failure::Request { position, status }) => {
                if let Some(wr) = tx.sq.at(position) {
                    wr.progress = Progress::Done(status);
                }
            }
            End::Sending(Failure::Response(code)) => {
                terminate = Some(iwarp::terminate::Terminate::new(code));
            }
            _ => {}
        }
        tx.sq.fail_all();
        tx.close(terminate);
        self.flush_tx(&mut tx);
        drop(tx);
        let current = rx.take_receive();
        let mut rq = lock(&self.rq);
        if let Some(wr) = current {
            rq.complete(self.flushed_receive(&wr));
        }
        rq.fail(|wr| self.flushed_receive(wr));
        rq.deliver(&self.recv_cq);
        drop(rq);
        rx.draining = true;
        self.take_back();
        self.watch.set(STALLED, false);
        let broken = matches!(end, End::PeerClosed | End::Socket(_) | End::Sending(Failure::Socket(_)));
        if broken || rx.drain() {
            self.let_go(rx);
        } else {
            // The peer reads what was sent before it sees the end; closing now could take that from it.
            self.linger();
        }
        if let Some(owner) = self.owner.get().and_then(Weak::upgrade) {
            owner.ended();
        }
    }

    fn linger(self: &Arc<Self>) {
        if let Some(engine) = self.watch.engine() {
            let source: Arc<dyn Source> = self.clone();
            engine.schedule(Duration::from_millis(LINGER_MS), &source);
        }
    }

    /// Closes the socket.
    fn let_go(&self, rx: &mut Rx) {
        self.watch.end();
        lock(&self.tx).disconnect();
        rx.socket = None;
    }

    /// Takes the queue pair out of service: nothing completes any more. A connection that is still up is closed.
    pub(crate) fn destroy(self: &Arc<Self>) {
        self.send_cq.detach(self);
        self.recv_cq.detach(self);
        let mut rx = lock(&self.rx);
        let before = self.state.swap(DESTROYED, Ordering::AcqRel);
        lock(&self.rq).discard();
        let mut tx = lock(&self.tx);
        tx.sq.discard();
        if before == READY {
            tx.close(None);
            self.flush_tx(&mut tx);
            rx.draining = true;
        }
        drop(tx);
        self.take_back();
        self.watch.set(STALLED, false);
        if before == READY && !rx.drain() {
            self.linger();
        } else if before == READY {
            self.let_go(&mut rx);
        }
        drop(rx);
        if let Some(srq) = &self.srq {
            srq.add_user(-1);
        }
    }
}

fn log_end(num: u32, end: &End) {
    match end {
        End::Local | End::PeerClosed => log::debug!("queue pair {num}: connection closed: {end:?}"),
        End::Terminated(message) => {
            log::warn!("queue pair {num}: the peer ended the connection: {}", rx::describe(message));
        }
        End::Refused(_) => log::warn!("queue pair {num}: connection ended because of what the peer sent"),
        End::Socket(e) => {
            log::warn!("queue pair {num}: connection lost: {}", std::io::Error::from_raw_os_error(*e));
        }
        End::Sending(failure) => log::warn!("queue pair {num}: connection ended: {failure:?}"),
    }
}

impl Source for Qp {
    fn ready(self: Arc<Self>, events: u32) {
        let ending = events & END_EVENTS != 0;
        if events != 0 && !ending && self.lease() {
            return;
        }
        if events & WRITE_EVENT != 0 {
            let mut tx = lock(&self.tx);
            self.flush_tx(&mut tx);
            drop(tx);
            if events == WRITE_EVENT {
                return;
            }
        }
        let mut rx = lock(&self.rx);
        if ending && self.stalled.load(Ordering::SeqCst) {
            self.tear_down(&mut rx, End::PeerClosed);
        }
        self.serve(&mut rx);
    }

    /// A time limit has come: for the peer's first FPDU, or for its end of a connection that is over.
    fn timeout(self: Arc<Self>) {
        let mut rx = lock(&self.rx);
        if rx.draining {
            self.let_go(&mut rx);
        } else if rx.awaiting_first {
            self.tear_down(&mut rx, End::Socket(libc::ETIMEDOUT));
        }
    }

    fn is_polled(&self) -> bool {
        now().saturating_sub(self.polled.load(Ordering::Relaxed)) < POLLED.as_nanos() as u64
    }

    fn end_lease(self: Arc<Self>) {
        self.take_back();
    }
}

impl std::fmt::Debug for Qp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qp").field("num", &self.num).finish_non_exhaustive()
    }
}

/// Whether the settings ask for a CRC on every connection.
pub(crate) fn wants_crc() -> bool {
    config::get().crc
}
