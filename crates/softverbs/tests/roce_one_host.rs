// SPDX-License-Identifier: BSD-3-Clause
//! RoCE connections to other processes of this user, which share memory with this one: processes that are
//! killed at random moments, children, and a process that writes into the shared memory. Each test runs in a
//! separate network namespace.

mod common;

use common::ids::destroy;
use common::restart::{Partner, child_alone, print, role};
use common::{
    End, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, SIGNALED, accept, connect, dereg, has_event, listener,
    next_event, request, sge, take_request,
};
use fastrand::Rng;
use rdma_sys::rdma_cm_event_type::*;
use rdma_sys::{ibv_mr, ibv_wr_opcode};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

const DEPTH: u32 = 32;
/// Requests in flight.
const WINDOW: usize = 16;
const RECEIVES: u64 = 8;
/// Identifiers of receives begin here.
const A_RECEIVE: u64 = 1 << 32;
/// The memory that peers may access is in the middle of a buffer.
const SIZE: usize = 64 << 10;
const MARGIN: usize = 4096;
const CANARY: u8 = 0xc5;
/// Half of that.
const HALF: usize = SIZE / 2;
/// The longest send.
const MESSAGE: usize = 4096;

const SUCCESS: u32 = 0;
const WR_FLUSH_ERR: u32 = 5;
const RETRY_EXC_ERR: u32 = 12;
/// The statuses that the end of a peer can lead to.
const STATUSES: [u32; 3] = [SUCCESS, WR_FLUSH_ERR, RETRY_EXC_ERR];

/// No test waits longer for what comes soon.
const LONG: Duration = Duration::from_secs(60);

/// The mappings of memory that is shared with peers, as addresses.
fn mappings() -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let address = |hex: &str| u64::from_str_radix(hex, 16).unwrap();
    let shared = maps.lines().filter(|line| line.ends_with("/memfd:softverbs (deleted)"));
    let range = |line: &str| {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        (address(from), address(to))
    };
    shared.map(range).collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until this is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "not yet: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the region of these bytes is all that was written to.
fn is_untouched_outside(bytes: &[u8]) -> bool {
    let (before, rest) = bytes.split_at(MARGIN);
    before.iter().chain(&rest[SIZE..]).all(|byte| *byte == CANARY)
}

/// One end of a connection. Receives are in the first half of its memory; what is sent, and what the peer
/// reads and writes, is in the second half.
struct Worker {
    end: End,
    bytes: Vec<u8>,
    mr: *mut ibv_mr,
    /// Address and key at the peer, when they have arrived.
    remote: Option<(u64, u32)>,
    random: Rng,
    pending: BTreeSet<u64>,
    posted: u64,
    statuses: BTreeSet<u32>,
}

impl Worker {
    fn new(end: End, seed: u64) -> Self {
        let mut bytes = vec![CANARY; SIZE + 2 * MARGIN];
        let mr = end.register(&mut bytes[MARGIN..][..SIZE], LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ);
        let mut this = Self {
            end,
            bytes,
            mr,
            remote: None,
            random: Rng::with_seed(seed),
            pending: BTreeSet::new(),
            posted: 0,
            statuses: BTreeSet::new(),
        };
        (0..RECEIVES).for_each(|n| this.post_receive(A_RECEIVE + n));
        // SAFETY: the region is registered.
        let (addr, key) = unsafe { ((*mr).addr as u64, (*mr).rkey) };
        this.bytes[MARGIN + HALF..][..8].copy_from_slice(&(addr + HALF as u64).to_ne_bytes());
        this.bytes[MARGIN + HALF + 8..][..4].copy_from_slice(&key.to_ne_bytes());
        this.post(ibv_wr_opcode::IBV_WR_SEND, 12);
        this
    }

