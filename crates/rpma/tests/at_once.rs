// SPDX-License-Identifier: BSD-3-Clause
//! Between processes of one host an operation is usually executed by the call that makes it. A program of its
//! own: with half of the descriptors of a process in use, connections use TCP.

use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rpma::{Access, Flush, Peer, Provider, Result};

fn is_complete(op: &impl Debug) -> bool {
    format!("{op:?}") == "Op(complete)"
}

#[test]
fn operations_that_are_complete_at_once() -> Result<()> {
    let peer = Peer::open("127.0.0.1:0", Provider::Soft)?;
    let memory = peer.expose(4096, Access::READ | Access::WRITE | Access::VISIBLE)?;
    let listener = peer.listen("127.0.0.1:0")?;
    let addr = listener.local_addr().unwrap();
    let (conn, _target) = std::thread::scope(|scope| {
        let target = scope.spawn(|| listener.wait_accept()?.wait_accept(&[memory.offer()]));
        (peer.connect(addr).wait().unwrap(), target.join().unwrap().unwrap())
    });
    let (remote, word) = (conn.remote(0)?, memory.word(8)?);
    let (slice, all) = (remote.slice(8..16)?, remote.slice(..)?);
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut buf = peer.buf(8)?;
    // The first ones are not.
    for number in 1_u64.. {
        assert!(Instant::now() < deadline, "they are not complete at once");
        buf.copy_from_slice(&number.to_ne_bytes());
        let write = conn.write(buf, slice);
        let (is_written, seen) = (is_complete(&write), word.load(Ordering::Acquire));
        buf = write.wait()?;
        let read = conn.read(slice, buf);
        let is_read = is_complete(&read);
        buf = read.wait()?;
        assert_eq!(buf[..], number.to_ne_bytes());
        let store = conn.store(!number, slice);
        let (is_stored, stored) = (is_complete(&store), word.load(Ordering::Acquire));
        store.wait()?;
        let flush = conn.flush(all, Flush::Visible);
        let is_flushed = is_complete(&flush);
        flush.wait()?;
        if is_written && is_read && is_stored && is_flushed {
            assert_eq!((seen, stored), (number, !number));
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // Requests of a batch may be executed by their posts as well, and so may a detached operation.
    let (one, two) = (peer.buf(1)?, peer.buf(2)?);
    let batch = conn.batch().write(one, remote.slice(0..1)?).write(two, remote.slice(1..3)?);
    let lens: Vec<_> = batch.submit().wait()?.iter().map(|buf| buf.len()).collect();
    assert_eq!(lens, [1, 2]);
    conn.write(buf, slice).detach();
    conn.wait_close()
}
