// SPDX-License-Identifier: BSD-3-Clause
//! The lines of the log, for people and as JSON.

use std::ffi::{CStr, c_int};
use std::fmt::{self, Write};
use std::time::Duration;

use crate::level::Level;
use crate::text::{Lossy, Text};

/// The maximum length of a message in bytes, including newline and terminator. Longer messages are truncated.
pub const MESSAGE_SIZE: usize = 1024;
/// Space for a message with its tag, source location and time, and for the syntax of JSON.
const LINE_SIZE: usize = MESSAGE_SIZE + 512;

pub(crate) type Line = Text<LINE_SIZE>;

/// The known facts about the subject of a message, as members of a JSON line. The text of the message
/// includes them as well.
#[derive(Clone, Copy, Default)]
pub struct Subject<'a> {
    /// The number of the connection's queue pair.
    pub connection: Option<u32>,
    /// The address of the remote peer.
    pub peer: Option<&'a dyn fmt::Display>,
    /// The operation, or the call that failed.
    pub operation: Option<&'a str>,
    /// The errno of the failure.
    pub errno: Option<c_int>,
}

/// The source location of a message.
pub struct Place<'a> {
    /// The source file.
    pub file: &'a CStr,
    /// The line in it.
    pub line: u32,
    /// The function.
    pub function: &'a str,
}

/// The tag of a level; all have the same width.
fn tag(level: Level) -> &'static str {
    use Level::*;
    match level {
        Off | Fatal => "*FATAL* ",
        Error => "*ERROR* ",
        Warning => "*WARN*  ",
        Notice => "*NOTE*  ",
        Info => "*INFO*  ",
        Debug => "*DEBUG* ",
    }
}

pub(crate) fn severity(level: Level) -> c_int {
    use Level::*;
    match level {
        Off | Fatal => libc::LOG_CRIT,
        Error => libc::LOG_ERR,
        Warning => libc::LOG_WARNING,
        Notice => libc::LOG_NOTICE,
        Info => libc::LOG_INFO,
        Debug => libc::LOG_DEBUG,
    }
}

/// The part of a path after the last slash.
fn base_name(file: &CStr) -> &str {
    let file = file.to_str().unwrap_or("");
    file.rsplit('/').next().unwrap_or(file)
}

/// Formats a message as a line for people.
pub(crate) fn write_line(line: &mut Line, level: Level, place: &Place<'_>, message: &[u8]) {
    let message = message.strip_suffix(b"\n").unwrap_or(message);
    let _ = write!(line, "{}{} [{}:{}]", tag(level), Lossy(message), base_name(place.file), place.line);
    line.end_line();
}

/// Appends text escaped for a JSON string, truncated so that `keep` bytes stay free.
fn push_json(line: &mut Line, text: &[u8], keep: usize) {
    for chunk in text.utf8_chunks() {
        let replaced = if chunk.invalid().is_empty() { None } else { Some(char::REPLACEMENT_CHARACTER) };
        for c in chunk.valid().chars().chain(replaced) {
            let mut unit = Text::<16>::new();
            let _ = match c {
                '"' | '\\' => write!(unit, "\\{c}"),
                '\0'..='\x1f' => write!(unit, "\\u{:04x}", u32::from(c)),
                _ => unit.write_char(c),
            };
            if unit.as_bytes().len() + keep > line.room() {
                return;
            }
            let _ = write!(line, "{}", Lossy(unit.as_bytes()));
        }
    }
}

/// Appends a member of a JSON object, and a comma.
fn push_member(line: &mut Line, name: &str, text: &[u8]) {
    let _ = write!(line, "\"{name}\":\"");
    push_json(line, text, LINE_SIZE / 2);
    let _ = line.write_str("\",");
}

/// Formats a message as a JSON object. The message is the last member and is truncated so that the object is
/// complete.
pub(crate) fn write_json(
    line: &mut Line,
    now: Duration,
    thread: libc::pid_t,
    level: Level,
    place: &Place<'_>,
    subject: &Subject<'_>,
    message: &[u8],
) {
    const END: &str = "\"}";
    let (seconds, micros) = (now.as_secs(), now.subsec_micros());
    let (name, file, number) = (level.name(), base_name(place.file), place.line);
    let _ = write!(line, "{{\"time\":{seconds}.{micros:06},\"level\":\"{name}\",\"thread\":{thread},");
    let _ = write!(line, "\"file\":\"{file}\",\"line\":{number},\"function\":\"");
    push_json(line, place.function.as_bytes(), LINE_SIZE / 2);
    let _ = line.write_str("\",");
    let Subject { connection, peer, operation, errno } = *subject;
    if let Some(connection) = connection {
        let _ = write!(line, "\"connection\":{connection},");
    }
    if let Some(peer) = peer {
        let mut text = Text::<64>::new();
        let _ = write!(text, "{peer}");
        push_member(line, "peer", text.as_bytes());
    }
    if let Some(operation) = operation {
        push_member(line, "operation", operation.as_bytes());
    }
    if let Some(errno) = errno {
        let _ = write!(line, "\"errno\":{},", errno.saturating_abs());
    }
    let _ = line.write_str("\"message\":\"");
    push_json(line, message.strip_suffix(b"\n").unwrap_or(message), END.len());
    let _ = line.write_str(END);
    line.end_line();
}

