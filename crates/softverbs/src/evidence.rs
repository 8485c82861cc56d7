// SPDX-License-Identifier: BSD-3-Clause
//! What one process shows another to prove that it may inspect it.
//!
//! Two processes of one user may lack the right to trace each other: root in a container, without
//! capabilities, has the uid of root outside and may neither signal nor trace it. So a process shares memory
//! only with a peer that shows that the kernel permits it to inspect this process (ptrace(2),
//! PTRACE_MODE_READ, which Yama does not restrict). The proof is the name of a file of this process, which is
//! drawn at random: the kernel shows it at /proc/PID/fd/N to those who have that right. The number N is no
//! secret.
//!
//! A child after fork(2) may give up rights and still has a copy of what its parent knew. So the parent draws
//! a new name after each fork, under the same number, and the descriptor is closed in the child. A process of
//! another PID namespace finds nothing under the number of the process, or another process.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, RawFd};

use crate::cancel::whole;
use crate::process::PerProcess;
use crate::socket::Socket;
use crate::sys::{self, Errno};
use crate::{fork, lock};

/// Bytes of a proof: 128 random bits, as digits.
pub(crate) const LEN: usize = 32;

/// What /proc/PID/fd shows of such a file, before the digits.
const LINK: &str = "/memfd:softverbs-";

/// What only a process that may inspect another one can read of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evidence(pub [u8; LEN]);

/// Names that are kept after they were replaced: a program may fork many times while one of its connections
/// is being established.
const KEPT: usize = 16;

struct Own {
    file: Socket,
    evidence: Evidence,
    /// The names before this one, the last one at the end.
    before: VecDeque<Evidence>,
    /// [`fork::forks`] when it was drawn.
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
    /// Of another process, by the number of the descriptor that it has named. EACCES: this process may not
    /// inspect it. ENOENT: there is no such process or descriptor. EPROTO: the descriptor is something else.
    pub(crate) fn of(pid: libc::pid_t, number: RawFd) -> Result<Self, Errno> {
        let link = whole(|| fs::read_link(format!("/proc/{pid}/fd/{number}")));
        let link = link.map_err(|e| sys::errno_of(&e))?;
        let digits = link.as_os_str().as_encoded_bytes().strip_prefix(LINK.as_bytes());
        let digits = digits.and_then(|digits| digits.get(..LEN)).ok_or(libc::EPROTO)?;
        digits.try_into().map(Self).map_err(|_| libc::EPROTO)
    }

    /// Of this process, and the number of its descriptor. EMFILE and the like; EIO.
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

    /// Whether this was the evidence of this process at some time since `first` was: a peer reads it a moment
    /// later, and the process may fork in between. False if `first` has been replaced more than [`KEPT`]
    /// times.
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
    fn a_process_shows_what_it_knows_of_itself() {
        let pid = std::process::id() as libc::pid_t;
        let (number, own) = Evidence::own().unwrap();
        // Another test may have forked meanwhile: then it is drawn anew.
        assert!(Evidence::of(pid, number) == Ok(own) || Evidence::own() != Ok((number, own)));
        assert_eq!(Evidence::own().map(|(number, _)| number), Ok(number));
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(Evidence::of(other.id() as libc::pid_t, number).is_err());
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(matches!(Evidence::of(pid, 0), Err(libc::EPROTO | libc::ENOENT)), "it is another file");
    }

    #[test]
    fn what_a_peer_reads_during_a_fork_is_proof() {
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
    fn what_a_child_has_a_copy_of_is_no_proof() {
        let (_, before) = Evidence::own().unwrap();
        assert!(fork::tests::in_child(|| true));
        assert_ne!(Evidence::own().unwrap().1, before);
    }
}
