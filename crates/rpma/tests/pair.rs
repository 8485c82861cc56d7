// SPDX-License-Identifier: BSD-3-Clause
//! Both ends of a connection in one process: over software RDMA, or on the device of the address in
//! `RPMA_TEST_ADDRESS`. `c-tests/vm/crate.skip` names the tests that are not for devices.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rpma::{Access, Closed, Conn, ErrorKind, Exposed, Flush, Memory, Peer, Provider, Remote, Result};
use rustix::event::{PollFd, PollFlags, poll};

const ALL: fn() -> Access = || Access::READ | Access::WRITE | Access::VISIBLE;

/// The address of the device, unless the tests are those of software RDMA.
fn device() -> Option<String> {
    std::env::var("RPMA_TEST_ADDRESS").ok()
}

/// Any port.
fn any() -> String {
    device().unwrap_or_else(|| "127.0.0.1".to_owned()) + ":0"
}

fn peer() -> Peer {
    let provider = if device().is_some() { Provider::RdmaCore } else { Provider::Soft };
    Peer::open(any(), provider).unwrap()
}

/// The initiator, and the target that has offered memory.
async fn connected(peer: &Peer, memory: &Exposed, queue: u32) -> (Conn, Conn) {
    let listener = peer.listen(any()).unwrap();
    let addr = listener.local_addr().unwrap();
    let offer = memory.offer();
    let target = tokio::spawn(async move { listener.accept().await?.accept(&[offer]).await });
    let conn = peer.connect(addr).queues(queue, queue).await.unwrap();
    (conn, target.await.unwrap().unwrap())
}

fn text(peer: &Peer, text: &[u8]) -> rpma::Buf {
    let mut buf = peer.buf(text.len()).unwrap();
    buf.copy_from_slice(text);
    buf
}

#[tokio::test]
async fn every_operation() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(4096, ALL())?;
    let (conn, target) = connected(&peer, &memory, 16).await;
    let remote = conn.remote(0)?;
    assert_eq!((remote.len(), memory.len()), (4096, 4096));

    let buf = conn.write(text(&peer, b"written"), remote.slice(3..10)?).await?;
    conn.flush(remote.slice(..)?, Flush::Visible).await?;
    let mut seen = [0; 9];
    memory.copy_out(2, &mut seen)?;
    assert_eq!((&seen, &buf[..]), (b"\0written\0", &b"written"[..]));

    memory.copy_in(100, b"from the target, in more than two words")?;
    let read = conn.read(remote.slice(100..139)?, peer.buf(39)?).await?;
    assert_eq!(&read[..], b"from the target, in more than two words");

    conn.store(0x0102_0304_0506_0708, remote.slice(8..16)?).await?;
    conn.flush(remote.slice(..)?, Flush::Visible).await?;
    assert_eq!(memory.word(8)?.load(Ordering::Acquire), 0x0102_0304_0506_0708);

    let receives = [target.recv(peer.buf(64)?), target.recv(peer.buf(64)?), target.recv(peer.buf(1)?)];
    conn.send(text(&peer, b"a message")).await?;
    conn.send_with_imm(text(&peer, b"another"), 7).await?;
    conn.write_with_imm(text(&peer, b"wr"), remote.slice(0..2)?, 8).await?;
    let [first, second, third] = receives;
    let (first, second, third) = (first.await?, second.await?, third.await?);
    assert_eq!((first.message(), first.imm, first.buf.len()), (&b"a message"[..], None, 64));
    assert_eq!((second.message(), second.imm), (&b"another"[..], Some(7)));
    assert_eq!((third.message(), third.imm, third.written), (&b""[..], Some(8), Some(2)));
    assert_eq!((second.written, third.len), (None, 0));

    let batch = conn.batch().write(text(&peer, b"1"), remote.slice(0..1)?);
    let batch = batch.write(text(&peer, b"23"), remote.slice(1..3)?).flush(remote.slice(..)?, Flush::Visible);
    let bufs = batch.store(9, remote.slice(16..24)?).submit().await?;
    assert_eq!(bufs.iter().map(|buf| buf.len()).collect::<Vec<_>>(), [1, 2]);
    conn.close().await?;
    assert_eq!(target.closed().await, Closed::Closed);
    assert_eq!(memory.word(16)?.load(Ordering::Acquire), 9);
    Ok(())
}

