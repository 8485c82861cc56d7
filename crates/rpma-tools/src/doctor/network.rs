// SPDX-License-Identifier: BSD-3-Clause
//! The path to the other side: address, route, interface, and the GIDs of a device on that interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use super::devices::{Devices, Gid};
use super::report::Report;
use crate::address::Address;
use crate::system::{System, interface};

/// The route to the other side.
pub(super) struct Route {
    pub(super) address: Address,
    pub(super) target: SocketAddr,
}

pub(super) fn check(
    system: &System,
    devices: &Devices,
    address: &Address,
    report: &mut Report,
) -> Option<Route> {
    let target = match address.resolve() {
        Ok(target) => target,
        Err(why) => {
            report.fail(
                "route",
                format!("{} is unknown: {why}", address.host),
                format!("getent hosts {}", address.host),
            );
            return None;
        }
    };
    let ip = target.ip();
    let local = match source(target) {
        Ok(local) => local,
        Err(why) => {
            report.fail("route", format!("no route leads to {ip}: {why}"), format!("ip route get {ip}"));
            return None;
        }
    };
    match interface(local) {
        Some(interface) => {
            let mtu = system.read(format!("/sys/class/net/{interface}/mtu"));
            let mtu = mtu.map(|mtu| format!(", MTU {mtu}")).unwrap_or_default();
            report.ok("route", format!("{ip} through {interface} from {local}{mtu}"));
            gids(devices, &interface, local, report);
        }
        None => report.ok("route", format!("{ip} from {local}")),
    }
    Some(Route { address: address.clone(), target })
}

/// The source address of packets to a target. Nothing is sent.
fn source(target: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // Port 9 (discard): 0 is refused by some systems.
    let mut target = target;
    target.set_port(9);
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

/// Reports the GIDs that the devices of an interface have for its address.
fn gids(devices: &Devices, interface: &str, local: IpAddr, report: &mut Report) {
    let mut has_device = false;
    for device in &devices.all {
        for port in &device.ports {
            let here: Vec<&Gid> = port.gids.iter().filter(|gid| gid.netdev == interface).collect();
            if here.is_empty() {
                continue;
            }
            has_device = true;
            let place = format!("{} port {}", device.name, port.number);
            let of_address: Vec<&&Gid> = here.iter().filter(|gid| gid.is_of(local)).collect();
            let list = of_address
                .iter()
                .map(|gid| format!("{} ({})", gid.index, gid.kind))
                .collect::<Vec<_>>()
                .join(", ");
            if of_address.is_empty() {
                report.warn(
                    "gid",
                    format!("{place} is on {interface}, but has no GID of {local}"),
                    format!("ip addr replace {local}/PREFIX dev {interface}"),
                );
            } else if of_address.iter().any(|gid| !gid.kind.contains("v1")) {
                report.ok("gid", format!("{place}: {list}"));
            } else {
                report.warn(
                    "gid",
                    format!("{place}: {list} only, which no router passes on"),
                    format!(
                        "cma_roce_mode -d {} -p {} -m 2  # rdma_cm then uses RoCE v2",
                        device.name, port.number
                    ),
                );
            }
        }
    }
    if !has_device && !devices.all.is_empty() {
        report.warn(
            "gid",
            format!("no RDMA device is on {interface}; a device needs an address in that network to be used"),
            "export RPMA_PROVIDER=soft",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::devices::tests::ADAPTER;
    use super::super::report::text_of;
    use super::*;
    use crate::system::Fake;

    #[test]
    fn loopback_is_reached_through_lo() {
        let target = "127.0.0.1:0".parse().unwrap();
        let local = source(target).unwrap();
        assert_eq!(local, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(interface(local).as_deref(), Some("lo"));
        assert_eq!(interface("192.0.2.77".parse().unwrap()), None);
    }

    #[test]
    fn an_unknown_host_is_a_failure() {
        let system = System::this();
        let address: Address = "there-is-no.such.invalid".parse().unwrap();
        let text = text_of(|report| assert!(check(&system, &Devices::default(), &address, report).is_none()));
        assert!(
            text.starts_with("FAIL  route") && text.contains("getent hosts there-is-no.such.invalid"),
            "{text}"
        );
    }

    #[test]
    fn the_gids_of_the_interface() {
        let fake = Fake::new("network", ADAPTER);
        let devices = Devices::find(&fake.system);
        let say = |interface, local: &str| {
            text_of(|report| gids(&devices, interface, local.parse().unwrap(), report))
        };
        assert_eq!(
            say("eth0", "10.0.0.1"),
            "ok    gid         mlx5_0 port 1: 2 (IB/RoCE v1), 10 (RoCE v2)\n"
        );
        assert!(
            say("eth0", "10.0.0.9")
                .contains("warn  gid         mlx5_0 port 1 is on eth0, but has no GID of 10.0.0.9")
        );
        assert!(say("eth1", "10.1.0.1").contains("no RDMA device is on eth1"));
        fake.add(&[("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/10", "IB/RoCE v1\n")]);
        let devices = Devices::find(&fake.system);
        let text = text_of(|report| gids(&devices, "eth0", "10.0.0.1".parse().unwrap(), report));
        assert!(text.starts_with("warn") && text.contains("cma_roce_mode -d mlx5_0 -p 1 -m 2"), "{text}");
        assert_eq!(
            text_of(|report| gids(&Devices::default(), "eth0", "10.0.0.1".parse().unwrap(), report)),
            ""
        );
    }
}
