// SPDX-License-Identifier: BSD-3-Clause
//! The raw system calls that softverbs makes, each behind a function whose contract can be checked where it is called.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A positive error number.
pub(crate) type Errno = i32;

/// The calling thread's `errno`.
pub(crate) fn errno() -> Errno {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Stores `e` in the calling thread's `errno`, as a C function does before it returns NULL or -1.
pub(crate) fn set_errno(e: Errno) {
    // SAFETY: __errno_location returns the address of this thread's own errno, valid for the life of the thread.
    unsafe { *libc::__errno_location() = e }
}

fn check(ret: libc::c_int) -> Result<libc::c_int, Errno> {
    if ret < 0 { Err(errno()) } else { Ok(ret) }
}

fn check_len(ret: isize) -> Result<usize, Errno> {
    usize::try_from(ret).map_err(|_| errno())
}

fn owned(fd: libc::c_int) -> Result<OwnedFd, Errno> {
    let fd = check(fd)?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An eventfd that counts events: each read takes one, and the descriptor is readable while any are left.
pub(crate) fn event_counter() -> Result<OwnedFd, Errno> {
    // SAFETY: eventfd takes no pointers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) })
}

/// An eventfd that wakes a sleeping epoll; reading it clears it.
pub(crate) fn event_flag() -> Result<OwnedFd, Errno> {
    // SAFETY: eventfd takes no pointers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Adds one to an eventfd.
pub(crate) fn event_raise(fd: &OwnedFd) {
    let one = 1u64;
    // SAFETY: the buffer is eight readable bytes. The counter cannot overflow in practice, so the write does not block.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
}

/// Takes from an eventfd, blocking or not as the descriptor's own flags say.
pub(crate) fn event_take(fd: &OwnedFd) -> Result<(), Errno> {
    let mut count = 0u64;
    // SAFETY: the buffer is eight writable bytes.
    check_len(unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) }).map(drop)
}

/// Takes one from an eventfd if there is one, never blocking, whatever the descriptor's flags.
pub(crate) fn event_try_take(fd: &OwnedFd) {
    let mut count = 0u64;
    let iov = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: 8 };
    // SAFETY: one iovec of eight writable bytes; offset -1 means "no position", as for read.
    unsafe { libc::preadv2(fd.as_raw_fd(), &iov, 1, -1, libc::RWF_NOWAIT) };
}

