// SPDX-License-Identifier: BSD-3-Clause
//! All counters of a process or of a connection, as lines.

use std::collections::BTreeMap;

use super::connection;
use super::latency::Latency;
use super::process;
use super::table::short;
use super::traffic::Traffic;

fn line(name: &str, value: &str) -> String {
    format!("{name:<13} {}", if value.is_empty() { "-" } else { value })
}

fn list<T: std::fmt::Display>(values: &BTreeMap<String, T>) -> String {
    values.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// Without those that are 0.
fn counts(values: &BTreeMap<String, u64>) -> String {
    list(
        &values.iter().filter(|(_, count)| **count > 0).map(|(name, count)| (name.clone(), *count)).collect(),
    )
}

fn traffic(traffic: Option<Traffic>) -> [String; 2] {
    let text = |ops: fn(&Traffic) -> f64, bytes: fn(&Traffic) -> f64| {
        let of = |of: Traffic| format!("{}/s, {:.2} MB/s", short(ops(&of)), bytes(&of) / 1e6);
        traffic.map_or(String::new(), of)
    };
    [
        line("out", &text(|of| of.out_ops_per_second, |of| of.out_bytes_per_second)),
        line("in", &text(|of| of.in_ops_per_second, |of| of.in_bytes_per_second)),
    ]
}

fn latency(name: &str, latency: Option<Latency>) -> String {
    let text = latency.map(|of| format!("p50 {:.1} us, p99 {:.1} us", of.p50, of.p99));
    line(name, &text.unwrap_or_default())
}

pub(super) fn connection(process: &process::Row, row: &connection::Row) -> Vec<String> {
    let command = process.command.as_deref().unwrap_or("-");
    let [out, into] = traffic(row.traffic);
    vec![
        format!("connection {} of process {} ({command})", row.conn, process.pid),
        String::new(),
        line("peer", &row.peer),
        line("state", &row.state),
        line("error", row.error.as_deref().unwrap_or_default()),
        line("provider", &row.provider),
        line("device", &row.device),
        line("transport", &row.transport),
        line("link", &row.link),
        out,
        into,
        latency("latency", row.latency_us),
        line("posted", &counts(&row.operations)),
        line("bytes", &counts(&row.bytes)),
        line("received", &row.received.to_string()),
        line("served", &counts(&row.served)),
        line("bytes of these", &counts(&row.served_bytes)),
    ]
}

pub(super) fn process(row: &process::Row) -> Vec<String> {
    let [out, into] = traffic(row.traffic);
    let mut lines = vec![
        format!("process {} ({}), librpma {}", row.pid, row.command.as_deref().unwrap_or("-"), row.library),
        String::new(),
        line("counters", &row.path.display().to_string()),
        line("connections", &list(&row.connections)),
        line("ended", &counts(&row.ended)),
        out,
        into,
        latency("latency", row.latency_all_us),
    ];
    lines.extend(row.latency_us.iter().map(|(op, of)| latency(&format!("  {op}"), Some(*of))));
    lines.extend([
        line("posted", &counts(&row.operations)),
        line("bytes", &counts(&row.bytes)),
        line("received", &row.received.to_string()),
        line("served", &counts(&row.served)),
        line("bytes of these", &counts(&row.served_bytes)),
        line("completions", &counts(&row.completions)),
        line("regions", &format!("{}, {} bytes", row.regions, row.region_bytes)),
        line(
            "flushes",
            &format!("{}; msync {} in {:.3} s", counts(&row.flushes_served), row.msyncs, row.msync_seconds),
        ),
        line(
            "packets",
            &format!("{} forwarded; dropped: {}", row.packets_forwarded, counts(&row.packets_dropped)),
        ),
    ]);
    lines
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::rows;
    use super::*;

    #[test]
    fn all_that_is_known_and_a_hyphen_for_the_rest() {
        let rows = rows();
        let lines = connection(&rows[0], &rows[0].each_connection[1]);
        for expected in [
            "connection 10 of process 4194305 (-)",
            "peer          [2001:db8::1234:5678]:7204",
            "state         lost",
            "error         retry_exc_err",
            "link          tcp",
            "out           0/s, 0.00 MB/s",
            "latency       -",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected} is not in {lines:#?}");
        }
        let lines = process(&rows[0]);
        for expected in [
            "process 4194305 (-), librpma 1",
            "connections   open 3",
            "posted        flush_persistent 10, write 4000000",
            "served        read 10",
            "regions       2, 1572864 bytes",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected} is not in {lines:#?}");
        }
    }
}
