// SPDX-License-Identifier: BSD-3-Clause
//! What a record of the crate log says.
#![forbid(unsafe_code)]

use std::fmt::{Display, Write};

use crate::level::Level;
use crate::line::{Place, Subject};
use crate::text::{Lossy, Text};

/// The level of a record; Info records with target `notice` are [`Level::Notice`].
pub fn level_of(metadata: &log::Metadata<'_>, notice: &str) -> Level {
    match metadata.level() {
        log::Level::Error => Level::Error,
        log::Level::Warn => Level::Warning,
        log::Level::Info if metadata.target() == notice => Level::Notice,
        log::Level::Info => Level::Info,
        log::Level::Debug | log::Level::Trace => Level::Debug,
    }
}

/// Passes the place and the subject of a record to `then`. Key-value pairs: `connection`, `peer`, `operation`
/// and `errno`.
pub fn with_record(record: &log::Record<'_>, then: impl FnOnce(&Place<'_>, &Subject<'_>)) {
    let mut file = Text::<128>::new();
    // Writing to a Text never fails; what does not fit is truncated.
    let _ = file.write_str(record.file().unwrap_or(record.target()));
    // A record has no function name; the module is the next best thing.
    let function = record.module_path().and_then(|path| path.rsplit("::").next());
    let place = Place {
        file: file.as_c_str(),
        line: record.line().unwrap_or(0),
        function: function.unwrap_or(record.target()),
    };
    let mut about = About::default();
    // The visitor never fails.
    let _ = record.key_values().visit(&mut about);
    let peer: &dyn Display = &Lossy(about.peer.as_bytes());
    let subject = Subject {
        connection: about.connection,
        peer: (!about.peer.as_bytes().is_empty()).then_some(peer),
        operation: std::str::from_utf8(about.operation.as_bytes()).ok().filter(|text| !text.is_empty()),
        errno: about.errno,
    };
    then(&place, &subject);
}

/// The subject of a record.
#[derive(Default)]
struct About {
    connection: Option<u32>,
    peer: Text<64>,
    operation: Text<64>,
    errno: Option<i32>,
}

impl<'kvs> log::kv::VisitSource<'kvs> for About {
    fn visit_pair(
        &mut self,
        key: log::kv::Key<'kvs>,
        value: log::kv::Value<'kvs>,
    ) -> Result<(), log::kv::Error> {
        // Writing to a Text never fails; what does not fit is truncated.
        match key.as_str() {
            "connection" => self.connection = value.to_u64().and_then(|num| u32::try_from(num).ok()),
            "peer" => _ = write!(self.peer, "{value}"),
            "operation" => _ = write!(self.operation, "{value}"),
            // 0 means no errno.
            "errno" => {
                self.errno =
                    value.to_i64().and_then(|errno| i32::try_from(errno).ok()).filter(|errno| *errno != 0)
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use log::{Level as LogLevel, Metadata, Record};

    use super::*;

    #[test]
    fn a_notice_has_a_level_of_its_own() {
        let of =
            |level, target| level_of(&Metadata::builder().level(level).target(target).build(), "x::notice");
        assert_eq!(of(LogLevel::Info, "x::notice"), Level::Notice);
        assert_eq!(of(LogLevel::Info, "x::other"), Level::Info);
        assert_eq!(of(LogLevel::Warn, "x::notice"), Level::Warning);
        assert!(Level::Warning < Level::Notice && Level::Notice < Level::Info);
    }

    #[test]
    fn pairs_are_the_subject() {
        let pairs = [("connection", 7_u32.into()), ("peer", "host:1".into()), ("errno", 0_i32.into())];
        let pairs: [(&str, log::kv::Value<'_>); 3] = pairs;
        let record = Record::builder().line(Some(3)).file(Some("a/b.rs")).key_values(&pairs).build();
        with_record(&record, |place, subject| {
            assert_eq!((place.line, place.file), (3, c"a/b.rs"));
            assert_eq!((subject.connection, subject.operation, subject.errno), (Some(7), None, None));
            assert_eq!(subject.peer.map(ToString::to_string).as_deref(), Some("host:1"));
        });
    }
}