    fn connect(port: u16, seed: u64) -> Self {
        let end = connect(c"127.0.0.1", port, DEPTH, b"");
        assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_ESTABLISHED);
        Self::new(end, seed)
    }

    fn post_receive(&mut self, wr_id: u64) {
        let at = (wr_id - A_RECEIVE) as usize * MESSAGE;
        assert_eq!(self.end.post_recv(wr_id, Some(&mut sge(self.mr, at, MESSAGE))), 0);
        assert!(self.pending.insert(wr_id));
    }

    fn post(&mut self, opcode: u32, len: usize) {
        let mut wr = request(opcode, self.posted, SIGNALED);
        let (addr, key) = self.remote.unwrap_or_default();
        (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (addr, key);
        assert_eq!(self.end.post(&mut wr, Some(&mut sge(self.mr, HALF, len))), 0);
        assert!(self.pending.insert(self.posted));
        self.posted += 1;
    }

    /// Takes what has completed; each request does once.
    fn poll(&mut self) {
        while let Some(wc) = self.end.try_poll() {
            assert!(self.pending.remove(&wc.wr_id), "{wc:?} was not posted, or completes twice");
            self.statuses.insert(wc.status);
            if wc.wr_id >= A_RECEIVE && wc.status == SUCCESS {
                let at = MARGIN + (wc.wr_id - A_RECEIVE) as usize * MESSAGE;
                let (addr, key) = (&self.bytes[at..][..8], &self.bytes[at + 8..][..4]);
                let remote = (addr.try_into().unwrap(), key.try_into().unwrap());
                self.remote.get_or_insert((u64::from_ne_bytes(remote.0), u32::from_ne_bytes(remote.1)));
                self.post_receive(wc.wr_id);
            }
        }
    }

    /// Posts a request if there is room for it.
    fn work(&mut self) {
        self.poll();
        let requests = self.pending.range(..A_RECEIVE).count();
        if self.remote.is_none() || requests >= WINDOW {
            return;
        }
        let (opcode, longest) = match self.random.u8(..3) {
            0 => (ibv_wr_opcode::IBV_WR_SEND, MESSAGE),
            1 => (ibv_wr_opcode::IBV_WR_RDMA_WRITE, HALF),
            _ => (ibv_wr_opcode::IBV_WR_RDMA_READ, HALF),
        };
        let len = self.random.usize(1..=longest);
        self.post(opcode, len);
    }

    fn has_ended(&self) -> bool {
        has_event(&self.end, Duration::ZERO)
    }

    /// Waits until all that was posted is complete, and no more. The queue pair is in ERR.
    fn finish(mut self) -> BTreeSet<u32> {
        until("all requests are complete", || {
            self.poll();
            self.pending.is_empty()
        });
        assert_eq!(self.end.try_poll(), None);
        assert!(is_untouched_outside(&self.bytes));
        dereg(self.mr);
        self.end.destroy();
        self.statuses
    }
}

/// The role of a partner: works until it is killed, as a client of this port or as a server.
fn work_until_killed(role: &str) -> ! {
    let mut worker = match role.parse() {
        Ok(port) => Worker::connect(port, port.into()),
        Err(_) => {
            let (_, events, port) = listener();
            print(port.into());
            Worker::new(accept(take_request(events).0, DEPTH, b""), 7)
        }
    };
    loop {
        worker.work();
    }
}

/// A connection to another process, which must not be affected.
struct Bystander {
    worker: Worker,
    _partner: Partner,
}

impl Bystander {
    fn start(name: &str) -> Self {
        let mut partner = Partner::start(name, "server");
        let port = partner.number() as u16;
        Self { worker: Worker::connect(port, 1), _partner: partner }
    }

    /// Requests to it succeed.
    fn is_well(&mut self) {
        let before = self.worker.posted;
        until("requests to another process", || {
            self.worker.work();
            self.worker.posted > before + 2 * WINDOW as u64
        });
        assert_eq!(self.worker.statuses, [SUCCESS].into());
        assert!(!self.worker.has_ended());
        assert!(is_untouched_outside(&self.worker.bytes));
    }
}

