// SPDX-License-Identifier: BSD-3-Clause
//! `rpma doctor`: what an RDMA program finds on this host, and how to mend what is wrong. Each finding is
//! looked up when it is told: a file of the kernel, a call of the library, an attempt.

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
mod system;

use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::address::Address;
use crate::messages::Messages;
use devices::Devices;
use report::Report;
use system::System;

/// Say what an RDMA program finds on this host, and how to mend what is wrong
///
/// Prints a line for each thing that was looked at: ok, warn or FAIL, its name, what was found, and, where
/// there is one, the command that mends it. With an address it also says how the host is reached; with a
/// port, what is listening there. That is a connection attempt, which the program on the other side sees. The
/// exit status is 0: all is well, 1: there are warnings, 2: something does not work, or the arguments are
/// wrong.
#[derive(Args)]
pub(crate) struct Doctor {
    /// The other side: a host, or a host with the port of a server
    #[arg(value_name = "ADDR[:PORT]")]
    address: Option<Address>,
    /// A file or device that is to be registered as persistent memory; it is not changed
    #[arg(long, value_name = "FILE")]
    pmem: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn run(&self) -> ExitCode {
        // Before the library is loaded, which reads the environment then.
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
