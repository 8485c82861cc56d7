// SPDX-License-Identifier: BSD-3-Clause
//! What one process shows another to prove that it may inspect it.
//!
//! Two processes of one user do not always trust each other: root in a container, without capabilities, has the same number as root outside and
//! may neither signal nor trace it. So a process shares memory with a peer only if the peer shows that the kernel permits it to inspect this
//! process (ptrace(2), PTRACE_MODE_READ, which Yama does not restrict). The proof is what /proc/PID/auxv says: the addresses that the
//! kernel has drawn for the program, its stack and its libraries. Only who has that permission can read it, and knowing it is of no use beyond it,
//! as it permits to read the addresses themselves.
//!
//! A process of another PID namespace finds nothing under the number, or another process, and so cannot prove anything.
#![forbid(unsafe_code)]

use std::fs;

use once_cell::race::OnceBox;

use crate::cancel::whole;
use crate::sys::Errno;

/// The entries of the auxiliary vector that are addresses (getauxval(3)): AT_PHDR, AT_BASE, AT_ENTRY, AT_RANDOM, AT_EXECFN, AT_SYSINFO_EHDR.
const ADDRESSES: [u64; 6] = [3, 7, 9, 25, 31, 33];

/// Bytes of a proof.
pub(crate) const LEN: usize = 8 * ADDRESSES.len();

/// What a process that may inspect another one knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evidence(pub [u8; LEN]);

impl Evidence {
    /// Of another process. EACCES, EPERM: this process may not inspect it; ENOENT: there is none.
    pub(crate) fn of(pid: libc::pid_t) -> Result<Self, Errno> {
        Self::read(&format!("/proc/{pid}/auxv"))
    }

    /// Of this process. A child after fork(2) has the same.
    pub(crate) fn own() -> Result<Self, Errno> {
        static OWN: OnceBox<Evidence> = OnceBox::new();
        // valgrind shows a program a vector of its own at /proc/self/auxv.
        OWN.get_or_try_init(|| Self::read("/proc/thread-self/auxv").map(Box::new)).copied()
    }

    fn read(path: &str) -> Result<Self, Errno> {
        let vector = whole(|| fs::read(path)).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
        let mut evidence = [0; LEN];
        for entry in vector.chunks_exact(2 * size_of::<usize>()) {
            let (kind, value) = entry.split_at(size_of::<usize>());
            let kind = kind.try_into().map_or(0, usize::from_ne_bytes) as u64;
            if let Some(at) = ADDRESSES.iter().position(|&address| address == kind) {
                evidence[8 * at..][..value.len()].copy_from_slice(value);
            }
        }
        // The kernel shows nothing of a process that is ending.
        if evidence == [0; LEN] { Err(libc::ESRCH) } else { Ok(Self(evidence)) }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_told_from_others() {
        let own = Evidence::own().unwrap();
        assert_eq!(Evidence::of(std::process::id() as libc::pid_t), Ok(own));
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let of_other = || Evidence::of(other.id() as libc::pid_t);
        // ESRCH while it executes its program.
        let evidence = std::iter::repeat_with(of_other).find_map(Result::ok).unwrap();
        assert_ne!(evidence, own);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(Evidence::of(other.id() as libc::pid_t).is_err());
    }
}
