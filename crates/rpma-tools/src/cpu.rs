// SPDX-License-Identifier: BSD-3-Clause
//! The processor time that this process has used.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time of all threads, in user and kernel mode: CLOCK_PROCESS_CPUTIME_ID.
pub(crate) fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn work_takes_time_and_sleep_takes_none() {
        let (before, began) = (used(), Instant::now());
        while used() < before + Duration::from_millis(2) {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not grow");
        }
    }
}
