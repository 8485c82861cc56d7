// SPDX-License-Identifier: BSD-3-Clause
//! The receiving half: places payload, completes receives, and accepts the peer's reads and atomic
//! operations.
//!
//! Every segment is checked before a byte of it is placed: its order by [`crate::iwarp::wire`], key, rights
//! and bounds by the host. The first violation ends the connection with the Terminate message that the RFCs
//! require; effects of earlier segments stay.
//!
//! Large payloads are received directly into registered memory. Small ones go through a buffer, so that one
//! call receives many messages, and are placed in batches. A batch is carried out before anything that
//! depends on it, such as a completion or a response. A payload of up to [`WHOLE`] bytes is placed in one
//! piece, which makes an aligned 8-byte write atomic.

mod atomic;

use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{self, IMMEDIATE_LEN, Opcode, ReadRequest, TermCode};
use crate::iwarp::wire::stream::{Event, MAX_CONTROL_BODY, MAX_FPDU, MAX_TRAILER_LEN, Receiver};
use crate::iwarp::wire::terminate::Terminate;
use crate::iwarp::wire::{Inbound, WireError};

use super::ending::{Cause, End, Refusal, read_denied, write_denied};
use super::send::{Answer, SendHalf, sink};
use super::terms::{IMMEDIATE_OF_SEND, Sizes};
use crate::access::{Access, Denied, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, Unreachable};
use crate::host::{Durable, PLACE_BATCH, Served};
use crate::iwarp::link::{LinkError, StreamLink};
use crate::rq::{Current, NoReceive, RecvQueue};
use crate::sq::Progress;
use crate::step::{ATOMIC_OPERATIONS, Quota};
use crate::units::Errno;
use crate::wr::{Completion, Extra, Local, RecvWr, opcode, status};

/// Payload of up to this many bytes is handled in one piece. At least the longest body with a fixed format.
const WHOLE: usize = 64;

const _: () = assert!(MAX_CONTROL_BODY <= WHOLE);

/// The result of [`RecvHalf::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// The sending half may now send more, and the link may have more.
    Answers,
    /// The link has no more bytes for now.
    Drained,
    /// The budget is used up; the link may have more bytes.
    Busy,
    /// The next message waits for a receive, or for room in the completion queue.
    Stalled,
}

/// How much of the buffer was processed.
enum Processed {
    /// All but the beginning of an incomplete segment.
    All,
    /// A part: the budget is used up.
    Part,
    /// A message waits for a receive.
    Stalled,
}

/// The destination of the current segment's payload.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// Memory of a peer's write, or of our read with one entry. `rights`: the rights that the region must
    /// have.
    Memory { stag: u32, addr: u64, rights: u32 },
    /// The entries of our read at this position, from byte `at` on.
    Entries { position: u64, at: u32 },
    /// The current receive.
    Receive,
    /// `body`, for a message with a fixed format.
    Body { len: usize },
}

/// What must happen before the next byte is processed.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Nothing,
    /// A receive for the Send that has just started, whose first segment has this payload length.
    ForSend {
        payload_len: usize,
    },
    /// A receive to complete with the immediate data of a write.
    ForImmediate {
        imm: [u8; 4],
        solicited: bool,
    },
}

/// The state of the messages; [`RecvHalf`] has the bytes.
struct Messages {
    qp_num: u32,
    header: Header,
    payload_len: usize,
    target: Target,
    wanted: Wanted,
    rq: RecvQueue,
    body: [u8; WHOLE],
    inbound: Inbound,
    /// The position of the read that the current segment answers.
    reading: u64,
    /// Immediate data that belongs to the next Send.
    imm: Option<[u8; 4]>,
    /// Payload bytes of the current or last write, for the completion of its immediate data.
    written: u32,
    write_open: bool,
    /// The peer has made a permitted access. Before that, all denied accesses get the same code.
    admitted: bool,
    /// The segment of each placement in the batch: the Terminate message includes the header of the one that
    /// fails.
    placing: Vec<(Header, usize)>,
    /// The sending half may now send more.
    wake_send: bool,
}

