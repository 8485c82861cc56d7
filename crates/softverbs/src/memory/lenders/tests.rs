// SPDX-License-Identifier: BSD-3-Clause
//! Who is told to give a key back.

use std::sync::Mutex;

use super::*;

/// A connection that notes the keys that are taken back from it. Those of other tests are among them.
#[derive(Default)]
pub(in super::super) struct Notes(Mutex<Vec<u32>>);

impl Lender for Notes {
    fn take_back(&self, stag: u32) {
        lock(&self.0).push(stag);
    }
}

impl Notes {
    pub(in super::super) fn has(&self, stag: u32) -> bool {
        lock(&self.0).contains(&stag)
    }

    /// Whether a key has been taken back since this was last asked for it.
    pub(in super::super) fn take(&self, stag: u32) -> bool {
        let had = self.has(stag);
        lock(&self.0).retain(|&other| other != stag);
        had
    }
}

#[test]
fn a_key_is_taken_back_from_all_connections_that_have_not_been_removed() {
    let all: [Arc<Notes>; 4] = Default::default();
    all.iter().for_each(|lender| add_lender(lender).unwrap());
    // No region has such an STag.
    let stag = |which: u32| u32::MAX - which;
    let told = |which: u32| {
        take_back(stag(which));
        all.each_ref().map(|lender| lender.take(stag(which)))
    };
    assert_eq!(told(0), [true; 4]);
    remove_lender(&all[1]);
    remove_lender(&all[1]);
    assert_eq!(told(1), [true, false, true, true]);
    add_lender(&all[1]).unwrap();
    assert_eq!(told(2), [true; 4]);
    remove_lender(&all[0]);
    remove_lender(&all[3]);
    assert_eq!(told(3), [false, true, true, false]);
    remove_lender(&all[2]);
    remove_lender(&all[1]);
    assert_eq!(told(4), [false; 4]);
}
