// SPDX-License-Identifier: BSD-3-Clause
//! The server's side of one connection: it does nothing, takes messages, or answers them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lent::Lent;
use super::options::{MAX_DEPTH, Operation};
use super::protocol::{ASK, CREDIT, CREDITED, Cpu, Persist, Persisted, RECEIVES};
use crate::cpu;
use crate::interrupt::{self, Wake};
use crate::library::{Connection, Event, Memory, Notify, Peer, Range, Request, Usage};

/// How long to poll for the next message before sleeping; the client polls as long for the answer.
const SPIN: Duration = Duration::from_micros(100);
/// How long to wait for a refused client to read the reason, and for the event of a connection whose requests
/// failed.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Lasts as long as the session, and requests processor times.
    Control,
    /// Reads and writes, in which the server's program takes no part.
    OneSided,
    /// Messages of this size are taken, and credited.
    Sink { size: usize },
    /// Messages request that data are made durable, up to `depth` at a time.
    Persist { depth: usize },
    /// The client has been refused; the server waits until it disconnects.
    Refused,
}

impl Role {
    pub(super) fn of(operation: Operation, size: usize, depth: usize) -> Self {
        match operation {
            Operation::Send => Self::Sink { size },
            Operation::Gpspm => Self::Persist { depth },
            _ => Self::OneSided,
        }
    }

    /// The length of a message, and how many receives are posted: as many as a client may send before it has
    /// an answer.
    fn messages(self) -> Option<(usize, usize)> {
        match self {
            Self::Control => Some((ASK.len(), 1)),
            Self::Sink { size } => Some((size, RECEIVES)),
            Self::Persist { depth } => Some((Persist::LEN, depth.min(MAX_DEPTH))),
            Self::OneSided | Self::Refused => None,
        }
    }
}

/// The size of a buffer for any answer.
const ANSWER: usize = 16;

/// The message and answer buffers of a connection.
struct Mailbox {
    received: Memory,
    len: usize,
    /// Whether all messages are received into the same bytes, because their content is ignored.
    ignored: bool,
    receives: usize,
    /// A ring. An answer has been delivered before its slot is reused, because the client waits for it; a
    /// client that does not wait only corrupts its own answers.
    answers: Memory,
    answered: usize,
    /// The messages taken since the last credit.
    taken: usize,
}

impl Mailbox {
    fn new(peer: &Peer, role: Role) -> Result<Option<Self>, String> {
        let Some((len, receives)) = role.messages() else { return Ok(None) };
        let ignored = matches!(role, Role::Sink { .. });
        let places = if ignored { 1 } else { receives };
        let received = Memory::new(peer, len * places, Usage::RECV)?;
        let answers = Memory::new(peer, ANSWER * receives, Usage::SEND)?;
        Ok(Some(Self { received, len, ignored, receives, answers, answered: 0, taken: 0 }))
    }

    fn place(&self, number: usize) -> Range<'_> {
        let offset = if self.ignored { 0 } else { number * self.len };
        Range { memory: &self.received, offset, len: self.len }
    }
}

/// One connection. The order of the fields ends it before its memory.
pub(super) struct Responder {
    connection: Connection,
    mailbox: Option<Mailbox>,
    role: Role,
    lent: Arc<Lent>,
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.role == Role::Control {
            self.lent.end_session();
        }
        self.connection.disconnect();
    }
}

impl Responder {
    /// Accepts a request, with receives posted for the first messages.
    pub(super) fn new(
        peer: &Peer,
        request: Request,
        role: Role,
        answer: &[u8],
        lent: Arc<Lent>,
    ) -> Result<Self, String> {
        let prepared = Mailbox::new(peer, role).and_then(|mailbox| {
            for number in 0..mailbox.as_ref().map_or(0, |m| m.receives) {
                let Some(mailbox) = &mailbox else { continue };
                request.receive(mailbox.place(number), number as u64)?;
            }
            Ok((mailbox, request.accept(answer)?))
        });
        match prepared {
            Ok((mailbox, connection)) => Ok(Self { connection, mailbox, role, lent }),
            Err(why) => {
                if role == Role::Control {
                    lent.end_session();
                }
                Err(why)
            }
        }
    }

