// SPDX-License-Identifier: BSD-3-Clause
//! The control connection, over TCP: the testing side starts and stops responders on the other side, and gets
//! the description of that host. Each call and each reply is a line of JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::child::{self, Child};
use super::end::End;
use super::host::Host;
use super::{PART, RESPOND, is_port_taken};
use crate::interrupt::{self, Wake};
use crate::output::printable_lines;

const VERSION: u32 = 1;
/// The maximum length of a line in bytes.
const LINE: usize = 256 << 10;
/// How long to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for the first call of a testing side, and for each later one: it makes none during all
/// cases of a pair, which may take 8 minutes. The next testing side waits meanwhile.
const FIRST: Duration = Duration::from_secs(3);
const NEXT: Duration = Duration::from_secs(9 * 60);
/// How long a responder may take to listen.
const START: Duration = Duration::from_secs(15);
/// The ports that responders use after that of the control connection.
pub(super) const PORTS: u16 = 60;
/// The number of ports to try, as other programs may use some.
const TRIES: usize = 3;
/// The memory that `rpma perf serve` lends: little, since the memory that may be locked is limited.
const PERF_MEMORY: &str = "1M";

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Call {
    Hello {
        version: u32,
    },
    /// Starts a responder or, with `perf`, `rpma perf serve`.
    Start {
        end: End,
        perf: bool,
    },
    Stop {
        port: u16,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Reply {
    Hello {
        version: u32,
        host: Box<Host>,
    },
    Started {
        port: u16,
    },
    /// The log of a responder that has been stopped.
    Stopped {
        log: String,
    },
    Failed {
        why: String,
    },
}

fn write(mut stream: &TcpStream, line: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(line).map_err(|why| why.to_string())?;
    stream.write_all(format!("{line}\n").as_bytes()).map_err(|why| why.to_string())
}

/// `None`: the other side has closed the connection.
fn read<T: DeserializeOwned>(from: &mut BufReader<TcpStream>, limit: Duration) -> Result<Option<T>, String> {
    let (fds, until) = ([from.get_ref().as_raw_fd()], Instant::now() + limit);
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') && line.len() < LINE {
        if from.buffer().is_empty() {
            match interrupt::wait(&fds, Some(until)).map_err(|why| why.to_string())? {
                Wake::Ready => {}
                Wake::Timeout => return Err(format!("the other side is silent for {} s", limit.as_secs())),
                Wake::Interrupted => return Err("interrupted".to_owned()),
            }
        }
        let bytes = from.fill_buf().map_err(|why| why.to_string())?;
        let end = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
        if end == 0 {
            break;
        }
        line.extend(&bytes[..end]);
        from.consume(end);
    }
    if line.is_empty() {
        return Ok(None);
    }
    let value = serde_json::from_slice(&line).and_then(|mut value| {
        filter(&mut value);
        serde_json::from_value(value)
    });
    value.map(Some).map_err(|_| "it is not rpma selftest of this version".to_owned())
}

/// Replaces the control characters of all strings: some of them reach the terminal and the report.
fn filter(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = printable_lines(text),
        serde_json::Value::Array(values) => values.iter_mut().for_each(filter),
        serde_json::Value::Object(members) => members.values_mut().for_each(filter),
        _ => {}
    }
}

/// The testing side.
pub(super) struct Control {
    stream: BufReader<TcpStream>,
    pub(super) host: Host,
    /// The address of this host that reaches the other side.
    pub(super) local: IpAddr,
}

impl Control {
    pub(super) fn connect(target: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect_timeout(&target, REPLY_TIMEOUT).map_err(|why| why.to_string())?;
        let local = stream.local_addr().map_err(|why| why.to_string())?.ip();
        let mut stream = BufReader::new(stream);
        match call(&mut stream, &Call::Hello { version: VERSION })? {
            Reply::Hello { version: VERSION, host } => Ok(Self { stream, host: *host, local }),
            Reply::Hello { version, .. } => Err(format!("it speaks version {version}, not {VERSION}")),
            Reply::Failed { why } => Err(why),
            _ => Err("its answer cannot be understood".to_owned()),
        }
    }

    /// Starts a responder with the settings of `end`; returns its port.
    pub(super) fn start(&mut self, end: End, perf: bool) -> Result<u16, String> {
        match call(&mut self.stream, &Call::Start { end, perf })? {
            Reply::Started { port } => Ok(port),
            Reply::Failed { why } => Err(why),
            _ => Err("its answer cannot be understood".to_owned()),
        }
    }

    /// Stops a responder; returns its log.
    pub(super) fn stop(&mut self, port: u16) -> String {
        match call(&mut self.stream, &Call::Stop { port }) {
            Ok(Reply::Stopped { log }) => log,
            Ok(_) => String::new(),
            Err(why) => why,
        }
    }
}