pub(super) struct RecvHalf {
    receiver: Receiver,
    buf: Box<[u8]>,
    start: usize,
    end: usize,
    sizes: Sizes,
    /// The maximum size of the buffer.
    most: usize,
    /// The last call of the link filled the buffer.
    filled: bool,
    /// The link may have more bytes.
    more: bool,
    /// Nothing arrives after the bytes that the link holds, so these are received up to the end.
    hung_up: bool,
    /// The peer has sent a complete FPDU.
    pub has_received: bool,
    messages: Messages,
}

impl RecvHalf {
    pub(super) fn new(qp_num: u32, sizes: Sizes) -> Self {
        Self {
            receiver: Receiver::new(false),
            buf: Box::default(),
            start: 0,
            end: 0,
            sizes,
            most: 0,
            filled: false,
            more: false,
            hung_up: false,
            has_received: false,
            messages: Messages::new(qp_num),
        }
    }

    /// Starts to receive. `early`: bytes that arrived after the peer's MPA frame. ENOMEM.
    pub(super) fn open(&mut self, crc: bool, wait_for_receives: bool, early: &[u8]) -> Result<(), Errno> {
        self.receiver = Receiver::new(crc);
        // With CRCs the buffer must hold an FPDU and the trailer before it.
        self.most =
            if crc { (MAX_FPDU + MAX_TRAILER_LEN).max(2 * self.sizes.buffer) } else { self.sizes.buffer };
        let least = if crc { self.most } else { self.sizes.first.min(self.most).max(WHOLE * 2) };
        self.buf = reserve::try_zeroed(least.max(early.len())).ok_or(libc::ENOMEM)?;
        self.buf[..early.len()].copy_from_slice(early);
        self.end = early.len();
        self.messages.rq.wait_for_receives = wait_for_receives;
        self.messages.placing.try_reserve(PLACE_BATCH).map_err(|_| libc::ENOMEM)?;
        Ok(())
    }

    /// The sending half has been run since the last [`Ran::Answers`].
    pub(super) fn answers_taken(&mut self) {
        self.messages.wake_send = false;
    }

    /// The receive queue.
    pub(super) fn rq(&mut self) -> &mut RecvQueue {
        &mut self.messages.rq
    }

    /// The link may have more bytes; `hung_up`: they are the last ones.
    pub(super) fn look_again(&mut self, hung_up: bool) {
        self.more = true;
        self.hung_up |= hung_up;
    }

    /// Receives from the link and processes the bytes, within `budget`.
    pub(super) fn run(
        &mut self,
        host: &mut impl StreamLink,
        send: &mut SendHalf,
        budget: &mut Quota,
    ) -> Result<Ran, End> {
        loop {
            let processed = self.process(host, send, budget);
            // Also when the connection ends: payload before the end is placed.
            let settled = self.messages.settle(host, &self.buf);
            let processed = processed.and_then(|processed| settled.map(|()| processed))?;
            if self.messages.wake_send {
                return Ok(Ran::Answers);
            }
            match processed {
                Processed::All if !self.more => return Ok(Ran::Drained),
                Processed::All if !budget.is_used_up() => {}
                Processed::All | Processed::Part => return Ok(Ran::Busy),
                Processed::Stalled => return Ok(Ran::Stalled),
            }
            match self.receive(host, send)? {
                None => self.more = false,
                Some((0, _)) => return Err(End::PeerClosed),
                Some((n, full)) => {
                    budget.charge(0, n);
                    // A short count means that the link is empty, but the end of the stream may follow.
                    self.more = full || self.hung_up;
                }
            }
        }
    }