/// The first partner is a client in every other round. What it has left of the previous rounds shows in the
/// descriptors and mappings of this process.
#[test]
fn a_killed_process_leaves_nothing_and_completes_each_request_once() {
    const NAME: &str = "a_killed_process_leaves_nothing_and_completes_each_request_once";
    const ROUNDS: u32 = 50;
    const WARM_UP: u32 = 4;
    if !child_alone(NAME) {
        return;
    }
    if let Some(role) = role() {
        work_until_killed(&role);
    }
    let seed =
        std::env::var("ROCE_TEST_SEED").ok().map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("ROCE_TEST_SEED={seed} repeats it");
    let mut random = Rng::with_seed(seed);
    let mut bystander = Bystander::start(NAME);
    let (listening, events, port) = listener();
    let (mut baseline, mut shared, mut statuses) = (None, 0, BTreeSet::new());
    for round in 0..ROUNDS {
        let (victim, mut worker) = match round % 2 {
            0 => {
                let victim = Partner::start(NAME, &port.to_string());
                let end = accept(take_request(events).0, DEPTH, b"");
                assert_eq!(next_event(end.events).0, RDMA_CM_EVENT_ESTABLISHED);
                (victim, Worker::new(end, random.u64(..)))
            }
            _ => {
                let mut victim = Partner::start(NAME, "server");
                let port = victim.number() as u16;
                (victim, Worker::connect(port, random.u64(..)))
            }
        };
        let delay = Duration::from_micros(random.u64(..20_000));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(delay);
            victim.kill();
        });
        let begin = Instant::now();
        let mut mapped = 0;
        while !worker.has_ended() {
            worker.work();
            if mapped < 2 {
                mapped = mappings().len();
            }
            assert!(begin.elapsed() < LONG, "round {round}: no event");
        }
        killer.join().unwrap();
        shared += u32::from(mapped > 1);
        assert_eq!(next_event(worker.end.events).0, RDMA_CM_EVENT_DISCONNECTED, "round {round}");
        statuses.extend(worker.finish());
        bystander.is_well();
        if round < WARM_UP {
            continue;
        }
        let (descriptors_before, mappings_before) =
            *baseline.get_or_insert_with(|| (descriptors(), mappings().len()));
        until("what the killed process shared is gone", || {
            descriptors() <= descriptors_before && mappings().len() <= mappings_before
        });
    }
    println!("{shared} of {ROUNDS} killed processes shared memory; statuses {statuses:?}");
    assert!(shared > ROUNDS / 10, "only {shared} shared memory");
    assert!(statuses.len() > 1, "no request was under way");
    assert!(statuses.iter().all(|status| STATUSES.contains(status)), "{statuses:?}");
    destroy(listening);
}

/// A child neither has the memory nor can it use the queue pair, and does not affect that of its parent.
#[test]
fn children_have_nothing_of_the_shared_memory() {
    const NAME: &str = "children_have_nothing_of_the_shared_memory";
    const OF_CHILD: u64 = A_RECEIVE - 1;
    if !child_alone(NAME) {
        return;
    }
    if let Some(role) = role() {
        work_until_killed(&role);
    }
    let mut bystander = Bystander::start(NAME);
    until("memory is shared", || {
        bystander.is_well();
        !mappings().is_empty()
    });
    for _ in 0..10 {
        // SAFETY: the child has only this thread; it uses the library, which is fork-safe, and exits.
        match unsafe { libc::fork() } {
            0 => {
                let end = &bystander.worker.end;
                let mut wr = request(ibv_wr_opcode::IBV_WR_SEND, OF_CHILD, SIGNALED);
                end.post(&mut wr, Some(&mut sge(bystander.worker.mr, HALF, 8)));
                // Earlier completions of the parent may be in the queue.
                let is_own = |wc: &common::Wc| wc.wr_id == OF_CHILD && wc.status == SUCCESS;
                let sends = (0..1000).any(|_| end.try_poll().is_some_and(|wc| is_own(&wc)));
                let code = i32::from(!mappings().is_empty())
                    | i32::from(has_shared_file()) << 1
                    | i32::from(sends) << 2;
                // SAFETY: ends the child without handlers.
                unsafe { libc::_exit(code) };
            }
            child => {
                let mut status = 0;
                // Traffic goes on meanwhile.
                until("the child has ended", || {
                    bystander.is_well();
                    // SAFETY: waits for the child that was just created.
                    unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) == child }
                });
                assert_eq!(status, 0, "256: a mapping, 512: a descriptor, 1024: it can send");
            }
        }
        bystander.is_well();
        let output = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        assert!(!listed.contains("memfd:softverbs"), "{listed}");
        bystander.is_well();
    }
}

