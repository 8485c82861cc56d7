// SPDX-License-Identifier: BSD-3-Clause
//! The connections at which a key is revoked.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A connection that records the keys that are revoked at it, including those of other tests.
#[derive(Default)]
pub(in super::super) struct Notes {
    keys: Mutex<Vec<u32>>,
    /// The key with which the peer of the connection is copying; 0: none.
    in_use: AtomicU32,
}

impl Exporter for Notes {
    fn revoke(&self, stag: u32, _until: Instant) -> bool {
        lock(&self.keys).push(stag);
        self.in_use.load(Ordering::Relaxed) != stag
    }

    fn is_released(&self) -> bool {
        self.in_use.load(Ordering::Relaxed) == 0
    }
}

impl Notes {
    /// The peer copies with this key until the next call; 0: it does not copy.
    pub(in super::super) fn copies_with(&self, stag: u32) {
        self.in_use.store(stag, Ordering::Relaxed);
    }

    pub(in super::super) fn has(&self, stag: u32) -> bool {
        lock(&self.keys).contains(&stag)
    }

    /// Whether a key has been revoked since the last call for it.
    pub(in super::super) fn take(&self, stag: u32) -> bool {
        let had = self.has(stag);
        lock(&self.keys).retain(|&other| other != stag);
        had
    }
}

#[test]
fn a_key_is_revoked_at_all_connections_that_have_not_been_removed() {
    let all: [Arc<Notes>; 4] = Default::default();
    all.iter().for_each(|exporter| add_exporter(exporter).unwrap());
    // No region has such an STag.
    let stag = |which: u32| u32::MAX - which;
    let notified = |which: u32| {
        revoke(stag(which), Instant::now()).unwrap();
        all.each_ref().map(|exporter| exporter.take(stag(which)))
    };
    assert_eq!(notified(0), [true; 4]);
    remove_exporter(&all[1]);
    remove_exporter(&all[1]);
    assert_eq!(notified(1), [true, false, true, true]);
    add_exporter(&all[1]).unwrap();
    assert_eq!(notified(2), [true; 4]);
    remove_exporter(&all[0]);
    remove_exporter(&all[3]);
    assert_eq!(notified(3), [false, true, true, false]);
    remove_exporter(&all[2]);
    remove_exporter(&all[1]);
    assert_eq!(notified(4), [false; 4]);
}

#[test]
fn an_ended_connection_is_kept_while_its_peer_uses_a_key() {
    let [busy, idle]: [Arc<Notes>; 2] = Default::default();
    // No region has such an STag.
    let stag = u32::MAX - 100;
    for exporter in [&busy, &idle] {
        add_exporter(exporter).unwrap();
    }
    busy.copies_with(stag);
    assert_eq!(revoke(stag, Instant::now()), Err(libc::EBUSY));
    assert!(idle.take(stag) && busy.take(stag), "it is revoked at the others, too");
    assert!(!remove_exporter(&busy) && remove_exporter(&idle));
    assert_eq!(revoke(stag, Instant::now()), Err(libc::EBUSY));
    assert!(!remove_exporter(&busy), "again");
    assert!(busy.take(stag) && !idle.has(stag));
    assert!(Arc::strong_count(&busy) == 2 && Arc::strong_count(&idle) == 1);
    busy.copies_with(0);
    // The next connection that is added or removed finds that the copy is complete.
    add_exporter(&idle).unwrap();
    assert_eq!(Arc::strong_count(&busy), 1);
    assert!(remove_exporter(&busy) && remove_exporter(&idle));
    assert_eq!(revoke(stag, Instant::now()), Ok(()));
}
