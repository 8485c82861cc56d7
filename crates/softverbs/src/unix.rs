// SPDX-License-Identifier: BSD-3-Clause
//! Unix sockets with paths (unix(7)), and passing of descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
};
use rustix::process::geteuid;

use crate::cancel::whole;
use crate::socket::Socket;
use crate::sys::{self, Errno, get_option, to_errno};

/// The maximum number of descriptors in a message.
pub(crate) const MOST: usize = 2;

/// A control buffer with the alignment of its headers and room for [`MOST`] descriptors: the kernel passes as
/// many as fit.
#[repr(align(8))]
struct Control([MaybeUninit<u8>; CONTROL_LEN]);

/// Without the bytes that rustix adds for a buffer that is not aligned.
const CONTROL_LEN: usize = rustix::cmsg_space!(ScmRights(MOST)) - align_of::<libc::cmsghdr>();

const _: () = assert!(align_of::<Control>() == align_of::<libc::cmsghdr>());

impl Control {
    fn new() -> Self {
        Self([MaybeUninit::uninit(); CONTROL_LEN])
    }
}

/// The address of a path; EINVAL if it is too long.
fn address(path: &Path) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(path).map_err(|_| libc::EINVAL)
}

fn socket(kind: SocketType) -> Result<Socket, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Socket::noted(|| to_errno(socket_with(AddressFamily::UNIX, kind, flags, None)))
}

/// Listens at a path. EADDRINUSE if there is a file.
pub(crate) fn listen(path: &Path, backlog: i32) -> Result<Socket, Errno> {
    let socket = socket(SocketType::STREAM)?;
    to_errno(rustix::net::bind(&socket, &address(path)?))?;
    sys::listen(&socket, backlog)?;
    Ok(socket)
}

/// Connects to the listener at a path. ENOENT or ECONNREFUSED if there is none, EAGAIN if its backlog is
/// full.
pub(crate) fn connect(path: &Path) -> Result<Socket, Errno> {
    connect_as(SocketType::STREAM, path)
}

fn connect_as(kind: SocketType, path: &Path) -> Result<Socket, Errno> {
    let socket = socket(kind)?;
    let addr = address(path)?;
    to_errno(whole(|| rustix::net::connect(&socket, &addr)))?;
    Ok(socket)
}

/// Whether a stream socket may still be bound to a path. The probe is invisible to it, as it connects a
/// datagram socket.
pub(crate) fn is_bound(path: &Path) -> bool {
    connect_as(SocketType::DGRAM, path).map(drop) != Err(libc::ECONNREFUSED)
}

/// The path to which the peer's socket was bound. Not by rustix, which panics if it has 108 bytes.
pub(crate) fn peer_address(socket: &OwnedFd) -> Option<Vec<u8>> {
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut addr: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&addr) as libc::socklen_t;
    // SAFETY: `addr` is writable for `len` bytes; both outlive the call.
    let ret = unsafe { libc::getpeername(socket.as_raw_fd(), (&raw mut addr).cast(), &mut len) };
    let path = addr.sun_path.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0);
    (ret == 0).then(|| path.collect())
}

/// The credentials of the peer, as the kernel reports them. The PID is 0 if it does not exist in this PID
/// namespace, a value that rustix cannot represent.
fn peer(socket: &OwnedFd) -> Option<libc::ucred> {
    get_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED).ok()
}

/// The PID of the peer, if it exists in this PID namespace. For a socket that has connected it is that of the
/// process that called listen(2).
pub(crate) fn peer_process(socket: &OwnedFd) -> Option<libc::pid_t> {
    peer(socket).map(|of| of.pid).filter(|pid| *pid > 0)
}

/// Whether the peer has the effective user of this process. For a socket that has connected the peer is the
/// process that called listen(2).
pub(crate) fn is_of_same_user(socket: &OwnedFd) -> bool {
    peer(socket).is_some_and(|of| of.uid == geteuid().as_raw())
}

