// SPDX-License-Identifier: BSD-3-Clause
//! The cases: each operation with its data verified, and what a responder must refuse. Each case runs in a
//! process of its own and returns what it has tried.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Signal, getpid, kill_process};

use super::initiator::{Attempt, Initiator, Link, OPERATION, SILENT, event};
use super::protocol::{GUARD, Kind, LEN, MAX_CONTENT, Message, SLOT, pattern, sum};
use super::{PART, child};
use crate::library::{Event, Flush, Notify, Range, RemoteMemory};

/// A case.
pub(super) struct Case {
    pub(super) name: &'static str,
    run: fn(&Initiator) -> Result<String, String>,
}

const fn case(name: &'static str, run: fn(&Initiator) -> Result<String, String>) -> Case {
    Case { name, run }
}

/// In this order; the last one ends the responder.
pub(super) const CASES: &[Case] = &[
    case("connect", connect),
    case("reject", reject),
    case("write", write),
    case("read", read),
    case("atomic-write", atomic_write),
    case("flush-visibility", flush_visibility),
    case("flush-persistence", flush_persistence),
    case("send", send),
    case("write-immediate", write_immediate),
    case("send-immediate", send_immediate),
    case("shared-receive-queue", shared_receive_queue),
    case("many-connections", many_connections),
    case("wrong-key", wrong_key),
    case("past-the-end", past_the_end),
    case("without-right", without_right),
    case("disconnect", disconnect),
    case("killed-initiator", killed_initiator),
    case("killed-responder", killed_responder),
];

/// The name of the process that connects and kills itself.
pub(super) const VANISH: &str = "vanish";

impl Case {
    pub(super) fn run(&self, initiator: &Initiator) -> Result<String, String> {
        (self.run)(initiator)
    }
}

/// Offsets and lengths, in the memory of the responder, of one packet and of many.
const RANGES: [(usize, usize); 10] = [
    (0, 1),
    (3, 8),
    (61, 64),
    (4095, 2),
    (1000, 1024),
    (4097, 4096),
    (8191, 4097),
    (777, 65_537),
    (LEN - 1, 1),
    (0, LEN),
];

const SIZES: [usize; 6] = [0, 1, 63, 256, 1500, MAX_CONTENT];

fn range(link: &Link, offset: usize, len: usize) -> Range<'_> {
    Range { memory: &link.local, offset, len }
}

const NOTIFY: Notify = Notify::Always(OPERATION);

fn connect(initiator: &Initiator) -> Result<String, String> {
    let mut link = initiator.link()?;
    link.ask(Kind::Echo, [1, 2, 3])?;
    link.connection.disconnect();
    match event(&link.connection)? {
        Event::Closed => {}
        event => return Err(format!("after this side has disconnected: {event}")),
    }
    drop(link);
    initiator.until_open(1)?;
    Ok("56 bytes of private data, answered; the end is seen at both ends".to_owned())
}

fn reject(initiator: &Initiator) -> Result<String, String> {
    match initiator.rejected()? {
        Attempt::Ended(Event::Rejected) => Ok("a request is rejected".to_owned()),
        Attempt::Ended(event) => Err(format!("instead of a rejection: {event}")),
        Attempt::Connected(_) => Err("the connection is established".to_owned()),
    }
}

/// Fills the responder's memory; returns what it has.
fn filled(link: &mut Link, seed: u64) -> Result<Vec<u8>, String> {
    link.ask(Kind::Fill, [0, (LEN + GUARD) as u64, seed])?;
    Ok(pattern(seed, LEN + GUARD))
}

/// Where the bytes for an offset are in the memory of this side: not across a page if they are few, since the
/// kernel's siw sends others then.
fn source(offset: usize) -> usize {
    offset & !7
}

/// Writes each range by `post`, and compares the whole memory after each, so that stray bytes are found.
fn writes(
    initiator: &Initiator,
    ranges: &[(usize, usize)],
    post: fn(&Link, usize, usize) -> Result<(), String>,
) -> Result<String, String> {
    let mut link = initiator.link()?;
    let mut wanted = filled(&mut link, 1)?;
    for (number, &(offset, len)) in ranges.iter().enumerate() {
        let bytes = pattern(100 + number as u64, len);
        link.local.put(source(offset), &bytes);
        post(&link, offset, len)?;
        link.done(1).map_err(|why| format!("{len} bytes at {offset}: {why}"))?;
        wanted[offset..offset + len].copy_from_slice(&bytes);
        link.compare(0, &wanted).map_err(|why| format!("{len} bytes at {offset}: {why}"))?;
    }
    let longest = ranges.iter().map(|range| range.1).max().unwrap_or(0);
    Ok(format!("{} ranges of up to {longest} bytes", ranges.len()))
}

