// SPDX-License-Identifier: BSD-3-Clause
//! Connections under tokio runtimes: several of them, dropped ones, and tasks that have used their budget.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rpma::{Access, Conn, Exposed, Peer, Provider};
use tokio::runtime::{Builder, Runtime};

fn peer() -> Peer {
    Peer::open("127.0.0.1:0", Provider::Soft).unwrap()
}

async fn connected(peer: &Peer, memory: &Exposed) -> (Conn, Conn) {
    let listener = peer.listen("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let offer = memory.offer();
    let target = tokio::spawn(async move { listener.accept().await?.accept(&[offer]).await });
    let conn = peer.connect(addr).await.unwrap();
    (conn, target.await.unwrap().unwrap())
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn exposed(peer: &Peer) -> Exposed {
    peer.expose(64, Access::READ | Access::WRITE | Access::VISIBLE).unwrap()
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("nobody woke it")
}

/// Polls `future` once.
fn poll_once<T>(future: impl Future<Output = T>, waker: &Waker) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

#[test]
fn a_runtime_after_one_that_was_dropped() {
    let peer = peer();
    let memory = exposed(&peer);
    let first = current_thread();
    let (conn, target) = first.block_on(connected(&peer, &memory));
    let mut receive = target.recv(peer.buf(8).unwrap());
    first.block_on(poll_fn(|context| {
        assert!(std::pin::Pin::new(&mut receive).poll(context).is_pending());
        Poll::Ready(())
    }));
    drop(first);
    current_thread().block_on(async {
        let sender = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            conn.send(peer.buf(8).unwrap()).await.unwrap();
            conn
        });
        assert_eq!(in_time(receive).await.unwrap().len, 8);
        let _conn = in_time(sender).await.unwrap();
    });
}

#[test]
fn a_runtime_that_is_dropped_while_another_one_waits() {
    let peer = peer();
    let memory = exposed(&peer);
    let first = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (conn, target) = first.block_on(connected(&peer, &memory));
    let to = conn.clone();
    current_thread().block_on(async move {
        let receive = tokio::spawn(target.recv(peer.buf(8).unwrap()));
        let closed = tokio::spawn(async move { target.closed().await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        tokio::task::spawn_blocking(|| drop(first)).await.unwrap();
        to.send(peer.buf(8).unwrap()).await.unwrap();
        assert_eq!(in_time(receive).await.unwrap().unwrap().len, 8);
        drop((conn, to));
        in_time(closed).await.unwrap();
    });
}

/// Outside of its worker threads, tokio wakes at once the waker of a task whose budget is used up.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_task_without_budget() {
    fn spend(context: &mut Context<'_>, all_but: usize) -> usize {
        let mut spent = 0;
        while spent < all_but {
            let Poll::Ready(unit) = tokio::task::coop::poll_proceed(context) else { break };
            unit.made_progress();
            spent += 1;
        }
        spent
    }
    let peer = peer();
    let memory = exposed(&peer);
    let (conn, target) = connected(&peer, &memory).await;
    // With the next poll the budget is whole.
    tokio::task::yield_now().await;
    let mut budget = None;
    let budget = poll_fn(|context| match budget {
        Some(known) => Poll::Ready(known),
        None => {
            budget = Some(spend(context, usize::MAX));
            Poll::Pending
        }
    })
    .await;
    for left in 0..3 {
        let mut receive = target.recv(peer.buf(8).unwrap());
        let mut turn = 0;
        let received = poll_fn(|context| {
            turn += 1;
            if turn <= 2 {
                spend(context, budget - left);
            }
            std::pin::Pin::new(&mut receive).poll(context)
        });
        let conn = conn.clone();
        let message = peer.buf(8).unwrap();
        let sender = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            conn.send(message).await.unwrap();
        });
        tokio::task::yield_now().await;
        assert_eq!(in_time(received).await.unwrap().len, 8);
        sender.await.unwrap();
    }
}

#[tokio::test]
async fn operations_that_are_complete_at_once_leave_time_for_other_tasks() {
    let peer = peer();
    let memory = exposed(&peer);
    let (conn, _target) = connected(&peer, &memory).await;
    let at = conn.remote(0).unwrap().slice(0..8).unwrap();
    let mut buf = peer.buf(8).unwrap();
    for _ in 0..100 {
        buf = conn.write(buf, at).await.unwrap();
    }
    let other = tokio::spawn(async {});
    for _ in 0..10_000 {
        buf = conn.write(buf, at).await.unwrap();
    }
    assert!(other.is_finished(), "10,000 writes, and no other task ran");
}

/// A waker that owns what locks the connection when it is dropped.
struct Owner<T>(T);

impl<T> Wake for Owner<T> {
    fn wake(self: Arc<Self>) {}
}

#[tokio::test]
async fn wakers_that_own_an_operation() {
    let peer = peer();
    let memory = exposed(&peer);
    let (conn, target) = connected(&peer, &memory).await;
    let owner = || Waker::from(Arc::new(Owner(target.recv(peer.buf(8).unwrap()))));
    let (done, is_done) = std::sync::mpsc::channel();
    let mut receive = target.recv(peer.buf(8).unwrap());
    let wakers = [owner(), owner(), owner()];
    std::thread::spawn(move || {
        // Each waker replaces, and so drops, the one before.
        for waker in wakers {
            assert!(poll_once(&mut receive, &waker).is_none());
        }
        drop(receive);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(10)).expect("a deadlock");
    drop(conn);
}
