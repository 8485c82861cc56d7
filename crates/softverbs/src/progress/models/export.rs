// SPDX-License-Identifier: BSD-3-Clause
//! A key that is taken back: no copy with it is under way then, nor will be, and none is made with half of a
//! description.

use loom::sync::Arc;
use loom::thread;

use super::super::export::{ExportGate, ExportedKey, KeyInUse, Ledger};
use super::super::sync::{AtomicBool, AtomicU32, Ordering::Relaxed};
use super::check;
use transport::access::Exported;

/// Two keys share a place in the table.
const FIRST: u32 = 7;
const SECOND: u32 = 9;

/// The description of a key: all fields say which one it is of.
fn of(stag: u32) -> Exported {
    let n = u64::from(stag);
    Exported { stag, rights: stag, start: n, len: n, delta: n }
}

struct World {
    gate: ExportGate,
    exported_keys: [ExportedKey; 1],
    hold: KeyInUse,
    ledger: Ledger<1>,
    /// The owner uses the memory of a key for something else.
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
        let exported = self.exported_keys[0].read().filter(|_| self.gate.is_open());
        if let Some(exported) = exported.filter(|exported| exported.stag == stag) {
            assert_eq!(exported, of(stag), "half of one description and half of another");
            assert!(!self.gone[index(stag)].load(Relaxed), "a copy to memory that was taken back");
            self.copies[index(stag)].fetch_add(1, Relaxed);
        }
        self.hold.let_go();
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

    /// Nothing is copied from here on, and what was is there: the number of those copies.
    fn use_memory(&self, stag: u32) -> u32 {
        self.gone[index(stag)].store(true, Relaxed);
        self.copies(stag)
    }

    fn copies(&self, stag: u32) -> u32 {
        self.copies[index(stag)].load(Relaxed)
    }
}

#[test]
fn a_key_is_taken_back_while_it_is_used() {
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

/// Another key takes the place of the first one, which is taken back later: it is not in the table any more,
/// but may be in use.
#[test]
fn a_key_is_taken_back_whose_place_another_one_has() {
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

/// It is exported anew under the same number, with another description, as after ibv_rereg_mr(3).
#[test]
fn a_key_is_described_anew_while_it_is_looked_at() {
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

/// One thread ends the connection and another one deregisters a region: that one must not take the end for
/// done before it is.
#[test]
fn a_key_is_taken_back_while_the_connection_ends() {
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