    /// Receives bytes from the link: their number, and whether they fill the space for them. `None`: it would
    /// block.
    fn receive(
        &mut self,
        host: &mut impl StreamLink,
        send: &mut SendHalf,
    ) -> Result<Option<(usize, bool)>, End> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        let remaining = self.receiver.payload_remaining();
        let directly = remaining >= self.sizes.direct && self.end == 0 && !self.receiver.crc();
        let long = |to: &Access| to.len >= self.sizes.direct;
        if let Some(to) = self.messages.destination(send, remaining).filter(|to| directly && long(to)) {
            let behind = self.sizes.behind_direct.min(self.buf.len());
            let n = match host.receive_placed(to, &mut self.buf[..behind]) {
                Ok(n) => n,
                Err(LinkError::Blocked) => return Ok(None),
                Err(LinkError::Memory(_, why)) => return Err(self.messages.unreachable(why)),
                Err(LinkError::Broken(e)) => return Err(End::Link(e)),
            };
            let placed = n.min(to.len);
            self.receiver.payload_placed(placed);
            self.messages.placed(placed);
            self.end = n - placed;
            return Ok(Some((n, n >= to.len)));
        }
        // If the buffer is more than half used, move the unprocessed bytes to the front. They are few, except
        // for FPDUs with a CRC.
        if self.buf.len() - self.end < self.buf.len() / 2 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.filled {
            self.grow();
        }
        let room = self.buf.len() - self.end;
        match host.receive(&mut self.buf[self.end..]) {
            Ok(n) => {
                self.end += n;
                self.filled = n == room;
                Ok(Some((n, n == room)))
            }
            Err(LinkError::Blocked) => Ok(None),
            Err(LinkError::Broken(e)) => Err(End::Link(e)),
            Err(LinkError::Memory(_, why)) => Err(self.messages.unreachable(why)),
        }
    }

    /// Enlarges the buffer, since the peer sends more at a time than it holds. Keeps it if the allocation
    /// fails.
    fn grow(&mut self) {
        let len = (4 * self.buf.len()).min(self.most);
        if len <= self.buf.len() {
            return;
        }
        if let Some(mut larger) = reserve::try_zeroed(len) {
            larger[..self.end].copy_from_slice(&self.buf[..self.end]);
            self.buf = larger;
        }
    }

    /// Processes the buffer, within `budget`.
    fn process(
        &mut self,
        host: &mut impl StreamLink,
        send: &mut SendHalf,
        budget: &mut Quota,
    ) -> Result<Processed, End> {
        let Self { receiver, buf, start, end, messages, has_received, .. } = self;
        loop {
            if !messages.resume(host, buf)? {
                return Ok(Processed::Stalled);
            }
            if budget.operations == 0 && *start < *end {
                return Ok(Processed::Part);
            }
            let input = &buf[*start..*end];
            let remaining = receiver.payload_remaining();
            if remaining <= WHOLE && input.len() < remaining {
                return Ok(Processed::All);
            }
            let (consumed, event) = match receiver.next(input) {
                Ok(next) => next,
                Err(error) => {
                    return Err(End::Refused(receiver.terminate(), Refusal::Protocol(error)));
                }
            };
            match event {
                Event::Need(_) => {
                    *start += consumed;
                    return Ok(Processed::All);
                }
                Event::Segment { header, payload_len } => {
                    messages.segment(host, send, buf, header, payload_len)?;
                }
                Event::Payload(bytes) => messages.payload(host, send, buf, *start, bytes.len())?,
                Event::SegmentEnd => {
                    messages.segment_end(host, send, buf)?;
                    let is_atomic = messages.header.opcode() == Opcode::AtomicRequest;
                    budget.charge(if is_atomic { ATOMIC_OPERATIONS } else { 1 }, 0);
                    *has_received = true;
                }
            }
            *start += consumed;
        }
    }

    #[cfg(test)]
    pub(super) fn buffer_len(&self) -> usize {
        self.buf.len()
    }

    /// Whether all bytes received have been acted on.
    pub(super) fn has_acted(&self) -> bool {
        let Messages { wanted, rq, placing, imm, .. } = &self.messages;
        let between = self.start == self.end && self.receiver.at_boundary(0) && imm.is_none();
        between && matches!(wanted, Wanted::Nothing) && !rq.keeps_completions() && placing.is_empty()
    }

    /// Whether a receive has been taken whose completion is not in the completion queue yet.
    pub(super) fn has_receive(&self) -> bool {
        let rq = &self.messages.rq;
        rq.current.is_some() || rq.keeps_completions()
    }

    /// Whether no message is incomplete and no completion is kept.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.start == self.end && !self.has_receive()
    }
}

