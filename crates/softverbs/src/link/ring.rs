// SPDX-License-Identifier: BSD-3-Clause
//! The two rings of a connection on one host, from the view of one end: the ring that it writes and the ring
//! that it reads.
//!
//! Each end keeps its positions in private memory and publishes copies. It checks the peer's positions
//! whenever it reads them; a peer that has put more than fits, or taken more than there was, ends the
//! connection.
//!
//! Neither end makes a system call while both poll. An end that stops polling first requests a notification
//! in a word ([`Wakeup`]), then checks the ring once more; the other end reads the word after it has
//! published its position, and notifies with a byte on the Unix socket between them, which never blocks. The
//! byte carries no information, so its receiver must check both rings.
//!
//! The kernel reports each byte once (EPOLLET), whether or not earlier ones were read. So the bytes are read
//! only when many may have accumulated, which saves most of these system calls; since each request causes at
//! most one notification, it suffices to count requests. If the socket is full, it holds a byte that the
//! kernel has not reported yet.
//!
//! A writer that finds the ring empty restarts at its first byte, so a connection whose reader keeps up uses
//! only the first pages: they stay in the caches, and the others need no memory.
//!
//! A writer that has found the ring full continues when a quarter of it is free, so that it is not woken for
//! a few bytes each time.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use super::process::{MOST, Reach};
use super::shared::{EXPORTED_KEYS, SIZE, Shared, Words};
use crate::config;
use crate::policy::Policy;
use crate::policy::settle::{BASE_WAIT, Settling};
use crate::progress::export::Ledger;
use crate::progress::wakeup::Wakeup;
use crate::progress::watch::PeerNotify;
use crate::socket::Socket;
use crate::sys::{self, Errno};
use rpma_metrics::{Copied, Copies};
use transport::access::{Access, Exported};

/// The room for which a writer waits once it has found the ring full. Like [`FAR`] a fixed trade-off, no
/// prediction: less would wake the writer more often, more would leave the reader idle.
const ROOM: usize = SIZE / 4;
/// An empty ring restarts at its first byte if the position is at least this: well within the caches, and
/// seldom enough.
const FAR: u64 = 16 * 1024;
/// Bytes that may stay unread in the notify socket, far fewer than fill it: the kernel charges some 800 bytes
/// of 200 KiB for each.
const UNREAD: u32 = 32;
/// More bytes than fit into the notify socket.
const MOST_UNREAD: usize = 1024;
/// The error of a peer that claims more than the ring holds.
const NONSENSE: Errno = libc::EPROTO;

/// Both rings, and the notify socket. The positions are changed only by the holder of the connection's turn.
pub(crate) struct Rings {
    pub(super) shared: Shared,
    notify: Socket,
    /// Notifications requested since the notify socket was last read.
    requested: AtomicU32,
    /// Whether this end requested the connection: it reads ring 1, and writes ring 0.
    is_initiator: bool,
    taken: AtomicU64,
    /// Bytes acted on, as published to the peer.
    acted: AtomicU64,
    put: AtomicU64,
    /// The positions at which the two rings last restarted.
    read_base: AtomicU64,
    put_base: AtomicU64,
    /// The bytes that the peer had taken when this was last read.
    taken_by_peer: AtomicU64,
    /// The written ring was full and has not had [`ROOM`] since.
    full: AtomicBool,
    /// Whether this end copies directly with the keys that the peer exports.
    copies_directly: AtomicBool,
    /// It can do so only with memfds ([`Reach::Files`]).
    needs_files: AtomicBool,
    /// The number of changes of the peer's exported keys that this end has acted on.
    changes: AtomicU32,
    settling: Settling,
    /// The link is closed.
    closed: AtomicBool,
}

impl Copies for Rings {
    fn copied(&self) -> Copied {
        match self.is_left_behind() {
            true => Copied::default(),
            false => self.shared.export_page(self.ends().0).copied(),
        }
    }
}

