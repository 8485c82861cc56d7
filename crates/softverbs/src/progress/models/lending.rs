// SPDX-License-Identifier: BSD-3-Clause
//! A key that is taken back: no copy with it is under way then, nor will be, and none is made with half of a
//! description.

use loom::sync::Arc;
use loom::thread;

use super::super::lending::{Gate, Hold, Ledger, Loan};
use super::super::sync::{AtomicBool, AtomicU32, Ordering::Relaxed};
use super::check;
use transport::access::Lent;

/// Two keys share a place in the table.
const FIRST: u32 = 7;
const SECOND: u32 = 9;

/// The description of a key: all fields say which one it is of.
fn of(stag: u32) -> Lent {
    let n = u64::from(stag);
    Lent { stag, rights: stag, start: n, len: n, delta: n }
}

struct World {
    gate: Gate,
    loans: [Loan; 1],
    hold: Hold,
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
            gate: Gate::new(),
            loans: [Loan::new()],
            hold: Hold::new(),
            ledger: Ledger::new(),
            gone: [AtomicBool::new(false), AtomicBool::new(false)],
            copies: [AtomicU32::new(0), AtomicU32::new(0)],
        };
        world.lend(FIRST);
        Arc::new(world)
    }

    fn lend(&self, stag: u32) {
        self.ledger.lend(of(stag), &self.gate, || true, || &self.loans);
    }

    /// A deregistration: revokes a key and waits for the copy with it.
    fn take_back(&self, stag: u32) {
        self.ledger.revoke(stag, || &self.loans);
        self.wait(|hold| hold.is_of(stag));
    }

    /// The borrower copies with a key if it has it.
    fn copy(&self, stag: u32) {
        self.hold.take(stag);
        let lent = self.loans[0].read().filter(|_| self.gate.is_open());
        if let Some(lent) = lent.filter(|lent| lent.stag == stag) {
            assert_eq!(lent, of(stag), "half of one description and half of another");
            assert!(!self.gone[index(stag)].load(Relaxed), "a copy to memory that was taken back");
            self.copies[index(stag)].fetch_add(1, Relaxed);
        }
        self.hold.let_go();
    }

    /// A thread that copies with these keys, one after the other.
    fn borrower(world: &Arc<Self>, keys: &'static [u32]) -> thread::JoinHandle<()> {
        let world = world.clone();
        thread::spawn(move || keys.iter().for_each(|key| world.copy(*key)))
    }

    fn wait(&self, held: impl Fn(&Hold) -> bool) {
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
        let borrower = World::borrower(&world, &[FIRST, FIRST]);
        world.take_back(FIRST);
        let copies = world.use_memory(FIRST);
        borrower.join().unwrap();
        assert_eq!(world.copies(FIRST), copies, "a copy after the key was taken back");
    });
}

#[test]
fn the_connection_ends_while_a_key_is_used() {
    check(|| {
        let world = World::new();
        let borrower = World::borrower(&world, &[FIRST, FIRST]);
        world.ledger.close(&world.gate);
        world.wait(Hold::is_taken);
        let copies = world.use_memory(FIRST);
        borrower.join().unwrap();
        assert_eq!(world.copies(FIRST), copies, "a copy after the end");
    });
}

/// Another key takes the place of the first one, which is taken back later: it is not in the table any more,
/// but may be in use.
#[test]
fn a_key_is_taken_back_whose_place_another_one_has() {
    check(|| {
        let world = World::new();
        let borrower = World::borrower(&world, &[FIRST, SECOND]);
        world.lend(SECOND);
        world.take_back(FIRST);
        let copies = world.use_memory(FIRST);
        borrower.join().unwrap();
        assert_eq!(world.copies(FIRST), copies, "a copy after the key was taken back");
    });
}

/// It is lent anew under the same number, with another description, as after ibv_rereg_mr(3).
#[test]
fn a_key_is_described_anew_while_it_is_looked_at() {
    check(|| {
        let world = World::new();
        let borrower = World::borrower(&world, &[FIRST, SECOND, FIRST]);
        world.take_back(FIRST);
        world.lend(SECOND);
        world.take_back(SECOND);
        let copies = world.use_memory(SECOND);
        borrower.join().unwrap();
        assert_eq!(world.copies(SECOND), copies, "a copy after the key was taken back");
    });
}

/// One thread ends the connection and another one deregisters a region: that one must not take the end for
/// done before it is.
#[test]
fn a_key_is_taken_back_while_the_connection_ends() {
    check(|| {
        let world = World::new();
        let borrower = World::borrower(&world, &[FIRST]);
        let closer = {
            let world = world.clone();
            thread::spawn(move || world.ledger.close(&world.gate))
        };
        world.take_back(FIRST);
        let copies = world.use_memory(FIRST);
        borrower.join().unwrap();
        closer.join().unwrap();
        assert_eq!(world.copies(FIRST), copies, "a copy after the key was taken back");
    });
}
