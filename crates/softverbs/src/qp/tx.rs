// SPDX-License-Identifier: BSD-3-Clause
//! The sending half of a queue pair: work requests and answers to the peer's reads become FPDUs, FPDUs go to the socket.
//!
//! Payload is never copied on its way: the socket call reads it from registered memory, under a grant that is acquired anew for each
//! call. Only a CRC, which must cover the very bytes that are sent, asks for a copy.
//!
//! Requests go out in posting order. A read waits while as many as the peer can take are under way, a fenced request until no read is.
//! Answers to the peer's reads and work requests take turns, message by message.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::send::{Local, Op, SendQueue, Wr};
use crate::cq::{Cq, status};
use crate::limits::{MAX_INLINE, MAX_READS};
use crate::memory::{self, Grant};
use crate::sys::{self, Errno};
use iwarp::ddp::{FIRST_MSN, Header, QN_REQUEST, QN_SEND, QN_TERMINATE};
use iwarp::rdmap::{Opcode, ReadRequest, TermCode, encode_immediate};
use iwarp::stream::{self, MAX_CONTROL_FPDU};
use iwarp::terminate::Terminate;

/// STag of a message without payload: it is not looked at, but some adapters refuse 0.
const NO_MEMORY: u32 = 1;
/// FPDUs given to the socket in one call.
const BATCH: usize = 32;
/// Payload bytes given to the socket in one call; more only waits in the kernel.
const BATCH_BYTES: usize = 512 * 1024;

const _: () = assert!(MAX_CONTROL_FPDU >= stream::MAX_HEADER_LEN + MAX_INLINE + stream::MAX_TRAILER_LEN);

/// A peer's read that was accepted and is answered in its turn.
#[derive(Clone, Copy, Debug)]
struct Response {
    number: u64,
    request: ReadRequest,
    sent: u32,
    /// It may go out: what it must find durable is.
    released: bool,
}

/// What an FPDU belongs to, and whether it is the last one of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Request { position: u64, last: bool },
    Response,
    Control,
}

/// Where the payload of an FPDU is, apart from what stands in the FPDU's own bytes.
enum Payload {
    None,
    Memory {
        stag: u32,
        addr: u64,
        rights: u32,
    },
    /// A copy that the CRC was computed over.
    Copied(Vec<u8>),
}

struct Fpdu {
    head: [u8; MAX_CONTROL_FPDU],
    head_len: usize,
    payload: Payload,
    payload_len: usize,
    tail: [u8; 8],
    tail_len: usize,
    /// Bytes that the socket has taken.
    sent: usize,
    origin: Origin,
}

impl Fpdu {
    fn len(&self) -> usize {
        self.head_len + self.payload_len + self.tail_len
    }
}

/// What came of [`Tx::flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing is left that could be sent now.
    Idle,
    /// The socket takes no more for now.
    Blocked,
    /// The queue pair must be torn down: see [`Tx::failure`].
    Failed,
}

/// Why the sending half cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A work request of our own is wrong: its position and the status it gets.
    Request { position: u64, status: u32 },
    /// The memory that a peer reads is gone.
    Response(TermCode),
    /// The socket failed.
    Socket(Errno),
}

/// A connection, as the sending half sees it.
pub(crate) struct Link {
    pub socket: Arc<OwnedFd>,
    pub crc: bool,
    pub mulpdu: usize,
    /// Bytes of a TCP segment, if FPDUs are to lie in segments as a whole.
    pub segment: Option<usize>,
    /// Reads that the peer takes at a time.
    pub ord: u32,
}

pub(crate) struct Tx {
    pub sq: SendQueue,
    pub failure: Option<Failure>,
    pd: u32,
    link: Option<Link>,
    fpdus: VecDeque<Fpdu>,
    responses: VecDeque<Response>,
    next_response: u64,
    /// Whether the message under way is an answer to the head of `responses`.
    answering: bool,
    answer_next: bool,
    /// Payload bytes of the current request in FPDUs, and how many of its messages are (immediate data is a message of its own).
    taken: u32,
    stage: u8,
    send_msn: u32,
    read_msn: u32,
    reads_open: u32,
    /// Bytes that may still be made into FPDUs.
    allowance: usize,
    /// No new messages: what is queued is sent, then the stream ends.
    closing: bool,
    spare: Vec<Vec<u8>>,
}

