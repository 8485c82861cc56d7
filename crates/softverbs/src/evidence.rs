// SPDX-License-Identifier: BSD-3-Clause
//! The proof that the kernel permits one process to inspect another.
//!
//! Two processes of one user may lack the right to trace each other: root in a container, without
//! capabilities, has the uid of root outside and may neither signal nor trace it. So a process shares memory
//! only with a peer that proves that the kernel permits it to inspect this process (ptrace(2),
//! PTRACE_MODE_READ, which Yama does not restrict). The proof is the random name of a file of this process:
//! the kernel shows it at /proc/PID/fd/N to processes with that right. The number N is not secret.
//!
//! A child after fork(2) may drop privileges but still has a copy of its parent's memory. So the parent draws
//! a new name after each fork, under the same descriptor number, and the descriptor is closed in the child.
//! In another PID namespace the PID belongs to no process or to another one.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::cancel::whole;
use crate::process::PerProcess;
use crate::socket::Socket;
use crate::sys::{self, Errno};
use crate::{fork, lock, unix};

/// Bytes of a proof: 128 random bits, as digits.
pub(crate) const LEN: usize = 32;

/// The link in /proc/PID/fd of such a file, up to the digits.
const LINK: &str = "/memfd:softverbs-";

/// The random name of a process's file, which only a process that may inspect it can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evidence(pub [u8; LEN]);

/// The number of replaced names that are kept: a program may fork many times while a connection is being
/// established.
const KEPT: usize = 16;

struct Own {
    file: Socket,
    evidence: Evidence,
    /// Replaced names, the latest at the end.
    before: VecDeque<Evidence>,
    /// [`fork::forks`] when the name was drawn.
    forks: u32,
}

static OWN: PerProcess<Own> = PerProcess::new();

impl Own {
    fn draw() -> Result<(CString, Evidence, u32), Errno> {
        let mut random = [0; LEN / 2];
        getrandom::fill(&mut random).map_err(|_| libc::EIO)?;
        let digits = format!("{:032x}", u128::from_ne_bytes(random));
        let evidence = Evidence(digits.as_bytes().try_into().map_err(|_| libc::EIO)?);
        let name = CString::new(format!("softverbs-{digits}")).map_err(|_| libc::EINVAL)?;
        Ok((name, evidence, fork::forks()))
    }

    fn new() -> Result<Self, Errno> {
        fork::undivided(|| {
            let (name, evidence, forks) = Self::draw()?;
            let file = Socket::note(sys::memory_file(&name, 0)?);
            Ok(Self { file, evidence, before: VecDeque::new(), forks })
        })
    }

    fn renew(&mut self) -> Result<(), Errno> {
        fork::undivided(|| {
            let (name, evidence, forks) = Self::draw()?;
            self.file.replace(&sys::memory_file(&name, 0)?)?;
            if self.before.len() == KEPT {
                self.before.pop_front();
            }
            self.before.push_back(self.evidence);
            (self.evidence, self.forks) = (evidence, forks);
            Ok(())
        })
    }
}

impl Evidence {
    /// Reads the evidence of another process, given its descriptor number. EACCES: this process may not
    /// inspect it. ENOENT: there is no such process or descriptor. EPROTO: the descriptor is another file.
    pub(crate) fn of(pid: libc::pid_t, number: RawFd) -> Result<Self, Errno> {
        let link = whole(|| fs::read_link(format!("/proc/{pid}/fd/{number}")));
        let link = link.map_err(|e| sys::errno_of(&e))?;
        let digits = link.as_os_str().as_encoded_bytes().strip_prefix(LINK.as_bytes());
        let digits = digits.and_then(|digits| digits.get(..LEN)).ok_or(libc::EPROTO)?;
        digits.try_into().map(Self).map_err(|_| libc::EPROTO)
    }

    /// Evidence of the process at the other end of a Unix socket, which proves to it that this process may
    /// inspect it. The error says why no memory can be shared.
    pub(crate) fn of_peer(socket: &OwnedFd, number: RawFd) -> Result<Self, String> {
        if !unix::is_of_same_user(socket) {
            return Err("the peer belongs to another user".into());
        }
        let pid = unix::peer_process(socket).ok_or("the peer is in another PID namespace")?;
        Self::of(pid, number).map_err(|e| {
            let why = std::io::Error::from_raw_os_error(e);
            format!(
                "this process is not permitted to inspect process {pid} (PTRACE_MODE_READ of ptrace(2)): {why}"
            )
        })
    }

    /// The evidence of this process and its descriptor number. EMFILE and the like; EIO.
    pub(crate) fn own() -> Result<(RawFd, Self), Errno> {
        let mut own = lock(OWN.get());
        let own = match &mut *own {
            Some(own) => {
                if own.forks != fork::forks() {
                    own.renew()?;
                }
                own
            }
            none => none.insert(Own::new()?),
        };
        Ok((own.file.as_raw_fd(), own.evidence))
    }

    /// Whether this has been the evidence of this process at any time since `first`: a peer reads it later,
    /// and the process may fork in between. False if `first` has been replaced more than [`KEPT`] times.
    pub(crate) fn was_own_since(self, first: Self) -> bool {
        lock(OWN.get()).as_ref().is_some_and(|own| {
            let mut names = own.before.iter().chain([&own.evidence]).skip_while(|name| **name != first);
            names.any(|name| *name == self)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_sees_its_own_evidence() {
        let pid = std::process::id() as libc::pid_t;
        let (number, own) = Evidence::own().unwrap();
        // If another test has forked meanwhile, the name was drawn again.
        assert!(Evidence::of(pid, number) == Ok(own) || Evidence::own() != Ok((number, own)));
        assert_eq!(Evidence::own().map(|(number, _)| number), Ok(number));
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(Evidence::of(other.id() as libc::pid_t, number).is_err());
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(matches!(Evidence::of(pid, 0), Err(libc::EPROTO | libc::ENOENT)), "it is another file");
    }

    #[test]
    fn evidence_read_during_a_fork_is_valid() {
        let fork = || assert!(fork::tests::in_child(|| true));
        let (_, too_early) = Evidence::own().unwrap();
        fork();
        let (_, first) = Evidence::own().unwrap();
        fork();
        let (_, second) = Evidence::own().unwrap();
        fork();
        let (_, third) = Evidence::own().unwrap();
        for name in [first, second, third] {
            assert!(name.was_own_since(first));
        }
        assert!(!too_early.was_own_since(first) && !Evidence([b'7'; LEN]).was_own_since(first));
        assert!(!fork::tests::in_child(move || first.was_own_since(first)), "a child has none of them");
        for _ in 0..=KEPT {
            fork();
            Evidence::own().unwrap();
        }
        assert!(!third.was_own_since(first));
    }

    #[test]
    fn evidence_copied_by_a_child_is_invalid() {
        let (_, before) = Evidence::own().unwrap();
        assert!(fork::tests::in_child(|| true));
        assert_ne!(Evidence::own().unwrap().1, before);
    }
}
