// SPDX-License-Identifier: BSD-3-Clause
//! The statistics of all reads.

use serde::Serialize;
use std::time::Duration;

use super::millis;

/// Times are in milliseconds; None without an answer.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) time_ms: f64,
    rtt_min_ms: Option<f64>,
    rtt_avg_ms: Option<f64>,
    rtt_max_ms: Option<f64>,
    /// The standard deviation, as ping(8) computes it.
    rtt_mdev_ms: Option<f64>,
    /// Whether Ctrl-C ended it.
    pub(super) interrupted: bool,
    #[serde(skip)]
    sum: f64,
    #[serde(skip)]
    sum_of_squares: f64,
}

impl Summary {
    /// Adds a read that was answered.
    pub(super) fn add(&mut self, time: Duration) {
        let time = time.as_secs_f64() * 1e3;
        self.sent += 1;
        self.answered += 1;
        self.sum += time;
        self.sum_of_squares += time * time;
        let count = self.answered as f64;
        let average = self.sum / count;
        let deviation = (self.sum_of_squares / count - average * average).max(0.0).sqrt();
        let rounded = |ms: f64| Some(millis(Duration::from_secs_f64(ms / 1e3)));
        self.rtt_min_ms = rounded(self.rtt_min_ms.map_or(time, |min| min.min(time)));
        self.rtt_max_ms = rounded(self.rtt_max_ms.map_or(time, |max| max.max(time)));
        (self.rtt_avg_ms, self.rtt_mdev_ms) = (rounded(average), rounded(deviation));
    }

    pub(super) fn lines(&self, host: &str) -> String {
        let Self { sent, answered, time_ms, .. } = self;
        let lost = if *sent == 0 { 0.0 } else { (sent - answered) as f64 * 100.0 / *sent as f64 };
        // Like ping(8): as many digits as needed, at most six.
        let lost = format!("{lost:.4}");
        let lost = lost.trim_end_matches('0').trim_end_matches('.');
        let mut lines = format!(
            "\n--- {host} ping statistics ---\n{sent} packets transmitted, {answered} received, {lost}% packet loss, time {time_ms:.0}ms"
        );
        if let (Some(min), Some(avg), Some(max), Some(mdev)) =
            (self.rtt_min_ms, self.rtt_avg_ms, self.rtt_max_ms, self.rtt_mdev_ms)
        {
            lines += &format!("\nrtt min/avg/max/mdev = {min:.3}/{avg:.3}/{max:.3}/{mdev:.3} ms");
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_those_of_ping() {
        let mut summary = Summary::default();
        for micros in [40, 50, 60] {
            summary.add(Duration::from_micros(micros));
        }
        summary.time_ms = 2001.4;
        let text = summary.lines("h:1");
        assert_eq!(
            text,
            "\n--- h:1 ping statistics ---\n3 packets transmitted, 3 received, 0% packet loss, time 2001ms\n\
             rtt min/avg/max/mdev = 0.040/0.050/0.060/0.008 ms"
        );
        summary.sent += 3;
        assert!(summary.lines("h:1").contains("6 packets transmitted, 3 received, 50% packet loss"));
        summary.sent += 1;
        assert!(summary.lines("h:1").contains(", 57.1429% packet loss"));
        let none = Summary { sent: 2, ..Summary::default() }.lines("h:1");
        assert!(none.contains("100% packet loss") && !none.contains("rtt"), "{none}");
    }
}
