// SPDX-License-Identifier: BSD-3-Clause
//! The built-in log function: syslog, and stderr for messages that pass the auxiliary threshold, unless
//! `RPMA_LOG` selects another destination.
//!
//! `RPMA_LOG` is read when the library is loaded, so whatever the program sets afterwards takes precedence.
//! syslog is opened when the library is loaded, not with the first message, so that a program which opens
//! syslog with its own name afterwards keeps that name. Opening it sends nothing and opens no file
//! descriptor.

use std::ffi::{CStr, OsStr, c_int};
use std::fmt::Write;
use std::fs::OpenOptions;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use crate::abi::rpma_log_level;
use crate::config::{self, LogError, LogSetting, LogTo};
use crate::error::Errno;
use crate::log::{self, Place, Subject};
use crate::text::{Lossy, Text};

/// Space for a message with its tag, source location and time, and for the syntax of JSON.
const LINE_SIZE: usize = 1024 + 512;

/// Messages go to syslog, and to stderr if they pass the auxiliary threshold.
const BOTH: i32 = -1;
/// Messages go to stderr alone, if they pass the auxiliary threshold.
const STDERR: i32 = -2;

/// One of the above, or the descriptor of a file.
static SINK: AtomicI32 = AtomicI32::new(BOTH);
/// Whether a line in a file or on stderr is a JSON object.
static JSON: AtomicBool = AtomicBool::new(false);

/// The tag of a level; all have the same width.
fn tag(level: rpma_log_level) -> &'static str {
    use rpma_log_level::*;
    match level {
        RPMA_LOG_DISABLED | RPMA_LOG_LEVEL_FATAL => "*FATAL* ",
        RPMA_LOG_LEVEL_ERROR => "*ERROR* ",
        RPMA_LOG_LEVEL_WARNING => "*WARN*  ",
        RPMA_LOG_LEVEL_NOTICE => "*NOTE*  ",
        RPMA_LOG_LEVEL_INFO => "*INFO*  ",
        RPMA_LOG_LEVEL_DEBUG => "*DEBUG* ",
    }
}

fn severity(level: rpma_log_level) -> c_int {
    use rpma_log_level::*;
    match level {
        RPMA_LOG_DISABLED | RPMA_LOG_LEVEL_FATAL => libc::LOG_CRIT,
        RPMA_LOG_LEVEL_ERROR => libc::LOG_ERR,
        RPMA_LOG_LEVEL_WARNING => libc::LOG_WARNING,
        RPMA_LOG_LEVEL_NOTICE => libc::LOG_NOTICE,
        RPMA_LOG_LEVEL_INFO => libc::LOG_INFO,
        RPMA_LOG_LEVEL_DEBUG => libc::LOG_DEBUG,
    }
}

/// Writes one message, which ends with a newline.
fn write(level: rpma_log_level, place: &Place<'_>, subject: &Subject<'_>, message: &[u8]) {
    let sink = SINK.load(Ordering::Relaxed);
    if log::to_stderr(level) {
        write_to(libc::STDERR_FILENO, level, place, subject, message);
    }
    match sink {
        STDERR => {}
        BOTH => {
            let mut line = Text::<LINE_SIZE>::new();
            write_line(&mut line, level, place, message);
            // SAFETY: both strings are terminated; the format takes one string.
            unsafe { libc::syslog(severity(level), c"%s".as_ptr(), line.as_c_str().as_ptr()) };
        }
        file => write_to(file, level, place, subject, message),
    }
}

/// Writes a line to a file or to stderr.
fn write_to(fd: c_int, level: rpma_log_level, place: &Place<'_>, subject: &Subject<'_>, message: &[u8]) {
    let mut line = Text::<LINE_SIZE>::new();
    // Not by rustix, which looks for the function with dlsym(3): that waits while another thread is in
    // dlopen(3), whose constructors may wait for this one.
    // SAFETY: no arguments and no preconditions.
    let thread = unsafe { libc::gettid() };
    if JSON.load(Ordering::Relaxed) {
        write_json(&mut line, now(), thread, level, place, subject, message);
    } else {
        write_time(&mut line, now());
        // Writing to a Text never fails, nor does the Display of these values.
        let _ = write!(line, " [{thread}] ");
        write_line(&mut line, level, place, message);
    }
    // A single call, so that lines from different threads are not interleaved. By number, since the program
    // may have closed the descriptor. SAFETY: the pointer and length are those of a local buffer. A failure
    // cannot be reported anywhere.
    unsafe { libc::write(fd, line.as_bytes().as_ptr().cast(), line.as_bytes().len()) };
}

/// The part of a path after the last slash.
fn base_name(file: &CStr) -> &str {
    let file = file.to_str().unwrap_or("");
    file.rsplit('/').next().unwrap_or(file)
}

/// Formats a message as a line for people.
fn write_line(line: &mut Text<LINE_SIZE>, level: rpma_log_level, place: &Place<'_>, message: &[u8]) {
    let message = message.strip_suffix(b"\n").unwrap_or(message);
    let _ = write!(line, "{}{} [{}:{}]", tag(level), Lossy(message), base_name(place.file), place.line);
    line.end_line();
}

