// SPDX-License-Identifier: BSD-3-Clause
//! A hostile peer: raw TCP against a listening queue pair. Whatever it sends, memory that it may not write
//! stays unchanged, its connection ends, and the connection of another peer continues.

mod common;
use common::*;
use rdma_sys::*;
use softverbs::rdma as cm;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use transport::iwarp::wire::ddp::Header;
use transport::iwarp::wire::mpa::{self, Decoded, Enhanced, Frame, Kind};
use transport::iwarp::wire::rdmap::{Opcode, ReadRequest};
use transport::iwarp::wire::stream::{self, MAX_CONTROL_FPDU};

const DISCONNECTED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED;
const ESTABLISHED: u32 = rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED;

/// Pseudorandom numbers, the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A listening end with memory of which peers may write only the middle third.
struct Target {
    events: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
    port: u16,
}

const THIRD: usize = 4096;

impl Target {
    fn new() -> Self {
        // SAFETY: the channel is destroyed with the target.
        let events = unsafe { cm::rdma_create_event_channel() };
        let (id, port) = listen(events, c"127.0.0.1");
        Self { events, id, port }
    }

    /// Connects a raw stream and accepts it. Returns the stream and the accepted end.
    fn raw(&self) -> (TcpStream, End) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.set_nodelay(true).unwrap();
        let request = Frame {
            kind: Kind::Request,
            markers: false,
            crc: false,
            reject: false,
            revision: 2,
            enhanced: Some(Enhanced { ird: 8, ord: 8, ..Enhanced::default() }),
        };
        let mut bytes = Vec::new();
        mpa::encode(&request, b"", &mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
        let (id, _) = take_request(self.events);
        let end = accept(id, 16, b"");
        assert_eq!(next_event(end.events).0, ESTABLISHED);
        let mut reply = Vec::new();
        let mut byte = [0];
        loop {
            stream.read_exact(&mut byte).unwrap();
            reply.push(byte[0]);
            if let Decoded::Frame { frame, .. } = mpa::decode(Kind::Reply, &reply).unwrap() {
                assert!(!frame.reject);
                return (stream, end);
            }
        }
    }

    fn close(self) {
        // SAFETY: each object is destroyed exactly once.
        unsafe {
            assert_eq!(cm::rdma_destroy_id(self.id), 0);
            cm::rdma_destroy_event_channel(self.events);
        }
    }
}

fn write_header(stag: u32, to: u64, last: bool) -> Header {
    Header::Tagged { opcode: Opcode::Write, last, stag, to }
}

fn fpdu(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; MAX_CONTROL_FPDU + body.len() + 8];
    let len = stream::encode_fpdu(header, body, false, &mut out);
    out.truncate(len);
    out
}

/// Sends `bytes` and requires the end of the stream.
fn send_and_see_the_end(stream: &mut TcpStream, bytes: &[u8]) {
    // The other end may close before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(e) => {
            assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "the connection did not end: {e}")
        }
    }
}

fn middle(memory: &mut [u8]) -> &mut [u8] {
    &mut memory[THIRD..2 * THIRD]
}

#[test]
fn mutated_messages_end_their_connection_and_nothing_else() {
    let mut numbers = Numbers(0x5eed_5eed_5eed_5eed);
    let target = Target::new();
    let (friend, friends_end) = pair(c"127.0.0.1", 16);
    let mut memory = vec![7u8; 3 * THIRD];
    for round in 0..200 {
        let (mut stream, end) = target.raw();
        let mr = end.register(middle(&mut memory), LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ);
        // SAFETY: the region is still registered.
        let (stag, base) = unsafe { ((*mr).rkey, (*mr).addr as u64) };
        let mut bytes = Vec::new();
        for _ in 0..4 {
            let to = base + numbers.below(THIRD as u64 - 64);
            bytes.extend(fpdu(&write_header(stag, to, true), &[7; 48]));
            let request = ReadRequest { sink_stag: 99, sink_to: 0, size: 64, src_stag: stag, src_to: base };
            let msn = 1 + numbers.below(2) as u32;
            let header =
                Header::Untagged { opcode: Opcode::ReadRequest, last: true, inv_stag: 0, qn: 1, msn, mo: 0 };
            bytes.extend(fpdu(&header, &request.encode()));
        }
        for _ in 0..=numbers.below(6) {
            let at = numbers.below(bytes.len() as u64) as usize;
            bytes[at] = numbers.next() as u8;
        }
        if round % 3 == 0 {
            bytes.truncate(numbers.below(bytes.len() as u64) as usize);
        }
        send_and_see_the_end(&mut stream, &bytes);
        assert_eq!(next_event(end.events).0, DISCONNECTED, "round {round}");
        dereg(mr);
        end.destroy();
        assert!(memory[..THIRD].iter().all(|&b| b == 7), "round {round}");
        assert!(memory[2 * THIRD..].iter().all(|&b| b == 7), "round {round}");
        memory.fill(7);
    }
    // The other connection is not affected.
    assert_eq!(friends_end.post_recv(1, None), 0);
    assert_eq!(friend.post(&mut request(ibv_wr_opcode::IBV_WR_SEND, 2, SIGNALED), None), 0);
    assert_eq!((friends_end.poll().wr_id, friend.poll().wr_id), (1, 2));
    friend.destroy();
    friends_end.destroy();
    target.close();
}

