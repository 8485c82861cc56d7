// SPDX-License-Identifier: BSD-3-Clause
//! Detects that the processes of peers on this host have died.
//!
//! When a process dies, the kernel's rdma_cm sends a DREQ for each of its connections; softverbs runs in the
//! process and cannot, unless the process calls exit(3) ([`super::exit`]). But the slot of the process is
//! then unclaimed, which all processes of the network namespace can see. So while a peer has the GUID of this
//! device, which is that of the namespace, and an address of this host, the engine reads the claims of the
//! slots periodically. The inode of a claim distinguishes it from that of a later process with the same slot.
//!
//! A peer is dead if all reads of an interval lack its claim: meanwhile, the last messages of the process
//! arrive, including those that other processes forward. Peers on other hosts are not watched: a connection
//! has no keepalive, so only a request that is not acknowledged shows their end. Nor is a peer whose process
//! dies before the first read, if another one claims its slot within these milliseconds.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Agent;
use crate::cm::addr;
use crate::lock;
use crate::port;
use crate::progress::source::Source;
use crate::progress::timers::Timer;
use crate::socket::Socket;
use crate::sys;
use transport::roce::cm::{CommId, LocalPeer, Route};
use transport::route::address_in;

/// The interval between two reads of the claims, which take some 10 us: a killed peer is reported within two.
const INTERVAL: Duration = Duration::from_millis(100);
/// The first read for a new peer is not later than this: until then, another process may claim its slot,
/// whose claim would be taken for that of the peer.
const FIRST_INTERVAL: Duration = Duration::from_millis(5);

/// The process of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    /// In another network namespace, which has the GUID of this one: a program that has changed its own.
    Elsewhere,
    /// Its claim was not seen yet.
    Unknown,
    /// It has the claim with this inode.
    Claims(u64),
}

struct Watched {
    comm_id: u32,
    process: Process,
    /// Reads have lacked its claim since then.
    missing_since: Option<Instant>,
}

/// The peers that are watched.
#[derive(Default)]
pub(super) struct Watch {
    /// When the next read is due.
    timer: Option<(Instant, Timer)>,
    peers: HashMap<CommId, Watched>,
}

impl Watch {
    /// The time of the next read, if it must be earlier than planned because of a new peer.
    fn earlier(&self, now: Instant) -> Option<Instant> {
        let first = now + FIRST_INTERVAL;
        self.timer.as_ref().is_none_or(|(planned, _)| *planned > first).then_some(first)
    }

    fn knows(&self, peer: &LocalPeer) -> bool {
        self.peers.get(&peer.id).is_some_and(|known| known.comm_id == peer.comm_id)
    }

    /// Compares the peers with the claims of the slots. Returns those whose processes have died. `here` has,
    /// of new peers, whether they have an address of this host; one without is new again at the next read.
    fn compare(
        &mut self,
        peers: &[LocalPeer],
        claims: impl Fn(u8) -> Option<u64>,
        here: &HashMap<CommId, bool>,
        now: Instant,
    ) -> Vec<LocalPeer> {
        let mut watched = HashMap::new();
        let mut dead = Vec::new();
        for peer in peers {
            let claim = claims(slot_of(peer));
            let known = self.peers.remove(&peer.id).filter(|known| known.comm_id == peer.comm_id);
            let mut process = match (&known, here.get(&peer.id)) {
                (Some(known), _) => known.process,
                (None, Some(true)) => Process::Unknown,
                (None, Some(false)) => Process::Elsewhere,
                (None, None) => continue,
            };
            if let (Process::Unknown, Some(inode)) = (process, claim) {
                process = Process::Claims(inode);
            }
            let is_missing = match process {
                Process::Elsewhere => false,
                Process::Unknown => true,
                Process::Claims(inode) => claim != Some(inode),
            };
            let since = known.and_then(|known| known.missing_since).unwrap_or(now);
            if is_missing && now.duration_since(since) >= INTERVAL {
                dead.push(*peer);
            }
            let missing_since = is_missing.then_some(since);
            watched.insert(peer.id, Watched { comm_id: peer.comm_id, process, missing_since });
        }
        self.peers = watched;
        dead
    }
}

