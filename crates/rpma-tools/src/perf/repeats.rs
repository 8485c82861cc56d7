// SPDX-License-Identifier: BSD-3-Clause
//! The repeats of a case: the sum of their measurements for the table, and the values of each one for
//! `--compare`.

use serde::{Deserialize, Serialize};

use super::workload::Tally;

/// The result of one measurement of a case.
pub(super) struct Sample {
    pub(super) tally: Tally,
    /// The average number of busy processors of the client and of the server, if known.
    pub(super) cpu: (Option<f64>, Option<f64>),
    /// Whether it was measured to its end.
    pub(super) complete: bool,
}

/// The values of one complete repeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Repeat {
    pub(super) ops_per_second: f64,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
}

/// The repeats of a case so far.
#[derive(Default)]
pub(super) struct Repeats {
    /// The sum of all, with the average of the processors.
    sum: Option<Sample>,
    each: Vec<Repeat>,
}

impl Repeats {
    pub(super) fn add(&mut self, sample: Sample, repeat: Repeat) {
        if sample.complete {
            self.each.push(repeat);
        }
        match &mut self.sum {
            None => self.sum = Some(sample),
            Some(sum) => sum.add(&sample),
        }
    }

    /// The sum, and the values of each complete repeat; `None` if nothing was measured.
    pub(super) fn get(&self) -> Option<(&Sample, &[Repeat])> {
        Some((self.sum.as_ref()?, &self.each))
    }
}

impl Sample {
    fn add(&mut self, other: &Self) {
        let seconds = |sample: &Self| sample.tally.time.as_secs_f64();
        let (before, more) = (seconds(self), seconds(other));
        let average = |of: Option<f64>, with: Option<f64>| {
            of.zip(with).map(|(of, with)| (of * before + with * more) / (before + more))
        };
        self.cpu = (average(self.cpu.0, other.cpu.0), average(self.cpu.1, other.cpu.1));
        self.complete &= other.complete;
        self.tally.follow(&other.tally);
    }
}
