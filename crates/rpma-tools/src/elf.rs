// SPDX-License-Identifier: BSD-3-Clause
//! How the dynamic linker treats a program.

use memchr::memmem;
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Why the dynamic linker preloads nothing into a program, if it does not.
pub(crate) fn obstacle(program: &Path) -> Option<&'static str> {
    const SETUID_OR_SETGID: u32 = 0o6000;
    let mode = std::fs::metadata(program).map(|data| data.permissions().mode()).unwrap_or(0);
    if mode & SETUID_OR_SETGID != 0 {
        return Some("is a setuid or setgid program, and the dynamic linker preloads nothing into those");
    }
    if has_capabilities(program) {
        return Some("has file capabilities, so the dynamic linker preloads nothing into it");
    }
    if Headers::read(program).is_some_and(|headers| headers.is_static) {
        return Some("is statically linked, so there is no dynamic linker that could preload anything");
    }
    None
}

/// The name of the attribute with the capabilities of a file (capabilities(7)).
const CAPABILITIES: &CStr = c"security.capability";

fn has_capabilities(program: &Path) -> bool {
    // Room for a `struct vfs_ns_cap_data`. Without any, rustix returns 0 instead of the size.
    rustix::fs::getxattr(program, CAPABILITIES, &mut [0u8; 24]).is_ok_and(|size| size > 0)
}

/// The number of bytes of a program that are searched for the name of a library.
const SEARCHED: u64 = 64 << 20;

/// Whether a program, an executable or a script, contains the name of one of the libraries, as an argument of
/// dlopen(3) would be, and is not linked with it. `libraries` has the names without version.
pub(crate) fn may_load(program: &Path, libraries: &[&str]) -> bool {
    let needed = Headers::read(program).map_or(Vec::new(), |headers| headers.needed);
    let is_linked = |library: &&&str| needed.iter().any(|needed| needed.starts_with(library.as_bytes()));
    let others: Vec<_> = libraries.iter().filter(|library| !is_linked(library)).copied().collect();
    // Opening a FIFO would block until it has a writer.
    if others.is_empty() || !program.is_file() {
        return false;
    }
    let mut bytes = Vec::new();
    let read = File::open(program).and_then(|file| file.take(SEARCHED).read_to_end(&mut bytes));
    read.is_ok() && names_any(&bytes, &others)
}

/// Whether the bytes contain the name of one of the libraries.
pub(crate) fn names_any(bytes: &[u8], libraries: &[&str]) -> bool {
    libraries.iter().any(|library| memmem::find(bytes, library.as_bytes()).is_some())
}

/// The information in an ELF file for the dynamic linker.
struct Headers {
    /// Whether there is neither an interpreter nor a dynamic section.
    is_static: bool,
    /// The names in DT_NEEDED.
    needed: Vec<Vec<u8>>,
}

impl Headers {
    /// Reads the headers; None if it is not an ELF file, for example a script.
    fn read(program: &Path) -> Option<Self> {
        let file = ReadCache::new(File::open(program).ok()?);
        let header = FileHeader64::<Endianness>::parse(&file).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, &file).ok()?;
        let has = |kind| segments.iter().any(|segment| segment.p_type(endian) == kind);
        let is_static = !has(elf::PT_INTERP) && !has(elf::PT_DYNAMIC);
        let dynamic = segments.iter().find_map(|segment| segment.dynamic(endian, &file).ok().flatten());
        let dynamic = dynamic.unwrap_or_default();
        let value =
            |tag| dynamic.iter().find(|entry| entry.d_tag(endian) == tag).map(|entry| entry.d_val(endian));
        let strings = value(elf::DT_STRTAB).zip(value(elf::DT_STRSZ)).and_then(|(address, size)| {
            segments
                .iter()
                .find_map(|segment| segment.data_range(endian, &file, address, size).ok().flatten())
        });
        let string = |at: u64| strings?.get(usize::try_from(at).ok()?..)?.split(|&byte| byte == 0).next();
        let needed = dynamic.iter().filter(|entry| entry.d_tag(endian) == elf::DT_NEEDED);
        let needed = needed.filter_map(|entry| string(entry.d_val(endian))).map(<[u8]>::to_vec).collect();
        Some(Self { is_static, needed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_program_has_no_obstacle() {
        assert_eq!(obstacle(&std::env::current_exe().unwrap()), None);
    }

    #[test]
    fn a_program_with_file_capabilities_has_one() {
        let program = std::env::temp_dir().join(format!("rpma-capable-{}", std::process::id()));
        std::fs::copy("/bin/true", &program).unwrap();
        assert_eq!(obstacle(&program), None);
        // VFS_CAP_REVISION_2 with CAP_NET_BIND_SERVICE as permitted (linux/capability.h).
        let value: Vec<u8> = [2u32 << 24, 1 << 10, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
        let set = rustix::fs::setxattr(&program, CAPABILITIES, &value, rustix::fs::XattrFlags::empty());
        let found = obstacle(&program);
        std::fs::remove_file(&program).unwrap();
        // Without privileges, and not on every file system.
        if set.is_ok() {
            assert!(found.is_some_and(|text| text.contains("file capabilities")), "{found:?}");
        }
    }

    #[test]
    fn a_program_that_names_a_library_and_is_not_linked_with_it_may_load_it() {
        const NAMED: &str = "libof-this-test.so";
        let own = std::env::current_exe().unwrap();
        assert!(may_load(&own, &[NAMED]), "{NAMED}.1");
        assert!(!may_load(&own, &["libc.so"]), "linked");
        // The name must not be in this test program, so it is put together here.
        assert!(!may_load(&own, &[&["libof-another", "-test.so"].concat()]));
        let script = std::env::temp_dir().join(format!("rpma-script-{}", std::process::id()));
        std::fs::write(&script, "#!/usr/bin/python3\nimport ctypes\nctypes.CDLL('libibverbs.so.1')\n")
            .unwrap();
        assert!(may_load(&script, &["libibverbs.so"]) && !may_load(&script, &["librdmacm.so"]));
        std::fs::remove_file(&script).unwrap();
        assert!(!may_load(&script, &["libibverbs.so"]), "no file");
        assert!(!may_load(Path::new("/dev/zero"), &["libibverbs.so"]), "not a regular file");
    }

    /// A program header table with one entry of this kind.
    fn program(kind: u8) -> Vec<u8> {
        let mut bytes = vec![0u8; 64 + 56];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (bytes[32], bytes[54], bytes[56]) = (64, 56, 1);
        bytes[64] = kind;
        bytes
    }

    #[test]
    fn what_cannot_be_preloaded_is_known() {
        let dir = std::env::temp_dir().join(format!("rpma-elf-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("program");
        for (bytes, mode, expected) in [
            (program(1), 0o755, Some("statically")),
            (program(3), 0o755, None),
            (program(3), 0o4755, Some("setuid")),
            (program(3), 0o2755, Some("setuid")),
            (b"#!/bin/sh\n".to_vec(), 0o755, None),
            (b"\x7fELF\x02\x01".to_vec(), 0o755, None),
        ] {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let found = obstacle(&path);
            assert_eq!(found.is_some(), expected.is_some(), "{found:?}, expected {expected:?}");
            assert!(found.unwrap_or("").contains(expected.unwrap_or("")));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
