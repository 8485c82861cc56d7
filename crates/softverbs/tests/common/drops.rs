// SPDX-License-Identifier: BSD-3-Clause
//! The counts of dropped packets, from the log.

use std::collections::HashMap;
use std::sync::Mutex;

/// The last counts by reason. A count is logged when it has reached a power of two.
static DROPPED: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);

struct Log;

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        let Some((_, counted)) = line.split_once("dropped so far, ") else { return };
        let (reason, count) = counted.split_once(": ").unwrap();
        let mut dropped = DROPPED.lock().unwrap();
        dropped.get_or_insert_default().insert(reason.to_owned(), count.parse().unwrap());
    }

    fn flush(&self) {}
}

/// Reads the counts from now on.
pub(crate) fn count_drops() {
    log::set_logger(&Log).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
}

/// The last count that was logged.
pub(crate) fn dropped(reason: &str) -> u32 {
    DROPPED.lock().unwrap().as_ref().and_then(|counts| counts.get(reason)).copied().unwrap_or(0)
}
