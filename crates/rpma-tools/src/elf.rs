// SPDX-License-Identifier: BSD-3-Clause
//! What the dynamic linker will do with a program.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Why the dynamic linker preloads nothing into a program, if it does not.
pub(crate) fn obstacle(program: &Path) -> Option<&'static str> {
    const SETUID_OR_SETGID: u32 = 0o6000;
    let file = File::open(program).ok();
    let mode = std::fs::metadata(program).map(|data| data.permissions().mode()).unwrap_or(0);
    if mode & SETUID_OR_SETGID != 0 {
        return Some("is a setuid or setgid program, into which the dynamic linker preloads nothing");
    }
    if has_capabilities(program) {
        return Some("has file capabilities, so the dynamic linker preloads nothing into it");
    }
    if file.is_some_and(is_static) {
        return Some("is statically linked: there is no dynamic linker that could preload anything");
    }
    None
}

fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = CString::new(program.as_os_str().as_bytes()) else { return false };
    // SAFETY: both names are C strings, and with a size of 0 nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Whether a file is an ELF executable without an interpreter. A script is none: its interpreter is preloaded.
fn is_static(mut file: File) -> bool {
    const PT_INTERP: u32 = 3;
    const PT_DYNAMIC: u32 = 2;
    let mut bytes = Vec::new();
    // The program headers are at the beginning.
    if file.by_ref().take(64 * 1024).read_to_end(&mut bytes).is_err()
        || !bytes.starts_with(b"\x7fELF\x02\x01")
    {
        return false;
    }
    let at = |offset: usize, length: usize| {
        let field = bytes.get(offset..offset.checked_add(length)?)?;
        Some(field.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte)))
    };
    let header = || Some((at(32, 8)? as usize, at(54, 2)? as usize, at(56, 2)? as usize));
    let Some((table, size, count)) = header() else { return false };
    let kinds: Vec<u64> = (0..count).map_while(|i| at(table.checked_add(i * size)?, 4)).collect();
    kinds.len() == count && !kinds.contains(&u64::from(PT_INTERP)) && !kinds.contains(&u64::from(PT_DYNAMIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_program_has_no_obstacle() {
        assert_eq!(obstacle(&std::env::current_exe().unwrap()), None);
    }

    /// A program header table with one entry of this kind.
    fn program(kind: u8) -> Vec<u8> {
        let mut bytes = vec![0u8; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
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