/// The write is longer than the buffer of the receive, which still has the message of another peer.
#[tokio::test]
async fn a_write_with_immediate_data_is_no_message() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(64, ALL())?;
    let (other, other_target) = connected(&peer, &memory, 1).await;
    let (conn, target) = connected(&peer, &memory, 1).await;
    let pool = peer.pool(8, 1)?;
    let receive = other_target.recv(pool.take().await);
    other.send(text(&peer, b"a secret")).await?;
    assert_eq!(receive.await?.message(), b"a secret");
    let receive = target.recv(pool.take().await);
    conn.write_with_imm(peer.buf(64)?, conn.remote(0)?.slice(..)?, 1).await?;
    let mut received = receive.await?;
    assert_eq!((received.message(), received.len), (&b""[..], 0));
    assert_eq!((received.imm, received.written), (Some(1), Some(64)));
    assert_eq!(received.buf.split_to(received.len).len(), 0);
    Ok(())
}

#[test]
fn threads_without_a_runtime() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(64, ALL())?;
    let listener = peer.listen(any())?;
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let target = scope.spawn(|| listener.wait_accept()?.wait_accept(&[memory.offer()]));
        let conn = peer.connect(addr).private_data(b"hello").wait()?;
        let target = target.join().unwrap()?;
        assert_eq!(target.private_data(), b"hello");
        // Both threads wait on one connection, for results in the other order.
        let (one, two) = (target.recv(peer.buf(8)?), target.recv(peer.buf(8)?));
        let threads =
            [one, two].map(|receive| scope.spawn(|| receive.wait().map(|got| got.message().to_vec())));
        std::thread::sleep(Duration::from_millis(20));
        for word in [b"first", b"other"] {
            conn.send(text(&peer, word)).wait()?;
        }
        let got = threads.map(|thread| thread.join().unwrap().unwrap());
        assert_eq!(got, [b"first".to_vec(), b"other".to_vec()]);
        // On a device each side needs the answer of the other one.
        let closes = scope.spawn(|| conn.wait_close());
        assert_eq!(target.wait_closed()?, Closed::Closed);
        closes.join().unwrap()
    })
}

#[test]
fn raw_private_data_has_no_header() -> Result<()> {
    let peer = peer();
    let listener = peer.listen(any())?;
    let connect = peer.connect(listener.local_addr().unwrap()).raw_private_data(b"request");
    let client = std::thread::spawn(|| connect.wait());
    let incoming = listener.wait_accept()?;
    assert!(incoming.private_data().starts_with(b"request"));
    let _target = incoming.wait_accept_raw(b"reply")?;
    assert!(client.join().unwrap()?.private_data().starts_with(b"reply"));
    Ok(())
}

#[tokio::test]
async fn more_operations_than_the_queue_has_room_for() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(8 * 1000, ALL())?;
    let (conn, target) = connected(&peer, &memory, 4).await;
    let (remote, pool) = (conn.remote(0)?, peer.pool(8, 100)?);
    let mut made = Vec::new();
    for number in 0..1000_u64 {
        // No task awaits the writes; the reactor completes them, and their buffers return to the pool.
        let mut buf = pool.take().await;
        buf.copy_from_slice(&number.to_ne_bytes());
        let write = conn.write(buf, remote.slice(8 * number..8 * number + 8)?);
        if number % 3 == 0 {
            made.push(write)
        } else {
            write.detach()
        }
        if made.len() > 20 {
            for write in made.drain(..) {
                write.await?;
            }
        }
    }
    conn.close().await?;
    assert_eq!(target.closed().await, Closed::Closed);
    for number in 0..1000 {
        assert_eq!(memory.word(8 * number)?.load(Ordering::Acquire), number as u64);
    }
    Ok(())
}

