// SPDX-License-Identifier: BSD-3-Clause
//! The first moments of a connection with a peer that keeps the standard loosely, as kernels do: raw TCP in
//! the peer's place.

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

/// What the peer at the other end of the raw stream sends.
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

    /// Takes more bytes; false when none came in this time.
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

    /// The next segment, its payload thrown away.
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

/// Connects to a raw responder, which has replied: it agrees to the announced first message or (`announce`
/// false) does not want it.
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

/// Accepts a raw initiator, which announces its first message or not. The established event is not taken.
fn respond(announce: bool) -> (End, Peer) {
    // SAFETY: each is destroyed once.
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

/// The kernel's responder may lose the first message until another one comes.
#[test]
fn an_initiator_that_hears_nothing_knocks_until_it_does() {
    for announce in [true, false] {
        let (end, mut peer) = initiate(announce);
        for round in 0..4 {
            let got = peer.segment(Duration::from_secs(5));
            assert_eq!(got, Some((EMPTY_WRITE, 0)), "round {round}, announced: {announce}");
        }
        peer.send(&EMPTY_WRITE, b"");
        // One may be on its way; then there is silence, for longer than up to the next one but one.
        peer.segment(Duration::from_millis(400));
        assert_eq!(peer.segment(Duration::from_millis(400)), None);
        finish(end, peer);
    }
}

/// A peer that does not read leaves room for a knock, and then gets everything, in order.
#[test]
fn before_it_was_heard_an_initiator_sends_less_than_a_window() {
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
        assert_eq!(header, expected, "nothing may come between the segments");
        first = if first == 0 { len } else { first };
    }
    assert!(first <= 32 * 1024, "{first} bytes in the first segment");
    assert_eq!(end.poll().wr_id, 1);
    dereg(source);
    finish(end, peer);
}

/// The kernel's initiator takes what follows the reply at once for a part of it.
#[test]
fn a_responder_lets_a_moment_pass_before_it_speaks_first() {
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

/// An initiator that did not announce a message may be done, and gone, before the responder's program is back
/// from accepting.
#[test]
fn a_connection_that_is_over_at_once_was_established_first() {
    // SAFETY: each is destroyed once.
    unsafe {
        let events = cm::rdma_create_event_channel();
        let (listen_id, port) = listen(events, c"127.0.0.1");
        for round in 0..300 {
            let mut peer = Peer::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
            peer.mpa(Kind::Request, Enhanced { ird: 8, ord: 8, ..Enhanced::default() });
            // One that has gone before its request is fetched has withdrawn it.
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
fn a_responder_speaks_at_once_when_it_was_spoken_to() {
    for announce in [true, false] {
        // A busy machine may be slow for once.
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
