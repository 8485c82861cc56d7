// SPDX-License-Identifier: BSD-3-Clause
//! What memory is mapped, and so whether it may be registered: the driver of a device pins the pages, which
//! fails with EFAULT where the mapping lacks the protection.
//!
//! Nothing is pinned, populated or touched here: only the mappings of the range are queried. On Linux 6.11
//! and newer that takes one ioctl(2) a mapping, or two if its name is long: 2.6 us including open(2) and
//! close(2). Older kernels have the
//! mappings as text in /proc: 14 us in a small program. If that would take longer than 200 us, in a program
//! with a thousand mappings or more, only holes are detected.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;

use rustix::fs::makedev;

use crate::sys::{self, Errno};

/// `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    flags_found: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_sizes: [u32; 2],
    addresses: [u64; 2],
}

/// `_IOWR('f', 17, struct procmap_query)`
const PROCMAP_QUERY: libc::c_ulong =
    3 << 30 | (size_of::<Query>() as libc::c_ulong) << 16 | (b'f' as libc::c_ulong) << 8 | 17;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const SHARED: u64 = 8;
/// How the names of shared memory begin that has an inode, but to which no descriptor refers: memory that
/// mmap(2) creates without a file, and that of shmget(2), whose inode number is its identifier. A memfd may
/// have the same number.
const WITHOUT_DESCRIPTOR: [&str; 2] = ["/dev/zero", "/SYSV"];
/// Bytes of the longest such name, "/SYSV00000000 (deleted)", with NUL.
const NAME_LEN: usize = 24;
/// The most bytes of /proc/self/maps that are read.
const MOST_TEXT: u64 = 64 * 1024;

/// A mapping: its range, its protection and whether it is shared, and the file at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped {
    start: u64,
    end: u64,
    flags: u64,
    file: FilePart,
}

/// A part of a file that is mapped; without a file, the inode is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FilePart {
    pub device: u64,
    pub inode: u64,
    pub offset: u64,
}

/// What is mapped in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Part of it is not mapped, or lacks the protection.
    Inaccessible,
    /// One shared mapping of a file.
    Shared(FilePart),
    Other,
}

/// What is mapped in a range. It is accessible if all of it is readable, or, if `write`, writable.
pub(super) fn content(start: u64, len: u64, write: bool) -> Content {
    // As in a device's driver, write permission suffices for a region that is written.
    let needed = if write { WRITABLE } else { READABLE };
    // Without descriptors or /proc only holes are detected.
    let holes = || if sys::is_mapped(start, len) { Content::Other } else { Content::Inaccessible };
    // This file has the mappings even if the main thread has ended.
    let Ok(maps) = File::open("/proc/thread-self/maps") else { return holes() };
    covers(start, len, needed, |at| query(&maps, at))
        .or_else(|| covered_by_lines(maps, start, len, needed))
        .unwrap_or_else(holes)
}

/// [`content`] by `next`, which returns the first mapping that ends after an address, if any. `None` if it
/// cannot tell.
fn covers(
    start: u64,
    len: u64,
    needed: u64,
    next: impl Fn(u64) -> Option<Option<Mapped>>,
) -> Option<Content> {
    let end = start.saturating_add(len);
    let (mut at, mut content) = (start, Content::Other);
    while at < end {
        let found =
            next(at)?.filter(|found| found.start <= at && at < found.end && found.flags & needed != 0);
        let Some(Mapped { start: from, end: to, flags, file }) = found else {
            return Some(Content::Inaccessible);
        };
        content = match at == start && to >= end && flags & SHARED != 0 && file.inode != 0 {
            true => Content::Shared(FilePart { offset: file.offset + (at - from), ..file }),
            false => Content::Other,
        };
        at = to;
    }
    Some(content)
}

