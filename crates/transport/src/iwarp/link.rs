// SPDX-License-Identifier: BSD-3-Clause
//! The link of an iWARP connection: a stream of bytes.

use crate::access::{Access, Unreachable};
use crate::direct::{DirectAccess, Part};
use crate::units::Errno;

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

/// A host whose link is a stream of bytes. A connection calls the methods of [`DirectAccess`] only if
/// [`Terms::transfers`](super::conn::Terms::transfers) is set.
pub trait StreamLink: DirectAccess {
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
    /// Everything received so far has been acted on: placed, delivered to the program, or answered.
    fn acted(&mut self) {}
}
