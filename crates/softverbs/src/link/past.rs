// SPDX-License-Identifier: BSD-3-Clause
//! Past the rings: operations that their initiator carries out itself, in the memory of the peer, by one system call.
//!
//! Each end lends its peer the keys that the peer has already used with success over the ring: then all checks of the table were made for
//! this connection. So the first operation with a key goes over the ring, and whoever has no key learns nothing. What is lent lies in the memory
//! that both share ([`crate::progress::lending`]); a borrower goes by a copy of its own, which it has checked.
//!
//! A key that the owner withdraws, be it by ibv_dereg_mr(3), ibv_rereg_mr(3) or by the end of the connection, is taken back first: the call returns
//! when no copy is under way. A peer that was stopped in the middle of a copy is waited for, as it would go on with it; one that was killed
//! is not.
//!
//! The order is that of the ring. A copy is made only when the peer has acted on all that was ever put there ([`Rings::is_settled`]).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::process::{Peer, Proof, Ranges};
use super::ring::Rings;
use super::shared::LOANS;
use crate::access::{Access, Lent, REMOTE_READ, REMOTE_WRITE};
use crate::config;
use crate::memory::{self, Grant, Lender};
use crate::progress::lending::Hold;
use crate::sys::Errno;
use crate::{NOTICE, lock, unix};

/// Most bytes of one copy. The owner waits for it when it withdraws the key.
pub(super) const MOST: usize = 1 << 20;
/// A copy of so many bytes is worth a wait for the peer, which is at work on what is in the ring.
const WORTH_A_WAIT: usize = 16 * 1024;
/// That wait: so long, and longer by what the same bytes would take through the ring at 2 GB/s, as they would come behind what is there. How many
/// operations go without it after some in vain.
const PATIENCE: Duration = Duration::from_micros(40);
const RING_BYTES_PER_NS: usize = 2;
/// Small copies that were not made since are worth a shorter wait: what goes on through the ring for ever would never leave it. Each
/// counts as so many bytes.
const SMALL_COPY: usize = 1024;
const SMALL_PATIENCE: Duration = Duration::from_micros(5);
const MOST_SKIPPED: u32 = 31;
/// After this time a peer is said to be waited for.
const LONG: Duration = Duration::from_secs(1);

/// Where a key is in the table.
fn place(stag: u32) -> usize {
    stag as usize % LOANS
}

/// What this end has lent to its peer.
pub(super) struct Owner {
    rings: Arc<Rings>,
    peer: Arc<Peer>,
    table: Mutex<Table>,
    /// How many keys were taken back: from then on others may be lent again.
    taken_back: AtomicU32,
}

struct Table {
    /// The key and the rights in each place; the key 0 if there is none.
    lent: [(u32, u32); LOANS],
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Closed,
}

impl Owner {
    fn hold(&self) -> &Hold {
        self.rings.shared.dealings(self.rings.ends().0).hold()
    }

    fn lend(&self, lent: Lent) {
        let mut table = lock(&self.table);
        let (own, shared) = (self.rings.ends().0, &self.rings.shared);
        if table.state == State::New {
            // Without memory for the table nothing is lent.
            table.state = if shared.prepare_loans(own).is_ok() { State::Open } else { State::Closed };
        }
        if table.state == State::Closed {
            return;
        }
        let at = place(lent.stag);
        let (stag, before) = table.lent[at];
        let rights = if stag == lent.stag { before | lent.rights } else { lent.rights };
        if (stag, before) != (lent.stag, rights) {
            table.lent[at] = (lent.stag, rights);
            shared.loans(own)[at].begin(Lent { rights, ..lent });
            shared.dealings(own).gate().open();
        }
    }

