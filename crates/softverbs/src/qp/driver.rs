// SPDX-License-Identifier: BSD-3-Clause
//! Driving a connection: the loop around its steps, the session that a step holds, and the host that the
//! connection calls. With instruments these calls pass through their host ([`Instrumented`]); without them it
//! is the connection that calls [`Host`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::linked::{Linked, QpLink, Transport};
use super::{AsyncEvent, Kind, Qp, State};
use crate::clock::now;
use crate::cq::Cq;
use crate::instrument::{Exposed, Instrumented, Queue, Stepping};
use crate::link::{Link, Local, Packets};
use crate::memory::{self, Batch};
use crate::policy::poller;
use crate::port;
use crate::progress::source::Source;
use crate::progress::timers::Timer;
use crate::progress::turn::{Entry, Left};
use crate::progress::{By, Driven, Outstanding, SeenMemory};
use crate::sys::{Errno, Process};
use crate::{lock, probes};
use transport::access::{Access, Bind, Denied, Unchanged, Unreachable};
use transport::direct::{DirectAccess, Part, WordAccess};
use transport::host::{self, Durable, Ended, Ending, Served};
use transport::iwarp::link::{LinkError, StreamLink};
use transport::roce::link::{Dropped, PacketLink, Payload};
use transport::roce::rc::Rc;
use transport::route::Route;
use transport::step::{Awaits, Budget, Connection, Quota, Stepped, reason};
use transport::units::Micros;
use transport::wr::{Completion, RecvWr, SendWr};

/// The budget of the engine for a connection, in each direction, before it serves the next one: bytes, and
/// segments and requests. The kernel takes 0.6 us for an aligned 8-byte write, so a peer that floods the
/// connection with them gets 150 us.
const ENGINE_BYTES: usize = 1 << 20;
const ENGINE_OPERATIONS: usize = 256;
/// The budget of a call of the program for a connection, in each direction, before it leaves the rest to the
/// engine: about 100 us of bytes, or a millisecond of small operations, for which waking the engine would
/// cost the program more.
const PROGRAM_BYTES: usize = 512 << 10;
const PROGRAM_OPERATIONS: usize = 1024;
/// Steps that a call of the program performs for reasons that other threads have left, before it leaves them
/// to the engine.
const PROGRAM_ROUNDS: u32 = 8;

impl Driven for Qp {
    fn drive(&self, reasons: u32, by: By) -> bool {
        self.run(Entry::Reasons(reasons), by)
    }

    fn poll(&self, memory: &mut SeenMemory) -> bool {
        // Most polls of a program that spins find nothing, which a few words show.
        if self.turn.is_at_rest() && self.has_nothing_to_receive(memory) {
            return true;
        }
        self.run(Entry::Reasons(reason::READABLE | reason::WRITABLE), By::Poller)
    }

    fn drive_listed(&self) {
        self.run(Entry::Listed, By::Engine);
    }

    fn drive_deferred(&self) {
        if self.turn.has_just(reason::AGAIN) && self.poller.will_return() {
            // The turn keeps LATER, and the list its entry: the engine checks again.
            self.list(true);
        } else {
            self.run(Entry::Deferred, By::Engine);
        }
    }

    fn outstanding(&self, cq: usize) -> Outstanding {
        if self.recv_cq.is_at(cq) && self.may_receive() {
            return Outstanding::Completion;
        }
        if !self.send_cq.is_at(cq) {
            return Outstanding::Nothing;
        }
        self.instruments.outstanding()
    }

    fn flush_deferred(&self) {
        if self.turn.is_deferred() {
            self.drive(reason::POSTED, By::Program);
        }
    }
}

impl Qp {
    /// Whether a receive is outstanding: posted, or taken by a message that has not arrived as a whole.
    fn may_receive(&self) -> bool {
        // A receive goes from the ring to the connection only in a step, in which the session is locked.
        let Ok(session) = self.session.try_lock() else { return true };
        self.srq.is_some() || self.receives.has_value() || session.transport.conn().has_receive()
    }

