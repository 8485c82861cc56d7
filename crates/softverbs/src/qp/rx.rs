// SPDX-License-Identifier: BSD-3-Clause
//! The receiving half of a queue pair: bytes from the socket become placed payload, completed receives, answered reads.
//!
//! What the peer says is checked before a byte moves: the order of its messages by [`crate::wire`], its keys, rights and bounds by
//! [`crate::memory`]. The first thing that is wrong ends the connection, with the Terminate message that the standard asks for; nothing
//! that came before it is undone.
//!
//! Large payloads go from the socket to their place in one step. Small ones come through a buffer, so that one call takes many messages;
//! a payload of up to [`WHOLE`] bytes is placed in one piece, which is what makes an aligned 8-byte write atomic.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::durable::Refused;
use super::receive::RecvWr;
use super::send::{Local, Progress};
use super::{IMMEDIATE_OF_SEND, Qp};
use crate::cq::{Completion, status};
use crate::lock;
use crate::memory::{self, Denied, DirtyRanges, Grant};
use crate::sys::{self, Errno};
use iwarp::ddp::Header;
use iwarp::rdmap::{self, IMMEDIATE_LEN, Opcode, ReadRequest, TermCode};
use iwarp::stream::{Event, MAX_CONTROL_BODY, MAX_FPDU, MAX_TRAILER_LEN, Receiver};
use iwarp::terminate::Terminate;
use iwarp::{Inbound, WireError};

/// Payload of up to this many bytes is handled in one piece. At least the longest body with a fixed form.
const WHOLE: usize = 64;
/// What is left of a payload goes straight to its place when it is at least this long: a call of its own costs less than a copy.
const DIRECT: usize = 8 * 1024;
/// What follows such a payload is looked at in small portions, so that the next one goes to its place, too.
const BEHIND_DIRECT: usize = 4 * 1024;
/// The buffer: with CRCs on it must hold an FPDU and the trailer before it.
const BUFFER: usize = 64 * 1024;
const BUFFER_CRC: usize = 2 * BUFFER;

const _: () = assert!(MAX_CONTROL_BODY <= WHOLE && MAX_FPDU + MAX_TRAILER_LEN < BUFFER_CRC);

const OPCODE_RECV: u32 = 128;
const OPCODE_RECV_RDMA_WITH_IMM: u32 = 129;

/// Why a connection ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The program asked for it.
    Local,
    /// The peer closed its side.
    PeerClosed,
    /// The peer refused something of ours.
    Terminated(Terminate),
    /// Something of the peer is refused; it is told why, where there is a word for it.
    Refused(Option<Terminate>),
    /// The socket failed, or the peer did not keep a time limit.
    Socket(Errno),
    /// The sending half found the reason.
    Sending(super::tx::Failure),
}

/// What came of [`Rx::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// The socket has no more for now.
    Drained,
    /// The socket may have more, but it is another connection's turn.
    Busy,
    /// The next message waits for a receive.
    Stalled,
}

/// The code for a read that may not be done.
pub(crate) fn read_denied(denied: Denied) -> TermCode {
    match denied {
        Denied::Stag => TermCode::RDMAP_PROT_INVALID_STAG,
        Denied::Pd => TermCode::RDMAP_PROT_NOT_OF_STREAM,
        Denied::Rights => TermCode::RDMAP_PROT_ACCESS,
        Denied::Wrap => TermCode::RDMAP_PROT_TO_WRAP,
        Denied::Bounds => TermCode::RDMAP_PROT_BOUNDS,
    }
}

/// The code for a write that may not be done. DDP has no word for a missing right: to it the STag is then not valid for this.
fn write_denied(denied: Denied) -> TermCode {
    match denied {
        Denied::Stag | Denied::Rights => TermCode::DDP_TAGGED_INVALID_STAG,
        Denied::Pd => TermCode::DDP_TAGGED_NOT_OF_STREAM,
        Denied::Wrap => TermCode::DDP_TAGGED_TO_WRAP,
        Denied::Bounds => TermCode::DDP_TAGGED_BOUNDS,
    }
}

