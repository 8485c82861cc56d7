// SPDX-License-Identifier: BSD-3-Clause
//! A world that records what a connection does, for unit tests, which script the rest.

use std::collections::VecDeque;

use super::memory::{Placement, Region, Regions, State};
use super::queues::{Queues, WorkQueue};
use super::world::{Parts, World};
use crate::access::{
    Access, Bind, Denied, FLUSH_GLOBAL, FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ,
    REMOTE_WRITE,
};
use crate::direct::{Part, WordAccess};
use crate::host::{Durable, Ended, Served};
use crate::units::Micros;
use crate::wr::Completion;

/// The region that the tests use: [`BASE`] to `BASE + SIZE`, with all rights.
pub const STAG: u32 = 0x100;
/// The same bytes as a region without access rights: only sends of this process may use it.
pub const BARE: u32 = 0x200;
/// The same bytes as a region of another protection domain.
pub const FOREIGN: u32 = 0x300;
/// The address of the memory.
pub const BASE: u64 = 0x1_0000;
/// Its length.
pub const SIZE: usize = 0x1_0000;

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The link took these bytes, and whether they end a segment.
    Sent(Vec<u8>, bool),
    /// Bytes were placed by a batch.
    Placed(Access),
    /// Bytes were placed straight from the link.
    PlacedDirectly(Access),
    /// So many bytes of these ranges were transferred by direct copy.
    Transferred(Vec<Access>, usize),
    /// A word of the peer's memory was accessed directly.
    Accessed(Access, WordAccess),
    /// A batch was carried out.
    Settled,
    /// A word was changed.
    Changed(Access),
    /// A word was stored.
    Stored(Access),
    /// A flush to persistence was requested for the request with this number.
    Flushed(Access, u64),
    /// A window was bound.
    Bound(Bind),
    /// A window was invalidated.
    Invalidated(u32),
    /// A request was completed.
    SendDone(Completion),
    /// A receive was completed.
    RecvDone(Completion),
    /// An unsignalled request was released.
    Released,
    /// A request of a queue pair without acknowledgements failed.
    SendFailed,
    /// The connection was established.
    Established,
    /// It has ended.
    Ended,
    /// It has let go of the link, and the last bytes for it.
    Closed(Option<Vec<u8>>),
}

/// Number and status of what completed in a work queue, or in both.
pub fn completed(calls: &[Call], queue: Option<WorkQueue>) -> Vec<(u64, u32)> {
    let of = |call: &Call| match call {
        Call::SendDone(c) if queue != Some(WorkQueue::Receive) => Some((c.wr_id, c.status)),
        Call::RecvDone(c) if queue != Some(WorkQueue::Send) => Some((c.wr_id, c.status)),
        _ => None,
    };
    calls.iter().filter_map(of).collect()
}

/// The recorder, with a link that the test scripts.
pub struct Recorder<L> {
    /// The time.
    pub now: Micros,
    /// The calls that were not yet checked.
    pub calls: Vec<Call>,
    /// Registered memory.
    pub memory: Regions,
    /// What is posted, and room for completions.
    pub queues: Queues,
    batch: Vec<Placement>,
    /// The link.
    pub link: L,
    /// The connection has let go of the link.
    pub closed: bool,
    /// How many bytes the next direct copies copy; 0 if there is none.
    pub transfers: VecDeque<usize>,
    /// The previous numbers of the next words that are accessed directly; none if they are not.
    pub words: VecDeque<u64>,
    /// The host predicts that it makes direct copies.
    pub may_transfer: bool,
    /// When flushes are durable.
    pub durable: Durable,
    /// The result of binding and invalidating windows.
    pub windows: Result<(), Denied>,
    /// How many calls there were when the connection began to end.
    pub calls_before_end: Option<usize>,
    /// How the connection has ended.
    pub ended: Option<Ended>,
    /// Operations and bytes of the peer: writes, reads, atomic operations.
    pub served: [(u64, u64); 3],
}

/// Bytes that differ from those beside them. By copies, since Miri takes long for each byte.
fn contents() -> Vec<u8> {
    let mut memory = (0..251).collect::<Vec<u8>>().repeat(SIZE.div_ceil(251));
    memory.truncate(SIZE);
    memory
}

