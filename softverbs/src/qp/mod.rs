// SPDX-License-Identifier: BSD-3-Clause
//! Queue pairs: one reliable connection each, from the first posted receive to the last completion.
//!
//! Three threads may move the bytes of a queue pair: one that posts (sends at once what the socket takes), one that polls its completion
//! queue (receives and sends), and the engine (both, when nobody polls). While a program polls, it holds a *lease*: the engine stops
//! watching the socket, so that no thread switch and no contention stands between the socket and the poller; it takes over again within
//! two milliseconds of the last poll, and at once when the program arms its queue to sleep.
//!
//! Locks, in this order: `rx`, `tx`, `rq`, then the leaves (`interest`, completion ring, channel). The end of a connection is decided
//! under `rx` alone, once; a poster or the sending half that meets an error leaves it in `tx.failure` and has the engine look.
#![forbid(unsafe_code)]

pub(crate) mod receive;
pub(crate) mod rx;
pub(crate) mod send;
pub(crate) mod tx;

use once_cell::sync::Lazy;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::cq::{Completion, Cq, status};
use crate::engine::{Engine, Source};
use crate::limits::{FIRST_FPDU_TIMEOUT_S, LINGER_MS, RX_BUDGET};
use crate::sys::{self, Errno};
use crate::wire::stream;
use crate::{config, lock};
use receive::{PostError, RecvQueue, RecvWr, Srq};
use rx::{End, Ran, Rx};
use send::{Progress, Wr};
use tx::{Failure, Flushed, Link, Tx};

/// The last four bytes of an Immediate Data message that belongs to the Send after it. The standard knows immediate data only as a
/// message of its own (it completes a receive); verbs know a Send with immediate data, which completes one receive and not two.
/// Adapters leave these bytes zero.
pub(crate) const IMMEDIATE_OF_SEND: [u8; 4] = *b"Send";

/// A poll this recent means that the program is polling.
const POLLING: Duration = Duration::from_micros(50);
/// A poll this old means that the program has stopped.
const POLLED: Duration = Duration::from_micros(500);

const READ_EVENTS: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
const WRITE_EVENT: u32 = libc::EPOLLOUT as u32;
const END_EVENTS: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;

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

