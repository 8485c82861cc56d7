// SPDX-License-Identifier: BSD-3-Clause
//! Direct copies: the initiator executes an operation itself, in the memory of the peer, with one system
//! call; with none if both memories are those of sealed memfds ([`imported`]). In such memory it also
//! executes atomic operations and atomic writes; "copy" below includes these. If the kernel does not permit
//! the initiator to access the memory of the peer ([`Reach`]), only that of memfds is accessed directly.
//!
//! Each end exports to its peer the keys that the peer has already used successfully over the ring: the table
//! has then made all checks for this connection. So the first operation with a key goes over the ring, and a
//! peer without a key learns nothing. Exported keys are in the shared memory ([`crate::progress::export`]);
//! an importer copies an entry and checks the copy.
//!
//! A key is revoked by ibv_dereg_mr(3), ibv_rereg_mr(3) and the end of the connection. The two calls then
//! wait until no copy with it is in progress, for at most 5 s: a peer stopped in the middle of a copy resumes
//! the copy when it is continued. A peer that has ended, or has executed another program, no longer copies,
//! so they do not wait for it. The end of a connection never waits, as it may run on the engine; if the peer
//! is using a key then, the owner stays in the list of exporters, where a deregistration finds it. The engine
//! removes it once the copy is complete or the peer has ended: the socket of a killed process closes before
//! the kernel reports that the process has ended.
//!
//! Copies are ordered with the bytes of the ring: a copy begins only when the peer has acted on everything
//! put there before ([`Rings::is_settled`]). This code does not wait for that; a thread that posts may have
//! waited before ([`crate::policy::settle`]).

mod imported;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use imported::{Import, Imports};

