// SPDX-License-Identifier: BSD-3-Clause
//! What is logged about the end of a connection.

use std::cell::RefCell;

use iwarp::rdmap::TermCode;
use iwarp::terminate::Terminate;
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::conn::ending::End;

thread_local! {
    /// What this thread logs, if it wants to know.
    static LINES: RefCell<Option<Vec<(Level, String)>>> = const { RefCell::new(None) };
}

struct Capture;

impl Log for Capture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let _ = LINES.try_with(|lines| {
            if let Some(lines) = &mut *lines.borrow_mut() {
                lines.push((record.level(), record.args().to_string()));
            }
        });
    }

    fn flush(&self) {}
}

#[test]
fn every_end_is_logged_once() {
    log::set_logger(&Capture).unwrap();
    log::set_max_level(LevelFilter::Debug);
    let unknown = TermCode { layer: 9, etype: 9, code: 9 };
    for (end, level, expected) in [
        (End::Local, Level::Debug, "connection closed: Local"),
        (End::PeerClosed, Level::Debug, "connection closed: PeerClosed"),
        (
            End::Terminated(Terminate::new(TermCode::MPA_CRC)),
            Level::Warn,
            "the peer ended the connection: MPA: CRC error",
        ),
        (
            End::Terminated(Terminate::new(unknown)),
            Level::Warn,
            "the peer ended the connection: a code that no standard defines",
        ),
        (End::Refused(None), Level::Warn, "connection ended because of what the peer sent"),
        (End::Link(libc::ETIMEDOUT), Level::Warn, "connection lost: Connection timed out (os error 110)"),
        (
            End::Request { position: 3, status: 4 },
            Level::Warn,
            "connection ended: a work request failed with status 4",
        ),
    ] {
        LINES.set(Some(Vec::new()));
        end.log(77);
        assert_eq!(LINES.take(), Some(vec![(level, format!("queue pair 77: {expected}"))]));
    }
}
