// SPDX-License-Identifier: BSD-3-Clause
//! `rpma`: runs RDMA programs on machines without an RDMA device.

mod elf;
mod run;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// RDMA programs on machines without an RDMA device.
#[derive(Parser)]
#[command(name = "rpma", version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Run),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run(run) => run.run(),
    }
}
