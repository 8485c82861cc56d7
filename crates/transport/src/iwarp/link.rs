// SPDX-License-Identifier: BSD-3-Clause
//! The link of an iWARP connection: a stream of bytes, and direct copies beside it.

use crate::access::{Access, Unreachable};
use crate::direct::{self, Part, WordAccess};
use crate::host::{Host, Served};
use crate::units::Errno;
use crate::wr::SendWr;

/// Why the link sent or received nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// It would block.
    Blocked,
    /// The registered memory of the part with this index is not accessible; no bytes were transferred.
    Memory(usize, Unreachable),
    /// The link has failed.
    Broken(Errno),
}

/// A host whose link is a stream of bytes.
pub trait StreamLink: Host {
    /// Sends bytes to the link and returns how many it accepted. `boundary`: the TCP segment ends with these
    /// bytes; later ones start a new segment.
    fn send(&mut self, parts: &[Part<'_>], boundary: bool) -> Result<usize, LinkError>;
    /// Receives bytes from the link; 0 is the end of the stream.
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError>;
    /// Receives bytes from the link, first into registered memory, then into `rest`.
    fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError>;
    /// Closes the link. `Some`: after these bytes and the end of the stream have been sent; bytes that the
    /// peer sends meanwhile are discarded. `None`: at once.
    fn close(&mut self, last: Option<&[u8]>);

    /// Copies bytes directly between the memory of the peer and local memory: from `local` to `remote` for
    /// RDMA Writes, in the other direction for RDMA Reads. The rights of `remote` distinguish the two; all
    /// its ranges have the same rights and STag. Both lists have the same total length and are processed in
    /// order. Returns the number of bytes that were copied, counted from the start; with 0 the request goes
    /// over the link, which reports any error. Called only if
    /// [`Terms::transfers`](super::conn::Terms::transfers) is set and no earlier request is outstanding. The
    /// host must ensure that the peer has acted on everything that was sent over the link.
    fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize;
    /// As [`StreamLink::transfer`], for one request.
    fn transfer_one(&mut self, wr: &SendWr) -> usize {
        direct::ranges(wr).map_or(0, |(remote, local)| self.transfer(&[remote], &[local]))
    }
    /// Whether [`StreamLink::access_word`] is possible with this memory of the peer. Asked before each call.
    fn may_access_word(&mut self, _remote: Access) -> bool {
        true
    }
    /// Accesses a word of the peer's memory directly, and returns the previous number; of a store, any
    /// number. `None`: nothing was done, and the request goes over the link. Called as
    /// [`StreamLink::transfer`] is.
    fn access_word(&mut self, remote: Access, word: WordAccess) -> Option<u64>;
    /// Whether [`StreamLink::transfer`], or [`StreamLink::access_word`] for an atomic operation, is likely to
    /// succeed for this access once no earlier request is outstanding.
    fn may_transfer(&self, remote: Access) -> bool;
    /// `completed` requests of the program were executed directly, with `bytes` of payload. The peer does not
    /// see them.
    fn transferred(&mut self, _operation: Served, _completed: u64, _bytes: u64) {}
    /// Everything received so far has been acted on: placed, delivered to the program, or answered.
    fn acted(&mut self) {}
}