/// The slot of the process of a peer.
fn slot_of(peer: &LocalPeer) -> u8 {
    (peer.comm_id >> 24) as u8
}

/// Whether the peer has an address of this host. `None`: not known, for example without a free descriptor.
fn is_here(route: &Route) -> Option<bool> {
    if route.local == route.remote {
        return Some(true);
    }
    let bind = || {
        let address = address_in(route.remote, 0, sys::scope_of(route.remote)?);
        let socket = Socket::noted(|| sys::udp_socket(addr::family(&address)))?;
        addr::bind(&socket, &address)
    };
    match bind() {
        Ok(()) => Some(true),
        Err(libc::EADDRNOTAVAIL) => Some(false),
        Err(_) => None,
    }
}

impl Agent {
    /// Watches the peers on this host, if there are any. One may be new.
    pub(super) fn watch(&self) {
        let (mut state, now) = (lock(&self.state), Instant::now());
        if let Some(at) = state.watch.earlier(now) {
            self.plan(&mut state.watch, at, FIRST_INTERVAL);
        }
    }

    /// Plans the next read, in `wait`.
    fn plan(&self, watch: &mut Watch, at: Instant, wait: Duration) {
        if let Some(source) = self.this.upgrade() {
            let source: Arc<dyn Source> = source;
            watch.timer = Some((at, self.engine.schedule(wait, &source)));
        }
    }

