// SPDX-License-Identifier: BSD-3-Clause
//! A file as persistent memory: whether it is mapped directly, which domain survives a power failure, and
//! what a flush to persistence guarantees for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::provider::Chosen;
use super::report::{Remedy, Report};
use crate::system::System;

/// How a mapping of the file reaches the medium.
#[derive(Debug, PartialEq, Eq)]
enum Mapping {
    /// A character device of persistent memory.
    DeviceDax,
    /// Directly, and the file system supports MAP_SYNC.
    Sync,
    /// Directly, but the file system does not support MAP_SYNC.
    Dax,
    PageCache,
}

/// The persistence domain of a region, according to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Domain {
    /// Includes the processor's caches (eADR).
    Caches,
    /// Begins at the memory controller (ADR).
    Controller,
    Unknown,
}

pub(super) fn check(system: &System, path: &Path, chosen: Option<Chosen>, report: &mut Report) {
    let shown = path.display();
    let (mapping, device) = match look(path) {
        Ok(found) => found,
        Err(why) => return report.fail("pmem", format!("{shown}: {why}"), format!("ls -l {shown}")),
    };
    let file_system = file_system(system, path).unwrap_or_else(|| "an unknown file system".to_owned());
    let domain = device.map_or(Domain::Unknown, |device| domain(system, &device));
    let kept = match domain {
        Domain::Caches => "on power failure the contents of the processor's caches are kept (eADR)",
        Domain::Controller => "on power failure only data that reached the memory controller are kept (ADR)",
        Domain::Unknown => "no persistent memory region under it reports what is kept on power failure",
    };
    match mapping {
        Mapping::DeviceDax => report.ok("pmem", format!("{shown}: device DAX; {kept}")),
        Mapping::Sync => report.ok("pmem", format!("{shown}: DAX with MAP_SYNC on {file_system}; {kept}")),
        Mapping::Dax => report.warn(
            "pmem",
            format!("{shown}: DAX without MAP_SYNC on {file_system}: its metadata need fsync; {kept}"),
            Remedy::hint("use ext4 or xfs with -o dax, or device DAX"),
        ),
        Mapping::PageCache => report.ok("pmem", format!("{shown}: page cache, no DAX, on {file_system}")),
    }
    verdict(&mapping, domain, is_volatile(&file_system), chosen, report);
}

/// Whether a file system, as named by [`file_system`], loses its files on a restart.
fn is_volatile(file_system: &str) -> bool {
    ["tmpfs", "ramfs", "hugetlbfs", "devtmpfs"].contains(&file_system.split(' ').next().unwrap_or(""))
}

/// Reports what a flush to persistence guarantees for this memory, in the words of librpma(7).
fn verdict(mapping: &Mapping, domain: Domain, volatile: bool, chosen: Option<Chosen>, report: &mut Report) {
    const DO_NOT: &str = "do not call rpma_peer_cfg_set_direct_write_to_pmem; send a message, and let the target's program flush";
    match (chosen, mapping, domain) {
        (None, ..) => {}
        // msync(2) requires a file that supports fsync, and fails with EINVAL on device DAX.
        (Some(Chosen::Soft), Mapping::DeviceDax, _) => report.warn(
            "durability",
            "NOT durable: the soft provider flushes with msync, which does not work on device DAX",
            Remedy::hint(DO_NOT),
        ),
        (Some(_), Mapping::PageCache, _) if volatile => report.warn(
            "durability",
            "NOT durable: a file system in memory loses its files on a restart",
            Remedy::hint("choose a file on a disk, or persistent memory"),
        ),
        (Some(Chosen::Soft), ..) => {
            report.ok(
                "durability",
                "durable after the msync of a flush to persistence: direct write may be declared",
            );
        }
        (Some(Chosen::RdmaCore), Mapping::PageCache, _) => {
            report.warn(
                "durability",
                "NOT durable: an adapter writes to the page cache",
                Remedy::hint(DO_NOT),
            );
        }
        (Some(Chosen::RdmaCore), _, Domain::Caches) => {
            report.ok("durability", "durable: direct write may be declared")
        }
        (Some(Chosen::RdmaCore), _, Domain::Controller) => report.warn(
            "durability",
            "durable only if the adapter's writes bypass the caches: see ddio",
            Remedy::hint(DO_NOT),
        ),
        (Some(Chosen::RdmaCore), _, Domain::Unknown) => report.warn(
            "durability",
            "unknown: nothing reports what is kept on power failure",
            Remedy::hint(DO_NOT),
        ),
    }
}

