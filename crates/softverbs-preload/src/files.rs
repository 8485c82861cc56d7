// SPDX-License-Identifier: BSD-3-Clause
//! Files of the device `soft0`, which programs inspect before they use a RoCE device, and which only root
//! could create: the character device, and attributes of its port in sysfs. See [`paths`] for the list. There
//! are none if `soft0` is an iWARP device: UCX ignores those, and their GIDs have no type.
//!
//! The functions that `c_library.rs` exports call [`at`] with each path of the program. Other paths fail its
//! comparison of a prefix. An attribute is a sealed file in memory with the content that it has when it is
//! opened: a program must open it again to see a new value of a counter, unlike in sysfs. An empty
//! entry of the GID table can be opened, but reading it fails with EINVAL, as in sysfs.

mod attributes;
mod paths;

use libc::{c_char, c_int, ssize_t};
use rdma_sys::ibv_transport_type::IBV_TRANSPORT_IB;
use std::ffi::CStr;
use std::io::{Error, Seek, Write};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use rustix::event::epoll;
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_add_seals};
use rustix::io::Errno;

use crate::messages;
pub(crate) use paths::File;
use paths::{DEVICE, PORT};

/// The size of each attribute, as sysfs reports it: that of a page.
const ATTRIBUTE_SIZE: i64 = 4096;

/// The file of `soft0` at this path. `None`: the path is another one, NULL, or `soft0` has no such file.
///
/// # Safety
///
/// `path` must be NULL or a C string.
#[inline]
pub(crate) unsafe fn at(path: *const c_char) -> Option<File> {
    // SAFETY: `path` is not NULL, so the caller guarantees a C string, of which strncmp reads no byte after
    // the first that differs; the prefixes are C strings.
    let begins = |prefix: &CStr| unsafe { libc::strncmp(path, prefix.as_ptr(), prefix.count_bytes()) == 0 };
    if path.is_null() || !(begins(DEVICE) || begins(PORT)) {
        return None;
    }
    // SAFETY: `path` is not NULL, so the caller guarantees a C string.
    find(unsafe { CStr::from_ptr(path) })
}

/// The file of `soft0` at this path, which has one of the prefixes. Like the functions below, this is no
/// cancellation point (pthread_cancel(3)).
#[cold]
fn find(path: &CStr) -> Option<File> {
    let file = File::parse(path.to_bytes())?;
    // SAFETY: the device is never freed, and its types are not written after it was created.
    let is_roce = unsafe { (*softverbs::device()).transport_type } == IBV_TRANSPORT_IB;
    let exists = || match file {
        File::Device => true,
        File::Attribute(attribute) => softverbs::whole(|| attributes::exists(attribute)),
    };
    (is_roce && exists()).then_some(file)
}

/// The value that a function of the C library returns if it fails.
pub(crate) trait Failure {
    const FAILURE: Self;
}

impl Failure for c_int {
    const FAILURE: Self = -1;
}

impl Failure for ssize_t {
    const FAILURE: Self = -1;
}

/// Fails with this errno.
pub(crate) fn fail<T: Failure>(errno: c_int) -> T {
    // SAFETY: __errno_location returns the address of the calling thread's errno, which is valid as long as
    // the thread runs.
    unsafe { *libc::__errno_location() = errno };
    T::FAILURE
}

/// The result of a call for a file of `soft0`.
#[cold]
fn answer<T: Failure>(call: impl FnOnce() -> Result<T, c_int>) -> T {
    softverbs::whole(|| {
        messages::begin();
        call().unwrap_or_else(fail)
    })
}

fn errno() -> c_int {
    errno_of(&Error::last_os_error())
}

fn errno_of(why: &Error) -> c_int {
    why.raw_os_error().unwrap_or(libc::EIO)
}

