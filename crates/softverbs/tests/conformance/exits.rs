// SPDX-License-Identifier: BSD-3-Clause
//! A process that disconnects and exits at once, while its peer reads nothing: the kernel of an exited
//! process resets the connection if bytes of the peer arrive, and discards the messages that it still has.

use super::common::restart::{Partner, print, role};
use super::common::*;
use super::messages::{LEN, bytes};
use super::peer::*;
use rdma_sys::ibv_wr_opcode::IBV_WR_SEND;
use softverbs::rdma as cm;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The bytes of a message, and the number of messages: more than the window of a peer that does not read.
const MESSAGE: usize = LEN / 8;
const MESSAGES: usize = 16;

/// Connects to a process in [`disconnect`].
fn connect_to(process: &mut Partner) -> Wire {
    let port = process.number() as u16;
    let mut wire = Wire::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
    wire.send(&hex("'MPA ID Req Frame' 10 02 0004 0008 0008"), Pieces::Whole);
    assert_eq!(wire.take(18), hex("'MPA ID Rep Frame' 10 02"));
    wire.take(6);
    send_nothing(&mut wire);
    wire
}

/// An FPDU without payload.
fn send_nothing(wire: &mut Wire) {
    wire.send_ulpdu(&tagged([0xc1, 0x40], 1, 0, b""), Pieces::Whole);
}

/// Sends all messages, takes their completions, and disconnects.
fn disconnect() {
    let listening = Listening::new();
    print(listening.port.into());
    let end = accept_with(take_request(listening.events).0, MESSAGES as u32, &mut terms(0, 0, true, b""));
    assert_eq!(next_event(end.events).0, ESTABLISHED);
    let mut source = bytes(MESSAGE);
    let mr = end.register(&mut source, LOCAL_WRITE);
    for i in 0..MESSAGES as u64 {
        assert_eq!(end.post(&mut request(IBV_WR_SEND, i, SIGNALED), Some(&mut sge(mr, 0, MESSAGE))), 0);
    }
    for i in 0..MESSAGES as u64 {
        let wc = end.poll();
        assert_eq!((wc.wr_id, wc.status), (i, 0));
    }
    // SAFETY: the identifier lives.
    assert_eq!(unsafe { cm::rdma_disconnect(end.id) }, 0);
    assert_eq!(next_event(end.events).0, DISCONNECTED);
}

/// Takes all messages up to the end of the stream.
fn take_messages(wire: &mut Wire) {
    let mut taken = Vec::new();
    while let Some(ulpdu) = wire.ulpdu() {
        taken.extend_from_slice(&ulpdu[18..]);
    }
    assert_eq!(taken.len(), MESSAGES * MESSAGE, "bytes");
    assert!(taken.chunks(MESSAGE).all(|message| message == bytes(MESSAGE)));
}

/// Another process that sends all messages, disconnects, prints a number and exits; in that process this does
/// not return.
fn sender(test: &str) -> Partner {
    if role().is_some() {
        disconnect();
        print(0);
        std::process::exit(0);
    }
    Partner::start(&format!("exits::{test}"), "sender")
}

#[test]
fn messages_of_a_process_that_disconnects_and_exits_arrive() {
    let mut process = sender("messages_of_a_process_that_disconnects_and_exits_arrive");
    let mut wire = connect_to(&mut process);
    process.number();
    // Time to exit, if it does not wait for this peer.
    std::thread::sleep(Duration::from_millis(200));
    send_nothing(&mut wire);
    std::thread::sleep(Duration::from_millis(50));
    take_messages(&mut wire);
    assert!(process.wait().success());
}

#[test]
fn a_peer_that_reads_nothing_delays_the_exit_by_a_second() {
    let mut process = sender("a_peer_that_reads_nothing_delays_the_exit_by_a_second");
    let _wire = connect_to(&mut process);
    process.number();
    let begin = Instant::now();
    assert!(process.wait().success());
    let took = begin.elapsed();
    assert!((Duration::from_millis(900)..Duration::from_secs(10)).contains(&took), "{took:?}");
}

#[test]
fn a_peer_that_has_read_everything_does_not_delay_the_exit() {
    // Longer if the process waits for a processor.
    let exits_soon = |_| {
        let mut process = sender("a_peer_that_has_read_everything_does_not_delay_the_exit");
        let mut wire = connect_to(&mut process);
        process.number();
        let begin = Instant::now();
        // It does not close the connection.
        take_messages(&mut wire);
        assert!(process.wait().success());
        begin.elapsed() < Duration::from_millis(500)
    };
    assert!((0..5).any(exits_soon));
}
