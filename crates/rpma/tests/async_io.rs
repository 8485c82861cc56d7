// SPDX-License-Identifier: BSD-3-Clause
//! Connections under executors that use async-io, without a tokio runtime and beside one.
#![cfg(feature = "async-io")]

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use async_io::{Timer, block_on};
use futures_lite::future;
use rpma::{Access, Closed, Conn, ErrorKind, Exposed, Flush, Listener, Peer, Provider};

fn peer() -> Peer {
    Peer::open("127.0.0.1:0", Provider::Soft).unwrap()
}

fn exposed(peer: &Peer) -> Exposed {
    peer.expose(64, Access::READ | Access::WRITE | Access::VISIBLE).unwrap()
}

/// Both ends, the one that connects first; made by two tasks of one thread.
async fn connected(peer: &Peer, memory: &Exposed) -> (Conn, Conn) {
    let listener = peer.listen("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let accept = accept(&listener, memory);
    let (conn, target) = in_time(future::zip(peer.connect(addr).into_future(), accept)).await;
    (conn.unwrap(), target)
}

async fn accept(listener: &Listener, memory: &Exposed) -> Conn {
    listener.accept().await.unwrap().accept(&[memory.offer()]).await.unwrap()
}

async fn in_time<T>(done: impl Future<Output = T>) -> T {
    let late = async {
        Timer::after(Duration::from_secs(10)).await;
        panic!("nobody woke it");
    };
    future::or(done, late).await
}

#[test]
fn operations_and_the_end_of_a_connection() {
    block_on(async {
        let peer = peer();
        let memory = exposed(&peer);
        let (conn, target) = connected(&peer, &memory).await;
        let at = conn.remote(0).unwrap().slice(0..8).unwrap();
        let mut buf = peer.buf(8).unwrap();
        buf.copy_from_slice(b"eight by");
        let buf = in_time(conn.write(buf, at)).await.unwrap();
        in_time(conn.flush(at, Flush::Visible)).await.unwrap();
        let mut seen = [0; 8];
        memory.copy_out(0, &mut seen).unwrap();
        assert_eq!(seen, buf[..]);
        assert_eq!(in_time(conn.read(at, peer.buf(8).unwrap())).await.unwrap()[..], buf[..]);
        in_time(conn.close()).await.unwrap();
        assert_eq!(in_time(target.closed()).await, Closed::Closed);
        let failed = in_time(target.send(buf)).await.unwrap_err();
        assert_eq!(failed.error.kind(), ErrorKind::Closed);
    });
}

/// The task sleeps in its executor until the reactor wakes it.
#[test]
fn a_message_that_arrives_later() {
    let peer = peer();
    let memory = exposed(&peer);
    let (conn, target) = block_on(connected(&peer, &memory));
    let (go, is_waiting) = std::sync::mpsc::channel();
    let mut message = peer.buf(8).unwrap();
    let sender = thread::spawn(move || {
        for _ in 0..100 {
            is_waiting.recv().unwrap();
            message = conn.send(message).wait().unwrap();
        }
        conn
    });
    block_on(async {
        for _ in 0..100 {
            let mut receive = target.recv(peer.buf(8).unwrap());
            poll_fn(|context| {
                assert!(Pin::new(&mut receive).poll(context).is_pending(), "nothing was sent");
                Poll::Ready(())
            })
            .await;
            go.send(()).unwrap();
            assert_eq!(in_time(receive).await.unwrap().len, 8);
        }
    });
    drop(sender.join().unwrap());
}

/// The reactor's thread posts what waits for room, while no task polls.
#[test]
fn operations_that_nobody_awaits_make_progress() {
    let peer = peer();
    let memory = exposed(&peer);
    let (conn, target) = block_on(async {
        let listener = peer.listen("127.0.0.1:0").unwrap();
        let connect = peer.connect(listener.local_addr().unwrap()).queues(1, 1).into_future();
        let (conn, target) = in_time(future::zip(connect, accept(&listener, &memory))).await;
        (conn.unwrap(), target)
    });
    for number in 0..100 {
        let mut message = peer.buf(1).unwrap();
        message[0] = number;
        conn.send(message).detach();
    }
    block_on(async {
        // Once, so that the reactor watches the connection.
        poll_fn(|context| {
            let closed = std::pin::pin!(conn.closed()).poll(context);
            assert!(closed.is_pending());
            Poll::Ready(())
        })
        .await;
        for number in 0..100 {
            let received = in_time(target.recv(peer.buf(1).unwrap())).await.unwrap();
            assert_eq!(received.message(), [number]);
        }
    });
}

#[test]
fn an_attempt_that_nobody_answers_fails() {
    block_on(async {
        let peer = peer();
        let listener = peer.listen("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        drop(listener);
        let error = in_time(peer.connect(addr).into_future()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Rejected | ErrorKind::Unreachable), "{error:?}");
    });
}

#[cfg(feature = "tokio")]
#[test]
fn a_task_that_waits_when_the_tokio_runtime_is_dropped() {
    let peer = peer();
    let memory = exposed(&peer);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (conn, target) = runtime.block_on(connected(&peer, &memory));
    let mut receive = target.recv(peer.buf(8).unwrap());
    let (polled, is_polled) = std::sync::mpsc::channel();
    let waiting = thread::spawn(move || {
        block_on(async move {
            let first = poll_fn(|context| Poll::Ready(Pin::new(&mut receive).poll(context).is_pending()));
            assert!(first.await);
            polled.send(()).unwrap();
            assert_eq!(in_time(receive).await.unwrap().len, 8);
        });
    });
    is_polled.recv().unwrap();
    drop(runtime);
    conn.send(peer.buf(8).unwrap()).wait().unwrap();
    waiting.join().unwrap();
}