/// How a file is mapped, and the directory of its device in /sys, if there is one. The file is opened and
/// mapped, but not written to.
fn look(path: &Path) -> io::Result<(Mapping, Option<PathBuf>)> {
    let data = std::fs::metadata(path)?;
    let number = |of: u64| format!("{}:{}", libc::major(of), libc::minor(of));
    if data.file_type().is_char_device() {
        let dir = PathBuf::from("/sys/dev/char").join(number(data.rdev()));
        let subsystem = std::fs::read_link(dir.join("subsystem")).ok();
        return match subsystem.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()) {
            Some("dax") => Ok((Mapping::DeviceDax, Some(dir))),
            _ => Err(io::Error::other("is a character device, but not persistent memory")),
        };
    }
    if !data.is_file() {
        return Err(io::Error::other("is neither a file nor a persistent memory device"));
    }
    if data.len() == 0 {
        return Err(io::Error::other("is empty: there is nothing to map"));
    }
    let file = File::options().read(true).write(true).open(path)?;
    let mapping =
        match maps_synchronously(&file) {
            Ok(()) => Mapping::Sync,
            Err(why) if matches!(why.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {
                if is_dax(&file) { Mapping::Dax } else { Mapping::PageCache }
            }
            Err(why) => return Err(why),
        };
    Ok((mapping, Some(PathBuf::from("/sys/dev/block").join(number(data.dev())))))
}

/// Maps the file with MAP_SYNC, and removes the mapping at once.
fn maps_synchronously(file: &File) -> io::Result<()> {
    const LEN: usize = 4096;
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED_VALIDATE | MapFlags::SYNC);
    // SAFETY: the kernel chooses the address of the new mapping, which nothing accesses and which is removed
    // here.
    unsafe {
        let addr = mmap(std::ptr::null_mut(), LEN, access, flags, file, 0)?;
        Ok(munmap(addr, LEN)?)
    }
}

/// STATX_ATTR_DAX of statx(2).
fn is_dax(file: &File) -> bool {
    statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
        .is_ok_and(|data| data.stx_attributes.contains(StatxAttributes::DAX))
}

/// The type of the file system, with its mount point and its options about DAX.
fn file_system(system: &System, path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let text = system.read("/proc/self/mounts")?;
    let mounts = text.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        // Spaces are written in octal.
        let dir = words.next()?.replace("\\040", " ");
        Some((dir, words.next()?.to_owned(), words.next()?.to_owned()))
    });
    // A later mount hides an earlier one on the same directory.
    let (dir, kind, options) =
        mounts.filter(|(dir, ..)| path.starts_with(dir)).max_by_key(|(dir, ..)| dir.len())?;
    let dax: Vec<&str> = options.split(',').filter(|option| option.starts_with("dax")).collect();
    Some(match dax.is_empty() {
        true => format!("{kind} ({dir})"),
        false => format!("{kind} ({dir}, {})", dax.join(",")),
    })
}

/// The weakest domain of the regions under a device; a device that consists of others lists them in `slaves`.
fn domain(system: &System, device: &Path) -> Domain {
    let Ok(place) = system.path(device).canonicalize() else { return Domain::Unknown };
    if let Some(text) =
        place.ancestors().find_map(|dir| std::fs::read_to_string(dir.join("persistence_domain")).ok())
    {
        return match text.trim() {
            "cpu_cache" => Domain::Caches,
            "memory_controller" => Domain::Controller,
            _ => Domain::Unknown,
        };
    }
    let slaves = std::fs::read_dir(place.join("slaves")).into_iter().flatten().flatten();
    let domains: Vec<Domain> = slaves
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("dev")).ok())
        .map(|number| domain(system, &Path::new("/sys/dev/block").join(number.trim())))
        .collect();
    [Domain::Unknown, Domain::Controller, Domain::Caches]
        .into_iter()
        .find(|domain| domains.contains(domain))
        .unwrap_or(Domain::Unknown)
}

