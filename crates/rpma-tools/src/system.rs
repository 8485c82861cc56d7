// SPDX-License-Identifier: BSD-3-Clause
//! What is known of this host: the files through which the kernel describes it; and what else several
//! commands ask for.

pub(crate) mod installed;

use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// This host, or a tree of files that looks like one.
pub(crate) struct System {
    root: PathBuf,
}

impl System {
    pub(crate) fn this() -> Self {
        Self { root: "/".into() }
    }

    /// A file by its absolute path.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file, trimmed.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// The names in a directory, sorted; none if it cannot be read.
    pub(crate) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Opens a device as a program would, and closes it at once.
    pub(crate) fn open(&self, path: impl AsRef<Path>) -> io::Result<()> {
        OpenOptions::new().read(true).write(true).open(self.path(path)).map(drop)
    }

    /// A line of /proc/self/status.
    pub(crate) fn status(&self, name: &str) -> Option<String> {
        let text = self.read("/proc/self/status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    }

    /// The container engine that started this process, if it left a marker file.
    pub(crate) fn container(&self) -> Option<String> {
        if let Some(name) = self.read("/run/systemd/container").filter(|name| !name.is_empty()) {
            return Some(name);
        }
        let signs = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
        signs.into_iter().find(|(sign, _)| self.exists(sign)).map(|(_, name)| name.to_owned())
    }

    /// Whether a capability is among the effective ones of this process; `None`: not available in /proc.
    pub(crate) fn has_capability(&self, number: u32) -> Option<bool> {
        let effective = u64::from_str_radix(&self.status("CapEff")?, 16).ok()?;
        Some(effective >> number & 1 == 1)
    }

    /// Whether the running kernel has a module of this name, loadable or built in.
    pub(crate) fn has_module(&self, name: &str) -> bool {
        let Some(release) = self.read("/proc/sys/kernel/osrelease") else { return false };
        let is_it = |line: &str| {
            let file = line.split(':').next().unwrap_or("").rsplit('/').next().unwrap_or("");
            file.split('.').next() == Some(name)
        };
        ["modules.dep", "modules.builtin"].iter().any(|list| {
            self.read(Path::new("/lib/modules").join(&release).join(list))
                .is_some_and(|text| text.lines().any(is_it))
        })
    }
}

/// The name of the network interface that has an address.
pub(crate) fn interface(addr: IpAddr) -> Option<String> {
    interfaces().into_iter().find(|(_, its)| *its == addr).map(|(name, _)| name)
}

/// The network interfaces with their addresses; none if they cannot be listed.
pub(crate) fn interfaces() -> Vec<(String, IpAddr)> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is writable.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut entry = list;
    // SAFETY: the list was returned by getifaddrs(3) and is not freed before the end: its entries are linked
    // by ifa_next, their names are C strings, and an address is NULL or one of the family that it names, of
    // that family's size.
    unsafe {
        while !entry.is_null() {
            let of = (*entry).ifa_addr;
            let its: Option<IpAddr> = if of.is_null() {
                None
            } else {
                match i32::from((*of).sa_family) {
                    libc::AF_INET => {
                        let addr = of.cast::<libc::sockaddr_in>().read_unaligned().sin_addr.s_addr;
                        Some(Ipv4Addr::from(u32::from_be(addr)).into())
                    }
                    libc::AF_INET6 => {
                        let addr = of.cast::<libc::sockaddr_in6>().read_unaligned().sin6_addr.s6_addr;
                        Some(Ipv6Addr::from(addr).into())
                    }
                    _ => None,
                }
            };
            if let Some(addr) = its {
                found.push((CStr::from_ptr((*entry).ifa_name).to_string_lossy().into_owned(), addr));
            }
            entry = (*entry).ifa_next;
        }
        libc::freeifaddrs(list);
    }
    found
}

/// The limits of locked memory, soft and hard.
pub(crate) fn memlock() -> Option<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // Not by rustix, which does not look at the result.
    // SAFETY: the call writes only to `limit`.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) == 0 };
    known.then_some((limit.rlim_cur, limit.rlim_max))
}

/// A tree for tests, removed when it is dropped.
#[cfg(test)]
pub(crate) struct Fake {
    pub(crate) system: System,
}

#[cfg(test)]
impl Fake {
    pub(crate) fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("rpma-doctor-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let fake = Self { system: System { root } };
        fake.add(files);
        fake
    }

    pub(crate) fn add(&self, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = self.system.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
}

#[cfg(test)]
impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.system.root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_tree() {
        let fake = Fake::new(
            "system",
            &[
                ("/proc/self/status", "Name:\tcat\nCapEff:\t0000000000004000\n"),
                ("/proc/sys/kernel/osrelease", "6.1\n"),
                (
                    "/lib/modules/6.1/modules.dep",
                    "kernel/drivers/infiniband/core/rdma_ucm.ko.xz: kernel/a.ko\n",
                ),
                ("/lib/modules/6.1/modules.builtin", "kernel/lib/crc32c.ko\n"),
            ],
        );
        let system = &fake.system;
        assert_eq!(system.status("Name").as_deref(), Some("cat"));
        assert_eq!(system.has_capability(14), Some(true));
        assert_eq!(system.has_capability(21), Some(false));
        assert!(system.has_module("rdma_ucm") && system.has_module("crc32c") && !system.has_module("a"));
        assert_eq!(system.names("/lib/modules/6.1"), ["modules.builtin", "modules.dep"]);
        assert!(system.open("/dev/none").is_err() && !system.exists("/dev/none"));
    }
}