/// The time since the epoch.
pub(crate) fn now() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Not by std or rustix, which panic if the call fails.
    // SAFETY: `now` is writable. If the call fails, the time is the epoch.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}

/// Local time as "Mon DD HH:MM:SS.microseconds".
pub(crate) fn write_time(line: &mut Line, now: Duration) {
    let mut stamp = [0_u8; 45];
    let seconds = now.as_secs() as libc::time_t;
    // SAFETY: an all-zero tm is a value of that type; localtime_r only writes to it, and strftime is given
    // the size of its buffer.
    let done = unsafe {
        let mut broken_down: libc::tm = std::mem::zeroed();
        !libc::localtime_r(&seconds, &mut broken_down).is_null()
            && libc::strftime(
                stamp.as_mut_ptr().cast(),
                stamp.len(),
                c"%b %d %H:%M:%S".as_ptr(),
                &broken_down,
            ) != 0
    };
    let text = CStr::from_bytes_until_nul(&stamp).ok().filter(|_| done);
    let _ = match text {
        Some(text) => write!(line, "{}.{:06}", Lossy(text.to_bytes()), now.subsec_micros()),
        None => line.write_str("[time error]"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_of_a_line() {
        let place = Place { file: c"src/rpma/mr.rs", line: 7, function: "reg" };
        let mut line = Text::new();
        write_line(&mut line, Level::Warning, &place, b"text 1\n");
        assert_eq!(std::str::from_utf8(line.as_bytes()), Ok("*WARN*  text 1 [mr.rs:7]\n"));
    }

    #[test]
    fn a_json_line_is_one_object_also_when_it_is_cut() {
        let place = Place { file: c"src/rpma/mr.rs", line: 7, function: "reg" };
        let now = Duration::new(12, 34_000);
        let json = |message: &[u8]| {
            let mut line = Text::new();
            let subject = Subject::default();
            write_json(&mut line, now, 5, Level::Warning, &place, &subject, message);
            String::from_utf8(line.as_bytes().to_vec()).unwrap()
        };
        assert_eq!(
            json(b"a \"b\" \\ \x01\n"),
            "{\"time\":12.000034,\"level\":\"warning\",\"thread\":5,\"file\":\"mr.rs\",\"line\":7,\"function\":\"reg\",\
             \"message\":\"a \\\"b\\\" \\\\ \\u0001\"}\n"
        );
        let subject = Subject {
            connection: Some(4),
            peer: Some(&"[::1]:7204"),
            operation: Some("RDMA write"),
            errno: Some(-22),
        };
        let mut line = Text::new();
        write_json(&mut line, now, 5, Level::Error, &place, &subject, b"text\n");
        let line = String::from_utf8(line.as_bytes().to_vec()).unwrap();
        assert!(
            line.ends_with(
                "\"function\":\"reg\",\"connection\":4,\"peer\":\"[::1]:7204\",\"operation\":\"RDMA write\",\"errno\":22,\
                 \"message\":\"text\"}\n"
            ),
            "{line}"
        );
        let cut = json(&[b'x'; 2 * LINE_SIZE]);
        assert!(cut.ends_with("xxx\"}\n") && cut.len() < LINE_SIZE);
        // Truncation does not split an escape.
        for pad in 0..8 {
            let mut message = vec![b'x'; pad];
            message.extend([1; LINE_SIZE]);
            let cut = json(&message);
            let body = cut.strip_suffix("\"}\n").unwrap();
            assert!(body.ends_with("\\u0001"), "{}", &body[body.len() - 10..]);
        }
    }

    #[test]
    fn tags_have_one_width() {
        use Level::*;
        for level in [Fatal, Error, Warning, Notice, Info, Debug] {
            assert_eq!(tag(level).len(), 8);
        }
    }
}