fn write(initiator: &Initiator) -> Result<String, String> {
    writes(initiator, &RANGES, |link, offset, len| {
        link.connection.write(&link.lent, offset, range(link, source(offset), len), NOTIFY)
    })
}

fn read(initiator: &Initiator) -> Result<String, String> {
    let mut link = initiator.link()?;
    let there = filled(&mut link, 2)?;
    for (offset, len) in RANGES {
        let mut wanted = pattern(3, LEN);
        link.local.fill(&wanted);
        let to = if offset + len == LEN { offset } else { offset + 1 };
        link.connection.read(range(&link, to, len), &link.lent, offset, NOTIFY)?;
        link.done(1).map_err(|why| format!("{len} bytes at {offset}: {why}"))?;
        wanted[to..to + len].copy_from_slice(&there[offset..offset + len]);
        if link.local.first(LEN) != wanted {
            return Err(format!("{len} bytes at {offset}: the data are not those of the responder"));
        }
    }
    Ok(format!("{} ranges of up to {LEN} bytes", RANGES.len()))
}

fn atomic_write(initiator: &Initiator) -> Result<String, String> {
    let mut link = initiator.link()?;
    let mut wanted = filled(&mut link, 4)?;
    for offset in [0, 8, 4088, LEN - 8] {
        let bytes = (offset as u64 ^ 0x0123_4567_89ab_cdef).to_ne_bytes();
        link.connection.atomic_write(&link.lent, offset, bytes, NOTIFY)?;
        link.done(1)?;
        wanted[offset..offset + 8].copy_from_slice(&bytes);
        link.compare(0, &wanted)?;
    }
    Ok("4 words".to_owned())
}

/// Those that are not at the end: the original flushes with a read of 8 bytes.
const FLUSHED: &[(usize, usize)] = RANGES.split_at(8).0;

fn flush_visibility(initiator: &Initiator) -> Result<String, String> {
    writes(initiator, FLUSHED, |link, offset, len| {
        link.connection.write(&link.lent, offset, range(link, source(offset), len), Notify::OnError)?;
        link.connection.flush(&link.lent, offset, len, Flush::Visibility, NOTIFY)
    })
}

fn flush_persistence(initiator: &Initiator) -> Result<String, String> {
    writes(initiator, FLUSHED, |link, offset, len| {
        let durable = link.durable.as_ref().ok_or("the responder could not register memory for it")?;
        let from = range(link, source(offset), len);
        link.connection.write(durable, offset, from, Notify::OnError)?;
        link.connection.flush(durable, offset, len, Flush::Persistent, NOTIFY)
    })
}

/// Sends messages that come back.
fn echoes(link: &mut Link, immediate: Option<u32>) -> Result<(), String> {
    for len in SIZES {
        let content = pattern(len as u64, len);
        let message = Message { content, ..Message::new(Kind::Echo, [len as u64, 0, 0]) };
        link.post(&message, immediate)?;
        let (answer, with) = link.answer(2)?;
        if answer != message {
            return Err(format!("a message with {len} bytes has come back with others"));
        }
        if with != immediate {
            return Err(format!("immediate data: {with:x?} instead of {immediate:x?}"));
        }
    }
    Ok(())
}

fn send(initiator: &Initiator) -> Result<String, String> {
    echoes(&mut initiator.link()?, None)?;
    Ok(format!("{} messages of up to {MAX_CONTENT} bytes, and back", SIZES.len()))
}

fn send_immediate(initiator: &Initiator) -> Result<String, String> {
    echoes(&mut initiator.link()?, Some(0x1234_5678))?;
    Ok(format!("{} messages, and back", SIZES.len()))
}