impl Messages {
    fn new(qp_num: u32) -> Self {
        Self {
            qp_num,
            header: Header::Tagged { opcode: Opcode::Write, last: true, stag: 0, to: 0 },
            payload_len: 0,
            target: Target::Body { len: 0 },
            wanted: Wanted::Nothing,
            rq: RecvQueue::new(qp_num),
            body: [0; WHOLE],
            inbound: Inbound::new(),
            reading: 0,
            imm: None,
            written: 0,
            write_open: false,
            admitted: false,
            placing: Vec::new(),
            wake_send: false,
        }
    }

    // ---- receives ------------------------------------------------------------------------------------------------------------------

    fn next_receive(&mut self, host: &mut impl StreamLink) -> Result<Option<RecvWr>, End> {
        self.rq.take(host).map_err(|NoReceive| self.refuse(TermCode::DDP_UNTAGGED_NO_BUFFER))
    }

    /// Does what [`Wanted`] requires; false if it must wait.
    fn resume(&mut self, host: &mut impl StreamLink, buf: &[u8]) -> Result<bool, End> {
        match self.wanted {
            Wanted::Nothing => return Ok(true),
            Wanted::ForSend { payload_len } => {
                let Some(wr) = self.next_receive(host)? else { return Ok(false) };
                self.rq.current = Some(Current { wr, filled: 0 });
                self.wanted = Wanted::Nothing;
                self.check_receive(host, buf, payload_len)?;
            }
            Wanted::ForImmediate { imm, solicited } => {
                self.settle(host, buf)?;
                let Some(wr) = self.next_receive(host)? else { return Ok(false) };
                self.wanted = Wanted::Nothing;
                self.rq.complete(
                    host,
                    Completion {
                        wr_id: wr.wr_id,
                        opcode: opcode::RECV_RDMA_WITH_IMM,
                        byte_len: self.written,
                        extra: Extra::Imm(imm),
                        solicited,
                        ..Completion::default()
                    },
                );
            }
        }
        Ok(true)
    }

    /// Checks that a segment fits into the rest of the current receive and that its memory is writable.
    /// Otherwise the receive fails. Earlier payload is placed before that, since the program may reuse the
    /// memory after the completion.
    fn check_receive(
        &mut self,
        host: &mut impl StreamLink,
        buf: &[u8],
        payload_len: usize,
    ) -> Result<(), End> {
        let Some(Current { wr, filled }) = &self.rq.current else {
            return Err(self.refuse(TermCode::DDP_UNTAGGED_NO_BUFFER));
        };
        let (status, code) = if payload_len > (wr.capacity() - filled) as usize {
            (status::LOC_LEN_ERR, TermCode::DDP_UNTAGGED_TOO_LONG)
        } else if wr.parts(*filled, payload_len).any(|part| host.check(part).is_err()) {
            (status::LOC_PROT_ERR, TermCode::DDP_CATASTROPHIC)
        } else {
            return Ok(());
        };
        self.settle(host, buf)?;
        self.rq.refuse_current(status);
        Err(self.refuse(code))
    }

    // ---- refusals ------------------------------------------------------------------------------------------------------------------

    /// Refuses the current segment, which ends the connection.
    fn refuse(&self, code: TermCode) -> End {
        refuse(code, Cause::Code(code), &self.header, self.payload_len)
    }

    fn broken_rule(&self, error: WireError) -> End {
        let terminate = error.terminate().map(|code| Terminate::about(code, &self.header, self.payload_len));
        End::Refused(terminate, Refusal::Protocol(error))
    }

    /// The reason for a denied access that the Terminate message discloses. A peer that has not made a
    /// permitted access may be guessing keys: it gets no information whether the STag exists.
    fn disclosed(&self, denied: Denied) -> Denied {
        if self.admitted { denied } else { Denied::Stag }
    }