/// An epoll instance; each descriptor is registered with a 64-bit token.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: epoll_create1 takes no pointers.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Self)
    }

    fn ctl(&self, op: libc::c_int, fd: RawFd, events: u32, token: u64) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` is a valid epoll_event for the duration of the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, &mut event) }).map(drop)
    }

    pub(crate) fn add(&self, fd: RawFd, events: u32, token: u64) -> Result<(), Errno> {
        self.ctl(libc::EPOLL_CTL_ADD, fd, events, token)
    }

    pub(crate) fn modify(&self, fd: RawFd, events: u32, token: u64) -> Result<(), Errno> {
        self.ctl(libc::EPOLL_CTL_MOD, fd, events, token)
    }

    pub(crate) fn remove(&self, fd: RawFd) {
        // A descriptor that is not registered any more is what the caller wants.
        let _ = self.ctl(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// Waits up to `timeout_ms` (-1: for ever) and returns how many of `events` were filled.
    pub(crate) fn wait(&self, events: &mut [libc::epoll_event], timeout_ms: i32) -> usize {
        // SAFETY: the slice is writable and its length is passed along.
        let n = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, timeout_ms)
        };
        usize::try_from(n).unwrap_or(0)
    }
}

/// A non-blocking, close-on-exec TCP socket.
pub(crate) fn tcp_socket(family: i32) -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointers.
    owned(unsafe { libc::socket(family, kind, 0) })
}

/// A close-on-exec UDP socket, used only to ask the kernel for a route.
pub(crate) fn udp_socket(family: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: socket takes no pointers.
    owned(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
}

/// Takes a connection from a listening socket; the new socket is non-blocking and close-on-exec.
pub(crate) fn accept(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the address pointers may be NULL when the caller does not want the address.
    owned(unsafe { libc::accept4(fd.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) })
}

pub(crate) fn listen(fd: &OwnedFd, backlog: i32) -> Result<(), Errno> {
    // SAFETY: listen takes no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

/// Ends the sending half of a connection: the peer reads everything sent so far, then the end.
pub(crate) fn shutdown_write(fd: &OwnedFd) {
    // SAFETY: shutdown takes no pointers. A socket that is not connected any more needs no FIN.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) };
}

/// Sets an integer socket option; a kernel without it leaves the socket as it was.
pub(crate) fn set_option(fd: &OwnedFd, level: i32, name: i32, value: i32) {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option value is one readable int of the length given.
    unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
}

/// Reads an integer socket option.
pub(crate) fn get_option(fd: &OwnedFd, level: i32, name: i32) -> Result<i32, Errno> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: value and length are writable and the length is that of value.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &mut len) })?;
    Ok(value)
}

/// Sends the bytes of `parts` without blocking. `ends_segment`: what is sent next does not go into the TCP segment that their end is in.
///
/// The kernel reads the memory and answers EFAULT where there is none, so no address can make this call misbehave; what must not be
/// sent is for the caller to decide.
pub(crate) fn send_parts(fd: &OwnedFd, parts: &[libc::iovec], ends_segment: bool) -> Result<usize, Errno> {
    // SAFETY: an all-zero msghdr is a valid one: no address, no control data.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = parts.as_ptr().cast_mut();
    msg.msg_iovlen = parts.len() as _;
    let end = if ends_segment { libc::MSG_EOR } else { 0 };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | end;
    // SAFETY: msg_iov points to msg_iovlen iovecs, which sendmsg only reads.
    check_len(unsafe { libc::sendmsg(fd.as_raw_fd(), &msg, flags) })
}

/// Sends bytes without blocking.
pub(crate) fn send(fd: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    send_parts(fd, &[part], false)
}

/// Receives bytes without blocking; 0 is the end of the stream.
pub(crate) fn recv(fd: &OwnedFd, buf: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the buffer is writable for its length.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT) })
}

/// Receives without blocking, first into `len` bytes at `addr`, then into `rest`.
///
/// The kernel answers EFAULT where there is no writable memory at `addr`.
///
/// # Safety
///
/// Nobody may rely on the content of the `len` bytes at `addr`: they must belong to a region that the caller holds a grant to write.
pub(crate) unsafe fn recv_into(fd: &OwnedFd, addr: u64, len: usize, rest: &mut [u8]) -> Result<usize, Errno> {
    let parts = [
        libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: len },
        libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
    ];
    // SAFETY: as above; the second part is a writable slice.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = parts.as_ptr().cast_mut();
    msg.msg_iovlen = parts.len() as _;
    // SAFETY: the caller answers for the first part, the slice for the second; recvmsg only reads the iovecs.
    check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &mut msg, libc::MSG_DONTWAIT) })
}

/// The size of a page of memory.
pub(crate) fn page_size() -> u64 {
    static PAGE: once_cell::sync::Lazy<u64> = once_cell::sync::Lazy::new(|| {
        // SAFETY: sysconf takes no pointers.
        u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    });
    *PAGE
}

/// The pages that hold `len` bytes at `addr`: their start and length.
fn pages(addr: u64, len: u64) -> (u64, u64) {
    let mask = page_size() - 1;
    let start = addr & !mask;
    let end = addr.saturating_add(len).saturating_add(mask) & !mask;
    (start, end.saturating_sub(start))
}

/// Faults in the pages of a range for reading or for writing; EFAULT or ENOMEM when there is no such memory, EINVAL when the kernel
/// (before 5.14) or the mapping (device memory) cannot be asked.
pub(crate) fn populate(addr: u64, len: u64, write: bool) -> Result<(), Errno> {
    let (start, len) = pages(addr, len);
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: populating changes no content; on a range without memory it fails.
    check(unsafe { libc::madvise(start as *mut libc::c_void, len as usize, advice) }).map(drop)
}

/// Tells the kernel that a range will be used soon, without faulting it in.
pub(crate) fn will_need(addr: u64, len: u64) -> Result<(), Errno> {
    let (start, len) = pages(addr, len);
    // SAFETY: WILLNEED changes no content.
    check(unsafe { libc::madvise(start as *mut libc::c_void, len as usize, libc::MADV_WILLNEED) }).map(drop)
}

/// Whether every page of a range is mapped.
pub(crate) fn is_mapped(addr: u64, len: u64) -> bool {
    let (start, len) = pages(addr, len);
    // SAFETY: MS_ASYNC has no effect on Linux but to walk the mappings, failing with ENOMEM at a hole.
    unsafe { libc::msync(start as *mut libc::c_void, len as usize, libc::MS_ASYNC) == 0 }
}

/// Writes the changed pages of a range back to the file they map, and returns when they are durable. Memory without a file needs
/// nothing and costs a walk over its mappings.
pub(crate) fn make_durable(addr: u64, len: u64) -> Result<(), Errno> {
    let (start, len) = pages(addr, len);
    // SAFETY: msync changes no memory.
    check(unsafe { libc::msync(start as *mut libc::c_void, len as usize, libc::MS_SYNC) }).map(drop)
}

/// Copies bytes to memory of this process through the kernel, which answers EFAULT where a plain copy would fault.
///
/// # Safety
///
/// The caller must hold a grant to write the range.
pub(crate) unsafe fn copy_to(bytes: &[u8], addr: u64) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: `local` is only read; the caller answers for the range behind `remote`, the kernel for its existence.
    let n = check_len(unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) })?;
    if n == bytes.len() { Ok(()) } else { Err(libc::EFAULT) }
}

/// Copies bytes from memory of this process through the kernel, which answers EFAULT where a plain copy would fault.
pub(crate) fn copy_from(addr: u64, into: &mut [u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: `local` is writable for its length; what is behind `remote` is only read, by the kernel.
    let n = check_len(unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) })?;
    if n == into.len() { Ok(()) } else { Err(libc::EFAULT) }
}

/// Runs `f` with all signals blocked in this thread, so that a thread it starts never runs the program's signal handlers.
pub(crate) fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: an all-zero sigset_t is a valid object to fill.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both sets are valid and writable.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let result = f();
    // SAFETY: `before` was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_the_range() {
        let p = page_size();
        assert_eq!(pages(0, 1), (0, p));
        assert_eq!(pages(p - 1, 2), (0, 2 * p));
        assert_eq!(pages(p, p), (p, p));
    }

    #[test]
    fn an_event_counter_gives_each_event_once() {
        let fd = event_counter().unwrap();
        event_raise(&fd);
        event_raise(&fd);
        event_take(&fd).unwrap();
        event_try_take(&fd);
        // SAFETY: fcntl with an int argument.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(event_take(&fd), Err(libc::EAGAIN));
    }

    #[test]
    fn memory_that_is_not_there_is_an_error_and_not_a_signal() {
        assert!(!is_mapped(page_size(), page_size()));
        assert!(populate(page_size(), 1, true).is_err());
        // SAFETY: nothing is mapped there, so nothing can change.
        assert_eq!(unsafe { copy_to(&[1, 2, 3], page_size()) }, Err(libc::EFAULT));
        assert_eq!(copy_from(page_size(), &mut [0; 3]), Err(libc::EFAULT));
    }
}
