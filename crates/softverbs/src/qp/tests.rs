// SPDX-License-Identifier: BSD-3-Clause
//! What is outstanding on a queue pair, for each of its completion queues.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use transport::iwarp::wire::codes::QN_SEND;
use transport::iwarp::wire::ddp::Header;
use transport::iwarp::wire::rdmap::Opcode;

use super::linked::Linked;
use super::*;
use crate::config::Strict;
use crate::memory::{Region, deregister, register};
use crate::progress::Outstanding::{self, Nothing, Unsignalled};
use crate::progress::sleep::Watches;
use crate::progress::turn::Entry;
use transport::access::LOCAL_WRITE;
use transport::roce::rc::Rc;
use transport::testing::queues::request;
use transport::wr::Op;

const PD: u32 = 78;

struct Unobserved;

impl ConnObserver for Unobserved {
    fn established(&self) {}

    fn ended(&self) {}
}

pub(crate) fn cq() -> Arc<Cq> {
    Arc::new(Cq::new(8, None).unwrap())
}

/// A queue pair in strict mode, with these completion queues.
pub(crate) fn queue_pair(send_cq: &Arc<Cq>, recv_cq: &Arc<Cq>) -> Arc<Qp> {
    with_mode(send_cq, recv_cq, Strict::Warn)
}

fn with_mode(send_cq: &Arc<Cq>, recv_cq: &Arc<Cq>, strict: Strict) -> Arc<Qp> {
    Qp::new(Attributes {
        kind: Kind::Rc,
        num: 1,
        pd: PD,
        send_cq: send_cq.clone(),
        recv_cq: recv_cq.clone(),
        srq: None,
        max_send_wr: 8,
        max_recv_wr: 8,
        max_send_sge: 1,
        max_recv_sge: 1,
        signal_all: false,
        instruments: Settings { strict, faults: None, metrics: None },
    })
    .unwrap()
}

/// Connects it to a socket, on which these bytes have arrived.
fn connect(qp: &Qp, early: Vec<u8>) -> TcpStream {
    let (stream, far) = stream(early);
    qp.connect(stream).unwrap();
    far
}

/// A connection whose socket has received these bytes, and the socket of the peer.
fn stream(early: Vec<u8>) -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    let (far, peer) = listener.accept().unwrap();
    let observer: Weak<Unobserved> = Weak::new();
    let stream = Stream {
        socket: Socket::noted(|| Ok(OwnedFd::from(near))).unwrap(),
        rings: None,
        crc: false,
        ord: 1,
        role: Role::default(),
        early,
        rnr_retry: RNR_UNLIMITED,
        peer,
        observer,
    };
    (stream, far)
}

fn post(qp: &Qp, signaled: bool) {
    let wr = request(1, Op::Read, signaled);
    assert!(qp.push(wr, false).is_ok());
}

/// A segment of a send of 8 bytes: half of it.
fn half(last: bool) -> Vec<u8> {
    let mo = if last { 4 } else { 0 };
    let header = Header::Untagged { opcode: Opcode::Send, last, inv_stag: 0, qn: QN_SEND, msn: 1, mo };
    let mut bytes = vec![0; stream::fpdu_len(header.len() + 4)];
    let len = stream::encode_fpdu(&header, b"half", false, &mut bytes);
    bytes.truncate(len);
    bytes
}

#[test]
fn what_is_outstanding_is_counted_for_the_queue_in_which_it_completes() {
    let (sends, receives) = (cq(), cq());
    let qp = queue_pair(&sends, &receives);
    let outstanding = || (sends.outstanding(), receives.outstanding());
    assert_eq!(outstanding(), (Nothing, Nothing));
    qp.post_receive(RecvWr::one(1, 0, 8, 0)).unwrap();
    assert_eq!(outstanding(), (Nothing, Outstanding::Completion));
    post(&qp, false);
    assert_eq!(outstanding(), (Unsignalled, Outstanding::Completion));
    post(&qp, true);
    assert_eq!(outstanding(), (Outstanding::Completion, Outstanding::Completion));
    qp.destroy();

    let qp = queue_pair(&sends, &receives);
    post(&qp, true);
    assert_eq!(outstanding(), (Outstanding::Completion, Nothing));
    qp.destroy();

    let both = cq();
    let qp = queue_pair(&both, &both);
    post(&qp, false);
    assert_eq!(both.outstanding(), Unsignalled);
    qp.post_receive(RecvWr::one(1, 0, 8, 0)).unwrap();
    assert_eq!(both.outstanding(), Outstanding::Completion);
    qp.destroy();
}

