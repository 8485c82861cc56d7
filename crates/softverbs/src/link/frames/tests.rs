// SPDX-License-Identifier: BSD-3-Clause
//! Packets in the rings of shared memory, and payload that is written ahead.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::*;
use crate::instrument::Instruments;
use crate::link::driver::Driver;
use crate::link::ring::Rings;
use crate::memory::{self, Region};
use crate::progress::engine::Engine;
use crate::progress::watch::Watch;
use crate::progress::{By, Driven};
use crate::socket::Socket;
use transport::access::{Access, Accessor, LOCAL_WRITE};

const ACCESSOR: Accessor = Accessor { pd: 1, qp: 1 };

struct Nobody;

impl Driven for Nobody {
    fn drive(&self, _reasons: u32, _by: By) -> bool {
        true
    }
    fn drive_listed(&self) {}
    fn drive_deferred(&self) {}
    fn flush_deferred(&self) {}
}

fn owned(fd: impl Into<OwnedFd>) -> Socket {
    Socket::noted(|| Ok(fd.into())).unwrap()
}

/// The two ends of a link.
fn pair() -> (Local, Local) {
    let shared = Shared::create().unwrap();
    let theirs = Shared::adopt(owned(shared.file().try_clone().unwrap())).unwrap();
    let (a, b) = UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    let engine = Engine::get().unwrap();
    let open = |rings| {
        let watch = Watch::new(engine.clone()).unwrap();
        let driver = Driver {
            watch,
            engine: engine.clone(),
            accessor: ACCESSOR,
            connection: Arc::new(Nobody),
            instruments: Instruments::default(),
        };
        Local::open_for_packets(rings, driver).unwrap()
    };
    (open(Rings::new(shared, owned(a), true)), open(Rings::new(theirs, owned(b), false)))
}

/// A packet of this length, a multiple of 4, whose bytes follow from its number.
fn packet(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + number * 13 + i / 256) as u8).collect()
}

fn send(link: &mut Local, packet: &[u8]) -> bool {
    let (headers, payload) = packet.split_at(12);
    link.send_packet(headers, Payload::Bytes(payload)).unwrap()
}

fn received(link: &mut Local) -> Vec<Vec<u8>> {
    let batches = std::iter::from_fn(|| link.receive_packets().unwrap());
    let packets = |batch: Delivered| {
        (0..batch.count()).map(|index| batch.packet(index).unwrap().to_vec()).collect::<Vec<_>>()
    };
    batches.flat_map(packets).collect()
}

#[test]
fn packets_of_every_length_come_out_as_they_went_in() {
    let (mut a, mut b) = pair();
    let mut number = 0;
    // Several times around the ring.
    for round in 0..200 {
        let mut sent = Vec::new();
        for _ in 0..round % 40 {
            number += 1;
            sent.push(packet(number, 12 + (number * 52) % 4100 / 4 * 4));
            assert!(send(&mut a, sent.last().unwrap()));
        }
        assert_eq!(received(&mut b), sent, "round {round}");
        assert!(send(&mut b, &packet(round, 16)));
        assert_eq!(received(&mut a), [packet(round, 16)]);
    }
}

#[test]
fn packets_of_one_length_are_delivered_together() {
    let (mut a, mut b) = pair();
    for (number, len) in [(0, 4108), (1, 4108), (2, 4108), (3, 512), (4, 600), (5, 600)] {
        assert!(send(&mut a, &packet(number, len)));
    }
    let counts = std::iter::from_fn(|| b.receive_packets().unwrap().map(|batch| batch.count()));
    assert_eq!(counts.collect::<Vec<_>>(), [4, 2], "the last one of a batch may be shorter");
    for number in 0..40 {
        assert!(send(&mut a, &packet(number, 4108)));
    }
    let counts = std::iter::from_fn(|| b.receive_packets().unwrap().map(|batch| batch.count()));
    assert_eq!(counts.collect::<Vec<_>>(), [15, 15, 10], "64 KiB");
}

#[test]
fn a_full_ring_takes_packets_again_when_there_is_room() {
    let (mut a, mut b) = pair();
    let sent = (0..).take_while(|number| send(&mut a, &packet(*number, 4108))).count();
    assert!((SIZE / 4108 - 2..=SIZE / 4108).contains(&sent), "{sent} packets");
    assert!(!send(&mut a, &packet(0, 16)), "it waits for a quarter of the ring");
    assert_eq!(received(&mut b).len(), sent);
    assert!(send(&mut a, &packet(0, 16)));
    assert_eq!(received(&mut b), [packet(0, 16)]);
}

#[test]
fn payload_comes_from_registered_memory_if_that_is_permitted() {
    let (mut a, mut b) = pair();
    let mut bytes = packet(3, 1001).into_boxed_slice();
    let region = Region { addr: bytes.as_mut_ptr() as u64, len: 1001, access: LOCAL_WRITE, pd: ACCESSOR.pd };
    let stag = memory::register(region).unwrap();
    let from = |at: u64, len| Access { stag, addr: bytes.as_ptr() as u64 + at, len, rights: 0 };
    let memory = |from| Payload::Memory { from, following: &|_| None };
    for (at, len) in [(0, 1001), (5, 3), (1000, 1), (0, 1001)] {
        assert_eq!(a.send_packet(&[9; 12], memory(from(at, len))), Ok(true));
        let mut expected = [&[9; 12], &packet(3, 1001)[at as usize..][..len]].concat();
        expected.resize(expected.len().next_multiple_of(4), 0);
        assert_eq!(received(&mut b), [expected]);
    }
    assert!(matches!(a.send_packet(&[9; 12], memory(from(0, 1002))), Err(LinkError::Memory(..))));
    assert_eq!(received(&mut b), Vec::<Vec<u8>>::new());
    memory::deregister(stag);
    assert!(matches!(a.send_packet(&[9; 12], memory(from(0, 8))), Err(LinkError::Memory(..))));
    assert!(send(&mut a, &packet(1, 16)), "the link is as before");
    assert_eq!(received(&mut b), [packet(1, 16)]);
}

