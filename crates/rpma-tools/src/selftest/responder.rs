// SPDX-License-Identifier: BSD-3-Clause
//! The responding process: exposes memory, and executes the requests of messages. A thread serves each
//! connection.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};

use super::end;
use super::protocol::{Answer, GUARD, Kind, LEN, Message, Request, SLOT, Welcome, pattern, sum};
use super::{FAILED, PASSED, PORT};
use crate::address::Address;
use crate::interrupt::{self, Wake};
use crate::library::{
    self, Config, Connection, Done, Library, Listener, Memory, Notify, Peer, Range, SharedReceives, Side,
    Usage,
};
use crate::output::print;

/// The receives of a connection, and those of the shared receive queue.
const RECEIVES: usize = 4;
const SHARED: usize = 32;
/// The maximum number of connections.
const MAX_CONNECTIONS: u64 = 200;
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long to wait for a refused initiator to read the reason.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to ignore requests after one failed, for example for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The number of the completion of an answer.
const ANSWERED: u64 = u64::MAX;

/// What all connections share.
struct Lent {
    /// The memory with its guard, registered without remote access: it is summed and filled.
    whole: Mutex<Memory>,
    lent: Memory,
    /// None if it cannot be registered: where the device flushes natively, the C librpma needs persistent
    /// memory.
    durable: Option<Memory>,
    readable: Memory,
    open: AtomicU64,
}

impl Lent {
    fn new(peer: &Peer) -> Result<Self, String> {
        let whole = Memory::new(peer, LEN + GUARD, Usage::RECV)?;
        let usage = Usage::READ_SOURCE | Usage::WRITE_TARGET | Usage::FLUSH_VISIBILITY;
        let lent = whole.part(LEN, usage)?;
        let durable = whole.part(LEN, Usage::WRITE_TARGET | Usage::FLUSH_PERSISTENT);
        let durable = durable.inspect_err(|why| eprintln!("flush to persistence: {why}")).ok();
        let readable = whole.part(LEN, Usage::READ_SOURCE)?;
        Ok(Self { whole: Mutex::new(whole), lent, durable, readable, open: AtomicU64::new(0) })
    }
}

/// The shared receive queue with its buffers.
struct Shared {
    queue: SharedReceives,
    memory: Memory,
}

fn place(memory: &Memory, number: usize) -> Range<'_> {
    Range { memory, offset: number * SLOT, len: SLOT }
}

/// The buffers of a connection's receives.
enum Receives {
    Own(Memory),
    Shared(Arc<Shared>),
}

struct Responder {
    library: &'static Library,
    peer: Peer,
    lent: Arc<Lent>,
    /// Why there is no shared receive queue, if there is none.
    shared: Result<Arc<Shared>, String>,
}

/// Responds until its standard input ends. The connections of the next port use the shared receive queue,
/// since a queue pair is created before the private data of its request can be read.
pub(super) fn respond(address: &Address) -> Result<u8, String> {
    let (ip, port) = (address.resolve().map_err(|why| why.to_string())?.ip(), address.port.unwrap_or(PORT));
    let library = end::loaded()?;
    let peer = Peer::new(library, library.context(&ip.to_string(), Side::Local)?)?;
    let lent = Arc::new(Lent::new(&peer)?);
    let listeners = [
        Listener::new(&peer, &ip.to_string(), port)?,
        Listener::new(&peer, &ip.to_string(), port.saturating_add(1))?,
    ];
    let shared = shared(&peer);
    let responder = Responder { library, peer, lent, shared };
    print("listening")?;
    let input = std::io::stdin().as_raw_fd();
    let fds = [listeners[0].fd()?, listeners[1].fd()?, input];
    loop {
        if interrupt::wait(&fds, None).map_err(|why| why.to_string())? == Wake::Interrupted {
            return Ok(FAILED);
        }
        if is_ready(input) {
            return Ok(PASSED);
        }
        for (listener, is_shared) in [(&listeners[0], false), (&listeners[1], true)] {
            if !is_ready(listener.fd()?) {
                continue;
            }
            if let Err(why) = responder.next(listener, is_shared) {
                eprintln!("a connection was not accepted: {why}");
                let _ = interrupt::wait(&[], Some(Instant::now() + PAUSE));
            }
        }
    }
}

fn is_ready(fd: RawFd) -> bool {
    interrupt::wait(&[fd], Some(Instant::now())).is_ok_and(|wake| wake == Wake::Ready)
}

/// The shared receive queue, with all its receives posted.
fn shared(peer: &Peer) -> Result<Arc<Shared>, String> {
    let queue = SharedReceives::new(peer, SHARED as u32)?;
    let memory = Memory::new(peer, SHARED * SLOT, Usage::RECV)?;
    for number in 0..SHARED {
        queue.receive(&memory, number * SLOT, SLOT, number as u64)?;
    }
    Ok(Arc::new(Shared { queue, memory }))
}

