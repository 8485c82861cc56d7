// SPDX-License-Identifier: BSD-3-Clause
//! The two rings of a connection on one host, as one end sees them: one that it writes to and one that it
//! reads.
//!
//! Each end keeps its own positions and only publishes them; those of the peer are checked whenever they are
//! looked at, and a peer that has put more than fits, or taken more than there was, has broken the
//! connection.
//!
//! Neither end makes a system call while both poll. An end that stops polling first requests a notification
//! in a word ([`Wakeup`]), then looks once more; the other end reads the word after it has published its
//! position, and notifies: it sends a byte on the Unix socket between them. That never blocks. The byte
//! carries no information, so a thread that finds one must look at both rings.
//!
//! The kernel reports each byte once (EPOLLET), whether those before it were read or not. So bytes are read
//! only when there may be many, which saves a system call for most: as each request brings one notification
//! at most, the requests are counted. A socket that is full has a byte that the kernel has not reported to
//! this end yet.
//!
//! A writer that finds the ring empty begins at its first byte again, so a connection whose reader keeps up
//! uses the first pages only: they stay in the caches, and the others need no memory.
//!
//! A writer without room goes on when a quarter of the ring is free, so that it is not woken for every few
//! bytes.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use super::process::MOST;
use super::shared::{EXPORTED_KEYS, SIZE, Shared, Words};
use crate::config;
use crate::policy::settle::{PATIENCE, Settling};
use crate::progress::export::Ledger;
use crate::progress::wakeup::Wakeup;
use crate::progress::watch::PeerNotify;
use crate::socket::Socket;
use crate::sys::{self, Errno};
use transport::access::{Access, Exported};

/// What a writer waits for, once it has found the ring full.
const ROOM: usize = SIZE / 4;
/// From here on an empty ring begins anew.
const FAR: u64 = 16 * 1024;
/// Bytes that may be left in the notify socket, far fewer than fill it: the kernel counts some 800 bytes
/// for each, of 200 KiB.
const UNREAD: u32 = 32;
/// The error of a peer that claims more than the ring holds.
const NONSENSE: Errno = libc::EPROTO;

/// Both rings, and the notify socket. The positions are changed only by the holder of the connection's turn.
pub(crate) struct Rings {
    pub(super) shared: Shared,
    notify: Socket,
    /// Notifications that were requested since the bytes of the notify socket were read.
    asked: AtomicU32,
    /// The number of the ring that is read; the other one is written to.
    reads: usize,
    taken: AtomicU64,
    /// Bytes that were acted on, as published to the peer.
    acted: AtomicU64,
    put: AtomicU64,
    /// Where the two rings have begun last.
    read_base: AtomicU64,
    put_base: AtomicU64,
    /// The bytes that the peer had taken at the last look.
    taken_by_peer: AtomicU64,
    /// The ring that is written to is full, and has not had [`ROOM`] since.
    full: AtomicBool,
    /// This end makes direct copies with the keys that the peer exports.
    borrows: AtomicBool,
    settling: Settling,
}

impl Rings {
    /// `notify` is connected with the peer. `initiator`: whether this end has asked for the connection.
    pub(super) fn new(shared: Shared, notify: Socket, initiator: bool) -> Self {
        Self {
            shared,
            notify,
            asked: AtomicU32::new(0),
            reads: usize::from(initiator),
            taken: AtomicU64::new(0),
            acted: AtomicU64::new(0),
            put: AtomicU64::new(0),
            read_base: AtomicU64::new(0),
            put_base: AtomicU64::new(0),
            taken_by_peer: AtomicU64::new(0),
            full: AtomicBool::new(false),
            borrows: AtomicBool::new(false),
            settling: Settling::new(config::get().policy),
        }
    }

    pub(super) fn notify_socket(&self) -> &OwnedFd {
        &self.notify
    }

    /// A fork has left the memory behind, in the parent.
    pub(super) fn is_left_behind(&self) -> bool {
        self.shared.is_left_behind()
    }

    fn input(&self) -> &Words {
        self.shared.words(self.reads)
    }

    fn output(&self) -> &Words {
        self.shared.words(1 - self.reads)
    }

