// SPDX-License-Identifier: BSD-3-Clause
//! `rpma perf`: measures RDMA to another host, by operation and size.

mod change;
mod compare;
mod lent;
mod measure;
mod options;
mod plot;
mod progress;
mod protocol;
mod report;
mod responder;
mod server;
mod session;
mod workload;

use clap::{Args, Subcommand, ValueEnum};
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::address::Address;
use crate::interrupt;
use measure::Plan;
use options::{Case, Numbers, Operation};
use plot::Plot;
use progress::Progress;
use report::{FORMAT, Report};
use session::Session;

/// The port if none is given.
const PORT: u16 = 7205;
/// Exit statuses: everything was measured, the other side failed, any other error; and Ctrl-C, as in a shell.
const MEASURED: u8 = 0;
const LOST: u8 = 1;
const FAILED: u8 = 2;
const INTERRUPTED: u8 = 130;

/// Measure latency and bandwidth of RDMA operations
///
/// The other side is `rpma perf serve`. Each combination of operation, size, threads and depth is measured
/// for the given time and printed as one line: operations and bytes per second, latency percentiles, and the
/// processor time of an operation on both sides. The exit status is 0: all was measured, 1: the other side
/// cannot be reached or has failed, 2: the arguments are wrong, or nothing could be tried or written, 130:
/// Ctrl-C, after printing the results so far.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(crate) struct Perf {
    #[command(subcommand)]
    side: Option<Side>,
    /// The other side
    #[arg(value_name = "HOST[:PORT]", required = true)]
    address: Option<Address>,
    /// The operations to measure; by default all
    #[arg(short, long, value_name = "OPERATION", value_delimiter = ',')]
    op: Vec<Operation>,
    /// Bytes per operation, up to 64M: 64,4k for example, or 8..1M for all powers of two in between
    #[arg(short, long, value_name = "BYTES", default_value = "64,4k,64k", value_parser = options::sizes)]
    size: Numbers,
    /// Outstanding operations on each connection, up to 512
    #[arg(short, long, value_name = "COUNT", default_value = "1", value_parser = options::depths)]
    depth: Numbers,
    /// Threads, each with its own connection, up to 64
    #[arg(short, long, value_name = "COUNT", default_value = "1", value_parser = options::threads)]
    threads: Numbers,
    /// How long to measure each combination
    #[arg(short = 'D', long, value_name = "SECONDS", default_value = "1", value_parser = options::seconds)]
    duration: Duration,
    /// How long to wait for a connection, and for a completion
    #[arg(short = 'W', long, value_name = "SECONDS", default_value = "5", value_parser = options::seconds)]
    timeout: Duration,
    /// Poll for completions all the time; otherwise a thread that has found none for 100 us sleeps
    #[arg(short, long)]
    poll: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Draw latency and bandwidth
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Compare with an earlier result of --json
    #[arg(long, value_name = "OLD.json")]
    compare: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Side {
    Serve(server::Serve),
}