/// Where the payload of the current segment goes.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// A peer's write, or our own read: `rights` is what the region must allow.
    Memory { stag: u32, addr: u64, rights: u32 },
    /// The current receive.
    Receive,
    /// The body of a message that is looked at as a whole.
    Body { len: usize },
}

/// What must happen before the next byte is looked at.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Nothing,
    /// A receive for the Send that has just started; its first segment has this much payload.
    ForSend {
        payload_len: usize,
    },
    /// A receive to complete with the immediate data of a write.
    ForImmediate {
        imm: [u8; 4],
        solicited: bool,
    },
}

struct Receive {
    wr: RecvWr,
    filled: u32,
}

/// The messages: everything but the bytes themselves.
struct Messages {
    pd: u32,
    header: Header,
    payload_len: usize,
    target: Target,
    wanted: Wanted,
    receive: Option<Receive>,
    body: [u8; WHOLE],
    inbound: Inbound,
    /// Immediate data that belongs to the next Send.
    imm: Option<[u8; 4]>,
    /// Payload of the write message under way or just over, for the completion of its immediate data.
    written: u32,
    write_open: bool,
    dirty: DirtyRanges,
    /// Held while the buffer is worked through, never across a call that waits.
    grant: Option<Grant>,
    /// The sending half has something new to do.
    wake_tx: bool,
}

pub(crate) struct Rx {
    pub socket: Option<Arc<OwnedFd>>,
    /// The connection is over: what still arrives is thrown away until the peer's end of it.
    pub draining: bool,
    /// The peer has yet to send its first FPDU.
    pub awaiting_first: bool,
    receiver: Receiver,
    buf: Box<[u8]>,
    start: usize,
    end: usize,
    messages: Messages,
}

impl Rx {
    pub(crate) fn new(pd: u32) -> Self {
        Self {
            socket: None,
            draining: false,
            awaiting_first: false,
            receiver: Receiver::new(false),
            buf: Box::default(),
            start: 0,
            end: 0,
            messages: Messages::new(pd),
        }
    }

    /// The connection is there. `early` is what arrived behind the peer's MPA frame.
    pub(crate) fn connect(&mut self, socket: Arc<OwnedFd>, crc: bool, early: &[u8], awaiting_first: bool) {
        self.receiver = Receiver::new(crc);
        self.buf = vec![0; if crc { BUFFER_CRC } else { BUFFER }].into_boxed_slice();
        self.buf[..early.len()].copy_from_slice(early);
        self.end = early.len();
        self.awaiting_first = awaiting_first;
        self.socket = Some(socket);
    }

    /// Whether the sending half has something new to do; asking clears it.
    pub(crate) fn take_wake_tx(&mut self) -> bool {
        std::mem::take(&mut self.messages.wake_tx)
    }

    /// The receive that a message has begun to fill, for its flush completion.
    pub(crate) fn take_receive(&mut self) -> Option<RecvWr> {
        self.messages.receive.take().map(|r| r.wr)
    }

    /// Takes in what the socket has, up to `budget` bytes.
    pub(crate) fn run(&mut self, qp: &Arc<Qp>, budget: usize) -> Result<Ran, End> {
        let mut moved = 0;
        let mut more = true;
        loop {
            let stalled = self.process(qp);
            self.messages.grant = None;
            if stalled? {
                return Ok(Ran::Stalled);
            }
            if !more {
                return Ok(Ran::Drained);
            }
            if moved >= budget {
                return Ok(Ran::Busy);
            }
            match self.receive() {
                Ok((0, _)) => return Err(End::PeerClosed),
                Ok((n, full)) => {
                    moved += n;
                    more = full;
                }
                Err(End::Socket(libc::EAGAIN)) => return Ok(Ran::Drained),
                Err(end) => return Err(end),
            }
        }
    }

