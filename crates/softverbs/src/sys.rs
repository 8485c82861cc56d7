// SPDX-License-Identifier: BSD-3-Clause
//! The system calls of softverbs, each in a function with a contract that its callers can meet.

use once_cell::race::OnceNonZeroUsize;
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::cancel::whole;

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

/// Makes a system call that does not wait for events, until no signal interrupts it.
pub(crate) fn again<T: Default + PartialOrd>(mut call: impl FnMut() -> T) -> T {
    loop {
        let ret = call();
        if ret >= T::default() || errno() != libc::EINTR {
            return ret;
        }
    }
}

fn owned(fd: libc::c_int) -> Result<OwnedFd, Errno> {
    let fd = check(fd)?;
    // SAFETY: every caller passes a descriptor that the kernel has just created, so it has no other owner.
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

thread_local! {
    static RAISED: Cell<u32> = const { Cell::new(0) };
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

/// Number of events that this thread has raised: if it changes, the thread may have woken another one.
pub(crate) fn events_raised() -> u32 {
    RAISED.get()
}

/// A timer as a descriptor.
pub(crate) fn timer() -> Result<OwnedFd, Errno> {
    // SAFETY: timerfd_create takes no pointers.
    owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) })
}

/// Has a timer expire once, so long from now.
pub(crate) fn timer_start(fd: &OwnedFd, after: Duration) -> Result<(), Errno> {
    let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let it_value = libc::timespec {
        tv_sec: after.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: after.subsec_nanos().into(),
    };
    let time = libc::itimerspec { it_interval: never, it_value };
    // SAFETY: the time is a valid itimerspec; the previous one is not asked for.
    check(again(|| unsafe { libc::timerfd_settime(fd.as_raw_fd(), 0, &time, std::ptr::null_mut()) }))
        .map(drop)
}

/// Adds one to an eventfd.
pub(crate) fn event_raise(fd: &OwnedFd) {
    RAISED.set(RAISED.get().wrapping_add(1));
    let one = 1u64;
    // SAFETY: the buffer is eight readable bytes. The counter cannot overflow in practice, so the write does not block.
    whole(|| again(|| unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) }));
}

/// Reads an eventfd; blocks unless the descriptor has O_NONBLOCK.
pub(crate) fn event_take(fd: &OwnedFd) -> Result<(), Errno> {
    let mut count = 0u64;
    // SAFETY: the buffer is eight writable bytes.
    check_len(unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) }).map(drop)
}

/// Reads an eventfd if its count is not zero. Never blocks, whatever the flags of the descriptor.
pub(crate) fn event_try_take(fd: &OwnedFd) {
    let mut count = 0u64;
    let iov = libc::iovec { iov_base: (&raw mut count).cast(), iov_len: 8 };
    // SAFETY: one iovec of eight writable bytes; offset -1 means "no position", as for read.
    whole(|| again(|| unsafe { libc::preadv2(fd.as_raw_fd(), &iov, 1, -1, libc::RWF_NOWAIT) }));
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
        // An error means that the descriptor is not registered, which is the purpose of the call.
        let _ = self.ctl(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// The descriptor of the epoll instance, readable while a registered descriptor is ready.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Waits up to `timeout` (`None`: without limit) and returns the number of `events` filled in.
    pub(crate) fn wait(&self, events: &mut [libc::epoll_event], timeout: Option<Duration>) -> usize {
        let (fd, len) = (self.0.as_raw_fd(), events.len() as i32);
        if let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) {
            let time = libc::timespec {
                tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            };
            let no_mask: *const libc::sigset_t = std::ptr::null();
            // SAFETY: the kernel writes at most `len` entries, the length of the slice; `time` is a valid timespec that outlives the call,
            // and the signal mask is NULL.
            let n = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    fd,
                    events.as_mut_ptr(),
                    len,
                    &raw const time,
                    no_mask,
                    8usize,
                )
            };
            if n >= 0 || errno() != libc::ENOSYS {
                return usize::try_from(n).unwrap_or(0);
            }
        }
        // Before Linux 5.11: milliseconds, rounded up, so that the wait does not end before the deadline.
        let timeout = timeout
            .map_or(-1, |timeout| i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        // SAFETY: the kernel writes at most `len` entries, the length of the slice.
        let n = whole(|| unsafe { libc::epoll_wait(fd, events.as_mut_ptr(), len, timeout) });
        usize::try_from(n).unwrap_or(0)
    }
}

