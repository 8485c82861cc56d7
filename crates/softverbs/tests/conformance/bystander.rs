// SPDX-License-Identifier: BSD-3-Clause
//! A connection that the peers of a table must not affect.

use super::common::*;
use rdma_sys::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LEN: usize = 6000;

/// Two ends that write, read back and compare on a separate thread, until dropped.
pub(crate) struct Bystander {
    rounds: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    seen: u64,
}

impl Bystander {
    pub(crate) fn start() -> Self {
        let (rounds, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stop) = (rounds.clone(), over.clone());
        let thread = Some(std::thread::spawn(move || run(&count, &stop)));
        let mut this = Self { rounds, over, thread, seen: 0 };
        this.goes_on("the start");
        this
    }

    /// Asserts that a whole round of checked data has passed since the last call.
    pub(crate) fn goes_on(&mut self, row: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        // One round may have been in progress before.
        while self.rounds.load(Ordering::Acquire) < self.seen + 2 {
            let runs = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
            assert!(runs && Instant::now() < deadline, "{row}: disturbs another connection");
            std::thread::sleep(Duration::from_micros(200));
        }
        self.seen = self.rounds.load(Ordering::Acquire);
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let result = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(result, Some(Ok(()))), "the other connection failed");
            println!(
                "meanwhile {} checked rounds of another connection",
                self.rounds.load(Ordering::Acquire)
            );
        }
    }
}

fn run(rounds: &AtomicU64, over: &AtomicBool) {
    let (client, server) = pair(c"127.0.0.1", 16);
    let (mut from, mut to, mut back, mut inbox) =
        (vec![0u8; LEN], vec![0u8; LEN], vec![0u8; LEN], vec![0u8; 64]);
    let source = client.register(&mut from, LOCAL_WRITE);
    let target = server.register(&mut to, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ);
    let sink = client.register(&mut back, LOCAL_WRITE);
    let receives = server.register(&mut inbox, LOCAL_WRITE);
    for round in 0u64.. {
        if over.load(Ordering::Acquire) {
            break;
        }
        from.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u64 * 31 + round * 7) as u8);
        assert_eq!(server.post_recv(round, Some(&mut sge(receives, 0, 64))), 0);
        let mut requests = [
            request(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 1, 0),
            request(ibv_wr_opcode::IBV_WR_SEND, 2, SIGNALED),
            request(ibv_wr_opcode::IBV_WR_RDMA_READ, 3, SIGNALED),
        ];
        // SAFETY: the region is still registered.
        let (addr, rkey) = unsafe { ((*target).addr as u64, (*target).rkey) };
        for at in [0, 2] {
            requests[at].wr.rdma.remote_addr = addr;
            requests[at].wr.rdma.rkey = rkey;
        }
        let mut entries = [sge(source, 0, LEN), sge(source, 0, 64), sge(sink, 0, LEN)];
        for (wr, entry) in requests.iter_mut().zip(&mut entries) {
            assert_eq!(client.post(wr, Some(entry)), 0);
        }
        for wr_id in [2, 3] {
            let wc = client.poll();
            assert_eq!((wc.wr_id, wc.status), (wr_id, 0), "round {round}");
        }
        let wc = server.poll();
        assert_eq!((wc.wr_id, wc.status, wc.byte_len), (round, 0, 64), "round {round}");
        assert!(back == from && inbox[..] == from[..64], "round {round}: other data");
        rounds.store(round + 1, Ordering::Release);
        std::thread::sleep(Duration::from_micros(100));
    }
    for mr in [source, target, sink, receives] {
        dereg(mr);
    }
    client.destroy();
    server.destroy();
}