    /// Throws away what arrives after the end; true when the peer has ended, too.
    pub(crate) fn drain(&mut self) -> bool {
        let Some(socket) = &self.socket else { return true };
        for _ in 0..16 {
            match sys::recv(socket, &mut self.buf) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) => return e != libc::EAGAIN,
            }
        }
        false
    }

    /// Takes bytes from the socket: how many, and whether it gave all that was asked for.
    fn receive(&mut self) -> Result<(usize, bool), End> {
        let Some(socket) = self.socket.clone() else { return Err(End::PeerClosed) };
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        let remaining = self.receiver.payload_remaining();
        let directly = remaining >= DIRECT && self.end == 0 && !self.receiver.crc();
        let place = if directly { self.messages.place_directly(remaining)? } else { None };
        if let Some((addr, grant)) = place {
            let behind = &mut self.buf[..BEHIND_DIRECT];
            let n = match memory::receive(&socket, &grant, addr, remaining, behind) {
                Ok(n) => n,
                Err(libc::EFAULT) => return Err(self.messages.fault()),
                Err(e) => return Err(End::Socket(e)),
            };
            let placed = n.min(remaining);
            self.receiver.payload_placed(placed);
            self.messages.placed(placed, &grant);
            self.end = n - placed;
            return Ok((n, n >= remaining));
        }
        // What is left is moved to the front when there is little room behind it; it is short then, but for FPDUs with a CRC.
        if self.buf.len() - self.end < self.buf.len() / 2 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let room = self.buf.len() - self.end;
        let n = sys::recv(&socket, &mut self.buf[self.end..]).map_err(End::Socket)?;
        self.end += n;
        Ok((n, n == room))
    }

    /// Works through the buffer; true when a message waits for a receive.
    fn process(&mut self, qp: &Arc<Qp>) -> Result<bool, End> {
        let Self { receiver, buf, start, end, messages, .. } = self;
        loop {
            if !messages.resume(qp)? {
                return Ok(true);
            }
            let input = &buf[*start..*end];
            let remaining = receiver.payload_remaining();
            if remaining <= WHOLE && input.len() < remaining {
                return Ok(false);
            }
            let (consumed, event) = match receiver.next(input) {
                Ok(next) => next,
                Err(error) => {
                    log::warn!("connection ended: {error}");
                    return Err(End::Refused(receiver.terminate()));
                }
            };
            match event {
                Event::Need(_) => {
                    *start += consumed;
                    return Ok(false);
                }
                Event::Segment { header, payload_len } => messages.segment(qp, header, payload_len)?,
                Event::Payload(bytes) => messages.payload(bytes)?,
                Event::SegmentEnd => {
                    messages.segment_end(qp)?;
                    if !qp.heard.load(Ordering::Relaxed) {
                        qp.first_fpdu(std::mem::take(&mut self.awaiting_first));
                    }
                }
            }
            *start += consumed;
        }
    }
}

impl Messages {
    fn new(pd: u32) -> Self {
        Self {
            pd,
            header: Header::Tagged { opcode: Opcode::Write, last: true, stag: 0, to: 0 },
            payload_len: 0,
            target: Target::Body { len: 0 },
            wanted: Wanted::Nothing,
            receive: None,
            body: [0; WHOLE],
            inbound: Inbound::new(),
            imm: None,
            written: 0,
            write_open: false,
            dirty: DirtyRanges::default(),
            grant: None,
            wake_tx: false,
        }
    }

    /// The end of the connection for a reason that the current segment gave.
    fn refuse(&self, code: TermCode) -> End {
        log::warn!("connection ended: {} ({:?})", code.text().unwrap_or("refused"), self.header.opcode());
        End::Refused(Some(Terminate::about(code, &self.header, self.payload_len)))
    }

    fn wire(&self, error: WireError) -> End {
        log::warn!("connection ended: {error}");
        End::Refused(error.terminate().map(|code| Terminate::about(code, &self.header, self.payload_len)))
    }

