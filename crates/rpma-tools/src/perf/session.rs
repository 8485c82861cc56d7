// SPDX-License-Identifier: BSD-3-Clause
//! The measuring side: its connections to the server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Failure;
use super::options::{Case, MAX_SIZE, Operation};
use super::protocol::{ASK, Answer, CREDIT, Cpu, Persisted, RECEIVES, Wish};
use super::workload::{Channel, Mail, Work, silent};
use crate::interrupt::{self, Wake};
use crate::library::{
    self, Config, Connection, Event, Library, Memory, Notify, Peer, Range, RemoteMemory, Side, Usage,
};
use crate::messages::Messages;

/// The maximum memory of a connection on each side, beyond which operations reuse it.
const WINDOW: usize = MAX_SIZE;
/// The alignment of the parts of the memory: a cache line.
const LINE: usize = 64;
/// How long to retry if the server is busy: it may not have detected yet that the previous client has gone,
/// which takes at most a second.
const RETRY_TIME: Duration = Duration::from_secs(2);
/// The time between two such requests.
const PAUSE: Duration = Duration::from_millis(50);

/// The control connection, and the data for creating others.
pub(super) struct Session {
    control: Control,
    peer: Peer,
    pub(super) library: &'static Library,
    /// The library's name of the provider; None before 1.4.
    pub(super) provider: Option<String>,
    target: SocketAddr,
    timeout: Duration,
    /// Whether the memory of this side is that of memfds.
    memfd: bool,
    number: u32,
    /// Whether the server's memory is a file.
    pub(super) is_file: bool,
    messages: Option<Messages>,
}

/// The order of the fields ends the connection before its memory.
struct Control {
    connection: Connection,
    ask: Memory,
    answer: Memory,
}

impl Drop for Control {
    fn drop(&mut self) {
        self.connection.disconnect();
    }
}

/// A connection that the server has admitted.
struct Welcome {
    connection: Connection,
    session: u32,
    is_file: bool,
    peer: Vec<u8>,
    memory: Vec<u8>,
}

impl Session {
    /// Fails if the server is busy, or if there is none.
    pub(super) fn new(target: SocketAddr, timeout: Duration, memfd: bool) -> Result<Self, Failure> {
        // Messages are not captured if the user has set RPMA_LOG.
        let messages = std::env::var_os("RPMA_LOG").is_none().then(Messages::divert);
        let library = library::for_tools().map_err(Failure::Own)?;
        let context = library.context(&target.ip().to_string(), Side::Remote).map_err(Failure::Own)?;
        let said = messages.as_ref().map(Messages::new_ones).unwrap_or_default();
        let provider =
            said.iter().find_map(|line| line.strip_prefix("provider ")?.split(' ').next()).map(str::to_owned);
        let peer = Peer::new(library, context).map_err(Failure::Own)?;
        let config = Config::new(library, timeout)?.queues(2, 2)?;
        let until = Instant::now() + RETRY_TIME;
        let welcome = loop {
            match connect(&peer, &config, target, timeout, Wish::Control, messages.as_ref()) {
                Err(Failure::Busy) if Instant::now() < until => {
                    let woken = interrupt::wait(&[], Some(Instant::now() + PAUSE));
                    if woken.map_err(|why| why.to_string())? == Wake::Interrupted {
                        return Err(Failure::Interrupted);
                    }
                }
                connected => break connected?,
            }
        };
        let control = Control {
            connection: welcome.connection,
            ask: Memory::new(&peer, ASK.len(), Usage::SEND)?,
            answer: Memory::new(&peer, Cpu::LEN, Usage::RECV)?,
        };
        let (number, is_file) = (welcome.session, welcome.is_file);
        Ok(Self { control, peer, library, provider, target, timeout, memfd, number, is_file, messages })
    }

    /// The processor time of the server.
    pub(super) fn server_cpu(&mut self) -> Result<Cpu, Failure> {
        let Control { connection, ask, answer } = &mut self.control;
        if let Some(event) = connection.next_event(Instant::now())? {
            return Err(Failure::Peer(event.to_string()));
        }
        ask.fill(&ASK);
        connection.receive(Range { memory: answer, offset: 0, len: Cpu::LEN }, 0)?;
        connection.send(Range { memory: ask, offset: 0, len: ASK.len() }, Notify::Always(0))?;
        let until = Instant::now() + self.timeout;
        // One completion for the message, one for its answer.
        for _ in 0..2 {
            match connection.completion(until)? {
                Some(()) => {}
                None if interrupt::is_pending() => return Err(Failure::Interrupted),
                None => return Err(Failure::Peer(silent(self.timeout))),
            }
        }
        Cpu::decode(&answer.first(Cpu::LEN))
            .ok_or_else(|| Failure::Peer("its answer cannot be understood".to_owned()))
    }

