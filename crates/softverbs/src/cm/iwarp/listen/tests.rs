// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the listener's pauses.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::cm::iwarp::local::Local;

const ROUNDS: usize = 5000;

/// Ends the other thread of the test, also when this one panics.
struct End<'a>(&'a AtomicUsize);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(ROUNDS, Ordering::Release);
    }
}

/// The engine pauses the listener while a program thread, which has fetched a request, resumes it. Whichever
/// is first, the listener accepts connections after the end of the pause.
#[test]
fn a_pause_ends_whoever_resumes_meanwhile() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = Socket::new(addr::family(&any)).unwrap();
    addr::bind(&socket, &any).unwrap();
    let address = addr::local(&socket).unwrap();
    let id = Id::new(None, Box::new(Local::default()));
    let listener = Listener::start(&id, socket, 0).unwrap();
    let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let await_round = |rounds: &AtomicUsize, round| {
        while rounds.load(Ordering::Acquire) < round {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                await_round(&begun, round);
                listener.resume();
                done.store(round, Ordering::Release);
            }
        });
        let _end = End(&begun);
        for round in 1..=ROUNDS {
            begun.store(round, Ordering::Release);
            listener.pause();
            await_round(&done, round);
            listener.clone().timeout();
            let mut peer = TcpStream::connect(address).unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            // Not an MPA Request: the listener closes the connection.
            peer.write_all(&[0; 20]).unwrap();
            let ended = peer.read(&mut [0]);
            let waited = matches!(&ended, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!waited, "round {round}: the connection is not accepted");
        }
    });
    listener.close();
}
