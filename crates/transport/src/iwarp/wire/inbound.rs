// SPDX-License-Identifier: BSD-3-Clause
//! The order of the received segments of a stream.

use super::codes::{QN_ATOMIC_RESPONSE, QN_REQUEST, QN_SEND};
use super::ddp::{Header, MessagePos, UntaggedOrder};
use super::error::WireError;
use super::rdmap::check_segment;

/// The untagged queues of a stream in the receiving direction.
///
/// The caller then checks what is not known here: whether a receive is posted for a Send, whether the IRD
/// permits another RDMA Read, and whether an STag is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inbound {
    send: UntaggedOrder,
    request: UntaggedOrder,
    atomic_response: UntaggedOrder,
}

impl Inbound {
    /// The state before the first segment.
    pub fn new() -> Self {
        Self::default()
    }

    /// The order of the queue of Send and Immediate Data messages.
    pub fn send(&self) -> &UntaggedOrder {
        &self.send
    }

    /// The order of the queue of Read Requests and Atomic Requests.
    pub fn request(&self) -> &UntaggedOrder {
        &self.request
    }

    /// Checks a segment and advances. Returns its position in its message; `None` for a tagged segment, whose
    /// header contains the destination, and for a Terminate message, of which there is only one.
    ///
    /// # Errors
    ///
    /// Those of [`check_segment`] and [`UntaggedOrder::check`]. They end the stream.
    #[inline]
    pub fn check(&mut self, header: &Header, payload_len: usize) -> Result<Option<MessagePos>, WireError> {
        check_segment(header, payload_len)?;
        let Header::Untagged { qn, .. } = *header else {
            return Ok(None);
        };
        let queue = match qn {
            QN_SEND => &mut self.send,
            QN_REQUEST => &mut self.request,
            QN_ATOMIC_RESPONSE => &mut self.atomic_response,
            _ => return Ok(None),
        };
        queue.check(header, payload_len).map(Some)
    }
}