fn write_immediate(initiator: &Initiator) -> Result<String, String> {
    let mut link = initiator.link()?;
    let mut wanted = filled(&mut link, 5)?;
    let ranges = [(16, 8), (100, 4096), (5000, 70_000)];
    for (number, (offset, len)) in ranges.into_iter().enumerate() {
        let value = 0x8765_4321 + number as u32;
        let bytes = pattern(200 + number as u64, len);
        link.local.put(offset, &bytes);
        link.post_receive()?;
        link.connection.write_with_immediate(&link.lent, offset, range(&link, offset, len), value, NOTIFY)?;
        let (answer, _) = link.answer(2)?;
        if (answer.kind, answer.a, answer.b) != (Kind::Immediate, value.into(), len as u64) {
            return Err(format!(
                "{len} bytes with {value:#x} have arrived as {} with {:#x}",
                answer.b, answer.a
            ));
        }
        wanted[offset..offset + len].copy_from_slice(&bytes);
        link.compare(0, &wanted)?;
    }
    Ok(format!("{} writes", ranges.len()))
}

fn shared_receive_queue(initiator: &Initiator) -> Result<String, String> {
    let mut links = (0..4).map(|_| initiator.shared_link()).collect::<Result<Vec<Link>, String>>()?;
    for round in 0..16 {
        let content = |number: usize| pattern((round * 4 + number) as u64, 1000);
        let message =
            |number| Message { content: content(number), ..Message::new(Kind::Echo, [round as u64, 0, 0]) };
        for (number, link) in links.iter_mut().enumerate() {
            link.post(&message(number), None)?;
        }
        for (number, link) in links.iter().enumerate() {
            if link.answer(2)?.0 != message(number) {
                return Err("a message has come back with other bytes".to_owned());
            }
        }
    }
    Ok("64 messages of 4 connections".to_owned())
}

fn many_connections(initiator: &Initiator) -> Result<String, String> {
    let count = if initiator.short { 8 } else { 64 };
    let began = Instant::now();
    let links = (0..count).map(|_| initiator.small_link(SLOT)).collect::<Result<Vec<Link>, String>>();
    let mut links = links?;
    let time = began.elapsed();
    let len = SLOT.min(LEN / count);
    for (number, link) in links.iter_mut().enumerate() {
        link.local.fill(&pattern(number as u64, len));
        link.connection.write(&link.lent, number * len, range(link, 0, len), NOTIFY)?;
    }
    for (number, link) in links.iter_mut().enumerate() {
        link.done(1)?;
        link.compare(number * len, &pattern(number as u64, len))?;
    }
    drop(links);
    initiator.until_open(1)?;
    let each = time.as_secs_f64() * 1e3 / count as f64;
    Ok(format!("{count} at a time, {each:.1} ms each to connect"))
}

/// The memory of the responder with its key, or its size, changed: a descriptor has the address, the size and
/// the key, little-endian.
fn forged(
    initiator: &Initiator,
    link: &Link,
    change: fn(&mut [u8]) -> Option<()>,
) -> Result<RemoteMemory, String> {
    let mut descriptor = link.descriptor.clone();
    change(&mut descriptor).ok_or("a descriptor is too short")?;
    initiator.remote(&descriptor)
}

/// Fails unless the request that was posted is refused: by its completion, or by the end of the connection.
/// With iWARP a write completes when it has been sent; then a message must get no answer.
fn is_refused(mut link: Link, is_read: bool) -> Result<(), String> {
    let why = match (link.done(1), is_read) {
        (Err(why), _) => why,
        (Ok(_), true) => return Err("the data were read".to_owned()),
        (Ok(_), false) => match link.ask(Kind::Echo, [0; 3]) {
            Err(why) => why,
            Ok(_) => return Err("the write has completed, and the connection is still there".to_owned()),
        },
    };
    // A timeout is not a refusal, and neither is a request that was not acknowledged.
    if !why.starts_with(SILENT) && !why.contains("IBV_WC_RETRY_EXC_ERR") {
        return Ok(());
    }
    match link.connection.next_event(Instant::now())? {
        Some(Event::Closed | Event::Lost) => Ok(()),
        _ => Err(why),
    }
}