    fn denied(&self, denied: Denied) -> End {
        match self.header.opcode() {
            Opcode::Write => {
                let code = write_denied(self.disclosed(denied));
                refuse(code, Cause::Denied(denied), &self.header, self.payload_len)
            }
            // Our own request is invalid: the peer gets no Terminate message about it.
            Opcode::ReadResponse => End::Request { position: self.reading, status: status::LOC_PROT_ERR },
            _ => self.refuse(TermCode::DDP_CATASTROPHIC),
        }
    }

    fn unreachable(&self, why: Unreachable) -> End {
        match why {
            Unreachable::Denied(denied) => self.denied(denied),
            Unreachable::Fault => fault(&self.header, self.payload_len),
        }
    }

    // ---- segments ------------------------------------------------------------------------------------------------------------------

    fn segment(
        &mut self,
        host: &mut impl StreamLink,
        send: &mut SendHalf,
        buf: &[u8],
        header: Header,
        payload_len: usize,
    ) -> Result<(), End> {
        self.header = header;
        self.payload_len = payload_len;
        let place = self.inbound.check(&header, payload_len).map_err(|e| self.broken_rule(e))?;
        match header {
            Header::Tagged { opcode: Opcode::Write, stag, to, .. } => {
                if !self.write_open {
                    self.written = 0;
                    self.write_open = true;
                }
                self.aim(host, stag, to, REMOTE_WRITE)
            }
            Header::Tagged { opcode: Opcode::ReadResponse, stag, to, last } => {
                self.read_response(host, send, stag, to, last)
            }
            Header::Untagged { opcode, .. } if opcode.is_send() => {
                self.target = Target::Receive;
                if place.is_some_and(|place| place.first) {
                    self.wanted = Wanted::ForSend { payload_len };
                    return Ok(());
                }
                self.check_receive(host, buf, payload_len)
            }
            Header::Untagged {
                opcode:
                    Opcode::ReadRequest
                    | Opcode::Immediate
                    | Opcode::ImmediateSe
                    | Opcode::Terminate
                    | Opcode::AtomicRequest
                    | Opcode::AtomicResponse,
                ..
            } => {
                self.target = Target::Body { len: 0 };
                Ok(())
            }
            _ => Err(self.broken_rule(WireError::UnexpectedOpcode(header.opcode()))),
        }
    }

    /// Sets registered memory as the target of a segment, and checks its whole range.
    fn aim(&mut self, host: &mut impl StreamLink, stag: u32, addr: u64, rights: u32) -> Result<(), End> {
        self.target = Target::Memory { stag, addr, rights };
        if self.payload_len > 0 {
            let access = Access { stag, addr, len: self.payload_len, rights };
            host.check(access).map_err(|denied| self.denied(denied))?;
            self.admitted |= rights == REMOTE_WRITE;
        }
        Ok(())
    }

    fn read_response(
        &mut self,
        host: &mut impl StreamLink,
        send: &mut SendHalf,
        stag: u32,
        to: u64,
        last: bool,
    ) -> Result<(), End> {
        let sink = sink(send.awaited_msn());
        let Some((position, read)) = send.sq.oldest_awaited().filter(|(_, entry)| entry.wr.is_read()) else {
            return Err(self.refuse(TermCode::DDP_TAGGED_INVALID_STAG));
        };
        self.reading = position;
        let at = read.received;
        let left = (read.wr.len - at) as usize;
        let empty = read.wr.len == 0;
        if !empty && stag != sink {
            return Err(self.refuse(TermCode::DDP_TAGGED_INVALID_STAG));
        }
        if (!empty && to != u64::from(at)) || self.payload_len > left || last != (self.payload_len == left) {
            return Err(self.refuse(TermCode::DDP_TAGGED_BOUNDS));
        }
        if let Local::Memory { addr, lkey } = read.wr.local {
            return self.aim(host, lkey, addr.wrapping_add(u64::from(at)), LOCAL_WRITE);
        }
        self.target = Target::Entries { position, at };
        let mut parts = read.wr.local.parts(at, self.payload_len, LOCAL_WRITE);
        parts.try_for_each(|part| host.check(part)).map_err(|denied| self.denied(denied))
    }

