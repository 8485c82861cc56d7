// SPDX-License-Identifier: BSD-3-Clause
//! A host that records what a connection asks of it, and the peer's side of the wire.

use std::collections::VecDeque;

use crate::iwarp::wire::codes::{QN_ATOMIC_RESPONSE, QN_REQUEST, QN_SEND, QN_TERMINATE};
use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{Opcode, ReadRequest, TermCode};
use crate::iwarp::wire::stream;
use crate::iwarp::wire::terminate::Terminate;

use crate::access::{
    Access, Bind, Denied, FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Unchanged,
    Unreachable,
};
use crate::host::{Durable, Host, LinkError, Part};
use crate::iwarp::conn::{Conn, Framing, Role, Sizes, Terms};
use crate::step::{Budget, Quota, Stepped, reason};
use crate::units::Errno;
use crate::units::Micros;
use crate::wr::{Completion, Local, Op, RecvWr, SendWr};

/// The region that the tests use: [`BASE`] to `BASE + SIZE`, with all rights.
pub(super) const STAG: u32 = 0x100;
/// A region that allows nothing to anybody but this process's own sends.
pub(super) const BARE: u32 = 0x200;
/// A region of another protection domain.
pub(super) const FOREIGN: u32 = 0x300;
pub(super) const BASE: u64 = 0x1_0000;
pub(super) const SIZE: usize = 0x1_0000;
pub(super) const QP: u32 = 77;

/// What was called, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The link took these bytes, and whether they end a segment.
    Sent(Vec<u8>, bool),
    Placed(Access),
    /// DirectCopy the link: so many bytes of what was asked for.
    Transferred(Vec<Access>, usize),
    /// Straight from the link.
    PlacedDirectly(Access),
    Settled,
    Changed(Access),
    Flushed(Access, u64),
    Bound(Bind),
    Invalidated(u32),
    SendDone(Completion),
    RecvDone(Completion),
    Released,
    Established,
    Ended,
    Closed(Option<Vec<u8>>),
}

pub(super) struct Recorder {
    pub now: Micros,
    pub calls: Vec<Call>,
    /// Bytes that the link still takes.
    pub room: usize,
    /// What the next calls of the link give instead.
    pub send_errors: VecDeque<LinkError>,
    pub receive_error: Option<LinkError>,
    /// How much of what it is asked for the host transfers by direct copy, each time.
    pub transfers: VecDeque<usize>,
    /// What it says it may.
    pub may_transfer: bool,
    /// How often it was told that everything was acted on.
    pub acted: usize,
    /// What it was told at the end: that neither side has closed the connection.
    pub failed: Option<bool>,
    pub input: VecDeque<u8>,
    pub input_ends: bool,
    pub memory: Vec<u8>,
    /// The memory from this address on is not mapped any more.
    pub mapped_to: u64,
    batch: Vec<(Access, usize)>,
    pub durable: Result<Durable, Denied>,
    /// What comes of binding and invalidating windows.
    pub windows: Result<(), Denied>,
    pub sends: VecDeque<SendWr>,
    pub receives: VecDeque<RecvWr>,
    /// Completions that still find room.
    pub send_room: usize,
    pub recv_room: usize,
}

/// Bytes that differ from those beside them. By copies, since Miri takes long for each byte.
fn contents() -> Vec<u8> {
    let mut memory = (0..251).collect::<Vec<u8>>().repeat(SIZE.div_ceil(251));
    memory.truncate(SIZE);
    memory
}

impl Recorder {
    fn new() -> Self {
        Self {
            now: 1_000_000,
            calls: Vec::new(),
            room: usize::MAX,
            send_errors: VecDeque::new(),
            receive_error: None,
            transfers: VecDeque::new(),
            may_transfer: false,
            acted: 0,
            failed: None,
            input: VecDeque::new(),
            input_ends: false,
            memory: contents(),
            mapped_to: u64::MAX,
            batch: Vec::new(),
            durable: Ok(Durable::Now),
            windows: Ok(()),
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            send_room: usize::MAX,
            recv_room: usize::MAX,
        }
    }