impl<L> Recorder<L> {
    /// A world with this link.
    pub fn new(link: L) -> Self {
        let all = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_GLOBAL | FLUSH_PERSISTENT;
        let of = |stag, rights, state| Region { stag, addr: BASE, len: SIZE, rights, state };
        let table =
            vec![of(STAG, all, State::Mapped), of(BARE, 0, State::Mapped), of(FOREIGN, all, State::Foreign)];
        Self {
            now: 1_000_000,
            calls: Vec::new(),
            memory: Regions::new(BASE, contents(), table),
            queues: Queues::new(usize::MAX, usize::MAX, false),
            batch: Vec::new(),
            link,
            closed: false,
            transfers: VecDeque::new(),
            words: VecDeque::new(),
            may_transfer: false,
            durable: Durable::Now,
            windows: Ok(()),
            calls_before_end: None,
            ended: None,
            served: [(0, 0); 3],
        }
    }

    /// The bytes at an address.
    pub fn bytes(&self, addr: u64, len: usize) -> &[u8] {
        self.memory.at(addr, len)
    }

    /// The completions since the last look, of both queues; other calls are forgotten.
    pub fn completions(&mut self) -> Vec<Completion> {
        let calls = std::mem::take(&mut self.calls).into_iter();
        calls
            .filter_map(|call| match call {
                Call::SendDone(completion) | Call::RecvDone(completion) => Some(completion),
                _ => None,
            })
            .collect()
    }

    /// Of those: the id of the request and the status of each.
    pub fn statuses(&mut self) -> Vec<(u64, u32)> {
        self.completions().into_iter().map(|completion| (completion.wr_id, completion.status)).collect()
    }
}

impl<L> World for Recorder<L> {
    type Memory = Regions;

    fn parts(&mut self) -> Parts<'_, Regions> {
        Parts { memory: &mut self.memory, queues: &mut self.queues, batch: &mut self.batch }
    }

    fn time(&mut self) -> Micros {
        self.now
    }

    fn uses(&self, call: &str) {
        assert!(!self.closed, "a connection that has let go of its link {call}");
    }

    fn placed(&mut self, access: Access, _bytes: &[u8], directly: bool) {
        self.calls.push(if directly { Call::PlacedDirectly(access) } else { Call::Placed(access) });
    }

    fn settled(&mut self) {
        self.calls.push(Call::Settled);
    }

    fn changed(&mut self, access: Access, _original: u64, _now: u64) {
        self.calls.push(Call::Changed(access));
    }

    fn stored(&mut self, access: Access, _word: [u8; 8]) {
        self.calls.push(Call::Stored(access));
    }

    fn flush(&mut self, read: Access, number: u64) -> Durable {
        self.calls.push(Call::Flushed(read, number));
        self.durable
    }

    fn bind_window(&mut self, window: Bind) -> Result<(), Denied> {
        self.calls.push(Call::Bound(window));
        self.windows
    }

    fn invalidate_window(&mut self, stag: u32) -> Result<(), Denied> {
        self.calls.push(Call::Invalidated(stag));
        self.windows
    }

    fn completes(&mut self, queue: WorkQueue, completion: &Completion) {
        self.calls.push(match queue {
            WorkQueue::Send => Call::SendDone(*completion),
            WorkQueue::Receive => Call::RecvDone(*completion),
        });
    }

    fn releases(&mut self) {
        self.calls.push(Call::Released);
    }

    fn serves(&mut self, operation: Served, completed: u64, bytes: u64) {
        let (operations, sum) = &mut self.served[operation as usize];
        (*operations, *sum) = (*operations + completed, *sum + bytes);
    }

    fn is_established(&mut self) {
        self.calls.push(Call::Established);
    }

    fn is_ending(&mut self) {
        self.calls_before_end = Some(self.calls.len());
    }

    fn has_ended(&mut self, how: Ended) {
        self.ended = Some(how);
        self.calls.push(Call::Ended);
    }

    fn copy_directly(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize {
        let bytes = remote.iter().map(|access| access.len).sum::<usize>();
        assert_eq!(local.iter().map(Part::byte_len).sum::<usize>(), bytes);
        assert!(
            remote.iter().all(|access| (access.stag, access.rights) == (remote[0].stag, remote[0].rights))
        );
        let n = self.transfers.pop_front().unwrap_or(0);
        self.calls.push(Call::Transferred(remote.to_vec(), n));
        n
    }

    fn access_directly(&mut self, remote: Access, word: WordAccess) -> Option<u64> {
        let original = self.words.pop_front();
        original.inspect(|_| self.calls.push(Call::Accessed(remote, word)))
    }

    fn may_copy_directly(&self, _remote: Access) -> bool {
        self.may_transfer
    }
}
