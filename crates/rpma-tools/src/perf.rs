// SPDX-License-Identifier: BSD-3-Clause
//! `rpma perf`: measures RDMA to another host, by operation and size.

mod change;
mod compare;
mod interval;
mod lent;
mod measure;
mod options;
mod origin;
mod plot;
mod progress;
mod protocol;
mod repeats;
mod report;
mod responder;
mod server;
mod session;
mod workload;

use clap::{Args, Subcommand, ValueEnum};
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::address::Address;
use crate::interrupt;
use crate::output::print;
use crate::seconds::seconds;
use measure::Plan;
use options::{Case, MAX_REPEATS, Numbers, Operation, Percent};
use origin::Origin;
use plot::Plot;
use progress::Progress;
use repeats::Repeats;
use report::{FORMAT, Report, Row};
use session::Session;

/// The port if none is given.
const PORT: u16 = 7205;
/// Exit statuses: everything was measured, the other side failed, any other error, worse than the limit of
/// `--fail-over`; and Ctrl-C, as in a shell.
const MEASURED: u8 = 0;
const LOST: u8 = 1;
const FAILED: u8 = 2;
const WORSE: u8 = 3;
const INTERRUPTED: u8 = 130;

/// Measure latency and bandwidth of RDMA operations
///
/// The other side is `rpma perf serve`. Each combination of operation, size, threads and depth is measured
/// for the given time and printed as one line: operations and bytes per second, latency percentiles, and the
/// processor time of an operation on both sides. The exit status is 0: all was measured, 1: the other side
/// cannot be reached or has failed, 2: the arguments are wrong, or nothing could be tried or written, 3:
/// worse than --fail-over permits, 130: Ctrl-C, after printing the results so far.
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
    #[arg(short = 'D', long, value_name = "SECONDS", default_value = "1", value_parser = seconds::<1>)]
    duration: Duration,
    /// How often to measure each combination, up to 30, in turn with the others; by default as often as the
    /// result of --compare, or once
    #[arg(short, long, value_name = "COUNT", value_parser = options::repeats)]
    repeat: Option<usize>,
    /// How long to wait for a connection, and for a completion
    #[arg(short = 'W', long, value_name = "SECONDS", default_value = "5", value_parser = seconds::<1>)]
    timeout: Duration,
    /// Poll for completions all the time; otherwise a thread that has found none for 100 us sleeps
    #[arg(short, long)]
    poll: bool,
    /// Use memory of a memfd that cannot shrink, as the server may (see `rpma perf serve --help`)
    #[arg(long)]
    memfd: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Draw latency and bandwidth
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Compare with an earlier result of --json
    #[arg(long, value_name = "OLD.json")]
    compare: Option<PathBuf>,
    /// Exit with status 3 if operations per second or the median latency of a combination are worse by more
    /// than this, with 95% confidence; needs repeats, for example 5
    #[arg(long, value_name = "PERCENT", value_parser = options::percent, requires = "compare")]
    fail_over: Option<Percent>,
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
        let repeat = self.repeat.or(old.as_ref().map(|old| old.repeat.clamp(1, MAX_REPEATS))).unwrap_or(1);
        if let Some(old) = old.as_ref().filter(|_| self.fail_over.is_some()) {
            compare::can_decide(old, repeat).map_err(Failure::Own)?;
        }
        let address = Address { port: address.port.or(Some(PORT)), ..address.clone() };
        let unknown = |why| Failure::Own(format!("{}: {why}", address.host));
        let target = address.resolve().map_err(unknown)?;
        let mut session = Session::new(target, self.timeout, self.memfd)?;
        let plot = self.plot.as_deref().map(Plot::create).transpose().map_err(Failure::Own)?;

        let mut report = self.report(&address, &session, repeat);
        let ended = self.measure(&mut session, &mut report)?;
        report.interrupted = matches!(ended, Some(Failure::Interrupted));
        report.failure = ended.as_ref().filter(|_| !report.interrupted).map(ToString::to_string);
        report.comparison = old.as_ref().map(|old| compare::compare(old, &report.results, self.fail_over));
        self.print_end(&report).map_err(Failure::Own)?;
        if let Some(plot) = plot {
            plot.write(&report).map_err(Failure::Own)?;
        }
        match ended {
            None => self.verdict(&report),
            Some(Failure::Interrupted) => Ok(INTERRUPTED),
            Some(why) => Err(why),
        }
    }

    /// The status of a complete measurement.
    fn verdict(&self, report: &Report) -> Result<u8, Failure> {
        match &report.comparison {
            Some(comparison) if self.fail_over.is_some() && comparison.is_empty() => {
                Err(Failure::Own("--fail-over: there is nothing to compare".to_owned()))
            }
            Some(comparison) if comparison.has_failed() => Ok(WORSE),
            _ => Ok(MEASURED),
        }
    }

    fn report(&self, address: &Address, session: &Session, repeat: usize) -> Report {
        Report {
            format: FORMAT.to_owned(),
            server: address.to_string(),
            origin: Some(Origin::here()),
            library: session.library.version().unwrap_or("before 1.4".to_owned()),
            provider: session.provider.clone(),
            memory: if session.is_file { "file" } else { "memory" }.to_owned(),
            duration_s: self.duration.as_secs_f64(),
            repeat,
            interrupted: false,
            failure: None,
            results: Vec::new(),
            comparison: None,
        }
    }

    /// Measures all cases, each once in a round, until the first failure, which is returned. An error if the
    /// output cannot be written.
    fn measure(&self, session: &mut Session, report: &mut Report) -> Result<Option<Failure>, Failure> {
        let operations = if self.op.is_empty() { Operation::value_variants() } else { &self.op };
        let cases: Vec<Case> = options::cases(operations, &self.size, &self.depth, &self.threads);
        let plan = Plan { duration: self.duration, timeout: self.timeout, poll: self.poll };
        let rounds = report.repeat;
        let say = |line: &str| if self.json { Ok(()) } else { print(line).map_err(Failure::Own) };
        say(&beginning(report))?;
        let progress = Progress::new(cases.len() * rounds, self.duration);
        let mut print_row = |row: Option<Row>| match row {
            None => Ok(()),
            Some(row) => {
                let printed = progress.print(|| say(&row.line(rounds > 1)));
                report.results.push(row);
                printed
            }
        };
        let mut measured: Vec<Repeats> = cases.iter().map(|_| Repeats::default()).collect();
        let mut ended = None;
        let mut printed = 0;
        'rounds: for round in 0..rounds {
            for (number, case) in cases.iter().enumerate() {
                progress.begin(case);
                let done = round * cases.len() + number;
                let (sample, failure) =
                    measure::measure(session, case, &plan, &|time| progress.tell(done, time));
                if let Some(sample) = sample {
                    report::add(&mut measured[number], sample);
                }
                ended = failure;
                if ended.is_some() {
                    break 'rounds;
                }
                if round + 1 == rounds {
                    print_row(Row::of(case, &measured[number]))?;
                    printed = number + 1;
                }
            }
        }
        // After a failure, the cases that were not measured as often as they should be.
        for (case, repeats) in cases.iter().zip(&measured).skip(printed) {
            print_row(Row::of(case, repeats))?;
        }
        progress.end();
        Ok(ended)
    }

    fn print_end(&self, report: &Report) -> Result<(), String> {
        if self.json {
            return print(&serde_json::to_string_pretty(report).map_err(|why| why.to_string())?);
        }
        match (&report.comparison, &self.compare) {
            (Some(comparison), Some(path)) => print(&compare::lines(comparison, &path.display().to_string())),
            _ => Ok(()),
        }
    }
}

/// The first lines of the output.
fn beginning(report: &Report) -> String {
    let Report { server, library, provider, memory, duration_s, repeat, .. } = report;
    let times = if *repeat > 1 { format!("{repeat} x ") } else { String::new() };
    let provider = provider.as_ref().map(|name| format!(", provider {name}")).unwrap_or_default();
    let region = if memory == "file" { "a file" } else { "plain memory" };
    format!(
        "PERF {server}: librpma {library}{provider}, {times}{duration_s} s per row; the server's region is {region}\n{}",
        report::heading(*repeat > 1)
    )
}