/// Appends text escaped for a JSON string, truncated so that `keep` bytes stay free.
fn push_json(line: &mut Text<LINE_SIZE>, text: &[u8], keep: usize) {
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
fn push_member(line: &mut Text<LINE_SIZE>, name: &str, text: &[u8]) {
    let _ = write!(line, "\"{name}\":\"");
    push_json(line, text, LINE_SIZE / 2);
    let _ = line.write_str("\",");
}

/// Formats a message as a JSON object. The message is the last member and is truncated so that the object is
/// complete.
fn write_json(
    line: &mut Text<LINE_SIZE>,
    now: Duration,
    thread: libc::pid_t,
    level: rpma_log_level,
    place: &Place<'_>,
    subject: &Subject<'_>,
    message: &[u8],
) {
    const END: &str = "\"}";
    let (seconds, micros) = (now.as_secs(), now.subsec_micros());
    let (name, file, number) = (config::level_name(level), base_name(place.file), place.line);
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
fn now() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Not by std or rustix, which panic if the call fails.
    // SAFETY: `now` is writable. If the call fails, the time is the epoch.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}

/// Local time as "Mon DD HH:MM:SS.microseconds".
fn write_time(line: &mut Text<LINE_SIZE>, now: Duration) {
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

/// Applies `RPMA_LOG`. An invalid value is reported on stderr, to which messages from WARNING up then go.
fn apply(setting: Result<LogSetting<'_>, LogError<'_>>) {
    let LogSetting { level, to, json } = match setting {
        Ok(setting) => setting,
        Err(why) => {
            log::set_both(rpma_log_level::RPMA_LOG_LEVEL_WARNING);
            SINK.store(STDERR, Ordering::Relaxed);
            log_warning!("RPMA_LOG: {why}");
            return;
        }
    };
    JSON.store(json, Ordering::Relaxed);
    match to {
        LogTo::Syslog => log::set_main(level),
        LogTo::Stderr => {
            log::set_both(level);
            SINK.store(STDERR, Ordering::Relaxed);
        }
        LogTo::File(path) => match open(path) {
            Ok(fd) => {
                log::set_main(level);
                SINK.store(fd, Ordering::Relaxed);
            }
            Err(errno) => {
                log::set_both(level);
                SINK.store(STDERR, Ordering::Relaxed);
                log_warning!("RPMA_LOG: cannot open {}: {errno}; logging to stderr", Lossy(path));
            }
        },
    }
}

/// Opens a file for appending.
fn open(path: &[u8]) -> Result<c_int, Errno> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o644).custom_flags(libc::O_NOCTTY);
    let file = options.open(OsStr::from_bytes(path));
    file.map(IntoRawFd::into_raw_fd).map_err(|why| Errno(why.raw_os_error().unwrap_or(libc::EINVAL)))
}

extern "C" fn at_load() {
    // SAFETY: the name is a literal that lives as long as the library, and at_unload closes syslog before
    // that ends.
    unsafe { libc::openlog(c"rpma".as_ptr(), libc::LOG_PID, libc::LOG_LOCAL7) };
    log::install(write);
    config::with_log(apply);
}

extern "C" fn at_unload() {
    rpma_metrics::at_exit();
    log::switch_off();
    // SAFETY: no arguments; needed because syslog keeps a pointer to the name given to openlog.
    unsafe { libc::closelog() };
}

// SAFETY: the loader calls the functions that these sections point to, once each. It guarantees only that the
// C library is usable, and both functions rely on nothing else. Miri has no syslog.
#[used]
#[cfg_attr(not(miri), unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = at_load;

// SAFETY: the loader calls `at_unload` once, while the C library is still usable; the function relies on
// nothing else.
#[used]
#[cfg_attr(not(miri), unsafe(link_section = ".fini_array"))]
static AT_UNLOAD: extern "C" fn() = at_unload;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_of_a_line() {
        let place = Place { file: c"src/rpma/mr.rs", line: 7, function: "reg" };
        let mut line = Text::new();
        write_line(&mut line, rpma_log_level::RPMA_LOG_LEVEL_WARNING, &place, b"text 1\n");
        assert_eq!(std::str::from_utf8(line.as_bytes()), Ok("*WARN*  text 1 [mr.rs:7]\n"));
    }

    #[test]
    fn a_json_line_is_one_object_also_when_it_is_cut() {
        let place = Place { file: c"src/rpma/mr.rs", line: 7, function: "reg" };
        let now = Duration::new(12, 34_000);
        let json = |message: &[u8]| {
            let mut line = Text::new();
            let subject = Subject::default();
            write_json(&mut line, now, 5, rpma_log_level::RPMA_LOG_LEVEL_WARNING, &place, &subject, message);
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
        write_json(&mut line, now, 5, rpma_log_level::RPMA_LOG_LEVEL_ERROR, &place, &subject, b"text\n");
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
        use rpma_log_level::*;
        for level in [
            RPMA_LOG_LEVEL_FATAL,
            RPMA_LOG_LEVEL_ERROR,
            RPMA_LOG_LEVEL_WARNING,
            RPMA_LOG_LEVEL_NOTICE,
            RPMA_LOG_LEVEL_INFO,
            RPMA_LOG_LEVEL_DEBUG,
        ] {
            assert_eq!(tag(level).len(), 8);
        }
    }
}