    /// The memory of the current target is not there, although it is registered.
    fn fault(&self) -> End {
        log::warn!("connection ended: registered memory that an access needs is not mapped (any more)");
        match self.header.opcode() {
            Opcode::Write => self.refuse(TermCode::DDP_TAGGED_BOUNDS),
            _ => End::Refused(Some(Terminate::new(TermCode::LOCAL_CATASTROPHIC))),
        }
    }

    fn segment(&mut self, qp: &Arc<Qp>, header: Header, payload_len: usize) -> Result<(), End> {
        self.header = header;
        self.payload_len = payload_len;
        self.grant = None;
        let place = self.inbound.check(&header, payload_len).map_err(|e| self.wire(e))?;
        match header {
            Header::Tagged { opcode: Opcode::Write, stag, to, .. } => {
                if !self.write_open {
                    self.written = 0;
                    self.write_open = true;
                }
                self.aim(stag, to, memory::REMOTE_WRITE)
            }
            Header::Tagged { opcode: Opcode::ReadResponse, stag, to, last } => {
                self.read_response(qp, stag, to, last)
            }
            Header::Untagged { opcode, .. } if opcode.is_send() => {
                if opcode.invalidates() {
                    return Err(self.refuse(TermCode::RDMAP_PROT_CANNOT_INVALIDATE));
                }
                self.target = Target::Receive;
                if place.is_some_and(|place| place.first) {
                    self.wanted = Wanted::ForSend { payload_len };
                    return Ok(());
                }
                self.check_receive(qp, payload_len)
            }
            Header::Untagged {
                opcode: Opcode::ReadRequest | Opcode::Immediate | Opcode::ImmediateSe | Opcode::Terminate,
                ..
            } => {
                self.target = Target::Body { len: 0 };
                Ok(())
            }
            _ => Err(self.wire(WireError::UnexpectedOpcode(header.opcode()))),
        }
    }

    /// Checks the whole range of a segment that goes to registered memory.
    fn aim(&mut self, stag: u32, addr: u64, rights: u32) -> Result<(), End> {
        self.target = Target::Memory { stag, addr, rights };
        if self.payload_len > 0 {
            self.grant = Some(self.grant_for(stag, addr, self.payload_len, rights)?);
        }
        Ok(())
    }

    fn grant_for(&self, stag: u32, addr: u64, len: usize, rights: u32) -> Result<Grant, End> {
        memory::acquire(stag, self.pd, addr, len as u64, rights).map_err(|denied| {
            match self.header.opcode() {
                Opcode::Write | Opcode::ReadResponse => self.refuse(write_denied(denied)),
                _ => self.refuse(TermCode::DDP_CATASTROPHIC),
            }
        })
    }

    fn read_response(&mut self, qp: &Arc<Qp>, stag: u32, to: u64, last: bool) -> Result<(), End> {
        let mut tx = lock(&qp.tx);
        let Some((_, wr)) = tx.sq.oldest_read() else {
            drop(tx);
            return Err(self.refuse(TermCode::DDP_TAGGED_INVALID_STAG));
        };
        let Local::Memory { addr, lkey } = wr.local else {
            drop(tx);
            return Err(self.refuse(TermCode::DDP_TAGGED_INVALID_STAG));
        };
        let left = (wr.len - wr.received) as usize;
        let at = addr.wrapping_add(u64::from(wr.received));
        let empty = wr.len == 0;
        drop(tx);
        if !empty && stag != lkey {
            return Err(self.refuse(TermCode::DDP_TAGGED_INVALID_STAG));
        }
        if (!empty && to != at) || self.payload_len > left || last != (self.payload_len == left) {
            return Err(self.refuse(TermCode::DDP_TAGGED_BOUNDS));
        }
        self.aim(lkey, at, memory::LOCAL_WRITE)
    }