/// Reads and writes `len` bytes at `offset` of memory that does not permit it; the responder's memory, with
/// its guard, must not change.
fn refuses(
    initiator: &Initiator,
    (offset, len): (usize, usize),
    reads: bool,
    remote: fn(&Initiator, &Link) -> Result<RemoteMemory, String>,
) -> Result<String, String> {
    let wanted = filled(&mut initiator.link()?, 6)?;
    if reads {
        let mut link = initiator.link()?;
        let remote = remote(initiator, &link)?;
        link.local.fill(&[0; 64]);
        link.connection.read(range(&link, 0, len), &remote, offset, NOTIFY)?;
        is_refused(link, true).map_err(|why| format!("read: {why}"))?;
    }
    let mut link = initiator.link()?;
    let remote = remote(initiator, &link)?;
    link.local.fill(&pattern(7, len));
    link.connection.write(&remote, offset, range(&link, 0, len), NOTIFY)?;
    is_refused(link, false).map_err(|why| format!("write: {why}"))?;
    drop(remote);
    let mut link = initiator.link()?;
    let sum_is = link.ask(Kind::Sum, [0, (LEN + GUARD) as u64, 0])?.a;
    if sum_is != sum(&wanted) {
        return Err("a refused write has changed the memory".to_owned());
    }
    Ok(if reads { "a read and a write are refused" } else { "a write is refused" }.to_owned())
}

fn wrong_key(initiator: &Initiator) -> Result<String, String> {
    refuses(initiator, (64, 512), true, |initiator, link| {
        forged(initiator, link, |descriptor| {
            descriptor.get_mut(16..20)?.iter_mut().for_each(|byte| *byte ^= 0x5a);
            Some(())
        })
    })
}

fn past_the_end(initiator: &Initiator) -> Result<String, String> {
    refuses(initiator, (LEN - 4, 8), true, |initiator, link| {
        forged(initiator, link, |descriptor| {
            let size = descriptor.get_mut(8..16)?;
            size.copy_from_slice(&((LEN + GUARD) as u64).to_le_bytes());
            Some(())
        })
    })
}

fn without_right(initiator: &Initiator) -> Result<String, String> {
    refuses(initiator, (64, 512), false, |initiator, link| initiator.remote(&link.read_only))
}

fn disconnect(initiator: &Initiator) -> Result<String, String> {
    let mut link = initiator.link()?;
    link.tell(Kind::Close)?;
    match event(&link.connection)? {
        Event::Closed => {}
        event => return Err(format!("instead of the end of the connection: {event}")),
    }
    link.connection.disconnect();
    // The message has been sent, and its answer will not come.
    is_flushed(&link.done(2))?;
    drop(link);
    initiator.until_open(1)?;
    Ok("by the responder; a posted receive is flushed".to_owned())
}

/// The receive that was posted when the connection ended.
fn is_flushed<T: std::fmt::Debug>(receive: &Result<T, String>) -> Result<(), String> {
    match receive {
        Err(why) if why.contains("IBV_WC_WR_FLUSH_ERR") => Ok(()),
        other => Err(format!("the posted receive: {other:?}")),
    }
}

fn killed_initiator(initiator: &Initiator) -> Result<String, String> {
    let link = initiator.link()?;
    let mut command = Command::new(child::program()?);
    command.env(PART, VANISH).args(["selftest", &initiator.address().to_string()]).stdin(Stdio::null());
    let status = command.status();
    let status = status.map_err(|why| why.to_string())?;
    if status.signal() != Some(libc::SIGKILL) {
        return Err(format!("the process did not connect and kill itself: {status}"));
    }
    let began = Instant::now();
    initiator.until_open(2)?;
    drop(link);
    Ok(format!("the responder sees it after {:.1} s", began.elapsed().as_secs_f64()))
}

/// Connects and kills itself.
pub(super) fn vanish(initiator: &Initiator) -> Result<(), String> {
    let mut link = initiator.link()?;
    link.ask(Kind::Echo, [0; 3])?;
    let _ = kill_process(getpid(), Signal::KILL);
    Err("it was not killed".to_owned())
}

fn killed_responder(initiator: &Initiator) -> Result<String, String> {
    let mut link = initiator.link()?;
    let began = Instant::now();
    link.tell(Kind::Die)?;
    match event(&link.connection)? {
        Event::Closed | Event::Lost => {}
        event => return Err(format!("instead of the end of the connection: {event}")),
    }
    let time = began.elapsed();
    link.connection.disconnect();
    is_flushed(&link.done(2))?;
    Ok(format!("this side sees it after {:.1} s; a posted receive is flushed", time.as_secs_f64()))
}
