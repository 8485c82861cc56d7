// SPDX-License-Identifier: BSD-3-Clause
//! A short message that finds nothing before it: its FPDU goes to the link at once, without the send queue
//! and the queue of FPDUs. What the link does not accept goes into these queues.

use arrayvec::ArrayVec;

use super::{Fpdu, Origin, Payload, SendHalf, untagged};
use crate::access::Access;
use crate::iwarp::conn::Offered;
use crate::iwarp::link::{LinkError, StreamLink};
use crate::iwarp::wire::ddp::UNTAGGED_LEN;
use crate::iwarp::wire::stream;
use crate::units::Errno;
use crate::wr::{Local, SendWr};

/// Header, payload, and pad with CRC field.
const PARTS: usize = 3;

impl SendHalf {
    /// Sends a message that is not in the send queue, and completes it if the link accepts all of it. If the
    /// link accepts nothing, or the payload is not readable, nothing has happened, and the queued request
    /// reports the error. `Err`: the link has failed.
    #[inline]
    pub(super) fn send_alone(
        &mut self,
        host: &mut impl StreamLink,
        wr: &SendWr,
        qp_num: u32,
    ) -> Result<Offered, Errno> {
        let len = wr.len as usize;
        let is_one = stream::max_untagged_payload(self.mulpdu(UNTAGGED_LEN + len)) >= len;
        if self.blocked || self.framing.crc || !is_one {
            return Ok(Offered::Refused);
        }
        let header = untagged(wr, true, self.send_msn, 0);
        let origin = Origin::Request { position: self.sq.tail(), last: true };
        let fpdu = match wr.local {
            Local::Inline(ref bytes) => Fpdu::short(&header, &bytes[..len], false, origin),
            Local::Memory { addr, lkey } => {
                let source = Access { stag: lkey, addr, len, rights: 0 };
                Fpdu::new(&header, Payload::Memory(source), len, false, origin)
            }
            _ => return Ok(Offered::Refused),
        };
        let sent = {
            let parts = ArrayVec::<_, PARTS>::from_iter(fpdu.rest());
            host.send(&parts, self.framing.segment.is_some())
        };
        let n = match sent {
            Ok(n) => n,
            // The peer may have the message nevertheless: it must not be sent again.
            Err(LinkError::Broken(errno)) => return Err(errno),
            Err(LinkError::Blocked | LinkError::Memory(..)) => return Ok(Offered::Refused),
        };
        self.send_msn = self.send_msn.wrapping_add(1);
        self.answer_next = true;
        if n == fpdu.len() {
            self.sq.complete(wr, host, qp_num);
            return Ok(Offered::Complete);
        }
        self.sq.push(wr.clone());
        self.sq.advance();
        self.queue.push(fpdu);
        self.queue.taken(n, &mut self.sq);
        Ok(Offered::Taken)
    }
}
