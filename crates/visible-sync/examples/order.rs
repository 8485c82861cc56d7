// SPDX-License-Identifier: BSD-3-Clause
//! A value that one thread hands to another: `order relaxed` is a race, which helgrind and DRD must report,
//! `order release`, `order lock` and `order arc` are none. tools/check-threads runs all four, so that neither
//! silence nor noise passes unnoticed.

#[cfg(visible_sync)]
extern crate visible_sync as std;

use std::cell::UnsafeCell;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Cell(UnsafeCell<u64>);

// SAFETY: not for all uses here, which is the point.
unsafe impl Sync for Cell {}
// SAFETY: as above.
unsafe impl Send for Cell {}

/// Hands a value over by a flag.
fn by_flag(set: Ordering, get: Ordering) -> u64 {
    static VALUE: Cell = Cell(UnsafeCell::new(0));
    static READY: AtomicBool = AtomicBool::new(false);
    let other = std::thread::spawn(move || {
        // SAFETY: nobody else is at it before the flag is set.
        unsafe { *VALUE.0.get() = 7 };
        READY.store(true, set);
        // Not joined before the value was read: that would be an order, too.
        std::thread::sleep(Duration::from_millis(100));
    });
    while !READY.load(get) {
        std::thread::yield_now();
    }
    // SAFETY: the flag was set after the value; whether that orders them is what is tested.
    let value = unsafe { *VALUE.0.get() };
    let _ = other.join();
    value
}

fn by_lock() -> u64 {
    static VALUE: Mutex<u64> = Mutex::new(0);
    let add = || *VALUE.lock().unwrap() += 1;
    let other = std::thread::spawn(add);
    add();
    let _ = other.join();
    *VALUE.lock().unwrap() + 5
}

/// The last owner frees what the other one has written.
fn by_arc() -> u64 {
    let value = Arc::new(Cell(UnsafeCell::new(0)));
    let theirs = value.clone();
    let other = std::thread::spawn(move || {
        // SAFETY: nobody else is at the value.
        unsafe { *theirs.0.get() = 7 };
        drop(theirs);
        std::thread::sleep(Duration::from_millis(100));
    });
    std::thread::sleep(Duration::from_millis(50));
    drop(value);
    let _ = other.join();
    7
}

fn main() -> ExitCode {
    let value = match std::env::args().nth(1).as_deref() {
        Some("relaxed") => by_flag(Ordering::Relaxed, Ordering::Relaxed),
        Some("release") => by_flag(Ordering::Release, Ordering::Acquire),
        Some("lock") => by_lock(),
        Some("arc") => by_arc(),
        _ => {
            eprintln!("usage: order relaxed|release|lock|arc");
            return ExitCode::from(2);
        }
    };
    ExitCode::from(u8::from(value != 7))
}
