// SPDX-License-Identifier: BSD-3-Clause
//! Detects that the processes of peers on this host have died.
//!
//! When a process dies, the kernel's rdma_cm sends a DREQ for each of its connections; softverbs runs in the
//! process and cannot, unless the process calls exit(3) ([`super::exit`]). But the slot of the process is
//! then unclaimed, which all processes of the network namespace can see. So while a peer has the GUID of this
//! device, which is that of the namespace, and an address of this host, the engine reads the claims of the
//! slots periodically. The inode of a claim distinguishes it from that of a later process with the same slot.
//!
//! A peer is dead if two reads in a row lack its claim: between them, the last messages of the process
//! arrive, including those that other processes forward. Peers on other hosts are not watched: a connection
//! has no keepalive, so only a request that is not acknowledged shows their end.
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
use crate::sys;
use transport::roce::cm::{CommId, LocalPeer, Route};

/// The interval between two reads of the claims, which take some 10 us: a killed peer is reported within two.
const INTERVAL: Duration = Duration::from_millis(100);

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
    /// The last read lacked its claim.
    is_missing: bool,
}

/// The peers that are watched.
#[derive(Default)]
pub(super) struct Watch {
    /// When the next read is due.
    timer: Option<(Instant, Timer)>,
    peers: HashMap<CommId, Watched>,
}

impl Watch {
    /// Compares the peers with the claims of the slots. Returns those whose processes have died.
    fn compare(
        &mut self,
        peers: &[LocalPeer],
        claims: impl Fn(u8) -> Option<u64>,
        is_here: impl Fn(&Route) -> bool,
    ) -> Vec<LocalPeer> {
        let mut watched = HashMap::new();
        let mut dead = Vec::new();
        for peer in peers {
            let claim = claims(slot_of(peer));
            let known = self.peers.remove(&peer.id).filter(|known| known.comm_id == peer.comm_id);
            let mut process = known
                .as_ref()
                .map(|known| known.process)
                .unwrap_or_else(|| if is_here(&peer.route) { Process::Unknown } else { Process::Elsewhere });
            if let (Process::Unknown, Some(inode)) = (process, claim) {
                process = Process::Claims(inode);
            }
            let is_missing = match process {
                Process::Elsewhere => false,
                Process::Unknown => true,
                Process::Claims(inode) => claim != Some(inode),
            };
            if is_missing && known.is_some_and(|known| known.is_missing) {
                dead.push(*peer);
            }
            watched.insert(peer.id, Watched { comm_id: peer.comm_id, process, is_missing });
        }
        self.peers = watched;
        dead
    }
}

/// The slot of the process of a peer.
fn slot_of(peer: &LocalPeer) -> u8 {
    (peer.comm_id >> 24) as u8
}

/// Whether the peer has an address of this host.
fn is_here(route: &Route) -> bool {
    if route.local == route.remote {
        return true;
    }
    let address = (route.remote, 0).into();
    sys::udp_socket(addr::family(&address)).is_ok_and(|socket| addr::bind(&socket, &address).is_ok())
}

impl Agent {
    /// Watches the peers on this host, if there are any.
    pub(super) fn watch(&self) {
        let Some(source) = self.this.upgrade() else { return };
        let source: Arc<dyn Source> = source;
        let mut state = lock(&self.state);
        if state.watch.timer.is_none() {
            state.watch.timer = Some((Instant::now() + INTERVAL, self.engine.schedule(INTERVAL, &source)));
        }
    }

    /// Checks the processes of peers on this host, if that is due. Called by the engine.
    pub(super) fn check_peers(&self) {
        let peers: Vec<_> = {
            let mut state = lock(&self.state);
            if state.watch.timer.take_if(|(at, _)| *at <= Instant::now()).is_none() {
                return;
            }
            let own = self.port.slot();
            state.manager.local_peers().filter(|peer| slot_of(peer) != own).collect()
        };
        if peers.is_empty() {
            lock(&self.state).watch.peers.clear();
            return;
        }
        if let Some(claims) = self.port.claims() {
            let mut dead = {
                let mut state = lock(&self.state);
                state.watch.compare(&peers, |slot| claims.of(slot), is_here)
            };
            // The file with the claims is read piece by piece, so it may lack one. A slot that has another
            // claim was free in between.
            dead.retain(|peer| claims.of(slot_of(peer)).is_some() || port::is_unclaimed(slot_of(peer)));
            if !dead.is_empty() {
                self.call(|state, now| dead.iter().for_each(|peer| state.manager.peer_died(peer, now)));
            }
        }
        self.watch();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn peer(id: u32, comm_id: u32) -> LocalPeer {
        LocalPeer { id: CommId(id), route: Route { local: ADDRESS, remote: ADDRESS }, comm_id }
    }

    /// The number of dead peers at each read, if slot 7 has these claims.
    fn dead(peers: &[LocalPeer], claims: &[Option<u64>]) -> Vec<usize> {
        let mut watch = Watch::default();
        let mut read =
            |claim: &Option<u64>| watch.compare(peers, |slot| claim.filter(|_| slot == 7), |_| true).len();
        claims.iter().map(&mut read).collect()
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

    #[test]
    fn another_peer_with_the_communication_id_of_an_earlier_one_is_new() {
        let mut watch = Watch::default();
        let mut read = |comm_id, claim| watch.compare(&[peer(1, comm_id)], |_| claim, |_| true).len();
        assert_eq!((read(0x0700_0001, Some(5)), read(0x0700_0001, Some(6))), (0, 0));
        assert_eq!((read(0x0700_0002, Some(6)), read(0x0700_0002, Some(6))), (0, 0));
    }

    #[test]
    fn a_peer_at_an_address_of_another_host_is_not_watched() {
        let mut watch = Watch::default();
        for _ in 0..3 {
            assert_eq!(watch.compare(&[peer(1, 0x0700_0001)], |_| None, |_| false), []);
        }
        let to = |remote: &str| Route { local: ADDRESS, remote: remote.parse().unwrap() };
        assert!(is_here(&to("127.0.0.1")) && is_here(&to("127.0.0.9")) && !is_here(&to("192.0.2.1")));
    }
}
