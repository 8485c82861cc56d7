// SPDX-License-Identifier: BSD-3-Clause
//! The peer process, to and from whose memory this one copies with process_vm_writev(2) and
//! process_vm_readv(2).
//!
//! These calls identify a process by its PID, and access whatever memory it has at that time: perhaps that of
//! another program that it has executed (execve(2)), or that of another process that got the PID later. So
//! each process has a guard page at a random address, and each call accesses the guard page of the peer
//! first. A call processes its ranges in order, in the memory of one process, and stops at the first
//! inaccessible one: without the guard page nothing is copied.
//!
//! The guard page holds a random number. Peers send each other its address and the number; if the process
//! with the PID that the kernel reports has the number there, it is the peer. The same read shows whether the
//! kernel permits the access (ptrace(2), "access mode checking": PTRACE_MODE_ATTACH).
//!
//! Where it permits only to inspect the process (PTRACE_MODE_READ; Yama's ptrace_scope is 1 on some
//! distributions), the memfds of the peer can be opened and mapped, but nothing else can be accessed
//! ([`Reach::Files`]). The proof of the rings ([`crate::evidence`]) then has to be enough to identify the
//! peer: a peer that executes another program in between is not detected, but the inode of its memfd is
//! compared. Later, a descriptor of /proc/PID/maps shows whether it still has the same address space: the
//! file is empty once that is gone, since the process has ended or has executed another program.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, makedev, open, statx};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::cancel::whole;
use crate::lock;
use crate::memory::memfd_device;
use crate::process::PerProcess;
use crate::socket::Socket;
use crate::sys::{Errno, again, check_len, errno, errno_of, is_readable_within, page_size, to_errno};

/// Address and random number of a process's guard page. The address 0 means that there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    pub addr: u64,
    pub nonce: [u64; 2],
}

/// The maximum number of bytes of one copy: revocation waits for it.
pub(super) const MOST: usize = 1 << 20;

/// Bytes of the number in a guard page. The page must be writable, since writes to the peer access it, too:
/// they write the bytes after the number.
const NONCE: usize = 16;

/// The number of random addresses to try for the guard page.
const TRIES: u32 = 8;

/// A child after fork(2) has no copy of its parent's page, so it creates another.
static OWN: PerProcess<Proof> = PerProcess::new();
static PEERS: PerProcess<Vec<Weak<Peer>>> = PerProcess::new();

impl Proof {
    /// The proof of this process. ENOMEM, EIO.
    pub(super) fn own() -> Result<Self, Errno> {
        let mut own = lock(OWN.get());
        if let Some(proof) = *own {
            return Ok(proof);
        }
        let proof = Self::create()?;
        *own = Some(proof);
        Ok(proof)
    }

    fn create() -> Result<Self, Errno> {
        let page = page_size();
        let mut drawn = [0u64; 3];
        let mut found = Err(libc::ENOMEM);
        for _ in 0..TRIES {
            let bytes: &mut [u8; 24] = &mut [0; 24];
            getrandom::fill(bytes).map_err(|_| libc::EIO)?;
            for (word, bytes) in drawn.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
            }
            // A random page in an address range that all 64-bit processors have.
            let hint = drawn[0] % (1 << 38) / page * page + (1 << 32);
            let hint = usize::try_from(hint).unwrap_or(0);
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping, at the hint or elsewhere: without MAP_FIXED the kernel replaces no
            // existing one.
            let addr = unsafe { libc::mmap(hint as *mut libc::c_void, page as usize, prot, flags, -1, 0) };
            if addr == libc::MAP_FAILED {
                return Err(errno());
            }
            if addr as usize == hint {
                found = Ok(addr);
                break;
            }
            // SAFETY: this unmaps exactly the new mapping, to which no pointer or reference was given out.
            unsafe { libc::munmap(addr, page as usize) };
        }
        let addr = found?;
        let nonce = [drawn[1], drawn[2]];
        // SAFETY: the page was just mapped writable, is aligned for the number, and is never unmapped.
        // MADV_DONTFORK affects children only.
        unsafe {
            addr.cast::<[u64; 2]>().write_volatile(nonce);
            if libc::madvise(addr, page as usize, libc::MADV_DONTFORK) != 0 {
                return Err(errno());
            }
        }
        Ok(Self { addr: addr as u64, nonce })
    }
}

