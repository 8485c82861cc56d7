// SPDX-License-Identifier: BSD-3-Clause
//! Queue pairs by number, for programs that create one themselves and give rdma_connect(3) or rdma_accept(3)
//! only its number.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::Qp;
use crate::lock;
use crate::process::PerProcess;

static NUMBERS: PerProcess<HashMap<u32, Weak<Qp>>> = PerProcess::new();

/// Registers a queue pair under its number, until it is destroyed.
pub(crate) fn note(qp: &Arc<Qp>) {
    let mut guard = lock(NUMBERS.get());
    let numbers = guard.get_or_insert_default();
    if numbers.len() == numbers.capacity() {
        numbers.retain(|_, known| known.upgrade().is_some_and(|known| !known.is_destroyed()));
    }
    numbers.insert(qp.num, Arc::downgrade(qp));
}

/// The queue pair with this number, if it was registered and has not been destroyed.
pub(crate) fn find(num: u32) -> Option<Arc<Qp>> {
    let found = lock(NUMBERS.get()).as_ref()?.get(&num)?.upgrade()?;
    (!found.is_destroyed()).then_some(found)
}
