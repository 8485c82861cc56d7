// SPDX-License-Identifier: BSD-3-Clause
//! `rpma selftest`: tests the RDMA device of a host, or software RDMA, with librpma on both ends.
//!
//! Each case runs in a process of its own, which connects to the process of the responder: a crash or a hang
//! is the failure of one case. The responders are started over a control connection, also if both ends are on
//! this host. This process loads no librpma.

mod cases;
mod child;
mod control;
mod end;
mod host;
mod initiator;
mod measure;
mod plan;
mod protocol;
mod report;
mod responder;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use crate::address::Address;
use crate::interrupt;
use crate::output::print;
use cases::CASES;
use child::Child;
use control::{Control, Server};
use end::Carrier;
use host::Host;
use initiator::Initiator;
use measure::Measured;
use plan::{Exception, Pair};
use report::{Outcome, Report, Row, Tested};

/// The port of the control connection if none is given; responders use those that follow.
const PORT: u16 = 7206;
/// The variable that makes this program a process under test: the name of a case, or of the responder. The
/// address is the argument then.
const PART: &str = "RPMA_SELFTEST_PART";
const RESPOND: &str = "respond";
/// How long a case may take.
const CASE_LIMIT: Duration = Duration::from_secs(60);
/// No case is started later, so that the report is there after ten minutes.
const TIME: Duration = Duration::from_secs(8 * 60);
/// Exit statuses: nothing failed, something failed, nothing could be tested; and Ctrl-C, as in a shell.
const PASSED: u8 = 0;
const LOST: u8 = 1;
const FAILED: u8 = 2;
const INTERRUPTED: u8 = 130;

/// Test an RDMA device, or software RDMA, and write a report
///
/// Connects a process to another one, on this host or on that of `rpma selftest --listen`, and tests each
/// operation with its data verified, what must be refused, the end of connections and of processes, and
/// measures the performance: with the RDMA device of the address, with software RDMA over both transports,
/// between the two, and with the C librpma where it is installed. It changes nothing on the host but the
/// report. The exit status is 0: nothing failed, 1: something failed, 2: the arguments are wrong, or nothing
/// could be tested or written, 130: Ctrl-C.
#[derive(Args)]
pub(crate) struct Selftest {
    /// The address of this host to test; by default one of its first RDMA device, or 127.0.0.1
    #[arg(value_name = "ADDR", conflicts_with_all = ["peer", "listen", "device"])]
    address: Option<Address>,
    /// Test this RDMA device
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["peer", "listen"])]
    device: Option<String>,
    /// Test with another host, on which `rpma selftest --listen` runs
    #[arg(short, long, value_name = "HOST[:PORT]", conflicts_with = "listen")]
    peer: Option<Address>,
    /// Be the other host until Ctrl-C
    #[arg(short, long, value_name = "ADDR[:PORT]", num_args = 0..=1, default_missing_value = "0.0.0.0",
        conflicts_with_all = ["output", "short"])]
    listen: Option<Address>,
    /// The file for the report
    #[arg(short, long, value_name = "FILE", default_value = "rpma-selftest.txt")]
    output: PathBuf,
    /// Do less, in seconds instead of minutes
    #[arg(short, long)]
    short: bool,
    /// The C librpma, or its directory; by default one that is installed
    #[arg(long, value_name = "FILE")]
    c_librpma: Option<PathBuf>,
    /// Write names and addresses of hosts to the report
    #[arg(long)]
    names: bool,
}

impl Selftest {
    pub(crate) fn run(&self) -> ExitCode {
        match self.try_run() {
            Ok(code) => ExitCode::from(code),
            Err(why) => {
                eprintln!("rpma selftest: {why}");
                ExitCode::from(FAILED)
            }
        }
    }

