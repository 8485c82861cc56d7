// SPDX-License-Identifier: BSD-3-Clause
//! The feature `metrics`: what a recorder gets.
#![cfg(all(feature = "metrics", feature = "soft"))]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use rpma::testing::{Faults, Pair, pair};
use rpma::{Access, Flush, Peer, Provider};

/// Values by name and labels, as `name{label=value}`: sums, and of histograms also the number of records,
/// as `name{..} count`.
#[derive(Clone, Default)]
struct Values(Arc<Mutex<BTreeMap<String, f64>>>);

struct Cell(Values, String);

impl Cell {
    fn new(values: &Values, key: &Key) -> Arc<Self> {
        let labels =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect::<Vec<_>>();
        let cell = Self(values.clone(), format!("{}{{{}}}", key.name(), labels.join(",")));
        cell.add("", 0.0);
        Arc::new(cell)
    }

    fn add(&self, what: &str, value: f64) {
        *self.0.0.lock().unwrap().entry(format!("{}{what}", self.1)).or_default() += value;
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.add("", value as f64);
    }
    fn absolute(&self, _: u64) {
        unimplemented!()
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.add("", value);
    }
    fn decrement(&self, value: f64) {
        self.add("", -value);
    }
    fn set(&self, _: f64) {
        unimplemented!()
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.add("", value);
        self.add(" count", 1.0);
    }
}

#[derive(Default)]
struct Records {
    values: Values,
    units: Mutex<BTreeMap<String, Option<Unit>>>,
}

impl Records {
    fn get(&self, key: &str) -> f64 {
        *self.values.0.lock().unwrap().get(key).unwrap_or_else(|| panic!("no {key}: {:#?}", self.values.0))
    }

    /// What is not zero, of names that begin with this.
    fn with(&self, begin: &str) -> Vec<(String, f64)> {
        let values = self.values.0.lock().unwrap();
        let found = values.iter().filter(|(key, value)| key.starts_with(begin) && **value != 0.0);
        found.map(|(key, value)| (key.clone(), *value)).collect()
    }

    fn describe(&self, key: KeyName, unit: Option<Unit>) {
        self.units.lock().unwrap().insert(key.as_str().to_owned(), unit);
    }
}

impl Recorder for Records {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(key, unit);
    }
    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(key, unit);
    }
    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(key, unit);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Cell::new(&self.values, key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Cell::new(&self.values, key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Cell::new(&self.values, key))
    }
}

fn recorded(run: impl FnOnce(&Records)) {
    let records = Records::default();
    metrics::with_local_recorder(&records, || run(&records));
}

#[test]
fn operations_and_their_bytes() {
    recorded(|records| {
        let Pair { client, server, memory, peer } = pair(1, Faults::none()).unwrap();
        let at = client.remote(0).unwrap();
        for _ in 0..3 {
            client.write(peer.buf(100).unwrap(), at.slice(0..100).unwrap()).wait().unwrap();
        }
        client.read(at.slice(0..7).unwrap(), peer.buf(7).unwrap()).wait().unwrap();
        client.store(1, at.slice(8..16).unwrap()).wait().unwrap();
        let receive = server.recv(peer.buf(64).unwrap());
        client.send(peer.buf(5).unwrap()).wait().unwrap();
        receive.wait().unwrap();
        // Each operation of a batch counts.
        let batch = client.batch().write(peer.buf(20).unwrap(), at.slice(0..20).unwrap());
        let batch = batch.read(at.slice(0..3).unwrap(), peer.buf(3).unwrap());
        batch.flush(at.slice(..).unwrap(), Flush::Visible).submit().wait().unwrap();
        drop(memory);

        let counts = [("write", 4.0, 320.0), ("read", 2.0, 10.0), ("store", 1.0, 8.0), ("send", 1.0, 5.0)];
        for (op, operations, bytes) in counts.into_iter().chain([("recv", 1.0, 5.0), ("flush", 1.0, 0.0)]) {
            assert_eq!(records.get(&format!("rpma_conn_operations_total{{op={op}}}")), operations, "{op}");
            assert_eq!(records.get(&format!("rpma_conn_bytes_total{{op={op}}}")), bytes, "{op}");
            let seconds = format!("rpma_conn_operation_seconds{{op={op}}}");
            assert_eq!(records.get(&format!("{seconds} count")), operations, "{op}");
            assert!(records.get(&seconds) > 0.0, "{op}");
        }
        assert_eq!(records.with("rpma_conn_operation_errors_total"), []);
    });
}

