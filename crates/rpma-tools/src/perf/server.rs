// SPDX-License-Identifier: BSD-3-Clause
//! `rpma perf serve`: lends memory to clients, and admits them.

use clap::Args;
use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::lent::Lent;
use super::options::Operation;
use super::protocol::{Answer, Nonsense, Wish};
use super::responder::{Responder, Role};
use super::{INTERRUPTED, PORT, options};
use crate::address::Address;
use crate::interrupt::{self, Wake};
use crate::library::{self, Config, Library, Listener, Memory, Peer, Request, Side, Usage};
use crate::output::print;

/// The maximum number of connections: those of a client with the most threads, and some for clients that are
/// refused because the server is busy.
const MAX_CONNECTIONS: usize = 80;
/// The entries of each queue: two for each operation of the maximum depth.
const QUEUE: u32 = 2 * options::MAX_DEPTH as u32;
/// How long to ignore requests after one failed, for example for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The time limit of connection set-up.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Be the other side of measurements, until Ctrl-C
///
/// Lends memory to one client at a time, and answers the messages of gpspm. The exit status is 2: the
/// arguments are wrong, or the server cannot listen, 130: Ctrl-C.
#[derive(Args)]
pub(crate) struct Serve {
    /// The address of this host, and the port, to listen on
    #[arg(value_name = "ADDR[:PORT]", default_value = "0.0.0.0")]
    address: Address,
    /// The size of the memory; at most the size of the file, if there is one
    #[arg(short, long, value_name = "BYTES", default_value = "64M", value_parser = options::memory)]
    memory: usize,
    /// Lend the memory of this file, for durable data; the file may be on persistent memory (DAX) or not, and
    /// is overwritten
    #[arg(short, long, value_name = "FILE")]
    pmem: Option<PathBuf>,
    /// Lend a memfd that cannot shrink: a client on this host maps it if its memory is of this kind, too
    #[arg(long, conflicts_with = "pmem")]
    memfd: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

struct Server {
    library: &'static Library,
    peer: Peer,
    lent: Arc<Lent>,
    is_file: bool,
    sessions: u32,
    threads: Vec<JoinHandle<()>>,
}

impl Serve {
    pub(super) fn run(&self) -> Result<u8, String> {
        let port = self.address.port.unwrap_or(PORT);
        let ip = self.address.resolve().map_err(|why| format!("{}: {why}", self.address.host))?.ip();
        let library = library::for_tools()?;
        let peer = Peer::new(library, library.context(&ip.to_string(), Side::Local)?)?;
        let memory = self.memory(&peer)?;
        let durable = memory.again(Usage::WRITE_TARGET | Usage::FLUSH_PERSISTENT)?;
        let config = Config::new(library, TIMEOUT)?.queues(QUEUE, QUEUE)?;
        let listener = Listener::new(&peer, &ip.to_string(), port)?;
        self.say(port, memory.len())?;

        let lent = Lent { memory, durable, session: AtomicU32::new(0), began: Instant::now() };
        let is_file = self.pmem.is_some();
        let mut server =
            Server { library, peer, lent: Arc::new(lent), is_file, sessions: 0, threads: Vec::new() };
        let requests = listener.fd()?;
        while interrupt::wait(&[requests], None).map_err(|why| why.to_string())? == Wake::Ready {
            let taken =
                listener.next(Some(&config)).and_then(|request| request.map_or(Ok(()), |r| server.take(r)));
            if let Err(why) = taken {
                eprintln!("rpma perf: a connection was not accepted: {why}");
                let _ = interrupt::wait(&[], Some(Instant::now() + PAUSE));
            }
        }
        // The signal has woken them as well.
        for thread in server.threads {
            let _ = thread.join();
        }
        Ok(INTERRUPTED)
    }

    fn memory(&self, peer: &Peer) -> Result<Memory, String> {
        let usage = Usage::READ_SOURCE | Usage::WRITE_TARGET | Usage::FLUSH_VISIBILITY;
        let Some(path) = &self.pmem else {
            let new = if self.memfd { Memory::of_memfd } else { Memory::new };
            return new(peer, self.memory, usage);
        };
        let named = |why: String| format!("{}: {why}", path.display());
        let file: File =
            OpenOptions::new().read(true).write(true).open(path).map_err(|why| named(why.to_string()))?;
        let len = file.metadata().map_err(|why| named(why.to_string()))?.len();
        let len = self.memory.min(usize::try_from(len).unwrap_or(usize::MAX));
        if len < 4096 {
            return Err(named("it must be a file of 4096 bytes or more".to_owned()));
        }
        Memory::of_file(peer, &file, len, usage).map_err(named)
    }

    fn say(&self, port: u16, len: usize) -> Result<(), String> {
        let address = Address { host: self.address.host.clone(), port: Some(port) }.to_string();
        if self.json {
            let line = serde_json::json!({
                "type": "listening", "address": address, "memory": len, "file": self.pmem,
            });
            return print(&line.to_string());
        }
        let of = self.pmem.as_ref().map_or("memory".to_owned(), |path| path.display().to_string());
        print(&format!("listening on {address}, {len} bytes of {of}"))
    }
}

impl Server {
    /// Admits a client, or rejects it.
    fn take(&mut self, request: Request) -> Result<(), String> {
        self.threads.retain(|thread| !thread.is_finished());
        if self.threads.len() >= MAX_CONNECTIONS {
            return Err("there are too many connections".to_owned());
        }
        let wish = Wish::decode(&request.private_data()?);
        let is_durable = matches!(wish, Ok(Wish::Measure { operation: Operation::Apm, .. }));
        let answer = match wish {
            Ok(Wish::Control) => {
                self.begin_session().map(|session| (session, Role::Control)).ok_or(Answer::Busy)
            }
            Ok(Wish::Measure { session, operation, size, depth }) => {
                if session != 0 && session == self.lent.session.load(Ordering::Acquire) {
                    Ok((session, Role::of(operation, size, depth)))
                } else {
                    Err(Answer::Refused("its session has ended".to_owned()))
                }
            }
            Err(Nonsense::Refused(why)) => Err(Answer::Refused(why)),
            // Rejected without a reason, which the other side would not understand.
            Err(Nonsense::Foreign) => return Err("it is not from rpma perf".to_owned()),
        };
        let (role, answer) = match answer {
            Ok((session, role)) => {
                let region = if is_durable { &self.lent.durable } else { &self.lent.memory };
                let (peer, memory) = (library::direct_write(self.library)?, region.descriptor()?);
                (role, Answer::Welcome { session, is_file: self.is_file, peer, memory })
            }
            Err(answer) => (Role::Refused, answer),
        };
        let responder = Responder::new(&self.peer, request, role, &answer.encode(), self.lent.clone())?;
        let thread = Builder::new().name("perf".to_owned()).spawn(move || responder.run());
        self.threads.push(thread.map_err(|why| format!("no thread can be started for it: {why}"))?);
        Ok(())
    }

    /// Begins a session and returns its number; None if there is one already.
    fn begin_session(&mut self) -> Option<u32> {
        let next = self.sessions.wrapping_add(1).max(1);
        self.lent.session.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire).ok()?;
        self.sessions = next;
        Some(next)
    }
}
