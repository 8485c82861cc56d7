// SPDX-License-Identifier: BSD-3-Clause
//! Revocation of a key: afterwards no copy with it is in progress or begins, and none uses a torn
//! description.

use loom::sync::Arc;
use loom::thread;

use super::super::export::{ExportGate, ExportedKey, KeyInUse, Ledger};
use super::super::sync::{AtomicBool, AtomicU32, Ordering::Relaxed};
use super::check;
use transport::access::{Exported, FileOffset};

/// Two keys share an entry of the ledger.
const FIRST: u32 = 7;
const SECOND: u32 = 9;

/// The description of a key: all fields identify it.
fn of(stag: u32) -> Exported {
    let n = u64::from(stag);
    Exported {
        stag,
        rights: stag,
        start: n,
        len: n,
        delta: n,
        file: Some(FileOffset { descriptor: stag, inode: n, offset: n }),
    }
}

struct World {
    gate: ExportGate,
    exported_keys: [ExportedKey; 1],
    hold: KeyInUse,
    ledger: Ledger<1>,
    /// Set when the owner reuses the memory of a key.
    gone: [AtomicBool; 2],
    /// Copies with each key.
    copies: [AtomicU32; 2],
}

fn index(stag: u32) -> usize {
    usize::from(stag == SECOND)
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            gate: ExportGate::new(),
            exported_keys: [ExportedKey::new()],
            hold: KeyInUse::new(),
            ledger: Ledger::new(),
            gone: [AtomicBool::new(false), AtomicBool::new(false)],
            copies: [AtomicU32::new(0), AtomicU32::new(0)],
        };
        world.export(FIRST);
        Arc::new(world)
    }

    fn export(&self, stag: u32) {
        self.ledger.export(of(stag), &self.gate, || true, || &self.exported_keys);
    }

    /// A deregistration: revokes a key and waits for the copy with it.
    fn revoke(&self, stag: u32) {
        self.ledger.revoke(stag, || &self.exported_keys);
        self.wait(|hold| hold.is_of(stag));
    }

    /// The importer copies with a key if it has it.
    fn copy(&self, stag: u32) {
        self.hold.take(stag);
        let exported =
            self.exported_keys[0].read().filter(|_| self.gate.is_open()).map(|(_, exported)| exported);
        if let Some(exported) = exported.filter(|exported| exported.stag == stag) {
            assert_eq!(exported, of(stag), "a torn description");
            assert!(!self.gone[index(stag)].load(Relaxed), "a copy to reused memory");
            self.copies[index(stag)].fetch_add(1, Relaxed);
        }
        self.hold.release();
    }

    /// A thread that copies with these keys, one after the other.
    fn importer(world: &Arc<Self>, keys: &'static [u32]) -> thread::JoinHandle<()> {
        let world = world.clone();
        thread::spawn(move || keys.iter().for_each(|key| world.copy(*key)))
    }

    fn wait(&self, held: impl Fn(&KeyInUse) -> bool) {
        while held(&self.hold) {
            thread::yield_now();
        }
    }

    /// Reuses the memory of a key, and returns the number of copies so far. No further copy may follow.
    fn use_memory(&self, stag: u32) -> u32 {
        self.gone[index(stag)].store(true, Relaxed);
        self.copies(stag)
    }

    fn copies(&self, stag: u32) -> u32 {
        self.copies[index(stag)].load(Relaxed)
    }
}

#[test]
fn a_key_is_revoked_while_it_is_used() {
    check(|| {
        let world = World::new();
        let importer = World::importer(&world, &[FIRST, FIRST]);
        world.revoke(FIRST);
        let copies = world.use_memory(FIRST);
        importer.join().unwrap();
        assert_eq!(world.copies(FIRST), copies, "a copy after the key was taken back");
    });
}

#[test]
fn the_connection_ends_while_a_key_is_used() {
    check(|| {
        let world = World::new();
        let importer = World::importer(&world, &[FIRST, FIRST]);
        world.ledger.close(&world.gate);
        world.wait(KeyInUse::is_taken);
        let copies = world.use_memory(FIRST);
        importer.join().unwrap();
        assert_eq!(world.copies(FIRST), copies, "a copy after the end");
    });
}

/// Another key takes the entry of the first one, which is revoked later: it is no longer exported, but may be
/// in use.
#[test]
fn a_key_is_revoked_after_another_took_its_entry() {
    check(|| {
        let world = World::new();
        let importer = World::importer(&world, &[FIRST, SECOND]);
        world.export(SECOND);
        world.revoke(FIRST);
        let copies = world.use_memory(FIRST);
        importer.join().unwrap();
        assert_eq!(world.copies(FIRST), copies, "a copy after the key was taken back");
    });
}

/// The key is exported again with another description, as after ibv_rereg_mr(3).
#[test]
fn a_description_changes_while_it_is_read() {
    check(|| {
        let world = World::new();
        let importer = World::importer(&world, &[FIRST, SECOND, FIRST]);
        world.revoke(FIRST);
        world.export(SECOND);
        world.revoke(SECOND);
        let copies = world.use_memory(SECOND);
        importer.join().unwrap();
        assert_eq!(world.copies(SECOND), copies, "a copy after the key was taken back");
    });
}

/// One thread ends the connection while another deregisters a region, which must not consider the end
/// complete before it is.
#[test]
fn a_key_is_revoked_while_the_connection_ends() {
    check(|| {
        let world = World::new();
        let importer = World::importer(&world, &[FIRST]);
        let closer = {
            let world = world.clone();
            thread::spawn(move || world.ledger.close(&world.gate))
        };
        world.revoke(FIRST);
        let copies = world.use_memory(FIRST);
        importer.join().unwrap();
        closer.join().unwrap();
        assert_eq!(world.copies(FIRST), copies, "a copy after the key was taken back");
    });
}