/// What the engine watches the socket for.
#[derive(Default)]
struct Interest {
    engine: Option<(Arc<Engine>, u64, i32)>,
    watched: u32,
    leased: bool,
    stalled: bool,
    blocked: bool,
}

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
    /// The peer announced to send the first FPDU: nothing goes out before.
    pub peer_speaks_first: bool,
    /// We announced it.
    pub speak_first: bool,
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
    interest: Mutex<Interest>,
    owner: OnceLock<Weak<dyn Owner>>,
    wait_for_receives: AtomicBool,
    /// The receiving half waits for a receive.
    stalled: AtomicBool,
    /// Requests wait for the next post or poll, to go out with what that brings; changed under `tx` only.
    deferred: AtomicBool,
    /// When a program that does not wait for events last polled, in nanoseconds since [`now`]'s beginning; 0: never.
    polled: AtomicU64,
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
            interest: Mutex::default(),
            owner: OnceLock::new(),
            wait_for_receives: AtomicBool::new(true),
            stalled: AtomicBool::new(false),
            deferred: AtomicBool::new(false),
            polled: AtomicU64::new(0),
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
        let _ = self.owner.set(connection.owner);
        self.wait_for_receives.store(connection.wait_for_receives, Ordering::Relaxed);
        let token = connection.token.unwrap_or_else(|| engine.token());
        let mut rx = lock(&self.rx);
        if self.state.compare_exchange(INIT, READY, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Err(libc::EISCONN);
        }
        rx.connect(socket.clone(), connection.crc, &connection.early, connection.peer_speaks_first);
        *lock(&self.interest) = Interest {
            engine: Some((engine.clone(), token, fd)),
            watched: READ_EVENTS,
            ..Interest::default()
        };
        let watched = match connection.token {
            Some(token) => engine.replace(token, fd, READ_EVENTS, self.clone()),
            None => engine.add(token, fd, READ_EVENTS, self.clone()),
        };
        if let Err(e) = watched {
            self.tear_down(&mut rx, End::Socket(e));
            return Err(e);
        }
        let mut tx = lock(&self.tx);
        tx.connect(Link {
            socket,
            crc: connection.crc,
            mulpdu: stream::mulpdu(usize::try_from(mss).unwrap_or(0)),
            ord: connection.ord,
            hold: connection.peer_speaks_first,
        });
        if connection.speak_first {
            tx.queue_ready_to_receive();
        }
        self.flush_tx(&mut tx);
        drop(tx);
        drop(rx);
        if connection.peer_speaks_first {
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
            _ => Ok(Posting { qp: self, tx, urgent: false }),
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
        let engine = lock(&self.interest).engine.as_ref().map(|(engine, _, _)| engine.clone());
        if let Some(engine) = engine {
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

    /// The peer has spoken, as it announced: now we may, too.
    pub(crate) fn first_fpdu(&self) {
        let mut tx = lock(&self.tx);
        tx.release();
        self.flush_tx(&mut tx);
        drop(tx);
        if let Some(owner) = self.owner.get().and_then(Weak::upgrade) {
            owner.established();
        }
    }

    // ---- moving bytes --------------------------------------------------------------------------------------------------------------

    /// Sends what can be sent, and has the engine watch for room when the socket is full, or look at what went wrong.
    fn flush_tx(&self, tx: &mut MutexGuard<'_, Tx>) -> Flushed {
        self.deferred.store(false, Ordering::Relaxed);
        let flushed = tx.flush(&self.send_cq, self.num);
        let mut interest = lock(&self.interest);
        let blocked = flushed == Flushed::Blocked;
        if interest.blocked != blocked {
            interest.blocked = blocked;
            interest.apply();
        }
        flushed
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
        }
        if let Ok(mut rx) = self.rx.try_lock() {
            self.serve(&mut rx);
        }
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
        let mut failure = None;
        let waiting = self.deferred.load(Ordering::Relaxed) || lock(&self.interest).blocked;
        if rx.take_wake_tx() || waiting {
            let mut tx = lock(&self.tx);
            self.flush_tx(&mut tx);
        }
        if ran.is_ok() {
            failure = lock(&self.tx).failure;
        }
        match (ran, failure) {
            (Err(end), _) => self.tear_down(rx, end),
            (Ok(_), Some(failure)) => self.tear_down(rx, End::Sending(failure)),
            (Ok(ran), None) => self.watch_stalled(ran == Ran::Stalled),
        }
    }

    fn watch_stalled(&self, stalled: bool) {
        let mut interest = lock(&self.interest);
        if interest.stalled != stalled {
            interest.stalled = stalled;
            interest.apply();
        }
    }

    /// Leaves the socket to a program that polls, if one does.
    fn lease(self: &Arc<Self>) -> bool {
        let polled = self.polled.load(Ordering::Relaxed);
        if polled == 0 || now().saturating_sub(polled) > POLLING.as_nanos() as u64 {
            return false;
        }
        let mut interest = lock(&self.interest);
        interest.leased = true;
        interest.apply();
        let engine = interest.engine.as_ref().map(|(engine, _, _)| engine.clone());
        drop(interest);
        if let Some(engine) = engine {
            engine.lease(self.clone());
        }
        true
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
                terminate = Some(crate::wire::terminate::Terminate::new(code));
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
        self.end_lease();
        self.watch_stalled(false);
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
        let engine = lock(&self.interest).engine.as_ref().map(|(engine, _, _)| engine.clone());
        if let Some(engine) = engine {
            let source: Arc<dyn Source> = self.clone();
            engine.schedule(Duration::from_millis(LINGER_MS), &source);
        }
    }

    /// Closes the socket.
    fn let_go(&self, rx: &mut Rx) {
        let engine = lock(&self.interest).engine.take();
        if let Some((engine, token, fd)) = engine {
            engine.remove(token, fd);
        }
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
        self.end_lease();
        self.watch_stalled(false);
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

impl Interest {
    /// Tells the engine what to watch for, if that has changed.
    fn apply(&mut self) {
        let mut wanted = if self.stalled { libc::EPOLLRDHUP as u32 } else { READ_EVENTS };
        if self.blocked {
            wanted |= WRITE_EVENT;
        }
        if self.leased {
            wanted = 0;
        }
        if let Some((engine, token, fd)) = &self.engine
            && wanted != self.watched
            && engine.watch(*token, *fd, wanted).is_ok()
        {
            self.watched = wanted;
        }
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

    fn end_lease(&self) {
        if !lock(&self.interest).leased {
            return;
        }
        // Under `tx`, as whoever posts decides there whether a poll will come to send what was posted.
        let mut tx = lock(&self.tx);
        {
            let mut interest = lock(&self.interest);
            interest.leased = false;
            interest.apply();
        }
        if self.deferred.load(Ordering::Relaxed) {
            self.flush_tx(&mut tx);
        }
    }
}

/// Unsignalled requests of one small write each that may wait for the next post or poll.
const MAX_DEFERRED: u32 = 16;
/// What is small: a write that costs less to copy than to send on its own.
const SMALL: u32 = 4096;

/// Work requests on their way into the send queue; sent when dropped.
///
/// Small unsignalled writes of a program that polls are sent with the next post or poll, in one call and mostly in one TCP segment; the
/// end of the lease sends them, too. So they are at most as late as the engine is in noticing that the program has stopped polling.
pub(crate) struct Posting<'a> {
    qp: &'a Arc<Qp>,
    tx: MutexGuard<'a, Tx>,
    urgent: bool,
}

impl Posting<'_> {
    /// Adds one request; ENOMEM when the queue is full.
    pub(crate) fn post(&mut self, wr: Wr) -> Result<(), Errno> {
        self.urgent |= wr.signaled || wr.len > SMALL || wr.op != send::Op::Write;
        if self.tx.sq.post(wr) {
            return Ok(());
        }
        // Requests that were only deferred still have their places.
        if self.qp.deferred.load(Ordering::Relaxed) {
            self.qp.flush_tx(&mut self.tx);
            if self.tx.sq.post(wr) {
                return Ok(());
            }
        }
        Err(libc::ENOMEM)
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        if self.qp.state.load(Ordering::Acquire) != READY {
            self.tx.sq.fail_all();
            self.tx.sq.retire(&self.qp.send_cq, self.qp.num);
            return;
        }
        let (blocked, leased) = {
            let interest = lock(&self.qp.interest);
            (interest.blocked, interest.leased)
        };
        // A full socket is watched by the engine, or asked by the poller; asking it again would only cost a call.
        if blocked {
            return;
        }
        if leased && !self.urgent && self.tx.sq.waiting() < MAX_DEFERRED {
            self.qp.deferred.store(true, Ordering::Relaxed);
            return;
        }
        if self.qp.flush_tx(&mut self.tx) == Flushed::Failed {
            self.qp.kick();
        }
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
