// SPDX-License-Identifier: BSD-3-Clause
//! The description of a host in a report: device, firmware, kernel, libraries, settings.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::end::{self, Carrier};
use crate::prefix;
use crate::system::installed::{installed, package};
use crate::system::{System, interface, interfaces, memlock};

const CLASS: &str = "/sys/class/infiniband";
/// The version of rdma-core is the end of the name of this file: libibverbs.so.1.14.44.0.
const VERBS: &str = "libibverbs.so.1";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Host {
    /// Only with `--names`.
    pub(super) name: Option<String>,
    pub(super) rpma: String,
    pub(super) c_librpma: Option<String>,
    pub(super) rdma_core: Option<String>,
    pub(super) kernel: String,
    pub(super) system: String,
    pub(super) architecture: String,
    pub(super) processors: usize,
    /// RLIMIT_MEMLOCK, in bytes; None if there is no limit.
    pub(super) locked_memory: Option<u64>,
    /// The device of the address.
    pub(super) device: Option<Device>,
    /// The environment variables of librpma and softverbs.
    pub(super) settings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Device {
    pub(super) name: String,
    /// The software transport that can reach it; None for InfiniBand.
    pub(super) transport: Option<Carrier>,
    pub(super) hardware: String,
    pub(super) firmware: String,
    pub(super) board: String,
    pub(super) port: String,
    /// Whether the kernel implements it: rxe, siw.
    pub(super) is_software: bool,
}

impl Host {
    pub(super) fn this(address: IpAddr, c_library: Option<&Path>, names: bool) -> Self {
        let system = System::this();
        let os = system.read("/etc/os-release").unwrap_or_default();
        let os = os.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let mut settings: Vec<String> = std::env::vars()
            .filter(|(name, _)| name.starts_with("RPMA_") || name.starts_with("SOFTVERBS_"))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        settings.sort();
        let of_c = |path: &Path| package(path).unwrap_or("of a release before 1.4".to_owned());
        Self {
            name: system.read("/proc/sys/kernel/hostname").filter(|_| names),
            rpma: env!("CARGO_PKG_VERSION").to_owned(),
            c_librpma: c_library.map(of_c),
            rdma_core: rdma_core(),
            kernel: system.read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            system: os.unwrap_or("not known").trim_matches('"').to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            locked_memory: memlock().map(|(soft, _)| soft).filter(|&bytes| bytes != libc::RLIM_INFINITY),
            device: device_of(&system, address),
            settings,
        }
    }

    /// The lines of a report.
    pub(super) fn lines(&self) -> String {
        let or_none = |text: &Option<String>| text.clone().unwrap_or("none".to_owned());
        let mut lines = self.name.iter().map(|name| format!("  name           {name}\n")).collect::<String>();
        let limit = self.locked_memory.map_or("no limit".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
        for (name, value) in [
            ("rpma", self.rpma.clone()),
            ("C librpma", or_none(&self.c_librpma)),
            ("rdma-core", or_none(&self.rdma_core)),
            ("kernel", format!("{} {}", self.kernel, self.architecture)),
            ("system", format!("{}, {} processors", self.system, self.processors)),
            ("locked memory", limit),
        ] {
            lines += &format!("  {name:<14} {value}\n");
        }
        match &self.device {
            None => lines += "  device         none at this address\n",
            Some(device) => {
                let Device { name, hardware, firmware, board, port, .. } = device;
                lines +=
                    &format!("  device         {name}, {hardware}, firmware {firmware}, board {board}\n");
                lines += &format!("  port           {port}\n");
            }
        }
        for setting in &self.settings {
            lines += &format!("  setting        {setting}\n");
        }
        lines
    }
}

fn rdma_core() -> Option<String> {
    let dirs = ["/usr", "/"].into_iter().flat_map(|prefix| prefix::lib_dirs(Path::new(prefix)));
    let file = dirs.map(|dir| dir.join(VERBS)).find_map(|path| path.canonicalize().ok())?;
    let version = file.file_name()?.to_str()?.strip_prefix(VERBS)?.trim_start_matches('.');
    // The first number is that of the interface.
    Some(version.split_once('.').map_or("of unknown version", |(_, version)| version).to_owned())
}

/// A C librpma that is installed: the newest by its name.
pub(super) fn c_library() -> Option<PathBuf> {
    installed(None).into_iter().rev().find(|path| end::is_c(path))
}

/// The network interfaces of a device.
fn netdevs(system: &System, device: &str) -> Vec<String> {
    let dir = format!("{CLASS}/{device}");
    let mut found = system.names(format!("{dir}/device/net"));
    for port in system.names(format!("{dir}/ports")) {
        let port = format!("{dir}/ports/{port}");
        let ndevs = system.names(format!("{port}/gid_attrs/ndevs"));
        found.extend(ndevs.iter().filter_map(|index| system.read(format!("{port}/gid_attrs/ndevs/{index}"))));
        // The GID of an iWARP device begins with the address of its interface: 0200:c9ff:...
        let gid = system.read(format!("{port}/gids/0")).unwrap_or_default().replace(':', "");
        found.extend(system.names("/sys/class/net").into_iter().filter(|name| {
            let mac = system.read(format!("/sys/class/net/{name}/address")).unwrap_or_default();
            let mac = mac.replace(':', "");
            mac.len() == 12 && mac.bytes().any(|digit| digit != b'0') && gid.starts_with(&mac)
        }));
    }
    found.retain(|name| !name.is_empty());
    found.sort();
    found.dedup();
    found
}

fn device_of(system: &System, address: IpAddr) -> Option<Device> {
    let interface = interface(address)?;
    let mut devices = system.names(CLASS).into_iter();
    devices
        .find(|name| netdevs(system, name).contains(&interface))
        .map(|name| device(system, name, &interface))
}

fn device(system: &System, name: String, interface: &str) -> Device {
    let dir = format!("{CLASS}/{name}");
    let read = |file: &str| system.read(format!("{dir}/{file}")).filter(|text| !text.is_empty());
    let of = |file: &str| read(file).unwrap_or("not known".to_owned());
    let port = read("ports/1/state").map_or("none".to_owned(), |state| {
        let mtu = system.read(format!("/sys/class/net/{interface}/mtu")).unwrap_or_default();
        let state = state.split_once(": ").map_or(state.clone(), |(_, word)| word.to_owned());
        format!("{state}, {}, {}, MTU {mtu}", of("ports/1/link_layer"), of("ports/1/rate"))
    });
    // "4: RNIC" is iWARP, "1: CA" InfiniBand or RoCE.
    let transport = match (of("node_type").starts_with('4'), of("ports/1/link_layer").as_str()) {
        (true, _) => Some(Carrier::Iwarp),
        (false, "Ethernet") => Some(Carrier::Roce),
        _ => None,
    };
    // A link to a directory below /sys/devices/virtual.
    let is_software = !system.names(&dir).contains(&"device".to_owned());
    Device {
        transport,
        hardware: format!("{} {}", of("node_type"), of("hca_type")),
        firmware: of("fw_ver"),
        board: of("board_id"),
        port,
        is_software,
        name,
    }
}

/// An address of this device or, without a name, of the first device that has one.
pub(super) fn address_of(name: Option<&str>) -> Result<Option<IpAddr>, String> {
    address_in(&System::this(), &interfaces(), name)
}

fn address_in(
    system: &System,
    interfaces: &[(String, IpAddr)],
    name: Option<&str>,
) -> Result<Option<IpAddr>, String> {
    let all = system.names(CLASS);
    if let Some(name) = name.filter(|name| !all.iter().any(|device| device == name)) {
        let others = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        return Err(format!("there is no RDMA device {name} in {CLASS}, but {others}"));
    }
    for device in all.iter().filter(|device| name.is_none_or(|name| name == device.as_str())) {
        let netdevs = netdevs(system, device);
        let is_local =
            |addr: &IpAddr| matches!(addr, IpAddr::V6(addr) if addr.segments()[0] & 0xffc0 == 0xfe80);
        let mut addresses: Vec<IpAddr> = interfaces
            .iter()
            .filter(|(interface, addr)| netdevs.contains(interface) && !is_local(addr))
            .map(|(_, addr)| *addr)
            .collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        if let Some(&address) = addresses.first() {
            return Ok(Some(address));
        }
    }
    match name {
        Some(name) => Err(format!("the network interface of the RDMA device {name} has no address")),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Fake;

    const DEVICES: &[(&str, &str)] = &[
        ("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n"),
        ("/sys/class/infiniband/mlx5_0/fw_ver", "16.35.3006\n"),
        ("/sys/class/infiniband/mlx5_0/device/net/eth0/mtu", ""),
        ("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
        ("/sys/class/infiniband/siw0/node_type", "4: RNIC\n"),
        ("/sys/class/infiniband/siw0/ports/1/link_layer", "Ethernet\n"),
        ("/sys/class/infiniband/siw0/ports/1/gids/0", "0202:c900:0001:0000:0000:0000:0000:0000\n"),
        ("/sys/class/net/eth1/address", "02:02:c9:00:00:01\n"),
        ("/sys/class/net/eth1/mtu", "1500\n"),
        ("/sys/class/net/lo/address", "00:00:00:00:00:00\n"),
    ];

    #[test]
    fn an_address_of_a_device() {
        let fake = Fake::new("selftest-address", DEVICES);
        let of = |text: &str| text.parse::<IpAddr>().unwrap();
        let interfaces: Vec<(String, IpAddr)> = [
            ("lo", "127.0.0.1"),
            ("eth0", "fe80::1"),
            ("eth0", "fd00::1"),
            ("eth1", "fd01::1"),
            ("eth1", "10.1.0.1"),
        ]
        .map(|(name, addr)| (name.to_owned(), of(addr)))
        .into();
        let address = |name| address_in(&fake.system, &interfaces, name);
        assert_eq!(address(Some("mlx5_0")), Ok(Some(of("fd00::1"))));
        assert_eq!(address(Some("siw0")), Ok(Some(of("10.1.0.1"))));
        assert_eq!(address(None), Ok(Some(of("fd00::1"))));
        assert!(address(Some("mlx5_1")).unwrap_err().contains("mlx5_0, siw0"));
        assert!(address_in(&fake.system, &interfaces[..1], Some("siw0")).is_err());
        assert_eq!(address_in(&Fake::new("selftest-none", &[]).system, &interfaces, None), Ok(None));
    }

    #[test]
    fn what_is_said_of_a_device() {
        let fake = Fake::new("selftest-device", DEVICES);
        let found = device(&fake.system, "mlx5_0".to_owned(), "eth0");
        assert_eq!((found.transport, found.firmware.as_str()), (Some(Carrier::Roce), "16.35.3006"));
        assert!(!found.is_software && found.port.starts_with("ACTIVE, Ethernet, "), "{found:?}");
        let found = device(&fake.system, "siw0".to_owned(), "eth1");
        assert_eq!((found.transport, found.is_software), (Some(Carrier::Iwarp), true));
        assert!(found.port.contains("none"), "{found:?}");
    }

    #[test]
    fn the_lines_of_this_host_name_nothing_private() {
        let host = Host::this("127.0.0.1".parse().unwrap(), None, false);
        assert!(host.lines().contains("none at this address") && host.name.is_none(), "{}", host.lines());
        assert!(Host::this("127.0.0.1".parse().unwrap(), None, true).lines().starts_with("  name "));
    }
}
