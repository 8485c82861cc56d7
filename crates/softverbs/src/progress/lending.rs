// SPDX-License-Identifier: BSD-3-Clause
//! Keys that one end of a connection lends to the other, in memory that two processes share: the borrower
//! copies to and from the memory of the owner by itself, without the owner's doing.
//!
//! The owner may take back a key at any time, and afterwards no copy with that key is under way, nor will be.
//! Two sides, each with a full barrier between its write and its look at the other's, as with a
//! [`super::doorbell::Doorbell`]. The borrower first says with which key it copies ([`Hold::take`]), then
//! looks whether that is lent ([`Loan::read`]), copies, and lets go. The owner marks the key as taken back
//! ([`Loan::end`]), then waits until the borrower does not hold it ([`Hold::is_of`]). So either the borrower
//! finds that it is not lent, or the owner sees it at work. [`Gate`] does the same for all keys of a
//! connection at once.
//!
//! On the owner's side three threads meet: one lends, one deregisters a region, one ends the connection.
//! [`Ledger`] orders them with a lock. Who ends the connection closes the gate before others find the ledger
//! closed, so that a deregistration which finds it closed need look at nothing but the hold.
//!
//! A borrower may be stopped or killed wherever it is: it then still holds the key. While it is stopped the
//! owner cannot have the memory back, for it goes on where it was; the kernel says whether it is gone.
//!
//! The words may have any value at any time, as the peer can write to them. What a borrower reads is checked
//! before it is used; what an owner reads can make it wait, no more.

use super::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence, lock};
use transport::access::Lent;

/// A key that is lent.
#[repr(C)]
pub(crate) struct Loan {
    /// 0: never used. Odd: nothing is lent. It changes with each change of the others, and comes back to no
    /// value.
    version: AtomicU64,
    stag: AtomicU32,
    rights: AtomicU32,
    start: AtomicU64,
    len: AtomicU64,
    delta: AtomicU64,
}

impl Loan {
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let (stag, rights) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { version: zero(), stag, rights, start: zero(), len: zero(), delta: zero() }
    }

    /// The owner lends a key, in the place of the one that was lent here before. That one may still be in
    /// use.
    pub(crate) fn begin(&self, lent: Lent) {
        let version = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        self.stag.store(lent.stag, Ordering::Relaxed);
        self.rights.store(lent.rights, Ordering::Relaxed);
        self.start.store(lent.start, Ordering::Relaxed);
        self.len.store(lent.len, Ordering::Relaxed);
        self.delta.store(lent.delta, Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }

    /// The owner takes it back: nobody begins to use it from now on, and [`Hold::is_of`] says whether
    /// somebody does.
    pub(crate) fn end(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | 1, Ordering::Relaxed);
    }

    /// The borrower: what is lent. To be used it must be read behind [`Hold::take`].
    pub(crate) fn read(&self) -> Option<Lent> {
        let version = self.version.load(Ordering::Acquire);
        if version == 0 || version % 2 == 1 {
            return None;
        }
        let lent = Lent {
            stag: self.stag.load(Ordering::Relaxed),
            rights: self.rights.load(Ordering::Relaxed),
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            delta: self.delta.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(lent)
    }
}

/// The key that the borrower copies with. It is one thread at a time.
#[repr(transparent)]
pub(crate) struct Hold(AtomicU32);

/// No key has this number.
const NOTHING: u32 = 0;

impl Hold {
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(NOTHING))
    }

    /// The borrower will use this key, if it is lent.
    pub(crate) fn take(&self, stag: u32) {
        // Who sees this key also sees that the one before was let go, and what was done with that.
        self.0.store(stag, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// The borrower does not use the key any more.
    pub(crate) fn let_go(&self) {
        self.0.store(NOTHING, Ordering::Release);
    }

    /// The owner: whether the borrower may be using this key.
    pub(crate) fn is_of(&self, stag: u32) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire) == stag
    }

    /// The owner: whether it may be using any.
    pub(crate) fn is_taken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire) != NOTHING
    }
}

/// Whether an owner lends anything.
#[repr(transparent)]
pub(crate) struct Gate(AtomicU32);

impl Gate {
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The owner: the first key is lent.
    pub(crate) fn open(&self) {
        self.0.store(1, Ordering::Release);
    }

    /// The owner: nobody begins to use a key from now on; [`Hold::is_taken`] says whether somebody does.
    pub(crate) fn close(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The borrower. To use a key it must look behind [`Hold::take`].
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }
}

/// What an owner has lent on a connection, in `N` places.
pub(crate) struct Ledger<const N: usize>(Mutex<Entries<N>>);

struct Entries<const N: usize> {
    /// The key and the rights in each place; the key 0 if there is none.
    lent: [(u32, u32); N],
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Closed,
}

impl<const N: usize> Ledger<N> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Entries { lent: [(NOTHING, 0); N], state: State::New }))
    }

    /// Where a key is among those of an end.
    pub(crate) fn place(stag: u32) -> usize {
        stag as usize % N
    }

    /// Lends a key with these rights, besides those that it was lent with. `prepare` makes the memory of
    /// `loans` ready before the first one; if it cannot, nothing is ever lent.
    pub(crate) fn lend<'a>(
        &self,
        lent: Lent,
        gate: &Gate,
        prepare: impl FnOnce() -> bool,
        loans: impl FnOnce() -> &'a [Loan; N],
    ) {
        let mut entries = lock(&self.0);
        if entries.state == State::New {
            entries.state = if prepare() { State::Open } else { State::Closed };
        }
        if entries.state == State::Closed {
            return;
        }
        let at = Self::place(lent.stag);
        let (stag, before) = entries.lent[at];
        let rights = if stag == lent.stag { before | lent.rights } else { lent.rights };
        if (stag, before) != (lent.stag, rights) {
            entries.lent[at] = (lent.stag, rights);
            loans()[at].begin(Lent { rights, ..lent });
            gate.open();
        }
    }

    /// Revokes a key: nobody begins to use it from now on, and [`Hold::is_of`] says whether the peer does,
    /// also where another key has its place by now or the connection has ended.
    pub(crate) fn revoke<'a>(&self, stag: u32, loans: impl FnOnce() -> &'a [Loan; N]) {
        let mut entries = lock(&self.0);
        let at = Self::place(stag);
        if entries.state == State::Open && entries.lent[at].0 == stag {
            entries.lent[at] = (NOTHING, 0);
            loans()[at].end();
        }
    }

    /// The connection ends: revokes all keys at once, and none is lent from now on.
    pub(crate) fn close(&self, gate: &Gate) {
        let mut entries = lock(&self.0);
        if entries.state == State::Open {
            gate.close();
        }
        entries.state = State::Closed;
    }
}