#[cfg(test)]
mod tests {
    use super::super::report::text_of;
    use super::*;
    use crate::system::Fake;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_of_this_host() {
        let file = std::env::temp_dir().join(format!("rpma-doctor-pmem-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let say = |path: &Path| text_of(|report| check(&System::this(), path, Some(Chosen::Soft), report));
        assert!(say(&file).starts_with("FAIL") && say(&file).contains("empty"));
        std::fs::write(&file, "data").unwrap();
        let text = say(&file);
        let verdict = if text.contains("on tmpfs") { "NOT durable" } else { "durable after the msync" };
        assert!(text.starts_with("ok    pmem") && text.contains(verdict), "{text}");
        assert_eq!(std::fs::read(&file).unwrap(), b"data");
        std::fs::remove_file(&file).unwrap();
        assert!(say(&file).starts_with("FAIL") && say(Path::new("/dev/null")).starts_with("FAIL"));
        assert!(say(Path::new("/tmp")).contains("neither a file"));
    }

    #[test]
    fn the_domain_is_that_of_the_region_below() {
        let fake = Fake::new(
            "pmem",
            &[
                ("/sys/devices/ndbus0/region0/persistence_domain", "memory_controller\n"),
                ("/sys/devices/ndbus0/region0/namespace0.0/block/pmem0/dev", "259:0\n"),
                ("/sys/devices/ndbus0/region1/persistence_domain", "cpu_cache\n"),
                ("/sys/devices/ndbus0/region1/namespace1.0/block/pmem1/dev", "259:1\n"),
                ("/sys/devices/virtual/block/dm-0/dev", "253:0\n"),
                ("/sys/dev/block/x", ""),
                ("/sys/devices/virtual/block/dm-0/slaves/x", ""),
            ],
        );
        let link = |to: &str, from: &str| symlink(fake.system.path(to), fake.system.path(from)).unwrap();
        link("/sys/devices/ndbus0/region0/namespace0.0/block/pmem0", "/sys/dev/block/259:0");
        link("/sys/devices/ndbus0/region1/namespace1.0/block/pmem1", "/sys/dev/block/259:1");
        link("/sys/devices/virtual/block/dm-0", "/sys/dev/block/253:0");
        let of = |number: &str| domain(&fake.system, &Path::new("/sys/dev/block").join(number));
        assert_eq!(
            (of("259:0"), of("259:1"), of("253:0"), of("8:0")),
            (Domain::Controller, Domain::Caches, Domain::Unknown, Domain::Unknown)
        );
        link(
            "/sys/devices/ndbus0/region1/namespace1.0/block/pmem1",
            "/sys/devices/virtual/block/dm-0/slaves/pmem1",
        );
        assert_eq!(of("253:0"), Domain::Caches);
        link(
            "/sys/devices/ndbus0/region0/namespace0.0/block/pmem0",
            "/sys/devices/virtual/block/dm-0/slaves/pmem0",
        );
        assert_eq!(of("253:0"), Domain::Controller);
    }

    #[test]
    fn the_file_system_is_the_innermost_mount() {
        let path = std::env::temp_dir().canonicalize().unwrap();
        let mounts = format!(
            "/dev/sda / ext4 rw 0 0\n/dev/pmem0 {} xfs rw,dax=always,noquota 0 0\n/dev/sdb /x ext4 rw 0 0\n",
            path.display()
        );
        let fake = Fake::new("mounts", &[("/proc/self/mounts", &mounts)]);
        assert_eq!(
            file_system(&fake.system, &path).unwrap(),
            format!("xfs ({}, dax=always)", path.display())
        );
        assert_eq!(file_system(&fake.system, Path::new("/")).unwrap(), "ext4 (/)");
    }

    #[test]
    fn verdicts_are_those_of_the_manual() {
        let volatile =
            text_of(|report| verdict(&Mapping::PageCache, Domain::Unknown, true, Some(Chosen::Soft), report));
        assert!(volatile.contains("NOT durable: a file system in memory"), "{volatile}");
        assert!(is_volatile("tmpfs (/dev/shm)") && !is_volatile("ext4 (/tmpfs)"));
        let say = |mapping, domain, chosen| {
            text_of(|report| verdict(&mapping, domain, false, Some(chosen), report))
        };
        assert!(
            say(Mapping::PageCache, Domain::Unknown, Chosen::Soft)
                .starts_with("ok    durability  durable after the msync")
        );
        assert!(say(Mapping::PageCache, Domain::Unknown, Chosen::RdmaCore).contains("NOT durable"));
        assert!(
            say(Mapping::Sync, Domain::Caches, Chosen::RdmaCore).starts_with("ok    durability  durable:")
        );
        assert!(say(Mapping::DeviceDax, Domain::Controller, Chosen::RdmaCore).contains("see ddio"));
        assert!(say(Mapping::DeviceDax, Domain::Controller, Chosen::Soft).contains("NOT durable"));
        assert!(say(Mapping::Dax, Domain::Unknown, Chosen::RdmaCore).starts_with("warn"));
    }
}