    /// Whether nothing has arrived, as far as shared memory shows it without a system call.
    fn has_nothing_to_receive(&self, memory: &mut SeenMemory) -> bool {
        if self.engine.get().is_none() {
            // It has had no connection yet.
            return true;
        }
        let memory = memory.latest(&self.peer_notify_version, || self.peer_notify());
        let is_idle = match memory {
            Some(open) if !open.is_closed() => open.is_idle(),
            closed => {
                *closed = None;
                self.is_roce
            }
        };
        is_idle && self.arrived.is_empty()
    }

    /// Steps the connection until nothing is left to do, unless another thread has the turn. Returns whether
    /// this one had it.
    pub(super) fn run(&self, entry: Entry, by: By) -> bool {
        // In a child, another thread of the parent may hold a lock that this would take.
        if self.is_left_behind() {
            return false;
        }
        // For all rounds together.
        let mut quota = match by {
            By::Engine => Quota { bytes: ENGINE_BYTES, operations: ENGINE_OPERATIONS },
            _ => Quota { bytes: PROGRAM_BYTES, operations: PROGRAM_OPERATIONS },
        };
        // Before the first connection there is no engine to leave work to.
        let rounds = if self.engine.get().is_some() { PROGRAM_ROUNDS } else { u32::MAX };
        let mut worked = false;
        let step = |why| {
            let mut session = lock(&self.session);
            if self.turn.is_closed() {
                return None;
            }
            let stepped = self.step(&mut session, why, Budget { send: quota, receive: quota });
            quota.charge(stepped.operations, stepped.moved);
            worked |= stepped.moved > 0 || stepped.operations > 0;
            let again = if stepped.again { reason::AGAIN } else { 0 };
            Some(Left { again, stalled: stepped.awaits == Awaits::Receive })
        };
        // A shared receive queue has a list of the connections that wait for it.
        let has_receive = || self.srq.is_none() && self.receives.has_value();
        // A program that polls will poll again. An engine that took over would compete with it, for the turn
        // and maybe for the processor.
        let later = by == By::Poller;
        let driven = self.turn.drive(entry, rounds, later, reason::RECEIVE, step, has_receive);
        let Some(left) = driven else { return false };
        if left {
            self.list(later);
        }
        if by == By::Poller {
            self.poller.polled();
            if let Some(watch) = self.watch.get().filter(|_| worked) {
                watch.polled();
            }
        }
        true
    }

    /// Puts the connection on the engine's run list or, if `later`, on that of deferred connections. The turn
    /// has shown that it is not on it.
    fn list(&self, later: bool) {
        if let (Some(engine), Some(this)) = (self.engine.get(), self.this.upgrade()) {
            if later {
                engine.list_later(this, poller::INTERVAL);
            } else {
                engine.list(this);
            }
        }
    }

    fn step(&self, session: &mut Session, why: u32, budget: Budget) -> Stepped {
        let Session { transport, batch, process, timer } = session;
        let world = (batch, *process);
        if why & reason::TIME != 0 {
            // It has expired.
            *timer = None;
        }
        let (stepped, deadline) = match transport {
            Transport::Iwarp(iwarp) => self.step_linked(iwarp, world, why, budget),
            Transport::Roce(roce) => {
                let has_news = roce.link.as_ref().is_some_and(Packets::has_news);
                let moved = if has_news { self.negotiate(roce) } else { 0 };
                let why = self.without_stale(why) | moved;
                let (stepped, deadline) = self.step_linked(roce, world, why, budget);
                self.note_drained(roce.conn.has_drained());
                (stepped, deadline)
            }
            Transport::Unreliable(unreliable) => {
                let stepped = self.step_linked(unreliable, world, self.without_stale(why), budget);
                self.note_drained(unreliable.conn.has_drained());
                stepped
            }
            Transport::Datagrams(datagrams) => {
                let stepped = self.step_linked(datagrams, world, self.without_stale(why), budget);
                self.note_drained(datagrams.conn.has_drained());
                stepped
            }
        };
        let Some(deadline) = deadline else {
            *timer = None;
            return stepped;
        };
        let is_timed = timer.as_ref().is_some_and(|(at, _)| *at <= deadline);
        if let (false, Some(engine)) = (is_timed, self.engine.get()) {
            if let Some(source) = self.this.upgrade() {
                let source: Arc<dyn Source> = source;
                let delay = Duration::from_micros(deadline.saturating_sub(now()));
                *timer = Some((deadline, engine.schedule(delay, &source)));
            }
        }
        stepped
    }

