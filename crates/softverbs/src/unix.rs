// SPDX-License-Identifier: BSD-3-Clause
//! Unix sockets with paths (unix(7)), and descriptors that are passed over them.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::cancel::whole;
use crate::socket::Socket;
use crate::sys::{self, Errno, again, errno};

/// Descriptors that a message may carry here.
pub(crate) const MOST: usize = 2;

/// A control buffer with the alignment of its headers: room for [`MOST`] descriptors and a little more.
type Control = [u64; 8];

fn check(ret: isize) -> Result<usize, Errno> {
    usize::try_from(ret).map_err(|_| errno())
}

/// The address of a path; EINVAL if it is too long.
fn address(path: &Path) -> Result<(libc::sockaddr_un, libc::socklen_t), Errno> {
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut addr: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    addr.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let path = path.as_os_str().as_encoded_bytes();
    // The last byte stays 0.
    let room = addr.sun_path.len() - 1;
    let to = addr.sun_path[..room].get_mut(..path.len()).ok_or(libc::EINVAL)?;
    for (to, from) in to.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + path.len() + 1;
    Ok((addr, len as libc::socklen_t))
}

fn socket(kind: libc::c_int) -> Result<Socket, Errno> {
    Socket::noted(|| {
        let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) } as isize)?;
        // SAFETY: the kernel has just created the descriptor, so it has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    })
}

/// Listens at a path. EADDRINUSE if there is a file.
pub(crate) fn listen(path: &Path, backlog: i32) -> Result<Socket, Errno> {
    let socket = socket(libc::SOCK_STREAM)?;
    let (addr, len) = address(path)?;
    // SAFETY: `addr` holds an address of `len` bytes and outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const addr).cast(), len) } as isize)?;
    sys::listen(&socket, backlog)?;
    Ok(socket)
}

/// Connects to the listener at a path. ENOENT or ECONNREFUSED if nobody does, EAGAIN if too many wait
/// there.
pub(crate) fn connect(path: &Path) -> Result<Socket, Errno> {
    connect_as(libc::SOCK_STREAM, path)
}

fn connect_as(kind: libc::c_int, path: &Path) -> Result<Socket, Errno> {
    let socket = socket(kind)?;
    let (addr, len) = address(path)?;
    // SAFETY: `addr` holds an address of `len` bytes and outlives the call.
    let ret = whole(|| unsafe { libc::connect(socket.as_raw_fd(), (&raw const addr).cast(), len) });
    check(ret as isize)?;
    Ok(socket)
}

/// Whether there may be a stream socket at a path that is still open. It does not notice: the connection is
/// of another kind.
pub(crate) fn is_bound(path: &Path) -> bool {
    connect_as(libc::SOCK_DGRAM, path).map(drop) != Err(libc::ECONNREFUSED)
}

/// The path to which the socket at the other end was bound.
pub(crate) fn peer_address(socket: &OwnedFd) -> Option<Vec<u8>> {
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut addr: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&addr) as libc::socklen_t;
    // SAFETY: `addr` is writable for `len` bytes; both outlive the call.
    let ret = unsafe { libc::getpeername(socket.as_raw_fd(), (&raw mut addr).cast(), &mut len) };
    let path = addr.sun_path.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0);
    (ret == 0).then(|| path.collect())
}

/// The process at the other end, as the kernel names it.
fn peer(socket: &OwnedFd) -> Option<libc::ucred> {
    let mut of = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `of` is writable for `len` bytes; both outlive the call.
    let ret = unsafe {
        let (fd, to) = (socket.as_raw_fd(), (&raw mut of).cast());
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut len)
    };
    (ret == 0).then_some(of)
}

/// The number of the process at the other end, if this one can see it. For a socket that has connected it is
/// the process that called listen(2).
pub(crate) fn peer_process(socket: &OwnedFd) -> Option<libc::pid_t> {
    peer(socket).map(|of| of.pid).filter(|pid| *pid > 0)
}

/// Whether the process at the other end runs under the effective user of this one. For a socket that has
/// connected it is the process that called listen(2).
pub(crate) fn is_of_same_user(socket: &OwnedFd) -> bool {
    // SAFETY: geteuid takes no pointers.
    peer(socket).is_some_and(|of| of.uid == unsafe { libc::geteuid() })
}

