// SPDX-License-Identifier: BSD-3-Clause
//! The two rings of a connection, with both ends in one process.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;
use std::os::fd::OwnedFd;

fn owned(fd: impl Into<OwnedFd>) -> Socket {
    Socket::noted(|| Ok(fd.into())).unwrap()
}

/// The two ends of a connection.
fn pair() -> (Rings, Rings) {
    let shared = Shared::create().unwrap();
    let theirs = Shared::adopt(owned(shared.file().try_clone().unwrap())).unwrap();
    let (a, b) = UnixStream::pair().unwrap();
    (Rings::new(shared, owned(a), true), Rings::new(theirs, owned(b), false))
}

fn iovec(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn put(rings: &Rings, bytes: &[u8]) {
    assert!(rings.room(1, || false).unwrap() > 0 && rings.room_there().unwrap() >= bytes.len());
    let (ring, at) = rings.target();
    let first = Shared::contiguous(at, bytes.len());
    let (before, behind) = bytes.split_at(first);
    assert_eq!(rings.shared.write(ring, at, &[iovec(before)]), Ok(first));
    if !behind.is_empty() {
        rings.shared.copy_in(ring, at + first as u64, behind);
    }
    rings.put(bytes.len()).unwrap();
}

fn take(rings: &Rings, n: usize) -> Vec<u8> {
    assert!(rings.available(n, || false).unwrap() >= n);
    let (ring, at) = rings.source();
    let mut bytes = vec![0; n];
    rings.shared.copy_out(ring, at, &mut bytes);
    rings.took(n).unwrap();
    bytes
}

fn notifications(rings: &Rings) -> usize {
    let mut bytes = [0; 64];
    sys::recv(rings.notify_socket(), &mut bytes).unwrap_or(0)
}

#[test]
fn bytes_come_out_as_they_went_in_also_around_the_end() {
    let (a, b) = pair();
    let mut next = 0u32;
    for len in [1, 7, 4095, 4096, 65_536, SIZE - 1, SIZE, 3, 100_003, SIZE] {
        for (from, to) in [(&a, &b), (&b, &a)] {
            let bytes: Vec<u8> = (0..len).map(|i| (i as u32 ^ next).to_le_bytes()[i % 4]).collect();
            put(from, &bytes);
            assert!(take(to, len) == bytes, "{len}");
            next += 77;
        }
    }
    assert_eq!((a.available(1, || false), b.available(1, || false)), (Ok(0), Ok(0)));
    assert_eq!((notifications(&a), notifications(&b)), (0, 0), "no notification was requested");
}

#[test]
fn a_ring_whose_reader_keeps_up_uses_its_first_pages_only() {
    let (a, b) = pair();
    let mut farthest = 0;
    for i in 0..1000u32 {
        let bytes = vec![i as u8; 1000];
        put(&a, &bytes);
        farthest = farthest.max(a.target().1);
        if i % 3 > 0 {
            put(&a, &bytes);
            assert_eq!(take(&b, 1500), vec![i as u8; 1500]);
            assert_eq!(take(&b, 500), vec![i as u8; 500]);
        } else {
            assert_eq!(take(&b, 1000), bytes);
        }
    }
    assert!(farthest < FAR + 3000, "{farthest}");
    // A ring that is not empty does not restart.
    put(&a, &vec![1; SIZE - 1]);
    put(&a, &[2]);
    assert_eq!(take(&b, SIZE - 1), vec![1; SIZE - 1]);
    put(&a, &[3; 100]);
    assert_eq!((take(&b, 1), take(&b, 100)), (vec![2], vec![3; 100]));
}

#[test]
fn a_reader_that_requests_it_is_notified_of_the_next_bytes_once() {
    let (a, b) = pair();
    assert_eq!(b.available(1, || true), Ok(0));
    put(&a, &[1]);
    put(&a, &[2]);
    assert_eq!(notifications(&b), 1);
    assert_eq!(b.available(2, || true), Ok(2));
    put(&a, &[3]);
    assert_eq!(notifications(&b), 0, "it found all bytes that it wanted and will look again");
    assert_eq!(b.available(4, || true), Ok(3));
    put(&a, &[4]);
    assert_eq!(notifications(&b), 1, "it found less than it wanted");
    b.request_notify();
    assert!(b.has_news(), "the bytes are there already");
    take(&b, 4);
    assert!(!b.has_news());
}

#[test]
fn a_writer_without_room_continues_when_a_quarter_is_free() {
    let (a, b) = pair();
    put(&a, &vec![7; SIZE]);
    assert_eq!(a.room(1, || true), Ok(0));
    take(&b, ROOM - 1);
    assert_eq!((a.room(1, || true), a.has_news(), notifications(&a)), (Ok(0), false, 0));
    take(&b, 1);
    assert_eq!((notifications(&a), a.has_news()), (1, true));
    assert_eq!(a.room(1, || true), Ok(ROOM));
    take(&b, 1);
    assert_eq!(notifications(&a), 0, "it no longer waits");
    // A polling writer requests no notification until the set needs them.
    put(&a, &vec![7; ROOM + 1]);
    assert_eq!(a.room(1, || false), Ok(0));
    a.request_notify();
    take(&b, SIZE);
    assert_eq!(notifications(&a), 1);
}

#[test]
fn a_peer_with_invalid_positions_ends_the_connection() {
    let (a, b) = pair();
    put(&a, &[1; 100]);
    take(&b, 50);
    let (readable, writable) = (a.output().put(), b.input().taken());
    for lie in [49, 0, 50 + SIZE as u64 + 1, u64::MAX] {
        readable.store(lie, Ordering::Relaxed);
        assert_eq!(b.available(1, || true), Err(NONSENSE), "{lie}");
        assert!(b.has_news(), "the connection must be driven to end");
    }
    readable.store(100, Ordering::Relaxed);
    for lie in [1, 49, 51, 100, u64::MAX] {
        a.output().base().store(lie, Ordering::Relaxed);
        assert_eq!(b.available(1, || true), Err(NONSENSE), "{lie}");
    }
    a.output().base().store(0, Ordering::Relaxed);
    assert_eq!(b.available(100, || false), Ok(50));
    put(&a, &vec![1; SIZE - 100]);
    for lie in [101 + SIZE as u64, u64::MAX] {
        writable.store(lie, Ordering::Relaxed);
        assert_eq!(a.room(1, || true), Err(NONSENSE), "{lie}");
    }
    let (a, b) = pair();
    put(&a, &vec![1; FAR as usize]);
    b.input().taken().store(0u64.wrapping_sub(1000), Ordering::Relaxed);
    assert_eq!(a.room(1, || true), Ok(SIZE - FAR as usize - 1000), "as much was put");
}

#[test]
fn an_unread_notification_blocks_nobody() {
    let (a, b) = pair();
    for _ in 0..100_000 {
        b.request_notify();
        a.notify_peer().unwrap();
    }
    b.silence();
    assert_eq!(notifications(&b), 0);
    drop(b);
    a.notify_peer().unwrap();
}

#[test]
fn each_notification_is_reported_though_most_stay_unread() {
    let (a, b) = pair();
    let set = sys::Epoll::new().unwrap();
    set.add(b.notify_socket().as_raw_fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, 7).unwrap();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
    let (mut notified, mut reads) = (0, 0);
    for round in 0..100_000u32 {
        b.request_notify();
        put(&a, &[round as u8]);
        assert_eq!(take(&b, 1), [round as u8]);
        // Sometimes it has found the bytes itself, and gets several notifications at once later.
        if round % 1000 < 900 || round % 1000 == 999 {
            assert_eq!(set.wait(&mut events, Some(Duration::ZERO)), 1, "round {round}");
            notified += 1;
            b.silence();
            reads += u32::from(b.requested.load(Ordering::Relaxed) == 0);
            assert_eq!(set.wait(&mut events, Some(Duration::ZERO)), 0, "nothing new");
        }
    }
    assert!(notifications(&b) <= UNREAD as usize);
    assert_eq!(notified, 90_100);
    assert!(reads <= notified / UNREAD + 100, "{reads} times");
}
