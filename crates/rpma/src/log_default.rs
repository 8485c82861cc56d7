// SPDX-License-Identifier: BSD-3-Clause
//! The built-in log function: syslog, and stderr for messages that pass the auxiliary threshold.
//!
//! syslog is opened when the library is loaded, not with the first message, so that a program which opens syslog with its
//! own name afterwards keeps that name. Opening it sends nothing and opens no file descriptor.

use std::ffi::{CStr, c_int};
use std::fmt::Write;

use crate::abi::rpma_log_level;
use crate::log::{self, Lossy, Place, Text};

/// Space for the tag, the source location and the time in front of a message.
const LINE_SIZE: usize = 1024 + 256 + 64;

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
pub fn write(level: rpma_log_level, place: &Place<'_>, message: &[u8]) {
    if log::to_stderr(level) {
        let mut line = Text::<LINE_SIZE>::new();
        write_time(&mut line);
        // SAFETY: no arguments and no preconditions.
        let thread = unsafe { libc::gettid() };
        // Text never fails, and neither do these values.
        let _ = write!(line, " [{thread}] ");
        write_line(&mut line, level, place, message);
        // One call, so that lines of several threads do not mix.
        // SAFETY: the buffer is ours and the length is its own. A failure leaves nothing to be done.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_bytes().as_ptr().cast(), line.as_bytes().len()) };
    }
    let mut line = Text::<LINE_SIZE>::new();
    write_line(&mut line, level, place, message);
    // SAFETY: both strings are terminated; the format takes one string.
    unsafe { libc::syslog(severity(level), c"%s".as_ptr(), line.as_c_str().as_ptr()) };
}

fn write_line(line: &mut Text<LINE_SIZE>, level: rpma_log_level, place: &Place<'_>, message: &[u8]) {
    let file = place.file.to_str().unwrap_or("");
    let base = file.rsplit('/').next().unwrap_or(file);
    let _ = write!(line, "{}{base}: {:3}: {}: ", tag(level), place.line, place.function);
    let _ = write!(line, "{}", Lossy(message));
    // The newline is in the message; a message that had to be cut again loses it.
    if !line.as_bytes().ends_with(b"\n") {
        line.end_line();
    }
}

/// Local time as "Mon DD HH:MM:SS.microseconds".
fn write_time(line: &mut Text<LINE_SIZE>) {
    // SAFETY: an all-zero timespec and tm are values of those types; both calls only write to them, and
    // strftime is given the size of its buffer.
    let (now, stamp) = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        let mut broken_down: libc::tm = std::mem::zeroed();
        let mut stamp = [0_u8; 45];
        let done = libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) == 0
            && !libc::localtime_r(&now.tv_sec, &mut broken_down).is_null()
            && libc::strftime(
                stamp.as_mut_ptr().cast(),
                stamp.len(),
                c"%b %d %H:%M:%S".as_ptr(),
                &broken_down,
            ) != 0;
        (now, done.then_some(stamp))
    };
    let text = stamp.as_ref().and_then(|s| CStr::from_bytes_until_nul(s).ok());
    let _ = match text {
        Some(text) => write!(line, "{}.{:06}", Lossy(text.to_bytes()), now.tv_nsec / 1000),
        None => line.write_str("[time error]"),
    };
}

extern "C" fn at_load() {
    // SAFETY: the name is a literal that lives as long as the library, and at_unload closes syslog before that ends.
    unsafe { libc::openlog(c"rpma".as_ptr(), libc::LOG_PID, libc::LOG_LOCAL7) };
}

extern "C" fn at_unload() {
    log::switch_off();
    // SAFETY: no arguments; needed because syslog keeps a pointer to the name given to openlog.
    unsafe { libc::closelog() };
}

// SAFETY: the loader calls what these sections point to, once each, with no other promises than that the C library
// is usable; both functions only call into it.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

// SAFETY: the loader calls `at_unload` once, with the C library still usable; the function only calls into it.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_UNLOAD: extern "C" fn() = at_unload;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_of_a_line() {
        let place = Place { file: c"src/rpma/mr.rs", line: 7, function: "reg" };
        let mut line = Text::new();
        write_line(&mut line, rpma_log_level::RPMA_LOG_LEVEL_WARNING, &place, b"text 1\n");
        assert_eq!(std::str::from_utf8(line.as_bytes()), Ok("*WARN*  mr.rs:   7: reg: text 1\n"));
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
