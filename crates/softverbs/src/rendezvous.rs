// SPDX-License-Identifier: BSD-3-Clause
//! Unix sockets of listeners, in a directory that no other user can enter.
//!
//! Every user of the network namespace can connect to a Unix socket with an abstract name, or take the name.
//! Another user could pass it a descriptor whose closing blocks for an arbitrary time (a TCP socket with
//! SO_LINGER, a file of FUSE): the kernel closes queued descriptors together with the socket, whether they
//! were received or not. So the sockets have paths in a directory of the effective user with mode 0700, which
//! listener and initiator both check before they use it. Without such a directory connections use TCP.
//!
//! The directory is `/run/softverbs` for root, else `/run/user/UID/softverbs`; `/tmp/softverbs-UID`, which
//! must not be a mount point, if that one cannot be created. It is opened once and then accessed through
//! /proc/thread-self/fd, so that it cannot be replaced between check and use.
//!
//! A socket is bound and listens under a temporary name before it is renamed, so a name always belongs to a
//! listening socket, and the file of a killed process is replaced. The kernel keeps the temporary name as the
//! socket's address, in which an initiator finds the descriptor number of the listener's [`Evidence`]. A name
//! contains the number of the network namespace, as several namespaces may share the directory. A program
//! that cleans up /tmp by age may remove a name; the listener's connections then use TCP.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::process::geteuid;

use crate::cancel::whole;
use crate::evidence::Evidence;
use crate::fork;
use crate::limits::RENDEZVOUS_FILES;
use crate::socket::Socket;
use crate::sys::{Errno, errno_of, to_errno};
use crate::unix;

/// The uid of all users who are not mapped in the user namespace of this process
/// (/proc/sys/kernel/overflowuid).
const NOBODY: libc::uid_t = 65534;

fn user() -> Option<libc::uid_t> {
    Some(geteuid().as_raw()).filter(|&uid| uid != NOBODY)
}

/// The directories in which the sockets may be, in the order in which a listener tries them.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let of = |uid| {
        let run = if uid == 0 { "/run/softverbs".into() } else { format!("/run/user/{uid}/softverbs") };
        [run.into(), format!("/tmp/softverbs-{uid}").into()]
    };
    user().map(of).into_iter().flatten()
}

/// Where every user may create directories, and mount a file system of FUSE on one.
const TMP: &str = "/tmp";

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a directory that is not a mount point: EXDEV. Another user's file system of FUSE may never answer,
/// if fuse.conf(5) has user_allow_other.
fn open_below(parent: &str, path: &Path) -> rustix::io::Result<OwnedFd> {
    let parent = rustix::fs::open(parent, DIRECTORY, Mode::empty())?;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    openat2(parent, path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty(), within)
}

/// Opens a directory, which is no mount point if it is in `tmp`. That is not checked before Linux 5.6, and in
/// sandboxes without openat2(2).
fn open(tmp: &str, path: &Path) -> rustix::io::Result<OwnedFd> {
    let unchecked = || rustix::fs::open(path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
    match path.strip_prefix(tmp).map(|below| open_below(tmp, below)) {
        Ok(Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM)) | Err(_) => unchecked(),
        Ok(opened) => opened,
    }
}

/// A directory that only the effective user can enter.
struct Directory(Socket);

impl Directory {
    /// Opens and checks a directory. EPERM if other users can enter it, EXDEV if another file system is
    /// mounted there.
    fn open(path: &Path) -> Result<Self, Errno> {
        let fd = Socket::noted(|| to_errno(open(TMP, path)))?;
        let about = to_errno(rustix::fs::fstat(&fd))?;
        let is_private = about.st_mode & 0o077 == 0 && Some(about.st_uid) == user();
        if is_private { Ok(Self(fd)) } else { Err(libc::EPERM) }
    }