/// The same from the text of /proc/self/maps, of which [`MOST_TEXT`] bytes are read.
fn covered_by_lines(lines: impl Read, start: u64, len: u64, needed: u64) -> Option<Content> {
    let mut text = String::new();
    lines.take(MOST_TEXT).read_to_string(&mut text).ok()?;
    let complete = (text.len() as u64) < MOST_TEXT;
    let mut mappings: Vec<Mapped> = Vec::new();
    mappings.try_reserve_exact(text.split_inclusive('\n').count()).ok()?;
    mappings.extend(text.split_inclusive('\n').filter_map(parse));
    covers(start, len, needed, |at| {
        let found = mappings.iter().find(|mapped| at < mapped.end).copied();
        if found.is_some() || complete { Some(found) } else { None }
    })
}

/// Whether a mapping with this name may be one of a file that has a descriptor.
fn has_descriptor(name: &[u8]) -> bool {
    !WITHOUT_DESCRIPTOR.iter().any(|beginning| name.starts_with(beginning.as_bytes()))
}

/// Queries the mapping that contains an address; `Some(None)`: there is none. `None`: the kernel lacks this
/// ioctl, or it has failed.
fn query(maps: &File, addr: u64) -> Option<Option<Mapped>> {
    let found = match query_named(maps, addr, true) {
        Err(libc::ENAMETOOLONG) => query_named(maps, addr, false),
        found => found,
    };
    found.map_or_else(|e| (e == libc::ENOENT).then_some(None), |found| Some(Some(found)))
}

/// As [`query`]; `named`: looks at the name as well. ENOENT: no mapping; ENAMETOOLONG: the name is none of
/// [`WITHOUT_DESCRIPTOR`], as it is longer.
fn query_named(maps: &File, addr: u64, named: bool) -> Result<Mapped, Errno> {
    let mut name = [0u8; NAME_LEN];
    let mut query = Query { size: size_of::<Query>() as u64, addr, ..Query::default() };
    if named {
        (query.name_sizes[0], query.addresses[0]) = (NAME_LEN as u32, (&raw mut name) as u64);
    }
    // SAFETY: the kernel reads and writes only the structure, which contains its size, and, if the structure
    // has the address and the size of `name`, that; nothing else uses it before the call has returned.
    if unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) } != 0 {
        return Err(sys::errno());
    }
    let Query { start, end, flags_found: flags, offset, device: [major, minor], .. } = query;
    let inode = if has_descriptor(&name) { query.inode } else { 0 };
    Ok(Mapped { start, end, flags, file: FilePart { device: makedev(major, minor), inode, offset } })
}