/// What the kernel permits this process to access of a peer process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Its memory.
    Memory,
    /// Its memfds.
    Files,
}

/// A peer process whose memory, or memfds, this one may access.
pub(super) struct Peer {
    pid: libc::pid_t,
    proof: Proof,
    /// A pidfd, readable when the process has ended.
    end: Socket,
    /// Its /proc/PID/maps, with [`Reach::Files`].
    maps: Option<Socket>,
}

/// The first element of the ranges of a copy, which the call itself sets.
pub(super) const RESERVED: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn piece<T>(at: *mut T, iov_len: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast(), iov_len }
}

impl Peer {
    /// The process with this PID, after a check that it has this guard page, or may only be inspected. EPROTO
    /// if it does not have the page; the other errors of process_vm_readv(2), pidfd_open(2) and open(2).
    pub(super) fn meet(pid: libc::pid_t, proof: Proof) -> Result<Arc<Self>, Errno> {
        let known = |peers: &[Weak<Self>]| {
            let known =
                peers.iter().filter_map(Weak::upgrade).find(|peer| peer.pid == pid && peer.proof == proof);
            known.filter(|peer| !peer.has_ended(Duration::ZERO))
        };
        if let Some(peer) = known(lock(PEERS.get()).get_or_insert_default()) {
            return Ok(peer);
        }
        let process = Pid::from_raw(pid).ok_or(libc::EINVAL)?;
        let end = Socket::noted(|| to_errno(pidfd_open(process, PidfdFlags::empty())))?;
        let mut peer = Self { pid, proof, end, maps: None };
        // Without the lock: while a process forks, it holds its mmap lock, and reading its memory waits for
        // that. Other threads must not wait, too.
        if let Err(libc::EPERM | libc::ENOSYS) = peer.identify() {
            peer.maps = Some(open_noted(&format!("/proc/{pid}/maps"), OFlags::RDONLY)?);
        }
        peer.identify()?;
        let peer = Arc::new(peer);
        // No other process can have the PID of one that has not ended.
        if peer.has_ended(Duration::ZERO) {
            return Err(libc::ESRCH);
        }
        let mut peers = lock(PEERS.get());
        let peers = peers.get_or_insert_default();
        if let Some(peer) = known(peers) {
            return Ok(peer);
        }
        peers.retain(|peer| peer.strong_count() > 0);
        peers.try_reserve(1).map_err(|_| libc::ENOMEM)?;
        peers.push(Arc::downgrade(&peer));
        Ok(peer)
    }

    pub(super) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    pub(super) fn reach(&self) -> Reach {
        if self.maps.is_none() { Reach::Memory } else { Reach::Files }
    }

    /// Whether one of its threads may still be copying: the process has neither ended, for which this waits
    /// up to `wait`, nor executed another program. Also true if the kernel does not tell.
    pub(super) fn has_memory(&self, wait: Duration) -> bool {
        if self.has_ended(wait) {
            return false;
        }
        // execve(2) ends all other threads before it replaces the memory. ESRCH only means that the main
        // thread has ended.
        !matches!(self.identify(), Err(libc::EFAULT | libc::EPROTO))
    }

    /// Whether the process has ended, with all of its threads; waits up to `wait` for that.
    pub(super) fn has_ended(&self, wait: Duration) -> bool {
        is_readable_within(self.end.as_raw_fd(), wait)
    }

    /// The memfd with this descriptor of the process and this inode. The number must be that of its memory as
    /// long as the caller holds the key for it. The errors of open(2); ESRCH if the process has executed
    /// another program.
    pub(super) fn memfd(&self, number: u32, inode: u64, writable: bool) -> Result<Socket, Errno> {
        let number = RawFd::try_from(number).map_err(|_| libc::EBADF)?;
        let getfd = || to_errno(pidfd_getfd(&*self.end, number, PidfdGetfdFlags::empty()));
        let fd = match Socket::noted(getfd) {
            Err(libc::EPERM | libc::ENOSYS) => self.open_memfd(number, inode, writable)?,
            result => result?,
        };
        if self.has_memory(Duration::ZERO) { Ok(fd) } else { Err(libc::ESRCH) }
    }