/// More requests than are prepared in advance.
#[tokio::test]
async fn a_hundred_requests_wait() -> Result<()> {
    let peer = peer();
    let listener = peer.listen(any())?;
    let addr = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let peer = peer.clone();
            tokio::spawn(async move { peer.connect(addr).queues(1, 1).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut accepted = Vec::new();
    for _ in 0..100 {
        accepted.push(listener.accept().await?.accept(&[]).await?);
    }
    for client in clients {
        client.await.unwrap()?;
    }
    Ok(())
}

#[tokio::test]
async fn cancelled_operations_keep_their_buffers_until_they_are_complete() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(64, ALL())?;
    let (conn, target) = connected(&peer, &memory, 16).await;
    let pool = peer.pool(16, 2)?;
    let cancelled = tokio::time::timeout(Duration::from_millis(20), target.recv(pool.take().await)).await;
    assert!(cancelled.is_err());
    let forgotten = target.recv(pool.take().await);
    std::mem::forget(forgotten);
    assert!(pool.try_take().is_none(), "both buffers are posted");
    let kept = target.recv(peer.buf(16)?);
    for word in [b"one", b"two", b"3rd"] {
        conn.send(text(&peer, word)).await?;
    }
    assert_eq!(kept.await?.message(), b"3rd", "the cancelled receives have taken the first two");
    assert!(pool.try_take().is_some(), "that of the dropped operation is back");
    Ok(())
}

#[tokio::test]
async fn refused_before_it_is_posted() -> Result<()> {
    let peer = peer();
    let (readable, writable) = (peer.expose(64, Access::READ)?, peer.expose(64, Access::WRITE)?);
    let listener = peer.listen(any())?;
    let (addr, offers) = (listener.local_addr().unwrap(), [readable.offer(), writable.offer()]);
    let target = tokio::spawn(async move { listener.accept().await?.accept(&offers).await });
    let conn = peer.connect(addr).await?;
    let (readable, writable) = (conn.remote(0)?, conn.remote(1)?);
    assert_eq!(conn.remote(2).unwrap_err().kind(), ErrorKind::Invalid);

    let failed = conn.write(peer.buf(8)?, readable.slice(0..8)?).await.unwrap_err();
    assert_eq!((failed.error.kind(), failed.buf.len()), (ErrorKind::NotPermitted, 8));
    let failed = conn.read(writable.slice(0..8)?, peer.buf(8)?).await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::NotPermitted);
    let failed = conn.read(readable.slice(0..8)?, peer.buf(9)?).wait().unwrap_err();
    assert!(matches!(failed.error.kind(), ErrorKind::OutOfRange { len: 9, size: 8, .. }));
    let kind = |result: Result<(), rpma::Failed<()>>| result.unwrap_err().error.kind();
    assert_eq!(kind(conn.flush(readable.slice(..)?, Flush::Persistent).await), ErrorKind::NotDurable);
    assert_eq!(kind(conn.store(1, writable.slice(4..12)?).await), ErrorKind::Invalid);
    let batch = conn.batch().write(peer.buf(8)?, writable.slice(0..8)?).store(1, writable.slice(0..7)?);
    let failed = batch.submit().await.unwrap_err();
    assert!(matches!(failed.error.kind(), ErrorKind::OutOfRange { .. }) && failed.buf.len() == 1);
    assert_eq!(conn.batch().submit().await.unwrap_err().error.kind(), ErrorKind::Invalid);
    conn.write(peer.buf(8)?, writable.slice(0..8)?).await?;
    drop(target);
    Ok(())
}

#[tokio::test]
async fn a_batch_is_checked_before_anything_is_posted() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(64, ALL())?;
    let (conn, target) = connected(&peer, &memory, 16).await;
    let remote = conn.remote(0)?;
    let batch = conn.batch().write(text(&peer, b"written"), remote.slice(0..7)?);
    let failed = batch.store(1, remote.slice(12..20)?).submit().await.unwrap_err();
    assert_eq!((failed.error.kind(), failed.buf.len()), (ErrorKind::Invalid, 1));
    conn.flush(remote.slice(..)?, Flush::Visible).await?;
    assert_eq!(memory.word(0)?.load(Ordering::Acquire), 0, "the write before it was posted");
    drop(target);
    Ok(())
}

#[tokio::test]
async fn flush_of_any_range() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(61, ALL())?;
    let (conn, target) = connected(&peer, &memory, 16).await;
    let remote = conn.remote(0)?;
    for (from, end) in [(0, 61), (0, 1), (56, 61), (60, 61), (61, 61), (0, 0)] {
        conn.flush(remote.slice(from..end)?, Flush::Visible).await?;
    }
    drop(target);
    let tiny = peer.expose(4, ALL())?;
    let (conn, target) = connected(&peer, &tiny, 16).await;
    let failed = conn.flush(conn.remote(0)?.slice(..)?, Flush::Visible).await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Invalid);
    conn.write(text(&peer, b"tiny"), conn.remote(0)?.slice(..)?).await?;
    drop(target);
    Ok(())
}

