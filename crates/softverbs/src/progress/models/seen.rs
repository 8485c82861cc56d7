// SPDX-License-Identifier: BSD-3-Clause
//! A reader that keeps a copy of a value does not miss a change.

use loom::sync::Arc;
use loom::thread;

use super::super::seen::{Seen, Version};
use super::super::sync::{AtomicU32, Ordering::Relaxed};
use super::check;

#[test]
fn a_reader_never_goes_back_and_sees_the_last_change() {
    check(|| {
        // The model has no lock that orders the value.
        let shared = Arc::new((Version::new(), AtomicU32::new(0)));
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                for value in 1..=2 {
                    shared.1.store(value, Relaxed);
                    shared.0.changed();
                }
            })
        };
        let (version, value) = &*shared;
        let mut seen = Seen::new(0);
        let mut look = || *seen.latest(version, || value.load(Relaxed));
        let (first, second) = (look(), look());
        assert!(first <= second);
        writer.join().unwrap();
        assert_eq!(look(), 2);
    });
}
