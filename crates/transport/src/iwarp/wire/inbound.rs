// SPDX-License-Identifier: BSD-3-Clause
//! The segments that each opcode permits, and the order of the received segments of a stream.

use super::codes::{Opcode, QN_ATOMIC_RESPONSE, QN_REQUEST, QN_SEND};
use super::ddp::{Header, MessagePos, UntaggedOrder};
use super::error::WireError;
use super::rdmap::{AtomicRequest, AtomicResponse, IMMEDIATE_LEN, ReadRequest};
use super::terminate::Terminate;

/// The untagged queues of a stream in the receiving direction.
///
/// The caller checks the rest: whether a receive is posted for a Send, whether the IRD permits another RDMA
/// Read, and whether an STag is valid.
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

/// Minimum and maximum length of a body with a fixed format; `None` if the body is data of any length.
fn body_range(opcode: Opcode) -> Option<(usize, usize)> {
    match opcode {
        Opcode::ReadRequest => Some((ReadRequest::LEN, ReadRequest::LEN)),
        Opcode::AtomicRequest => Some((AtomicRequest::LEN, AtomicRequest::LEN)),
        Opcode::AtomicResponse => Some((AtomicResponse::LEN, AtomicResponse::LEN)),
        Opcode::Immediate | Opcode::ImmediateSe => Some((IMMEDIATE_LEN, IMMEDIATE_LEN)),
        Opcode::Terminate => Some((Terminate::MIN_LEN, Terminate::MAX_LEN)),
        _ => None,
    }
}

/// Checks a segment by itself: that its queue is that of its opcode and, if the body has a fixed format, that
/// its length is valid and that it is not split. [`Inbound`], which calls this function, checks the order of
/// the segments.
///
/// # Errors
///
/// [`WireError::QueueNumber`], [`WireError::MessageTooLong`], [`WireError::MessageTooShort`], and for a
/// Terminate message [`WireError::BadTerminate`] instead of any of them.
#[inline]
pub fn check_segment(header: &Header, payload_len: usize) -> Result<(), WireError> {
    let Header::Untagged { opcode, last, qn, .. } = *header else {
        return Ok(());
    };
    let error = if opcode.queue() != Some(qn) {
        WireError::QueueNumber(qn)
    } else {
        match body_range(opcode) {
            Some((_, max)) if payload_len > max || !last => WireError::MessageTooLong(opcode),
            Some((min, _)) if payload_len < min => WireError::MessageTooShort(opcode),
            _ => return Ok(()),
        }
    };
    Err(if opcode == Opcode::Terminate { WireError::BadTerminate } else { error })
}