    /// Waits until the peer lets go of a key. Not for one that has ended: none of its threads copies any more.
    fn wait(&self, is_held: impl Fn(&Hold) -> bool) {
        let (mut since, mut tries) = (None, 0u32);
        while is_held(self.hold()) {
            tries = tries.saturating_add(1);
            if tries < 100 {
                std::thread::yield_now();
                continue;
            }
            if self.peer.has_ended(Duration::from_millis(1)) {
                return;
            }
            let since: &mut Option<Instant> = since.get_or_insert_with(|| Some(Instant::now()));
            if since.is_some_and(|since| since.elapsed() >= LONG) {
                *since = None;
                let pid = self.peer.pid();
                log::warn!(
                    "waiting for process {pid}, which was stopped while it was copying to or from memory that is withdrawn"
                );
            }
        }
    }

    /// The connection ends: nothing is lent any more.
    fn close(&self) {
        let own = self.rings.ends().0;
        let before = std::mem::replace(&mut lock(&self.table).state, State::Closed);
        if before == State::Open {
            self.rings.shared.dealings(own).gate().close();
            self.wait(Hold::is_taken);
        }
    }
}

impl Lender for Owner {
    fn take_back(&self, stag: u32) {
        if self.rings.is_left_behind() {
            return;
        }
        {
            let mut table = lock(&self.table);
            if table.state != State::Open {
                return;
            }
            let at = place(stag);
            if table.lent[at].0 == stag {
                table.lent[at] = (0, 0);
                self.rings.shared.loans(self.rings.ends().0)[at].end();
            }
            self.taken_back.fetch_add(1, Ordering::Release);
        }
        // Also where another key has its place by now: it may be in use from before.
        self.wait(|hold| hold.is_of(stag));
    }
}

/// The ways past the rings of a connection.
pub(super) struct Past {
    owner: Arc<Owner>,
    peer: Arc<Peer>,
    /// What was lent last: key, rights, and [`Owner::taken_back`] then.
    last: (u32, u32, u32),
    /// Operations that will not wait for the peer, and how many these were the last time.
    skips: u32,
    skipped: u32,
    /// The bytes of those that were not made because the peer had not acted on all yet.
    missed: usize,
}

/// Shows the peer who this end is, if it is to copy past the rings. 0: the initiator, 1: the responder.
pub(super) fn proof() -> Option<Proof> {
    if config::get().past_rings { Proof::own().ok() } else { None }
}

impl Past {
    /// `None`: there is only the way over the rings; a line of the log says why.
    pub(super) fn open(rings: &Arc<Rings>) -> Option<Self> {
        if !config::get().past_rings {
            return None;
        }
        Self::try_open(rings)
            .inspect_err(|why| {
                log::info!(target: NOTICE, "a connection on this host copies through shared memory only: {why}");
            })
            .ok()
    }

    fn try_open(rings: &Arc<Rings>) -> Result<Self, String> {
        let pid = unix::peer_process(rings.bell()).ok_or("the peer is in another pid namespace")?;
        let proof = rings.shared.dealings(rings.ends().1).proof();
        if proof.addr == 0 || rings.shared.dealings(rings.ends().0).proof().addr == 0 {
            return Err("one of the ends does not lend its memory".into());
        }
        let error = |e: Errno| std::io::Error::from_raw_os_error(e).to_string();
        let peer = Peer::meet(pid, proof).map_err(|e| match e {
            libc::EPERM | libc::ENOSYS => {
                format!("the kernel does not permit to access process {pid}: {}", error(e))
            }
            e => format!("process {pid} is not the peer, or cannot be accessed: {}", error(e)),
        })?;
        let table = Mutex::new(Table { lent: [(0, 0); LOANS], state: State::New });
        let owner = Owner { rings: rings.clone(), peer: peer.clone(), table, taken_back: AtomicU32::new(0) };
        let owner = Arc::new(owner);
        memory::add_lender(&owner).map_err(error)?;
        Ok(Self { owner, peer, last: (0, 0, 0), skips: 0, skipped: 0, missed: 0 })
    }

    /// The connection ends. Returns when the peer does not copy any more.
    pub(super) fn close(self) {
        if !self.owner.rings.is_left_behind() {
            self.owner.close();
        }
        memory::remove_lender(&self.owner);
    }

