// SPDX-License-Identifier: BSD-3-Clause
//! The opening phase of a connection with a peer that follows the standard loosely, like kernels: a raw TCP
//! peer.

mod common;
use common::*;
use rdma_sys::*;
use softverbs::rdma as cm;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use transport::iwarp::wire::ddp::Header;
use transport::iwarp::wire::mpa::{self, Decoded, Enhanced, Frame, Kind};
use transport::iwarp::wire::rdmap::Opcode;
use transport::iwarp::wire::stream::{self, Event, MAX_CONTROL_FPDU, Receiver};

const ESTABLISHED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;
const DISCONNECTED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED;
const SEND: u32 = ibv_wr_opcode::IBV_WR_SEND;
const WRITE: u32 = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
const EMPTY_WRITE: Header = Header::Tagged { opcode: Opcode::Write, last: true, stag: 1, to: 0 };

/// The raw stream, with the segments that the end under test sends.
struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
    receiver: Receiver,
}

impl Peer {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self { stream, input: Vec::new(), receiver: Receiver::new(false) }
    }

    /// Receives more bytes; false if none arrive in this time.
    fn more(&mut self, wait: Duration) -> bool {
        self.stream.set_read_timeout(Some(wait)).unwrap();
        let mut chunk = [0; 65536];
        match self.stream.read(&mut chunk) {
            Ok(0) => panic!("the stream ended"),
            Ok(n) => self.input.extend_from_slice(&chunk[..n]),
            Err(e) => assert!(matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{e}"),
        }
        !self.input.is_empty()
    }

    fn frame(&mut self, kind: Kind) -> Frame {
        loop {
            if let Decoded::Frame { frame, consumed, .. } = mpa::decode(kind, &self.input).unwrap() {
                self.input.drain(..consumed);
                return frame;
            }
            assert!(self.more(Duration::from_secs(5)), "no MPA frame");
        }
    }

    /// The next segment, without its payload.
    fn segment(&mut self, wait: Duration) -> Option<(Header, usize)> {
        let deadline = Instant::now() + wait;
        let mut segment = None;
        loop {
            let (consumed, event) = self.receiver.next(&self.input).unwrap();
            let mut more = false;
            match event {
                Event::Segment { header, payload_len } => segment = Some((header, payload_len)),
                Event::SegmentEnd => {
                    self.input.drain(..consumed);
                    return segment;
                }
                Event::Payload(_) => {}
                Event::Need(_) => more = true,
            }
            self.input.drain(..consumed);
            if more {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    assert_eq!(segment, None, "the rest of a segment is missing");
                    return None;
                }
                self.more(left.min(Duration::from_millis(20)));
            }
        }
    }

    fn send(&mut self, header: &Header, body: &[u8]) {
        let mut out = [0; MAX_CONTROL_FPDU];
        let len = stream::encode_fpdu(header, body, false, &mut out);
        self.stream.write_all(&out[..len]).unwrap();
    }

    fn mpa(&mut self, kind: Kind, enhanced: Enhanced) {
        let frame =
            Frame { kind, markers: false, crc: false, reject: false, revision: 2, enhanced: Some(enhanced) };
        let mut bytes = Vec::new();
        mpa::encode(&frame, b"", &mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }
}

/// Connects to a raw responder, which has replied and agrees to the announced first message or (`announce`
/// false) declines it.
fn initiate(announce: bool) -> (End, Peer) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let end = connect(c"127.0.0.1", listener.local_addr().unwrap().port(), 16, b"");
    let mut peer = Peer::new(listener.accept().unwrap().0);
    assert!(peer.frame(Kind::Request).enhanced.unwrap().peer_to_peer);
    let plain = Enhanced { ird: 8, ord: 8, ..Enhanced::default() };
    peer.mpa(Kind::Reply, Enhanced { peer_to_peer: announce, rtr_write: announce, ..plain });
    assert_eq!(next_event(end.events).0, ESTABLISHED);
    (end, peer)
}

/// Accepts a raw initiator, which announces its first message or does not. The established event stays in the
/// queue.
fn respond(announce: bool) -> (End, Peer) {
    // SAFETY: each object is destroyed exactly once.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let (listen_id, port) = listen(events, c"127.0.0.1");
        let mut peer = Peer::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
        let plain = Enhanced { ird: 8, ord: 8, ..Enhanced::default() };
        peer.mpa(Kind::Request, Enhanced { peer_to_peer: announce, rtr_write: announce, ..plain });
        let (id, _) = take_request(events);
        let end = accept(id, 16, b"");
        assert_eq!(cm::rdma_destroy_id(listen_id), 0);
        cm::rdma_destroy_event_channel(events);
        (end, peer)
    }
}

fn finish(end: End, peer: Peer) {
    drop(peer);
    assert_eq!(next_event(end.events).0, DISCONNECTED);
    end.destroy();
}

