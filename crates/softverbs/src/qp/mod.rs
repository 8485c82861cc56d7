// SPDX-License-Identifier: BSD-3-Clause
//! Queue pairs: a connection, its turn, and the rings that the program posts to.
//!
//! Everything that happens to a connection is a reason to drive it. A thread with a reason (it posts, polls,
//! sleeps for completions, or is the engine) tries to take the turn ([`crate::progress::turn`]). With the
//! turn it steps the connection ([`transport::iwarp::conn`]) until nothing is left to do. The lock of the
//! session gives safe code access; which thread may take it, the turn decides.
#![forbid(unsafe_code)]

mod direct;
mod driver;
mod linked;
pub(crate) mod modify;
pub(crate) mod numbers;
mod posting;
mod state;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt::Write;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::clock::now;
use crate::cq::{Cq, Producer};
use crate::instrument::{Instruments, Settings};
use crate::link::{Arrived, Driver, Link, Local, Rings};
use crate::memory::Batch;
use crate::policy::Policy;
use crate::policy::coalesce::Coalescer;
use crate::policy::poller::Poller;
use crate::policy::words::Words;
use crate::progress::engine::Engine;
use crate::progress::ring::Ring;
use crate::progress::seen::Version;
use crate::progress::source::Source;
use crate::progress::turn::{REASONS, Turn};
use crate::progress::watch::{PeerNotify, Watch};
use crate::progress::{By, Driven};
use crate::socket::Socket;
use crate::srq::SharedSrq;
use crate::sys::{self, Errno, Process};
use crate::{config, fork, lock, probes};
use driver::{End, Session};
use linked::Transport;
use log::Level;
use state::Current;
pub(crate) use state::State;
use transport::access::Accessor;
use transport::host::Ending;
use transport::iwarp::conn::{Framing, Role, Terms};
use transport::iwarp::wire::stream;
use transport::roce::cm;
use transport::roce::rc::RNR_UNLIMITED;
use transport::step::reason;
use transport::wr::{RecvWr, SendWr};

const _: () = assert!(reason::ALL & !REASONS == 0);

/// Observes the beginning and the end of a connection.
pub(crate) trait ConnObserver: Send + Sync {
    /// The connection can be used.
    fn established(&self);
    /// The connection has ended; called once.
    fn ended(&self);
    /// A fault cuts the connection as if the process of the peer had been killed. The end follows.
    fn cut(&self) {}
}

/// Asynchronous events of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsyncEvent {
    /// Its connection has failed (IBV_EVENT_QP_FATAL).
    Failed,
    /// An access of the peer was refused (IBV_EVENT_QP_ACCESS_ERR).
    AccessRefused,
    /// Another request of the peer was refused (IBV_EVENT_QP_REQ_ERR).
    RequestRefused,
    /// The first request of the peer has arrived in RTR (IBV_EVENT_COMM_EST).
    Established,
    /// Every request that was begun before SQD has completed (IBV_EVENT_SQ_DRAINED).
    Drained,
    /// It takes no more receives from its shared receive queue (IBV_EVENT_QP_LAST_WQE_REACHED).
    LastReceiveTaken,
    /// One of its completion queues, which has this handle, was overrun (IBV_EVENT_CQ_ERR).
    Overrun(usize),
}

type OnAsyncEvent = Box<dyn Fn(AsyncEvent) + Send + Sync>;
/// Carries out the transitions to RTS.
pub(crate) type OnTerms = Box<dyn Fn(&cm::Terms) -> Result<(), Errno> + Send + Sync>;

/// The type of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram, over RoCE only.
    Ud,
}

/// The parameters of a new queue pair.
pub(crate) struct Attributes {
    pub kind: Kind,
    pub num: u32,
    pub pd: u32,
    pub send_cq: Arc<Cq>,
    pub recv_cq: Arc<Cq>,
    pub srq: Option<SharedSrq>,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    /// Scatter/gather entries that a request may have.
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub signal_all: bool,
    pub instruments: Settings,
}

/// A TCP connection that is ready for FPDUs.
pub(crate) struct Stream {
    pub socket: Socket,
    /// Shared memory of the two ends, if both are on this host and have agreed to use it.
    pub rings: Option<Rings>,
    pub crc: bool,
    /// ORD: how many reads and atomic operations the peer accepts at a time.
    pub ord: u32,
    pub role: Role,
    /// Bytes received after the peer's MPA frame.
    pub early: Vec<u8>,
    /// The RNR retry count. With [`RNR_UNLIMITED`] a message waits for a receive; otherwise a message without
    /// one ends the connection, unless an instrument repeats it.
    pub rnr_retry: u8,
    pub peer: SocketAddr,
    pub observer: Weak<dyn ConnObserver>,
}