    fn allowed(access: Access) -> Result<(), Denied> {
        let rights = match access.stag {
            STAG => LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_PERSISTENT,
            BARE => 0,
            FOREIGN => return Err(Denied::Pd),
            _ => return Err(Denied::Stag),
        };
        if access.rights & !rights != 0 {
            return Err(Denied::Rights);
        }
        let end = access.addr.checked_add(access.len as u64).ok_or(Denied::Wrap)?;
        if access.addr < BASE || end > BASE + SIZE as u64 { Err(Denied::Bounds) } else { Ok(()) }
    }

    fn is_mapped(&self, access: Access) -> bool {
        access.addr + access.len as u64 <= self.mapped_to
    }

    pub(super) fn bytes(&self, addr: u64, len: usize) -> &[u8] {
        &self.memory[(addr - BASE) as usize..][..len]
    }

    fn bytes_mut(&mut self, access: Access) -> &mut [u8] {
        &mut self.memory[(access.addr - BASE) as usize..][..access.len]
    }
}

impl Host for Recorder {
    fn now(&mut self) -> Micros {
        self.now
    }

    fn send(&mut self, parts: &[Part<'_>], boundary: bool) -> Result<usize, LinkError> {
        if let Some(error) = self.send_errors.pop_front() {
            return Err(error);
        }
        let mut bytes = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            match *part {
                Part::Bytes(part) => bytes.extend_from_slice(part),
                Part::Memory(access) => {
                    Self::allowed(access)
                        .map_err(|denied| LinkError::Memory(i, Unreachable::Denied(denied)))?;
                    if !self.is_mapped(access) {
                        return Err(LinkError::Memory(i, Unreachable::Fault));
                    }
                    bytes.extend_from_slice(self.bytes(access.addr, access.len));
                }
            }
        }
        if self.room == 0 {
            return Err(LinkError::Blocked);
        }
        bytes.truncate(self.room);
        self.room -= bytes.len();
        let taken = bytes.len();
        self.calls.push(Call::Sent(bytes, boundary));
        Ok(taken)
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        if let Some(error) = self.receive_error.take() {
            return Err(error);
        }
        if self.input.is_empty() {
            return if self.input_ends { Ok(0) } else { Err(LinkError::Blocked) };
        }
        let n = into.len().min(self.input.len());
        into.iter_mut().zip(self.input.drain(..n)).for_each(|(to, byte)| *to = byte);
        Ok(n)
    }

    fn receive_placed(&mut self, to: Access, rest: &mut [u8]) -> Result<usize, LinkError> {
        Self::allowed(to).map_err(|denied| LinkError::Memory(0, Unreachable::Denied(denied)))?;
        if !self.is_mapped(to) {
            return Err(LinkError::Memory(0, Unreachable::Fault));
        }
        let mut bytes = vec![0; to.len];
        let first = self.receive(&mut bytes)?;
        self.bytes_mut(Access { len: first, ..to }).copy_from_slice(&bytes[..first]);
        self.calls.push(Call::PlacedDirectly(Access { len: first, ..to }));
        Ok(if first < to.len { first } else { first + self.receive(rest).unwrap_or(0) })
    }

    fn close(&mut self, last: Option<&[u8]>) {
        self.calls.push(Call::Closed(last.map(<[u8]>::to_vec)));
    }

    fn transfer(&mut self, remote: &[Access], local: &[Part<'_>]) -> usize {
        let len = |part: &Part<'_>| match part {
            Part::Bytes(bytes) => bytes.len(),
            Part::Memory(access) => access.len,
        };
        let bytes = remote.iter().map(|access| access.len).sum::<usize>();
        assert_eq!(local.iter().map(len).sum::<usize>(), bytes);
        assert!(
            remote.iter().all(|access| (access.stag, access.rights) == (remote[0].stag, remote[0].rights))
        );
        let n = self.transfers.pop_front().unwrap_or(0);
        self.calls.push(Call::Transferred(remote.to_vec(), n));
        n
    }

    fn may_transfer(&self, _remote: Access) -> bool {
        self.may_transfer
    }

    fn acted(&mut self) {
        self.acted += 1;
    }

    fn check(&mut self, access: Access) -> Result<(), Denied> {
        Self::allowed(access)
    }