#[tokio::test]
async fn a_buffer_of_another_peer() -> Result<()> {
    let (peer, other) = (peer(), peer());
    let memory = peer.expose(64, ALL())?;
    let (conn, target) = connected(&peer, &memory, 16).await;
    let at = conn.remote(0)?.slice(0..5)?;
    let failed = conn.write(text(&other, b"other"), at).await.unwrap_err();
    assert_eq!((failed.error.kind(), &failed.buf[..]), (ErrorKind::Invalid, &b"other"[..]));
    conn.write(text(&peer.clone(), b"clone"), at).await?;
    drop(target);
    Ok(())
}

#[tokio::test]
async fn a_request_outlives_its_listener() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(64, ALL())?;
    for accepts in [true, false] {
        let listener = peer.listen(any())?;
        let connecting = tokio::spawn(peer.connect(listener.local_addr().unwrap()).into_future());
        let incoming = listener.accept().await?;
        drop(listener);
        if accepts {
            let target = incoming.accept(&[memory.offer()]).await?;
            let conn = connecting.await.unwrap()?;
            conn.write(text(&peer, b"written"), conn.remote(0)?.slice(0..7)?).await?;
            drop(target);
        } else {
            drop(incoming);
            assert_eq!(connecting.await.unwrap().unwrap_err().kind(), ErrorKind::Rejected);
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_second_address_of_a_name() -> Result<()> {
    let peer = peer();
    let listener = peer.listen(any())?;
    let addr = listener.local_addr().unwrap();
    let closed = { peer.listen(any())?.local_addr().unwrap() };
    let accepts = tokio::spawn(async move { listener.accept().await?.accept(&[]).await });
    let conn = peer.connect(&[closed, addr][..]).await?;
    assert_eq!(conn.peer_addr(), Some(addr));
    drop(accepts.await.unwrap()?);
    Ok(())
}

/// Each end sends before the other could post a receive after the connection was established.
#[tokio::test]
async fn receives_before_the_connection() -> Result<()> {
    let peer = peer();
    let listener = peer.listen(any())?;
    let addr = listener.local_addr().unwrap();
    let (to, pool) = (peer.clone(), peer.pool(16, 2)?);
    let target = tokio::spawn(async move {
        let (conn, receives) = listener.accept().await?.accept_receiving(&[], &pool, 2).await?;
        conn.send(text(&to, b"from the target")).await?;
        Ok::<_, rpma::Error>((conn, receives, pool, listener))
    });
    let pool = peer.pool(16, 1)?;
    let (conn, mut receives) = peer.connect(addr).receiving(&pool, 1).await?;
    conn.send(text(&peer, b"one")).await?;
    conn.send(text(&peer, b"two")).await?;
    assert_eq!(receives.remove(0).await?.message(), b"from the target");
    let (_target, receives, used, listener) = target.await.unwrap()?;
    for (receive, word) in receives.into_iter().zip([b"one", b"two"]) {
        assert_eq!(receive.await?.message(), word);
    }
    // Too few buffers: nothing is sent, and what was posted is back.
    let error = peer.connect(addr).receiving(&pool, 2).await.unwrap_err();
    assert_eq!((error.kind(), pool.try_take().is_some()), (ErrorKind::Invalid, true));
    let refused = peer.connect(addr).queues(1, 1).receiving(&used, 2).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    // An attempt that fails gives them back, and so does one that is not accepted.
    let rejects = tokio::spawn(async move { listener.accept().await.unwrap().reject() });
    assert_eq!(peer.connect(addr).receiving(&used, 2).await.unwrap_err().kind(), ErrorKind::Rejected);
    rejects.await.unwrap();
    assert!(used.try_take().is_some());
    Ok(())
}

#[tokio::test]
async fn revoked_memory() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(64, ALL())?;
    let (conn, target) = connected(&peer, &memory, 16).await;
    memory.revoke()?;
    let read = conn.read(conn.remote(0)?.slice(0..8)?, peer.buf(8)?).await.unwrap_err();
    assert_eq!((read.error.kind(), read.buf.len()), (ErrorKind::NotPermitted, 8));
    assert!(read.error.to_string().contains("Conn::read"), "{}", read.error);
    let after = conn.send(peer.buf(8)?).await.unwrap_err();
    assert!(matches!(after.error.kind(), ErrorKind::Closed | ErrorKind::Lost), "{:?}", after.error);
    drop(target);
    Ok(())
}

#[tokio::test]
async fn the_peer_goes() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(64, ALL())?;
    let (conn, target) = connected(&peer, &memory, 16).await;
    let receive = conn.recv(peer.buf(32)?);
    drop(target);
    let failed = receive.await.unwrap_err();
    assert_eq!((failed.error.kind(), failed.buf.len()), (ErrorKind::Closed, 32));
    assert_eq!(conn.closed().await, Closed::Closed);
    let failed = conn.send(peer.buf(8)?).await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Closed);
    Ok(())
}

