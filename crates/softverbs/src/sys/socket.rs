// SPDX-License-Identifier: BSD-3-Clause
//! TCP sockets.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, accept_with, socket_with};

use super::{Errno, again, check, check_len, to_errno};
use crate::cancel::whole;

thread_local! {
    static RECEIVED: Cell<u64> = const { Cell::new(0) };
}

/// How many bytes this thread has received.
pub(crate) fn bytes_received() -> u64 {
    RECEIVED.get()
}

/// Counts bytes that were received otherwise than by the functions here.
pub(crate) fn note_received(n: usize) {
    RECEIVED.set(RECEIVED.get().wrapping_add(n as u64));
}

fn count_received(received: Result<usize, Errno>) -> Result<usize, Errno> {
    if let Ok(n) = received {
        note_received(n);
    }
    received
}

/// A non-blocking, close-on-exec TCP socket.
pub(crate) fn tcp_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    to_errno(socket_with(family, SocketType::STREAM, flags, None))
}

/// A close-on-exec UDP socket, used only to find the source address of a route.
pub(crate) fn udp_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    to_errno(socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None))
}

/// Accepts a connection; the new socket is non-blocking and close-on-exec.
pub(crate) fn accept(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    to_errno(accept_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC))
}

pub(crate) fn listen(fd: &OwnedFd, backlog: i32) -> Result<(), Errno> {
    to_errno(rustix::net::listen(fd, backlog))
}

/// Shuts down both directions, whoever else has the descriptor.
pub(crate) fn shutdown(fd: &OwnedFd) {
    // It fails only on a socket that is no longer connected.
    let _ = rustix::net::shutdown(fd, Shutdown::Both);
}

/// Shuts down the sending direction: the peer receives everything sent so far, then the end of the stream.
pub(crate) fn shutdown_write(fd: &OwnedFd) {
    // It fails only on a socket that is no longer connected, which needs no FIN.
    let _ = rustix::net::shutdown(fd, Shutdown::Write);
}

/// The number of bytes that were sent and that the host of the peer has not acknowledged; a FIN counts as
/// one.
pub(crate) fn unacknowledged(fd: &OwnedFd) -> i32 {
    let mut count = 0;
    // SAFETY: SIOCOUTQ, which has this number, writes an int; `count` outlives the call. On error it is 0.
    unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    count
}

/// Sets an integer socket option that rustix does not have; without effect on a kernel that does not have it.
pub(crate) fn set_option(fd: &OwnedFd, level: i32, name: i32, value: i32) {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is readable for `len` bytes and outlives the call.
    unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
}

/// The value of a socket option: any bytes are one.
///
/// # Safety
///
/// All bytes must be valid for the type, which has no pointers and no padding that matters.
pub(crate) unsafe trait OptionValue: Copy {}

// SAFETY: a number.
unsafe impl OptionValue for i32 {}
// SAFETY: a number.
unsafe impl OptionValue for u64 {}
// SAFETY: numbers.
unsafe impl OptionValue for [u32; 9] {}
// SAFETY: three numbers.
unsafe impl OptionValue for libc::ucred {}
// SAFETY: numbers.
unsafe impl OptionValue for libc::tcp_info {}

/// Reads a socket option that rustix does not have. What the kernel does not write of it is 0.
pub(crate) fn get_option<T: OptionValue>(fd: RawFd, level: i32, name: i32) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for `len` bytes; both outlive the call.
    check(unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut len) })?;
    // SAFETY: it is initialised, and any bytes are valid for a type with this trait.
    Ok(unsafe { value.assume_init() })
}

/// Whether the host at the other end of a TCP connection acknowledges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reachability {
    /// How long ago the last segment of it arrived.
    pub silence: Duration,
    /// Keepalive and window probes since that segment, plus retransmissions since it last acknowledged new
    /// data; it may have acknowledged the latter without room for the data.
    pub probes: u32,
}

/// That of the remote host of a socket; `None` if the descriptor is no TCP socket.
pub(crate) fn reachability(fd: RawFd) -> Option<Reachability> {
    let info: libc::tcp_info = get_option(fd, libc::IPPROTO_TCP, libc::TCP_INFO).ok()?;
    let silence = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
    let probes = u32::from(info.tcpi_retransmits) + u32::from(info.tcpi_probes);
    Some(Reachability { silence: Duration::from_millis(silence.into()), probes })
}

/// A message of these parts, without address and control data.
fn message(parts: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: an all-zero msghdr is a valid one.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = parts.as_ptr().cast_mut();
    msg.msg_iovlen = parts.len() as _;
    msg
}

/// Sends the bytes of `parts` without blocking. `ends_segment`: bytes sent later are not added to the last
/// TCP segment of these.
///
/// Safe for any address: the kernel reads the memory, and fails with EFAULT if it is not mapped. The caller
/// decides which memory may be sent.
pub(crate) fn send_parts(fd: &OwnedFd, parts: &[libc::iovec], ends_segment: bool) -> Result<usize, Errno> {
    let msg = message(parts);
    let end = if ends_segment { libc::MSG_EOR } else { 0 };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | end;
    // SAFETY: msg_iov points to msg_iovlen iovecs, which sendmsg only reads; the memory behind them is read
    // by the kernel, which checks that it is mapped.
    check_len(whole(|| again(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &msg, flags) })))
}

/// Sends bytes without blocking.
pub(crate) fn send(fd: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    send_parts(fd, &[part], false)
}

/// Receives bytes without blocking; 0 is the end of the stream.
#[inline]
pub(crate) fn recv(fd: &OwnedFd, buf: &mut [u8]) -> Result<usize, Errno> {
    let received = whole(|| retry_on_intr(|| rustix::net::recv(fd, &mut *buf, RecvFlags::DONTWAIT)));
    count_received(to_errno(received).map(|(_, n)| n))
}

/// Discards bytes that a TCP socket has received, up to 16 KiB, without blocking; 0 is the end of the stream.
pub(crate) fn discard(fd: &OwnedFd) -> Result<usize, Errno> {
    // With MSG_TRUNC, TCP drops the bytes instead of copying them (tcp(7)). There is a buffer nevertheless:
    // valgrind does not know.
    static UNUSED: [AtomicU8; 16 * 1024] = [const { AtomicU8::new(0) }; 16 * 1024];
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: the buffer has room for as many bytes and may be written to at any time, as its elements are
    // atomic.
    let call =
        || unsafe { libc::recv(fd.as_raw_fd(), UNUSED.as_ptr().cast_mut().cast(), UNUSED.len(), flags) };
    count_received(check_len(whole(|| again(call))))
}

/// Receives without blocking, first into `len` bytes at `addr`, then into `rest`.
///
/// Fails with EFAULT if there is no writable memory at `addr`.
///
/// # Safety
///
/// The caller must hold a grant ([`crate::memory::Grant`]) to write the `len` bytes at `addr`.
pub(crate) unsafe fn recv_into(fd: &OwnedFd, addr: u64, len: usize, rest: &mut [u8]) -> Result<usize, Errno> {
    let parts = [
        libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: len },
        libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
    ];
    let mut msg = message(&parts);
    // SAFETY: the caller holds a grant to write the first part, the second one is the slice `rest`; recvmsg
    // only reads the iovecs.
    let call = || unsafe { libc::recvmsg(fd.as_raw_fd(), &mut msg, libc::MSG_DONTWAIT) };
    count_received(check_len(whole(|| again(call))))
}