/// The kernel's responder may not see the first message until another one arrives.
#[test]
fn an_initiator_that_receives_nothing_sends_probes() {
    for announce in [true, false] {
        let (end, mut peer) = initiate(announce);
        for round in 0..4 {
            let got = peer.segment(Duration::from_secs(5));
            assert_eq!(got, Some((EMPTY_WRITE, 0)), "round {round}, announced: {announce}");
        }
        peer.send(&EMPTY_WRITE, b"");
        // One may be on its way; then nothing arrives for longer than two intervals.
        peer.segment(Duration::from_millis(400));
        assert_eq!(peer.segment(Duration::from_millis(400)), None);
        finish(end, peer);
    }
}

/// A peer that does not read still gets a probe, and then everything, in order.
#[test]
fn an_initiator_sends_less_than_a_window_before_it_receives_something() {
    const LEN: usize = 1 << 20;
    let (end, mut peer) = initiate(true);
    let mut bytes = vec![5; LEN];
    let source = end.register(&mut bytes, 0);
    let mut wr = request(WRITE, 1, SIGNALED);
    wr.wr.rdma.remote_addr = 0x1000;
    wr.wr.rdma.rkey = 0x77;
    assert_eq!(end.post(&mut wr, Some(&mut sge(source, 0, LEN))), 0);
    assert_eq!(peer.segment(Duration::from_secs(5)), Some((EMPTY_WRITE, 0)));
    let mut at = 0;
    let mut first = 0;
    while at < LEN {
        let (header, len) = peer.segment(Duration::from_secs(5)).unwrap();
        let to = 0x1000 + at as u64;
        at += len;
        let expected = Header::Tagged { opcode: Opcode::Write, last: at == LEN, stag: 0x77, to };
        assert_eq!(header, expected, "no message may come between the segments");
        first = if first == 0 { len } else { first };
    }
    assert!(first <= 32 * 1024, "{first} bytes in the first segment");
    assert_eq!(end.poll().wr_id, 1);
    dereg(source);
    finish(end, peer);
}

/// The kernel's initiator treats bytes directly after the reply as a part of it.
#[test]
fn a_responder_pauses_before_it_sends_first() {
    let (end, mut peer) = respond(false);
    let begin = Instant::now();
    assert_eq!(next_event(end.events).0, ESTABLISHED);
    assert_eq!(end.post(&mut request(SEND, 1, SIGNALED), None), 0);
    peer.frame(Kind::Reply);
    let got = peer.segment(Duration::from_secs(5)).unwrap();
    assert_eq!(got.0.opcode(), Opcode::Send);
    assert!(begin.elapsed() >= Duration::from_millis(90), "after {:?}", begin.elapsed());
    finish(end, peer);
}

/// An initiator that did not announce a message may have finished and closed before the accept call of the
/// responder's program returns.
#[test]
fn a_connection_that_ends_at_once_is_established_first() {
    // SAFETY: each object is destroyed exactly once.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let (listen_id, port) = listen(events, c"127.0.0.1");
        for round in 0..300 {
            let mut peer = Peer::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
            peer.mpa(Kind::Request, Enhanced { ird: 8, ord: 8, ..Enhanced::default() });
            // An initiator that closes before its request is fetched withdraws it.
            let (id, _) = take_request(events);
            peer.stream.shutdown(std::net::Shutdown::Write).unwrap();
            let end = accept(id, 16, b"");
            let seen = (next_event(end.events).0, next_event(end.events).0);
            assert_eq!(seen, (ESTABLISHED, DISCONNECTED), "round {round}");
            end.destroy();
        }
        assert_eq!(cm::rdma_destroy_id(listen_id), 0);
        cm::rdma_destroy_event_channel(events);
    }
}

#[test]
fn a_responder_sends_at_once_after_the_announced_message() {
    for announce in [true, false] {
        // A busy machine may be slow sometimes.
        let fast = (0..5).any(|_| {
            let (end, mut peer) = respond(announce);
            peer.frame(Kind::Reply);
            let begin = Instant::now();
            peer.send(&EMPTY_WRITE, b"");
            assert_eq!(next_event(end.events).0, ESTABLISHED);
            assert_eq!(end.post(&mut request(SEND, 1, SIGNALED), None), 0);
            let mut got = peer.segment(Duration::from_secs(5)).unwrap();
            if announce {
                assert_eq!(got, (EMPTY_WRITE, 0), "the answer to the announced message");
                got = peer.segment(Duration::from_secs(5)).unwrap();
            }
            assert_eq!(got.0.opcode(), Opcode::Send);
            let fast = begin.elapsed() < Duration::from_millis(50);
            finish(end, peer);
            fast
        });
        assert!(fast, "announced: {announce}");
    }
}
