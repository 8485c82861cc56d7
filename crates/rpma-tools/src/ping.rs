// SPDX-License-Identifier: BSD-3-Clause
//! `rpma ping`: reads memory of another host over RDMA, once per interval, and prints the results like
//! ping(8).

mod serve;
mod session;
mod summary;

use clap::Args;
use serde::Serialize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::interrupt::{self, Wake};
use crate::output::print;
use crate::seconds::seconds;
use session::Host;
use summary::Summary;

/// The port if none is given.
const PORT: u16 = 7204;
/// The maximum length of a read, and the size of the server's memory.
const MAX_SIZE: usize = 1 << 20;
/// Exit statuses: all requests were answered, not all were, any other error; and Ctrl-C, as in a shell.
const ANSWERED: u8 = 0;
const LOST: u8 = 1;
const FAILED: u8 = 2;
const INTERRUPTED: u8 = 130;

/// Read memory of another host over RDMA, once a second, and print how long it takes
///
/// The other side is `rpma ping --serve`. Each read accesses its registered memory, without any action of its
/// program, and the data are compared. The output has the format of ping(8), including the summary at the end
/// or on Ctrl-C. A failure is followed by a new connection. The exit status is 0: each read was answered, 1:
/// at least one was not, 2: the arguments are wrong, or nothing could be tried, 130: Ctrl-C.
#[derive(Args)]
pub(crate) struct Ping {
    /// The other side
    #[arg(value_name = "HOST[:PORT]", required_unless_present = "serve", conflicts_with = "serve")]
    address: Option<Address>,
    /// Stop after this many reads
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// The time between two reads
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds::<0>)]
    interval: Duration,
    /// The length of a read in bytes, up to 1048576
    #[arg(short, long, value_name = "BYTES", default_value_t = 64, value_parser = size)]
    size: usize,
    /// How long to wait for a connection, and for an answer
    #[arg(short = 'W', long, value_name = "SECONDS", default_value = "1", value_parser = seconds::<1>)]
    timeout: Duration,
    /// Print the first line and the summary only
    #[arg(short, long)]
    quiet: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Be the other side until Ctrl-C, listening on this address of the host and this port
    #[arg(long, value_name = "ADDR[:PORT]", num_args = 0..=1, default_missing_value = "0.0.0.0",
        conflicts_with_all = ["count", "interval", "size", "timeout"])]
    serve: Option<Address>,
}

fn size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if (1..=MAX_SIZE).contains(&size) => Ok(size),
        _ => Err(format!("it must be a number from 1 to {MAX_SIZE}")),
    }
}

/// A line of `--json`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line<'a> {
    Start { host: &'a str, address: String, size: usize, library: &'a str, provider: Option<&'a str> },
    Reply { seq: u64, bytes: usize, time_ms: f64 },
    Lost { seq: u64, reason: &'a str },
    Summary(&'a Summary),
}

/// A time in milliseconds, with three digits after the point.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

impl Ping {
    pub(crate) fn run(&self) -> ExitCode {
        match self.try_run() {
            Ok(code) => ExitCode::from(code),
            Err(why) => {
                eprintln!("rpma ping: {why}");
                ExitCode::from(FAILED)
            }
        }
    }

    fn try_run(&self) -> Result<u8, String> {
        // Must precede loading the library, so that its threads block the signals as well.
        interrupt::catch().map_err(|why| format!("signals cannot be caught: {why}"))?;
        if let Some(address) = &self.serve {
            return serve::serve(address, self.json);
        }
        let Some(address) = &self.address else { return Err("no host given".to_owned()) };
        let address = Address { port: address.port.or(Some(PORT)), ..address.clone() };
        let target = address.resolve().map_err(|why| format!("{}: {why}", address.host))?;
        let mut host = Host::new(target, self.size, self.timeout)?;
        self.say(&host.library.version().unwrap_or("before 1.4".to_owned()), &address, &host)?;
        let summary = self.measure(&address, &mut host)?;
        self.print(&Line::Summary(&summary), || summary.lines(&address.to_string()))?;
        Ok(match (summary.interrupted, summary.answered == summary.sent) {
            (true, _) => INTERRUPTED,
            (false, true) => ANSWERED,
            (false, false) => LOST,
        })
    }

    fn say(&self, version: &str, address: &Address, host: &Host) -> Result<(), String> {
        let (provider, size) = (host.provider.as_deref(), self.size);
        let start = Line::Start {
            host: &address.host,
            address: host.target.to_string(),
            size,
            library: version,
            provider,
        };
        self.print(&start, || {
            let provider = provider.map(|name| format!(", provider {name}")).unwrap_or_default();
            format!("PING {address} ({}) {size} bytes by RDMA read, librpma {version}{provider}", host.target)
        })
    }

    fn measure(&self, address: &Address, host: &mut Host) -> Result<Summary, String> {
        let began = Instant::now();
        let mut summary = Summary::default();
        let mut next = began;
        for seq in 1..=self.count.unwrap_or(u64::MAX) {
            match host.read() {
                Ok(Some(time)) => {
                    summary.add(time);
                    let time_ms = millis(time);
                    let bytes = self.size;
                    self.print_one(&Line::Reply { seq, bytes, time_ms }, || {
                        format!("{bytes} bytes from {address}: seq={seq} time={time_ms:.3} ms")
                    })?;
                }
                // interrupted: the result of this read is not known
                Ok(None) => {
                    summary.interrupted = true;
                    break;
                }
                Err(why) => {
                    summary.sent += 1;
                    self.print_one(&Line::Lost { seq, reason: &why }, || {
                        format!("no answer from {address}: seq={seq} {why}")
                    })?;
                }
            }
            if self.count == Some(seq) {
                break;
            }
            next += self.interval;
            let fds: Vec<_> = host.event_fd().into_iter().collect();
            let woken = interrupt::wait(&fds, Some(next)).map_err(|why| why.to_string())?;
            let woken = match woken {
                // The connection ended meanwhile: the next read will report that when it is due.
                Wake::Ready => interrupt::wait(&[], Some(next)).map_err(|why| why.to_string())?,
                other => other,
            };
            if woken == Wake::Interrupted {
                summary.interrupted = true;
                break;
            }
            // After a read that took longer than an interval, missed reads are not made up for.
            next = next.max(Instant::now());
        }
        summary.time_ms = millis(began.elapsed());
        Ok(summary)
    }

    fn print_one(&self, line: &Line<'_>, text: impl FnOnce() -> String) -> Result<(), String> {
        if self.quiet { Ok(()) } else { self.print(line, text) }
    }

    fn print(&self, line: &Line<'_>, text: impl FnOnce() -> String) -> Result<(), String> {
        let text =
            if self.json { serde_json::to_string(line).map_err(|why| why.to_string())? } else { text() };
        print(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_limits() {
        assert!(size("0").is_err() && size("1048577").is_err() && size("x").is_err());
        assert_eq!(size("1048576"), Ok(MAX_SIZE));
    }

    #[test]
    fn lines_of_json() {
        let line = serde_json::to_string(&Line::Reply {
            seq: 3,
            bytes: 64,
            time_ms: millis(Duration::from_nanos(41_400)),
        });
        assert_eq!(line.unwrap(), r#"{"type":"reply","seq":3,"bytes":64,"time_ms":0.041}"#);
        let line = serde_json::to_string(&Line::Summary(&Summary::default())).unwrap();
        assert!(line.starts_with(r#"{"type":"summary","sent":0,"#), "{line}");
    }
}
