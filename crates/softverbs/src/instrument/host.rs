// SPDX-License-Identifier: BSD-3-Clause
//! The decorator of a connection's host: passes calls on, and applies the rules of strict mode and faults.

use std::sync::MutexGuard;

use super::Present;
use super::fault_queue::{Due, FaultQueue};
use super::overrun::{self, Overrun};
use super::rnr::{Late, Rnr};
use super::strict::Strict;
use crate::cq::Cq;
use crate::lock;
use transport::access::{Access, Bind, Denied, Unchanged, Unreachable};
use transport::direct::{DirectAccess, Part, WordAccess};
use transport::host::{Durable, Ended, Ending, Host, Served};
use transport::iwarp::link::{LinkError, StreamLink};
use transport::roce::link::{Batch, Dropped, PacketLink, Payload};
use transport::route::Route;
use transport::step::{Awaits, Budget, Connection, Stepped, reason};
use transport::units::Micros;
use transport::wr::{Completion, RecvWr, SendWr};

/// A completion queue of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Send,
    Receive,
}

/// A host as the driver of its connection uses it.
pub(crate) trait Stepping: Host + Sized {
    /// Steps the connection.
    fn step<C: Connection<Self>>(&mut self, conn: &mut C, why: u32, budget: Budget) -> Stepped;
    /// When the host needs the next step.
    fn deadline(&self) -> Option<Micros>;
    /// Sends what a step has left in the link.
    fn flush(&mut self);
}

/// What instruments require of a host in addition.
pub(crate) trait Exposed: Stepping {
    fn cq(&self, queue: Queue) -> &Cq;
    /// Raises the asynchronous event of a completion queue that was overrun.
    fn overrun(&mut self, queue: Queue);
    /// Drops the link as if this process had been killed.
    fn cut(&mut self);
}

/// A host with the instruments of its queue pair.
pub(crate) struct Instrumented<'a, H> {
    host: H,
    instruments: &'a Present,
    rnr: MutexGuard<'a, Rnr>,
    /// A completion queue that was full.
    overrun: Option<Queue>,
}

impl<H: Exposed> Stepping for Instrumented<'_, H> {
    /// Steps the connection, then applies rules and faults.
    fn step<C: Connection<Self>>(&mut self, conn: &mut C, why: u32, budget: Budget) -> Stepped {
        let instruments = self.instruments;
        let expired = self.rnr.expires(|| self.host.now());
        let mut stepped = conn.step(self, if expired { why | reason::RECEIVE } else { why }, budget);
        if let Some(queue) = self.overrun.take() {
            // Flush errors that find no room after the end are no overrun: the program has disconnected, or
            // gets the reason.
            if !conn.is_over() && self.forbids_overrun(queue) {
                conn.lose(self, libc::ENOBUFS);
                stepped = conn.step(self, 0, budget);
            }
        }
        if instruments.mode != Strict::Off {
            stepped = self.find_late(conn, stepped, budget);
        }
        match &instruments.faults {
            Some(faults) => self.inject(faults, conn, stepped, budget),
            None => stepped,
        }
    }

    fn deadline(&self) -> Option<Micros> {
        let delayed = self.instruments.faults.as_ref().and_then(FaultQueue::deadline);
        delayed.into_iter().chain(self.rnr.deadline()).min()
    }

    fn flush(&mut self) {
        self.host.flush();
    }
}

impl<'a, H: Exposed> Instrumented<'a, H> {
    pub(crate) fn new(host: H, instruments: &'a Present) -> Self {
        Self { host, instruments, rnr: lock(&instruments.rnr), overrun: None }
    }

    /// A completion queue was full. True if the connection must end.
    fn forbids_overrun(&mut self, queue: Queue) -> bool {
        let overrun = overrun::check(self.host.cq(queue), self.instruments.num, self.instruments.mode);
        if overrun == Overrun::First {
            self.host.overrun(queue);
        }
        overrun != Overrun::Permitted
    }

    /// Checks whether a message waits for a receive.
    fn find_late<C: Connection<Self>>(&mut self, conn: &mut C, stepped: Stepped, budget: Budget) -> Stepped {
        if conn.is_over() {
            // The receives that were held back end with the connection.
            return if self.rnr.ends() { conn.step(self, 0, budget) } else { stepped };
        }
        if stepped.awaits != Awaits::Receive {
            if stepped.awaits == Awaits::Nothing {
                self.rnr.delivered();
            }
            return stepped;
        }
        match self.rnr.late(self.instruments.num, self.instruments.mode, || self.host.now()) {
            Late::Waits => stepped,
            // Until the timer expires a receive changes nothing.
            Late::Repeated => Stepped { awaits: Awaits::Nothing, ..stepped },
            Late::Exceeded => {
                conn.wait_no_more();
                conn.step(self, reason::RECEIVE, budget)
            }
        }
    }

    /// Applies the fault that is due to the next request.
    fn inject<C: Connection<Self>>(
        &mut self,
        faults: &FaultQueue,
        conn: &mut C,
        stepped: Stepped,
        budget: Budget,
    ) -> Stepped {
        match faults.due() {
            // It had no link: closing one releases the requests.
            Due::Nothing if conn.is_over() && faults.release_all() => {}
            Due::Nothing => return stepped,
            Due::Kill => {
                faults.done();
                self.host.cut();
                conn.lose(self, libc::ECONNRESET);
            }
            Due::Fail(status) => {
                // Or before the connection is open: a step follows then.
                if !(conn.is_open() && conn.has_completed_all()) {
                    return stepped;
                }
                faults.done();
                conn.fail_next(self, status);
            }
        }
        conn.step(self, 0, budget)
    }
}

