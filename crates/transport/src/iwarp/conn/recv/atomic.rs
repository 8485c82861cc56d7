// SPDX-License-Identifier: BSD-3-Clause
//! The receiving side of atomic operations: the peer's requests, and the responses to ours (RFC 7306).

use crate::iwarp::wire::rdmap::{AtomicRequest, AtomicResponse, TermCode};

use super::{Messages, fault, refuse};
use crate::access::{Access, LOCAL_WRITE, REMOTE_ATOMIC, Unchanged};
use crate::host::Served;
use crate::iwarp::conn::ending::{Cause, End, read_denied};
use crate::iwarp::conn::send::{Answer, SendHalf};
use crate::iwarp::link::StreamLink;
use crate::sq::Progress;
use crate::wr::{WORD, status};

impl Messages {
    /// Carries out a request of the peer at once, after all earlier placements, and queues the response. An
    /// earlier read that is not answered yet may return the new value; a peer that needs the old one uses a
    /// fence.
    #[cold]
    pub(super) fn atomic_request(
        &mut self,
        host: &mut impl StreamLink,
        send: &mut SendHalf,
        buf: &[u8],
    ) -> Result<(), End> {
        self.settle(host, buf)?;
        let Some(body) = self.body.first_chunk::<{ AtomicRequest::LEN }>() else { return Ok(()) };
        let request = AtomicRequest::decode(body);
        if !request.is_defined() {
            return Err(self.refuse(TermCode::RDMAP_OP_OPCODE));
        }
        if !send.may_answer() {
            return Err(self.refuse(TermCode::RDMAP_OP_CATASTROPHIC_STREAM));
        }
        let word = Access { stag: request.stag, addr: request.to, len: WORD, rights: REMOTE_ATOMIC };
        let original = host.change(word, &|original| request.apply(original)).map_err(|why| match why {
            Unchanged::Denied(denied) => {
                let code = read_denied(self.disclosed(denied));
                refuse(code, Cause::Denied(denied), &self.header, self.payload_len)
            }
            Unchanged::Misaligned => self.refuse(TermCode::RDMAP_OP_CATASTROPHIC_STREAM),
            Unchanged::Fault => self.refuse(TermCode::RDMAP_PROT_BOUNDS),
        })?;
        self.admitted = true;
        host.served(Served::Atomic, 1, WORD as u64);
        let answer = AtomicResponse { request_id: request.request_id, original };
        if let Some(number) = send.answer(Answer::Atomic(answer)) {
            send.release_answer(number);
        }
        self.wake_send = true;
        Ok(())
    }

    /// Stores the previous value of the word in our memory, in host byte order, and completes the request.
    #[cold]
    pub(super) fn atomic_response(
        &mut self,
        host: &mut impl StreamLink,
        send: &mut SendHalf,
        buf: &[u8],
    ) -> Result<(), End> {
        self.settle(host, buf)?;
        let Some(body) = self.body.first_chunk::<{ AtomicResponse::LEN }>() else { return Ok(()) };
        let answer = AtomicResponse::decode(body);
        let awaited = send.awaited_msn();
        let Some((position, entry)) = send.sq.oldest_awaited().filter(|(_, entry)| entry.wr.is_atomic())
        else {
            return Err(self.refuse(TermCode::DDP_UNTAGGED_NO_BUFFER));
        };
        if answer.request_id != awaited {
            return Err(self.refuse(TermCode::RDMAP_OP_CATASTROPHIC_STREAM));
        }
        for sink in entry.wr.local.parts(0, WORD, LOCAL_WRITE) {
            // Our own request is invalid: the peer gets no Terminate message about it.
            host.place(sink, 0).map_err(|_| End::Request { position, status: status::LOC_PROT_ERR })?;
        }
        let settled = host.settle(&answer.original.to_ne_bytes());
        settled.map_err(|_| fault(&self.header, self.payload_len))?;
        entry.received = WORD as u32;
        entry.progress = Progress::Done(status::SUCCESS);
        send.read_done();
        send.sq.retire(host, self.qp_num);
        self.wake_send = true;
        Ok(())
    }
}