    /// Opens a memfd of the process. EBADF if the descriptor is that of another file.
    fn open_memfd(&self, number: RawFd, inode: u64, writable: bool) -> Result<Socket, Errno> {
        let link = format!("/proc/{}/fd/{number}", self.pid);
        // Neither the link nor what the kernel knows of the file needs an answer of its file system, which
        // may never come.
        let name = whole(|| std::fs::read_link(&link)).map_err(|e| errno_of(&e))?;
        if !name.as_os_str().as_encoded_bytes().starts_with(b"/memfd:") {
            return Err(libc::EBADF);
        }
        let found = open_noted(&link, OFlags::PATH)?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let about = to_errno(statx(&*found, c"", flags, StatxFlags::INO))?;
        let device = makedev(about.stx_dev_major, about.stx_dev_minor);
        if Some(device) != memfd_device() || about.stx_ino != inode {
            return Err(libc::EBADF);
        }
        let mode = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        open_noted(&format!("/proc/thread-self/fd/{}", found.as_raw_fd()), mode)
    }

    /// Whether the process has this guard page, or still the address space that it had. EFAULT or EPROTO if
    /// not; the errors of process_vm_readv(2) and read(2).
    fn identify(&self) -> Result<(), Errno> {
        if let Some(maps) = &self.maps {
            return match to_errno(whole(|| rustix::io::pread(&**maps, &mut [0; 1], 0)))? {
                0 => Err(libc::EFAULT),
                _ => Ok(()),
            };
        }
        // SAFETY: the two elements are for the call itself: only the number of the guard page is read, into a
        // local variable.
        unsafe { self.read(&mut [RESERVED], &mut [RESERVED]) }.map(|_| ())
    }

    /// Copies the bytes of `local` to the ranges `to` of the peer, both except their first elements, which
    /// are overwritten. The total lengths are the same. Returns the number of bytes copied, which is less
    /// than all if a byte is not accessible. EFAULT if the guard page is not there.
    ///
    /// # Safety
    ///
    /// The peer may be this process. Then the ranges must be exported, and not be revoked before the call has
    /// returned.
    #[inline(always)]
    pub(super) unsafe fn write(
        &self,
        local: &mut [libc::iovec],
        to: &mut [libc::iovec],
    ) -> Result<usize, Errno> {
        let mut byte = 0u8;
        let guard = (self.proof.addr + NONCE as u64) as *mut u8;
        self.copy(local, piece(&raw mut byte, 1), to, piece(guard, 1), |pid, local, n, remote, m| {
            // SAFETY: the local ranges are only read: `byte`, and memory that the kernel checks. The call
            // writes to the memory of another process; if the peer is this process, to its guard page, behind
            // the number, and to ranges that the caller guarantees to be exported.
            unsafe { libc::process_vm_writev(pid, local, n, remote, m, 0) }
        })
    }

    /// Copies bytes of the peer to `local`, like [`Peer::write`]. EPROTO if the guard page has another
    /// number.
    ///
    /// # Safety
    ///
    /// The caller must hold grants to write all of `local` but its first element, which is overwritten.
    pub(super) unsafe fn read(
        &self,
        local: &mut [libc::iovec],
        from: &mut [libc::iovec],
    ) -> Result<usize, Errno> {
        let mut nonce = [0u64; 2];
        let guard = piece(self.proof.addr as *mut u8, NONCE);
        let first = piece(&raw mut nonce, NONCE);
        let copied = self.copy(local, first, from, guard, |pid, local, n, remote, m| {
            // SAFETY: the first local range is `nonce`, and the caller holds grants to write the others; the
            // kernel checks that they are mapped. The ranges of the peer are only read.
            unsafe { libc::process_vm_readv(pid, local, n, remote, m, 0) }
        })?;
        // SAFETY: `nonce` is initialized, and the kernel has written to it.
        let read = unsafe { (&raw const nonce).read_volatile() };
        if read == self.proof.nonce { Ok(copied) } else { Err(libc::EPROTO) }
    }

