// SPDX-License-Identifier: BSD-3-Clause
//! `rpma`: runs RDMA programs on machines without an RDMA device, says what works on a host and what does
//! not, reads another host's memory, measures, and shows what programs do. One file a noun. The program is
//! all that uses it, and what writes completions of its command line for shells.

mod address;
mod cpu;
mod doctor;
mod elf;
mod interrupt;
mod library;
mod messages;
mod perf;
mod ping;
mod prefix;
mod run;
mod top;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// RDMA programs on machines without an RDMA device, and the reason why one does not work.
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
}

/// The command line.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Prints help, or what is wrong with the command line: 2, but for `rpma run`, whose other statuses are those
/// of a program.
fn usage(why: &clap::Error) -> ExitCode {
    let runs = std::env::args_os().nth(1).is_some_and(|command| command == "run");
    // Nobody is left to read it.
    let _ = why.print();
    match why.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if runs => ExitCode::from(run::FAILED),
        code => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}

/// Does what the command line says; the result is the exit status.
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
    }
}
