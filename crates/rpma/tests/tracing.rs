// SPDX-License-Identifier: BSD-3-Clause
//! What a subscriber of `tracing` gets.
#![cfg(feature = "tracing")]

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rpma::testing::{Faults, pair};
use rpma::{Access, Peer, Provider};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Lines, one for each span and event: `span.field=value ...`.
#[derive(Clone, Default)]
struct Lines(Arc<Inner>);

#[derive(Default)]
struct Inner {
    lines: Mutex<Vec<String>>,
    spans: AtomicU64,
}

impl Lines {
    fn add(&self, line: String) {
        self.0.lines.lock().unwrap().push(line);
    }

    /// The lines since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lines.lock().unwrap())
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, " {value:?}").unwrap();
        } else {
            write!(self.0, " {}={value:?}", field.name()).unwrap();
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("rpma")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.0.spans.fetch_add(1, Ordering::SeqCst) + 1;
        let mut fields = Fields(format!("span {id}: {}", attributes.metadata().name()));
        attributes.record(&mut fields);
        self.add(fields.0);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, record: &Record<'_>) {
        let mut fields = Fields(format!("span {}:", span.into_u64()));
        record.record(&mut fields);
        self.add(fields.0);
    }

    fn event(&self, event: &Event<'_>) {
        let span = event.parent().map_or(0, Id::into_u64);
        let mut fields = Fields(format!("{span} {}", event.metadata().level()));
        event.record(&mut fields);
        self.add(fields.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The lines with one of these words.
fn with<'a>(lines: &'a [String], words: &str) -> Vec<&'a str> {
    lines.iter().map(String::as_str).filter(|line| line.contains(words)).collect()
}

#[test]
fn a_connection_from_its_beginning_to_its_end() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let pair = pair(1, Faults::none()).unwrap();
        let seen = lines.take();
        assert_eq!(with(&seen, "connection").len(), 2, "{seen:#?}");
        assert_eq!(with(&seen, "incoming=true").len(), 1, "{seen:#?}");
        assert_eq!(with(&seen, "DEBUG established").len(), 2, "{seen:#?}");
        let peer = format!("peer={}", pair.client.peer_addr().unwrap());
        assert_eq!(with(&seen, &peer).len(), 1, "{seen:#?}");

        let at = pair.client.remote(0).unwrap().slice(0..8).unwrap();
        let mut buf = pair.peer.buf(8).unwrap();
        for _ in 0..100 {
            buf = pair.client.write(buf, at).wait().unwrap();
        }
        assert_eq!(lines.take(), [""; 0], "operations that succeed report nothing");

        pair.client.wait_close().unwrap();
        assert_eq!(with(&lines.take(), "DEBUG closed").len(), 1);
        pair.server.wait_closed().unwrap();
        assert_eq!(with(&lines.take(), "DEBUG closed").len(), 1);
    });
}

#[test]
fn operations_that_fail_and_the_loss_of_the_connection() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let pair = pair(1, Faults::none().client("peer:kill@op=2")).unwrap();
        let at = pair.client.remote(0).unwrap().slice(0..8).unwrap();
        let receive = pair.client.recv(pair.peer.buf(8).unwrap());
        pair.client.write(pair.peer.buf(8).unwrap(), at).wait().unwrap();
        lines.take();
        let failed = pair.client.write(pair.peer.buf(8).unwrap(), at).wait().unwrap_err();
        receive.wait().unwrap_err();
        pair.client.wait_closed().unwrap();
        let seen = lines.take();
        let error = format!("{:?}", failed.error.to_string());
        assert!(!with(&seen, &error).is_empty(), "{failed:?} {seen:#?}");
        assert_eq!(with(&seen, "an operation").len(), 2, "{seen:#?}");
        assert_eq!(with(&seen, "WARN lost reason=").len(), 1, "{seen:#?}");
    });
}

#[test]
fn operations_that_are_refused() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let pair = pair(1, Faults::none()).unwrap();
        lines.take();
        let at = pair.client.remote(0).unwrap().slice(0..4).unwrap();
        let failed = pair.client.write(pair.peer.buf(8).unwrap(), at).wait().unwrap_err();
        let expected = format!("WARN an operation failed error={:?}", failed.error.to_string());
        assert_eq!(with(&lines.take(), &expected).len(), 1);
    });
}