/// open(2). The character device is /dev/null, since a device without a kernel driver has no commands. An
/// attribute can only be read: EACCES for other access modes. EEXIST, ENOTDIR, and the errors of
/// memfd_create(2).
pub(crate) fn open(file: File, flags: c_int) -> c_int {
    answer(|| {
        if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
            return Err(libc::EEXIST);
        }
        let attribute = match file {
            File::Device => {
                let flags = OFlags::from_bits_retain((flags & !libc::O_CREAT) as u32);
                let opened = rustix::fs::open(c"/dev/null", flags, Mode::empty());
                return opened.map(IntoRawFd::into_raw_fd).map_err(Errno::raw_os_error);
            }
            File::Attribute(attribute) => attribute,
        };
        if flags & libc::O_DIRECTORY != 0 {
            return Err(libc::ENOTDIR);
        }
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            return Err(libc::EACCES);
        }
        let closes_on_exec = flags & libc::O_CLOEXEC != 0;
        let opened = match attributes::value(attribute) {
            Ok(value) => with_content(value.as_bytes(), closes_on_exec),
            Err(attributes::Empty) => unreadable(closes_on_exec),
        };
        opened.map(IntoRawFd::into_raw_fd)
    })
}

/// A sealed file in memory.
fn with_content(content: &[u8], closes_on_exec: bool) -> Result<OwnedFd, c_int> {
    let flags = libc::MFD_ALLOW_SEALING | if closes_on_exec { libc::MFD_CLOEXEC } else { 0 };
    // Not by rustix, which looks for the function with dlsym(3): that waits while another thread is in
    // dlopen(3).
    // SAFETY: the name is a C string.
    let fd = owned(unsafe { libc::memfd_create(c"soft0".as_ptr(), flags) })?;
    let mut file = std::fs::File::from(fd);
    file.write_all(content).and_then(|()| file.rewind()).map_err(|why| errno_of(&why))?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals).map_err(Errno::raw_os_error)?;
    Ok(file.into())
}

fn owned(fd: c_int) -> Result<OwnedFd, c_int> {
    if fd < 0 {
        return Err(errno());
    }
    // SAFETY: the caller's system call has just returned this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A descriptor that read(2) refuses with EINVAL: that of an epoll set.
fn unreadable(closes_on_exec: bool) -> Result<OwnedFd, c_int> {
    let flags = if closes_on_exec { epoll::CreateFlags::CLOEXEC } else { epoll::CreateFlags::empty() };
    epoll::create(flags).map_err(Errno::raw_os_error)
}

/// stat(2): a character device that everyone can read and write, or a regular file that everyone can read.
///
/// # Safety
///
/// `buffer` must be valid for writes.
pub(crate) unsafe fn stat(file: File, buffer: *mut libc::stat) -> c_int {
    answer(|| {
        // SAFETY: all-zero is a valid stat: it holds only integers.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        found.st_nlink = 1;
        found.st_blksize = 4096;
        match file {
            File::Device => found.st_mode = libc::S_IFCHR | 0o666,
            File::Attribute(_) => {
                (found.st_mode, found.st_size) = (libc::S_IFREG | 0o444, ATTRIBUTE_SIZE);
            }
        }
        // SAFETY: the caller guarantees that `buffer` is valid for writes.
        unsafe { buffer.write(found) };
        Ok(0)
    })
}

/// access(2), with the permissions that [`stat`] shows. EACCES, and EINVAL for an invalid mode.
pub(crate) fn access(file: File, mode: c_int) -> c_int {
    let permitted = match file {
        File::Device => libc::R_OK | libc::W_OK,
        File::Attribute(_) => libc::R_OK,
    };
    answer(|| match mode {
        _ if mode & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 => Err(libc::EINVAL),
        _ if mode & !permitted != 0 => Err(libc::EACCES),
        _ => Ok(0),
    })
}

/// readlink(2): EINVAL, since no file of `soft0` is a symbolic link.
pub(crate) fn readlink(_file: File) -> ssize_t {
    answer(|| Err(libc::EINVAL))
}

#[cfg(test)]
mod tests;