impl Rings {
    /// `notify` is connected to the peer. `initiator`: whether this end requested the connection.
    pub(super) fn new(shared: Shared, notify: Socket, initiator: bool) -> Self {
        Self {
            shared,
            notify,
            requested: AtomicU32::new(0),
            is_initiator: initiator,
            taken: AtomicU64::new(0),
            acted: AtomicU64::new(0),
            put: AtomicU64::new(0),
            read_base: AtomicU64::new(0),
            put_base: AtomicU64::new(0),
            taken_by_peer: AtomicU64::new(0),
            full: AtomicBool::new(false),
            copies_directly: AtomicBool::new(false),
            needs_files: AtomicBool::new(false),
            changes: AtomicU32::new(0),
            settling: Settling::new(config::get().policy),
            closed: AtomicBool::new(false),
        }
    }

    pub(super) fn notify_socket(&self) -> &Socket {
        &self.notify
    }

    /// The link is closed: nothing that is in the rings concerns the connection any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether this process is a forked child without the mapping ([`Shared::is_left_behind`]).
    pub(super) fn is_left_behind(&self) -> bool {
        self.shared.is_left_behind()
    }

    fn input(&self) -> &Words {
        self.shared.words(self.ends().1)
    }

    fn output(&self) -> &Words {
        self.shared.words(self.ends().0)
    }

    /// The ring that this end reads, and the position in it.
    pub(super) fn source(&self) -> (usize, u64) {
        (
            self.ends().1,
            self.taken.load(Ordering::Relaxed).wrapping_sub(self.read_base.load(Ordering::Relaxed)),
        )
    }

    /// The ring that this end writes, and the position in it.
    pub(super) fn target(&self) -> (usize, u64) {
        (self.ends().0, self.put.load(Ordering::Relaxed).wrapping_sub(self.put_base.load(Ordering::Relaxed)))
    }

    /// Requests a notification in one of the two words for it.
    fn request(&self, word: &Wakeup) {
        self.requested.fetch_add(1, Ordering::Relaxed);
        word.about_to_sleep();
    }

