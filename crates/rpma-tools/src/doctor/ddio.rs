// SPDX-License-Identifier: BSD-3-Clause
//! Data Direct I/O: whether the root port above an adapter directs the adapter's writes to the processor's
//! caches.
//!
//! On Xeon Scalable of the first two generations the register perfctrlsts_0 (offset 180h of a root port's
//! configuration space) has the bit Use_Allocating_Flow_Wr (7): set, writes allocate in the last-level cache.
//! Other processors have no documented register, so the state is reported as unknown.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::devices::Devices;
use super::report::{Remedy, Report};
use crate::system::System;

const PERFCTRLSTS_0: u64 = 0x180;
const USE_ALLOCATING_FLOW_WR: u32 = 1 << 7;
/// The root ports that have the register.
const ROOT_PORTS: [&str; 4] = ["0x2030", "0x2031", "0x2032", "0x2033"];
const OFF: &str = "switch it off in the firmware setup before you rely on flushes to persistence";

enum State {
    /// DDIO is on, at the root port with this address.
    On(String),
    Off,
    /// Why the state is unknown.
    Unknown(String),
}

pub(super) fn check(system: &System, devices: &Devices, report: &mut Report) {
    let vendor = vendor(system);
    let intel = vendor.as_deref() == Some("GenuineIntel");
    if devices.all.is_empty() {
        return report
            .ok("ddio", "irrelevant without an adapter: the processor executes the soft provider's writes");
    }
    if !intel {
        let vendor = vendor.unwrap_or("unknown".to_owned());
        return report.ok("ddio", format!("the processor ({vendor}) is not from Intel, so it has no DDIO"));
    }
    for device in &devices.all {
        let name = &device.name;
        match state(system, name) {
            State::Off => report.ok("ddio", format!("{name}: off, its writes go to memory")),
            State::On(port) => report.warn(
                "ddio",
                format!("{name}: on (Use_Allocating_Flow_Wr), its writes stay in the processor's caches"),
                format!("setpci -s {port} 180.b=00:80  # as root, after each boot"),
            ),
            State::Unknown(why) => {
                report.warn("ddio", format!("{name}: state unknown ({why})"), Remedy::hint(OFF))
            }
        }
    }
}

fn vendor(system: &System) -> Option<String> {
    let text = system.read("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.starts_with("vendor_id"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Reads the setting of the root port above a device.
fn state(system: &System, device: &str) -> State {
    let unknown = |why: &str| State::Unknown(why.to_owned());
    let link = system.path(format!("/sys/class/infiniband/{device}/device"));
    let Ok(place) = link.canonicalize() else { return unknown("it is not a PCI device") };
    let Some(port) = root_port(&place) else {
        return unknown("it is not below a root port with a known register");
    };
    match register(&port) {
        Ok(Some(value)) if value & USE_ALLOCATING_FLOW_WR == 0 => State::Off,
        Ok(Some(_)) => {
            State::On(port.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned()))
        }
        Ok(None) => unknown("only root can read the configuration space of its root port"),
        Err(why) => State::Unknown(format!("the configuration space of its root port cannot be read: {why}")),
    }
}

/// The directory of the first port above a device that has the register.
fn root_port(place: &Path) -> Option<PathBuf> {
    let read = |dir: &Path, file: &str| Some(std::fs::read_to_string(dir.join(file)).ok()?.trim().to_owned());
    let has_it = |dir: &&Path| {
        read(dir, "vendor").as_deref() == Some("0x8086")
            && read(dir, "device").is_some_and(|id| ROOT_PORTS.contains(&id.as_str()))
    };
    place.ancestors().skip(1).find(has_it).map(Path::to_owned)
}

/// `None`: without privileges the kernel returns only the first bytes.
fn register(port: &Path) -> std::io::Result<Option<u32>> {
    let mut bytes = [0; 4];
    let file = File::open(port.join("config"))?;
    let read = file.read_at(&mut bytes, PERFCTRLSTS_0)?;
    Ok((read == bytes.len()).then(|| u32::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::super::devices::tests::ADAPTER;
    use super::super::report::text_of;
    use super::*;
    use crate::system::Fake;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_register_of_the_root_port_decides() {
        let fake = Fake::new("ddio", ADAPTER);
        let say = || text_of(|report| check(&fake.system, &Devices::find(&fake.system), report));
        assert!(say().contains("unknown"), "{}", say());
        fake.add(&[("/proc/cpuinfo", "processor : 0\nvendor_id\t: AuthenticAMD\n")]);
        assert!(say().starts_with("ok    ddio        the processor (AuthenticAMD)"));
        fake.add(&[("/proc/cpuinfo", "vendor_id\t: GenuineIntel\n")]);
        assert!(say().contains("warn  ddio        mlx5_0: state unknown (it is not a PCI device)"));
        let port = "/sys/devices/pci0000:3a/0000:3a:00.0";
        fake.add(&[
            (&format!("{port}/vendor"), "0x8086\n"),
            (&format!("{port}/device"), "0x2030\n"),
            (&format!("{port}/config"), "short"),
            (&format!("{port}/0000:3b:00.0/vendor"), "0x15b3\n"),
        ]);
        let link = fake.system.path("/sys/class/infiniband/mlx5_0/device");
        symlink(fake.system.path(format!("{port}/0000:3b:00.0")), link).unwrap();
        assert!(say().contains("only root can read"));
        let mut space = vec![0u8; 0x1000];
        for (value, expected) in
            [(0x80, "warn  ddio        mlx5_0: on"), (0x7f, "ok    ddio        mlx5_0: off")]
        {
            space[0x180] = value;
            fs::write(fake.system.path(format!("{port}/config")), &space).unwrap();
            assert!(say().starts_with(expected), "{}", say());
            assert_eq!(say().contains("setpci -s 0000:3a:00.0 180.b=00:80"), value == 0x80);
        }
        let none = text_of(|report| check(&fake.system, &Devices::default(), report));
        assert!(none.starts_with("ok    ddio        irrelevant"));
    }
}