    fn place(&mut self, access: Access, from: usize) -> Result<(), Denied> {
        Self::allowed(access)?;
        self.batch.push((access, from));
        Ok(())
    }

    fn settle(&mut self, input: &[u8]) -> Result<(), usize> {
        for (k, (access, from)) in std::mem::take(&mut self.batch).into_iter().enumerate() {
            if !self.is_mapped(access) {
                return Err(k);
            }
            self.bytes_mut(access).copy_from_slice(&input[from..][..access.len]);
            self.calls.push(Call::Placed(access));
        }
        self.calls.push(Call::Settled);
        Ok(())
    }

    fn fetch(&mut self, from: Access, into: &mut [u8]) -> Result<(), Unreachable> {
        Self::allowed(from).map_err(Unreachable::Denied)?;
        if !self.is_mapped(from) {
            return Err(Unreachable::Fault);
        }
        into.copy_from_slice(self.bytes(from.addr, from.len));
        Ok(())
    }

    fn change(&mut self, access: Access, update: &dyn Fn(u64) -> u64) -> Result<u64, Unchanged> {
        assert!(self.batch.is_empty(), "a word is changed before what was placed");
        Self::allowed(access).map_err(Unchanged::Denied)?;
        if access.addr % 8 != 0 {
            return Err(Unchanged::Misaligned);
        }
        if !self.is_mapped(access) {
            return Err(Unchanged::Fault);
        }
        self.calls.push(Call::Changed(access));
        let word = self.bytes_mut(access);
        let original = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        word.copy_from_slice(&update(original).to_ne_bytes());
        Ok(original)
    }

    fn make_durable(&mut self, read: Access, number: u64) -> Result<Durable, Denied> {
        self.calls.push(Call::Flushed(read, number));
        self.durable
    }

    fn bind(&mut self, window: Bind) -> Result<(), Denied> {
        self.calls.push(Call::Bound(window));
        self.windows
    }

    fn invalidate(&mut self, stag: u32) -> Result<(), Denied> {
        self.calls.push(Call::Invalidated(stag));
        self.windows
    }

    fn next_send(&mut self) -> Option<SendWr> {
        self.sends.pop_front()
    }

    fn next_receive(&mut self) -> Option<RecvWr> {
        self.receives.pop_front()
    }

    fn complete_send(&mut self, completion: Completion) -> bool {
        let room = self.send_room > 0;
        if room {
            self.send_room -= 1;
            self.calls.push(Call::SendDone(completion));
        }
        room
    }

    fn complete_receive(&mut self, completion: Completion) -> bool {
        let room = self.recv_room > 0;
        if room {
            self.recv_room -= 1;
            self.calls.push(Call::RecvDone(completion));
        }
        room
    }

    fn release_send(&mut self) {
        self.calls.push(Call::Released);
    }

    fn established(&mut self) {
        self.calls.push(Call::Established);
    }

    fn ended(&mut self, failed: bool) {
        self.failed = Some(failed);
        self.calls.push(Call::Ended);
    }
}

/// A connection, its host and a clock.
pub(super) struct Bench {
    pub conn: Conn,
    pub host: Recorder,
    pub budget: Budget,
}

pub(super) const FRAMING: Framing = Framing { crc: false, mulpdu: 256, segment: None, ord: 2 };

/// What most tests agree on: no peculiarities of opening are left after [`Bench::ready`].
pub(super) fn terms() -> Terms<'static> {
    Terms { framing: FRAMING, role: Role::INITIATOR, wait_for_receives: true, early: &[], transfers: false }
}

impl Bench {
    /// Before the first step.
    pub(super) fn opened(terms: Terms<'_>, sizes: Sizes) -> Self {
        Self::of_depth(8, terms, sizes)
    }

    /// The same with a send queue of so many places.
    pub(super) fn of_depth(depth: u32, terms: Terms<'_>, sizes: Sizes) -> Self {
        let mut conn = Conn::new(QP, depth, true, sizes).unwrap();
        let host = Recorder::new();
        conn.open(terms, host.now).unwrap();
        let budget = Budget { send: Quota::of_bytes(usize::MAX), receive: Quota::of_bytes(usize::MAX) };
        Self { conn, host, budget }
    }

