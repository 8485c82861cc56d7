// SPDX-License-Identifier: BSD-3-Clause
//! Requests at the peer, and their responses: each is carried out once and in order, with its bytes, where
//! they belong.

use super::checker::{Change, Checker, Posted};
use super::plan::Plan;
use crate::access::{Access, LOCAL_WRITE, REMOTE_WRITE};
use crate::sim::memory::{self, PERSISTENT, PERSISTENT_LEN, READABLE, SINKS};
use crate::testing::memory::Regions;
use crate::wr::{Op, RecvWr};

impl Checker {
    /// Whether the request at `executing` is carried out, as far as can be seen.
    fn is_executed(&self, me: usize, posted: &Posted) -> bool {
        let (model, peer) = (&self.sides[me], &self.sides[1 - me]);
        match posted.wr.op {
            Op::Read | Op::BindMw | Op::LocalInv => true,
            Op::CompareSwap | Op::FetchAdd | Op::AtomicWrite | Op::Flush => model.changed,
            Op::Write => model.executed_bytes == posted.wr.len as usize,
            _ => {
                let is_invalidated = posted.wr.op != Op::SendWithInv || model.invalidated;
                let has_all = model.executed_bytes == posted.wr.len as usize;
                has_all && is_invalidated && peer.has_receive(posted.number)
            }
        }
    }

    /// Skips requests that have been executed.
    pub(super) fn skip_silent(&mut self, me: usize) {
        while let Some(posted) = self.sides[me].requests.get(self.sides[me].executing) {
            if !self.is_executed(me, posted) {
                return;
            }
            let is_seen = !posted.wr.is_read() && (posted.wr.len > 0 || posted.is_message());
            let now = self.now;
            let model = &mut self.sides[me];
            let index = model.executing;
            model.requests[index].executed_at = is_seen.then_some(now);
            model.executing += 1;
            (model.executed_bytes, model.changed, model.invalidated) = (0, false, false);
        }
    }

    /// The request of `me` that the peer carries out now.
    fn executing(&mut self, me: usize, plan: &Plan, is_it: impl Fn(&Posted) -> bool) -> &Posted {
        self.skip_silent(me);
        self.now += 1;
        let (model, peer) = (&self.sides[me], &self.sides[1 - me]);
        let index = model.executing;
        let Some(posted) = model.requests.get(index) else {
            panic!("the peer of side {me} carries out what was not posted");
        };
        assert!(is_it(posted), "the peer of side {me} carries out something else than {posted:?}");
        assert!(!peer.ended, "the peer of side {me} carries out {posted:?} after its end");
        let right = posted.right();
        assert!(plan.sides[1 - me].path.access & right == right, "{posted:?} is not permitted");
        let fenced = posted.wr.fence && model.executed_bytes == 0;
        assert!(!fenced || self.answered_before(me, index), "{posted:?} overtakes a response");
        posted
    }

    /// The operation of the request of `me` that is carried out next.
    pub(super) fn next_op(&mut self, me: usize) -> Option<Op> {
        self.skip_silent(me);
        let model = &self.sides[me];
        Some(model.requests.get(model.executing)?.wr.op)
    }

    /// How many bytes are left, in one place, of the request of `me` that is carried out next, or of the
    /// response that arrives next.
    pub(super) fn left(&mut self, me: usize, is_read: bool) -> usize {
        self.skip_silent(me);
        let model = &mut self.sides[me];
        if !is_read {
            let len = model.requests.get(model.executing).map_or(0, |posted| posted.wr.len as usize);
            return len - model.executed_bytes;
        }
        while model.requests.get(model.answering).is_some_and(|one| !one.wr.returns_data()) {
            model.answering += 1;
        }
        let entries = model.requests.get(model.answering).map(|posted| memory::entries(&posted.wr));
        let entry = entries.and_then(|entries| memory::entry_at(&entries, model.answered_bytes));
        entry.map_or(0, |(_, _, left)| left)
    }

    /// Whether all requests before this one whose responses have bytes have them.
    fn answered_before(&self, me: usize, index: usize) -> bool {
        let model = &self.sides[me];
        model.requests[model.answering.min(index)..index].iter().all(|one| !one.wr.returns_data())
    }

