// SPDX-License-Identifier: BSD-3-Clause
//! The functions that `c_library.rs` exports, which the test program calls by their C names.

use std::ffi::CString;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Once;

use softverbs::verbs::GidEntry;

use super::*;

const DEVICE: &str = "/dev/infiniband/soft0";
const PORT: &str = "/sys/class/infiniband/soft0/ports/1";

/// Makes `soft0` a RoCE device. Each test calls it first.
fn roce() {
    static ONCE: Once = Once::new();
    // SAFETY: each test waits here before it reads the environment.
    ONCE.call_once(|| unsafe { std::env::set_var("SOFTVERBS_TRANSPORT", "roce") });
}

fn c_string(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_encoded_bytes()).unwrap()
}

/// The result of access(2), or the errno.
fn access(path: &str, mode: c_int) -> Result<(), c_int> {
    // SAFETY: the path is a C string.
    if unsafe { libc::access(c_string(path).as_ptr(), mode) } == 0 { Ok(()) } else { Err(errno()) }
}

/// The mode and size that `stat` reports, or the errno.
fn stat(path: &str) -> Result<(u32, i64), c_int> {
    // SAFETY: all-zero is a valid stat, the path is a C string, and the structure is a local variable.
    let (result, found) = unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        (libc::stat(c_string(path).as_ptr(), &mut found), found)
    };
    if result == 0 { Ok((found.st_mode, found.st_size)) } else { Err(errno()) }
}

fn open(path: &str, flags: c_int) -> Result<OwnedFd, c_int> {
    // SAFETY: the path is a C string, and no flag requires a mode.
    owned(unsafe { libc::open(c_string(path).as_ptr(), flags) })
}

fn readlink(path: &str) -> Result<isize, c_int> {
    let mut buffer = [0; 256];
    // SAFETY: the path is a C string, and the buffer has the size passed.
    match unsafe { libc::readlink(c_string(path).as_ptr(), buffer.as_mut_ptr(), buffer.len()) } {
        -1 => Err(errno()),
        length => Ok(length),
    }
}

fn attribute(name: &str) -> String {
    format!("{PORT}/{name}")
}

#[test]
fn the_character_device_can_be_read_and_written() {
    roce();
    assert_eq!(stat(DEVICE), Ok((libc::S_IFCHR | 0o666, 0)));
    for mode in [libc::F_OK, libc::R_OK, libc::W_OK, libc::R_OK | libc::W_OK] {
        assert_eq!(access(DEVICE, mode), Ok(()), "{mode}");
    }
    assert_eq!(access(DEVICE, libc::X_OK), Err(libc::EACCES));
    assert_eq!(access(DEVICE, 8), Err(libc::EINVAL));
    assert_eq!(readlink(DEVICE), Err(libc::EINVAL));
    let file = fs::File::from(open(DEVICE, libc::O_RDWR | libc::O_CLOEXEC).unwrap());
    assert!(file.metadata().unwrap().file_type().is_char_device());
    assert_eq!(open(DEVICE, libc::O_CREAT | libc::O_EXCL).unwrap_err(), libc::EEXIST);
}

#[test]
fn attributes_have_what_verbs_report() {
    roce();
    let mut entry = GidEntry::default();
    for index in 0..256 {
        // SAFETY: the context is that of the software device; `entry` is a local variable of this size.
        let exists = unsafe {
            softverbs::verbs::_ibv_query_gid_ex(
                softverbs::context(),
                1,
                index,
                &mut entry,
                0,
                size_of::<GidEntry>(),
            )
        } == 0;
        let (kind, interface) =
            (attribute(&format!("gid_attrs/types/{index}")), attribute(&format!("gid_attrs/ndevs/{index}")));
        assert_eq!(stat(&kind), Ok((libc::S_IFREG | 0o444, 4096)));
        if !exists {
            for path in [kind, interface] {
                // As in sysfs: an empty entry can be opened, but not read.
                assert_eq!(access(&path, libc::R_OK), Ok(()));
                let fd = open(&path, libc::O_RDONLY).unwrap();
                let mut byte = 0_u8;
                // SAFETY: `byte` is one byte.
                let count = unsafe { libc::read(fd.as_raw_fd(), (&raw mut byte).cast(), 1) };
                assert_eq!((count, errno()), (-1, libc::EINVAL));
            }
            continue;
        }
        assert_eq!(fs::read(&kind).unwrap(), b"RoCE v2\n");
        let name = fs::read_to_string(&interface).unwrap();
        let name = CString::new(name.strip_suffix('\n').unwrap()).unwrap();
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::if_nametoindex(name.as_ptr()) }, entry.interface);
    }
    assert_ne!(entry.port, 0, "an address of loopback at least");
    assert_eq!(fs::read(attribute("pkeys/0")).unwrap(), b"0xffff\n");
    assert_eq!(fs::read(attribute("counters/port_xmit_packets")).unwrap(), b"0\n");
}

