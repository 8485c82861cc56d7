// SPDX-License-Identifier: BSD-3-Clause
//! The counters as text for Prometheus. librpma_providers(7) lists the names.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::connection::Connection;
use super::counters::{REASONS, Snapshot};
use super::counts::{BOUNDS, KINDS, Kind, SERVED, STATUSES, Sums};
use super::state::Process;
use super::{flushes, packets};

/// The maximum number of connections with separate counters in the text; the sums cover all.
const CONNECTIONS: usize = 256;

const SECOND: f64 = 1e9;

/// Generates the text; None if there is no memory for it.
pub(super) fn of(process: &'static Process) -> Option<String> {
    reserve::ready().ok()?;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Counted(process)));
    let mut text = String::new();
    text::encode(&mut text, &registry).ok()?;
    Some(text)
}

struct Counted(&'static Process);

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

fn counter(mut into: MetricEncoder<'_>, value: u64) -> fmt::Result {
    into.encode_counter::<NoLabelSet, u64, u64>(&value, None)
}

impl Collector for Counted {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(process) = self;
        let now = process.counters.snapshot(CONNECTIONS);
        let pid = process.pid.to_string();
        let labels = [("pid", pid.as_str()), ("version", env!("CARGO_PKG_VERSION"))];
        to.encode_descriptor(
            "rpma",
            "The process and its version of librpma or softverbs",
            None,
            MetricType::Info,
        )?
        .encode_info(&labels)?;
        connections(&mut to, &now)?;
        let mut family =
            to.encode_descriptor("rpma_operations", "Requests posted", None, MetricType::Counter)?;
        for (kind, count) in KINDS.iter().zip(now.sums.operations) {
            counter(family.encode_family(&[("op", *kind)])?, count)?;
        }
        let help = "Bytes of the requests posted, and for recv of the messages received";
        let mut family = to.encode_descriptor("rpma_bytes", help, None, MetricType::Counter)?;
        for (kind, count) in KINDS.iter().zip(now.sums.bytes).take(Kind::FlushVisibility as usize) {
            counter(family.encode_family(&[("op", *kind)])?, count)?;
        }
        let help = "Messages received";
        counter(to.encode_descriptor("rpma_received", help, None, MetricType::Counter)?, now.sums.received)?;
        served(&mut to, &now)?;
        let mut family =
            to.encode_descriptor("rpma_completions", "Completions taken", None, MetricType::Counter)?;
        for (status, count) in STATUSES.iter().zip(now.sums.statuses) {
            if count > 0 || *status == STATUSES[0] {
                counter(family.encode_family(&[("status", *status)])?, count)?;
            }
        }
        latencies(&mut to, &now)?;
        let mut gauge = |name, help, value: u64| {
            to.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
        };
        gauge("rpma_regions", "Registered memory regions", now.regions)?;
        gauge("rpma_region_bytes", "Bytes of the registered memory regions", now.region_bytes)?;
        each_connection(&mut to, &now)?;
        durable(&mut to)?;
        packets_at_port(&mut to)
    }
}

/// Operations that the program does not see. A device does not report them.
fn served(to: &mut DescriptorEncoder<'_>, now: &Snapshot) -> fmt::Result {
    let help =
        "One-sided operations of remote peers that software RDMA has carried out in memory of the process";
    let mut family = to.encode_descriptor("rpma_served", help, None, MetricType::Counter)?;
    for (kind, count) in named(&SERVED, &now.sums.served) {
        counter(family.encode_family(&[("op", kind)])?, count)?;
    }
    let help = "Bytes of these operations";
    let mut family = to.encode_descriptor("rpma_served_bytes", help, None, MetricType::Counter)?;
    for (kind, count) in named(&SERVED, &now.sums.served_bytes) {
        counter(family.encode_family(&[("op", kind)])?, count)?;
    }
    Ok(())
}