    /// Bytes were placed at `host`.
    pub(super) fn placed(
        &mut self,
        host: usize,
        access: Access,
        bytes: &[u8],
        memories: &[Regions; 2],
        plan: &Plan,
    ) {
        if access.rights == LOCAL_WRITE && access.stag == memory::stag(host, SINKS) {
            return self.response_placed(host, access, bytes, memories);
        }
        let me = 1 - host;
        let is_write = access.rights == REMOTE_WRITE;
        let posted =
            self.executing(me, plan, |posted| posted.is_write() == is_write && !posted.wr.is_answered());
        let wr = posted.wr.clone();
        let number = posted.number;
        let at = self.sides[me].executed_bytes;
        if is_write {
            let place = (wr.rkey, wr.remote_addr.wrapping_add(at as u64));
            assert_eq!((access.stag, access.addr), place, "a byte of {wr:?}");
        } else {
            let Some(receive) = self.sides[host].taken.get(number) else { panic!("no receive for {wr:?}") };
            let (sge, addr, left) = memory::entry_at(receive.entries(), at).expect("room");
            assert_eq!((access.stag, access.addr), (sge.lkey(), addr), "byte {at} of {wr:?}");
            assert!(bytes.len() <= left, "{wr:?} fills more than its receive");
        }
        assert!(memory::is_sent(&memories[me], me, &wr, at, bytes), "wrong bytes of {wr:?} from byte {at}");
        self.records(host, access, bytes);
        self.sides[me].executed_bytes += bytes.len();
        self.skip_silent(me);
    }

    /// Records the previous contents of bytes that reads of the peer access.
    fn records(&mut self, host: usize, access: Access, bytes: &[u8]) {
        if access.stag != memory::stag(host, PERSISTENT) {
            return;
        }
        let from = (access.addr - memory::base(host, PERSISTENT)) as usize;
        let stamp = self.now;
        let model = &mut self.sides[host];
        for (at, new) in (from..).zip(bytes) {
            let old = std::mem::replace(&mut model.persistent[at], *new);
            model.history.push(Change { at, old, stamp });
        }
    }

    /// A word was stored at `host`, at once.
    pub(super) fn stored(
        &mut self,
        host: usize,
        access: Access,
        word: [u8; 8],
        memories: &[Regions; 2],
        plan: &Plan,
    ) {
        let me = 1 - host;
        let posted = self.executing(me, plan, |posted| posted.wr.op == Op::AtomicWrite);
        let wr = posted.wr.clone();
        assert!(self.sides[host].flushing.is_empty(), "{wr:?} overtakes a flush to persistence");
        assert_eq!((access.stag, access.addr), (wr.rkey, wr.remote_addr), "the word of {wr:?}");
        assert!(memory::is_sent(&memories[me], me, &wr, 0, &word), "wrong bytes of {wr:?}");
        self.records(host, access, &word);
        self.sides[me].changed = true;
        self.skip_silent(me);
    }

    /// A flush is carried out at `host`, as far as memory placed before it is visible.
    pub(super) fn flushed(&mut self, host: usize, access: Access, plan: &Plan) {
        let me = 1 - host;
        let posted = self.executing(me, plan, |posted| posted.wr.op == Op::Flush);
        let wr = &posted.wr;
        let crate::wr::Local::Flush { len, rights, whole } = wr.local else { panic!("{wr:?}") };
        let (addr, len) = match whole {
            true => (memory::base(host, PERSISTENT), PERSISTENT_LEN),
            false => (wr.remote_addr, len as usize),
        };
        assert_eq!(access, Access { stag: wr.rkey, addr, len, rights }, "{wr:?}");
        self.sides[me].changed = true;
        self.skip_silent(me);
    }

    /// A word was changed at `host`.
    pub(super) fn changed(&mut self, host: usize, access: Access, original: u64, new: u64, plan: &Plan) {
        let me = 1 - host;
        let posted = self.executing(me, plan, |posted| posted.wr.is_atomic());
        let wr = &posted.wr;
        assert_eq!((access.stag, access.addr), (wr.rkey, wr.remote_addr), "the word of {wr:?}");
        let crate::wr::Local::Atomic { compare_add, swap, .. } = wr.local else { panic!("{wr:?}") };
        let expected = match wr.op {
            Op::FetchAdd => original.wrapping_add(compare_add),
            _ if original == compare_add => swap,
            _ => original,
        };
        assert_eq!(new, expected, "the result of {wr:?}");
        let model = &mut self.sides[me];
        model.changed = true;
        model.originals.push(original);
        self.skip_silent(me);
    }