    /// Does what has to be done first; false when it must wait.
    fn resume(&mut self, qp: &Arc<Qp>) -> Result<bool, End> {
        match self.wanted {
            Wanted::Nothing => return Ok(true),
            Wanted::ForSend { payload_len } => {
                let Some(wr) = self.next_receive(qp)? else { return Ok(false) };
                self.receive = Some(Receive { wr, filled: 0 });
                self.wanted = Wanted::Nothing;
                self.check_receive(qp, payload_len)?;
            }
            Wanted::ForImmediate { imm, solicited } => {
                let Some(wr) = self.next_receive(qp)? else { return Ok(false) };
                self.wanted = Wanted::Nothing;
                qp.complete_receive(Completion {
                    wr_id: wr.wr_id,
                    opcode: OPCODE_RECV_RDMA_WITH_IMM,
                    byte_len: self.written,
                    imm: Some(imm),
                    solicited,
                    ..qp.completion()
                });
            }
        }
        Ok(true)
    }

    /// The next posted receive. Where none is posted, the stream waits for one if the connection was set up so (as with an unlimited
    /// RNR retry count); else that is the peer's error.
    fn next_receive(&mut self, qp: &Arc<Qp>) -> Result<Option<RecvWr>, End> {
        match qp.take_posted_receive() {
            Some(wr) => Ok(Some(wr)),
            None if qp.waits_for_receives() => Ok(None),
            None => Err(self.refuse(TermCode::DDP_UNTAGGED_NO_BUFFER)),
        }
    }

    /// Checks that a segment fits into the rest of the current receive, and that its memory may be written.
    fn check_receive(&mut self, qp: &Arc<Qp>, payload_len: usize) -> Result<(), End> {
        let Some(Receive { wr, filled }) = &self.receive else {
            return Err(self.refuse(TermCode::DDP_UNTAGGED_NO_BUFFER));
        };
        let (wr, filled) = (*wr, *filled);
        if payload_len > (wr.len - filled) as usize {
            self.fail_receive(qp, status::LOC_LEN_ERR);
            return Err(self.refuse(TermCode::DDP_UNTAGGED_TOO_LONG));
        }
        if payload_len > 0 {
            let at = wr.addr.wrapping_add(u64::from(filled));
            match self.grant_for(wr.lkey, at, payload_len, memory::LOCAL_WRITE) {
                Ok(grant) => self.grant = Some(grant),
                Err(end) => {
                    self.fail_receive(qp, status::LOC_PROT_ERR);
                    return Err(end);
                }
            }
        }
        Ok(())
    }

    fn fail_receive(&mut self, qp: &Qp, status: u32) {
        if let Some(Receive { wr, .. }) = self.receive.take() {
            qp.complete_receive(Completion {
                wr_id: wr.wr_id,
                status,
                opcode: OPCODE_RECV,
                ..qp.completion()
            });
        }
    }

    /// Address, key and needed right of the next payload byte.
    fn destination(&self) -> Option<(u32, u64, u32)> {
        match self.target {
            Target::Memory { stag, addr, rights } => Some((stag, addr, rights)),
            Target::Receive => {
                let Receive { wr, filled } = self.receive.as_ref()?;
                Some((wr.lkey, wr.addr.wrapping_add(u64::from(*filled)), memory::LOCAL_WRITE))
            }
            Target::Body { .. } => None,
        }
    }

    /// Where the next `len` bytes of payload go, if that is registered memory.
    fn place_directly(&mut self, len: usize) -> Result<Option<(u64, Grant)>, End> {
        match self.destination() {
            Some((stag, addr, rights)) => Ok(Some((addr, self.grant_for(stag, addr, len, rights)?))),
            None => Ok(None),
        }
    }

    fn payload(&mut self, bytes: &[u8]) -> Result<(), End> {
        let Some((stag, addr, rights)) = self.destination() else {
            if let Target::Body { len } = &mut self.target {
                // A body is handed out in one piece, and its length was checked.
                let end = (*len + bytes.len()).min(WHOLE);
                self.body[*len..end].copy_from_slice(&bytes[..end - *len]);
                *len = end;
            }
            return Ok(());
        };
        let grant = match self.grant.take() {
            Some(grant) => grant,
            None => self.grant_for(stag, addr, bytes.len(), rights)?,
        };
        if memory::place(&grant, addr, bytes).is_err() {
            return Err(self.fault());
        }
        self.placed(bytes.len(), &grant);
        self.grant = Some(grant);
        Ok(())
    }

