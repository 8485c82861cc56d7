// SPDX-License-Identifier: BSD-3-Clause
//! Keys that one end of a connection lends to the other, in memory that two processes share: the borrower copies to and from the memory of the
//! owner by itself, without the owner's doing.
//!
//! The owner may take back a key at any time, and afterwards no copy with that key is under way, nor will be. Two sides, each with a full
//! barrier between its write and its look at the other's, as with a [`super::doorbell::Doorbell`]. The borrower first says with which key it
//! copies ([`Hold::take`]), then looks whether that is lent ([`Loan::read`]), copies, and lets go. The owner marks the key as taken back
//! ([`Loan::end`]), then waits until the borrower does not hold it ([`Hold::is_of`]). So either the borrower finds that it is not lent, or the
//! owner sees it at work. [`Gate`] does the same for all keys of a connection at once.
//!
//! A borrower is stopped or killed wherever it is: it then holds the key still. Its owner waits while it is stopped, for it goes on where it was,
//! and asks the kernel whether it is gone.
//!
//! The words may have any value at any time, as the peer can write to them. What a borrower reads is checked before it is used; what
//! an owner reads can make it wait, no more.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::access::Lent;

/// A key that is lent.
#[repr(C)]
pub(crate) struct Loan {
    /// 0: never used. Odd: nothing is lent. It changes with each change of the others, and comes back to no value.
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

    /// The owner lends a key, in the place of the one that was lent here before. That one may still be in use.
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

    /// The owner takes it back: nobody begins to use it from now on, and [`Hold::is_of`] says whether somebody does.
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