    /// The registered memory for the next `len` bytes of payload, or for as many of them as go to one range;
    /// `None` if they go to the body.
    fn destination(&self, send: &mut SendHalf, len: usize) -> Option<Access> {
        let (stag, addr, rights) = match self.target {
            Target::Entries { position, at } => {
                return send.sq.at(position)?.wr.local.parts(at, len, LOCAL_WRITE).next();
            }
            Target::Memory { stag, addr, rights } => (stag, addr, rights),
            Target::Receive => {
                let Current { wr, filled } = self.rq.current.as_ref()?;
                return wr.parts(*filled, len).next();
            }
            Target::Body { .. } => return None,
        };
        Some(Access { stag, addr, len, rights })
    }

    /// Processes payload in the buffer: `len` bytes at `from`.
    fn payload(
        &mut self,
        host: &mut impl StreamLink,
        send: &mut SendHalf,
        buf: &[u8],
        from: usize,
        len: usize,
    ) -> Result<(), End> {
        if let Target::Body { len: have } = &mut self.target {
            // The caller passes a body in one piece, and its length was checked.
            let end = (*have + len).min(WHOLE);
            self.body[*have..end].copy_from_slice(&buf[from..][..end - *have]);
            *have = end;
            return Ok(());
        }
        let mut done = 0;
        while let Some(access) = self.destination(send, len - done) {
            if self.placing.len() >= PLACE_BATCH {
                self.settle(host, buf)?;
            }
            host.place(access, from + done).map_err(|denied| self.denied(denied))?;
            self.placing.push((self.header, self.payload_len));
            self.placed(access.len);
            done += access.len;
            if done == len {
                break;
            }
        }
        Ok(())
    }

    /// Carries out the batch of placements.
    fn settle(&mut self, host: &mut impl StreamLink, buf: &[u8]) -> Result<(), End> {
        if self.placing.is_empty() {
            return Ok(());
        }
        let settled = host.settle(buf);
        let failed = settled.map_err(|k| {
            let (header, payload_len) =
                self.placing.get(k).copied().unwrap_or((self.header, self.payload_len));
            fault(&header, payload_len)
        });
        self.placing.clear();
        failed
    }

    /// `n` bytes of payload are in the batch, or placed.
    fn placed(&mut self, n: usize) {
        match &mut self.target {
            Target::Memory { addr, rights, .. } => {
                if *rights == REMOTE_WRITE {
                    self.written = self.written.saturating_add(n as u32);
                }
                *addr = addr.wrapping_add(n as u64);
            }
            Target::Receive => {
                if let Some(current) = &mut self.rq.current {
                    current.filled += n as u32;
                }
            }
            Target::Entries { at, .. } => *at += n as u32,
            Target::Body { .. } => {}
        }
    }

    fn segment_end(
        &mut self,
        host: &mut impl StreamLink,
        send: &mut SendHalf,
        buf: &[u8],
    ) -> Result<(), End> {
        let opcode = self.header.opcode();
        match opcode {
            Opcode::Write => {
                self.write_open = !self.header.last();
                // An empty one may be the first message of the connection (RFC 6581, section 9).
                if self.header.last() && self.written > 0 {
                    host.served(Served::Write, 1, self.written.into());
                }
            }
            Opcode::ReadResponse => self.read_response_end(host, send, buf)?,
            Opcode::ReadRequest => {
                self.settle(host, buf)?;
                self.read_request(host, send)?;
            }
            Opcode::AtomicRequest => self.atomic_request(host, send, buf)?,
            Opcode::AtomicResponse => self.atomic_response(host, send, buf)?,
            Opcode::Immediate | Opcode::ImmediateSe => {
                let body = *self.body.first_chunk::<IMMEDIATE_LEN>().unwrap_or(&[0; IMMEDIATE_LEN]);
                let imm = rdmap::decode_immediate(&body);
                if body[4..] == IMMEDIATE_OF_SEND {
                    self.imm = Some(imm);
                } else {
                    self.wanted = Wanted::ForImmediate { imm, solicited: opcode.solicited() };
                }
            }
            Opcode::Terminate => {
                let Target::Body { len } = self.target else { return Ok(()) };
                let terminate = Terminate::decode(&self.body[..len]).map_err(|e| self.broken_rule(e))?;
                return Err(End::Terminated(terminate));
            }
            _ => self.send_end(host, opcode, buf)?,
        }
        Ok(())
    }