/// Whether a read of the descriptor, or a wait for it, would find something.
pub(crate) fn is_readable(fd: RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which outlives the call.
    whole(|| unsafe { libc::poll(&mut poll, 1, 0) }) == 1 && poll.revents & libc::POLLIN != 0
}

/// Whether a write to the descriptor would not block, and would not fail either as far as is known: a socket is connected.
pub(crate) fn is_writable(fd: RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one pollfd, which outlives the call.
    whole(|| unsafe { libc::poll(&mut poll, 1, 0) }) == 1 && poll.revents == libc::POLLOUT
}

/// How many descriptors this process may have open: RLIMIT_NOFILE.
pub(crate) fn max_descriptors() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// The lowest number that a new descriptor can have; `None` if there is none left.
pub(crate) fn lowest_descriptor() -> Option<usize> {
    event_flag().ok().and_then(|fd| usize::try_from(fd.as_raw_fd()).ok())
}

/// A non-blocking, close-on-exec TCP socket.
pub(crate) fn tcp_socket(family: i32) -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointers.
    owned(unsafe { libc::socket(family, kind, 0) })
}

/// A close-on-exec UDP socket, used only to find the source address of a route.
pub(crate) fn udp_socket(family: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: socket takes no pointers.
    owned(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
}

/// Accepts a connection; the new socket is non-blocking and close-on-exec.
pub(crate) fn accept(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the address pointers may be NULL when the caller does not want the address.
    owned(unsafe { libc::accept4(fd.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) })
}

pub(crate) fn listen(fd: &OwnedFd, backlog: i32) -> Result<(), Errno> {
    // SAFETY: listen takes no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

/// Shuts down the sending direction: the peer receives everything sent so far, then the end of the stream.
pub(crate) fn shutdown_write(fd: &OwnedFd) {
    // SAFETY: shutdown takes no pointers. It fails only on a socket that is no longer connected, which needs no FIN.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) };
}

/// Sets an integer socket option; without effect on a kernel that does not have it.
pub(crate) fn set_option(fd: &OwnedFd, level: i32, name: i32, value: i32) {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is readable for `len` bytes and outlives the call.
    unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
}

/// Has a TCP connection reset when its socket is closed, instead of ended.
pub(crate) fn reset_when_closed(fd: &OwnedFd) {
    let value = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: `value` is readable for `len` bytes and outlives the call.
    unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const value).cast(), len)
    };
}

/// Reads an integer socket option.
pub(crate) fn get_option(fd: &OwnedFd, level: i32, name: i32) -> Result<i32, Errno> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is writable for `len` bytes; both outlive the call.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &mut len) })?;
    Ok(value)
}

/// What the kernel has heard of the host at the other end of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// How long ago the last segment of it arrived.
    pub silence: Duration,
    /// How often it was asked for an acknowledgement since and gave none.
    pub unanswered: u32,
}

/// What the kernel has heard of the remote host of a socket; `None` if the descriptor is none.
pub(crate) fn heard(fd: RawFd) -> Option<Heard> {
    // SAFETY: all-zero is a valid tcp_info.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` is writable for `len` bytes; both outlive the call.
    let ret =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut len) };
    let silence = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
    let unanswered = u32::from(info.tcpi_retransmits) + u32::from(info.tcpi_probes);
    (ret == 0).then_some(Heard { silence: Duration::from_millis(silence.into()), unanswered })
}

/// Sends the bytes of `parts` without blocking. `ends_segment`: bytes sent later are not added to the last TCP segment of these.
///
/// Safe for any address: the kernel reads the memory, and fails with EFAULT if it is not mapped. The caller decides which memory may be
/// sent.
pub(crate) fn send_parts(fd: &OwnedFd, parts: &[libc::iovec], ends_segment: bool) -> Result<usize, Errno> {
    // SAFETY: an all-zero msghdr is a valid one: no address, no control data.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = parts.as_ptr().cast_mut();
    msg.msg_iovlen = parts.len() as _;
    let end = if ends_segment { libc::MSG_EOR } else { 0 };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | end;
    // SAFETY: msg_iov points to msg_iovlen iovecs, which sendmsg only reads; the memory behind them is read by the kernel, which checks
    // that it is mapped.
    check_len(whole(|| again(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &msg, flags) })))
}

