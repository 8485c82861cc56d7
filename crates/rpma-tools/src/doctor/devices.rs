// SPDX-License-Identifier: BSD-3-Clause
//! RDMA devices: their ports, the kernel modules that they need, and whether this process may open them.

use std::ffi::CStr;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;

use super::report::Report;
use super::settings::Wanted;
use crate::system::System;

const CLASS: &str = "/sys/class/infiniband";
const VERBS: &str = "/sys/class/infiniband_verbs";
const NODES: &str = "/dev/infiniband";

/// An entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gid {
    pub(super) index: String,
    pub(super) value: Ipv6Addr,
    /// The kernel's name of the type: `IB/RoCE v1` or `RoCE v2`.
    pub(super) kind: String,
    pub(super) netdev: String,
}

impl Gid {
    /// Whether the GID is derived from this address of the network interface.
    pub(super) fn is_of(&self, addr: IpAddr) -> bool {
        IpAddr::V6(self.value).to_canonical() == addr.to_canonical()
    }
}

#[derive(Debug)]
pub(super) struct Port {
    pub(super) number: String,
    /// The kernel's name of the state, `ACTIVE` for example.
    state: String,
    link_layer: String,
    pub(super) gids: Vec<Gid>,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    /// The name of its node in /dev/infiniband.
    node: Option<String>,
    pub(super) ports: Vec<Port>,
}

/// The devices that are visible to this process.
#[derive(Debug, Default)]
pub(super) struct Devices {
    pub(super) all: Vec<Device>,
    /// Whether rdma_cm and at least one device can be opened.
    pub(super) usable: bool,
}

impl Devices {
    pub(super) fn find(system: &System) -> Self {
        let all: Vec<Device> = system.names(CLASS).into_iter().map(|name| device(system, name)).collect();
        let opens = |node: &str| system.open(format!("{NODES}/{node}")).is_ok();
        let usable = opens("rdma_cm") && all.iter().filter_map(|device| device.node.as_deref()).any(opens);
        Self { all, usable }
    }
}

fn device(system: &System, name: String) -> Device {
    let is_its = |node: &String| system.read(format!("{VERBS}/{node}/ibdev")).as_ref() == Some(&name);
    let node = system.names(VERBS).into_iter().find(is_its);
    let ports = system.names(format!("{CLASS}/{name}/ports"));
    let ports = ports.into_iter().map(|number| port(system, &name, number)).collect();
    Device { name, node, ports }
}

fn port(system: &System, device: &str, number: String) -> Port {
    let dir = format!("{CLASS}/{device}/ports/{number}");
    let state = system.read(format!("{dir}/state")).unwrap_or_default();
    // "4: ACTIVE"
    let state = state.split_once(": ").map_or(state.clone(), |(_, word)| word.to_owned());
    let link_layer = system.read(format!("{dir}/link_layer")).unwrap_or_default();
    let mut indices = system.names(format!("{dir}/gids"));
    indices.sort_by_key(|index| index.parse::<u32>().ok());
    let gid = |index: String| {
        let value: Ipv6Addr = system.read(format!("{dir}/gids/{index}"))?.parse().ok()?;
        let of = |what: &str| system.read(format!("{dir}/gid_attrs/{what}/{index}")).unwrap_or_default();
        let (kind, netdev) = (of("types"), of("ndevs"));
        (!value.is_unspecified()).then_some(Gid { index, value, kind, netdev })
    };
    let gids = indices.into_iter().filter_map(gid).collect();
    Port { number, state, link_layer, gids }
}

pub(super) fn check(system: &System, devices: &Devices, wanted: Wanted, report: &mut Report) {
    if devices.all.is_empty() {
        return no_device(system, wanted, report);
    }
    for device in &devices.all {
        for port in &device.ports {
            a_port(device, port, report);
        }
    }
    modules(system, wanted, report);
    permissions(system, devices, wanted, report);
}

fn no_device(system: &System, wanted: Wanted, report: &mut Report) {
    let software = match ["rdma_rxe", "siw"].into_iter().find(|module| system.has_module(module)) {
        Some(module) => format!("; this kernel has software devices: module {module}, command rdma link add"),
        None => String::new(),
    };
    let modules = match (system.exists("/sys/class/misc/rdma_cm"), system.has_module("rdma_ucm")) {
        (true, _) => "; the module rdma_ucm is loaded",
        (false, true) => "; the module rdma_ucm is available, but not loaded",
        (false, false) => "; this host has no module rdma_ucm for its kernel",
    };
    if wanted == Wanted::RdmaCore {
        return report.fail(
            "device",
            format!("there is none in {CLASS}, but RPMA_PROVIDER is rdma-core{modules}{software}"),
            "export RPMA_PROVIDER=soft",
        );
    }
    report.ok(
        "device",
        format!("none in {CLASS}: the soft provider, which needs none, serves every address{modules}"),
    );
}