    fn send_end(&mut self, host: &mut impl StreamLink, opcode: Opcode, buf: &[u8]) -> Result<(), End> {
        if !self.header.last() {
            return Ok(());
        }
        self.settle(host, buf)?;
        let mut extra = self.imm.take().map_or(Extra::Nothing, Extra::Imm);
        if let (true, Header::Untagged { inv_stag, .. }) = (opcode.invalidates(), self.header) {
            // The same code for every reason: the peer may be guessing keys.
            host.invalidate(inv_stag).map_err(|_| self.refuse(TermCode::RDMAP_PROT_CANNOT_INVALIDATE))?;
            extra = Extra::Invalidated(inv_stag.to_be_bytes());
        }
        if let Some(Current { wr, filled }) = self.rq.current.take() {
            self.rq.complete(
                host,
                Completion {
                    wr_id: wr.wr_id,
                    opcode: opcode::RECV,
                    byte_len: filled,
                    extra,
                    solicited: opcode.solicited(),
                    ..Completion::default()
                },
            );
        }
        Ok(())
    }

    fn read_response_end(
        &mut self,
        host: &mut impl StreamLink,
        send: &mut SendHalf,
        buf: &[u8],
    ) -> Result<(), End> {
        let last = self.header.last();
        if last {
            self.settle(host, buf)?;
        }
        let Some((_, read)) = send.sq.oldest_awaited() else { return Ok(()) };
        read.received += self.payload_len as u32;
        if last {
            read.progress = Progress::Done(status::SUCCESS);
            send.read_done();
            send.sq.retire(host, self.qp_num);
            // A read or a fenced request may have waited for this one.
            self.wake_send = true;
        }
        Ok(())
    }

    fn read_request(&mut self, host: &mut impl StreamLink, send: &mut SendHalf) -> Result<(), End> {
        const TOO_MANY: TermCode = TermCode::RDMAP_OP_CATASTROPHIC_STREAM;
        let Some(body) = self.body.first_chunk::<{ ReadRequest::LEN }>() else { return Ok(()) };
        let request = ReadRequest::decode(body);
        let header = self.header;
        let refuse = |code: TermCode, cause| {
            End::Refused(Some(Terminate::about_read(code, &header, &request)), Refusal::Read(request, cause))
        };
        let access = Access {
            stag: request.src_stag,
            addr: request.src_to,
            len: request.size as usize,
            rights: REMOTE_READ,
        };
        if request.size > 0 {
            host.check(access)
                .map_err(|denied| refuse(read_denied(self.disclosed(denied)), Cause::Denied(denied)))?;
            self.admitted = true;
        }
        let number =
            send.answer(Answer::Read(request)).ok_or_else(|| refuse(TOO_MANY, Cause::Code(TOO_MANY)))?;
        let durable = match request.size {
            0 => Durable::Now,
            _ => host
                .make_durable(access, number)
                .map_err(|denied| refuse(read_denied(denied), Cause::Denied(denied)))?,
        };
        host.served(Served::Read, 1, request.size.into());
        if durable == Durable::Now {
            send.release_answer(number);
            self.wake_send = true;
        }
        Ok(())
    }
}

fn refuse(code: TermCode, cause: Cause, header: &Header, payload_len: usize) -> End {
    let refusal = Refusal::Segment(*header, payload_len, cause);
    End::Refused(Some(Terminate::about(code, header, payload_len)), refusal)
}

/// The registered memory that a segment accesses is not mapped.
fn fault(header: &Header, payload_len: usize) -> End {
    let terminate = match header.opcode() {
        Opcode::Write => Terminate::about(TermCode::DDP_TAGGED_BOUNDS, header, payload_len),
        _ => Terminate::new(TermCode::LOCAL_CATASTROPHIC),
    };
    End::Refused(Some(terminate), Refusal::Unmapped(header.opcode()))
}