impl Tx {
    pub(crate) fn new(capacity: u32, pd: u32) -> Self {
        Self {
            sq: SendQueue::new(capacity),
            failure: None,
            pd,
            link: None,
            fpdus: VecDeque::new(),
            responses: VecDeque::new(),
            next_response: 0,
            answering: false,
            answer_next: false,
            taken: 0,
            stage: 0,
            send_msn: FIRST_MSN,
            read_msn: FIRST_MSN,
            reads_open: 0,
            allowance: usize::MAX,
            closing: false,
            spare: Vec::new(),
        }
    }

    /// The connection is there: what was posted can go out.
    pub(crate) fn connect(&mut self, link: Link) {
        self.fpdus.reserve(BATCH);
        self.responses.reserve(usize::from(MAX_READS));
        self.link = Some(link);
    }

    /// Lets about so many bytes of requests and answers go out before the next change; `usize::MAX` is no limit.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.allowance = bytes;
    }

    /// Takes a peer's read, to be answered in its turn but not before it is released; gives its number. Nothing when the peer has more
    /// open than we announced.
    pub(crate) fn answer(&mut self, request: ReadRequest, released: bool) -> Option<u64> {
        if self.responses.len() >= usize::from(MAX_READS) {
            return None;
        }
        let number = self.next_response;
        self.next_response += 1;
        self.responses.push_back(Response { number, request, sent: 0, released });
        Some(number)
    }

    /// Lets an answer go, if the connection is still there to take it.
    pub(crate) fn release_answer(&mut self, number: u64) {
        if let Some(response) = self.responses.iter_mut().find(|response| response.number == number) {
            response.released = true;
        }
    }

    /// Leaves a failure for whoever tears down, unless there is one.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// A read of ours was answered: the next one, or a fenced request, may go.
    pub(crate) fn read_done(&mut self) {
        self.reads_open -= 1;
    }

    /// A Write without payload: means nothing but that we are there.
    pub(crate) fn queue_empty_write(&mut self) {
        let header = Header::Tagged { opcode: Opcode::Write, last: true, stag: NO_MEMORY, to: 0 };
        self.queue_control(&header, &[]);
    }

    /// Queues an empty Write where that cannot come between the segments of a message. More of a message that has begun serves as well.
    pub(crate) fn knock(&mut self) {
        if self.fpdus.is_empty() && self.taken == 0 && self.stage == 0 && !self.answering {
            self.queue_empty_write();
        }
    }

    /// Ends the stream: what the socket has begun to take is completed, then `terminate` goes out if there is one, then the end.
    pub(crate) fn close(&mut self, terminate: Option<Terminate>) {
        let begun = self.fpdus.front().is_some_and(|f| f.sent > 0);
        self.fpdus.truncate(usize::from(begun));
        self.responses.clear();
        self.closing = true;
        if let Some(terminate) = terminate {
            let mut body = [0; Terminate::MAX_LEN];
            let len = terminate.encode(&mut body);
            let header = Header::Untagged {
                opcode: Opcode::Terminate,
                last: true,
                inv_stag: 0,
                qn: QN_TERMINATE,
                msn: FIRST_MSN,
                mo: 0,
            };
            self.queue_control(&header, &body[..len]);
        }
    }

    /// Lets go of the socket.
    pub(crate) fn disconnect(&mut self) {
        self.link = None;
        self.fpdus.clear();
        self.responses.clear();
        self.closing = true;
    }

    fn queue_control(&mut self, header: &Header, body: &[u8]) {
        let Some(link) = &self.link else { return };
        self.fpdus.push_back(short_fpdu(header, body, link.crc, Origin::Control));
    }

    /// Sends what can be sent now. Completed requests are moved to `cq`.
    pub(crate) fn flush(&mut self, cq: &Cq, qp_num: u32) -> Flushed {
        let flushed = self.send_all();
        self.sq.retire(cq, qp_num);
        flushed
    }

    fn send_all(&mut self) -> Flushed {
        loop {
            if self.failure.is_some() && !self.closing {
                return Flushed::Failed;
            }
            let Some(link) = &self.link else { return Flushed::Idle };
            let socket = link.socket.clone();
            if !self.closing {
                self.fill();
            }
            if self.fpdus.is_empty() {
                if self.closing {
                    sys::shutdown_write(&socket);
                }
                return if self.failure.is_some() && !self.closing { Flushed::Failed } else { Flushed::Idle };
            }
            match self.send_batch(&socket) {
                Ok(()) => {}
                Err(Failure::Socket(libc::EAGAIN)) => return Flushed::Blocked,
                Err(failure) => {
                    if self.closing {
                        self.fpdus.clear();
                        continue;
                    }
                    self.failure = Some(failure);
                    return Flushed::Failed;
                }
            }
        }
    }

    /// Gives the socket what it takes of the queued FPDUs.
    fn send_batch(&mut self, socket: &OwnedFd) -> Result<(), Failure> {
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH * 3];
        let mut grants: [Option<Grant>; BATCH] = [const { None }; BATCH];
        let mut count = 0;
        let mut bytes = 0;
        let segment = self.link.as_ref().and_then(|link| link.segment);
        for (fpdu, grant) in self.fpdus.iter().zip(grants.iter_mut()) {
            bytes += fpdu.len() - fpdu.sent;
            if count > 0 && segment.is_some_and(|segment| bytes > segment) {
                break;
            }
            let payload = match self.payload_address(fpdu, grant) {
                Ok(payload) => payload,
                // What precedes a refused FPDU still goes out: it is in order.
                Err(failure) if count == 0 => return Err(failure),
                Err(_) => break,
            };
            let mut skip = fpdu.sent;
            for (addr, len) in [
                (fpdu.head.as_ptr() as usize, fpdu.head_len),
                (payload, fpdu.payload_len),
                (fpdu.tail.as_ptr() as usize, fpdu.tail_len),
            ] {
                let skipped = skip.min(len);
                skip -= skipped;
                if len > skipped {
                    let iov_base = (addr + skipped) as *mut libc::c_void;
                    parts[count] = libc::iovec { iov_base, iov_len: len - skipped };
                    count += 1;
                }
            }
        }
        let n = match sys::send_parts(socket, &parts[..count], segment.is_some()) {
            Ok(n) => n,
            Err(libc::EFAULT) => return Err(self.fault()),
            Err(e) => return Err(Failure::Socket(e)),
        };
        drop(grants);
        self.taken_by_socket(n);
        Ok(())
    }

    /// Where the payload of an FPDU is; for registered memory `grant` allows the socket to read it.
    fn payload_address(&self, fpdu: &Fpdu, grant: &mut Option<Grant>) -> Result<usize, Failure> {
        match &fpdu.payload {
            Payload::None => Ok(0),
            Payload::Copied(bytes) => Ok(bytes.as_ptr() as usize),
            Payload::Memory { stag, addr, rights } => {
                match memory::acquire(*stag, self.pd, *addr, fpdu.payload_len as u64, *rights) {
                    Ok(granted) => *grant = Some(granted),
                    Err(denied) => return Err(refused(fpdu.origin, super::rx::read_denied(denied))),
                }
                Ok(*addr as usize)
            }
        }
    }

    /// The kernel found no memory behind the first FPDU that it did not take as a whole.
    fn fault(&self) -> Failure {
        let origin = self.fpdus.front().map_or(Origin::Control, |f| f.origin);
        refused(origin, TermCode::RDMAP_PROT_BOUNDS)
    }

    fn taken_by_socket(&mut self, mut n: usize) {
        while let Some(fpdu) = self.fpdus.front_mut() {
            let left = fpdu.len() - fpdu.sent;
            if n < left {
                fpdu.sent += n;
                return;
            }
            n -= left;
            let Some(fpdu) = self.fpdus.pop_front() else { return };
            if let Origin::Request { position, last: true } = fpdu.origin {
                self.sq.sent(position);
            }
            if let Payload::Copied(bytes) = fpdu.payload {
                self.spare.push(bytes);
            }
        }
    }

    /// Makes FPDUs of what may go out, up to one batch.
    fn fill(&mut self) {
        let mut bytes: usize = self.fpdus.iter().map(Fpdu::len).sum();
        while self.fpdus.len() < BATCH && bytes < BATCH_BYTES && self.allowance > 0 {
            let Some(fpdu) = self.next_fpdu() else { return };
            bytes += fpdu.len();
            self.allowance = self.allowance.saturating_sub(fpdu.len());
            self.fpdus.push_back(fpdu);
        }
    }

    fn next_fpdu(&mut self) -> Option<Fpdu> {
        if self.failure.is_some() {
            return None;
        }
        let in_request = self.taken > 0 || self.stage > 0;
        let answerable = self.responses.front().is_some_and(|response| response.released);
        if self.answering || (!in_request && self.answer_next && answerable) {
            return self.next_of_response();
        }
        match self.sendable() {
            Some(position) => self.next_of_request(position),
            None if answerable => self.next_of_response(),
            None => None,
        }
    }

    /// The position of the next request if it may go out now.
    fn sendable(&mut self) -> Option<u64> {
        let position = self.sq.next_position()?;
        let ord = self.link.as_ref()?.ord;
        let reads_open = self.reads_open;
        let wr = self.sq.at(position)?;
        if wr.is_read() && ord == 0 {
            self.failure = Some(Failure::Request { position, status: status::LOC_QP_OP_ERR });
            return None;
        }
        let waits = (wr.fence && reads_open > 0) || (wr.is_read() && reads_open >= ord);
        (!waits).then_some(position)
    }

    /// Bytes that the next ULPDU may have, and whether it gets a CRC.
    fn framing(&self) -> Option<(usize, bool)> {
        let link = self.link.as_ref()?;
        Some((link.mulpdu.min(self.allowance.max(stream::MIN_MULPDU)), link.crc))
    }

    fn next_of_response(&mut self) -> Option<Fpdu> {
        let (mulpdu, crc) = self.framing()?;
        let response = self.responses.front_mut()?;
        let request = response.request;
        let len = (request.size - response.sent).min(stream::max_tagged_payload(mulpdu) as u32);
        let last = response.sent + len == request.size;
        let header = Header::Tagged {
            opcode: Opcode::ReadResponse,
            last,
            stag: request.sink_stag,
            to: request.sink_to.wrapping_add(u64::from(response.sent)),
        };
        let source = Payload::Memory {
            stag: request.src_stag,
            addr: request.src_to.wrapping_add(u64::from(response.sent)),
            rights: memory::REMOTE_READ,
        };
        response.sent += len;
        self.answering = !last;
        if last {
            self.responses.pop_front();
            self.answer_next = false;
        }
        self.make_fpdu(&header, source, len, crc, Origin::Response)
    }

    fn next_of_request(&mut self, position: u64) -> Option<Fpdu> {
        let (mulpdu, crc) = self.framing()?;
        let wr = *self.sq.at(position)?;
        match (wr.op, self.stage) {
            (Op::Read, _) => self.read_request(&wr, position, crc),
            // The immediate data of a Send goes first, so that the receive is complete when the Send is.
            (Op::SendWithImm, 0) => Some(self.immediate(&wr, position, crc, false)),
            (Op::WriteWithImm, 1) => Some(self.immediate(&wr, position, crc, true)),
            _ => self.data(&wr, position, mulpdu, crc),
        }
    }

    fn data(&mut self, wr: &Wr, position: u64, mulpdu: usize, crc: bool) -> Option<Fpdu> {
        let tagged = matches!(wr.op, Op::Write | Op::WriteWithImm);
        let room =
            if tagged { stream::max_tagged_payload(mulpdu) } else { stream::max_untagged_payload(mulpdu) };
        let len = (wr.len - self.taken).min(room as u32);
        let last = self.taken + len == wr.len;
        let header = if tagged {
            let stag = if wr.len == 0 { NO_MEMORY } else { wr.rkey };
            let to = wr.remote_addr.wrapping_add(u64::from(self.taken));
            Header::Tagged { opcode: Opcode::Write, last, stag, to }
        } else {
            let opcode = if wr.solicited { Opcode::SendSe } else { Opcode::Send };
            Header::Untagged { opcode, last, inv_stag: 0, qn: QN_SEND, msn: self.send_msn, mo: self.taken }
        };
        let over = last && wr.op != Op::WriteWithImm;
        let origin = Origin::Request { position, last: over };
        let fpdu = match &wr.local {
            Local::Inline(bytes) => Some(short_fpdu(&header, &bytes[..len as usize], crc, origin)),
            Local::Memory { addr, lkey } => {
                let addr = addr.wrapping_add(u64::from(self.taken));
                self.make_fpdu(&header, Payload::Memory { stag: *lkey, addr, rights: 0 }, len, crc, origin)
            }
        };
        self.taken += len;
        if last {
            if !tagged {
                self.send_msn = self.send_msn.wrapping_add(1);
            }
            self.message_taken(over);
        }
        fpdu
    }

    fn read_request(&mut self, wr: &Wr, position: u64, crc: bool) -> Option<Fpdu> {
        let Local::Memory { addr, lkey } = wr.local else { return None };
        let empty = wr.len == 0;
        let request = ReadRequest {
            sink_stag: if empty { NO_MEMORY } else { lkey },
            sink_to: addr,
            size: wr.len,
            src_stag: if empty { NO_MEMORY } else { wr.rkey },
            src_to: wr.remote_addr,
        };
        let header = Header::Untagged {
            opcode: Opcode::ReadRequest,
            last: true,
            inv_stag: 0,
            qn: QN_REQUEST,
            msn: self.read_msn,
            mo: 0,
        };
        self.read_msn = self.read_msn.wrapping_add(1);
        self.reads_open += 1;
        self.message_taken(true);
        Some(short_fpdu(&header, &request.encode(), crc, Origin::Request { position, last: true }))
    }

    fn immediate(&mut self, wr: &Wr, position: u64, crc: bool, over: bool) -> Fpdu {
        let mut body = encode_immediate(wr.imm);
        if !over {
            body[4..].copy_from_slice(&super::IMMEDIATE_OF_SEND);
        }
        let opcode = if wr.solicited { Opcode::ImmediateSe } else { Opcode::Immediate };
        let header =
            Header::Untagged { opcode, last: true, inv_stag: 0, qn: QN_SEND, msn: self.send_msn, mo: 0 };
        self.send_msn = self.send_msn.wrapping_add(1);
        self.message_taken(over);
        short_fpdu(&header, &body, crc, Origin::Request { position, last: over })
    }

    /// A message of the current request is in FPDUs; `over`: it was its last one.
    fn message_taken(&mut self, over: bool) {
        self.taken = 0;
        if over {
            self.stage = 0;
            self.sq.advance();
            self.answer_next = true;
        } else {
            self.stage += 1;
        }
    }

    fn make_fpdu(
        &mut self,
        header: &Header,
        source: Payload,
        len: u32,
        crc: bool,
        origin: Origin,
    ) -> Option<Fpdu> {
        let payload_len = len as usize;
        let mut head = [0; MAX_CONTROL_FPDU];
        let head_len = stream::encode_fpdu_header(header, payload_len, &mut head);
        let ulpdu_len = head_len - stream::LENGTH_LEN + payload_len;
        let mut payload = if payload_len == 0 { Payload::None } else { source };
        let mut sum = None;
        if crc {
            if let Payload::Memory { stag, addr, rights } = payload {
                match self.copy_of(stag, addr, rights, payload_len, origin) {
                    Ok(bytes) => payload = Payload::Copied(bytes),
                    Err(failure) => {
                        self.failure = Some(failure);
                        return None;
                    }
                }
            }
            let body: &[u8] = if let Payload::Copied(bytes) = &payload { bytes } else { &[] };
            sum = Some(stream::fpdu_crc([&head[..head_len], body]));
        }
        let mut tail = [0; 8];
        let tail_len = stream::trailer(sum, ulpdu_len, &mut tail);
        Some(Fpdu { head, head_len, payload, payload_len, tail, tail_len, sent: 0, origin })
    }

    fn copy_of(
        &mut self,
        stag: u32,
        addr: u64,
        rights: u32,
        len: usize,
        origin: Origin,
    ) -> Result<Vec<u8>, Failure> {
        let grant = memory::acquire(stag, self.pd, addr, len as u64, rights)
            .map_err(|denied| refused(origin, super::rx::read_denied(denied)))?;
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        memory::fetch(&grant, addr, &mut bytes).map_err(|_| refused(origin, TermCode::RDMAP_PROT_BOUNDS))?;
        Ok(bytes)
    }
}

/// What it means that the memory behind an FPDU cannot be read: a wrong request of our own, or a read that the peer is told of.
fn refused(origin: Origin, code: TermCode) -> Failure {
    match origin {
        Origin::Request { position, .. } => Failure::Request { position, status: status::LOC_PROT_ERR },
        _ => Failure::Response(code),
    }
}

/// An FPDU whose body stands in its own bytes.
fn short_fpdu(header: &Header, body: &[u8], crc: bool, origin: Origin) -> Fpdu {
    let mut head = [0; MAX_CONTROL_FPDU];
    let head_len = stream::encode_fpdu(header, body, crc, &mut head);
    Fpdu {
        head,
        head_len,
        payload: Payload::None,
        payload_len: 0,
        tail: [0; 8],
        tail_len: 0,
        sent: 0,
        origin,
    }
}