impl Responder {
    /// Accepts the next request, or rejects it.
    fn next(&self, listener: &Listener, is_shared: bool) -> Result<(), String> {
        let shared = self.shared.as_ref().ok().filter(|_| is_shared);
        let receives = if shared.is_some() { SHARED } else { RECEIVES };
        let config = Config::new(self.library, TIMEOUT)?.queues(RECEIVES as u32, receives as u32)?;
        let config = match shared {
            Some(shared) => config.shared(&shared.queue)?,
            None => config,
        };
        let Some(incoming) = listener.next(Some(&config))? else { return Ok(()) };
        let answer = match (Request::decode(&incoming.private_data()?), &self.shared) {
            // A request that is dropped is rejected.
            (Ok(Request { is_rejected: true, .. }), _) => return Ok(()),
            (Err(None), _) => return Err("it is not from rpma selftest".to_owned()),
            (Err(Some(why)), _) => Err(why),
            (Ok(_), Err(why)) if is_shared => Err(why.clone()),
            (Ok(_), _) if self.lent.open.load(Ordering::Acquire) >= MAX_CONNECTIONS => {
                Err("there are too many connections".to_owned())
            }
            (Ok(request), _) => Ok(self.welcome(request.seed)?),
        };
        let is_refused = answer.is_err();
        let receives = match shared {
            Some(shared) => Receives::Shared(shared.clone()),
            None => Receives::Own(Memory::new(&self.peer, RECEIVES * SLOT, Usage::RECV)?),
        };
        let replies = Memory::new(&self.peer, RECEIVES * SLOT, Usage::SEND)?;
        if let Receives::Own(memory) = &receives {
            for number in 0..RECEIVES {
                incoming.receive(place(memory, number), number as u64)?;
            }
        }
        let connection = incoming.accept(&answer.unwrap_or_else(Answer::Refused).encode())?;
        self.lent.open.fetch_add(1, Ordering::AcqRel);
        let lent = self.lent.clone();
        let endpoint = Endpoint { connection, receives, replies, replied: 0, lent, is_refused };
        let thread = Builder::new().name("selftest".to_owned()).spawn(move || endpoint.run());
        thread.map(drop).map_err(|why| format!("no thread can be started for it: {why}"))
    }

    fn welcome(&self, seed: u32) -> Result<Answer, String> {
        Ok(Answer::Welcome(Welcome {
            seed,
            peer: library::direct_write(self.library)?,
            lent: self.lent.lent.descriptor()?,
            durable: self.lent.durable.as_ref().map_or(Ok(Vec::new()), Memory::descriptor)?,
            readable: self.lent.readable.descriptor()?,
        }))
    }
}

/// One connection. The order of the fields ends it before its memory.
struct Endpoint {
    connection: Connection,
    receives: Receives,
    /// A ring: an initiator has at most as many unanswered messages.
    replies: Memory,
    replied: usize,
    lent: Arc<Lent>,
    is_refused: bool,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.connection.disconnect();
        self.lent.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Endpoint {
    fn run(mut self) {
        if let Err(why) = self.respond() {
            eprintln!("a connection ended: {why}");
        }
    }

    fn respond(&mut self) -> Result<(), String> {
        let until = self.is_refused.then(|| Instant::now() + REFUSAL_TIMEOUT);
        let mut done = Vec::new();
        loop {
            done.clear();
            self.connection.queue()?.poll(&mut done)?;
            for done in done.iter().filter(|done| done.number != ANSWERED) {
                if !self.answer(done)? {
                    return Ok(());
                }
            }
            if !done.is_empty() {
                continue;
            }
            let (queue, events) = (self.connection.queue()?, self.connection.event_fd()?);
            match interrupt::wait(&[queue.fd(), events], until).map_err(|why| why.to_string())? {
                Wake::Ready => {}
                Wake::Timeout | Wake::Interrupted => return Ok(()),
            }
            if let Some(event) = self.connection.next_event(Instant::now())? {
                if event != library::Event::Established {
                    return Ok(());
                }
            }
            if is_ready(queue.fd()) {
                queue.rearm()?;
            }
        }
    }

    /// Executes the request of a message; returns whether the connection continues.
    fn answer(&mut self, done: &Done) -> Result<bool, String> {
        let Some(len) = done.received else { return Ok(true) };
        let number = done.number as usize;
        let memory = match &self.receives {
            Receives::Own(memory) => memory,
            Receives::Shared(shared) => &shared.memory,
        };
        let mut bytes = vec![0; len.min(SLOT)];
        let range = place(memory, number);
        range.memory.get(range.offset, &mut bytes);
        match &self.receives {
            Receives::Own(_) => self.connection.receive(range, done.number)?,
            Receives::Shared(shared) => shared.queue.receive(memory, range.offset, range.len, done.number)?,
        }
        if let Some(immediate) = done.immediate.filter(|immediate| immediate.is_write) {
            let numbers = [immediate.value.into(), len as u64, 0];
            return self.reply(&Message::new(Kind::Immediate, numbers), None).map(|()| true);
        }
        let mut message = Message::decode(&bytes).ok_or("a message cannot be understood")?;
        let (offset, len) = match message.kind {
            Kind::Sum | Kind::Fill => message.range().ok_or("a message names bytes past the end")?,
            _ => (0, 0),
        };
        let mut whole = self.lent.whole.lock().unwrap_or_else(PoisonError::into_inner);
        match message.kind {
            Kind::Echo | Kind::Immediate => {}
            Kind::Sum => {
                let mut bytes = vec![0; len];
                whole.get(offset, &mut bytes);
                message.a = sum(&bytes);
            }
            Kind::Fill => whole.put(offset, &pattern(message.c, len)),
            Kind::Count => message.a = self.lent.open.load(Ordering::Acquire),
            Kind::Close => return Ok(false),
            Kind::Die => {
                let _ = kill_process(getpid(), Signal::KILL);
            }
        }
        drop(whole);
        self.reply(&message, done.immediate.map(|immediate| immediate.value)).map(|()| true)
    }

    fn reply(&mut self, message: &Message, immediate: Option<u32>) -> Result<(), String> {
        let bytes = message.encode();
        let offset = self.replied % RECEIVES * SLOT;
        self.replied += 1;
        self.replies.put(offset, &bytes);
        let range = Range { memory: &self.replies, offset, len: bytes.len() };
        match immediate {
            Some(value) => self.connection.send_with_immediate(range, value, Notify::Always(ANSWERED)),
            None => self.connection.send(range, Notify::Always(ANSWERED)),
        }
    }
}
