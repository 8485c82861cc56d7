// SPDX-License-Identifier: BSD-3-Clause
//! The namespaces and the container that isolate this process from the host.

use std::fs;

use super::devices::Devices;
use super::report::Report;
use crate::system::System;

/// The identity of a namespace: the target of its link, with its number.
fn namespace(system: &System, process: &str, kind: &str) -> Option<String> {
    let link = fs::read_link(system.path(format!("/proc/{process}/ns/{kind}"))).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// The network interfaces of this process. A /sys that was mounted in another network namespace has that
/// one's interfaces.
fn interfaces(system: &System) -> Vec<String> {
    let text = system.read("/proc/self/net/dev").unwrap_or_default();
    let mut names: Vec<String> =
        text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect();
    names.sort();
    names
}

pub(super) fn check(system: &System, devices: &Devices, report: &mut Report) {
    let mut said = Vec::new();
    said.extend(system.container().map(|name| format!("a container of {name}")));
    let initial = system.read("/proc/self/uid_map").map(|map| {
        let words: Vec<&str> = map.split_whitespace().collect();
        words == ["0", "0", "4294967295"]
    });
    said.push(match initial {
        Some(true) => "the initial user namespace".to_owned(),
        Some(false) => "a separate user namespace".to_owned(),
        None => "an unknown user namespace (no /proc)".to_owned(),
    });
    // Process 1 may be that of a container, and not every user may inspect it.
    said.push(match (namespace(system, "self", "net"), namespace(system, "1", "net")) {
        (Some(own), Some(first)) if own == first => "the network namespace of process 1".to_owned(),
        (Some(_), Some(_)) => "a separate network namespace".to_owned(),
        _ => "a network namespace that cannot be compared with that of process 1".to_owned(),
    });
    said.push(format!("interfaces: {}", interfaces(system).join(", ")));
    let text = said.join("; ");
    // Without sharing, the devices of the host belong only to its initial network namespace.
    match system.read("/sys/module/ib_core/parameters/netns_mode").as_deref() {
        Some("N") if devices.all.is_empty() => report.warn(
            "namespaces",
            format!("{text}; RDMA devices are not shared between network namespaces"),
            "rdma system set netns shared  # as root, on the host",
        ),
        Some("N") => {
            report.ok("namespaces", format!("{text}; each RDMA device belongs to one network namespace"))
        }
        Some(_) => {
            report.ok("namespaces", format!("{text}; RDMA devices are shared between network namespaces"))
        }
        None => report.ok("namespaces", text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::text_of;
    use super::*;
    use crate::system::Fake;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_container_is_told_by_what_is_there() {
        let fake = Fake::new(
            "namespaces",
            &[
                ("/proc/self/uid_map", "         0       1000          1\n"),
                ("/proc/self/ns/x", ""),
                ("/proc/1/ns/x", ""),
                ("/proc/self/net/dev", "Inter-|   Receive\n face |bytes\n    lo: 5 0\n  eth0: 7 0\n"),
                ("/.dockerenv", ""),
            ],
        );
        let say = || text_of(|report| check(&fake.system, &Devices::default(), report));
        assert!(say().contains(
            "a container of docker; a separate user namespace; a network namespace that cannot be compared with that of process 1; interfaces: eth0, lo"
        ));
        symlink("net:[1]", fake.system.path("/proc/self/ns/net")).unwrap();
        symlink("net:[2]", fake.system.path("/proc/1/ns/net")).unwrap();
        assert!(say().contains("a separate network namespace"));
        fake.add(&[
            ("/proc/self/uid_map", "0 0 4294967295"),
            ("/sys/module/ib_core/parameters/netns_mode", "N\n"),
        ]);
        let text = say();
        assert!(text.starts_with("warn") && text.contains("the initial user namespace"), "{text}");
        assert!(text.contains("rdma system set netns shared"), "{text}");
    }
}
