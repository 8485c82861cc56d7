// SPDX-License-Identifier: BSD-3-Clause
//! The initiating process: its connections to the responder.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::end;
use super::protocol::{Answer, Kind, LEN, Message, Request, SLOT, sum};
use crate::address::Address;
use crate::interrupt::{self, Wake};
use crate::library::{
    Config, Connection, Done, Event, Library, Memory, Notify, Peer, Range, RemoteMemory, Side, Usage,
};

/// How long to wait for a connection, an event or a completion.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// The most requests of a connection at a time.
const DEPTH: u32 = 16;
/// The beginning of the error of a wait that took too long.
pub(super) const SILENT: &str = "no completion";
/// The numbers of completions: of a message, of its answer, of an operation.
const ASKED: u64 = 1;
const ANSWER: u64 = 2;
pub(super) const OPERATION: u64 = 3;

/// What all connections have in common.
pub(super) struct Initiator {
    library: &'static Library,
    peer: Peer,
    ip: IpAddr,
    port: u16,
    /// Whether to use fewer connections.
    pub(super) short: bool,
    seeds: AtomicU32,
}

/// The result of a connection attempt.
pub(super) enum Attempt {
    Connected(Box<Link>),
    Ended(Event),
}

/// A connection with its memory. The order of the fields ends the connection first.
pub(super) struct Link {
    pub(super) connection: Connection,
    /// The memory of the responder: to be read and written, and to be written durably.
    pub(super) lent: RemoteMemory,
    pub(super) durable: Option<RemoteMemory>,
    /// The descriptors of the first one, and of the memory that may only be read.
    pub(super) descriptor: Vec<u8>,
    pub(super) read_only: Vec<u8>,
    pub(super) local: Memory,
    message: Memory,
    answer: Memory,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.connection.disconnect();
    }
}

impl Initiator {
    pub(super) fn new(address: &Address, short: bool) -> Result<Self, String> {
        let target: SocketAddr = address.resolve().map_err(|why| format!("{}: {why}", address.host))?;
        let library = end::loaded()?;
        let peer = Peer::new(library, library.context(&target.ip().to_string(), Side::Remote)?)?;
        let seeds = AtomicU32::new(std::process::id());
        Ok(Self { library, peer, ip: target.ip(), port: target.port(), short, seeds })
    }

    /// The address of the responder.
    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    /// Connects; it is an error if the responder does not accept.
    pub(super) fn link(&self) -> Result<Link, String> {
        self.connected(self.port, LEN)
    }

    /// The same with less memory.
    pub(super) fn small_link(&self, len: usize) -> Result<Link, String> {
        self.connected(self.port, len)
    }

    /// A connection whose other end takes its receives from a shared receive queue.
    pub(super) fn shared_link(&self) -> Result<Link, String> {
        self.connected(self.port + 1, SLOT)
    }

    fn connected(&self, port: u16, len: usize) -> Result<Link, String> {
        match self.connect(port, len, false)? {
            Attempt::Connected(link) => Ok(*link),
            Attempt::Ended(event) => Err(format!("no connection: {event}")),
        }
    }

    /// Sends a request that the responder rejects.
    pub(super) fn rejected(&self) -> Result<Attempt, String> {
        self.connect(self.port, SLOT, true)
    }

    fn connect(&self, port: u16, len: usize, is_rejected: bool) -> Result<Attempt, String> {
        let seed = self.seeds.fetch_add(1, Ordering::Relaxed);
        let config = Config::new(self.library, LIMIT)?.queues(DEPTH, DEPTH)?;
        let request = Request { is_rejected, seed }.encode();
        let connection = self.peer.connect_with(&config, &self.ip.to_string(), port, &request)?;
        match event(&connection)? {
            Event::Established => {}
            event => return Ok(Attempt::Ended(event)),
        }
        let welcome = match Answer::decode(&connection.private_data()?) {
            Some(Answer::Welcome(welcome)) if welcome.seed == seed => welcome,
            Some(Answer::Refused(why)) => return Err(format!("the responder refuses: {why}")),
            _ => return Err("the private data of the answer are not those of the responder".to_owned()),
        };
        connection.apply(&welcome.peer)?;
        let remote = |descriptor: &[u8]| RemoteMemory::new(self.library, descriptor);
        let usage = Usage::READ_TARGET | Usage::WRITE_SOURCE;
        Ok(Attempt::Connected(Box::new(Link {
            lent: remote(&welcome.lent)?,
            durable: (!welcome.durable.is_empty()).then(|| remote(&welcome.durable)).transpose()?,
            descriptor: welcome.lent,
            read_only: welcome.readable,
            local: Memory::new(&self.peer, len, usage)?,
            message: Memory::new(&self.peer, SLOT, Usage::SEND)?,
            answer: Memory::new(&self.peer, SLOT, Usage::RECV)?,
            connection,
        })))
    }

