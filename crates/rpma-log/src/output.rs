// SPDX-License-Identifier: BSD-3-Clause
//! Where lines go: syslog, stderr or a file.

use std::ffi::{OsStr, c_int};
use std::fmt::Write;
use std::fs::OpenOptions;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::level::Level;
use crate::line::{self, Line, Place, Subject};
use crate::setting::{Destination, Setting};

/// Lines go to syslog.
const SYSLOG: c_int = -1;
/// Lines go to stderr.
const STDERR: c_int = -2;

/// The output of a library; any thread may write to it and change it at any time.
pub struct Output {
    /// One of the above, or the descriptor of a file.
    to: AtomicI32,
    /// Whether a line in a file or on stderr is a JSON object.
    json: AtomicBool,
}

impl Output {
    /// Syslog.
    pub const fn syslog() -> Self {
        Self { to: AtomicI32::new(SYSLOG), json: AtomicBool::new(false) }
    }

    /// Sends the lines to stderr.
    pub fn use_stderr(&self) {
        self.to.store(STDERR, Ordering::Relaxed);
    }

    /// Whether lines go to stderr.
    pub fn is_stderr(&self) -> bool {
        self.to.load(Ordering::Relaxed) == STDERR
    }

    /// Takes destination and format from a setting. The errno of a file that cannot be opened: lines go to
    /// stderr.
    pub fn apply(&self, setting: &Setting<'_>) -> Result<(), c_int> {
        self.json.store(setting.json, Ordering::Relaxed);
        let to = match setting.to {
            Destination::Syslog => Ok(SYSLOG),
            Destination::Stderr => Ok(STDERR),
            Destination::File(path) => open(path),
        };
        self.to.store(*to.as_ref().unwrap_or(&STDERR), Ordering::Relaxed);
        to.map(drop)
    }

    /// Writes one message; a newline at its end is left out. `on_stderr`: to stderr, too.
    pub fn write(
        &self,
        level: Level,
        place: &Place<'_>,
        subject: &Subject<'_>,
        message: &[u8],
        on_stderr: bool,
    ) {
        let to = self.to.load(Ordering::Relaxed);
        if on_stderr {
            self.write_to(libc::STDERR_FILENO, level, place, subject, message);
        }
        match to {
            STDERR => {}
            SYSLOG => {
                let mut line = Line::new();
                line::write_line(&mut line, level, place, message);
                // SAFETY: both strings are terminated; the format takes one string.
                unsafe { libc::syslog(line::severity(level), c"%s".as_ptr(), line.as_c_str().as_ptr()) };
            }
            file => self.write_to(file, level, place, subject, message),
        }
    }

    /// Writes a line to a file or to stderr.
    fn write_to(&self, fd: c_int, level: Level, place: &Place<'_>, subject: &Subject<'_>, message: &[u8]) {
        let mut line = Line::new();
        // Not by rustix, which looks for the function with dlsym(3): that waits while another thread is in
        // dlopen(3), whose constructors may wait for this one.
        // SAFETY: no arguments and no preconditions.
        let thread = unsafe { libc::gettid() };
        if self.json.load(Ordering::Relaxed) {
            line::write_json(&mut line, line::now(), thread, level, place, subject, message);
        } else {
            line::write_time(&mut line, line::now());
            // Writing to a Text never fails, nor does the Display of these values.
            let _ = write!(line, " [{thread}] ");
            line::write_line(&mut line, level, place, message);
        }
        // A single call, so that lines from different threads are not interleaved. By number, since the
        // program may have closed the descriptor. SAFETY: the pointer and length are those of a local buffer.
        // A failure cannot be reported anywhere.
        unsafe { libc::write(fd, line.as_bytes().as_ptr().cast(), line.as_bytes().len()) };
    }
}

/// Opens a file for appending.
fn open(path: &[u8]) -> Result<c_int, c_int> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o644).custom_flags(libc::O_NOCTTY);
    let file = options.open(OsStr::from_bytes(path));
    file.map(IntoRawFd::into_raw_fd).map_err(|why| why.raw_os_error().unwrap_or(libc::EINVAL))
}