    fn try_run(&self) -> Result<u8, String> {
        // Must precede loading the library, so that its threads block the signals as well.
        interrupt::catch().map_err(|why| format!("signals cannot be caught: {why}"))?;
        match (std::env::var(PART).ok(), &self.address, &self.listen, &self.peer) {
            (Some(part), Some(address), ..) => part_of(&part, address, self.short),
            (_, _, Some(address), _) => self.listen(address),
            (_, _, _, Some(peer)) => self.with(peer),
            (_, address, ..) => self.alone(address.as_ref()),
        }
    }

    fn c_library(&self) -> Option<PathBuf> {
        self.c_librpma.clone().or_else(host::c_library)
    }

    fn server(&self, listener: TcpListener, first: u16) -> Server {
        Server { listener, first, c_library: self.c_library(), names: self.names }
    }

    fn listen(&self, address: &Address) -> Result<u8, String> {
        let whole = Address { port: address.port.or(Some(PORT)), ..address.clone() };
        let target = whole.resolve().map_err(|why| format!("{}: {why}", address.host))?;
        let listener = TcpListener::bind(target).map_err(|why| format!("{whole}: {why}"))?;
        print(&format!("listening on {whole}, with the {} ports that follow", control::PORTS))?;
        self.server(listener, target.port().saturating_add(1)).serve(false)?;
        Ok(INTERRUPTED)
    }

    fn alone(&self, address: Option<&Address>) -> Result<u8, String> {
        let ip = match (address, &self.device) {
            (Some(Address { port: Some(_), .. }), _) => {
                return Err("only an address is needed, no port".to_owned());
            }
            (Some(address), _) => address.resolve().map_err(|why| format!("{}: {why}", address.host))?.ip(),
            (None, device) => host::address_of(device.as_deref())?.unwrap_or(Ipv4Addr::LOCALHOST.into()),
        };
        let listener = TcpListener::bind((ip, 0)).map_err(|why| format!("{ip}: {why}"))?;
        let target = listener.local_addr().map_err(|why| why.to_string())?;
        let server = self.server(listener, PORT + 1);
        // It ends with this process, or when the control connection is closed.
        let serve = move || server.serve(true);
        std::thread::Builder::new().spawn(serve).map_err(|why| format!("no thread can be started: {why}"))?;
        self.test(target, true)
    }

    fn with(&self, peer: &Address) -> Result<u8, String> {
        let whole = Address { port: peer.port.or(Some(PORT)), ..peer.clone() };
        let target = whole.resolve().map_err(|why| format!("{}: {why}", peer.host))?;
        self.test(target, false)
    }

    fn test(&self, target: SocketAddr, alone: bool) -> Result<u8, String> {
        let named = |why: io::Error| format!("{}: {why}", self.output.display());
        let mut output = File::create(&self.output).map_err(named)?;
        let (began, start) = (SystemTime::now(), Instant::now());
        let mut control = Control::connect(target).map_err(|why| format!("{target}: {why}"))?;
        let c_library = self.c_library();
        let this = Host::this(control.local.to_canonical(), c_library.as_deref(), self.names);
        let pairs = plan::pairs(&this, &control.host, alone);
        let private = if self.names { Vec::new() } else { private(control.local, target.ip()) };
        let mut test = Test {
            ip: target.ip(),
            c_library,
            short: self.short,
            alone,
            until: start + TIME,
            devices: [&this, &control.host].map(|host| host.device.as_ref().and_then(|d| d.transport)),
            bar: bar(&pairs),
        };
        let mut tested = Vec::new();
        for pair in pairs {
            tested.push(test.pair(&mut control, pair));
        }
        test.bar.finish_and_clear();
        let report = Report {
            this,
            other: (!alone).then(|| control.host.clone()),
            began,
            time: start.elapsed(),
            short: self.short,
            tested,
            interrupted: interrupt::is_pending(),
            private,
        };
        output.write_all(report.file().as_bytes()).map_err(named)?;
        let report_is = format!("the report is in {}", self.output.display());
        print(&format!("{}\n{report_is}\n{}", report.table(), report.summary()))?;
        Ok(match (report.interrupted, report.count(Outcome::Failed), report.count(Outcome::Passed)) {
            (true, ..) => INTERRUPTED,
            (_, 0, 0) => FAILED,
            (_, 0, _) => PASSED,
            _ => LOST,
        })
    }
}