/// Completed flushes to persistence.
#[derive(Default)]
struct Flushed {
    /// How often the queue pair was reset: the numbers of flushes begin again then.
    resets: u64,
    /// By number, and whether they succeeded.
    results: Vec<(u64, bool)>,
}

pub(crate) struct Qp {
    this: Weak<Self>,
    /// [`fork::generation`] of its process.
    generation: u32,
    pub(crate) kind: Kind,
    pub(crate) num: u32,
    /// The address of the remote peer, once connected.
    peer: Mutex<Option<SocketAddr>>,
    pd: u32,
    send_cq: Producer,
    recv_cq: Producer,
    pub(crate) srq: Option<SharedSrq>,
    max_send_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) signal_all: bool,
    state: Current,
    is_roce: bool,
    /// Over RoCE: packets for the connection.
    arrived: Arc<Arrived>,
    turn: Turn,
    /// The send queue. The entry of an unsignalled request is free when the connection has completed it, that
    /// of a signalled one when its completion was polled: a program whose completion queue is as long as its
    /// send queue can never overrun it.
    sends: Arc<Ring<SendWr>>,
    receives: Ring<RecvWr>,
    pub(crate) instruments: Instruments,
    coalescer: Coalescer,
    poller: Poller,
    session: Mutex<Session>,
    flushed: Mutex<Flushed>,
    engine: OnceLock<Arc<Engine>>,
    watch: OnceLock<Arc<Watch>>,
    /// The memory that it shares with its peer; a poll checks it first, and keeps a copy.
    peer_notify: Mutex<Option<Weak<dyn PeerNotify>>>,
    /// The version of `peer_notify`.
    peer_notify_version: Version,
    /// Posts try the fast path: the link copies directly, and there are no instruments.
    tries_direct: AtomicBool,
    words: Words,
    observer: Mutex<Option<Weak<dyn ConnObserver>>>,
    on_async_event: OnceLock<OnAsyncEvent>,
    /// Over RoCE: moves it to RTS for rdma_cm.
    on_terms: OnceLock<OnTerms>,
    /// The observer that rdma_cm has given it.
    held: Mutex<Option<Arc<dyn ConnObserver>>>,
    /// Reported by ibv_query_qp(3); has no effect.
    ack_timeout: AtomicU8,
}

impl Qp {
    /// ENOMEM.
    pub(crate) fn new(attributes: Attributes) -> Result<Arc<Self>, Errno> {
        let Attributes { kind, num, pd, send_cq, recv_cq, srq, max_send_wr, max_recv_wr, .. } = attributes;
        let Attributes { max_send_sge, max_recv_sge, signal_all, instruments, .. } = attributes;
        let transport = Transport::new(kind, num, max_send_wr, srq.is_none())?;
        let is_roce = !matches!(transport, Transport::Iwarp(_));
        let (sends, receives) = (Arc::new(Ring::new(max_send_wr)?), Ring::new(max_recv_wr)?);
        let session = Session { transport, batch: Batch::new()?, process: Process::own(), timer: None };
        let instruments = Instruments::new(Accessor { pd, qp: num }, max_send_wr, instruments);
        let send_cq = Producer::new(send_cq, Some(sends.clone()), instruments.observer())?;
        let recv_cq = Producer::new(recv_cq, None, instruments.observer())?;
        let policy = config::get().policy;
        let qp = Arc::new_cyclic(|this: &Weak<Self>| Self {
            this: this.clone(),
            generation: fork::generation(),
            kind,
            num,
            peer: Mutex::default(),
            pd,
            send_cq,
            recv_cq,
            srq,
            max_send_wr,
            max_send_sge,
            max_recv_sge,
            signal_all,
            state: Current::new(),
            is_roce,
            arrived: Arc::default(),
            turn: Turn::new(),
            sends,
            receives,
            instruments,
            coalescer: Coalescer::new(policy),
            poller: Poller::new(policy),
            session: Mutex::new(session),
            flushed: Mutex::default(),
            engine: OnceLock::new(),
            watch: OnceLock::new(),
            peer_notify: Mutex::default(),
            peer_notify_version: Version::new(),
            tries_direct: AtomicBool::new(false),
            words: Words::new(policy),
            observer: Mutex::default(),
            on_terms: OnceLock::new(),
            held: Mutex::default(),
            on_async_event: OnceLock::new(),
            ack_timeout: AtomicU8::new(0),
        });
        qp.send_cq.attach(qp.clone())?;
        if !std::ptr::eq(&*qp.send_cq, &*qp.recv_cq) {
            qp.recv_cq.attach(qp.clone()).inspect_err(|_| qp.send_cq.detach(&*qp))?;
        }
        if let Some(srq) = &qp.srq {
            srq.add_user(1);
        }
        Ok(qp)
    }

