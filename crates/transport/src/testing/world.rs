// SPDX-License-Identifier: BSD-3-Clause
//! The one implementation of [`Host`] for tests: it moves bytes between link and memory and requests through
//! the queues, and reports each effect to the world that it belongs to.
//!
//! A [`World`] defines where memory and queues are, which transports have in common; a [`StreamWorld`] adds
//! the link of a transport over a stream. Their other methods are what differs between a simulation, a script
//! and a fuzzer: what else happens during a call, what fails, and what is recorded or checked.

use std::fmt;

use super::memory::{Memory, Placement};
use super::queues::{Queues, WorkQueue};
use super::stream::{Found, Pipe};
use crate::access::{Access, Bind, Denied, Unchanged, Unreachable};
use crate::direct::{DirectAccess, Part, WordAccess};
use crate::host::{Durable, Ended, Ending, Host, Served};
use crate::iwarp::link::{LinkError, StreamLink};
use crate::units::Micros;
use crate::wr::{Completion, RecvWr, SendWr};

/// Memory and queues of the process that a connection belongs to.
pub struct Parts<'a, M> {
    /// Its registered memory.
    pub memory: &'a mut M,
    /// The queues of the queue pair.
    pub queues: &'a mut Queues,
    /// Placements that are not carried out yet.
    pub batch: &'a mut Vec<Placement>,
}

/// The world around one connection, whatever its transport.
pub trait World {
    /// Registered memory.
    type Memory: Memory;

    /// Memory and queues.
    fn parts(&mut self) -> Parts<'_, Self::Memory>;
    /// The time.
    fn time(&mut self) -> Micros;
    /// The connection makes a call that it may make only while it has its link; panics if it has not.
    fn uses(&self, call: &str);
    /// Something else may happen here, in the middle of a step.
    fn elsewhere(&mut self) {}

    /// An access fails; `inbound`: one on behalf of the peer, or for a receive.
    fn failed(&mut self, _access: Access, _why: &dyn fmt::Debug, _inbound: bool) {}
    /// An access was checked and is permitted.
    fn checked(&mut self, _access: Access) {}
    /// Bytes were placed, `directly` from the link or by a batch.
    fn placed(&mut self, _access: Access, _bytes: &[u8], _directly: bool) {}
    /// All of a batch was carried out.
    fn settled(&mut self) {}
    /// A word was stored.
    fn stored(&mut self, _access: Access, _word: [u8; 8]) {}
    /// A word was changed.
    fn changed(&mut self, _access: Access, _original: u64, _now: u64) {}
    /// Memory must be made durable for the request with this number.
    fn flush(&mut self, access: Access, number: u64) -> Durable;
    /// Binds a window.
    fn bind_window(&mut self, _window: Bind) -> Result<(), Denied> {
        Err(Denied::Stag)
    }
    /// Invalidates a window.
    fn invalidate_window(&mut self, stag: u32) -> Result<(), Denied>;

    /// The connection has taken a request.
    fn took_send(&mut self) {}
    /// It has taken this receive, or has found none.
    fn took_receive(&mut self, _wr: Option<&RecvWr>) {}
    /// A completion is about to be added to its queue.
    fn completes(&mut self, queue: WorkQueue, completion: &Completion);
    /// A completion has found no room.
    fn no_room(&mut self, _queue: WorkQueue) {}
    /// An unsignalled request is about to be released.
    fn releases(&mut self) {}
    /// One-sided operations of the peer were carried out.
    fn serves(&mut self, _operation: Served, _completed: u64, _bytes: u64) {}
    /// The connection is established.
    fn is_established(&mut self) {}
    /// It has ended.
    fn has_ended(&mut self, _how: Ended) {}

    /// It is ending.
    fn is_ending(&mut self) {}