impl<H: Exposed> Host for Instrumented<'_, H> {
    fn now(&mut self) -> Micros {
        self.host.now()
    }

    fn check(&mut self, access: Access) -> Result<(), Denied> {
        self.host.check(access)
    }

    fn place(&mut self, access: Access, from: usize) -> Result<(), Denied> {
        self.host.place(access, from)
    }

    fn settle(&mut self, input: &[u8]) -> Result<(), usize> {
        self.host.settle(input)
    }

    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable> {
        self.host.fetch(from, into)
    }

    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged> {
        self.host.change(access, update)
    }

    fn store(&mut self, access: Access, word: [u8; 8]) -> Result<(), Unchanged> {
        self.host.store(access, word)
    }

    fn whole(&mut self, stag: u32, rights: u32) -> Result<Access, Denied> {
        self.host.whole(stag, rights)
    }

    fn make_durable(&mut self, access: Access, number: u64) -> Result<Durable, Denied> {
        self.host.make_durable(access, number)
    }

    fn bind(&mut self, window: Bind) -> Result<(), Denied> {
        self.host.bind(window)
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Denied> {
        self.host.invalidate(stag)
    }

    fn next_send(&mut self) -> Option<SendWr> {
        match &self.instruments.faults {
            None => self.host.next_send(),
            Some(faults) => faults.take(&mut self.host, H::now, H::next_send),
        }
    }

    fn next_receive(&mut self) -> Option<RecvWr> {
        if self.rnr.holds() {
            return None;
        }
        self.host.next_receive()
    }

    fn complete_send(&mut self, completion: Completion) -> bool {
        let adapter = self.instruments.adapter.as_ref();
        // The program may poll it before this returns.
        adapter.inspect(|adapter| adapter.completes());
        let added = self.host.complete_send(completion);
        if !added {
            adapter.inspect(|adapter| adapter.does_not_complete());
            self.overrun = Some(Queue::Send);
        }
        added
    }

    fn complete_receive(&mut self, completion: Completion) -> bool {
        let added = self.host.complete_receive(completion);
        if !added {
            self.overrun = Some(Queue::Receive);
        }
        added
    }

    fn release_send(&mut self) {
        self.host.release_send();
        if let Some(adapter) = &self.instruments.adapter {
            adapter.released();
        }
    }

    fn served(&mut self, operation: Served, completed: u64, bytes: u64) {
        if let Some(metrics) = &self.instruments.metrics {
            metrics.served(operation, completed, bytes);
        }
    }

    fn established(&mut self) {
        self.host.established();
    }

    fn ends(&mut self, ending: Ending<'_>) {
        self.host.ends(ending);
    }

    fn ended(&mut self, how: Ended) {
        if let Some(adapter) = &self.instruments.adapter {
            adapter.ends();
        }
        self.host.ended(how);
    }
}

impl<H: Exposed + DirectAccess> DirectAccess for Instrumented<'_, H> {
    fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize {
        self.host.transfer(remote, local)
    }

    fn transfer_one(&mut self, wr: &SendWr) -> usize {
        self.host.transfer_one(wr)
    }

    fn may_access_word(&mut self, remote: Access) -> bool {
        self.host.may_access_word(remote)
    }

    fn access_word(&mut self, remote: Access, word: WordAccess) -> Option<u64> {
        self.host.access_word(remote, word)
    }

    fn may_transfer(&self, remote: Access) -> bool {
        self.host.may_transfer(remote)
    }

    fn transferred(&mut self, operation: Served, completed: u64, bytes: u64) {
        self.host.transferred(operation, completed, bytes);
    }
}

impl<H: Exposed + StreamLink> StreamLink for Instrumented<'_, H> {
    fn send(&mut self, parts: &[Part<'_>], boundary: bool) -> Result<usize, LinkError> {
        self.host.send(parts, boundary)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.host.receive(into)
    }

    fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError> {
        self.host.receive_placed(to, rest)
    }

    fn close(&mut self, last: Option<&[u8]>) {
        self.host.close(last);
        if let Some(faults) = &self.instruments.faults {
            faults.release_all();
        }
    }

    fn acted(&mut self) {
        self.host.acted();
    }
}

impl<H: Exposed + PacketLink> PacketLink for Instrumented<'_, H> {
    type Buffer = H::Buffer;

    fn send_packet(&mut self, headers: &[u8], payload: Payload<'_>) -> Result<bool, Unreachable> {
        self.host.send_packet(headers, payload)
    }

    fn send_batch(&mut self) {
        self.host.send_batch();
    }

    fn aim(&mut self, route: &Route) -> bool {
        self.host.aim(route)
    }

    fn receive_packets(&mut self) -> Option<Batch<H::Buffer>> {
        self.host.receive_packets()
    }

    fn has_lost_packets(&mut self) -> bool {
        self.host.has_lost_packets()
    }

    fn has_unread_packets(&self) -> bool {
        self.host.has_unread_packets()
    }

    fn has_changed(&mut self) -> bool {
        self.host.has_changed()
    }

    fn peer_makes_room(&self) -> bool {
        self.host.peer_makes_room()
    }

    fn dropped_packet(&mut self, why: Dropped) {
        self.host.dropped_packet(why);
    }

    fn send_failed(&mut self) {
        self.host.send_failed();
    }
}
