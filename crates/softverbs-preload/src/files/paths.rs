// SPDX-License-Identifier: BSD-3-Clause
//! The paths of the files of `soft0`:
//!
//! ```text
//! /dev/infiniband/soft0                                      the character device, named like `dev_name`
//! /sys/class/infiniband/soft0/ports/1/gid_attrs/types/N      the type of GID N
//! /sys/class/infiniband/soft0/ports/1/gid_attrs/ndevs/N      the network interface of GID N
//! /sys/class/infiniband/soft0/ports/1/pkeys/N                P_Key N
//! /sys/class/infiniband/soft0/ports/1/counters/NAME          a counter of the port
//! ```
//!
//! Other forms of them, as with a double slash, are not recognised.
#![forbid(unsafe_code)]

use softverbs::PortCounter;
use std::ffi::CStr;

/// The path of the character device.
pub(super) const DEVICE: &CStr = c"/dev/infiniband/soft0";
/// The prefix of the paths of all attributes.
pub(super) const PORT: &CStr = c"/sys/class/infiniband/soft0/ports/1/";

/// A file of `soft0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    Device,
    Attribute(Attribute),
}

/// An attribute of the port, with the index of its entry in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    GidType(u32),
    GidInterface(u32),
    Pkey(u32),
    Counter(PortCounter),
}

impl File {
    /// The file with this path, whether or not its entry exists.
    pub(super) fn parse(path: &[u8]) -> Option<Self> {
        if path == DEVICE.to_bytes() {
            return Some(Self::Device);
        }
        let below = std::str::from_utf8(path.strip_prefix(PORT.to_bytes())?).ok()?;
        let (directory, entry) = below.rsplit_once('/')?;
        let of_entry = match directory {
            "gid_attrs/types" => Attribute::GidType,
            "gid_attrs/ndevs" => Attribute::GidInterface,
            "pkeys" => Attribute::Pkey,
            "counters" => {
                return PortCounter::named(entry).map(|counter| Self::Attribute(Attribute::Counter(counter)));
            }
            _ => return None,
        };
        Some(Self::Attribute(of_entry(index(entry)?)))
    }
}

/// An index as sysfs writes it: digits without leading zeros.
fn index(text: &str) -> Option<u32> {
    let index: u32 = text.parse().ok()?;
    (index.to_string() == text).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Option<File> {
        File::parse(path.as_bytes())
    }

    #[test]
    fn the_files_of_the_device_are_found() {
        assert_eq!(parse("/dev/infiniband/soft0"), Some(File::Device));
        for (path, attribute) in [
            ("gid_attrs/types/0", Attribute::GidType(0)),
            ("gid_attrs/ndevs/255", Attribute::GidInterface(255)),
            ("pkeys/0", Attribute::Pkey(0)),
            ("counters/port_rcv_data", Attribute::Counter(PortCounter::RcvData)),
        ] {
            let path = format!("/sys/class/infiniband/soft0/ports/1/{path}");
            assert_eq!(parse(&path), Some(File::Attribute(attribute)), "{path}");
        }
    }

    #[test]
    fn other_paths_are_not() {
        for path in [
            "/dev/infiniband/soft01",
            "/dev/infiniband/soft0/",
            "/dev/infiniband",
            "/sys/class/infiniband/soft0",
            "/sys/class/infiniband/soft0/device/vendor",
            "/sys/class/infiniband/soft0/ports/1/",
            "/sys/class/infiniband/soft0/ports/1/state",
            "/sys/class/infiniband/soft0/ports/1/gids/0",
            "/sys/class/infiniband/soft0/ports/1/counters",
            "/sys/class/infiniband/soft0/ports/1/counters/",
            "/sys/class/infiniband/soft0/ports/1/counters/symbol_error",
            "/sys/class/infiniband/soft0/ports/1/gid_attrs/types",
            "/sys/class/infiniband/soft0/ports/1/gid_attrs/types/",
            "/sys/class/infiniband/soft0/ports/1/gid_attrs/types/00",
            "/sys/class/infiniband/soft0/ports/1/gid_attrs/types/+1",
            "/sys/class/infiniband/soft0/ports/1/gid_attrs/types/-1",
            "/sys/class/infiniband/soft0/ports/1/gid_attrs/types/1 ",
            "/sys/class/infiniband/soft0/ports/1/gid_attrs/types/4294967296",
            "/sys/class/infiniband/soft0/ports/1//pkeys/0",
            "/sys/class/infiniband/soft0/ports/2/pkeys/0",
            "sys/class/infiniband/soft0/ports/1/pkeys/0",
            "",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
        assert_eq!(File::parse(b"/sys/class/infiniband/soft0/ports/1/pkeys/\xff"), None);
    }
}
