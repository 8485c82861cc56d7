// SPDX-License-Identifier: BSD-3-Clause
//! A connection in a scripted world, and the peer's side of the wire.

use std::collections::VecDeque;

use crate::iwarp::wire::codes::{QN_ATOMIC_RESPONSE, QN_REQUEST, QN_SEND, QN_TERMINATE};
use crate::iwarp::wire::ddp::Header;
use crate::iwarp::wire::rdmap::{Opcode, ReadRequest, TermCode};
use crate::iwarp::wire::stream;
use crate::iwarp::wire::terminate::Terminate;

use crate::iwarp::conn::{Conn, Framing, Role, Sizes, Terms};
use crate::iwarp::link::LinkError;
use crate::step::{Budget, Quota, Stepped, reason};
use crate::testing::queues::WorkQueue;
pub(super) use crate::testing::recorder::{BARE, BASE, Call, FOREIGN, Recorder, SIZE, STAG, completed};
use crate::testing::stream::Pipe;
use crate::testing::world::StreamWorld;
use crate::units::Errno;
use crate::wr::{Local, Op, RecvWr, SendWr};

pub(super) const QP: u32 = 77;

pub(super) type Host = Recorder<Script>;

/// The peer's end of the link, and what else happens to it.
pub(super) struct Script {
    pub out: Pipe,
    pub incoming: Pipe,
    /// What the next calls of the link give instead.
    pub send_errors: VecDeque<LinkError>,
    pub receive_error: Option<LinkError>,
    /// What the peer has sent arrives just before the next send fails.
    pub arrives_late: Vec<u8>,
    /// How often the connection has reported that everything was acted on.
    pub acted: usize,
}

impl Script {
    fn new() -> Self {
        Self {
            out: Pipe::new(usize::MAX),
            incoming: Pipe::new(usize::MAX),
            send_errors: VecDeque::new(),
            receive_error: None,
            arrives_late: Vec::new(),
            acted: 0,
        }
    }

    /// The peer has sent these bytes.
    pub(super) fn arrives(&mut self, bytes: impl AsRef<[u8]>) {
        self.incoming.write(bytes.as_ref());
        self.incoming.arrive(usize::MAX);
    }

    /// The peer has ended its stream.
    pub(super) fn ends(&mut self) {
        self.incoming.fin = true;
        self.incoming.arrive(usize::MAX);
    }
}

impl StreamWorld for Host {
    fn pipes(&mut self) -> (&mut Pipe, &mut Pipe) {
        (&mut self.link.out, &mut self.link.incoming)
    }

    fn fault(&mut self, sending: bool) -> Option<LinkError> {
        if !sending {
            return self.link.receive_error.take();
        }
        let error = self.link.send_errors.pop_front();
        if error.is_some() {
            let late = std::mem::take(&mut self.link.arrives_late);
            self.link.arrives(late);
        }
        error
    }

    fn sent(&mut self, bytes: &[u8], taken: usize, boundary: bool) {
        self.calls.push(Call::Sent(bytes[..taken].to_vec(), boundary));
    }

    fn let_go(&mut self, last: Option<&[u8]>) {
        self.closed = true;
        self.calls.push(Call::Closed(last.map(<[u8]>::to_vec)));
    }

    fn acted_on_all(&mut self) {
        self.link.acted += 1;
    }
}

/// A connection, its host and a clock.
pub(super) struct Bench {
    pub conn: Conn,
    pub host: Host,
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
        let host = Recorder::new(Script::new());
        conn.open(terms, host.now).unwrap();
        let budget = Budget { send: Quota::of_bytes(usize::MAX), receive: Quota::of_bytes(usize::MAX) };
        Self { conn, host, budget }
    }

    /// After the first step, when an FPDU of the peer has arrived.
    pub(super) fn with(terms: Terms<'_>, sizes: Sizes) -> Self {
        let mut bench = Self::opened(terms, sizes);
        bench.receive(&empty_write());
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
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Stepped {
        self.host.link.arrives(bytes);
        self.step(reason::READABLE)
    }

    pub(super) fn post(&mut self, wr: SendWr) -> Stepped {
        self.host.queues.sends.push_back(wr);
        self.step(reason::POSTED)
    }

    pub(super) fn post_receive(&mut self, wr_id: u64, len: u32) -> Stepped {
        self.host.queues.receives.push_back(receive(wr_id, len));
        self.step(reason::RECEIVE)
    }

    /// The peer has closed its side, or the link is cut.
    pub(super) fn hang_up(&mut self) -> Stepped {
        self.host.link.ends();
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
        sends_done(&self.calls())
    }

    /// Of the calls since the last look: what was completed in the receive queue, with its status.
    pub(super) fn receives_done(&mut self) -> Vec<(u64, u32)> {
        receives_done(&self.calls())
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
        to: None,
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

/// An FPDU without effect but that its sender has sent first.
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

/// What was completed in the send queue, with its status.
pub(super) fn sends_done(calls: &[Call]) -> Vec<(u64, u32)> {
    completed(calls, Some(WorkQueue::Send))
}

/// What was completed in the receive queue, with its status.
pub(super) fn receives_done(calls: &[Call]) -> Vec<(u64, u32)> {
    completed(calls, Some(WorkQueue::Receive))
}

/// All that was sent, as one.
pub(super) fn sent(calls: &[Call]) -> Vec<u8> {
    let bytes = |call: &Call| if let Call::Sent(bytes, _) = call { bytes.clone() } else { Vec::new() };
    calls.iter().flat_map(bytes).collect()
}
