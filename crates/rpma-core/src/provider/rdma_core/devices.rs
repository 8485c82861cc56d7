// SPDX-License-Identifier: BSD-3-Clause
//! Whether the program can use an RDMA device of the system, determined by file names alone.
//!
//! The libraries must not be called to find out, because they print a warning to stderr if there is no
//! device.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;

/// The missing part without which no device can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Directory,
    ManagerNode,
    ManagerPermission,
    Device,
    DeviceNode,
    DevicePermission,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => {
                "there is no /dev/infiniband: no RDMA driver is loaded, or the directory is not available in this container"
            }
            Self::ManagerNode => {
                "there is no /dev/infiniband/rdma_cm: the kernel module rdma_ucm is not loaded, or the device node is \
                 not available in this container"
            }
            Self::ManagerPermission => "no permission to open /dev/infiniband/rdma_cm",
            Self::Device => "this system has no RDMA device",
            Self::DeviceNode => {
                "no RDMA device of this system has a device node in /dev/infiniband: the kernel module ib_uverbs is not \
                 loaded, or the device node is not available in this container"
            }
            Self::DevicePermission => "no permission to open an RDMA device in /dev/infiniband",
        })
    }
}

/// The first missing part, if any.
pub(crate) fn missing() -> Option<Missing> {
    missing_in(Path::new("/sys/class/infiniband_verbs"), Path::new("/dev/infiniband"))
}

/// A device is an entry of the class directory with a device node; a container may have one without the
/// other.
fn missing_in(class: &Path, nodes: &Path) -> Option<Missing> {
    if !nodes.exists() {
        return Some(Missing::Directory);
    }
    match open(&nodes.join("rdma_cm")) {
        Ok(()) => {}
        Err(ErrorKind::PermissionDenied) => return Some(Missing::ManagerPermission),
        Err(_) => return Some(Missing::ManagerNode),
    }
    let mut worst = Missing::Device;
    for entry in class.read_dir().into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(b"uverbs") {
            continue;
        }
        match open(&nodes.join(entry.file_name())) {
            Ok(()) => return None,
            Err(ErrorKind::PermissionDenied) => worst = Missing::DevicePermission,
            Err(_) if worst == Missing::Device => worst = Missing::DeviceNode,
            Err(_) => {}
        }
    }
    Some(worst)
}

/// Opens the node and closes it at once: the mode of the file is not sufficient information because of
/// control groups and capabilities. Errors that would affect any file, such as a full descriptor table, are
/// ignored.
fn open(node: &Path) -> Result<(), ErrorKind> {
    match OpenOptions::new().read(true).write(true).open(node) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Err(ErrorKind::PermissionDenied),
        Err(e) => match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => Err(ErrorKind::NotFound),
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_missing_part_is_named() {
        let root = std::env::temp_dir().join(format!("rpma-devices-{}", std::process::id()));
        let (class, nodes) = (root.join("class"), root.join("nodes"));
        assert_eq!(missing_in(&class, &nodes), Some(Missing::Directory));
        fs::create_dir_all(&nodes).unwrap();
        assert_eq!(missing_in(&class, &nodes), Some(Missing::ManagerNode));
        fs::write(nodes.join("rdma_cm"), "").unwrap();
        assert_eq!(missing_in(&class, &nodes), Some(Missing::Device));
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join("abi_version"), "6").unwrap();
        assert_eq!(missing_in(&class, &nodes), Some(Missing::Device));
        fs::create_dir(class.join("uverbs0")).unwrap();
        assert_eq!(missing_in(&class, &nodes), Some(Missing::DeviceNode));
        fs::create_dir(class.join("uverbs1")).unwrap();
        fs::write(nodes.join("uverbs1"), "").unwrap();
        assert_eq!(missing_in(&class, &nodes), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