use super::process::{Peer, Proof, RESERVED, Reach};
use super::ring::Rings;
use super::shared::{EXPORTED_KEYS, ExportPage};
use crate::config;
use crate::memory::{self, Exporter, Grant};
use crate::progress::engine::Engine;
use crate::progress::export::{ExportedKey, KeyInUse, Ledger};
use crate::progress::source::Source;
use crate::sys::{Errno, Process};
use crate::{NOTICE, unix};
use transport::access::{Access, Exported, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use transport::direct::{MAX_TOGETHER, WordAccess};

/// The interval after which the engine checks again whether the peer of an ended connection still uses a key.
const RELEASE_CHECK: Duration = Duration::from_secs(1);

/// The keys that this end exports to its peer.
pub(super) struct Owner {
    rings: Arc<Rings>,
    peer: Arc<Peer>,
    ledger: Ledger<EXPORTED_KEYS>,
    /// The number of revocations: after one, the last exported key may have to be exported again.
    revoked: AtomicU32,
    /// A deregistration has found that the peer process has executed another program, so it uses no key.
    has_executed: AtomicBool,
}

impl Owner {
    fn own(&self) -> &ExportPage {
        self.rings.shared.export_page(self.rings.ends().0)
    }

    fn exported_keys(&self) -> &[ExportedKey; EXPORTED_KEYS] {
        self.rings.shared.exported_keys(self.rings.ends().0)
    }

    fn export(&self, exported: Exported) {
        let prepare = || self.rings.shared.prepare_exported_keys(self.rings.ends().0).is_ok();
        if self.ledger.export(exported, self.own().gate(), prepare, || self.exported_keys()) {
            self.own().changed();
        }
    }

    /// Waits until the peer has finished its copy or cannot copy any more. False if that takes longer than
    /// `until`.
    fn wait(&self, until: Instant, is_held: impl Fn(&KeyInUse) -> bool) -> bool {
        let mut tries = 0u32;
        while is_held(self.own().hold()) {
            tries = tries.saturating_add(1);
            if tries < 100 {
                std::thread::yield_now();
                continue;
            }
            if !self.peer.has_memory(Duration::from_millis(1)) {
                self.has_executed.store(true, Ordering::Relaxed);
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
        }
        true
    }

    /// Releases the descriptors and the shared memory once the peer uses no key.
    fn retire(self: Arc<Self>) {
        if memory::remove_exporter(&self) {
            return;
        }
        // Without an engine, the next connection that begins or ends releases it.
        if let Ok(engine) = Engine::get() {
            engine.schedule(RELEASE_CHECK, &(self as Arc<dyn Source>)).detach();
        }
    }
}

impl Source for Owner {
    /// Not called: no descriptor belongs to this source.
    fn ready(self: Arc<Self>, _events: u32) {}

    fn timeout(self: Arc<Self>) {
        self.retire();
    }
}

impl Exporter for Owner {
    fn revoke(&self, stag: u32, until: Instant) -> bool {
        if self.rings.is_left_behind() {
            return true;
        }
        if self.ledger.revoke(stag, || self.exported_keys()) {
            // The peer may have mapped the memory.
            self.own().changed();
            self.rings.wake_reader();
        }
        self.revoked.fetch_add(1, Ordering::Release);
        let began = Instant::now();
        let finished = self.wait(until, |hold| hold.is_of(stag));
        if !finished && until > began {
            let (pid, waited) = (self.peer.pid(), (until - began).as_secs());
            log::warn!(
                "process {pid} is still copying with memory key {stag:#x} after {waited} s; is it stopped?"
            );
        }
        finished
    }

    fn is_released(&self) -> bool {
        // This runs on the engine thread, so it does not read the memory of the peer: that could block on its
        // mmap lock.
        self.rings.is_left_behind()
            || !self.own().hold().is_taken()
            || self.has_executed.load(Ordering::Relaxed)
            || self.peer.has_ended(Duration::ZERO)
    }
}

/// The direct copies of a connection.
pub(super) struct DirectCopy {
    owner: Arc<Owner>,
    peer: Arc<Peer>,
    own: Process,
    /// The last export: key, rights, and [`Owner::revoked`] then.
    last: (u32, u32, u32),
    imports: Imports,
    /// Whether the last copy needed no system call.
    was_mapped: bool,
}

/// The proof of the identity of this process, for direct copies.
pub(super) fn proof() -> Option<Proof> {
    if config::get().direct_copy { Proof::own().ok() } else { None }
}

impl DirectCopy {
    /// `None` if direct copies are not possible; the reason is logged.
    pub(super) fn open(rings: &Arc<Rings>) -> Option<Self> {
        if !config::get().direct_copy {
            return None;
        }
        Self::try_open(rings)
            .inspect_err(|why| {
                log::info!(target: NOTICE, "a connection on this host copies through shared memory only: {why}");
            })
            .ok()
    }

    fn try_open(rings: &Arc<Rings>) -> Result<Self, String> {
        let pid = unix::peer_process(rings.notify_socket()).ok_or("the peer is in another PID namespace")?;
        let proof = rings.shared.export_page(rings.ends().1).proof();
        if proof.addr == 0 || rings.shared.export_page(rings.ends().0).proof().addr == 0 {
            return Err("one end does not permit direct copies".into());
        }
        let error = |e: Errno| std::io::Error::from_raw_os_error(e).to_string();
        let peer = Peer::meet(pid, proof).map_err(|e| match e {
            libc::EPERM | libc::EACCES | libc::ENOSYS => {
                format!("the kernel does not permit access to process {pid}: {}", error(e))
            }
            e => format!("process {pid} is not the peer, or cannot be accessed: {}", error(e)),
        })?;
        let own = Process::own();
        if peer.reach() == Reach::Files {
            if !may_copy_within(own) {
                return Err("the kernel permits neither process_vm_readv(2) nor process_vm_writev(2)".into());
            }
            log::info!(
                target: NOTICE,
                "the kernel does not permit access to the memory of process {pid} (ptrace(2); Yama's ptrace_scope): \
                 only memory of sealed memfds is accessed directly"
            );
        }
        let owner = Arc::new(Owner {
            rings: rings.clone(),
            peer: peer.clone(),
            ledger: Ledger::new(),
            revoked: AtomicU32::new(0),
            has_executed: AtomicBool::new(false),
        });
        memory::add_exporter(&owner).map_err(error)?;
        rings.copy_directly(Some(peer.reach()));
        Ok(Self { owner, peer, own, last: (0, 0, 0), imports: Imports::default(), was_mapped: false })
    }

    /// The connection ends: the peer begins no further copy.
    pub(super) fn close(self) {
        self.owner.rings.copy_directly(None);
        if !self.owner.rings.is_left_behind() {
            self.owner.ledger.close(self.owner.own().gate());
        }
        self.owner.retire();
    }

    /// The peer has made an access over the ring, and the table has granted it: exports the key.
    pub(super) fn export(&mut self, access: Access, grant: &Grant) {
        let remote = access.rights & (REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC);
        let this = (access.stag, remote, self.owner.revoked.load(Ordering::Acquire));
        if remote == 0 || remote != access.rights || this == self.last {
            return;
        }
        self.last = this;
        if let Some(exported) = grant.export(access) {
            self.owner.export(exported);
        }
    }

    /// Unmaps memory of the peer whose keys it has revoked or replaced.
    #[inline]
    pub(super) fn forget_revoked(&mut self) {
        if self.owner.rings.exports_have_changed() {
            self.forget_changed();
        }
    }

    #[cold]
    #[inline(never)]
    fn forget_changed(&mut self) {
        let Self { owner, imports, .. } = self;
        owner.rings.note_changes();
        imports.forget_revoked(|at| Some(owner.rings.entry(at)?.0));
    }

    /// Whether the peer exports a key for this access. An atomic operation also requires that its memory can
    /// be mapped.
    pub(super) fn may_access(&self, remote: Access) -> bool {
        match (self.peer.reach(), remote.rights & REMOTE_ATOMIC) {
            (Reach::Memory, 0) => self.owner.rings.is_exported(remote),
            _ => self.maps(remote),
        }
    }

    /// Whether it is worth trying to copy to or from this memory of the peer.
    #[inline]
    pub(super) fn is_within_reach(&self, remote: Access) -> bool {
        self.peer.reach() == Reach::Memory || self.maps(remote)
    }

    /// Whether the peer exports a key for this access, to memory that is mapped or can probably be.
    pub(super) fn maps(&self, remote: Access) -> bool {
        let Some((version, exported)) = self.owner.rings.exported(remote.stag) else { return false };
        exported.file.is_some()
            && exported.find(remote).is_some()
            && !matches!(self.imports.find(version, &exported), Import::Unmappable)
    }

    /// Copies between `local`, whose first element is unused, and the memory of the peer: the first `len`
    /// bytes of `remote`, which is the total length of the other elements. All accesses have the key and the
    /// rights of the first one. Returns the number of bytes copied.
    ///
    /// Without `backed` the kernel copies, also to and from memory that is mapped: `local` may be unmapped.
    ///
    /// # Safety
    ///
    /// For a read the caller must hold grants to write all of `local` but the first element. With `backed`,
    /// loads and stores in all of `local` but the first element must not fault.
    #[inline(always)]
    pub(super) unsafe fn copy(
        &mut self,
        local: &mut [libc::iovec],
        remote: &[Access],
        len: usize,
        backed: bool,
    ) -> usize {
        let Some(&Access { stag, .. }) = remote.first() else { return 0 };
        let reach = self.peer.reach();
        self.was_mapped = false;
        let copied = match self.take(stag, backed || reach == Reach::Files) {
            None => 0,
            Some((version, exported)) => match (self.imports.find(version, &exported), backed, reach) {
                (Import::Mapped(view), true, _) => {
                    self.was_mapped = true;
                    // SAFETY: the caller guarantees that `local` does not fault, and the grants.
                    unsafe { view.copy(&local[1..], remote, len) }
                }
                // SAFETY: the caller holds the grants.
                (Import::Mapped(view), false, Reach::Files) => unsafe {
                    view.copy_by_kernel(self.own, &local[1..], remote, len)
                },
                // SAFETY: the caller holds the grants. If the peer is this process, it exports the ranges of
                // a write, and revocation waits while the key is taken.
                (_, _, Reach::Memory) => unsafe { copy_by_kernel(&self.peer, local, &exported, remote, len) },
                (_, _, Reach::Files) => 0,
            },
        };
        self.hold().release();
        copied
    }

    /// Accesses a word of memory of the peer that this process can map, and returns the previous number; of a
    /// store, the stored one. `None`: nothing was done.
    pub(super) fn access_word(&mut self, remote: Access, word: WordAccess) -> Option<u64> {
        let accessed = self.take(remote.stag, true).and_then(|(version, exported)| {
            match self.imports.find(version, &exported) {
                Import::Mapped(view) => view.access_word(remote, word),
                Import::Unknown | Import::Unmappable => None,
            }
        });
        self.hold().release();
        accessed
    }

    /// Whether the last copy needed no system call.
    #[inline]
    pub(super) fn was_mapped(&self) -> bool {
        self.was_mapped
    }

    /// Where this end publishes the key that it uses.
    #[inline]
    fn hold(&self) -> &KeyInUse {
        let rings = &*self.owner.rings;
        rings.shared.export_page(rings.ends().1).hold()
    }

    /// Takes a key, which the caller must release. Returns the version of its entry, and what the peer
    /// exports with it. `maps`: maps the memory, unless that was tried before.
    #[inline]
    fn take(&mut self, stag: u32, maps: bool) -> Option<(u64, Exported)> {
        // The copies of single posts are not followed by a step.
        self.forget_revoked();
        self.hold().take(stag);
        let (version, exported) = self.owner.rings.exported(stag)?;
        if let (true, Some(file)) = (maps, exported.file) {
            if let Import::Unknown = self.imports.find(version, &exported) {
                let writable = exported.rights & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
                let file = self.peer.memfd(file.descriptor, file.inode, writable).ok();
                // Revocation does not wait for the mapping.
                self.hold().release();
                self.imports.add(version, exported, file);
                self.hold().take(stag);
                return self.owner.rings.exported(stag);
            }
        }
        Some((version, exported))
    }
}

/// Whether the kernel copies from one place of this process to another: a sandbox may forbid that.
fn may_copy_within(own: Process) -> bool {
    let (mut from, mut to) = (1u8, 0u8);
    let piece = |at: *mut u8| libc::iovec { iov_base: at.cast(), iov_len: 1 };
    let (from, to) = (piece(&raw mut from), piece(&raw mut to));
    // SAFETY: the ranges are the two variables, which live as long as this function, without references.
    let write = |id| unsafe { libc::process_vm_writev(id, &raw const from, 1, &raw const to, 1, 0) };
    // SAFETY: as above.
    let read = |id| unsafe { libc::process_vm_readv(id, &raw const from, 1, &raw const to, 1, 0) };
    own.copy(write).is_ok() && own.copy(read).is_ok()
}

/// As [`DirectCopy::copy`], with a system call.
///
/// # Safety
///
/// As for [`DirectCopy::copy`]; if the peer is this process, the key must be taken.
#[inline(always)]
unsafe fn copy_by_kernel(
    peer: &Peer,
    local: &mut [libc::iovec],
    exported: &Exported,
    remote: &[Access],
    len: usize,
) -> usize {
    let mut ranges = ArrayVec::<_, { MAX_TOGETHER + 1 }>::from_iter([RESERVED]);
    let located = within(remote, len).all(|access| {
        let found = exported.find(access).map(|addr| addr as *mut libc::c_void);
        found.is_some_and(|iov_base| ranges.try_push(libc::iovec { iov_base, iov_len: access.len }).is_ok())
    });
    if !located {
        return 0;
    }
    // SAFETY: the caller holds grants to write the local ranges of a read. If the peer is this process, the
    // ranges of a write are exported, and not revoked as long as the key is taken.
    let copied = unsafe {
        match remote[0].rights & REMOTE_READ {
            0 => peer.write(local, &mut ranges),
            _ => peer.read(local, &mut ranges),
        }
    };
    copied.unwrap_or(0)
}

/// The first `len` bytes of accesses with the key and the rights of the first one.
#[inline]
fn within(remote: &[Access], mut len: usize) -> impl Iterator<Item = Access> + '_ {
    remote.iter().map(move |access| {
        let access =
            Access { stag: remote[0].stag, rights: remote[0].rights, len: access.len.min(len), ..*access };
        len -= access.len;
        access
    })
}

#[cfg(test)]
mod tests;