    /// `n` bytes of payload are at their place.
    fn placed(&mut self, n: usize, grant: &Grant) {
        match &mut self.target {
            Target::Memory { addr, rights, .. } => {
                if *rights == memory::REMOTE_WRITE {
                    self.written = self.written.saturating_add(n as u32);
                    self.dirty.note(grant, *addr, n as u64);
                }
                *addr = addr.wrapping_add(n as u64);
            }
            Target::Receive => {
                if let Some(receive) = &mut self.receive {
                    receive.filled += n as u32;
                }
            }
            Target::Body { .. } => {}
        }
    }

    fn segment_end(&mut self, qp: &Arc<Qp>) -> Result<(), End> {
        self.grant = None;
        let opcode = self.header.opcode();
        match opcode {
            Opcode::Write => self.write_open = !self.header.last(),
            Opcode::ReadResponse => self.read_response_end(qp),
            Opcode::ReadRequest => self.read_request(qp)?,
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
                let terminate = Terminate::decode(&self.body[..len]).map_err(|e| self.wire(e))?;
                return Err(End::Terminated(terminate));
            }
            _ => self.send_end(qp, opcode),
        }
        Ok(())
    }

    fn send_end(&mut self, qp: &Qp, opcode: Opcode) {
        if !self.header.last() {
            return;
        }
        if let Some(Receive { wr, filled }) = self.receive.take() {
            qp.complete_receive(Completion {
                wr_id: wr.wr_id,
                opcode: OPCODE_RECV,
                byte_len: filled,
                imm: self.imm.take(),
                solicited: opcode.solicited(),
                ..qp.completion()
            });
        }
    }

    fn read_response_end(&mut self, qp: &Qp) {
        let mut tx = lock(&qp.tx);
        let Some((_, wr)) = tx.sq.oldest_read() else { return };
        wr.received += self.payload_len as u32;
        if !self.header.last() {
            return;
        }
        wr.progress = Progress::Done(status::SUCCESS);
        tx.read_done();
        tx.sq.retire(&qp.send_cq, qp.num);
        // A read or a fenced request may have waited for this one.
        self.wake_tx = true;
    }

    fn read_request(&mut self, qp: &Arc<Qp>) -> Result<(), End> {
        let Some(body) = self.body.first_chunk::<{ ReadRequest::LEN }>() else { return Ok(()) };
        let request = ReadRequest::decode(body);
        let refuse = |code: TermCode| {
            log::warn!("connection ended: read refused: {}", code.text().unwrap_or("refused"));
            End::Refused(Some(Terminate::about_read(code, &self.header, &request)))
        };
        let mut dirty = Vec::new();
        if request.size > 0 {
            let len = u64::from(request.size);
            let grant = memory::acquire(request.src_stag, self.pd, request.src_to, len, memory::REMOTE_READ)
                .map_err(|denied| refuse(read_denied(denied)))?;
            dirty = self.dirty.take(&grant);
        }
        qp.answer_durable(request, dirty).map_err(|refused| match refused {
            Refused::TooMany => refuse(TermCode::RDMAP_OP_CATASTROPHIC_STREAM),
            Refused::NotDurable => End::Refused(Some(Terminate::new(TermCode::LOCAL_CATASTROPHIC))),
        })?;
        self.wake_tx = true;
        Ok(())
    }
}

/// What a refused work request of ours ends with, if the peer said why.
pub(crate) fn status_of(terminate: &Terminate) -> Option<u32> {
    match (terminate.layer, terminate.etype) {
        (0, 1) => Some(status::REM_ACCESS_ERR),
        (0, 2) => Some(status::REM_OP_ERR),
        _ => None,
    }
}

/// The words for a Terminate message.
pub(crate) fn describe(terminate: &Terminate) -> &'static str {
    TermCode::text(&terminate.term_code()).unwrap_or("a code that no standard defines")
}