    /// Serves the connection until the client has gone.
    pub(super) fn run(mut self) {
        if let Err(why) = self.respond() {
            eprintln!("rpma perf: a connection failed: {why}");
        }
    }

    fn respond(&mut self) -> Result<(), String> {
        let Self { connection, mailbox, role, lent } = self;
        let (queue, events) = (connection.queue()?, connection.event_fd()?);
        let until = (*role == Role::Refused).then(|| Instant::now() + EVENT_TIMEOUT);
        let (mut done, mut last) = (Vec::new(), Instant::now());
        loop {
            done.clear();
            if let Err(why) = queue.poll(&mut done) {
                // When a client disconnects, its posted receives fail.
                return if has_ended(connection, Instant::now() + EVENT_TIMEOUT)? {
                    Ok(())
                } else {
                    Err(why)
                };
            }
            if let (Some(mailbox), false) = (mailbox.as_mut(), done.is_empty()) {
                for done in &done {
                    let Some(len) = done.received else { continue };
                    answer(connection, mailbox, *role, lent, done.number as usize, len)?;
                }
                last = Instant::now();
                continue;
            }
            if mailbox.is_some() && *role != Role::Control && last.elapsed() < SPIN {
                std::hint::spin_loop();
                continue;
            }
            match interrupt::wait(&[queue.fd(), events], until).map_err(|why| why.to_string())? {
                Wake::Ready if has_ended(connection, Instant::now())? => return Ok(()),
                Wake::Ready => {
                    let ready = interrupt::wait(&[queue.fd()], Some(Instant::now()));
                    if ready.is_ok_and(|wake| wake == Wake::Ready) {
                        queue.rearm()?;
                    }
                }
                Wake::Timeout | Wake::Interrupted => return Ok(()),
            }
        }
    }
}

/// Whether an event reports the end of the connection by then.
fn has_ended(connection: &Connection, until: Instant) -> Result<bool, String> {
    loop {
        match connection.next_event(until)? {
            Some(Event::Established) => {}
            other => return Ok(other.is_some()),
        }
    }
}

/// Takes a message, posts its receive again, and answers it.
fn answer(
    connection: &Connection,
    mailbox: &mut Mailbox,
    role: Role,
    lent: &Lent,
    number: usize,
    len: usize,
) -> Result<(), String> {
    let mut message = [0; Persist::LEN];
    let place = mailbox.place(number);
    if !mailbox.ignored {
        place.memory.get(place.offset, &mut message[..mailbox.len.min(Persist::LEN)]);
    }
    connection.receive(place, number as u64)?;
    let mut reply = [0; ANSWER];
    let reply: &[u8] = match role {
        Role::Control => {
            let (used, at) = (cpu::used().as_nanos() as u64, lent.began.elapsed().as_nanos() as u64);
            reply = Cpu { used, at }.encode();
            &reply
        }
        Role::Persist { .. } => {
            let persist = Persist::decode(&message[..len.min(Persist::LEN)]);
            let persist = persist.ok_or("a message is too short")?;
            reply[..Persisted::LEN].copy_from_slice(&make_durable(lent, persist)?.encode());
            &reply[..Persisted::LEN]
        }
        Role::Sink { .. } => {
            mailbox.taken += 1;
            if mailbox.taken < CREDIT {
                return Ok(());
            }
            mailbox.taken = 0;
            &CREDITED
        }
        Role::OneSided | Role::Refused => return Ok(()),
    };
    let offset = mailbox.answered % mailbox.receives * ANSWER;
    mailbox.answered += 1;
    mailbox.answers.put(offset, reply);
    connection.send(Range { memory: &mailbox.answers, offset, len: reply.len() }, Notify::Always(0))
}

/// Fails if the range is not in the memory, in which case the client is not `rpma perf`.
fn make_durable(lent: &Lent, persist: Persist) -> Result<Persisted, String> {
    let range = persist.range(lent.memory.len());
    let (offset, len) = range.ok_or("a message names bytes past the end of the memory")?;
    let result = lent.memory.persist(offset, len);
    let errno = result.err().map_or(0, |why| why.raw_os_error().unwrap_or(libc::EIO));
    Ok(Persisted { number: persist.number, errno: errno.unsigned_abs() })
}