    /// Moves an unconnected queue pair between RESET and INIT. In RESET it has no receives.
    pub(crate) fn set_init(&self, init: bool) {
        let (from, to) = if init { (State::Reset, State::Init) } else { (State::Init, State::Reset) };
        let _session = lock(&self.session);
        let moved = self.state.advance(&[from], to);
        if moved && !init {
            // Without a connection no driver takes them.
            while self.receives.pop().is_some() {}
        }
    }

    /// Whether it is in the state RESET, in which it accepts no work requests, not even receives.
    #[inline]
    pub(crate) fn is_reset(&self) -> bool {
        self.state.is_reset()
    }

    /// Starts the connection. After any error the queue pair is in the state of one whose connection has
    /// ended.
    pub(crate) fn connect(&self, stream: Stream) -> Result<(), Errno> {
        if !self.state.advance(&[State::Reset, State::Init], State::Rts) {
            return Err(libc::EISCONN);
        }
        *lock(&self.observer) = Some(stream.observer.clone());
        // A poll for another connection of the completion queue may already drive this one. With the reason
        // it steps once more.
        let opened = self.open(&mut lock(&self.session), stream);
        self.drive(reason::READABLE, By::Program);
        opened
    }

    fn open(&self, session: &mut Session, stream: Stream) -> Result<(), Errno> {
        *lock(&self.peer) = Some(stream.peer);
        let mss = sys::get_option::<i32>(stream.socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG)
            .unwrap_or(1448);
        let mss = usize::try_from(mss).unwrap_or(0);
        let shared = stream.rings.is_some();
        let link = self.link_driver().and_then(|driver| Link::open(stream.socket, stream.rings, driver));
        self.instruments.connects(stream.peer);
        let repeats = self.instruments.repeats(stream.rnr_retry);
        let Transport::Iwarp(iwarp) = &mut session.transport else { return Err(libc::EOPNOTSUPP) };
        let opened = match link {
            Ok(link) => {
                let framing = Framing {
                    crc: stream.crc,
                    mulpdu: stream::mulpdu(mss),
                    // A peer that checks CRCs is an adapter, which is faster with whole FPDUs in each
                    // segment, or a kernel, which ends a connection whose CRC field lies in two segments.
                    segment: stream.crc.then_some(mss),
                    ord: stream.ord,
                };
                let transfers = link.local().is_some_and(Local::transfers);
                let terms = Terms {
                    framing,
                    role: stream.role,
                    wait_for_receives: repeats || stream.rnr_retry >= RNR_UNLIMITED,
                    early: &stream.early,
                    transfers,
                };
                let opened = iwarp.conn.open(terms, now());
                match opened {
                    Ok(()) => {
                        probes::connect(self.num, shared);
                        let is_direct = transfers && self.instruments.present().is_none();
                        self.tries_direct.store(is_direct, Ordering::Relaxed);
                        self.set_peer_notify(link.peer_notify());
                        iwarp.link = Some(link);
                    }
                    Err(_) => link.close(None),
                }
                opened
            }
            Err(e) => Err(e),
        };
        opened.inspect_err(|&e| self.end(session, End::Lost(e)))
    }

    /// What drives the connection over a link with a socket of its own. The session must be locked.
    /// ECONNABORTED: the queue pair has been destroyed. EMFILE, ENOMEM.
    fn link_driver(&self) -> Result<Driver, Errno> {
        if self.turn.is_closed() {
            return Err(libc::ECONNABORTED);
        }
        let engine = Engine::get()?;
        let watch = self.recv_cq.home(&engine)?;
        let engine = self.engine.get_or_init(|| engine).clone();
        let watch = self.watch.get_or_init(|| {
            self.send_cq.use_watch(&watch);
            watch
        });
        let watch = watch.clone();
        let connection = self.this.upgrade().ok_or(libc::EINVAL)?;
        let instruments = self.instruments.clone();
        Ok(Driver { watch, engine, accessor: self.accessor(), connection, instruments })
    }

    fn set_peer_notify(&self, memory: Option<Weak<dyn PeerNotify>>) {
        *lock(&self.peer_notify) = memory;
        self.peer_notify_version.changed();
    }

    fn peer_notify(&self) -> Option<Arc<dyn PeerNotify>> {
        lock(&self.peer_notify).as_ref().and_then(Weak::upgrade)
    }

    /// For access checks: its protection domain and number.
    fn accessor(&self) -> Accessor {
        Accessor { pd: self.pd, qp: self.num }
    }

    /// Sets what is called with asynchronous events; only once.
    pub(crate) fn set_on_async_event(&self, raise: OnAsyncEvent) {
        let _ = self.on_async_event.set(raise);
    }

    /// Sets what moves the queue pair to RTS for rdma_cm; only once.
    pub(crate) fn set_on_terms(&self, on_terms: OnTerms) {
        let _ = self.on_terms.set(on_terms);
    }