#[test]
fn operations_that_wait_for_room_when_the_connection_is_dropped() {
    for closes in [false, true] {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let pair = pair(1, Faults::none()).unwrap();
            let at = pair.client.remote(0).unwrap().slice(0..8).unwrap();
            // The queue has room for 64.
            for _ in 0..64 + 3 {
                pair.client.write(pair.peer.buf(8).unwrap(), at).detach();
            }
            lines.take();
            if closes {
                pair.client.wait_close().unwrap()
            } else {
                drop(pair.client)
            }
            let seen = lines.take();
            let expected = "WARN operations that waited for room were discarded count=3";
            assert_eq!(with(&seen, expected).len(), usize::from(!closes), "{seen:#?}");
            assert_eq!(with(&seen, "WARN").len(), usize::from(!closes), "{seen:#?}");
        });
    }
}

#[test]
fn attempts_that_fail() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        pair(1, Faults::none().client("connect:reject@n=1")).unwrap_err();
        let seen = lines.take();
        assert_eq!(with(&seen, "WARN not established").len(), 1, "{seen:#?}");

        let peer = Peer::open("127.0.0.1:0", Provider::Soft).unwrap();
        let _memory = peer.expose(8, Access::READ).unwrap();
        let addr = peer.listen("127.0.0.1:0").unwrap().local_addr().unwrap();
        peer.connect(addr).wait().unwrap_err();
        let seen = lines.take();
        assert_eq!(with(&seen, "WARN not established").len(), 1, "{seen:#?}");
    });
}

/// A subscriber that uses the connection of which it gets the report.
#[test]
fn reports_come_when_the_connection_is_unlocked() {
    struct Uses(Lines, Mutex<Option<rpma::Conn>>);

    impl Subscriber for Uses {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.0.enabled(metadata)
        }
        fn new_span(&self, attributes: &Attributes<'_>) -> Id {
            self.0.new_span(attributes)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            if let Some(conn) = self.1.lock().unwrap().take() {
                conn.process();
                self.0.event(event);
            }
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    let pair = pair(1, Faults::none().client("wc:RETRY_EXC@n=1")).unwrap();
    let lines = Lines::default();
    let subscriber = Uses(lines.clone(), Mutex::new(Some(pair.client.clone())));
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tracing::subscriber::with_default(subscriber, || {
            pair.client.send(pair.peer.buf(8).unwrap()).wait().unwrap_err();
        });
        done.send(()).unwrap();
    });
    is_done.recv_timeout(std::time::Duration::from_secs(10)).expect("a deadlock");
    assert_eq!(lines.take().len(), 1);
}

/// A subscriber that accepts another stream when it gets the span of one.
#[cfg(feature = "stream")]
#[test]
fn spans_of_streams_come_when_the_acceptor_is_unlocked() {
    use futures_lite::future::poll_once;
    use rpma::stream::{Acceptor, Stream};

    struct Uses(Lines, Mutex<Option<Arc<Acceptor>>>);

    impl Subscriber for Uses {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.0.enabled(metadata)
        }
        fn new_span(&self, attributes: &Attributes<'_>) -> Id {
            let acceptor = self.1.lock().unwrap().take();
            if let Some(acceptor) = acceptor {
                assert!(futures_lite::future::block_on(poll_once(acceptor.accept())).is_none());
            }
            self.0.new_span(attributes)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let peer = Peer::open("127.0.0.1:0", Provider::Soft).unwrap();
    let acceptor = Arc::new(Acceptor::new(peer.listen("127.0.0.1:0").unwrap()));
    let addr = acceptor.local_addr().unwrap();
    let lines = Lines::default();
    let subscriber = Uses(lines.clone(), Mutex::new(Some(acceptor.clone())));
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let stream = tracing::subscriber::with_default(subscriber, || runtime().block_on(acceptor.accept()));
        done.send(stream.is_ok()).unwrap();
    });
    // With a subscriber, too: while there is one alone, tracing asks that of the thread that is first at a
    // span.
    let client = lines.clone();
    std::thread::spawn(move || {
        tracing::subscriber::with_default(client, || {
            runtime().block_on(Stream::connect(&peer, addr)).unwrap()
        })
    });
    assert!(is_done.recv_timeout(std::time::Duration::from_secs(10)).expect("a deadlock"));
    let seen = lines.take();
    assert_eq!(with(&seen, "incoming=true").len(), 1, "{seen:#?}");
}
