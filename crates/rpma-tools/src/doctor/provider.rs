// SPDX-License-Identifier: BSD-3-Clause
//! Which provider serves an address, according to the library.

use std::env;

use super::devices::Devices;
use super::network::Route;
use super::report::{Remedy, Report};
use super::settings::{Wanted, parse};
use crate::library::{Library, Side};
use crate::messages::Messages;

/// The provider that serves the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    RdmaCore,
    Soft,
}

/// Extracts the provider and the reason from the library's log: "provider NAME serves ADDRESS: REASON".
fn choice(messages: &[String]) -> Option<(Chosen, &str)> {
    messages.iter().rev().find_map(|message| {
        let rest = message.strip_prefix("provider ")?;
        let chosen = match rest.split_once(' ')?.0 {
            "soft" => Chosen::Soft,
            "rdma-core" => Chosen::RdmaCore,
            _ => return None,
        };
        Some((chosen, rest))
    })
}

/// Gets the device through which the library reaches the other side or, without an address, the device of an
/// address of this host.
pub(super) fn check(
    library: &Library,
    messages: &Messages,
    route: Option<&Route>,
    devices: &Devices,
    report: &mut Report,
) -> Option<Chosen> {
    let of_device = || {
        let gids = devices.all.iter().flat_map(|device| &device.ports).flat_map(|port| &port.gids);
        gids.filter_map(|gid| gid.value.to_ipv4_mapped()).map(|addr| addr.to_string()).next()
    };
    let (addr, side) = match route {
        Some(route) => (route.target.ip().to_string(), Side::Remote),
        None => (of_device().unwrap_or_else(|| "127.0.0.1".to_owned()), Side::Local),
    };
    messages.new_ones();
    let context = library.context(&addr, side);
    let said = messages.new_ones();
    let context = match context {
        Ok(context) => context,
        Err(why) => {
            let remedy = match parse(&env::var("RPMA_PROVIDER").unwrap_or_default()) {
                (Wanted::RdmaCore, _) => Remedy::from("export RPMA_PROVIDER=auto"),
                (_, Some(_)) => Remedy::hint("set RPMA_PROVIDER as described above"),
                _ if library.version().is_none() => Remedy::hint("install librpma0 1.4 or newer"),
                _ => Remedy::hint("fix the problems in the other lines"),
            };
            report.fail("provider", format!("none for {addr}: {why}"), remedy);
            return None;
        }
    };
    let chosen = choice(&said);
    match chosen {
        Some((Chosen::Soft, text)) if devices.usable => report.warn(
            "provider",
            format!(
                "{text}, although there is a device; to serve {addr}, the device needs an address in that network"
            ),
            "export RPMA_PROVIDER=soft",
        ),
        Some((_, text)) => report.ok("provider", text),
        None => report.ok("provider", format!("a device has {addr}")),
    }
    // A library that logs no choice is older than 1.4 and supports only devices.
    let chosen = chosen.map_or(Chosen::RdmaCore, |(chosen, _)| chosen);
    match (library.is_odp_capable(context), chosen) {
        (Ok(true), _) => report.ok("odp", "supported: memory is registered on demand where it cannot be pinned"),
        (Ok(false), Chosen::Soft) => report.ok("odp", "not needed: the soft provider pins no memory"),
        (Ok(false), Chosen::RdmaCore) => report.warn(
            "odp",
            "not supported by the device: memory that cannot be pinned, such as a file on a file system with DAX, cannot be registered",
            Remedy::hint("register device DAX (/dev/dax*) or ordinary memory"),
        ),
        (Err(why), _) => report.warn("odp", format!("the device cannot be queried: {why}"), Remedy::hint("see ibv_devinfo -v")),
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_the_librarys() {
        let of =
            |message: &str| choice(&[message.to_owned()]).map(|(chosen, text)| (chosen, text.to_owned()));
        let soft = of("provider soft serves 10.0.0.2: there is no /dev/infiniband").unwrap();
        assert_eq!(soft, (Chosen::Soft, "soft serves 10.0.0.2: there is no /dev/infiniband".to_owned()));
        assert_eq!(of("provider rdma-core serves 10.0.0.2: x").unwrap().0, Chosen::RdmaCore);
        assert_eq!(of("librpma 1.4.0 (/usr/lib/librpma.so.0)"), None);
    }
}