    /// Memory of the responder by another descriptor.
    pub(super) fn remote(&self, descriptor: &[u8]) -> Result<RemoteMemory, String> {
        RemoteMemory::new(self.library, descriptor)
    }

    /// Waits until the responder has only this many connections open, including the one used for that.
    pub(super) fn until_open(&self, wanted: u64) -> Result<(), String> {
        let mut link = self.small_link(SLOT)?;
        let until = Instant::now() + LIMIT;
        loop {
            let open = link.ask(Kind::Count, [0; 3])?.a;
            if open == wanted {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("the responder has {open} connections open instead of {wanted}"));
            }
            let _ = interrupt::wait(&[], Some(Instant::now() + Duration::from_millis(10)));
        }
    }
}

/// The next event of a connection.
pub(super) fn event(connection: &Connection) -> Result<Event, String> {
    connection
        .next_event(Instant::now() + LIMIT)?
        .ok_or_else(|| format!("no event of the connection within {} s", LIMIT.as_secs()))
}

impl Link {
    /// Waits for this many completions; an error if a request has failed.
    pub(super) fn done(&self, count: usize) -> Result<Vec<Done>, String> {
        let queue = self.connection.queue()?;
        let (mut done, until) = (Vec::new(), Instant::now() + LIMIT);
        loop {
            queue.poll(&mut done)?;
            if done.len() >= count {
                return Ok(done);
            }
            match interrupt::wait(&[queue.fd()], Some(until)).map_err(|why| why.to_string())? {
                Wake::Ready => queue.rearm()?,
                Wake::Timeout => return Err(format!("{SILENT} within {} s", LIMIT.as_secs())),
                Wake::Interrupted => return Err("interrupted".to_owned()),
            }
        }
    }

    /// Posts the receive of an answer, and sends a message.
    pub(super) fn post(&mut self, message: &Message, immediate: Option<u32>) -> Result<(), String> {
        let bytes = message.encode();
        self.message.fill(&bytes);
        self.post_receive()?;
        let range = Range { memory: &self.message, offset: 0, len: bytes.len() };
        match immediate {
            Some(value) => self.connection.send_with_immediate(range, value, Notify::Always(ASKED)),
            None => self.connection.send(range, Notify::Always(ASKED)),
        }
    }

    /// Posts the receive of an answer.
    pub(super) fn post_receive(&self) -> Result<(), String> {
        self.connection.receive(Range { memory: &self.answer, offset: 0, len: SLOT }, ANSWER)
    }

    /// The answer, among the next `count` completions.
    pub(super) fn answer(&self, count: usize) -> Result<(Message, Option<u32>), String> {
        let done = self.done(count)?;
        let done = done.iter().find_map(|done| Some((done.received?, done.immediate)));
        let (len, immediate) = done.ok_or("a completion belongs to no request")?;
        let message = Message::decode(&self.answer.first(len)).ok_or("an answer cannot be understood")?;
        Ok((message, immediate.map(|immediate| immediate.value)))
    }

    /// Asks for something; returns the answer.
    pub(super) fn ask(&mut self, kind: Kind, numbers: [u64; 3]) -> Result<Message, String> {
        let message = Message::new(kind, numbers);
        self.post(&message, None)?;
        let (answer, immediate) = self.answer(2)?;
        if answer.kind != kind || immediate.is_some() {
            return Err(format!("the answer to {kind:?} is {:?}", answer.kind));
        }
        Ok(answer)
    }

    /// Sends a message that has no answer.
    pub(super) fn tell(&mut self, kind: Kind) -> Result<(), String> {
        self.post(&Message::new(kind, [0; 3]), None)
    }

    /// Compares the responder's memory, as its processor sees it, with what it must be.
    pub(super) fn compare(&mut self, offset: usize, wanted: &[u8]) -> Result<(), String> {
        let answer = self.ask(Kind::Sum, [offset as u64, wanted.len() as u64, 0])?;
        match answer.a == sum(wanted) {
            true => Ok(()),
            false => Err(format!(
                "the {} bytes at {offset} of the responder's memory are not what was written",
                wanted.len()
            )),
        }
    }
}