/// The number of the network namespace of a socket: its cookie (Linux 5.14), else the inode of the calling
/// thread's namespace.
pub(crate) fn namespace(socket: &OwnedFd) -> u64 {
    const SO_NETNS_COOKIE: i32 = 71;
    let inode = || whole(|| std::fs::metadata("/proc/thread-self/ns/net")).map_or(0, |about| about.ino());
    get_option(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE).unwrap_or_else(|_| inode())
}

/// Sends bytes with descriptors, without blocking. EPIPE, EAGAIN; fewer bytes than given is EAGAIN, too.
pub(crate) fn send_with(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut control = Control::new();
    let mut control = SendAncillaryBuffer::new(&mut control.0);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    let (parts, flags) = ([IoSlice::new(bytes)], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    let sent = to_errno(whole(|| retry_on_intr(|| sendmsg(socket, &parts, &mut control, flags))))?;
    if sent == bytes.len() { Ok(()) } else { Err(libc::EAGAIN) }
}

/// Receives bytes and up to [`MOST`] descriptors, without blocking: 0 bytes is the end. Further descriptors
/// of a message are dropped. Must be called in [`crate::fork::undivided`], as the descriptors are not
/// registered yet.
pub(crate) fn receive_with(socket: &OwnedFd, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut fds = Vec::with_capacity(MOST);
    let mut control = Control::new();
    let mut control = RecvAncillaryBuffer::new(&mut control.0);
    let (mut parts, flags) = ([IoSliceMut::new(into)], RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC);
    let received = to_errno(whole(|| retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, flags))))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    // So closing it does not wait for unsent data if it is a socket; other files lack the option.
    for fd in &fds {
        let _ = set_socket_linger(fd, None);
    }
    Ok((received.bytes, fds))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use rustix::io::{FdFlags, fcntl_getfd};
    use rustix::net::sockopt::socket_linger;

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
        assert_eq!(address(Path::new(&"x".repeat(109))).map(drop), Err(libc::EINVAL));
    }

    #[test]
    fn the_longest_path_is_that_of_the_peer() {
        let dir = path("long");
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("x".repeat(108 - dir.as_os_str().len() - 1));
        let listener = listen(&path, 1).unwrap();
        let near = connect(&path).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(peer_address(&near).as_deref(), Some(path.as_os_str().as_encoded_bytes()));
        assert_eq!(peer_address(&listener.accept().unwrap()).as_deref(), Some(&b""[..]));
    }

    /// Closing such a socket would wait.
    #[test]
    fn descriptors_that_arrive_do_not_linger() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        set_socket_linger(&tcp, Some(Duration::from_secs(100))).unwrap();
        send_with(&near.into(), b"x", &[tcp.as_fd()]).unwrap();
        drop(receive_with(&far.into(), &mut [0; 8]).unwrap());
        assert_eq!(socket_linger(&tcp), Ok(None));
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
        send_with(&near, b"four", &[given.as_fd(), near.as_fd()]).unwrap();
        let (n, fds) = receive_with(&far, &mut into).unwrap();
        assert_eq!((&into[..n], fds.len()), (&b"four"[..], 2));
        assert!(fds.iter().all(|fd| fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC)));
        assert_ne!(fds[0].as_raw_fd(), given.as_raw_fd());
        sys::event_raise(&given);
        assert_eq!(sys::event_take(&fds[0]), Ok(()), "it is the same eventfd");
        drop(fds);
        // One more than there is room for.
        let fd = given.as_fd();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST + 1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let three = [fd; MOST + 1];
        assert!(control.push(SendAncillaryMessage::ScmRights(&three)));
        sendmsg(&near, &[IoSlice::new(b"more")], &mut control, SendFlags::empty()).unwrap();
        assert_eq!(receive_with(&far, &mut into).map(|(n, fds)| (n, fds.len())), Ok((4, MOST)));
        drop(near);
        assert_eq!(receive_with(&far, &mut into).map(|(n, fds)| (n, fds.len())), Ok((0, 0)));
    }
}