/// Sends bytes without blocking.
pub(crate) fn send(fd: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    send_parts(fd, &[part], false)
}

/// Receives bytes without blocking; 0 is the end of the stream.
pub(crate) fn recv(fd: &OwnedFd, buf: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the buffer is writable for its length.
    let call =
        || unsafe { libc::recv(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT) };
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
    // SAFETY: an all-zero msghdr is a valid one: no address, no control data.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = parts.as_ptr().cast_mut();
    msg.msg_iovlen = parts.len() as _;
    // SAFETY: the caller holds a grant to write the first part, the second one is the slice `rest`; recvmsg only reads the iovecs.
    let call = || unsafe { libc::recvmsg(fd.as_raw_fd(), &mut msg, libc::MSG_DONTWAIT) };
    count_received(check_len(whole(|| again(call))))
}

/// The page size.
pub(crate) fn page_size() -> u64 {
    static PAGE: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let ask = || {
        // SAFETY: sysconf takes no pointers.
        let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
        size.ok().and_then(NonZeroUsize::new).unwrap_or(const { NonZeroUsize::new(4096).unwrap() })
    };
    PAGE.get_or_init(ask).get() as u64
}

/// The start and the length of the pages that contain `len` bytes at `addr`.
fn pages(addr: u64, len: u64) -> (u64, u64) {
    let mask = page_size() - 1;
    let start = addr & !mask;
    let end = addr.saturating_add(len).saturating_add(mask) & !mask;
    (start, end.saturating_sub(start))
}

/// Faults in the pages of a range for reading or for writing. EFAULT or ENOMEM if the memory is not mapped or lacks the protection; EINVAL
/// if the kernel (before 5.14) or the mapping (device memory) does not support the request.
pub(crate) fn populate(addr: u64, len: u64, write: bool) -> Result<(), Errno> {
    let (start, len) = pages(addr, len);
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: MADV_POPULATE_* does not change the content of memory, and fails for a range that is not mapped.
    check(again(|| unsafe { libc::madvise(start as *mut libc::c_void, len as usize, advice) })).map(drop)
}

/// Tells the kernel that a range will be used soon, without faulting it in.
pub(crate) fn will_need(addr: u64, len: u64) -> Result<(), Errno> {
    let (start, len) = pages(addr, len);
    // SAFETY: MADV_WILLNEED does not change the content of memory.
    check(again(|| unsafe { libc::madvise(start as *mut libc::c_void, len as usize, libc::MADV_WILLNEED) }))
        .map(drop)
}

/// Whether every page of a range is mapped.
pub(crate) fn is_mapped(addr: u64, len: u64) -> bool {
    let (start, len) = pages(addr, len);
    // SAFETY: on Linux MS_ASYNC only walks the mappings and fails with ENOMEM at an unmapped page.
    unsafe { libc::msync(start as *mut libc::c_void, len as usize, libc::MS_ASYNC) == 0 }
}

/// Writes the modified pages of a range back to the file that is mapped there, and returns when they are durable. For memory without a file
/// it only walks the mappings.
pub(crate) fn make_durable(addr: u64, len: u64) -> Result<(), Errno> {
    let (start, len) = pages(addr, len);
    // SAFETY: MS_SYNC does not change the content of memory.
    check(again(|| unsafe { libc::msync(start as *mut libc::c_void, len as usize, libc::MS_SYNC) })).map(drop)
}

/// Checks that the eight bytes at an aligned address are writable, and faults them in. EFAULT or ENOMEM if they are not.
pub(crate) fn make_writable(addr: u64) -> Result<(), Errno> {
    match populate(addr, 8, true) {
        Err(libc::EINVAL) => modify_nothing(addr),
        result => result,
    }
}