    /// After the first step, when the peer has been heard.
    pub(super) fn with(terms: Terms<'_>, sizes: Sizes) -> Self {
        let mut bench = Self::opened(terms, sizes);
        bench.hear(&empty_write());
        bench.calls();
        bench
    }

    pub(super) fn ready() -> Self {
        Self::with(terms(), Sizes::default())
    }

    pub(super) fn step(&mut self, why: u32) -> Stepped {
        self.conn.step(&mut self.host, why, self.budget)
    }

    /// The peer has sent these bytes.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Stepped {
        self.host.input.extend(bytes);
        self.step(reason::READABLE)
    }

    pub(super) fn post(&mut self, wr: SendWr) -> Stepped {
        self.host.sends.push_back(wr);
        self.step(reason::POSTED)
    }

    pub(super) fn post_receive(&mut self, wr_id: u64, len: u32) -> Stepped {
        self.host.receives.push_back(receive(wr_id, len));
        self.step(reason::RECEIVE)
    }

    /// The peer has closed its side, or the link is cut.
    pub(super) fn hang_up(&mut self) -> Stepped {
        self.host.input_ends = true;
        self.step(reason::READABLE | reason::HANGUP)
    }

    /// What was called since the last look, sends that follow each other as one.
    pub(super) fn calls(&mut self) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        for call in self.host.calls.drain(..) {
            match (calls.last_mut(), call) {
                (Some(Call::Sent(bytes, a)), Call::Sent(more, b)) if *a == b => bytes.extend(more),
                (_, call) => calls.push(call),
            }
        }
        calls
    }

    /// Of the calls since the last look: what was completed in the send queue, with its status.
    pub(super) fn sends_done(&mut self) -> Vec<(u64, u32)> {
        let done = |call| match call {
            Call::SendDone(c) => Some((c.wr_id, c.status)),
            _ => None,
        };
        self.calls().into_iter().filter_map(done).collect()
    }

    /// Of the calls since the last look: what was completed in the receive queue, with its status.
    pub(super) fn receives_done(&mut self) -> Vec<(u64, u32)> {
        let done = |call| match call {
            Call::RecvDone(c) => Some((c.wr_id, c.status)),
            _ => None,
        };
        self.calls().into_iter().filter_map(done).collect()
    }

    /// The connection has ended, and its last words were these: of them what follows the given bytes.
    #[track_caller]
    pub(super) fn assert_ended_with(&mut self, last: Option<Vec<u8>>) {
        let calls = self.calls();
        let closed: Vec<_> = calls.iter().filter(|call| matches!(call, Call::Closed(_))).collect();
        assert_eq!(closed, [&Call::Closed(last)]);
        assert_eq!(calls.iter().filter(|call| **call == Call::Ended).count(), 1);
        assert_eq!(calls.last(), Some(&Call::Ended), "called after all that came before was delivered");
    }

    #[track_caller]
    pub(super) fn assert_refused_with(&mut self, terminate: &Terminate) {
        self.assert_ended_with(Some(terminate_fpdu(terminate)));
    }
}

// ---- work requests -----------------------------------------------------------------------------------------------------------------

/// A signalled request on the region.
pub(super) fn wr(wr_id: u64, op: Op, len: u32) -> SendWr {
    SendWr {
        wr_id,
        op,
        signaled: true,
        fence: false,
        solicited: false,
        imm: *b"imme",
        local: Local::Memory { addr: BASE, lkey: STAG },
        len,
        remote_addr: 0x5000,
        rkey: 0x900,
    }
}

pub(super) fn inline(wr_id: u64, op: Op, bytes: &[u8]) -> SendWr {
    SendWr { local: Local::inline(bytes).unwrap(), ..wr(wr_id, op, bytes.len() as u32) }
}

/// A receive into the region, 4096 bytes times its number from its start.
pub(super) fn receive(wr_id: u64, len: u32) -> RecvWr {
    RecvWr::one(wr_id, receive_addr(wr_id), len, STAG)
}

pub(super) fn receive_addr(wr_id: u64) -> u64 {
    BASE + 4096 * (wr_id % 16)
}