    /// Runs `call` to copy between `local`, whose first element becomes `first`, and `remote`, whose first
    /// element becomes `guard`. Returns the number of bytes copied, without the first range.
    #[inline(always)]
    fn copy(
        &self,
        local: &mut [libc::iovec],
        first: libc::iovec,
        remote: &mut [libc::iovec],
        guard: libc::iovec,
        call: impl Fn(libc::pid_t, *const libc::iovec, libc::c_ulong, *const libc::iovec, libc::c_ulong) -> isize,
    ) -> Result<usize, Errno> {
        local[0] = first;
        remote[0] = guard;
        let (at, n) = (local.as_ptr(), local.len() as libc::c_ulong);
        let copied =
            check_len(again(|| call(self.pid, at, n, remote.as_ptr(), remote.len() as libc::c_ulong)))?;
        copied.checked_sub(first.iov_len).ok_or(libc::EFAULT)
    }
}

/// Opens a file of proc_pid(5). The errors of open(2).
fn open_noted(path: &str, flags: OFlags) -> Result<Socket, Errno> {
    Socket::noted(|| whole(|| to_errno(open(path, flags | OFlags::CLOEXEC, Mode::empty()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range<T>(at: *const T, len: usize) -> [libc::iovec; 2] {
        [RESERVED, piece(at.cast_mut(), len)]
    }

    fn own() -> libc::pid_t {
        std::process::id() as libc::pid_t
    }

    #[test]
    fn a_process_is_identified_by_its_guard_page() {
        let proof = Proof::own().unwrap();
        assert_eq!(Proof::own(), Ok(proof));
        let peer = Peer::meet(own(), proof).unwrap();
        assert!(!peer.has_ended(Duration::ZERO));
        assert!(Arc::ptr_eq(&peer, &Peer::meet(own(), proof).unwrap()), "one descriptor for all connections");
        let [a, b] = proof.nonce;
        assert_eq!(Peer::meet(own(), Proof { nonce: [a, b ^ 1], ..proof }).map(drop), Err(libc::EPROTO));
        let elsewhere = Proof { addr: proof.addr + page_size(), ..proof };
        assert!(matches!(Peer::meet(own(), elsewhere).map(drop), Err(libc::EFAULT | libc::EPROTO)));
        assert!(Peer::meet(own(), Proof::default()).is_err());
    }

    /// A process of which only the files are within reach.
    fn inspected(pid: u32) -> Peer {
        let pid = pid as libc::pid_t;
        let end = Socket::noted(|| to_errno(pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty())));
        let maps = open_noted(&format!("/proc/{pid}/maps"), OFlags::RDONLY).unwrap();
        Peer { pid, proof: Proof::default(), end: end.unwrap(), maps: Some(maps) }
    }

    #[test]
    fn only_the_memfds_of_an_inspected_process_are_opened() {
        let peer = inspected(std::process::id());
        assert_eq!(peer.reach(), Reach::Files);
        let memfd = Socket::noted(|| crate::sys::memory_file(c"own", 0)).unwrap();
        let number = |file: &Socket| file.as_raw_fd();
        let inode = |file: &Socket| rustix::fs::fstat(file).unwrap().st_ino;
        let found = peer.open_memfd(number(&memfd), inode(&memfd), true).unwrap();
        assert_eq!(inode(&found), inode(&memfd));
        assert_eq!(peer.open_memfd(number(&memfd), inode(&memfd) + 1, true).map(drop), Err(libc::EBADF));
        let (other, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let other = Socket::noted(|| Ok(other.into())).unwrap();
        assert_eq!(peer.open_memfd(number(&other), inode(&other), true).map(drop), Err(libc::EBADF));
        let device = open_noted("/dev/null", OFlags::RDONLY).unwrap();
        assert_eq!(peer.open_memfd(number(&device), inode(&device), true).map(drop), Err(libc::EBADF));
        assert!(
            peer.memfd(u32::MAX, 1, true).is_err() && peer.memfd(1 << 20, 1, true).is_err(),
            "no descriptor"
        );
        // The table of descriptors is that of the thread, not of the main thread.
        let reopened = std::thread::scope(|scope| {
            let open = || peer.open_memfd(number(&memfd), inode(&memfd), false).map(|file| inode(&file));
            scope.spawn(open).join().unwrap()
        });
        assert_eq!(reopened, Ok(inode(&memfd)));
    }

    #[test]
    fn an_inspected_process_that_has_executed_another_program_has_no_memory() {
        use std::io::{Read, Write};
        use std::process::{Command, Stdio};
        let mut shell = Command::new("sh");
        let script = "echo; read line; exec sh -c 'echo; read line'";
        let shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        output.read_exact(&mut [0]).unwrap();
        let peer = inspected(child.id());
        assert!(peer.has_memory(Duration::ZERO));
        writeln!(input, "go on").unwrap();
        output.read_exact(&mut [0]).unwrap();
        assert!(!peer.has_ended(Duration::ZERO) && !peer.has_memory(Duration::ZERO));
        assert!(peer.memfd(0, 1, true).is_err());
        drop(input);
        child.wait().unwrap();
        assert!(peer.has_ended(Duration::ZERO) && !peer.has_memory(Duration::ZERO));
    }

    #[test]
    fn bytes_go_both_ways_and_only_if_the_guard_page_is_there() {
        let peer = Peer::meet(own(), Proof::own().unwrap()).unwrap();
        let (mut from, mut to) = (*b"0123456789", [0u8; 10]);
        let (a, b) = from.split_at_mut(4);
        let mut local = [RESERVED, piece(a.as_mut_ptr(), 4), piece(b.as_mut_ptr(), 6)];
        // SAFETY: the only range is `to`, a live local array without references to it.
        assert_eq!(unsafe { peer.write(&mut local, &mut range(&raw mut to, 10)) }, Ok(10));
        // SAFETY: `to` is a live local array; the read is volatile since the kernel has written to it.
        assert_eq!(unsafe { (&raw const to).read_volatile() }, *b"0123456789");
        let mut back = [0u8; 10];
        let mut local = [RESERVED, piece(back.as_mut_ptr(), 10)];
        // SAFETY: the only local range is `back`, a live local array without references to it.
        assert_eq!(unsafe { peer.read(&mut local, &mut range(&raw const to, 10)) }, Ok(10));
        // SAFETY: `back` is a live local array; the read is volatile since the kernel has written to it.
        assert_eq!(unsafe { (&raw const back).read_volatile() }, *b"0123456789");
        // Two ranges, the second of which is not mapped: the result counts the bytes of the first one.
        let mut partly = [RESERVED, piece(&raw mut to, 7), piece(4096 as *mut u8, 3)];
        let mut local = [RESERVED, piece(back.as_mut_ptr(), 10)];
        // SAFETY: the ranges of the peer are `to` and an unmapped one, which the kernel does not write.
        assert_eq!(unsafe { peer.write(&mut local, &mut partly) }, Ok(7));
        let other = Proof { addr: 4096, ..peer.proof };
        let end = Socket::noted(crate::sys::event_flag).unwrap();
        let other = Peer { pid: own(), proof: other, end, maps: None };
        let mut zeros = [0u8; 10];
        let mut local = [RESERVED, piece(zeros.as_mut_ptr(), 10)];
        // SAFETY: the only range is `to`, a live local array without references to it.
        assert_eq!(unsafe { other.write(&mut local, &mut range(&raw mut to, 10)) }, Err(libc::EFAULT));
        // SAFETY: `to` is a live local array; the read is volatile since the kernel may have written to it.
        assert_eq!(unsafe { (&raw const to).read_volatile() }, *b"0123456789", "nothing was copied");
    }
}