#[test]
fn a_receive_is_outstanding_while_its_message_arrives() {
    let mut memory = Box::new([0u8; 8]);
    let addr = memory.as_mut_ptr() as u64;
    let stag = register(Region { addr, len: 8, access: LOCAL_WRITE, pd: PD }).unwrap();
    let both = cq();
    let qp = queue_pair(&both, &both);
    qp.set_init(true);
    post(&qp, false);
    qp.post_receive(RecvWr::one(7, addr, 8, stag)).unwrap();
    let mut far = connect(&qp, half(false));
    assert!(!qp.receives.has_value(), "the message has consumed the receive");
    assert_eq!(both.outstanding(), Outstanding::Completion);
    std::io::Write::write_all(&mut far, &half(true)).unwrap();
    let mut done = None;
    while done.is_none() {
        both.poll(1, |_, completion, _| done = Some((completion.wr_id, completion.byte_len)));
    }
    assert_eq!(done, Some((7, 8)));
    // The engine may have added the completion, and not have ended its step.
    let begin = Instant::now();
    while both.outstanding() != Unsignalled {
        assert!(begin.elapsed().as_secs() < 10, "{:?}", both.outstanding());
    }
    qp.destroy();
    deregister(stag);
}

#[test]
fn a_reset_send_queue_is_empty_for_an_adapter() {
    let both = cq();
    let qp = with_mode(&both, &both, Strict::Adapter);
    let conn = Rc::new(1, 8, true, config::get().policy).unwrap();
    lock(&qp.session).transport = Transport::Roce(Linked { conn, link: None });
    (0..8).for_each(|_| post(&qp, false));
    assert!(!qp.instruments.has_room(1));
    qp.instruments.ends();
    qp.reset().unwrap();
    assert_eq!((qp.instruments.has_room(8), both.outstanding()), (true, Nothing));
    post(&qp, false);
    assert_eq!(both.outstanding(), Unsignalled, "it is in flight");
    qp.destroy();
}

/// The numbers of flushes begin again: the result of an earlier one is not that of the next connection's.
#[test]
fn a_flush_from_before_a_reset_completes_no_later_one() {
    let both = cq();
    let qp = queue_pair(&both, &both);
    let conn = Rc::new(1, 8, true, config::get().policy).unwrap();
    lock(&qp.session).transport = Transport::Roce(Linked { conn, link: None });
    let resets = lock(&qp.flushed).resets;
    assert!(qp.flushed(resets, 1, true));
    qp.reset().unwrap();
    assert!(lock(&qp.flushed).results.is_empty(), "it completed before the reset");
    assert!(!qp.flushed(resets, 1, true), "it completes after the reset");
    let resets = lock(&qp.flushed).resets;
    assert!(qp.flushed(resets, 1, false));
    assert_eq!(lock(&qp.flushed).results, [(1, false)]);
    qp.destroy();
}

/// A step in progress may still add a completion, so its queue is in use: the program must not destroy it.
#[test]
fn a_queue_is_in_use_until_the_last_step_of_a_destroyed_queue_pair() {
    let both = cq();
    let qp = queue_pair(&both, &both);
    let step = lock(&qp.session);
    std::thread::scope(|scope| {
        let destroys = scope.spawn(|| qp.destroy());
        while !qp.is_destroyed() {
            std::thread::yield_now();
        }
        assert!(!both.is_unused());
        drop(step);
        destroys.join().unwrap();
    });
    assert!(both.is_unused());
}

/// There is no engine that could do the rest: later it would not be put on a list on which it is.
#[test]
fn threads_that_poll_leave_nothing_of_an_unconnected_queue_pair_to_the_engine() {
    let both = cq();
    let qp = queue_pair(&both, &both);
    let (begin, done) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // A step waits for the lock, so other threads leave reasons for the next one.
        let delays = || {
            while !done.load(Ordering::Relaxed) {
                drop(lock(&qp.session));
            }
        };
        scope.spawn(delays);
        let poll = || {
            while begin.elapsed() < Duration::from_secs(1) {
                qp.run(Entry::Reasons(reason::READABLE), By::Poller);
            }
        };
        let pollers = [scope.spawn(poll), scope.spawn(poll)];
        let polled = pollers.map(|poller| poller.join());
        done.store(true, Ordering::Relaxed);
        polled.into_iter().for_each(Result::unwrap);
    });
    assert!(qp.turn.is_at_rest());
    assert!(qp.turn.defer(reason::POSTED), "it counts as one that the engine steps later");
    qp.destroy();
}

#[test]
fn a_send_queue_keeps_no_watch_of_a_destroyed_queue_pair() {
    let sends = cq();
    for _ in 0..3 {
        let qp = queue_pair(&sends, &cq());
        qp.set_init(true);
        let _far = connect(&qp, Vec::new());
        let watches = || {
            let mut watches = Watches::new();
            assert!(sends.add_watches(&mut watches));
            watches.len()
        };
        assert_eq!(watches(), 1);
        qp.destroy();
        assert_eq!(watches(), 0);
    }
}

/// The engine connects it, and waits for the lock.
#[test]
fn a_queue_pair_that_is_destroyed_meanwhile_opens_no_link() {
    let both = cq();
    let qp = queue_pair(&both, &both);
    let (stream, mut far) = stream(Vec::new());
    qp.destroy();
    assert_eq!(qp.open(&mut lock(&qp.session), stream), Err(libc::ECONNABORTED));
    assert_eq!(std::io::Read::read(&mut far, &mut [0]).ok(), Some(0), "the socket is closed");
}