/// The number of the network namespace of a socket: the kernel's cookie (5.14), else the inode of that of the
/// calling thread.
pub(crate) fn namespace(socket: &OwnedFd) -> u64 {
    const SO_NETNS_COOKIE: i32 = 71;
    let mut cookie = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` is writable for `len` bytes; both outlive the call.
    let ret = unsafe {
        let to = (&raw mut cookie).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, to, &mut len)
    };
    let inode = || whole(|| std::fs::metadata("/proc/thread-self/ns/net")).map_or(0, |about| about.ino());
    if ret == 0 { cookie } else { inode() }
}

/// Sends bytes with descriptors, without blocking. EPIPE, EAGAIN; fewer bytes than given is EAGAIN, too.
pub(crate) fn send_with(socket: &OwnedFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    assert!(fds.len() <= MOST);
    let len = size_of_val(fds);
    let mut control: Control = [0; 8];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: an all-zero msghdr is a valid one: no address, no control data.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &raw mut part;
    msg.msg_iovlen = 1;
    msg.msg_control = (&raw mut control).cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN only calculate. The control buffer is aligned for a cmsghdr and has
    // room for `len` bytes behind it, since there are at most `MOST` descriptors; CMSG_FIRSTHDR gives its
    // address, as msg_controllen is that of a whole message.
    let sent = unsafe {
        msg.msg_controllen = libc::CMSG_SPACE(len as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&msg);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(len as u32) as _;
        std::ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), len);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        check(whole(|| again(|| libc::sendmsg(socket.as_raw_fd(), &msg, flags))))?
    };
    if sent == bytes.len() { Ok(()) } else { Err(libc::EAGAIN) }
}

/// Closing the descriptor does not wait for what a socket has not sent yet. Nothing else is done to what is
/// no socket.
fn close_at_once(fd: &OwnedFd) {
    let off = libc::linger { l_onoff: 0, l_linger: 0 };
    // SAFETY: the option takes a linger structure, which outlives the call.
    unsafe {
        let (option, len) = ((&raw const off).cast(), size_of_val(&off) as libc::socklen_t);
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, option, len);
    }
}

/// Receives bytes and up to [`MOST`] descriptors, without blocking: 0 bytes is the end. A message with more
/// descriptors arrives without those that are too many. Call it in [`crate::fork::undivided`]: nobody else
/// knows of the descriptors yet.
pub(crate) fn receive_with(socket: &OwnedFd, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut fds = Vec::with_capacity(MOST);
    let mut control = MaybeUninit::<Control>::zeroed();
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: an all-zero msghdr is a valid one: no address, no control data.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = &raw mut part;
    msg.msg_iovlen = 1;
    msg.msg_control = control.as_mut_ptr().cast();
    let most = (MOST * size_of::<RawFd>()) as u32;
    // SAFETY: CMSG_SPACE only calculates; the control buffer has that much room.
    msg.msg_controllen = unsafe { libc::CMSG_SPACE(most) } as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message describes the slice `into` and the control buffer, both writable.
    let received = check(whole(|| again(|| unsafe { libc::recvmsg(socket.as_raw_fd(), &mut msg, flags) })))?;
    // SAFETY: the kernel has written whole control messages into the buffer and their length into `msg`; the
    // macros stay within that. The data of one of type SCM_RIGHTS are descriptors that it has just created,
    // so they have no other owner; they may be unaligned.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&msg);
        while let Some(c) = header.as_ref() {
            if c.cmsg_level == libc::SOL_SOCKET && c.cmsg_type == libc::SCM_RIGHTS {
                let len = c.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for i in 0..len / size_of::<RawFd>() {
                    let fd = OwnedFd::from_raw_fd(data.add(i).read_unaligned());
                    close_at_once(&fd);
                    fds.push(fd);
                }
            }
            header = libc::CMSG_NXTHDR(&msg, header);
        }
    }
    Ok((received, fds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(of: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("softverbs-test-{of}-{}", std::process::id()))
    }

    #[test]
    fn a_path_leads_to_its_listener() {
        let path = path("path");
        assert_eq!(connect(&path).map(drop), Err(libc::ENOENT));
        let listener = listen(&path, 1).unwrap();
        assert_eq!(listen(&path, 1).map(drop), Err(libc::EADDRINUSE));
        let near = connect(&path).unwrap();
        assert!(is_of_same_user(&near));
        let far = listener.accept().unwrap();
        assert!(is_of_same_user(&far));
        drop(listener);
        assert_eq!(connect(&path).map(drop), Err(libc::ECONNREFUSED));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(address(Path::new(&"x".repeat(108))).map(drop), Err(libc::EINVAL));
    }

    /// Closing such a socket would wait.
    #[test]
    fn descriptors_that_arrive_do_not_linger() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let option = |linger: &mut libc::linger, set: bool| {
            let (fd, mut len) = (tcp.as_raw_fd(), size_of::<libc::linger>() as libc::socklen_t);
            // SAFETY: `linger` is readable and writable for `len` bytes.
            let ret = unsafe {
                let at = (&raw mut *linger).cast();
                match set {
                    true => libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, at, len),
                    false => libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, at, &mut len),
                }
            };
            assert_eq!(ret, 0);
        };
        let mut linger = libc::linger { l_onoff: 1, l_linger: 100 };
        option(&mut linger, true);
        send_with(&near.into(), b"x", &[tcp.as_raw_fd()]).unwrap();
        drop(receive_with(&far.into(), &mut [0; 8]).unwrap());
        option(&mut linger, false);
        assert_eq!(linger.l_onoff, 0);
    }

    #[test]
    fn descriptors_arrive_with_their_bytes_and_close_on_exec() {
        let path = path("pass");
        let listener = listen(&path, 1).unwrap();
        let near = connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let far = listener.accept().unwrap();
        let mut into = [0; 8];
        assert_eq!(receive_with(&far, &mut into).map(drop), Err(libc::EAGAIN));
        let given = sys::event_flag().unwrap();
        send_with(&near, b"four", &[given.as_raw_fd(), near.as_raw_fd()]).unwrap();
        let (n, fds) = receive_with(&far, &mut into).unwrap();
        assert_eq!((&into[..n], fds.len()), (&b"four"[..], 2));
        // SAFETY: F_GETFD takes no further argument.
        let flags = |fd: &OwnedFd| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
        assert!(fds.iter().all(|fd| flags(fd) & libc::FD_CLOEXEC != 0));
        assert_ne!(fds[0].as_raw_fd(), given.as_raw_fd());
        sys::event_raise(&given);
        assert_eq!(sys::event_take(&fds[0]), Ok(()), "it is the same eventfd");
        drop((near, fds));
        assert_eq!(receive_with(&far, &mut into).map(|(n, fds)| (n, fds.len())), Ok((0, 0)));
    }
}