    /// See [`DirectAccess::transfer`].
    fn copy_directly(&mut self, _remote: &[Access], _local: &[Part<'_>]) -> usize {
        unreachable!("this world executes nothing directly");
    }
    /// See [`DirectAccess::access_word`].
    fn access_directly(&mut self, _remote: Access, _word: WordAccess) -> Option<u64> {
        unreachable!("this world executes nothing directly");
    }
    /// See [`DirectAccess::may_transfer`].
    fn may_copy_directly(&self, _remote: Access) -> bool {
        unreachable!("this world executes nothing directly");
    }
}

/// A world whose link is a stream of bytes.
pub trait StreamWorld: World {
    /// The stream to the peer, and the one from it.
    fn pipes(&mut self) -> (&mut Pipe, &mut Pipe);
    /// An error with which the link fails now, in place of what it would do.
    fn fault(&mut self, _sending: bool) -> Option<LinkError> {
        None
    }
    /// How many of `wanted` bytes the link takes, where it has room for `room`.
    fn takes(&mut self, room: usize, _wanted: usize) -> usize {
        room
    }
    /// The link takes nothing now.
    fn blocked(&mut self) {}
    /// What the link does at memory that is gone, behind bytes that it could send: true fails, as a whole.
    fn fails_as_a_whole(&mut self) -> bool {
        true
    }
    /// The link has taken the first `taken` of these bytes. `boundary`: see [`StreamLink::send`].
    fn sent(&mut self, bytes: &[u8], taken: usize, boundary: bool);
    /// The end of the stream was read.
    fn saw_end(&mut self) {}
    /// The connection was reset.
    fn broken(&mut self, _sending: bool) -> LinkError {
        LinkError::Broken(libc::ECONNRESET)
    }
    /// So many bytes were received.
    fn received(&mut self, _n: usize) {}
    /// See [`StreamLink::close`].
    fn let_go(&mut self, last: Option<&[u8]>);
    /// See [`StreamLink::acted`].
    fn acted_on_all(&mut self) {}
}

/// Checks an access on behalf of the peer or for a receive.
fn allowed<W: World>(world: &mut W, access: Access) -> Result<(), Denied> {
    let checked = world.parts().memory.check(access);
    checked.inspect_err(|why| world.failed(access, why, true))
}

/// How many bytes can be received; 0 is the end of the stream.
fn look<W: StreamWorld>(world: &mut W) -> Result<usize, LinkError> {
    if let Some(error) = world.fault(false) {
        return Err(error);
    }
    match world.pipes().1.look() {
        Found::Bytes(n) => Ok(n),
        Found::End => {
            world.saw_end();
            Ok(0)
        }
        Found::Nothing => Err(LinkError::Blocked),
        Found::Reset => Err(world.broken(false)),
    }
}

/// The bytes of the parts, until there are `room`, and the part whose memory is gone, if that was reached.
fn gather(memory: &mut impl Memory, parts: &[Part<'_>], room: usize) -> (Vec<u8>, Option<Access>) {
    let mut bytes = Vec::new();
    for part in parts {
        if bytes.len() >= room {
            break;
        }
        match part {
            Part::Bytes(part) => bytes.extend_from_slice(part),
            Part::Memory(access) => {
                let at = bytes.len();
                bytes.resize(at + access.len, 0);
                if memory.fetch(*access, &mut bytes[at..]).is_err() {
                    bytes.truncate(at);
                    return (bytes, Some(*access));
                }
            }
        }
    }
    (bytes, None)
}

fn complete<W: World>(world: &mut W, queue: WorkQueue, completion: &Completion) -> bool {
    if !world.parts().queues.has_room(queue) {
        world.no_room(queue);
        return false;
    }
    world.completes(queue, completion);
    world.parts().queues.complete(queue, completion);
    true
}

impl<W: World> Host for W {
    fn now(&mut self) -> Micros {
        self.time()
    }

    fn check(&mut self, access: Access) -> Result<(), Denied> {
        self.uses("checks an access");
        allowed(self, access)?;
        self.checked(access);
        Ok(())
    }

    fn place(&mut self, access: Access, from: usize) -> Result<(), Denied> {
        self.uses("places");
        if self.parts().batch.is_empty() {
            self.elsewhere();
        }
        let placed = self.parts().memory.place(access, from);
        placed.inspect_err(|why| self.failed(access, why, true))?;
        self.parts().batch.push((access, from));
        Ok(())
    }

    fn settle(&mut self, input: &[u8]) -> Result<(), usize> {
        self.uses("settles");
        let Parts { memory, batch, .. } = self.parts();
        let mut batch = std::mem::take(batch);
        let result = memory.settle(&batch, input);
        for (access, from) in &batch[..result.err().unwrap_or(batch.len())] {
            self.placed(*access, &input[*from..][..access.len], false);
        }
        match result {
            Ok(()) => self.settled(),
            Err(k) => self.failed(batch[k].0, &Unreachable::Fault, true),
        }
        batch.clear();
        *self.parts().batch = batch;
        result
    }

    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable> {
        let fetched = self.parts().memory.fetch(from, into);
        fetched.inspect_err(|why| self.failed(from, why, false))
    }

    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged> {
        self.uses("changes a word");
        assert!(self.parts().batch.is_empty(), "a word is changed before what came before is placed");
        self.elsewhere();
        let changed = self.parts().memory.change(access, update);
        let original = changed.inspect_err(|why| self.failed(access, why, true))?;
        self.changed(access, original, update(original));
        Ok(original)
    }

    fn store(&mut self, access: Access, word: [u8; 8]) -> Result<(), Unchanged> {
        self.uses("stores a word");
        assert!(self.parts().batch.is_empty(), "a word is stored before what came before is placed");
        self.elsewhere();
        let changed = self.parts().memory.change(access, &|_| u64::from_ne_bytes(word));
        changed.inspect_err(|why| self.failed(access, why, true))?;
        self.stored(access, word);
        Ok(())
    }

    fn whole(&mut self, stag: u32, rights: u32) -> Result<Access, Denied> {
        self.uses("looks for a region");
        let whole = self.parts().memory.whole(stag, rights);
        whole.inspect_err(|why| self.failed(Access { stag, addr: 0, len: 0, rights }, why, true))
    }

    fn make_durable(&mut self, access: Access, number: u64) -> Result<Durable, Denied> {
        self.uses("flushes");
        let persistent = self.parts().memory.is_persistent(access);
        let persistent = persistent.inspect_err(|why| self.failed(access, why, true))?;
        Ok(if persistent { self.flush(access, number) } else { Durable::Now })
    }

    fn bind(&mut self, window: Bind) -> Result<(), Denied> {
        self.bind_window(window)
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Denied> {
        self.uses("invalidates a window");
        assert!(self.parts().batch.is_empty(), "a window is invalidated that is being written through");
        let invalidated = self.invalidate_window(stag);
        invalidated.inspect_err(|why| self.failed(Access { stag, addr: 0, len: 0, rights: 0 }, why, true))
    }

    fn next_send(&mut self) -> Option<SendWr> {
        let wr = self.parts().queues.take_send()?;
        self.took_send();
        Some(wr)
    }

    fn next_receive(&mut self) -> Option<RecvWr> {
        let wr = self.parts().queues.take_receive();
        self.took_receive(wr.as_ref());
        wr
    }

    fn complete_send(&mut self, completion: Completion) -> bool {
        complete(self, WorkQueue::Send, &completion)
    }

    fn complete_receive(&mut self, completion: Completion) -> bool {
        complete(self, WorkQueue::Receive, &completion)
    }

    fn release_send(&mut self) {
        self.releases();
        self.parts().queues.release();
    }

    fn served(&mut self, operation: Served, completed: u64, bytes: u64) {
        self.serves(operation, completed, bytes);
    }

    fn established(&mut self) {
        self.parts().queues.establish();
        self.is_established();
    }

    fn ends(&mut self, _ending: Ending<'_>) {
        self.is_ending();
    }

    fn ended(&mut self, how: Ended) {
        self.parts().queues.end();
        self.has_ended(how);
    }
}

impl<W: World> DirectAccess for W {
    fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize {
        self.uses("transfers");
        self.elsewhere();
        self.copy_directly(remote, local)
    }

    fn access_word(&mut self, remote: Access, word: WordAccess) -> Option<u64> {
        self.uses("accesses a word");
        assert!(self.parts().batch.is_empty(), "a word is accessed before what came before is placed");
        self.elsewhere();
        self.access_directly(remote, word)
    }

    fn may_transfer(&self, remote: Access) -> bool {
        self.may_copy_directly(remote)
    }
}

impl<W: StreamWorld> StreamLink for W {
    /// As a socket: memory is checked before anything else, and a fault names no part.
    fn send(&mut self, parts: &[Part<'_>], boundary: bool) -> Result<usize, LinkError> {
        self.uses("sends");
        self.elsewhere();
        for (i, part) in parts.iter().enumerate() {
            let Part::Memory(access) = part else { continue };
            if let Err(denied) = self.parts().memory.check(*access) {
                self.failed(*access, &denied, false);
                return Err(LinkError::Memory(i, Unreachable::Denied(denied)));
            }
        }
        if let Some(error) = self.fault(true) {
            return Err(error);
        }
        let (out, _) = self.pipes();
        let (lost, room) = (out.refused || out.reset, out.room());
        if lost {
            return Err(self.broken(true));
        }
        let room = self.takes(room, parts.iter().map(Part::byte_len).sum());
        if room == 0 {
            self.blocked();
            return Err(LinkError::Blocked);
        }
        let (bytes, gone) = gather(self.parts().memory, parts, room);
        let taken = bytes.len().min(room);
        if let Some(access) = gone {
            if taken == 0 || self.fails_as_a_whole() {
                self.failed(access, &Unreachable::Fault, false);
                return Err(LinkError::Memory(0, Unreachable::Fault));
            }
        }
        assert!(taken > 0, "nothing to send");
        self.pipes().0.write(&bytes[..taken]);
        self.sent(&bytes, taken, boundary);
        Ok(taken)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.uses("receives");
        assert!(!into.is_empty(), "no room to receive into");
        self.elsewhere();
        let n = look(self)?.min(into.len());
        self.pipes().1.read(&mut into[..n]);
        self.received(n);
        Ok(n)
    }

    fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError> {
        self.uses("receives");
        assert!(to.len > 0, "no room to receive into");
        self.elsewhere();
        allowed(self, to).map_err(|denied| LinkError::Memory(0, Unreachable::Denied(denied)))?;
        let n = look(self)?;
        let access = Access { len: n.min(to.len), ..to };
        if access.len > 0 {
            let bytes = self.pipes().1.peek(access.len).to_vec();
            if let Err(why) = self.parts().memory.store(access, &bytes) {
                self.failed(access, &why, true);
                return Err(LinkError::Memory(0, why));
            }
            self.pipes().1.skip(access.len);
            self.placed(access, &bytes, true);
        }
        let more = (n - access.len).min(rest.len());
        self.pipes().1.read(&mut rest[..more]);
        self.received(access.len + more);
        Ok(access.len + more)
    }

    fn close(&mut self, last: Option<&[u8]>) {
        self.let_go(last);
    }

    fn acted(&mut self) {
        self.acted_on_all();
    }
}