#[test]
fn operations_that_are_not_awaited() {
    recorded(|records| {
        let Pair { client, memory, peer, server } = pair(1, Faults::none()).unwrap();
        let at = client.remote(0).unwrap().slice(0..8).unwrap();
        for _ in 0..1000 {
            client.write(peer.buf(8).unwrap(), at).detach();
        }
        client.wait_close().unwrap();
        assert_eq!(records.get("rpma_conn_operations_total{op=write}"), 1000.0);
        drop((memory, server));
    });
}

#[test]
fn operations_that_fail() {
    recorded(|records| {
        let pair = pair(1, Faults::none().client("peer:kill@op=2")).unwrap();
        let at = pair.client.remote(0).unwrap().slice(0..8).unwrap();
        pair.client.write(pair.peer.buf(4).unwrap(), at).wait().unwrap_err();
        let receive = pair.client.recv(pair.peer.buf(8).unwrap());
        pair.client.write(pair.peer.buf(8).unwrap(), at).wait().unwrap();
        pair.client.write(pair.peer.buf(8).unwrap(), at).wait().unwrap_err();
        receive.wait().unwrap_err();
        pair.client.wait_closed().unwrap();
        pair.client.write(pair.peer.buf(8).unwrap(), at).wait().unwrap_err();

        let error = |labels: &str, count| (format!("rpma_conn_operation_errors_total{{{labels}}}"), count);
        let expected = [
            error("op=recv,kind=lost", 1.0),
            error("op=write,kind=lost", 2.0),
            error("op=write,kind=out_of_range", 1.0),
        ];
        assert_eq!(records.with("rpma_conn_operation_errors_total"), expected);
        assert_eq!(records.get("rpma_conn_operations_total{op=write}"), 1.0);
        assert_eq!(
            records.with("rpma_conns_ended_total{incoming=false"),
            [("rpma_conns_ended_total{incoming=false,how=lost}".to_owned(), 1.0)]
        );
    });
}

#[test]
fn connections() {
    recorded(|records| {
        let (one, two) = (pair(1, Faults::none()).unwrap(), pair(1, Faults::none()).unwrap());
        for incoming in ["incoming=false", "incoming=true"] {
            assert_eq!(records.get(&format!("rpma_conns{{{incoming}}}")), 2.0);
            assert_eq!(records.get(&format!("rpma_conns_established_total{{{incoming}}}")), 2.0);
        }
        one.client.wait_close().unwrap();
        one.server.wait_closed().unwrap();
        drop((one.server, two));
        for incoming in ["incoming=false", "incoming=true"] {
            assert_eq!(records.get(&format!("rpma_conns{{{incoming}}}")), 0.0);
            assert_eq!(records.get(&format!("rpma_conns_ended_total{{{incoming},how=closed}}")), 2.0);
        }
        assert_eq!(records.with("rpma_conns_failed_total"), []);
    });
}

#[test]
fn connection_attempts_that_fail() {
    recorded(|records| {
        pair(1, Faults::none().client("connect:reject@n=1")).unwrap_err();
        let peer = Peer::open("127.0.0.1:0", Provider::Soft).unwrap();
        let _memory = peer.expose(8, Access::READ).unwrap();
        let addr = peer.listen("127.0.0.1:0").unwrap().local_addr().unwrap();
        peer.connect(addr).wait().unwrap_err();
        let failed =
            |kind: &str, count| (format!("rpma_conns_failed_total{{incoming=false,kind={kind}}}"), count);
        assert_eq!(records.with("rpma_conns_failed_total"), [failed("rejected", 2.0)]);
        assert_eq!(records.get("rpma_conns{incoming=false}"), 0.0);
    });
}

#[test]
fn units() {
    recorded(|records| {
        Peer::open("127.0.0.1:0", Provider::Soft).unwrap();
        let units = records.units.lock().unwrap();
        let of = |name: &str| units.get(name).copied().flatten();
        assert_eq!(of("rpma_conn_bytes_total"), Some(Unit::Bytes));
        assert_eq!(of("rpma_conn_operation_seconds"), Some(Unit::Seconds));
        let counts = ["rpma_conn_operations_total", "rpma_conn_operation_errors_total", "rpma_conns"];
        let rest = ["rpma_conns_established_total", "rpma_conns_failed_total", "rpma_conns_ended_total"];
        for name in counts.into_iter().chain(rest) {
            assert_eq!(of(name), Some(Unit::Count), "{name}");
        }
        assert_eq!(units.len(), 8);
    });
}