/// Payloads that are contiguous in memory, as in consecutive messages, with acknowledgements between them.
#[test]
fn payload_that_was_predicted_is_that_of_its_packets() {
    let (mut a, mut b) = pair();
    let mut bytes = packet(3, 64 << 10).into_boxed_slice();
    let len = bytes.len();
    let region =
        Region { addr: bytes.as_mut_ptr() as u64, len: len as u64, access: LOCAL_WRITE, pd: ACCESSOR.pd };
    let stag = memory::register(region).unwrap();
    for (unit, follows, other) in
        [(4096, true, 99), (1024, true, 5), (256, true, 3), (1024, false, 2), (1000, true, 1)]
    {
        for round in 0..20 {
            let mut expected = Vec::new();
            for (number, at) in (0..len).step_by(unit).enumerate() {
                if number % other == other - 1 {
                    expected.push(packet(round, 16));
                    assert!(send(&mut a, expected.last().unwrap()));
                }
                let part = unit.min(len - at);
                let following = |more: usize| {
                    let at = at + (more + 1) * unit;
                    let from = || Access {
                        stag,
                        addr: bytes.as_ptr() as u64 + at as u64,
                        len: unit.min(len - at),
                        rights: 0,
                    };
                    (follows && at < len).then(from)
                };
                let from = Access { stag, addr: bytes.as_ptr() as u64 + at as u64, len: part, rights: 0 };
                assert_eq!(
                    a.send_packet(&[number as u8; 12], Payload::Memory { from, following: &following }),
                    Ok(true)
                );
                let mut whole = [&[number as u8; 12], &packet(3, len)[at..][..part]].concat();
                whole.resize(whole.len().next_multiple_of(4), 0);
                expected.push(whole);
            }
            assert!(received(&mut b) == expected, "{unit}, {follows}, round {round}");
        }
    }
    memory::deregister(stag);
}

/// A program may change the memory of a request that was not sent as predicted: a direct copy has completed
/// it, or its fence waits for a result there.
#[test]
fn payload_is_written_ahead_for_one_step() {
    let (mut a, mut b) = pair();
    let mut bytes = vec![1u8; 32];
    let addr = bytes.as_mut_ptr() as u64;
    let stag = memory::register(Region { addr, len: 32, access: LOCAL_WRITE, pd: ACCESSOR.pd }).unwrap();
    let piece = |at: u64| Access { stag, addr: addr + at, len: 16, rights: 0 };
    let predicted = |n: usize| (n == 0).then_some(piece(16));
    assert_eq!(a.send_packet(&[9; 12], Payload::Memory { from: piece(0), following: &predicted }), Ok(true));
    a.forget_ahead();
    bytes[16..].fill(2);
    let nothing = |_: usize| None;
    assert_eq!(a.send_packet(&[9; 12], Payload::Memory { from: piece(16), following: &nothing }), Ok(true));
    let of = |byte: u8| [[9; 12].as_slice(), &[byte; 16]].concat();
    assert_eq!(received(&mut b), [of(1), of(2)]);
    memory::deregister(stag);
}

#[test]
fn a_peer_that_puts_something_else_ends_the_link() {
    let frame = |len: u64, bytes: usize| [&len.to_le_bytes()[..], &vec![0; bytes]].concat();
    for nonsense in [
        frame(0, 8),
        frame(MAX_PACKET_LEN as u64 + 1, 8192),
        frame(1 << 40, 8),
        frame(u64::MAX, 8),
        frame(64, 8),
        frame(SKIP.into(), 8),
        // A peer that repeats it would keep this process in the loop.
        frame(SKIP.into(), SIZE - ALIGN),
        vec![0; 4],
    ] {
        let (a, mut b) = pair();
        let (ring, at) = a.rings.target();
        let piece = libc::iovec { iov_base: nonsense.as_ptr().cast_mut().cast(), iov_len: nonsense.len() };
        assert_eq!(a.rings.shared.write(ring, at, &[piece]), Ok(nonsense.len()));
        a.rings.put(nonsense.len()).unwrap();
        assert!(matches!(b.receive_packets(), Err(LinkError::Broken(libc::EPROTO))), "{:x?}", &nonsense[..4]);
    }
}

/// Packets that the peer put into the ring before are delivered first.
#[test]
fn a_peer_that_closes_the_link_ends_it() {
    let (mut a, mut b) = pair();
    assert!(send(&mut a, &packet(1, 16)) && send(&mut a, &packet(2, 16)));
    // As an exporter does while the peer uses a key.
    let _held = a.rings.clone();
    a.close(None);
    let began = std::time::Instant::now();
    while !b.has_ended() {
        assert!(began.elapsed().as_secs() < 10, "the end is not seen");
        std::thread::yield_now();
    }
    assert_eq!(b.receive_packets().unwrap().map(|batch| batch.count()), Some(2));
    assert!(matches!(b.receive_packets(), Err(LinkError::Broken(libc::ECONNRESET))));
    b.close(None);
}
