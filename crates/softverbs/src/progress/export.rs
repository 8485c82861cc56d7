// SPDX-License-Identifier: BSD-3-Clause
//! Keys that one end of a connection exports to the other, in memory that both processes share: the importer
//! copies to and from the memory of the owner without a call of the owner.
//!
//! The owner may revoke a key at any time; when revocation has finished, no copy with that key is in
//! progress, and none will begin. Each side has a full barrier between its write and its read of the other
//! side's word, as in [`super::wakeup::Wakeup`]. The importer first publishes the key that it copies with
//! ([`KeyInUse::take`]), then checks that the key is exported ([`ExportedKey::read`]), copies, and clears the
//! word. The owner marks the key as revoked ([`ExportedKey::end`]), then waits until the importer does not
//! use it ([`KeyInUse::is_of`]). So either the importer finds that the key is not exported, or the owner sees
//! that it is in use. [`ExportGate`] does the same for all keys of a connection at once.
//!
//! On the owner's side there are three threads: one exports, one deregisters a region, one ends the
//! connection. [`Ledger`] orders them with a lock. The end of the connection closes the gate before others
//! find the ledger closed, so a deregistration that finds it closed checks only the key in use.
//!
//! An importer that is stopped or killed in the middle of a copy still holds its key. A stopped one resumes
//! the copy when it is continued, so the owner cannot reuse the memory; the kernel tells whether a process
//! has ended.
//!
//! The peer can write any value to these words at any time. An importer checks values before it uses them; a
//! value that an owner reads can only make it wait.

use super::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence, lock};
use transport::access::{Exported, FileOffset};

/// An entry for an exported key.
#[repr(C)]
pub(crate) struct ExportedKey {
    /// 0: never used. Odd: nothing is exported. Increases with each change of the other fields.
    version: AtomicU64,
    stag: AtomicU32,
    rights: AtomicU32,
    start: AtomicU64,
    len: AtomicU64,
    delta: AtomicU64,
    /// The descriptor of the owner plus one, 0 if the memory is not that of a file, the inode, and the
    /// offset.
    file: [AtomicU64; 3],
}

impl ExportedKey {
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let (stag, rights) = (AtomicU32::new(0), AtomicU32::new(0));
        let file = [zero(), zero(), zero()];
        Self { version: zero(), stag, rights, start: zero(), len: zero(), delta: zero(), file }
    }

    /// Called by the owner: exports a key. The entry may have had another key that is still in use.
    pub(crate) fn begin(&self, exported: Exported) {
        let version = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        self.stag.store(exported.stag, Ordering::Relaxed);
        self.rights.store(exported.rights, Ordering::Relaxed);
        self.start.store(exported.start, Ordering::Relaxed);
        self.len.store(exported.len, Ordering::Relaxed);
        self.delta.store(exported.delta, Ordering::Relaxed);
        let file =
            exported.file.map_or([0; 3], |file| [u64::from(file.descriptor) + 1, file.inode, file.offset]);
        self.file.iter().zip(file).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }

    /// Called by the owner: revokes the key. No copy with it begins from now on; [`KeyInUse::is_of`] tells
    /// whether one is in progress. Returns whether the peer may have mapped the memory.
    pub(crate) fn end(&self) -> bool {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | 1, Ordering::Relaxed);
        self.file[0].load(Ordering::Relaxed) != 0
    }

    /// Called by the importer: the exported key, and a number that changes with each change of the entry.
    /// Before a copy this must be called after [`KeyInUse::take`].
    #[inline]
    pub(crate) fn read(&self) -> Option<(u64, Exported)> {
        let version = self.version.load(Ordering::Acquire);
        if version == 0 || version % 2 == 1 {
            return None;
        }
        let [descriptor, inode, offset] = self.file.each_ref().map(|word| word.load(Ordering::Relaxed));
        let exported = Exported {
            stag: self.stag.load(Ordering::Relaxed),
            rights: self.rights.load(Ordering::Relaxed),
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            delta: self.delta.load(Ordering::Relaxed),
            file: descriptor.checked_sub(1).and_then(|descriptor| {
                Some(FileOffset { descriptor: u32::try_from(descriptor).ok()?, inode, offset })
            }),
        };
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some((version, exported))
    }
}