#[test]
fn attributes_cannot_be_changed() {
    roce();
    let path = attribute("pkeys/0");
    assert_eq!(access(&path, libc::W_OK), Err(libc::EACCES));
    for flags in [libc::O_WRONLY, libc::O_RDWR] {
        assert_eq!(open(&path, flags).unwrap_err(), libc::EACCES);
    }
    assert_eq!(open(&path, libc::O_DIRECTORY).unwrap_err(), libc::ENOTDIR);
    assert_eq!(readlink(&path), Err(libc::EINVAL));
    let fd = open(&path, libc::O_RDONLY).unwrap();
    // SAFETY: the byte is readable.
    assert_eq!(unsafe { libc::write(fd.as_raw_fd(), c"x".as_ptr().cast(), 1) }, -1);
    // SAFETY: the call takes no memory.
    assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), 0) }, -1);
    drop(fd);
    assert_eq!(fs::read(&path).unwrap(), b"0xffff\n");
}

#[test]
fn a_descriptor_is_closed_on_exec_as_requested() {
    roce();
    for path in [attribute("pkeys/0"), attribute("gid_attrs/types/255"), DEVICE.to_owned()] {
        for (flags, expected) in [(0, 0), (libc::O_CLOEXEC, libc::FD_CLOEXEC)] {
            let fd = open(&path, flags).unwrap();
            // SAFETY: the call takes no memory.
            assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }, expected, "{path}");
        }
    }
}

#[test]
fn what_the_device_lacks_does_not_exist() {
    roce();
    for path in [
        attribute("gid_attrs/types/256"),
        attribute("gid_attrs/ndevs/256"),
        attribute("pkeys/1"),
        attribute("pkeys"),
        attribute("state"),
        "/dev/infiniband/soft1".to_owned(),
    ] {
        assert_eq!(stat(&path), Err(libc::ENOENT), "{path}");
        assert_eq!(access(&path, libc::F_OK), Err(libc::ENOENT), "{path}");
        assert_eq!(readlink(&path), Err(libc::ENOENT), "{path}");
        assert_eq!(open(&path, libc::O_RDONLY).unwrap_err(), libc::ENOENT, "{path}");
        assert_eq!(fs::read(&path).unwrap_err().kind(), ErrorKind::NotFound, "{path}");
    }
}

#[test]
fn other_paths_are_those_of_the_system() {
    roce();
    let directory = std::env::temp_dir().join(format!("softverbs-files-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let (file, link) = (directory.join("file"), directory.join("link"));
    fs::OpenOptions::new().write(true).create_new(true).mode(0o640).open(&file).unwrap();
    std::os::unix::fs::symlink("file", &link).unwrap();
    let path = file.to_str().unwrap();
    // The umask may remove more.
    assert_eq!(stat(path).map(|(mode, _)| mode & !0o040), Ok(libc::S_IFREG | 0o600));
    assert_eq!(access(path, libc::W_OK), Ok(()));
    assert_eq!(readlink(link.to_str().unwrap()), Ok(4));
    assert_eq!(readlink(path), Err(libc::EINVAL));
    assert_eq!(open(path, libc::O_DIRECTORY).unwrap_err(), libc::ENOTDIR);
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(stat(path), Err(libc::ENOENT));
    // SAFETY: a path may be NULL; the functions report that.
    assert_eq!(unsafe { (libc::open(std::ptr::null(), 0), errno()) }, (-1, libc::EFAULT));
}