#[tokio::test]
async fn a_rejection_and_a_port_without_a_listener() -> Result<()> {
    let peer = peer();
    let listener = peer.listen(any())?;
    let addr = listener.local_addr().unwrap();
    let rejects = tokio::spawn(async move {
        listener.accept().await.unwrap().reject();
        listener
    });
    assert_eq!(peer.connect(addr).await.unwrap_err().kind(), ErrorKind::Rejected);
    drop(rejects.await.unwrap());
    let error = peer.connect(addr).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Rejected | ErrorKind::Unreachable), "{error:?}");
    assert!(error.to_string().contains(&addr.to_string()), "{error}");
    Ok(())
}

#[tokio::test]
async fn persistent_file() -> Result<()> {
    let peer = peer();
    let path = std::env::temp_dir().join(format!("rpma-pair-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let memory = peer.expose(Memory::File(file, 4096), Access::WRITE | Access::PERSISTENT)?;
    let (conn, target) = connected(&peer, &memory, 16).await;
    let at = conn.remote(0)?.slice(10..14)?;
    // As if the offer had not come with the connection.
    let by_bytes = Remote::from_bytes(&memory.offer().to_bytes())?;
    connected(&peer, &peer.expose(64, ALL())?, 16)
        .await
        .0
        .flush(by_bytes.slice(..)?, Flush::Persistent)
        .await?;
    conn.batch().write(text(&peer, b"kept"), at).flush(at, Flush::Persistent).submit().await?;
    let mut content = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut content).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((content.len(), &content[10..14]), (4096, &b"kept"[..]));
    drop(target);
    Ok(())
}

#[test]
fn a_loop_of_its_own() -> Result<()> {
    let peer = peer();
    let memory = peer.expose(64, ALL())?;
    let listener = peer.listen(any())?;
    let addr = listener.local_addr().unwrap();
    let (conn, target) = std::thread::scope(|scope| {
        let target = scope.spawn(|| listener.wait_accept()?.wait_accept(&[memory.offer()]));
        Ok::<_, rpma::Error>((peer.connect(addr).wait()?, target.join().unwrap()?))
    })?;
    let mut receive = target.recv(peer.buf(8)?);
    conn.send(text(&peer, b"loop")).wait()?;
    let got = loop {
        match receive.try_take() {
            Ok(got) => break got?,
            Err(again) => receive = again,
        }
        poll(&mut [PollFd::from_borrowed_fd(target.as_fd(), PollFlags::IN)], None).unwrap();
        target.process();
    };
    assert_eq!(got.message(), b"loop");
    Ok(())
}

#[test]
fn buffers_divide() -> Result<()> {
    let peer = peer();
    let pool = peer.pool(12, 2)?;
    let mut buf = pool.try_take().unwrap();
    buf.copy_from_slice(b"head|body|tl");
    let head = buf.split_to(5);
    let tail = buf.split_off(5);
    assert_eq!((&head[..], &buf[..], &tail[..]), (&b"head|"[..], &b"body|"[..], &b"tl"[..]));
    let mut head = head;
    let tail = head.unsplit(tail).unwrap_err();
    head.unsplit(buf).unwrap();
    let second = pool.try_take().unwrap();
    assert!(pool.try_take().is_none(), "a part of the first is left");
    drop(head);
    assert!(pool.try_take().is_none());
    drop(tail);
    let back = pool.try_take().unwrap();
    assert_eq!(back.len(), 12);
    let second = { back }.unsplit(second).map_or_else(|second| second, |()| unreachable!());
    assert_eq!(second.len(), 12);
    Ok(())
}