/// [`make_writable`] for a kernel (before 5.14) or a mapping without MADV_POPULATE_WRITE: an atomic "or" with 0 by futex(2).
fn modify_nothing(addr: u64) -> Result<(), Errno> {
    // FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)
    const OR_NOTHING: u32 = 2 << 28;
    let here = 0u32;
    // SAFETY: the first address is that of `here`, on which no thread waits. At the second one the kernel stores the value that it has
    // read, atomically, and fails with EFAULT if there is no writable memory.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const here,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0usize,
            addr as *mut u32,
            OR_NOTHING,
        )
    };
    if ret < 0 { Err(errno()) } else { Ok(()) }
}

/// The process ID of this process, for copies to and from its own memory. Not valid in a child after fork(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(libc::pid_t);

impl Process {
    pub(crate) fn own() -> Self {
        // SAFETY: getpid takes no pointers.
        Self(unsafe { libc::getpid() })
    }
}

/// Copies pieces to memory of this process through the kernel, in order, and returns how many bytes of them were copied: fewer than all if
/// the memory that follows is not mapped and writable. Copies at most the first [`crate::limits::PLACE_BATCH`] pieces. EFAULT if nothing
/// was copied.
///
/// The kernel copies each piece as one, to the address itself, so a fault in it is handled like one of a socket call. It looks up the pages
/// of each contiguous source, which costs more than to copy some bytes: what lies between two pieces of `buffer` that are close to one
/// another is therefore copied as well, to nowhere. A batch of 32 pieces of 8 bytes takes 1.9 us, with process_vm_writev(2), which looks up
/// the pages of each target, 5.5 us.
///
/// # Safety
///
/// The caller must hold grants to write all the ranges.
pub(crate) unsafe fn copy_to<'a>(
    process: Process,
    buffer: &[u8],
    pieces: impl Iterator<Item = (&'a [u8], u64)> + Clone,
) -> Result<usize, Errno> {
    const MOST: usize = crate::limits::PLACE_BATCH;
    /// More than the header of an FPDU, and the padding and CRC of the one before.
    const NEAR: usize = 64;
    let mut nowhere = [const { MaybeUninit::<u8>::uninit() }; NEAR];
    let nowhere: *mut libc::c_void = nowhere.as_mut_ptr().cast();
    let mut targets = [const { MaybeUninit::<libc::iovec>::uninit() }; 2 * MOST];
    let mut sources = [const { MaybeUninit::<libc::iovec>::uninit() }; MOST];
    let mut gaps = [0u8; MOST];
    let (mut targets_used, mut sources_used) = (0, 0);
    let buffer = buffer.as_ptr_range();
    // The contiguous source under way.
    let mut source = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    for ((bytes, addr), gap_before) in pieces.clone().zip(&mut gaps) {
        let start = bytes.as_ptr();
        let end = source.iov_base.cast_const().cast::<u8>().wrapping_add(source.iov_len);
        let gap = (start as usize).wrapping_sub(end as usize);
        let in_buffer = buffer.start <= source.iov_base.cast() && start < buffer.end;
        if gap == 0 || (gap <= NEAR && in_buffer) {
            if gap > 0 {
                targets[targets_used].write(libc::iovec { iov_base: nowhere, iov_len: gap });
                targets_used += 1;
                *gap_before = gap as u8;
            }
            source.iov_len += gap + bytes.len();
        } else {
            source = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bytes.len() };
            sources_used += 1;
        }
        sources[sources_used - 1].write(source);
        targets[targets_used]
            .write(libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: bytes.len() });
        targets_used += 1;
    }
    // SAFETY: the first `targets_used` and `sources_used` elements are initialized. The sources are slices, and bytes between slices of one
    // buffer; they are only read. The caller holds grants to write the targets, or they are at most `NEAR` bytes of `nowhere`, which lives
    // as long as this function runs. The kernel checks that the memory is mapped.
    let mut left = check_len(again(|| unsafe {
        let (targets, sources) = (targets.as_ptr().cast(), sources.as_ptr().cast());
        libc::process_vm_readv(process.0, targets, targets_used as u64, sources, sources_used as u64, 0)
    }))?;
    let mut copied = 0;
    for ((bytes, _), gap) in pieces.zip(gaps) {
        left = left.saturating_sub(gap.into());
        copied += left.min(bytes.len());
        left = left.saturating_sub(bytes.len());
    }
    Ok(copied)
}