    /// Notifies the peer. On an error (ENOMEM and others) the peer stays asleep.
    pub(super) fn notify_peer(&self) -> Result<(), Errno> {
        match sys::send(&self.notify, &[1]) {
            // The peer has unread notifications; or it has closed the socket, which TCP reports.
            Ok(_) | Err(libc::EAGAIN | libc::EPIPE | libc::ECONNRESET) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Wakes the peer if it has requested a notification of bytes. Otherwise it sends nothing: a peer that
    /// polls reads the socket only after many requests, so bytes without a request would fill it.
    pub(super) fn wake_reader(&self) {
        let reader = self.output().reader();
        if reader.must_wake() && self.notify_peer().is_err() {
            // The next bytes notify it.
            reader.about_to_sleep();
        }
    }

    fn bytes_there(&self) -> Result<usize, Errno> {
        let there =
            self.input().put().load(Ordering::Acquire).wrapping_sub(self.taken.load(Ordering::Relaxed));
        usize::try_from(there).ok().filter(|there| *there <= SIZE).ok_or(NONSENSE)
    }

    /// The number of bytes in the ring. If there are fewer than `wanted` and `notify_requested` is true, the
    /// peer notifies when it has put more. EPROTO.
    pub(super) fn available(
        &self,
        wanted: usize,
        notify_requested: impl FnOnce() -> bool,
    ) -> Result<usize, Errno> {
        let mut there = self.bytes_there()?;
        if there < wanted && notify_requested() {
            self.request(self.input().reader());
            there = self.bytes_there()?;
        }
        if there > 0 {
            self.follow()?;
        }
        Ok(there)
    }

    /// Follows a restart of the writer. There are bytes in the ring; the writer restarts only when the ring
    /// is empty.
    fn follow(&self) -> Result<(), Errno> {
        // The acquire load of the number of bytes orders this load, too. The value cannot change while the
        // ring has bytes.
        let base = self.input().base().load(Ordering::Relaxed);
        if base != self.read_base.load(Ordering::Relaxed) {
            if base != self.taken.load(Ordering::Relaxed) {
                return Err(NONSENSE);
            }
            self.read_base.store(base, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes `n` of the available bytes, which have been copied. An error of [`Rings::notify_peer`] ends the
    /// connection.
    pub(super) fn took(&self, n: usize) -> Result<(), Errno> {
        let taken = self.taken.load(Ordering::Relaxed).wrapping_add(n as u64);
        self.taken.store(taken, Ordering::Relaxed);
        let words = self.input();
        words.taken().store(taken, Ordering::Release);
        // A waiting writer puts nothing, so there is at least this much room. A wrong value of the peer harms
        // only the peer.
        let left = words.put().load(Ordering::Relaxed).wrapping_sub(taken);
        if left <= (SIZE - ROOM) as u64 && words.writer().must_wake() {
            return self.notify_peer();
        }
        Ok(())
    }

    /// All bytes taken have been acted on.
    pub(super) fn acted(&self) {
        let taken = self.taken.load(Ordering::Relaxed);
        if self.acted.load(Ordering::Relaxed) != taken {
            self.acted.store(taken, Ordering::Relaxed);
            self.input().acted().store(taken, Ordering::Release);
        }
    }

    /// Waits before a request of `len` bytes until the peer has acted on everything, if the policy considers
    /// that worthwhile.
    #[cold]
    fn wait_until_settled(&self, len: usize) {
        let Some(longest) = self.settling.longest_wait(len.min(MOST)) else { return };
        let since = Instant::now();
        loop {
            let waited = since.elapsed();
            if waited >= longest {
                return self.settling.has_waited(true);
            }
            if waited >= BASE_WAIT {
                // The peer may need this processor.
                std::thread::yield_now();
            }
            for _ in 0..32 {
                std::hint::spin_loop();
            }
            if self.is_settled() {
                return self.settling.has_waited(false);
            }
        }
    }

    /// Whether the peer has acted on everything put so far.
    pub(super) fn is_settled(&self) -> bool {
        self.output().acted().load(Ordering::Acquire) == self.put.load(Ordering::Relaxed)
    }

    /// What this end accesses directly from now on.
    pub(super) fn copy_directly(&self, reach: Option<Reach>) {
        self.copies_directly.store(reach.is_some(), Ordering::Relaxed);
        self.needs_files.store(reach == Some(Reach::Files), Ordering::Relaxed);
    }

    /// Whether the peer's exported keys have changed since [`Rings::note_changes`].
    #[inline]
    pub(super) fn exports_have_changed(&self) -> bool {
        let changes = self.shared.export_page(self.ends().1).changes();
        changes != self.changes.load(Ordering::Relaxed)
    }

    /// Called before this end acts on the changes of the peer's exported keys.
    pub(super) fn note_changes(&self) {
        let changes = self.shared.export_page(self.ends().1).changes();
        self.changes.store(changes, Ordering::Relaxed);
    }

    /// The key `stag`, if the peer exports it, and the version of its entry. Before a copy this must be
    /// called after [`KeyInUse::take`](crate::progress::export::KeyInUse::take).
    #[inline]
    pub(super) fn exported(&self, stag: u32) -> Option<(u64, Exported)> {
        self.entry(Ledger::<EXPORTED_KEYS>::place(stag)).filter(|(_, exported)| exported.stag == stag)
    }

    /// The key that the peer exports in the entry with this index, and the version of the entry.
    #[inline]
    pub(super) fn entry(&self, at: usize) -> Option<(u64, Exported)> {
        let theirs = self.ends().1;
        if !self.shared.export_page(theirs).gate().is_open() {
            return None;
        }
        self.shared.exported_keys(theirs)[at].read()
    }

    /// Whether the peer exports a key for this access, to memory that this end can access.
    pub(super) fn is_exported(&self, remote: Access) -> bool {
        self.exported(remote.stag).is_some_and(|(_, exported)| {
            let is_within_reach = exported.file.is_some() || !self.needs_files.load(Ordering::Relaxed);
            is_within_reach && exported.find(remote).is_some()
        })
    }

    /// The indices of this end and of the other one for [`Shared::export_page`]: also those of the rings that
    /// each of them writes.
    #[inline]
    pub(super) fn ends(&self) -> (usize, usize) {
        (usize::from(!self.is_initiator), usize::from(self.is_initiator))
    }

    fn room_there(&self) -> Result<usize, Errno> {
        let taken = self.output().taken().load(Ordering::Acquire);
        let used = self.put.load(Ordering::Relaxed).wrapping_sub(taken);
        let used = usize::try_from(used).ok().filter(|used| *used <= SIZE).ok_or(NONSENSE)?;
        self.taken_by_peer.store(taken, Ordering::Relaxed);
        Ok(SIZE - used)
    }

    fn has_waited_enough(&self, room: usize) -> bool {
        let enough = room >= ROOM;
        if enough {
            self.full.store(false, Ordering::SeqCst);
        }
        enough
    }

    /// The number of bytes that may be put, if it is at least `least`, which is at most [`ROOM`]; otherwise
    /// 0, and if `notify_requested` is true, the peer notifies when there is room. EPROTO.
    pub(super) fn room(&self, least: usize, notify_requested: impl FnOnce() -> bool) -> Result<usize, Errno> {
        if !self.full.load(Ordering::Relaxed) {
            if self.target().1 % SIZE as u64 >= FAR && self.room_there()? == SIZE {
                let put = self.put.load(Ordering::Relaxed);
                self.put_base.store(put, Ordering::Relaxed);
                // Published with the next bytes.
                self.output().base().store(put, Ordering::Relaxed);
            }
            // The room has not shrunk since; read the peer's word only when this is little.
            let put = self.put.load(Ordering::Relaxed);
            let used = put.wrapping_sub(self.taken_by_peer.load(Ordering::Relaxed));
            let room = SIZE.saturating_sub(used as usize);
            let room = if room >= ROOM { room } else { self.room_there()? };
            if room >= least {
                return Ok(room);
            }
            self.full.store(true, Ordering::SeqCst);
        }
        let room = self.room_there()?;
        if self.has_waited_enough(room) {
            return Ok(room);
        }
        if notify_requested() {
            self.request(self.output().writer());
            let room = self.room_there()?;
            if self.has_waited_enough(room) {
                return Ok(room);
            }
        }
        Ok(0)
    }

    /// Puts `n` bytes, which have been written and are at most [`Rings::room`]. Returns whether the peer had
    /// to be notified. An error of [`Rings::notify_peer`] ends the connection.
    pub(super) fn put(&self, n: usize) -> Result<bool, Errno> {
        let put = self.put.load(Ordering::Relaxed).wrapping_add(n as u64);
        self.put.store(put, Ordering::Relaxed);
        let words = self.output();
        words.put().store(put, Ordering::Release);
        let notifies = words.reader().must_wake();
        if notifies {
            self.notify_peer()?;
        }
        Ok(notifies)
    }
}

impl PeerNotify for Rings {
    fn request_notify(&self) {
        if self.is_left_behind() {
            return;
        }
        self.request(self.input().reader());
        if self.full.load(Ordering::SeqCst) {
            self.request(self.output().writer());
        }
    }

    fn has_news(&self) -> bool {
        if self.is_left_behind() {
            return false;
        }
        // An invalid position counts as news, too: the connection must be driven to end.
        let readable = self.bytes_there() != Ok(0);
        let put = self.put.load(Ordering::Relaxed);
        let used = || put.wrapping_sub(self.output().taken().load(Ordering::Acquire));
        let writable = || self.full.load(Ordering::SeqCst) && used() <= (SIZE - ROOM) as u64;
        let changed = || self.copies_directly.load(Ordering::Relaxed) && self.exports_have_changed();
        readable || writable() || changed()
    }

    fn is_idle(&self) -> bool {
        if self.is_left_behind() {
            return false;
        }
        // The cache lines of the position and of the next bytes come from the writer's processor: at the same
        // time, not one after the other.
        let (ring, at) = self.source();
        self.shared.prefetch(ring, at);
        !self.has_news()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn await_settled(&self, remote: Access) {
        if !self.copies_directly.load(Ordering::Relaxed) || self.is_left_behind() || self.is_settled() {
            return;
        }
        if self.is_exported(remote) {
            self.wait_until_settled(remote.len);
        }
    }

    fn silence(&self) {
        if self.requested.load(Ordering::Relaxed) < UNREAD {
            return;
        }
        // Before the read: notifications requested from now on may stay unread.
        self.requested.store(0, Ordering::Relaxed);
        let mut bytes = [0; 64];
        // The socket has no room for more; a peer that keeps sending must not keep this thread here.
        for _ in 0..MOST_UNREAD / bytes.len() {
            if sys::recv(&self.notify, &mut bytes) != Ok(bytes.len()) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