    /// The peer has made an access over the ring, and the table has granted it: from now on it may do without.
    pub(super) fn lend(&mut self, access: Access, grant: &Grant) {
        let remote = access.rights & (REMOTE_READ | REMOTE_WRITE);
        let this = (access.stag, remote, self.owner.taken_back.load(Ordering::Acquire));
        if remote == 0 || remote != access.rights || this == self.last {
            return;
        }
        self.last = this;
        if let Some(lent) = grant.lend(access) {
            self.owner.lend(lent);
        }
    }

    /// What the peer has lent with a key, or with another one that has its place. To be used it must be looked up behind [`Hold::take`].
    fn lent(&self, stag: u32) -> Option<Lent> {
        let (shared, theirs) = (&self.owner.rings.shared, self.owner.rings.ends().1);
        if !shared.dealings(theirs).gate().is_open() {
            return None;
        }
        shared.loans(theirs)[place(stag)].read()
    }

    /// Whether the peer has lent what this accesses.
    pub(super) fn is_lent(&self, remote: Access) -> bool {
        self.lent(remote.stag).is_some_and(|lent| lent.find(remote).is_some())
    }

    /// Whether accesses of `len` bytes in all, the first of which is `remote`, can be made past the rings now: the key is lent, and the peer has
    /// acted on all that it was sent. That may be waited for a moment, if they are long, or many were not made, and such waits have not been
    /// in vain.
    pub(super) fn is_open_for(&mut self, remote: Access, len: usize) -> bool {
        if !self.is_lent(remote) {
            return false;
        }
        let rings = &self.owner.rings;
        if rings.is_settled() {
            return true;
        }
        self.missed = self.missed.saturating_add(len.max(SMALL_COPY));
        if self.missed < WORTH_A_WAIT || self.skips > 0 {
            self.skips = self.skips.saturating_sub(1);
            return false;
        }
        self.missed = 0;
        let patience = match len {
            0..WORTH_A_WAIT => SMALL_PATIENCE,
            _ => PATIENCE + Duration::from_nanos((len.min(MOST) / RING_BYTES_PER_NS) as u64),
        };
        let since = Instant::now();
        loop {
            let waited = since.elapsed();
            if waited >= patience {
                break;
            }
            if waited >= PATIENCE {
                // The peer may be in need of this very processor.
                std::thread::yield_now();
            }
            for _ in 0..32 {
                std::hint::spin_loop();
            }
            if rings.is_settled() {
                self.skipped = 0;
                return true;
            }
        }
        self.skipped = (2 * self.skipped + 1).min(MOST_SKIPPED);
        self.skips = self.skipped;
        false
    }

    /// Copies between `local`, whose first element is left free, and the memory of the peer: the first `len` bytes of `remote`, as many as
    /// the others of `local` have in all. The key and the rights are those of the first access for all. Gives how many bytes were copied.
    ///
    /// # Safety
    ///
    /// For a read the caller must hold grants to write all of `local` but the first element.
    pub(super) unsafe fn copy(&self, local: &mut [libc::iovec], remote: &[Access], len: usize) -> usize {
        let Some(&Access { stag, rights, .. }) = remote.first() else { return 0 };
        let hold = self.owner.rings.shared.dealings(self.owner.rings.ends().1).hold();
        hold.take(stag);
        let mut ranges = Ranges::new();
        let located = self.lent(stag).is_some_and(|lent| {
            let mut left = len;
            remote.iter().all(|access| {
                let access = Access { stag, rights, len: access.len.min(left), ..*access };
                left -= access.len;
                let found = lent.find(access);
                found.is_some_and(|addr| ranges.push(addr, access.len))
            })
        });
        let mut copied = Ok(0);
        if located {
            // SAFETY: the caller holds grants to write the local ranges of a read. A peer that is this process has lent the ranges of a
            // write, and does not take them back as long as the key is held.
            copied = unsafe {
                match rights & REMOTE_READ {
                    0 => self.peer.write(local, &mut ranges),
                    _ => self.peer.read(local, &mut ranges),
                }
            };
        }
        hold.let_go();
        copied.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