// ---- FPDUs -------------------------------------------------------------------------------------------------------------------------

pub(super) fn fpdu_with(crc: bool, header: &Header, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; stream::fpdu_len(header.len() + body.len())];
    let len = stream::encode_fpdu(header, body, crc, &mut out);
    out.truncate(len);
    out
}

pub(super) fn fpdu(header: &Header, body: &[u8]) -> Vec<u8> {
    fpdu_with(false, header, body)
}

pub(super) fn tagged(opcode: Opcode, last: bool, stag: u32, to: u64) -> Header {
    Header::Tagged { opcode, last, stag, to }
}

pub(super) fn untagged(opcode: Opcode, last: bool, msn: u32, mo: u32) -> Header {
    let qn = match opcode {
        Opcode::ReadRequest | Opcode::AtomicRequest => QN_REQUEST,
        Opcode::AtomicResponse => QN_ATOMIC_RESPONSE,
        Opcode::Terminate => QN_TERMINATE,
        _ => QN_SEND,
    };
    Header::Untagged { opcode, last, inv_stag: 0, qn, msn, mo }
}

pub(super) fn write(stag: u32, to: u64, body: &[u8]) -> Vec<u8> {
    fpdu(&tagged(Opcode::Write, true, stag, to), body)
}

/// What says nothing but that its sender is there.
pub(super) fn empty_write() -> Vec<u8> {
    write(1, 0, &[])
}

pub(super) fn send(msn: u32, body: &[u8]) -> Vec<u8> {
    fpdu(&untagged(Opcode::Send, true, msn, 0), body)
}

/// The peer's answer to the read with this MSN, from byte `at` on.
pub(super) fn response(msn: u32, last: bool, at: u64, body: &[u8]) -> Vec<u8> {
    fpdu(&tagged(Opcode::ReadResponse, last, sink(msn), at), body)
}

/// The STag that stands for the sink of the read with this MSN.
pub(super) fn sink(msn: u32) -> u32 {
    0xff00_0000 + msn
}

/// The peer's read of `len` bytes of a region into its own.
pub(super) fn read_request(stag: u32, addr: u64, len: u32) -> ReadRequest {
    ReadRequest { sink_stag: 0x700, sink_to: 0x8000, size: len, src_stag: stag, src_to: addr }
}

pub(super) fn read(msn: u32, request: &ReadRequest) -> Vec<u8> {
    fpdu(&untagged(Opcode::ReadRequest, true, msn, 0), &request.encode())
}

pub(super) fn terminate_fpdu(terminate: &Terminate) -> Vec<u8> {
    let mut body = [0; Terminate::MAX_LEN];
    let len = terminate.encode(&mut body);
    fpdu(&untagged(Opcode::Terminate, true, 1, 0), &body[..len])
}

/// The Terminate message about a segment.
pub(super) fn about(code: TermCode, header: &Header, payload_len: usize) -> Terminate {
    Terminate::about(code, header, payload_len)
}

pub(super) const fn broken(errno: Errno) -> LinkError {
    LinkError::Broken(errno)
}

/// The segments that these bytes consist of; they must end with one.
#[track_caller]
pub(super) fn segments(mut bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut receiver = stream::Receiver::new(false);
    let mut segments = Vec::new();
    while !bytes.is_empty() {
        let (consumed, event) = receiver.next(bytes).expect("what is sent is well-formed");
        match event {
            stream::Event::Need(_) => assert!(consumed > 0, "{} bytes are left", bytes.len()),
            stream::Event::Segment { header, .. } => segments.push((header, Vec::new())),
            stream::Event::Payload(payload) => segments.last_mut().unwrap().1.extend_from_slice(payload),
            stream::Event::SegmentEnd => {}
        }
        bytes = &bytes[consumed..];
    }
    assert!(receiver.at_boundary(0));
    segments
}

/// All that was sent, as one.
pub(super) fn sent(calls: &[Call]) -> Vec<u8> {
    let bytes = |call: &Call| if let Call::Sent(bytes, _) = call { bytes.clone() } else { Vec::new() };
    calls.iter().flat_map(bytes).collect()
}