fn a_port(device: &Device, port: &Port, report: &mut Report) {
    let layer = match port.link_layer.as_str() {
        "Ethernet" if port.gids.iter().any(|gid| gid.kind.contains("RoCE")) => "Ethernet, RoCE",
        other => other,
    };
    let text = format!("{} port {}: {}, {layer}", device.name, port.number, port.state);
    let netdev = port.gids.iter().map(|gid| gid.netdev.as_str()).find(|name| !name.is_empty());
    match (port.state.as_str(), netdev) {
        ("ACTIVE", _) => report.ok("device", text),
        (_, Some(netdev)) => report.warn("device", text, format!("ip link set {netdev} up")),
        ("INIT", None) => report.warn(
            "device",
            format!("{text}: no subnet manager has set it up"),
            "systemctl start opensm",
        ),
        (_, None) => report.warn("device", text, format!("rdma link show {}/{}", device.name, port.number)),
    }
}

fn modules(system: &System, wanted: Wanted, report: &mut Report) {
    let missing: Vec<&str> = [("/sys/class/misc/rdma_cm", "rdma_ucm"), (VERBS, "ib_uverbs")]
        .into_iter()
        .filter(|(sign, _)| !system.exists(sign))
        .map(|(_, module)| module)
        .collect();
    if missing.is_empty() {
        return report.ok("modules", "rdma_ucm and ib_uverbs are loaded");
    }
    let text = format!("there are devices, but these modules are not loaded: {}", missing.join(", "));
    report.bad(wanted == Wanted::RdmaCore, "modules", text, format!("modprobe -a {}", missing.join(" ")));
}

fn permissions(system: &System, devices: &Devices, wanted: Wanted, report: &mut Report) {
    let needed = wanted == Wanted::RdmaCore;
    let manager = system.exists("/sys/class/misc/rdma_cm").then_some("rdma_cm".to_owned());
    let nodes = devices.all.iter().filter_map(|device| device.node.clone());
    let nodes: Vec<String> = manager.into_iter().chain(nodes).collect();
    let mut good = Vec::new();
    for node in &nodes {
        let path = format!("{NODES}/{node}");
        match system.open(&path) {
            Ok(()) => good.push(node.as_str()),
            // A control group denies access to the device.
            Err(why) if why.raw_os_error() == Some(libc::EPERM) => report.bad(
                needed,
                "permissions",
                format!("{path} cannot be opened: {why}; a control group denies it, of a container or of a systemd unit without DeviceAllow"),
                format!("docker run --device={NODES}"),
            ),
            Err(why) if why.kind() == ErrorKind::NotFound => report.bad(
                needed,
                "permissions",
                format!("the kernel has {node}, but there is no {path}"),
                match system.container() {
                    Some(_) => format!("docker run --device={NODES}"),
                    None => "udevadm trigger".to_owned(),
                },
            ),
            Err(why) if why.kind() == ErrorKind::PermissionDenied => {
                report.bad(
                    needed,
                    "permissions",
                    format!("{path} cannot be opened: {why}"),
                    permission_fix(system, &path),
                );
            }
            Err(why) => {
                report.bad(needed, "permissions", format!("{path} cannot be opened: {why}"), "dmesg | tail")
            }
        }
    }
    if !good.is_empty() && good.len() == nodes.len() {
        report.ok("permissions", format!("can be opened: {}", good.join(", ")));
    }
}

/// The command that lets this user open a node: membership in its group, unless that is root's.
fn permission_fix(system: &System, path: &str) -> String {
    let group = std::fs::metadata(system.path(path))
        .ok()
        .filter(|data| data.mode() & 0o060 == 0o060 && data.gid() != 0);
    match group.and_then(|data| group_name(data.gid())) {
        Some(group) => format!("usermod -aG {group} $USER  # as root, then log in again"),
        None => format!("chmod 666 {path}  # as root, until the next boot"),
    }
}