fn connections(to: &mut DescriptorEncoder<'_>, now: &Snapshot) -> fmt::Result {
    let help = "Connections, and requests for connections, by their state";
    let mut family = to.encode_descriptor("rpma_connections", help, None, MetricType::Gauge)?;
    for (state, count) in [("open", now.open), ("requested", now.requested)] {
        family.encode_family(&[("state", state)])?.encode_gauge(&count)?;
    }
    let help = "Connections that were established";
    let opened = to.encode_descriptor("rpma_connections_opened", help, None, MetricType::Counter)?;
    counter(opened, now.opened)?;
    let help = "Connections and requests that have ended, by reason";
    let mut family = to.encode_descriptor("rpma_connections_ended", help, None, MetricType::Counter)?;
    for (reason, count) in REASONS.iter().zip(now.ended) {
        counter(family.encode_family(&[("reason", *reason)])?, count)?;
    }
    Ok(())
}

fn latencies(to: &mut DescriptorEncoder<'_>, now: &Snapshot) -> fmt::Result {
    let help = "Seconds from posting a request that asks for a completion to taking it";
    let mut family = to.encode_descriptor("rpma_operation_seconds", help, None, MetricType::Histogram)?;
    for (kind, (counts, nanos)) in KINDS.iter().zip(&now.sums.latencies) {
        let count = counts.iter().sum();
        if count > 0 {
            let buckets: Vec<(f64, u64)> = limits().zip(counts.iter().copied()).collect();
            let sum = *nanos as f64 / SECOND;
            family
                .encode_family(&[("op", *kind)])?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
    }
    Ok(())
}

/// A connection that is listed, and its labels.
struct Listed<'a> {
    number: String,
    peer: String,
    connection: &'a Connection,
    sums: &'a Sums,
}