    /// Moves the packets to memory that is shared with the peer, if both have agreed on that since the last
    /// step. Returns the reasons that this adds. Apart from [`Self::step`]: threads with small stacks step.
    #[cold]
    #[inline(never)]
    fn negotiate(&self, roce: &mut Linked<Rc, Packets>) -> u32 {
        let Some(link) = &mut roce.link else { return 0 };
        let Some(memory) = link.negotiate(|| self.link_driver()) else { return 0 };
        self.set_peer_notify(Some(memory));
        probes::connect(self.num, true);
        reason::READABLE | reason::WRITABLE
    }

    /// Only in ERR there is a request to disconnect: in another state it is older than the last RESET, when
    /// another thread was driving the connection.
    fn without_stale(&self, why: u32) -> u32 {
        if self.state.get() == State::Err { why } else { why & !reason::DISCONNECT }
    }

    fn note_drained(&self, drained: bool) {
        if let Some(raise) = self.on_async_event.get().filter(|_| drained) {
            raise(AsyncEvent::Drained);
        }
    }

    /// Steps a connection with its link. Also returns when the next step is due at the latest.
    #[inline]
    fn step_linked<'a, C, L>(
        &'a self,
        linked: &'a mut Linked<C, L>,
        (batch, process): (&'a mut Batch, Process),
        why: u32,
        budget: Budget,
    ) -> (Stepped, Option<Micros>)
    where
        L: QpLink,
        C: Connection<Host<'a, L>> + Connection<Instrumented<'a, Host<'a, L>>>,
    {
        let Linked { conn, link } = linked;
        let host = Host::new(self, link, batch, process);
        match self.instruments.present() {
            None => self.step_with(host, conn, why, budget),
            Some(instruments) => self.step_with(Instrumented::new(host, instruments), conn, why, budget),
        }
    }

    #[inline]
    fn step_with<H: Stepping>(
        &self,
        mut host: H,
        conn: &mut impl Connection<H>,
        why: u32,
        budget: Budget,
    ) -> (Stepped, Option<Micros>) {
        self.end_flushes(conn, &mut host, why);
        let stepped = host.step(conn, why, budget);
        host.flush();
        (stepped, conn.deadline().into_iter().chain(host.deadline()).min())
    }

    /// Records the result of a flush to persistence that began when the queue pair had been reset so often.
    /// False if it was reset since: then the number is that of another flush.
    pub(super) fn flushed(&self, resets: u64, number: u64, durable: bool) -> bool {
        let mut flushed = lock(&self.flushed);
        let is_current = flushed.resets == resets;
        if is_current {
            flushed.results.push((number, durable));
        }
        is_current
    }

    /// Passes on the results of flushes to persistence.
    #[inline]
    fn end_flushes<H>(&self, conn: &mut impl Connection<H>, host: &mut H, why: u32) {
        if why & reason::DURABLE != 0 {
            let results = std::mem::take(&mut lock(&self.flushed).results);
            for (number, durable) in results {
                conn.durable(host, number, durable);
            }
        }
    }

    /// Ends the connection outside a step.
    pub(super) fn end(&self, session: &mut Session, how: End) {
        let Session { transport, batch, process, .. } = session;
        let world = (batch, *process);
        match transport {
            Transport::Iwarp(iwarp) => self.end_linked(iwarp, world, how),
            Transport::Roce(roce) => self.end_linked(roce, world, how),
            Transport::Unreliable(unreliable) => self.end_linked(unreliable, world, how),
            Transport::Datagrams(datagrams) => self.end_linked(datagrams, world, how),
        }
    }