#[test]
fn noise_instead_of_a_request_closes_the_connection_and_listening_continues() {
    let mut numbers = Numbers(42);
    let target = Target::new();
    for round in 0..100 {
        let mut stream = TcpStream::connect(("127.0.0.1", target.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut bytes: Vec<u8> = match round % 3 {
            0 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            1 => (0..numbers.below(600)).map(|_| numbers.next() as u8).collect(),
            _ => [&mpa::KEY_REQ[..], &[0x10, 2, 0xff, 0xff]].concat(),
        };
        bytes.truncate(600);
        send_and_see_the_end(&mut stream, &bytes);
    }
    let (stream, end) = target.raw();
    drop(stream);
    assert_eq!(next_event(end.events).0, DISCONNECTED);
    end.destroy();
    target.close();
}

#[test]
fn a_peer_cannot_have_more_reads_open_than_was_agreed() {
    let target = Target::new();
    let mut memory = vec![7u8; 3 * THIRD];
    let (mut stream, end) = target.raw();
    let mr = end.register(middle(&mut memory), LOCAL_WRITE | REMOTE_READ);
    let mut bytes = Vec::new();
    for msn in 1..=5000u32 {
        // SAFETY: the region is still registered.
        let request = unsafe {
            ReadRequest {
                sink_stag: 99,
                sink_to: 0,
                size: THIRD as u32,
                src_stag: (*mr).rkey,
                src_to: (*mr).addr as u64,
            }
        };
        let header =
            Header::Untagged { opcode: Opcode::ReadRequest, last: true, inv_stag: 0, qn: 1, msn, mo: 0 };
        bytes.extend(fpdu(&header, &request.encode()));
    }
    // Nothing is read here, so the responses cannot be sent.
    let _ = stream.write_all(&bytes);
    assert_eq!(next_event(end.events).0, DISCONNECTED);
    dereg(mr);
    end.destroy();
    target.close();
}

/// Sends one access and requires the end of the stream. Returns the control bytes of the Terminate message.
fn refusal(stream: &mut TcpStream, access: &[u8]) -> [u8; 4] {
    const BODY: usize = 2 + 18;
    stream.write_all(access).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer.get(BODY..).and_then(|body| body.first_chunk()).copied().expect("a Terminate message")
}

fn write_of(stag: u32, to: u64) -> Vec<u8> {
    fpdu(&write_header(stag, to, true), b"unwanted")
}

fn read_of(stag: u32, to: u64) -> Vec<u8> {
    let request = ReadRequest { sink_stag: 99, sink_to: 0, size: 8, src_stag: stag, src_to: to };
    let header =
        Header::Untagged { opcode: Opcode::ReadRequest, last: true, inv_stag: 0, qn: 1, msn: 1, mo: 0 };
    fpdu(&header, &request.encode())
}

/// Writes and reads are refused by different layers, with different codes.
#[derive(Default)]
struct Refusals {
    seen: [std::collections::HashMap<[u8; 4], u32>; 2],
}

impl Refusals {
    fn add(&mut self, target: &Target, stag: u32, to: u64) {
        let (mut stream, end) = target.raw();
        self.add_on(&mut stream, &end, stag, to, stag & 1 == 0);
        end.destroy();
    }

    fn add_on(&mut self, stream: &mut TcpStream, end: &End, stag: u32, to: u64, reads: bool) {
        let access = if reads { read_of(stag, to) } else { write_of(stag, to) };
        *self.seen[usize::from(reads)].entry(refusal(stream, &access)).or_default() += 1;
        assert_eq!(next_event(end.events).0, DISCONNECTED, "the connection continues");
    }
}

#[test]
fn a_peer_without_keys_learns_nothing_by_guessing_stags() {
    const REGIONS: usize = 1000;
    const GUESSES: u32 = 2000;
    let target = Target::new();
    let (friend, friends_end) = pair(c"127.0.0.1", 16);
    let mut memory = vec![7u8; 64 * REGIONS];
    let regions: Vec<_> = memory
        .chunks_mut(64)
        .map(|part| friends_end.register(part, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ))
        .collect();
    let mut refusals = Refusals::default();
    let mut numbers = Numbers(7);
    for i in 0..GUESSES {
        // Low numbers, and the STags of a table that assigns them in sequence: an index in the upper bits and
        // a small key.
        let stag = match i % 4 {
            0 => i / 4,
            1 | 2 => (1 + i / 4) << 8 | (1 + numbers.below(64) as u32),
            _ => numbers.next() as u32,
        };
        refusals.add(&target, stag, memory.as_ptr() as u64);
    }
    // A peer with STags that guesses the rest learns no more.
    for (round, other) in regions.iter().take(40).enumerate() {
        let (mut stream, end) = target.raw();
        let rights = if round % 2 == 0 { LOCAL_WRITE } else { LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ };
        let mut own = [7u8; 64];
        let mr = end.register(&mut own, rights);
        // SAFETY: the regions are still registered.
        let (stag, addr, foreign) = unsafe { ((*mr).rkey, (*mr).addr as u64, (**other).rkey) };
        let (stag, to) = match round / 2 % 4 {
            0 if rights == LOCAL_WRITE => (stag, addr),
            0 | 1 => (stag, addr + 60),
            2 => (stag, u64::MAX - 3),
            _ => (foreign, memory.as_ptr() as u64 + 64 * round as u64),
        };
        refusals.add_on(&mut stream, &end, stag, to, round / 8 % 2 == 0);
        assert_eq!(own, [7; 64]);
        dereg(mr);
        end.destroy();
    }
    println!("refusals of {GUESSES} guesses and 40 near misses: {:?}", refusals.seen);
    assert!(refusals.seen.iter().all(|seen| seen.len() == 1), "refusals differ: {:?}", refusals.seen);
    assert!(memory.iter().all(|&b| b == 7));
    regions.into_iter().for_each(dereg);
    friend.destroy();
    friends_end.destroy();
    target.close();
}