fn each_connection(to: &mut DescriptorEncoder<'_>, now: &Snapshot) -> fmt::Result {
    let listed = now.connections.iter().map(|(connection, sums)| {
        let peer = connection.peer().map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        Listed { number: connection.number().to_string(), peer, connection, sums }
    });
    let listed: Vec<Listed<'_>> = listed.collect();
    let help = "Each connection: its provider, device, transport, link, state and first failed completion";
    let mut family = to.encode_descriptor("rpma_connection", help, None, MetricType::Info)?;
    for Listed { number, peer, connection, .. } in &listed {
        let place = &connection.place;
        let labels = [
            ("conn", number.as_str()),
            ("peer", peer),
            ("provider", place.provider),
            ("device", &place.device),
            ("transport", place.transport),
            ("link", connection.link()),
            ("state", connection.state()),
            ("error", connection.failure().unwrap_or_default()),
        ];
        family.encode_info(&labels)?;
    }
    let mut counters = |name, help, label: &str, values: &dyn Fn(&Sums) -> Vec<(&'static str, u64)>| {
        let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for Listed { number, peer, sums, .. } in &listed {
            for (value, count) in values(sums).into_iter().filter(|(_, count)| *count > 0) {
                let labels = [("conn", number.as_str()), ("peer", peer), (label, value)];
                counter(family.encode_family(&labels)?, count)?;
            }
        }
        Ok(())
    };
    let help = "Requests posted on each connection";
    counters("rpma_connection_operations", help, "op", &|sums| named(&KINDS, &sums.operations))?;
    let help = "Bytes of each connection";
    counters("rpma_connection_bytes", help, "op", &|sums| named(&KINDS, &sums.bytes))?;
    let help = "Messages received on each connection";
    counters("rpma_connection_received", help, "op", &|sums| vec![("recv", sums.received)])?;
    let help = "One-sided operations of the remote peer on each connection";
    counters("rpma_connection_served", help, "op", &|sums| named(&SERVED, &sums.served))?;
    let help = "Bytes of these operations";
    counters("rpma_connection_served_bytes", help, "op", &|sums| named(&SERVED, &sums.served_bytes))?;
    let help = "Latencies of all operations of each connection; limits without latencies are left out";
    let mut family = to.encode_descriptor("rpma_connection_seconds", help, None, MetricType::Histogram)?;
    for Listed { number, peer, sums, .. } in &listed {
        let Some((buckets, sum)) = short_histogram(sums) else { continue };
        let labels = [("conn", number.as_str()), ("peer", peer)];
        let count = buckets.iter().map(|(_, count)| count).sum();
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

fn named(names: &[&'static str], counts: &[u64]) -> Vec<(&'static str, u64)> {
    names.iter().copied().zip(counts.iter().copied()).collect()
}

/// The latencies of all operations together, in seconds: the buckets from the one before the first latency to
/// the one of the last latency, and the sum. The others are left out, as there may be 256 connections.
fn short_histogram(sums: &Sums) -> Option<(Vec<(f64, u64)>, f64)> {
    let mut all = [0; BOUNDS.len() + 1];
    let mut nanos = 0;
    for (counts, sum) in &sums.latencies {
        all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        nanos += sum;
    }
    let first = all.iter().position(|count| *count > 0)?;
    let last = all.iter().rposition(|count| *count > 0)?;
    let mut buckets: Vec<(f64, u64)> = limits().zip(all).collect();
    let infinite = buckets[BOUNDS.len()];
    buckets.truncate((last + 1).min(BOUNDS.len()));
    buckets.drain(..first.saturating_sub(1).min(buckets.len()));
    buckets.push(infinite);
    Some((buckets, nanos as f64 / SECOND))
}

/// The upper limits of the buckets in seconds.
fn limits() -> impl Iterator<Item = f64> {
    BOUNDS.iter().map(|bound| *bound as f64 / SECOND).chain([f64::INFINITY])
}

/// Counters of software RDMA alone: flushes for remote peers.
fn durable(to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(now) = flushes::counted() else { return Ok(()) };
    let help = "Flushes to persistence that were carried out for remote peers, by result";
    let mut family = to.encode_descriptor("rpma_flushes_served", help, None, MetricType::Counter)?;
    for (result, count) in [("ok", now.done), ("failed", now.failed)] {
        counter(family.encode_family(&[("result", result)])?, count)?;
    }
    let help = "Calls of msync, or a replacement, for these flushes";
    let syncs = to.encode_descriptor("rpma_msyncs", help, None, MetricType::Counter)?;
    counter(syncs, now.syncs)?;
    let help = "Total duration of these calls in seconds";
    let mut seconds = to.encode_descriptor("rpma_msync_seconds", help, None, MetricType::Counter)?;
    seconds.encode_counter::<NoLabelSet, f64, u64>(&now.time.as_secs_f64(), None)
}

/// Counters of RoCE alone.
fn packets_at_port(to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(now) = packets::counted() else { return Ok(()) };
    let help = "Packets of RoCE that were dropped, by reason";
    let mut family = to.encode_descriptor("rpma_roce_packets_dropped", help, None, MetricType::Counter)?;
    for (reason, count) in now.dropped {
        counter(family.encode_family(&[("reason", reason)])?, count)?;
    }
    let help = "Packets of RoCE that were forwarded to the process of their queue pair";
    let forwarded = to.encode_descriptor("rpma_roce_packets_forwarded", help, None, MetricType::Counter)?;
    counter(forwarded, now.forwarded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::tests::place;
    use crate::counters::{Counters, Event};
    use crate::counts::ServedKind;
    use crate::setting::Setting;
    use once_cell::race::OnceBox;

    #[test]
    fn the_histogram_of_a_connection_has_the_limits_around_its_latencies() {
        let mut sums = Sums::new();
        assert!(short_histogram(&sums).is_none());
        // Above 3, up to 5 us, and above 7 us.
        sums.latencies[0].0[4] = 2;
        sums.latencies[3].0[6] = 1;
        sums.latencies[3].1 = 17_000;
        let buckets = vec![(3e-6, 0), (5e-6, 2), (7e-6, 0), (1e-5, 1), (f64::INFINITY, 0)];
        assert_eq!(short_histogram(&sums), Some((buckets, 1.7e-5)));
        let mut slow = Sums::new();
        slow.latencies[0].0[BOUNDS.len()] = 1;
        assert_eq!(short_histogram(&slow).unwrap().0, [(10.0, 0), (f64::INFINITY, 1)]);
        let mut fast = Sums::new();
        fast.latencies[0].0[0] = 1;
        assert_eq!(short_histogram(&fast).unwrap().0, [(1e-6, 1), (f64::INFINITY, 0)]);
    }

    #[test]
    fn the_text_has_each_counter_with_its_labels() {
        let setting = Setting::Unix(None);
        let process: &'static Process = Box::leak(Box::new(Process {
            pid: 42,
            warn: |_| (),
            counters: Counters::new(),
            setting,
            socket: OnceBox::new(),
        }));
        let counters = &process.counters;
        counters.registered(4096);
        let connection = counters.connection(Some("[::1]:7204".parse().unwrap()), 1, place());
        counters.event(&connection, Event::Established);
        for _ in 0..3 {
            connection.post(Some(Kind::Write), 64, true, || Ok::<_, i32>(())).unwrap();
            connection.succeeded();
            connection.counts.completed(0);
        }
        connection.counts.completed(10);
        connection.failed(10);
        connection.counts.received(30);
        connection.counts.served(ServedKind::Read, 2, 100);
        packets::read_by(|| {
            Some(packets::Packets { dropped: vec![("icrc", 3), ("p_key", 0)], forwarded: 2 })
        });
        let text = of(process).unwrap();
        for line in [
            "rpma_info{pid=\"42\",version=\"1.4.0\"} 1",
            "# TYPE rpma_connections gauge",
            "rpma_connections{state=\"open\"} 1",
            "rpma_connections{state=\"requested\"} 0",
            "rpma_connections_opened_total 1",
            "rpma_connections_ended_total{reason=\"deleted\"} 0",
            "rpma_operations_total{op=\"write\"} 3",
            "rpma_operations_total{op=\"flush_persistent\"} 0",
            "rpma_bytes_total{op=\"write\"} 192",
            "rpma_completions_total{status=\"success\"} 3",
            "rpma_completions_total{status=\"rem_access_err\"} 1",
            "rpma_operation_seconds_count{op=\"write\"} 3",
            "rpma_operation_seconds_bucket{le=\"+Inf\",op=\"write\"} 3",
            "rpma_regions 1",
            "rpma_roce_packets_dropped_total{reason=\"icrc\"} 3",
            "rpma_roce_packets_dropped_total{reason=\"p_key\"} 0",
            "rpma_roce_packets_forwarded_total 2",
            "rpma_region_bytes 4096",
            "rpma_connection_operations_total{conn=\"1\",peer=\"[::1]:7204\",op=\"write\"} 3",
            "rpma_received_total 1",
            "rpma_bytes_total{op=\"recv\"} 30",
            "rpma_served_total{op=\"read\"} 2",
            "rpma_served_total{op=\"write\"} 0",
            "rpma_served_bytes_total{op=\"read\"} 100",
            "rpma_connection_info{conn=\"1\",peer=\"[::1]:7204\",provider=\"soft\",device=\"soft0\",transport=\"roce\",link=\"udp\",state=\"open\",error=\"rem_access_err\"} 1",
            "rpma_connection_received_total{conn=\"1\",peer=\"[::1]:7204\",op=\"recv\"} 1",
            "rpma_connection_served_total{conn=\"1\",peer=\"[::1]:7204\",op=\"read\"} 2",
            "rpma_connection_served_bytes_total{conn=\"1\",peer=\"[::1]:7204\",op=\"read\"} 100",
            "rpma_connection_seconds_count{conn=\"1\",peer=\"[::1]:7204\"} 3",
            "rpma_connection_seconds_bucket{le=\"+Inf\",conn=\"1\",peer=\"[::1]:7204\"} 3",
            "rpma_connection_bytes_total{conn=\"1\",peer=\"[::1]:7204\",op=\"write\"} 192",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in:\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
