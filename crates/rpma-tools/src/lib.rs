// SPDX-License-Identifier: BSD-3-Clause
//! `rpma`: runs RDMA programs on machines without an RDMA device, diagnoses a host, reads another host's
//! memory, measures performance, and monitors programs. Used by the program itself and by the generator of
//! its shell completions.

mod address;
mod cpu;
mod doctor;
mod elf;
mod interrupt;
mod library;
mod messages;
mod output;
mod perf;
mod ping;
mod prefix;
mod run;
mod seconds;
mod selftest;
mod system;
mod top;
mod wait;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Run RDMA programs on machines without an RDMA device, and diagnose RDMA problems.
#[derive(Parser)]
#[command(name = "rpma", version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Run),
    Doctor(doctor::Doctor),
    Ping(ping::Ping),
    Perf(perf::Perf),
    Top(top::Top),
    Selftest(selftest::Selftest),
    Wait(wait::Wait),
}

/// The command line.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Prints help, or an error in the command line. The status of an error is 2, except for `rpma run`, which
/// otherwise returns the status of the program.
fn usage(why: &clap::Error) -> ExitCode {
    let runs = std::env::args_os().nth(1).is_some_and(|command| command == "run");
    // If this fails, the error cannot be reported either.
    let _ = why.print();
    match why.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if runs => ExitCode::from(run::FAILED),
        code => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}

/// Runs the command line; returns the exit status.
pub fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(why) => return usage(&why),
    };
    match arguments.command {
        Command::Run(run) => run.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Ping(ping) => ping.run(),
        Command::Perf(perf) => perf.run(),
        Command::Top(top) => top.run(),
        Command::Selftest(selftest) => selftest.run(),
        Command::Wait(wait) => wait.run(),
    }
}
