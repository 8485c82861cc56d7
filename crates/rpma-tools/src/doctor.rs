// SPDX-License-Identifier: BSD-3-Clause
//! `rpma doctor`: checks what an RDMA program needs on this host, and reports how to fix problems. Each
//! finding is based on the current state: a file of the kernel, a library call, a connection attempt.

mod ddio;
mod devices;
mod libraries;
mod limits;
mod metrics;
mod namespaces;
mod network;
mod peer;
mod pmem;
mod provider;
mod report;
mod same_host;
mod settings;

use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::address::Address;
use crate::messages::Messages;
use crate::system::System;
use devices::Devices;
use report::Report;

/// Check what an RDMA program needs on this host, and report how to fix problems
///
/// Prints a line for each check: ok, warn or FAIL, the name of the check, the finding and, if there is one, a
/// command that fixes the problem. With an address it also reports how the host is reached; with a port, what
/// is listening there. That takes a connection attempt, which the program on the other side sees. The exit
/// status is 0: no problems, 1: there are warnings, 2: something does not work, or the arguments are wrong.
#[derive(Args)]
pub(crate) struct Doctor {
    /// The other side: a host, optionally with the port of a server
    #[arg(value_name = "ADDR[:PORT]")]
    address: Option<Address>,
    /// A file or device to be registered as persistent memory; it is not modified
    #[arg(long, value_name = "FILE")]
    pmem: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn run(&self) -> ExitCode {
        // Must precede loading the library, which reads the environment when it is loaded.
        let messages = Messages::divert();
        let system = System::this();
        let mut report = Report::default();
        let wanted = settings::wanted(&mut report);
        metrics::check(&mut report);
        let library = libraries::check(&system, &mut report);
        let devices = Devices::find(&system);
        devices::check(&system, &devices, wanted, &mut report);
        limits::check(&system, &devices, &mut report);
        namespaces::check(&system, &devices, &mut report);
        let route =
            self.address.as_ref().and_then(|address| network::check(&system, &devices, address, &mut report));
        let chosen = library
            .and_then(|library| provider::check(library, &messages, route.as_ref(), &devices, &mut report));
        same_host::check(&system, &mut report);
        ddio::check(&system, &devices, &mut report);
        if let Some(file) = &self.pmem {
            pmem::check(&system, file, chosen, &mut report);
        }
        if let (Some(route), Some(library)) = (route, library) {
            peer::check(route, chosen, library, &messages, &mut report);
        }
        report.print(self.json)
    }
}