    fn end_linked<'a, C, L>(
        &'a self,
        linked: &'a mut Linked<C, L>,
        (batch, process): (&'a mut Batch, Process),
        how: End,
    ) where
        L: QpLink,
        C: Connection<Host<'a, L>> + Connection<Instrumented<'a, Host<'a, L>>>,
    {
        let Linked { conn, link } = linked;
        let mut host = Host::new(self, link, batch, process);
        match self.instruments.present() {
            None => how.carry_out(conn, &mut host),
            Some(instruments) => how.carry_out(conn, &mut Instrumented::new(host, instruments)),
        }
    }
}

/// What only the holder of the turn touches.
pub(super) struct Session {
    pub transport: Transport,
    pub batch: Batch,
    pub process: Process,
    /// When the timer of the engine expires, and that timer.
    pub timer: Option<(Micros, Timer)>,
}

/// Why a connection ends outside a step.
pub(super) enum End {
    /// It has no link.
    Lost(Errno),
    /// The queue pair is destroyed.
    Destroyed,
}

impl End {
    fn carry_out<H>(self, conn: &mut impl Connection<H>, host: &mut H) {
        match self {
            Self::Lost(errno) => conn.lose(host, errno),
            Self::Destroyed => conn.abandon(host),
        }
    }
}

/// A queue pair as the host of its connection.
pub(super) struct Host<'a, L> {
    qp: &'a Qp,
    link: &'a mut Option<L>,
    batch: &'a mut Batch,
    process: Process,
}

impl<'a, L> Host<'a, L> {
    pub(super) fn new(qp: &'a Qp, link: &'a mut Option<L>, batch: &'a mut Batch, process: Process) -> Self {
        Self { qp, link, batch, process }
    }
}

impl<L: QpLink> Stepping for Host<'_, L> {
    fn step<C: Connection<Self>>(&mut self, conn: &mut C, why: u32, budget: Budget) -> Stepped {
        if let Some(local) = self.local_mut() {
            local.forget_revoked();
        }
        conn.step(self, why, budget)
    }

    fn deadline(&self) -> Option<Micros> {
        None
    }

    fn flush(&mut self) {
        if let Some(link) = self.link {
            link.flush();
        }
    }
}

impl<L: QpLink> Exposed for Host<'_, L> {
    fn cq(&self, queue: Queue) -> &Cq {
        match queue {
            Queue::Send => &self.qp.send_cq,
            Queue::Receive => &self.qp.recv_cq,
        }
    }

    fn overrun(&mut self, queue: Queue) {
        if let Some(raise) = self.qp.on_async_event.get() {
            raise(AsyncEvent::Overrun(self.cq(queue).handle()));
        }
    }

    fn cut(&mut self) {
        if let Some(link) = self.link.take() {
            link.cut();
        }
        if let Some(observer) = self.qp.observer() {
            observer.cut();
        }
    }
}