/// Whether this process has a descriptor of memory that is shared with a peer.
fn has_shared_file() -> bool {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    links
        .flat_map(|entry| std::fs::read_link(entry.path()))
        .any(|path| path.ends_with("memfd:softverbs (deleted)"))
}

/// The peer writes random bytes into the memory that both share. It has the rights of this user, but what is
/// not registered stays as it is, every request completes, and others are not affected.
#[test]
fn random_bytes_in_the_shared_memory_end_one_connection_at_most() {
    const NAME: &str = "random_bytes_in_the_shared_memory_end_one_connection_at_most";
    const ROUNDS: u32 = 10;
    /// A connection may continue over UDP.
    const ENOUGH: Duration = Duration::from_millis(500);
    if !child_alone(NAME) {
        return;
    }
    match role().as_deref() {
        None => {}
        Some("hostile") => spoil_until_killed(),
        Some(role) => work_until_killed(role),
    }
    let mut bystander = Bystander::start(NAME);
    let (mut failed, mut left) = (0, 0);
    for round in 0..ROUNDS {
        let mut partner = Partner::start(NAME, "hostile");
        let mut worker = Worker::connect(partner.number() as u16, round.into());
        let spoils = std::thread::spawn(move || {
            partner.number();
            partner
        });
        until("both share memory, and the peer spoils it", || {
            worker.work();
            spoils.is_finished()
        });
        let partner = spoils.join().unwrap();
        let begin = Instant::now();
        while worker.statuses.iter().all(|status| *status == SUCCESS) && begin.elapsed() < ENOUGH {
            worker.work();
        }
        failed += u32::from(worker.statuses.iter().any(|status| *status != SUCCESS));
        left += u32::from(mappings().len() == 1);
        bystander.is_well();
        partner.kill();
        until("the connection has ended", || {
            worker.work();
            worker.has_ended()
        });
        worker.finish();
        bystander.is_well();
    }
    println!("{failed} of {ROUNDS} connections have failed, {left} have left the memory");
}

/// A server that writes random bytes into the memory that it shares with its client.
fn spoil_until_killed() -> ! {
    let (_, events, port) = listener();
    print(port.into());
    let mut worker = Worker::new(accept(take_request(events).0, DEPTH, b""), 7);
    let mut random = Rng::with_seed(port.into());
    let mut is_ready = false;
    let memory = std::fs::File::options().write(true).open("/proc/self/mem").unwrap();
    loop {
        worker.work();
        let shared = mappings();
        if !is_ready && worker.posted > 200 && !shared.is_empty() {
            is_ready = true;
            print(1);
        }
        for (from, to) in shared.into_iter().filter(|_| is_ready) {
            for _ in 0..16 {
                let bytes: [u8; 16] = std::array::from_fn(|_| random.u8(..));
                let len = random.usize(1..=bytes.len());
                // The positions and exports are in the first page, and packets mostly at the front of a ring.
                let end = random.choice([from + 4096, from + (32 << 10), to]).unwrap();
                let at = random.u64(from..end - bytes.len() as u64);
                let _ = memory.write_all_at(&bytes[..len], at);
            }
        }
    }
}