fn group_name(gid: u32) -> Option<String> {
    // SAFETY: getgrgid accepts any number; nothing else in this program looks up groups, so the result stays
    // valid until the end of this function.
    unsafe {
        let group = libc::getgrgid(gid);
        if group.is_null() {
            return None;
        }
        Some(CStr::from_ptr((*group).gr_name).to_string_lossy().into_owned())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::report::text_of;
    use super::*;
    use crate::system::Fake;

    /// An adapter mlx5_0 with an active port on eth0, 10.0.0.1.
    pub(in super::super) const ADAPTER: &[(&str, &str)] = &[
        ("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0202:c9ff:fe00:0001\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/gids/10", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/gids/3", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/2", "IB/RoCE v1\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/10", "RoCE v2\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/2", "eth0\n"),
        ("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/10", "eth0\n"),
        ("/sys/class/infiniband_verbs/abi_version", "6\n"),
        ("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
    ];

    fn say(fake: &Fake, wanted: Wanted) -> String {
        text_of(|report| check(&fake.system, &Devices::find(&fake.system), wanted, report))
    }

    #[test]
    fn no_device_is_a_failure_only_where_one_is_asked_for() {
        let fake = Fake::new("no-device", &[]);
        let text = say(&fake, Wanted::Auto);
        assert!(
            text.starts_with("ok    device      none") && text.contains("no module rdma_ucm for its kernel"),
            "{text}"
        );
        let text = say(&fake, Wanted::RdmaCore);
        assert!(
            text.starts_with("FAIL") && text.contains("RPMA_PROVIDER=soft") && !text.contains("rxe"),
            "{text}"
        );
        fake.add(&[
            ("/proc/sys/kernel/osrelease", "6.1"),
            ("/lib/modules/6.1/modules.dep", "a/rdma_rxe.ko:\nb/rdma_ucm.ko:\n"),
        ]);
        assert!(say(&fake, Wanted::RdmaCore).contains("software devices: module rdma_rxe"));
        assert!(say(&fake, Wanted::Auto).contains("available, but not loaded"));
        fake.add(&[("/sys/class/misc/rdma_cm/dev", "10:58")]);
        assert!(say(&fake, Wanted::Auto).contains("rdma_ucm is loaded"));
    }

    #[test]
    fn an_adapter_needs_modules_and_nodes() {
        let fake = Fake::new("adapter", ADAPTER);
        let text = say(&fake, Wanted::Auto);
        assert!(text.contains("ok    device      mlx5_0 port 1: ACTIVE, Ethernet, RoCE\n"), "{text}");
        assert!(text.contains("warn  modules") && text.contains("modprobe -a rdma_ucm\n"), "{text}");
        fake.add(&[("/sys/class/misc/rdma_cm/dev", "10:58")]);
        let text = say(&fake, Wanted::RdmaCore);
        assert!(text.contains("ok    modules"), "{text}");
        assert!(
            text.contains(
                "FAIL  permissions the kernel has uverbs0, but there is no /dev/infiniband/uverbs0"
            ),
            "{text}"
        );
        assert!(text.contains("fix: udevadm trigger\n"), "{text}");
        fake.add(&[("/.dockerenv", "")]);
        let text = say(&fake, Wanted::RdmaCore);
        assert!(text.contains("fix: docker run --device=/dev/infiniband\n"), "{text}");
        assert!(!Devices::find(&fake.system).usable);
        fake.add(&[("/dev/infiniband/rdma_cm", ""), ("/dev/infiniband/uverbs0", "")]);
        assert!(say(&fake, Wanted::Auto).contains("ok    permissions can be opened: rdma_cm, uverbs0"));
        assert!(Devices::find(&fake.system).usable);
    }

    #[test]
    fn a_port_that_is_down_is_mended_by_its_interface() {
        let fake = Fake::new("port", ADAPTER);
        fake.add(&[("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n")]);
        let text = say(&fake, Wanted::Auto);
        assert!(
            text.contains("warn  device      mlx5_0 port 1: DOWN") && text.contains("ip link set eth0 up"),
            "{text}"
        );
    }

    #[test]
    fn gids_in_order_without_empty_ones() {
        let fake = Fake::new("gids", ADAPTER);
        let devices = Devices::find(&fake.system);
        let gids = &devices.all[0].ports[0].gids;
        let indices: Vec<&str> = gids.iter().map(|gid| gid.index.as_str()).collect();
        assert_eq!(indices, ["0", "2", "10"]);
        assert_eq!((gids[2].kind.as_str(), gids[2].netdev.as_str()), ("RoCE v2", "eth0"));
        assert!(gids[2].is_of("10.0.0.1".parse().unwrap()) && !gids[0].is_of("10.0.0.1".parse().unwrap()));
    }
}