impl<L: QpLink> host::Host for Host<'_, L> {
    fn now(&mut self) -> Micros {
        now()
    }

    fn check(&mut self, access: Access) -> Result<(), Denied> {
        let grant = memory::acquire(access, self.qp.accessor())?;
        if let Some(local) = self.local_mut() {
            local.granted(access, &grant);
        }
        Ok(())
    }

    fn place(&mut self, access: Access, from: usize) -> Result<(), Denied> {
        self.batch.add(access, self.qp.accessor(), from)
    }

    fn settle(&mut self, input: &[u8]) -> Result<(), usize> {
        self.batch.carry_out(self.process, input)
    }

    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable> {
        memory::fetch(self.process, from, self.qp.accessor(), into)
    }

    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged> {
        let original = memory::change(access, self.qp.accessor(), update)?;
        // Reports the access to the link. The region may have been deregistered since.
        let _ = self.check(access);
        Ok(original)
    }

    fn store(&mut self, access: Access, word: [u8; 8]) -> Result<(), Unchanged> {
        memory::store(access, self.qp.accessor(), word)
    }

    fn whole(&mut self, stag: u32, rights: u32) -> Result<Access, Denied> {
        memory::whole(stag, rights, self.qp.accessor())
    }

    fn make_durable(&mut self, access: Access, number: u64) -> Result<Durable, Denied> {
        let grant = memory::acquire(access, self.qp.accessor())?;
        let Some((start, len)) = grant.persistent(access) else { return Ok(Durable::Now) };
        let lost = grant.writes_lost();
        drop(grant);
        let (qp, accessor) = (self.qp.this.clone(), self.qp.accessor());
        let resets = lock(&self.qp.flushed).resets;
        let done = move |durable: bool| {
            // The kernel may have reported lost writes of this memory to the flush of another region.
            let lost = memory::acquire(access, accessor).is_ok_and(|grant| grant.writes_lost());
            let durable = durable && !lost;
            if let Some(qp) = qp.upgrade().filter(|qp| qp.flushed(resets, number, durable)) {
                qp.drive(reason::DURABLE, By::Engine);
            }
        };
        if lost {
            done(false);
        } else {
            memory::make_durable(start, len, Box::new(done));
        }
        Ok(Durable::Later)
    }

    fn bind(&mut self, window: Bind) -> Result<(), Denied> {
        // Nothing is in the batch here: it is settled before the connection sends.
        memory::bind_window(window, self.qp.accessor())
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Denied> {
        memory::invalidate(stag, self.qp.num, self.qp.pd)
    }

    fn next_send(&mut self) -> Option<SendWr> {
        self.qp.sends.take()
    }

    fn next_receive(&mut self) -> Option<RecvWr> {
        match &self.qp.srq {
            Some(srq) => {
                let this: Weak<dyn Driven> = self.qp.this.clone();
                srq.take(self.qp.num, &this)
            }
            None => self.qp.receives.pop(),
        }
    }

    fn complete_send(&mut self, completion: Completion) -> bool {
        self.qp.send_cq.push(completion)
    }

    fn complete_receive(&mut self, completion: Completion) -> bool {
        self.qp.recv_cq.push(completion)
    }

    fn release_send(&mut self) {
        self.qp.sends.free(1);
    }

    fn established(&mut self) {
        // In RTS the program needs no event.
        if let (true, State::Rtr, Some(raise)) =
            (self.qp.is_roce, self.qp.state(), self.qp.on_async_event.get())
        {
            raise(AsyncEvent::Established);
        }
        if let Some(observer) = self.qp.observer() {
            observer.established();
        }
    }

    fn ends(&mut self, ending: Ending<'_>) {
        // Before the completions: a program that sees one finds the queue pair in ERR. After a failed send
        // others are in SQE.
        if self.qp.kind == Kind::Rc {
            self.qp.state.ended();
        }
        self.qp.report_ending(ending);
    }

    fn ended(&mut self, how: Ended) {
        probes::close(self.qp.num, how.is_failure());
        if let Some(link) = self.link {
            link.ended();
        }
        self.qp.state.ended();
        let (qp, last) = (self.qp, self.qp.srq.is_some());
        if let Some(raise) = qp.on_async_event.get() {
            match how {
                Ended::Failed => raise(AsyncEvent::Failed),
                Ended::AccessRefused => raise(AsyncEvent::AccessRefused),
                Ended::RequestRefused => raise(AsyncEvent::RequestRefused),
                Ended::Closed | Ended::Completed => {}
            }
            last.then(|| raise(AsyncEvent::LastReceiveTaken));
        }
        if let Some(observer) = self.qp.observer() {
            observer.ended();
        }
    }
}