    fn make(path: &Path) -> Result<Self, Errno> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(errno_of(&e)),
        }
        Self::open(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        format!("/proc/thread-self/fd/{}/{name}", self.0.as_raw_fd()).into()
    }

    /// If there are many files, removes those of killed processes.
    fn clean_up(&self) {
        let Ok(entries) = fs::read_dir(self.path(".")) else { return };
        let files: Vec<_> = entries.flatten().take(2 * RENDEZVOUS_FILES).collect();
        if files.len() < RENDEZVOUS_FILES {
            return;
        }
        for file in files {
            let path = self.path(&file.file_name().to_string_lossy());
            if !unix::is_bound(&path) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// A Unix socket that listens under a name; dropping it removes the name.
pub(crate) struct Listening {
    socket: Socket,
    directory: PathBuf,
    name: String,
    /// Device and inode of the file: another listener may have replaced it.
    file: (u64, u64),
    /// [`fork::generation`] of the process that listens.
    generation: u32,
}

impl Listening {
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        whole(|| {
            let Ok(directory) = Directory::open(&self.directory) else { return };
            let path = directory.path(&self.name);
            if fs::symlink_metadata(&path).is_ok_and(|about| (about.dev(), about.ino()) == self.file) {
                let _ = fs::remove_file(path);
            }
        });
    }
}

/// The name of a listener at an address, of a network namespace.
fn file_name(namespace: u64, of: impl Display) -> String {
    format!("{VERSION}-{namespace}-{of}")
}

/// The version of the protocol over these sockets.
const VERSION: u32 = 3;

/// Listens under a name that only the caller uses in the network namespace. Returns the error of the last
/// directory tried.
pub(crate) fn listen(namespace: u64, of: impl Display, backlog: i32) -> Result<Listening, Errno> {
    let (name, mut error) = (file_name(namespace, of), libc::ENOENT);
    whole(|| {
        for path in candidates() {
            match listen_in(&path, &name, backlog) {
                Ok((socket, file)) => {
                    let generation = fork::generation();
                    return Ok(Listening { socket, directory: path, name, file, generation });
                }
                Err(e) => error = e,
            }
        }
        Err(error)
    })
}

fn listen_in(path: &Path, name: &str, backlog: i32) -> Result<(Socket, (u64, u64)), Errno> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let directory = Directory::make(path)?;
    directory.clean_up();
    let (pid, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let temporary = directory.path(&format!(".{pid}-{number}-{}", Evidence::own()?.0));
    // An earlier process with the same PID may have left one.
    let _ = fs::remove_file(&temporary);
    let socket = unix::listen(&temporary, backlog)?;
    let about = fs::symlink_metadata(&temporary);
    match about.and_then(|about| fs::rename(&temporary, directory.path(name)).map(|()| about)) {
        Ok(about) => Ok((socket, (about.dev(), about.ino()))),
        Err(e) => {
            let _ = fs::remove_file(&temporary);
            Err(errno_of(&e))
        }
    }
}

/// The descriptor number of a listener's evidence, from the temporary name of its socket.
fn descriptor(address: &[u8]) -> Option<RawFd> {
    let number = address.rsplit(|&byte| byte == b'-').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Connects to the listener with a name, and returns also the descriptor number of its [`Evidence`]. ENOENT
/// if there is none, EAGAIN if its backlog is full.
pub(crate) fn connect(namespace: u64, of: impl Display) -> Result<(Socket, RawFd), Errno> {
    let name = file_name(namespace, of);
    whole(|| {
        let directories = candidates().filter_map(|path| Directory::open(&path).ok());
        let mut tried = directories.map(|directory| unix::connect(&directory.path(&name)));
        let is_absent =
            |tried: &Result<Socket, Errno>| matches!(tried, Err(libc::ENOENT | libc::ECONNREFUSED));
        let socket = tried.find(|tried| !is_absent(tried)).unwrap_or(Err(libc::ENOENT))?;
        let number = unix::peer_address(&socket).as_deref().and_then(descriptor).ok_or(libc::EPROTO)?;
        Ok((socket, number))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Names of these tests, which no network namespace has.
    fn number() -> u64 {
        u64::from(std::process::id()) << 32 | 7
    }

    #[test]
    fn a_name_leads_to_its_listener_and_goes_with_it() {
        let namespace = number();
        assert_eq!(connect(namespace, "one").map(drop), Err(libc::ENOENT));
        let listening = listen(namespace, "one", 1).unwrap();
        let _near = connect(namespace, "one").unwrap();
        assert!(listening.socket().accept().is_ok());
        assert!(connect(namespace + 1, "one").is_err(), "another network namespace");
        drop(listening);
        assert_eq!(connect(namespace, "one").map(drop), Err(libc::ENOENT));
    }

    #[test]
    fn the_file_of_a_killed_listener_is_replaced() {
        let namespace = number();
        let mut left = listen(namespace, "two", 1).unwrap();
        let directory = Directory::open(&left.directory).unwrap();
        // As if the process had been killed: the socket is closed but the file remains.
        left.generation += 1;
        drop(left);
        assert!(fs::symlink_metadata(directory.path(&file_name(namespace, "two"))).is_ok());
        assert_eq!(connect(namespace, "two").map(drop), Err(libc::ENOENT));
        let listening = listen(namespace, "two", 1).unwrap();
        assert!(connect(namespace, "two").is_ok());
        drop(listening);
    }

    /// Another user may have mounted a file system of FUSE there.
    #[test]
    fn a_directory_in_tmp_that_is_a_mount_point_is_not_opened() {
        let proc = open("/", Path::new("/proc")).map(drop);
        match open_below("/", Path::new("proc")) {
            // Without openat2(2).
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => assert_eq!(proc, Ok(())),
            _ => assert_eq!(proc, Err(rustix::io::Errno::XDEV)),
        }
        let path: PathBuf = format!("{TMP}/softverbs-test-open-{}", std::process::id()).into();
        fs::create_dir(&path).unwrap();
        assert!(open(TMP, &path).is_ok());
        fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_enter_is_not_used() {
        let path: PathBuf = format!("/tmp/softverbs-test-{}", std::process::id()).into();
        let made = Directory::make(&path).unwrap();
        assert!(Directory::open(&path).is_ok());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o710)).unwrap();
        assert_eq!(Directory::open(&path).map(drop), Err(libc::EPERM));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let link = path.with_extension("link");
        symlink(&path, &link).unwrap();
        assert!(Directory::make(&link).is_err(), "another user may have made the link");
        fs::remove_file(&link).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert_eq!(Directory::make(&path).map(drop), Err(libc::EPERM));
        }
        drop(made);
        fs::remove_dir(&path).unwrap();
    }
}