    /// The ring to read, and the position in it.
    pub(super) fn source(&self) -> (usize, u64) {
        (self.reads, self.taken.load(Ordering::Relaxed).wrapping_sub(self.read_base.load(Ordering::Relaxed)))
    }

    /// The ring to write to, and the position in it.
    pub(super) fn target(&self) -> (usize, u64) {
        (1 - self.reads, self.put.load(Ordering::Relaxed).wrapping_sub(self.put_base.load(Ordering::Relaxed)))
    }

    /// Requests a notification in one of the words for that.
    fn ask(&self, word: &Wakeup) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        word.about_to_sleep();
    }

    /// Notifies the peer. On an error (ENOMEM and others) it sleeps on.
    fn notify_peer(&self) -> Result<(), Errno> {
        match sys::send(&self.notify, &[1]) {
            // The peer has unread notifications; or it has gone, which TCP reports.
            Ok(_) | Err(libc::EAGAIN | libc::EPIPE | libc::ECONNRESET) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn bytes_there(&self) -> Result<usize, Errno> {
        let there =
            self.input().put().load(Ordering::Acquire).wrapping_sub(self.taken.load(Ordering::Relaxed));
        usize::try_from(there).ok().filter(|there| *there <= SIZE).ok_or(NONSENSE)
    }

    /// How many bytes there are to take. If there are fewer than `wanted` and `notify_requested` is true, the
    /// peer notifies when there are more. EPROTO.
    pub(super) fn available(
        &self,
        wanted: usize,
        notify_requested: impl FnOnce() -> bool,
    ) -> Result<usize, Errno> {
        let mut there = self.bytes_there()?;
        if there < wanted && notify_requested() {
            self.ask(self.input().reader());
            there = self.bytes_there()?;
        }
        if there > 0 {
            self.follow()?;
        }
        Ok(there)
    }

    /// There are bytes: has the writer begun anew with them? It does so only behind what was taken.
    fn follow(&self) -> Result<(), Errno> {
        // The acquisition of the number of bytes orders this, too; and as long as they are there it does not
        // change.
        let base = self.input().base().load(Ordering::Relaxed);
        if base != self.read_base.load(Ordering::Relaxed) {
            if base != self.taken.load(Ordering::Relaxed) {
                return Err(NONSENSE);
            }
            self.read_base.store(base, Ordering::Relaxed);
        }
        Ok(())
    }

    /// So many bytes, of those that were available, have been copied. An error of [`Rings::notify_peer`] ends
    /// the connection.
    pub(super) fn took(&self, n: usize) -> Result<(), Errno> {
        let taken = self.taken.load(Ordering::Relaxed).wrapping_add(n as u64);
        self.taken.store(taken, Ordering::Relaxed);
        let words = self.input();
        words.taken().store(taken, Ordering::Release);
        // A writer that waits puts nothing, so there is not less room than this; what a peer says that lies
        // is for it to worry about.
        let left = words.put().load(Ordering::Relaxed).wrapping_sub(taken);
        if left <= (SIZE - ROOM) as u64 && words.writer().must_wake() {
            return self.notify_peer();
        }
        Ok(())
    }

    /// All that was taken has been acted on.
    pub(super) fn acted(&self) {
        let taken = self.taken.load(Ordering::Relaxed);
        if self.acted.load(Ordering::Relaxed) != taken {
            self.acted.store(taken, Ordering::Relaxed);
            self.input().acted().store(taken, Ordering::Release);
        }
    }

    /// Waits before a request of `len` bytes until the peer has acted on all, if that is worth it.
    #[cold]
    fn wait_until_settled(&self, len: usize) {
        let Some(patience) = self.settling.patience(len.min(MOST)) else { return };
        let since = Instant::now();
        loop {
            let waited = since.elapsed();
            if waited >= patience {
                return self.settling.has_waited(true);
            }
            if waited >= PATIENCE {
                // The peer may need this very processor.
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

    /// Whether the peer has acted on all that was ever put.
    pub(super) fn is_settled(&self) -> bool {
        self.output().acted().load(Ordering::Acquire) == self.put.load(Ordering::Relaxed)
    }

    /// This end makes direct copies from now on.
    pub(super) fn copy_directly(&self) {
        self.borrows.store(true, Ordering::Relaxed);
    }

    /// The key that the peer exports in the entry of this key. To be used it must be
    /// looked up after [`KeyInUse::take`](crate::progress::export::KeyInUse::take).
    pub(super) fn exported(&self, stag: u32) -> Option<Exported> {
        let theirs = self.ends().1;
        if !self.shared.export_page(theirs).gate().is_open() {
            return None;
        }
        self.shared.exported_keys(theirs)[Ledger::<EXPORTED_KEYS>::place(stag)].read()
    }

    /// Whether the peer exports a key for this access.
    pub(super) fn is_exported(&self, remote: Access) -> bool {
        self.exported(remote.stag).is_some_and(|exported| exported.find(remote).is_some())
    }

    /// This end and the other one, as [`Shared::export_page`] counts them.
    pub(super) fn ends(&self) -> (usize, usize) {
        (1 - self.reads, self.reads)
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

    /// How much may be put, 0 if nothing: then, if `notify_requested` is true, the peer notifies when there
    /// is room. EPROTO.
    pub(super) fn room(&self, notify_requested: impl FnOnce() -> bool) -> Result<usize, Errno> {
        if !self.full.load(Ordering::Relaxed) {
            if self.target().1 % SIZE as u64 >= FAR && self.room_there()? == SIZE {
                let put = self.put.load(Ordering::Relaxed);
                self.put_base.store(put, Ordering::Relaxed);
                // Published with the next bytes.
                self.output().base().store(put, Ordering::Relaxed);
            }
            // It has not become less; the word of the peer is looked at only when this is little.
            let used = self.put.load(Ordering::Relaxed) - self.taken_by_peer.load(Ordering::Relaxed);
            let room = SIZE.saturating_sub(used as usize);
            let room = if room >= ROOM { room } else { self.room_there()? };
            if room > 0 {
                return Ok(room);
            }
            self.full.store(true, Ordering::SeqCst);
        }
        let room = self.room_there()?;
        if self.has_waited_enough(room) {
            return Ok(room);
        }
        if notify_requested() {
            self.ask(self.output().writer());
            let room = self.room_there()?;
            if self.has_waited_enough(room) {
                return Ok(room);
            }
        }
        Ok(0)
    }

    /// So many bytes have been written, at most as many as there was room for. An error of
    /// [`Rings::notify_peer`] ends the connection.
    pub(super) fn put(&self, n: usize) -> Result<(), Errno> {
        let put = self.put.load(Ordering::Relaxed).wrapping_add(n as u64);
        self.put.store(put, Ordering::Relaxed);
        let words = self.output();
        words.put().store(put, Ordering::Release);
        if words.reader().must_wake() {
            return self.notify_peer();
        }
        Ok(())
    }
}

impl PeerNotify for Rings {
    fn request_notify(&self) {
        if self.is_left_behind() {
            return;
        }
        self.ask(self.input().reader());
        if self.full.load(Ordering::SeqCst) {
            self.ask(self.output().writer());
        }
    }

    fn has_news(&self) -> bool {
        if self.is_left_behind() {
            return false;
        }
        // An invalid position is news, too.
        let readable = self.bytes_there() != Ok(0);
        let put = self.put.load(Ordering::Relaxed);
        let used = || put.wrapping_sub(self.output().taken().load(Ordering::Acquire));
        readable || (self.full.load(Ordering::SeqCst) && used() <= (SIZE - ROOM) as u64)
    }

    fn is_idle(&self) -> bool {
        !self.is_left_behind() && !self.has_news()
    }

    fn await_settled(&self, remote: Access) {
        if !self.borrows.load(Ordering::Relaxed) || self.is_left_behind() || self.is_settled() {
            return;
        }
        if self.is_exported(remote) {
            self.wait_until_settled(remote.len);
        }
    }

    fn silence(&self) {
        if self.asked.load(Ordering::Relaxed) < UNREAD {
            return;
        }
        // Before they are read: notifications that are requested from now on may be left unread.
        self.asked.store(0, Ordering::Relaxed);
        let mut bytes = [0; 64];
        while sys::recv(&self.notify, &mut bytes) == Ok(bytes.len()) {}
    }
}

#[cfg(test)]
mod tests;