impl<L: QpLink> Host<'_, L> {
    /// The memory that the link shares with the peer.
    #[inline]
    fn local(&self) -> Option<&Local> {
        self.link.as_ref()?.local()
    }

    #[inline]
    fn local_mut(&mut self) -> Option<&mut Local> {
        self.link.as_mut()?.local_mut()
    }

    /// The link has sent or copied something, or has tried to.
    #[inline]
    fn note_sent(&self) {
        self.qp.coalescer.sent(self.local().is_some_and(Local::needed_no_call));
    }
}

impl<L: QpLink> DirectAccess for Host<'_, L> {
    fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize {
        let copied = self.local_mut().map_or(0, |shared| shared.transfer(remote, local));
        self.note_sent();
        copied
    }

    #[inline]
    fn transfer_one(&mut self, wr: &SendWr) -> usize {
        let copied = self.local_mut().map_or(0, |local| local.transfer_one(wr));
        self.note_sent();
        copied
    }

    /// The queue pair records the answer.
    fn may_access_word(&mut self, remote: Access) -> bool {
        let maps = self.local().is_some_and(|local| local.maps(remote));
        self.qp.words.found(maps);
        maps
    }

    fn access_word(&mut self, remote: Access, word: WordAccess) -> Option<u64> {
        let original = self.local_mut()?.access_word(remote, word)?;
        self.qp.coalescer.sent(true);
        Some(original)
    }

    fn may_transfer(&self, remote: Access) -> bool {
        self.local().is_some_and(|local| local.may_transfer(remote))
    }

    fn transferred(&mut self, operation: Served, completed: u64, bytes: u64) {
        if let Some(local) = self.local() {
            local.transferred(operation, completed, bytes);
        }
    }
}

impl StreamLink for Host<'_, Link> {
    fn send(&mut self, parts: &[Part<'_>], boundary: bool) -> Result<usize, LinkError> {
        let sent = self.link.as_mut().ok_or(LinkError::Broken(libc::ENOTCONN))?.send(parts, boundary);
        self.note_sent();
        sent
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.link.as_mut().ok_or(LinkError::Broken(libc::ENOTCONN))?.receive(into)
    }

    fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError> {
        self.link.as_mut().ok_or(LinkError::Broken(libc::ENOTCONN))?.receive_placed(to, rest)
    }

    fn close(&mut self, last: Option<&[u8]>) {
        if let Some(link) = self.link.take() {
            link.close(last);
        }
    }

    fn acted(&mut self) {
        if let Some(local) = self.local_mut() {
            local.acted();
        }
    }
}

impl PacketLink for Host<'_, Packets> {
    type Buffer = port::Bytes;

    fn send_packet(&mut self, headers: &[u8], payload: Payload<'_>) -> Result<bool, Unreachable> {
        let (process, accessor) = (self.process, self.qp.accessor());
        let mut fetch = |pieces: &[Access], into: &mut [u8], stride: usize| {
            memory::fetch_pieces(process, pieces, accessor, into, stride)
        };
        let sent = self.link.as_mut().map_or(Ok(false), |link| link.send(headers, payload, &mut fetch));
        self.note_sent();
        sent
    }

    fn send_batch(&mut self) {
        Stepping::flush(self);
    }

    fn aim(&mut self, route: &Route) -> bool {
        self.link.as_mut().is_some_and(|link| link.aim(route))
    }

    fn receive_packets(&mut self) -> Option<port::Delivered> {
        self.link.as_mut()?.receive()
    }

    fn has_lost_packets(&mut self) -> bool {
        self.link.as_mut().is_some_and(|link| link.has_lost())
    }

    fn has_unread_packets(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.has_unread())
    }

    fn has_changed(&mut self) -> bool {
        self.link.as_mut().is_some_and(Packets::has_changed)
    }

    fn peer_makes_room(&self) -> bool {
        self.link.as_ref().is_some_and(Packets::shares_memory)
    }

    fn dropped_packet(&mut self, why: Dropped) {
        if let Some(link) = &self.link {
            link.dropped(why);
        }
    }

    fn send_failed(&mut self) {
        self.qp.state.advance(&[State::Rts, State::Sqd], State::Sqe);
    }
}