/// A line of /proc/self/maps.
fn parse(line: &str) -> Option<Mapped> {
    let mut words = line.strip_suffix('\n')?.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (permissions, offset, device, inode) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let has_descriptor = has_descriptor(words.next().unwrap_or_default().as_bytes());
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let flag = |at: usize, letter: u8, flag: u64| {
        if permissions.as_bytes().get(at) == Some(&letter) { flag } else { 0 }
    };
    Some(Mapped {
        start: hex(start)?,
        end: hex(end)?,
        flags: flag(0, b'r', READABLE) | flag(1, b'w', WRITABLE) | flag(3, b's', SHARED),
        file: FilePart {
            device: makedev(number(major)?, number(minor)?),
            inode: if has_descriptor { inode.parse().ok()? } else { 0 },
            offset: hex(offset)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{fstat, ftruncate};

    use super::*;
    use crate::mapped::FileMapping;

    const ANONYMOUS: FilePart = FilePart { device: 0, inode: 0, offset: 0 };

    fn is_accessible(start: u64, len: u64, write: bool) -> bool {
        content(start, len, write) != Content::Inaccessible
    }

    fn mapped(start: u64, end: u64, flags: u64) -> Mapped {
        Mapped { start, end, flags, file: ANONYMOUS }
    }

    #[test]
    fn a_range_needs_the_protection_everywhere() {
        let page = sys::page_size();
        let map = sys::tests::Mapping::new(4 * page as usize);
        let protect = |at, protection| {
            // SAFETY: the page belongs to `map`, to which there are no references.
            let done =
                unsafe { libc::mprotect((map.addr() + at) as *mut libc::c_void, page as usize, protection) };
            assert_eq!(done, 0);
        };
        let both = |at, len| [false, true].map(|write| is_accessible(map.addr() + at, len, write));
        assert_eq!(both(0, 4 * page), [true, true]);
        protect(page, libc::PROT_READ);
        assert_eq!(both(0, 4 * page), [true, false]);
        assert_eq!(both(2 * page, 2 * page), [true, true]);
        protect(page, libc::PROT_NONE);
        assert_eq!(both(0, 4 * page), [false, false]);
        assert_eq!(both(0, page), [true, true]);
        assert_eq!(both(0, page + 1), [false, false]);
        protect(page, libc::PROT_READ | libc::PROT_WRITE);
        map.unmap(page as usize, page as usize);
        assert_eq!(both(0, 4 * page), [false, false]);
        assert_eq!(both(page, page), [false, false]);
    }

    /// A kernel without the ioctl would yield the same result from the text, only slower, so no other test
    /// notices. The names decide, which may be longer than the buffer.
    #[test]
    fn the_kernel_has_the_query() {
        let page = sys::page_size();
        let map = sys::tests::Mapping::new(3 * page as usize);
        map.unmap(page as usize, page as usize);
        let maps = File::open("/proc/thread-self/maps").unwrap();
        let at = |offset| query(&maps, map.addr() + offset);
        let Some(first) = at(0) else {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
            let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
            let version = (numbers.next().unwrap(), numbers.next().unwrap());
            assert!(version < (6, 11), "Linux {release}");
            return;
        };
        // The page may be in one mapping with the memory before it.
        let first = first.unwrap();
        assert!(first.start <= map.addr() && first.end == map.addr() + page);
        assert_eq!((first.flags & 11, first.file), (READABLE | WRITABLE, ANONYMOUS));
        assert_eq!(at(page), Some(None));
        assert_eq!(at(2 * page).unwrap().map(|found| found.start), Some(map.addr() + 2 * page));
        for name in [c"short", c"a name that is longer than the buffer"] {
            let file = sys::memory_file(name, 0).unwrap();
            ftruncate(&file, page).unwrap();
            let map = FileMapping::new(&file, 0, page as usize, false).unwrap();
            let found = query(&maps, map.start().as_ptr() as u64).unwrap().unwrap();
            assert_eq!(found.file.inode, fstat(&file).unwrap().st_ino);
        }
        let shared = sys::tests::Mapping::shared(page as usize);
        assert_eq!(query(&maps, shared.addr()).unwrap().unwrap().file.inode, 0);
    }

    #[test]
    fn a_failed_query_is_not_a_hole() {
        let other = File::open("/dev/null").unwrap();
        assert_eq!(query(&other, 0x1000), None);
        assert_eq!(covers(0x1000, 1, READABLE, |_| None), None);
    }

    #[test]
    fn a_mapping_that_ends_where_the_range_begins_covers_nothing() {
        let covered = |mapping| covers(0x1000, 1, READABLE, |_| Some(Some(mapping)));
        assert_eq!(covered(mapped(0, 0x1000, READABLE)), Some(Content::Inaccessible));
        assert_eq!(covered(mapped(0, 0x1001, READABLE)), Some(Content::Other));
    }

    #[test]
    fn the_text_shows_which_mappings_cover_a_range() {
        let text = "1000-3000 rw-p 0 0:0 0\n3000-4000 r--p 0 0:0 0\n6000-7000 rw-p 0 0:0 0\n";
        for (start, len, needed, expected) in [
            (0x1000, 0x3000, READABLE, true),
            (0x1000, 0x2000, WRITABLE, true),
            (0x1000, 0x2001, WRITABLE, false),
            (0x3000, 0x1000, READABLE, true),
            (0x3000, 1, WRITABLE, false),
            (0xfff, 1, READABLE, false),
            (0xfff, 2, READABLE, false),
            (0x3fff, 2, READABLE, false),
            (0x4000, 1, READABLE, false),
            (0x5fff, 2, READABLE, false),
            (0x6fff, 1, WRITABLE, true),
            (0x7000, 1, READABLE, false),
        ] {
            let content = covered_by_lines(text.as_bytes(), start, len, needed).unwrap();
            let accessible = content != Content::Inaccessible;
            assert_eq!(accessible, expected, "{len:#x} bytes from {start:#x} on");
        }
    }

    #[test]
    fn a_file_is_found_if_one_shared_mapping_of_it_covers_the_range() {
        let text = "1000-3000 rw-s 7000 0:1f 55\n3000-4000 rw-s 1000 0:1f 55\n6000-7000 rw-p 0 0:1f 55\n\
                    8000-9000 rw-s 0 0:0 0\n9000-a000 rw-s 0 0:1f 55 /dev/zero (deleted)\n\
                    a000-b000 rw-s 7000 0:1f 55 /memfd:of a program (deleted)\n\
                    b000-c000 rw-s 0 0:1f 55 /SYSV00000000 (deleted)\n";
        let content = |start, len| covered_by_lines(text.as_bytes(), start, len, WRITABLE);
        let part = |offset| Some(Content::Shared(FilePart { device: makedev(0, 0x1f), inode: 55, offset }));
        assert_eq!(content(0x1000, 0x2000), part(0x7000));
        assert_eq!(content(0x1234, 0x100), part(0x7234));
        assert_eq!(content(0x3fff, 1), part(0x1fff));
        assert_eq!(content(0x1000, 0x2001), Some(Content::Other), "two mappings");
        assert_eq!(content(0x6000, 1), Some(Content::Other), "private");
        assert_eq!(content(0x8000, 1), Some(Content::Other), "no file");
        assert_eq!(content(0x9000, 1), Some(Content::Other), "shared, but anonymous");
        assert_eq!(content(0xa000, 1), part(0x7000));
        assert_eq!(content(0xb000, 1), Some(Content::Other), "of System V");
    }

    #[test]
    fn a_text_that_is_too_long_is_used_up_to_the_limit() {
        let line = |at: usize| {
            format!(
                "{:08x}-{:08x} rw-p 00000000 00:00 0 {}\n",
                0x1000 * at,
                0x1000 * at + 0x800,
                "x".repeat(23)
            )
        };
        const LINE: usize = 64;
        let most = MOST_TEXT as usize / LINE;
        let covered = |lines: usize, at: usize| {
            let text: String = (1..=lines).map(line).collect();
            assert_eq!(text.len(), LINE * lines);
            covered_by_lines(text.as_bytes(), 0x1000 * at as u64, 8, WRITABLE)
        };
        assert_eq!(most, 1024);
        // All of it is read, and the end is recognized.
        assert_eq!(covered(most - 1, most - 1), Some(Content::Other));
        assert_eq!(covered(most - 1, most), Some(Content::Inaccessible));
        for lines in [most, most + 1] {
            assert_eq!(covered(lines, 1), Some(Content::Other));
            assert_eq!(covered(lines, most), Some(Content::Other));
            assert_eq!(covered(lines, most + 1), None);
        }
    }

    #[test]
    fn lines_of_the_text_are_parsed() {
        let line = "7f00000000-7f00002000 rw-p 00000000 00:00 0 \n";
        assert_eq!(parse(line), Some(mapped(0x7f_0000_0000, 0x7f_0000_2000, READABLE | WRITABLE)));
        assert_eq!(parse(&line.replace("rw-p", "r--s")).map(|m| m.flags), Some(READABLE | SHARED));
        assert_eq!(parse(&line.replace("rw-p", "---p")).map(|m| m.flags), Some(0));
        let file = parse(&line.replace("00000000 00:00 0 ", "00003000 fd:02 77 /a file")).unwrap().file;
        assert_eq!(file, FilePart { device: makedev(0xfd, 2), inode: 77, offset: 0x3000 });
        assert_eq!(parse(line.trim_end()), None, "a line that was cut");
    }
}