/// Copies bytes from memory of this process through the kernel. EFAULT if the memory is not mapped.
pub(crate) fn copy_from(process: Process, addr: u64, into: &mut [u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: `local` is the slice `into`; the memory of `remote` is only read, by the kernel, which checks that it is mapped.
    let n = check_len(again(|| unsafe { libc::process_vm_readv(process.0, &local, 1, &remote, 1, 0) }))?;
    if n == into.len() { Ok(()) } else { Err(libc::EFAULT) }
}

/// Waits until one of the descriptors is ready. EINTR.
pub(crate) fn wait_readable(fds: &mut [libc::pollfd]) -> Result<(), Errno> {
    // SAFETY: the pointer and the count are those of the slice, which is writable.
    check(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, -1) }).map(drop)
}

/// Whether a descriptor has O_NONBLOCK.
pub(crate) fn is_non_blocking(fd: RawFd) -> bool {
    // SAFETY: F_GETFL takes no further argument.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Whether a read(2) would be restarted after any signal that the program handles, because all its handlers have SA_RESTART. poll(2), which
/// softverbs calls instead, is never restarted by the kernel.
pub(crate) fn handlers_restart() -> bool {
    (1..=64).filter(|signal| !(32..=33).contains(signal)).all(|signal| {
        // SAFETY: all-zero is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: with a NULL `act` the call only writes the current action to `action`.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) } == 0;
        let handled = known && !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        !handled || action.sa_flags & libc::SA_RESTART != 0
    })
}
/// How often other threads of this process had to leave their processor to another thread.
pub(crate) fn preemptions() -> i64 {
    let of = |whom| {
        // SAFETY: an all-zero rusage is a valid object to fill, and the call is given just that.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(whom, &mut usage);
            usage.ru_nivcsw
        }
    };
    of(libc::RUSAGE_SELF) - of(libc::RUSAGE_THREAD)
}

/// Sets the CPU affinity of this thread to that of the process's main thread: the thread that created it may be pinned.
pub(crate) fn run_where_the_process_may() {
    // SAFETY: all-zero is a valid cpu_set_t; both calls get the address and the size of `set`.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(libc::getpid(), size_of::<libc::cpu_set_t>(), &mut set) == 0 {
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
}

/// Requests the shortest time slices for a SCHED_OTHER thread (Linux 6.12; without effect before).
pub(crate) fn ask_for_short_slices() {
    #[repr(C)]
    #[derive(Default)]
    struct Attr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const SHORTEST_NS: u64 = 100_000;
    let size = size_of::<Attr>() as u32;
    let mut attr = Attr::default();
    // SAFETY: the kernel writes at most `size` bytes to `attr`, and reads as many from it. Thread 0 is the calling thread. Only the slice
    // differs from the attributes that were read; if the kernel rejects them, nothing changes.
    unsafe {
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) == 0 && attr.policy == 0 {
            attr.runtime = SHORTEST_NS;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
        }
    }
}