    /// Checks the processes of peers on this host, if that is due. Called by the engine.
    pub(super) fn check_peers(&self) {
        let (peers, new): (Vec<_>, Vec<_>) = {
            let mut state = lock(&self.state);
            if state.watch.timer.take_if(|(at, _)| *at <= Instant::now()).is_none() {
                return;
            }
            let own = self.port.slot();
            let peers = state.manager.local_peers().filter(|peer| slot_of(peer) != own);
            let peers = peers.collect::<Vec<_>>();
            let new = peers.iter().filter(|peer| !state.watch.knows(peer)).copied().collect();
            (peers, new)
        };
        if peers.is_empty() {
            lock(&self.state).watch.peers.clear();
            return;
        }
        if let Some(claims) = self.port.claims() {
            let here = new.iter().filter_map(|peer| Some((peer.id, is_here(&peer.route)?))).collect();
            let now = Instant::now();
            let mut dead = lock(&self.state).watch.compare(&peers, |slot| claims.of(slot), &here, now);
            // The file with the claims is read piece by piece, so it may lack one. A slot that has another
            // claim was free in between.
            dead.retain(|peer| claims.of(slot_of(peer)).is_some() || port::is_unclaimed(slot_of(peer)));
            if !dead.is_empty() {
                self.call(|state, now| dead.iter().for_each(|peer| state.manager.peer_died(peer, now)));
            }
        }
        let (mut state, now) = (lock(&self.state), Instant::now());
        if state.watch.timer.is_none() {
            self.plan(&mut state.watch, now + INTERVAL, INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::progress::engine::Engine;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn peer(id: u32, comm_id: u32) -> LocalPeer {
        LocalPeer { id: CommId(id), route: Route { local: ADDRESS, remote: ADDRESS }, comm_id }
    }

    /// The watch and the time of its last read.
    struct Reads(Watch, Instant);

    impl Reads {
        fn new() -> Self {
            Self(Watch::default(), Instant::now())
        }

        /// The number of dead peers at a read after `wait`, if slot 7 has this claim. `is_here`: of new
        /// peers.
        fn after(
            &mut self,
            wait: Duration,
            peers: &[LocalPeer],
            claim: Option<u64>,
            is_here: Option<bool>,
        ) -> usize {
            self.1 += wait;
            let here = peers.iter().filter_map(|peer| Some((peer.id, is_here?))).collect();
            self.0.compare(peers, |slot| claim.filter(|_| slot == 7), &here, self.1).len()
        }
    }

    /// The number of dead peers at each read, if slot 7 has these claims.
    fn dead(peers: &[LocalPeer], claims: &[Option<u64>]) -> Vec<usize> {
        let mut reads = Reads::new();
        claims.iter().map(|claim| reads.after(INTERVAL, peers, *claim, Some(true))).collect()
    }

    #[test]
    fn a_peer_whose_claim_is_missing_twice_is_dead() {
        let peers = [peer(1, 0x0700_0001), peer(2, 0x0700_0002)];
        assert_eq!(dead(&peers, &[Some(5), Some(5), None, Some(5), None, None]), [0, 0, 0, 0, 0, 2]);
        assert_eq!(dead(&peers, &[None, None]), [0, 2], "the process died before the first read");
    }

    #[test]
    fn the_claim_of_a_later_process_is_another_one() {
        let peers = [peer(1, 0x0700_0001)];
        assert_eq!(dead(&peers, &[Some(5), Some(6), Some(6)]), [0, 0, 1]);
        assert_eq!(dead(&peers, &[Some(5), None, Some(6)]), [0, 0, 1]);
    }

    /// A new peer causes an earlier read, which does not shorten the time for the last messages of others.
    #[test]
    fn a_peer_is_dead_after_an_interval_however_many_reads_it_has() {
        let (peers, mut reads) = ([peer(1, 0x0700_0001)], Reads::new());
        assert_eq!(reads.after(INTERVAL, &peers, Some(5), Some(true)), 0);
        for _ in 0..INTERVAL.as_millis() / FIRST_INTERVAL.as_millis() {
            assert_eq!(reads.after(FIRST_INTERVAL, &peers, None, None), 0);
        }
        assert_eq!(reads.after(FIRST_INTERVAL, &peers, None, None), 1);
    }

    #[test]
    fn the_claim_of_a_new_peer_is_read_soon() {
        let (mut watch, now) = (Watch::default(), Instant::now());
        assert_eq!(watch.earlier(now), Some(now + FIRST_INTERVAL));
        let engine = Engine::get().unwrap();
        let source: Arc<dyn Source> = Arc::new(Idle);
        let mut plan = |wait| {
            watch.timer = Some((now + wait, engine.schedule(wait, &source)));
            watch.earlier(now)
        };
        assert_eq!((plan(INTERVAL), plan(FIRST_INTERVAL)), (Some(now + FIRST_INTERVAL), None));
    }

    struct Idle;

    impl Source for Idle {
        fn ready(self: Arc<Self>, _events: u32) {}
    }

    /// The table of descriptors was full.
    #[test]
    fn a_peer_whose_address_cannot_be_checked_is_checked_again() {
        let (peers, mut reads) = ([peer(1, 0x0700_0001)], Reads::new());
        assert_eq!(reads.after(INTERVAL, &peers, Some(5), None), 0);
        assert!(!reads.0.knows(&peers[0]));
        assert_eq!(reads.after(INTERVAL, &peers, Some(5), Some(true)), 0);
        assert_eq!(reads.after(INTERVAL, &peers, None, None), 0);
        assert_eq!(reads.after(INTERVAL, &peers, None, None), 1);
    }

    #[test]
    fn another_peer_with_the_communication_id_of_an_earlier_one_is_new() {
        let mut reads = Reads::new();
        let mut read = |comm_id, claim| reads.after(INTERVAL, &[peer(1, comm_id)], claim, Some(true));
        assert_eq!((read(0x0700_0001, Some(5)), read(0x0700_0001, Some(6))), (0, 0));
        assert_eq!((read(0x0700_0002, Some(6)), read(0x0700_0002, Some(6))), (0, 0));
    }

    #[test]
    fn a_peer_at_an_address_of_another_host_is_not_watched() {
        let mut reads = Reads::new();
        for _ in 0..3 {
            assert_eq!(reads.after(INTERVAL, &[peer(1, 0x0700_0001)], None, Some(false)), 0);
        }
        let is_here = |remote: &str| is_here(&Route { local: ADDRESS, remote: remote.parse().unwrap() });
        let found = ["127.0.0.1", "127.0.0.9", "192.0.2.1", "fe80::ffff:1"].map(is_here);
        assert_eq!(found, [Some(true), Some(true), Some(false), Some(false)]);
    }
}