/// Texts that a report must not contain, each with its replacement.
fn private(this: IpAddr, other: IpAddr) -> Vec<(String, String)> {
    let mut private = Vec::new();
    for (address, instead) in [(this, "INITIATOR"), (other, "RESPONDER")] {
        if !address.is_loopback() {
            private.push((address.to_string(), instead.to_owned()));
        }
    }
    let home = std::env::var("HOME").unwrap_or_default();
    if home.len() > 1 {
        private.push((home, "~".to_owned()));
    }
    private
}

fn bar(pairs: &[Pair]) -> ProgressBar {
    let steps = CASES.len() + measure::RUNS.len();
    let bar = ProgressBar::new((pairs.iter().filter(|pair| pair.skipped.is_none()).count() * steps) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}% {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// What the test of each pair needs.
struct Test {
    ip: IpAddr,
    c_library: Option<PathBuf>,
    short: bool,
    alone: bool,
    until: Instant,
    /// The transports of the devices of both hosts.
    devices: [Option<Carrier>; 2],
    bar: ProgressBar,
}

/// Software RDMA over RoCE needs this port, which the kernel's rxe or another user may have.
const ROCE_PORT: &str = "UDP port 4791";

impl Test {
    fn pair(&mut self, control: &mut Control, pair: Pair) -> Tested {
        let mut tested = Tested { pair, rows: Vec::new(), measured: Vec::new(), log: String::new() };
        if let Some(why) = &tested.pair.skipped {
            tested.rows = vec![Row { name: "all".to_owned(), outcome: Outcome::Skipped, text: why.clone() }];
            return tested;
        }
        let mut port = None;
        for case in CASES {
            self.step(&tested.pair, case.name);
            if let Some(row) = self.left_out(&tested.pair, case.name) {
                tested.rows.push(row);
                continue;
            }
            let started = match port {
                Some(port) => Ok(port),
                None => control.start(tested.pair.responder, false),
            };
            let row = match started {
                Ok(started) => {
                    port = Some(started);
                    let (outcome, text, log) = self.case(&tested.pair, case, started);
                    if outcome != Outcome::Passed {
                        // The next case begins with a new responder.
                        let there = control.stop(started);
                        port = None;
                        tested.log += &format!(
                            "{}, initiator:\n{log}\n{}, responder:\n{there}\n",
                            case.name, case.name
                        );
                    }
                    Row { name: case.name.to_owned(), outcome, text }
                }
                Err(why) => {
                    let why = format!("the responder: {why}");
                    let (outcome, text) = self.failure(&tested.pair, case.name, why, "");
                    Row { name: case.name.to_owned(), outcome, text }
                }
            };
            let is_over = port.is_none() && row.text.starts_with("the responder: ");
            tested.rows.push(row);
            if is_over {
                // Neither the others nor the performance can be tested.
                self.bar.inc((CASES.len() + measure::RUNS.len()) as u64 - tested.rows.len() as u64);
                return tested;
            }
        }
        if let Some(port) = port {
            control.stop(port);
        }
        self.measure(control, &mut tested);
        tested
    }

    fn step(&self, pair: &Pair, name: &str) {
        self.bar.set_message(format!("{} - {}: {name}", pair.initiator.name(), pair.responder.name()));
        self.bar.inc(1);
    }

    fn left_out(&self, pair: &Pair, name: &str) -> Option<Row> {
        let text = match (plan::exception(name, pair, self.devices, self.alone), interrupt::is_pending()) {
            (_, true) => "interrupted",
            (Some(Exception::Skipped(why)), _) => why,
            _ if Instant::now() > self.until => "no time is left",
            _ => return None,
        };
        Some(Row { name: name.to_owned(), outcome: Outcome::Skipped, text: text.to_owned() })
    }

    /// The outcome of a failure, and its text in the report.
    fn failure(&self, pair: &Pair, name: &str, why: String, log: &str) -> (Outcome, String) {
        if interrupt::is_pending() {
            return (Outcome::Skipped, "interrupted".to_owned());
        }
        match plan::exception(name, pair, self.devices, self.alone) {
            Some(Exception::MayFail(reason)) => (Outcome::Skipped, format!("{reason}: {why}")),
            // That another program has the port of RoCE is no defect.
            _ if is_port_taken(&why) || is_port_taken(log) => (Outcome::Skipped, why),
            _ => (Outcome::Failed, why),
        }
    }

    /// Outcome and reason, and the log of the initiator.
    fn case(&self, pair: &Pair, case: &cases::Case, port: u16) -> (Outcome, String, String) {
        let address = SocketAddr::new(self.ip, port).to_string();
        let started = pair.initiator.command(self.c_library.as_deref()).and_then(|mut command| {
            command.env(PART, case.name).args(["selftest", &address]).args(self.short.then_some("--short"));
            Child::start(&mut command)
        });
        let remains = match started {
            Ok(child) => child.end(CASE_LIMIT),
            Err(why) => return (Outcome::Failed, why, String::new()),
        };
        let result = match (remains.crash, remains.lines.last().and_then(|line| line.split_once(' '))) {
            (Some(crash), _) => Err(crash),
            (None, Some(("ok", text))) => Ok(text.to_owned()),
            (None, Some((_, text))) => Err(text.to_owned()),
            (None, None) => Err(child::reason(&remains.log).unwrap_or("it has printed nothing").to_owned()),
        };
        match result {
            Ok(text) => (Outcome::Passed, text, remains.log),
            Err(why) => {
                let (outcome, text) = self.failure(pair, case.name, why, &remains.log);
                (outcome, text, remains.log)
            }
        }
    }

    fn measure(&self, control: &mut Control, tested: &mut Tested) {
        for run in measure::RUNS {
            let name = format!("performance {}", run[1]);
            self.step(&tested.pair, &name);
            if let Some(row) = self.left_out(&tested.pair, &name) {
                tested.rows.push(row);
                continue;
            }
            let Measured { rows, ended, log } = match control.start(tested.pair.responder, true) {
                Ok(port) => {
                    let address = SocketAddr::new(self.ip, port).to_string();
                    let library = self.c_library.as_deref();
                    let measured =
                        measure::measure(tested.pair.initiator, library, &address, run, self.short);
                    let there = control.stop(port);
                    if measured.ended.is_err() {
                        let log = &measured.log;
                        tested.log += &format!("{name}, initiator:\n{log}\n{name}, responder:\n{there}\n");
                    }
                    measured
                }
                Err(why) => Measured::failed(format!("the responder: {why}")),
            };
            let (outcome, text) = match ended {
                Ok(()) => (Outcome::Passed, format!("{} operations", rows.len())),
                Err(why) => self.failure(&tested.pair, &name, why, &log),
            };
            tested.rows.push(Row { name, outcome, text });
            tested.measured.extend(rows);
        }
    }
}

/// Whether a message reports that the port of RoCE is in use.
fn is_port_taken(text: &str) -> bool {
    let says = |what: &str| text.split(what).nth(1).is_some_and(|rest| rest.contains(ROCE_PORT));
    ["cannot bind", "cannot use", "cannot share"].into_iter().any(says)
}

/// Runs a process under test; the result of a case is its last line.
fn part_of(part: &str, address: &Address, short: bool) -> Result<u8, String> {
    if part == RESPOND {
        return responder::respond(address);
    }
    let initiator = Initiator::new(address, short)?;
    if part == cases::VANISH {
        return cases::vanish(&initiator).map(|()| FAILED);
    }
    let case =
        CASES.iter().find(|case| case.name == part).ok_or_else(|| format!("there is no case {part}"))?;
    match case.run(&initiator) {
        Ok(text) => print(&format!("ok {text}")).map(|()| PASSED),
        Err(why) => print(&format!("failed {}", why.replace('\n', " "))).map(|()| LOST),
    }
}