/// The key with which the importer is copying. Only one thread at a time copies.
#[repr(transparent)]
pub(crate) struct KeyInUse(AtomicU32);

/// The value without a key in use; no key has it.
const NOTHING: u32 = 0;

impl KeyInUse {
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(NOTHING))
    }

    /// Called by the importer: it will use this key, if it is exported.
    pub(crate) fn take(&self, stag: u32) {
        // A thread that reads this value knows that the previous key is not in use, and sees the effects of
        // its copies.
        self.0.store(stag, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Called by the importer: its copy is complete.
    pub(crate) fn release(&self) {
        self.0.store(NOTHING, Ordering::Release);
    }

    /// Called by the owner: whether the importer may be using this key.
    pub(crate) fn is_of(&self, stag: u32) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire) == stag
    }

    /// Called by the owner: whether the importer may be using any key.
    pub(crate) fn is_taken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire) != NOTHING
    }
}

/// Whether an owner exports anything.
#[repr(transparent)]
pub(crate) struct ExportGate(AtomicU32);

impl ExportGate {
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Called by the owner when it exports the first key.
    pub(crate) fn open(&self) {
        self.0.store(1, Ordering::Release);
    }

    /// Called by the owner: no copy begins from now on; [`KeyInUse::is_taken`] tells whether one is in
    /// progress.
    pub(crate) fn close(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Called by the importer. Before a copy this must be called after [`KeyInUse::take`].
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }
}

/// The keys that an owner has exported on a connection, in `N` entries.
pub(crate) struct Ledger<const N: usize>(Mutex<Entries<N>>);

struct Entries<const N: usize> {
    exported: [Option<Exported>; N],
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
        Self(Mutex::new(Entries { exported: [None; N], state: State::New }))
    }

    /// The index of the entry for a key.
    pub(crate) fn place(stag: u32) -> usize {
        stag as usize % N
    }

    /// Exports a key with these rights, in addition to those already exported for the same memory. While a
    /// region is re-registered, old and new rights may differ; those of the old memory must not apply to the
    /// new one. `prepare` allocates the memory of `exported_keys` before the first export; if it fails,
    /// nothing is exported. Returns whether that replaces what the peer may have mapped.
    pub(crate) fn export<'a>(
        &self,
        exported: Exported,
        gate: &ExportGate,
        prepare: impl FnOnce() -> bool,
        exported_keys: impl FnOnce() -> &'a [ExportedKey; N],
    ) -> bool {
        let mut entries = lock(&self.0);
        if entries.state == State::New {
            entries.state = if prepare() { State::Open } else { State::Closed };
        }
        if entries.state == State::Closed {
            return false;
        }
        let at = Self::place(exported.stag);
        let before = entries.exported[at];
        let united = match before {
            Some(before) if before == (Exported { rights: before.rights, ..exported }) => {
                Exported { rights: before.rights | exported.rights, ..exported }
            }
            _ => exported,
        };
        if before == Some(united) {
            return false;
        }
        entries.exported[at] = Some(united);
        exported_keys()[at].begin(united);
        gate.open();
        before.is_some()
    }

    /// Revokes a key: no copy with it begins from now on; [`KeyInUse::is_of`] tells whether one is in
    /// progress, even if another key has the entry now or the connection has ended. Returns whether the peer
    /// may have mapped the memory.
    pub(crate) fn revoke<'a>(&self, stag: u32, exported_keys: impl FnOnce() -> &'a [ExportedKey; N]) -> bool {
        let mut entries = lock(&self.0);
        let at = Self::place(stag);
        let has_key = entries.exported[at].is_some_and(|exported| exported.stag == stag);
        if entries.state == State::Open && has_key {
            entries.exported[at] = None;
            return exported_keys()[at].end();
        }
        false
    }

    /// The connection ends: revokes all keys at once, and exports none from now on.
    pub(crate) fn close(&self, gate: &ExportGate) {
        let mut entries = lock(&self.0);
        if entries.state == State::Open {
            gate.close();
        }
        entries.state = State::Closed;
    }
}