    /// Connects the queue pair for rdma_cm, over RoCE. EOPNOTSUPP: over iWARP. Errors of the transitions.
    pub(crate) fn follow(&self, terms: &cm::Terms, observer: Arc<dyn ConnObserver>) -> Result<(), Errno> {
        let on_terms = self.on_terms.get().ok_or(libc::EOPNOTSUPP)?;
        *lock(&self.observer) = Some(Arc::downgrade(&observer));
        *lock(&self.held) = Some(observer);
        on_terms(terms)
    }

    /// Whether this process is a child, forked after the queue pair was created.
    #[inline]
    fn is_left_behind(&self) -> bool {
        self.generation != fork::generation()
    }

    /// What observes the connection.
    fn observer(&self) -> Option<Arc<dyn ConnObserver>> {
        lock(&self.observer).as_ref().and_then(Weak::upgrade)
    }

    /// Keeps RDMA_OPTION_ID_ACK_TIMEOUT of the identifier for [`Self::ack_timeout`].
    pub(crate) fn set_ack_timeout(&self, timeout: u8) {
        self.ack_timeout.store(timeout, Ordering::Relaxed);
    }

    pub(crate) fn ack_timeout(&self) -> u8 {
        self.ack_timeout.load(Ordering::Relaxed)
    }

    /// A connection that has ended, and one that ends, is in ERR.
    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    /// Posts a receive; ENOMEM when the queue is full.
    pub(crate) fn post_receive(&self, wr: RecvWr) -> Result<(), Errno> {
        probes::post_recv(self.num, wr.wr_id);
        self.receives.push(wr).map_err(|_| libc::ENOMEM)?;
        self.instruments.receive_posted();
        if self.turn.awaits_receive() {
            self.drive(reason::RECEIVE, By::Program);
        }
        Ok(())
    }

    /// Ends the connection on behalf of the program: outstanding work requests complete with a flush error.
    pub(crate) fn disconnect(&self) {
        self.instruments.disconnects();
        if self.is_roce {
            // From any state of a queue pair that is connected without rdma_cm; what is posted from now on is
            // flushed.
            self.state.fail();
        }
        self.drive(reason::DISCONNECT, By::Program);
    }

    /// Over RoCE: waits until a step in progress has ended, and so has sent the acknowledgements of the
    /// requests that it has completed. Not for the engine.
    pub(crate) fn finish_step(&self) {
        if self.is_roce {
            drop(lock(&self.session));
        }
    }

    /// Logs why the connection ends, and keeps the text for threads that poll its completions.
    #[cold]
    fn report_ending(&self, ending: Ending<'_>) {
        let (peer, num) = (*lock(&self.peer), self.num);
        let Ending { failed, is_failure, why, .. } = ending;
        let mut text = match peer {
            Some(peer) => format!("{peer} (queue pair {num}): "),
            None => format!("queue pair {num}: "),
        };
        // Writing to a String does not fail.
        let _ = match failed {
            Some((wr, status)) => write!(text, "{wr}, failed: {}; {why}", rdma_sys::wc_status_text(status)),
            None => write!(text, "{why}"),
        };
        let level = if is_failure { Level::Warn } else { Level::Debug };
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
        let (operation, errno) = (ending.operation.unwrap_or_default(), ending.errno.unwrap_or(0));
        log::log!(level, connection = num, peer:% = peer, operation, errno; "{text}");
        for cq in [&self.send_cq, &self.recv_cq] {
            cq.note_ending(num, &text, is_failure, failed.map(|(wr, _)| wr.wr_id));
        }
    }

    /// Whether the program has destroyed the queue pair.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.state.is_destroyed()
    }

    /// Destroys the queue pair: nothing completes any more. An open connection is closed.
    pub(crate) fn destroy(&self) {
        self.state.destroy();
        self.instruments.destroyed();
        self.turn.close();
        // A step in progress is finished; no other one begins.
        let mut session = lock(&self.session);
        self.end(&mut session, End::Destroyed);
        if let Some(packets) = session.transport.packets() {
            *packets = None;
            if self.kind == Kind::Ud {
                crate::port::detach_from_groups(self.num);
            }
            crate::port::release_number(self.num);
        }
        drop(session);
        // Not before: a step in progress adds completions, and the program may destroy an unused queue.
        self.send_cq.detach(self);
        self.recv_cq.detach(self);
        if let Some(watch) = self.watch.get() {
            self.send_cq.release_watch(watch);
        }
        if let Some(srq) = &self.srq {
            srq.add_user(-1);
        }
    }
}

impl Source for Qp {
    /// Never called: the engine has only timers of a queue pair.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        self.drive(reason::TIME, By::Engine);
    }
}

impl std::fmt::Debug for Qp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qp").field("num", &self.num).finish_non_exhaustive()
    }
}