fn call(stream: &mut BufReader<TcpStream>, call: &Call) -> Result<Reply, String> {
    write(stream.get_ref(), call)?;
    read(stream, REPLY_TIMEOUT)?.ok_or_else(|| "the other side has closed the control connection".to_owned())
}

/// The side that starts responders, at the address to which the testing side has connected.
pub(super) struct Server {
    pub(super) listener: TcpListener,
    /// The first port of responders.
    pub(super) first: u16,
    pub(super) c_library: Option<PathBuf>,
    pub(super) names: bool,
}

impl Server {
    /// Serves one testing side after the other. Returns after the first one if `once`, or on Ctrl-C.
    pub(super) fn serve(&self, once: bool) -> Result<(), String> {
        let fds = [self.listener.as_raw_fd()];
        while interrupt::wait(&fds, None).map_err(|why| why.to_string())? != Wake::Interrupted {
            let served = self.listener.accept().map_err(|why| why.to_string()).and_then(|(stream, _)| {
                let local = stream.local_addr().map_err(|why| why.to_string())?.ip().to_canonical();
                stream.set_write_timeout(Some(REPLY_TIMEOUT)).map_err(|why| why.to_string())?;
                Session { server: self, local, children: HashMap::new(), next: 0 }
                    .serve(&mut BufReader::new(stream))
            });
            if let Err(why) = served.or_else(|why| if interrupt::is_pending() { Ok(()) } else { Err(why) }) {
                eprintln!("rpma selftest: a control connection ended: {why}");
            }
            if once {
                break;
            }
        }
        Ok(())
    }
}

/// One testing side, with its responders by port.
struct Session<'a> {
    server: &'a Server,
    local: IpAddr,
    children: HashMap<u16, Child>,
    next: u16,
}

impl Session<'_> {
    fn serve(&mut self, stream: &mut BufReader<TcpStream>) -> Result<(), String> {
        let mut limit = FIRST;
        while let Some(call) = read(stream, limit)? {
            limit = NEXT;
            let Server { c_library, names, .. } = self.server;
            let reply = match call {
                Call::Hello { .. } => {
                    let host = Host::this(self.local, c_library.as_deref(), *names);
                    Reply::Hello { version: VERSION, host: host.into() }
                }
                Call::Start { end, perf } => match self.start(end, perf) {
                    Ok(port) => Reply::Started { port },
                    Err(why) => Reply::Failed { why },
                },
                Call::Stop { port } => {
                    Reply::Stopped { log: self.children.remove(&port).map_or(String::new(), Child::stop) }
                }
            };
            write(stream.get_ref(), &reply)?;
        }
        Ok(())
    }

    fn start(&mut self, end: End, perf: bool) -> Result<u16, String> {
        let mut failed = String::new();
        for _ in 0..TRIES {
            // A responder uses two ports.
            let port = self.server.first.saturating_add(self.next);
            self.next = (self.next + 2) % PORTS;
            let address = SocketAddr::new(self.local, port).to_string();
            let mut command = end.command(self.server.c_library.as_deref())?;
            match perf {
                true => command.args(["perf", "serve", &address, "--json", "--memory", PERF_MEMORY]),
                false => command.env(PART, RESPOND).args(["selftest", &address]),
            };
            let child = Child::start(&mut command)?;
            if child.line(START).is_some() {
                self.children.insert(port, child);
                return Ok(port);
            }
            failed = child.stop();
        }
        // The C librpma gives no reasons.
        let why = failed.lines().find(|line| is_port_taken(line)).or(child::reason(&failed));
        Err(why.unwrap_or("a responder does not listen").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selftest::end::Carrier;
    use std::io::Read;

    #[test]
    fn control_characters_of_the_other_side_are_replaced() {
        let mut value = serde_json::json!({"a": ["\u{1b}[2J", {"b": "c\u{7}\nd"}], "e": 1});
        filter(&mut value);
        assert_eq!(value, serde_json::json!({"a": ["?[2J", {"b": "c?\nd"}], "e": 1}));
    }

    #[test]
    fn a_server_describes_its_host_and_survives_nonsense() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let server = Server { listener, first: 1, c_library: None, names: false };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| [(); 3].map(|()| server.serve(true)));
            let mut nonsense = TcpStream::connect(target).unwrap();
            nonsense.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            assert_eq!(nonsense.read(&mut [0]).unwrap_or(0), 0, "an answer");
            // A silent one does not keep the next one out.
            let _silent = TcpStream::connect(target).unwrap();
            let mut control = Control::connect(target).unwrap();
            assert_eq!(control.host.rpma, env!("CARGO_PKG_VERSION"));
            assert!(control.start(Carrier::Device.c(), false).unwrap_err().contains("no C librpma"));
            assert_eq!(control.stop(5), "");
            drop(control);
            assert!(thread.join().unwrap().iter().all(Result::is_ok));
        });
    }
}