    /// A window of `host` is to be invalidated.
    pub(super) fn invalidates(&mut self, host: usize, stag: u32, plan: &Plan) {
        let posted = self.executing(1 - host, plan, |posted| posted.wr.op == Op::SendWithInv);
        assert_eq!(stag, posted.wr.rkey, "{posted:?}");
    }

    /// It was invalidated.
    pub(super) fn invalidated(&mut self, host: usize) {
        let model = &mut self.sides[1 - host];
        assert!(!std::mem::replace(&mut model.invalidated, true), "invalidated twice");
    }

    /// A receive was taken, or there was none.
    pub(super) fn took_receive(&mut self, host: usize, wr: Option<&RecvWr>) {
        let model = &mut self.sides[host];
        match wr {
            Some(wr) => model.taken.push(wr.clone()),
            None => model.is_not_ready(),
        }
    }

    /// The bytes of a response were placed.
    fn response_placed(&mut self, me: usize, access: Access, bytes: &[u8], memories: &[Regions; 2]) {
        let model = &mut self.sides[me];
        while model.requests.get(model.answering).is_some_and(|one| !one.wr.returns_data()) {
            model.answering += 1;
        }
        let (index, at) = (model.answering, model.answered_bytes);
        let Some(posted) = model.requests.get(index) else { panic!("side {me} gets a response to nothing") };
        let (wr, posted_at) = (posted.wr.clone(), posted.posted_at);
        let (sge, addr, left) = memory::entry_at(&memory::entries(&wr), at).expect("room");
        assert_eq!((access.stag, access.addr), (sge.lkey(), addr), "byte {at} of the response to {wr:?}");
        assert!(bytes.len() <= left, "a response fills more than {wr:?}");
        if wr.is_atomic() {
            assert!(!model.originals.is_empty(), "a result of {wr:?}, which was not carried out");
            assert_eq!(bytes, model.originals.remove(0).to_ne_bytes(), "the result of {wr:?}");
        } else {
            self.skip_silent(me);
            assert!(self.sides[me].executing > index, "{wr:?} overtakes a request before it");
            self.has_read(me, index, posted_at, at, bytes, &memories[1 - me]);
        }
        let model = &mut self.sides[me];
        model.answered_bytes += bytes.len();
        if model.answered_bytes == wr.len as usize {
            (model.answering, model.answered_bytes) = (index + 1, 0);
        }
    }

    /// The bytes that a read returns were in memory at some time after it was posted and earlier requests
    /// were executed.
    fn has_read(&self, me: usize, index: usize, posted_at: u64, at: usize, bytes: &[u8], memory: &Regions) {
        let (wr, host) = (&self.sides[me].requests[index].wr, 1 - me);
        let addr = wr.remote_addr + at as u64;
        let region = (wr.rkey - memory::stag(host, 0)) as usize;
        assert!(region == READABLE || region == PERSISTENT, "{wr:?} reads what is not readable");
        let from = (addr - memory::base(host, region)) as usize;
        assert!(from + bytes.len() <= memory::len(region), "{wr:?} reads out of bounds");
        if region == READABLE {
            assert_eq!(bytes, memory.at(addr, bytes.len()), "{wr:?} from byte {at}");
            return;
        }
        debug_assert!(memory::len(region) == PERSISTENT_LEN);
        let before = self.sides[me].requests[..index].iter().rev().find_map(|one| one.executed_at);
        let since = posted_at.max(before.unwrap_or(0));
        let owner = &self.sides[host];
        for (at, byte) in (from..).zip(bytes) {
            let was = |change: &Change| change.at == at && change.stamp > since && change.old == *byte;
            let is_there = owner.persistent[at] == *byte || owner.history.iter().any(was);
            assert!(is_there, "{wr:?} returns {byte:#x} at {at}, which was not there");
        }
    }
}