/// Why a measurement ended early.
#[derive(Debug)]
enum Failure {
    /// A failure of the other side or of the network.
    Peer(String),
    /// The server is serving another client.
    Busy,
    /// A failure of this side.
    Own(String),
    /// Ctrl-C.
    Interrupted,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Peer(why)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(why) | Self::Own(why) => f.write_str(why),
            Self::Busy => f.write_str("the server refuses: another client is measuring"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl Failure {
    fn status(&self) -> u8 {
        match self {
            Self::Peer(_) | Self::Busy => LOST,
            Self::Own(_) => FAILED,
            Self::Interrupted => INTERRUPTED,
        }
    }
}

impl Perf {
    pub(crate) fn run(&self) -> ExitCode {
        match self.try_run() {
            Ok(code) => ExitCode::from(code),
            Err(why) => {
                eprintln!("rpma perf: {why}");
                ExitCode::from(why.status())
            }
        }
    }

    fn try_run(&self) -> Result<u8, Failure> {
        // Must precede loading the library, so that its threads block the signals as well.
        interrupt::catch().map_err(|why| Failure::Own(format!("signals cannot be caught: {why}")))?;
        if let Some(Side::Serve(serve)) = &self.side {
            return serve.run().map_err(Failure::Own);
        }
        let Some(address) = &self.address else { return Err(Failure::Own("no host given".to_owned())) };
        let old = self.compare.as_deref().map(compare::read).transpose().map_err(Failure::Own)?;
        let address = Address { port: address.port.or(Some(PORT)), ..address.clone() };
        let unknown = |why| Failure::Own(format!("{}: {why}", address.host));
        let target = address.resolve().map_err(unknown)?;
        let mut session = Session::new(target, self.timeout)?;
        let plot = self.plot.as_deref().map(Plot::create).transpose().map_err(Failure::Own)?;

        let mut report = self.report(&address, &session);
        let ended = self.measure(&mut session, &mut report)?;
        report.interrupted = matches!(ended, Some(Failure::Interrupted));
        report.failure = ended.as_ref().filter(|_| !report.interrupted).map(ToString::to_string);
        report.changes = old.as_ref().map(|old| compare::changes(old, &report.results));
        self.print_end(&report).map_err(Failure::Own)?;
        if let Some(plot) = plot {
            plot.write(&report).map_err(Failure::Own)?;
        }
        match ended {
            None => Ok(MEASURED),
            Some(Failure::Interrupted) => Ok(INTERRUPTED),
            Some(why) => Err(why),
        }
    }

    fn report(&self, address: &Address, session: &Session) -> Report {
        Report {
            format: FORMAT.to_owned(),
            server: address.to_string(),
            library: session.library.version().unwrap_or("before 1.4".to_owned()),
            provider: session.provider.clone(),
            memory: if session.is_file { "file" } else { "memory" }.to_owned(),
            duration_s: self.duration.as_secs_f64(),
            interrupted: false,
            failure: None,
            results: Vec::new(),
            changes: None,
        }
    }

    /// Measures all cases, until the first failure, which is returned. An error if the output cannot be
    /// written.
    fn measure(&self, session: &mut Session, report: &mut Report) -> Result<Option<Failure>, Failure> {
        let operations = if self.op.is_empty() { Operation::value_variants() } else { &self.op };
        let cases: Vec<Case> = options::cases(operations, &self.size, &self.depth, &self.threads);
        let plan = Plan { duration: self.duration, timeout: self.timeout, poll: self.poll };
        let say = |line: &str| if self.json { Ok(()) } else { print(line).map_err(Failure::Own) };
        say(&beginning(report))?;
        let progress = Progress::new(cases.len(), self.duration);
        for (number, case) in cases.iter().enumerate() {
            progress.begin(case);
            let (row, failure) = measure::measure(session, case, &plan, &|time| progress.tell(number, time));
            if let Some(row) = row {
                progress.print(|| say(&row.line()))?;
                report.results.push(row);
            }
            if failure.is_some() {
                progress.end();
                return Ok(failure);
            }
        }
        progress.end();
        Ok(None)
    }

    fn print_end(&self, report: &Report) -> Result<(), String> {
        if self.json {
            return print(&serde_json::to_string_pretty(report).map_err(|why| why.to_string())?);
        }
        match (&report.changes, &self.compare) {
            (Some(changes), Some(path)) => print(&compare::lines(changes, &path.display().to_string())),
            _ => Ok(()),
        }
    }
}

/// The first lines of the output.
fn beginning(report: &Report) -> String {
    let Report { server, library, provider, memory, duration_s, .. } = report;
    let provider = provider.as_ref().map(|name| format!(", provider {name}")).unwrap_or_default();
    let region = if memory == "file" { "a file" } else { "plain memory" };
    format!(
        "PERF {server}: librpma {library}{provider}, {duration_s} s per row; the server's region is {region}\n{}",
        report::heading()
    )
}

fn print(line: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|why| format!("the output cannot be written: {why}"))
}