/// Runs `f` with all signals blocked in this thread, so that a thread that it creates never runs signal handlers of the program.
pub(crate) fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: all-zero is a valid sigset_t.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: all-zero is a valid sigset_t.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both calls get the addresses of the sets above, which are writable.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let result = f();
    // SAFETY: `before` holds the mask that pthread_sigmask stored above; the third argument may be NULL.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    result
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Anonymous memory of whole pages.
    pub(crate) struct Mapping {
        addr: u64,
        len: usize,
    }

    impl Mapping {
        pub(crate) fn new(len: usize) -> Self {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new anonymous mapping at an address that the kernel chooses.
            let addr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
            assert_ne!(addr, libc::MAP_FAILED);
            Self { addr: addr as u64, len }
        }

        pub(crate) fn addr(&self) -> u64 {
            self.addr
        }

        /// Unmaps some of its pages.
        pub(crate) fn unmap(&self, at: usize, len: usize) {
            assert!(at + len <= self.len);
            // SAFETY: the range is part of this mapping, to which there are no references.
            unsafe { libc::munmap((self.addr as *mut libc::c_void).byte_add(at), len) };
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: this mapping is not used any more; pages that are already unmapped are skipped.
            unsafe { libc::munmap(self.addr as *mut libc::c_void, self.len) };
        }
    }

    /// Memory that can be taken away while it is used, and come back.
    pub(crate) struct Vanishing {
        map: Mapping,
        /// A file without a name, of the length of the mapping.
        file: OwnedFd,
        way: Way,
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Way {
        Unmapped,
        ReadOnly,
        Inaccessible,
        Truncated,
    }

    impl Vanishing {
        pub(crate) const ALL: [Way; 4] = [Way::Unmapped, Way::ReadOnly, Way::Inaccessible, Way::Truncated];

        pub(crate) fn new(len: usize, way: Way) -> Self {
            // SAFETY: the name is a C string.
            let file =
                owned(unsafe { libc::memfd_create(c"vanishing".as_ptr(), libc::MFD_CLOEXEC) }).unwrap();
            let this = Self { map: Mapping::new(len), file, way };
            this.resize(len);
            this.come_back();
            this
        }

        pub(crate) fn addr(&self) -> u64 {
            self.map.addr()
        }

        fn resize(&self, len: usize) {
            // SAFETY: ftruncate takes no pointers.
            assert_eq!(unsafe { libc::ftruncate(self.file.as_raw_fd(), len as libc::off_t) }, 0);
        }

        fn replace(&self, prot: i32, flags: i32, fd: RawFd) {
            let flags = flags | libc::MAP_FIXED;
            // SAFETY: the range is that of this mapping, to which there are no references.
            let addr =
                unsafe { libc::mmap(self.map.addr as *mut libc::c_void, self.map.len, prot, flags, fd, 0) };
            assert_eq!(addr as u64, self.map.addr);
        }

        fn protect(&self, prot: i32) {
            // SAFETY: the range is that of this mapping, to which there are no references.
            assert_eq!(unsafe { libc::mprotect(self.map.addr as *mut libc::c_void, self.map.len, prot) }, 0);
        }

        pub(crate) fn vanish(&self) {
            match self.way {
                // Replaced at once, so that nobody else's memory comes there.
                Way::Unmapped => {
                    self.replace(libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
                }
                Way::ReadOnly => self.protect(libc::PROT_READ),
                Way::Inaccessible => self.protect(libc::PROT_NONE),
                Way::Truncated => self.resize(0),
            }
        }

        pub(crate) fn come_back(&self) {
            let both = libc::PROT_READ | libc::PROT_WRITE;
            match self.way {
                Way::Unmapped => self.replace(both, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
                Way::ReadOnly | Way::Inaccessible => self.protect(both),
                Way::Truncated => {
                    self.resize(self.map.len);
                    self.replace(both, libc::MAP_SHARED, self.file.as_raw_fd());
                }
            }
        }
    }

    #[test]
    fn both_ways_to_ask_for_a_writable_word_agree() {
        let page = page_size();
        let map = Mapping::new(2 * page as usize);
        map.unmap(page as usize, page as usize);
        for ask in [make_writable, modify_nothing] {
            assert_eq!(ask(map.addr() + 8), Ok(()));
            assert!(ask(map.addr() + page).is_err());
        }
        // SAFETY: the page belongs to `map`, to which there are no references.
        unsafe { libc::mprotect(map.addr() as *mut libc::c_void, page as usize, libc::PROT_READ) };
        for ask in [make_writable, modify_nothing] {
            assert!(ask(map.addr()).is_err());
        }
    }

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
        // SAFETY: F_SETFL takes an int.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(event_take(&fd), Err(libc::EAGAIN));
    }

    #[test]
    fn memory_that_is_not_there_is_an_error_and_not_a_signal() {
        assert!(!is_mapped(page_size(), page_size()));
        assert!(populate(page_size(), 1, true).is_err());
        let own = Process::own();
        // SAFETY: no memory is mapped at that address, so none can be overwritten.
        let copied = unsafe { copy_to(own, &[], [(&[1u8, 2, 3][..], page_size())].into_iter()) };
        assert_eq!(copied, Err(libc::EFAULT));
        assert_eq!(copy_from(own, page_size(), &mut [0; 3]), Err(libc::EFAULT));
    }
}