    /// A connection for one thread of a case.
    pub(super) fn channel(&self, case: &Case, index: usize) -> Result<Channel, Failure> {
        let &Case { operation, size, depth, threads } = case;
        let wish = Wish::Measure { session: self.number, operation, size, depth };
        // A receive for each message that the server may send.
        let answers = match operation {
            Operation::Gpspm => depth,
            Operation::Send => RECEIVES / CREDIT,
            _ => 0,
        };
        // At most two requests per operation; no queue has 0 entries.
        let (sends, receives) = (2 * depth as u32, answers.max(1) as u32);
        let config = Config::new(self.library, self.timeout)?.queues(sends, receives)?;
        let Welcome { connection, peer, memory, .. } =
            connect(&self.peer, &config, self.target, self.timeout, wish, self.messages.as_ref())?;
        if operation == Operation::Apm {
            connection.apply(&peer)?;
        }
        let remote = RemoteMemory::new(self.library, &memory)?;
        let share = (remote.size()? / threads).min(WINDOW);
        let stride = size.next_multiple_of(LINE);
        let slots = depth.min(share / stride);
        if slots == 0 {
            return Err(Failure::Own(format!(
                "the server lends {} bytes, and {threads} x {stride} are needed: see --memory of rpma perf serve",
                remote.size()?
            )));
        }
        let usage = Usage::READ_TARGET | Usage::WRITE_SOURCE | Usage::SEND;
        let new = if self.memfd { Memory::of_memfd } else { Memory::new };
        let mut local = new(&self.peer, slots * stride, usage)?;
        local.fill(&(0..slots * stride).map(|i| (i ^ (i >> 8)) as u8).collect::<Vec<_>>());
        let mail = (answers > 0).then(|| self.mail(&connection, answers)).transpose()?;
        let first = index * slots * stride;
        let work = Work { remote, local, mail, credit: RECEIVES, case: *case, slots, stride, first };
        Ok(Channel { connection, work })
    }

    fn mail(&self, connection: &Connection, count: usize) -> Result<Mail, Failure> {
        let requests = Memory::new(&self.peer, count * Mail::REQUEST, Usage::SEND)?;
        let answers = Memory::new(&self.peer, count * Persisted::LEN, Usage::RECV)?;
        let mail = Mail { requests, answers };
        for number in 0..count {
            connection.receive(mail.answer(number), number as u64)?;
        }
        Ok(mail)
    }
}

fn connect(
    peer: &Peer,
    config: &Config,
    target: SocketAddr,
    timeout: Duration,
    wish: Wish,
    messages: Option<&Messages>,
) -> Result<Welcome, Failure> {
    // Earlier messages are not about this attempt.
    let _ = messages.map(Messages::new_ones);
    let until = Instant::now() + timeout;
    let connection = peer.connect_with(config, &target.ip().to_string(), target.port(), &wish.encode())?;
    match connection.next_event(until)? {
        Some(Event::Established) => {}
        Some(event) => {
            let why = messages.and_then(Messages::reason).map(|why| format!(": {why}"));
            return Err(Failure::Peer(format!("{event}{}", why.unwrap_or_default())));
        }
        None if interrupt::is_pending() => return Err(Failure::Interrupted),
        None => return Err(Failure::Peer(format!("no connection within {} s", timeout.as_secs_f64()))),
    }
    match Answer::decode(&connection.private_data()?) {
        Some(Answer::Welcome { session, is_file, peer, memory }) => {
            Ok(Welcome { connection, session, is_file, peer, memory })
        }
        Some(Answer::Refused(why)) => {
            connection.disconnect();
            Err(Failure::Peer(format!("the server refuses: {why}")))
        }
        Some(Answer::Busy) => {
            connection.disconnect();
            Err(Failure::Busy)
        }
        None => {
            connection.disconnect();
            Err(Failure::Peer("it accepts connections, but is not rpma perf serve".to_owned()))
        }
    }
}
