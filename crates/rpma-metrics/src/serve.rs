// SPDX-License-Identifier: BSD-3-Clause
//! Serves the counters in a file that is replaced periodically, or on a socket. A failure here is not an
//! error of the program: it causes one warning, and another only after a success in between.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::Timespec;

use super::setting::Setting;
use super::state::Process;
use super::{flushes, socket, text, thread};

/// The number of checks, and the pause between them, with which the exiting process waits until the thread
/// has finished writing.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// The file is being written, or has been written for the last time.
static WRITING: AtomicBool = AtomicBool::new(false);
/// Writing has failed and was reported.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Starts serving.
pub(super) fn start(process: &'static Process) {
    flushes::reset();
    // A thread of the parent, which does not exist in this process, may have set it.
    WRITING.store(false, Ordering::Relaxed);
    let run: Box<dyn FnOnce() + Send> = match &process.setting {
        Setting::File(path, every) => Box::new(move || {
            loop {
                replace(process, path, false);
                sleep(*every);
            }
        }),
        Setting::Unix(path) => {
            let path = path.clone().unwrap_or_else(|| default_socket(process.pid));
            let parent = path.parent().filter(|parent| {
                matches!(process.setting, Setting::Unix(None)) && !parent.as_os_str().is_empty()
            });
            let listener = match parent.map_or(Ok(()), socket::prepare).and_then(|()| socket::listen(&path)) {
                Ok(listener) => listener,
                // librpma and a separate library with soft0 may both have counters in this process: the first
                // one serves.
                Err(why) if parent.is_some() && why.kind() == io::ErrorKind::AddrInUse => return,
                Err(why) => {
                    let path = path.display();
                    (process.warn)(format_args!(
                        "RPMA_METRICS: cannot listen at {path}: {why}. The counters are not served"
                    ));
                    return;
                }
            };
            // Only this thread sets it in this process.
            let _ = process.socket.set(Box::new(path));
            Box::new(move || {
                loop {
                    match listener.accept() {
                        // If a client disconnects or does not read, only its response is lost.
                        Ok(stream) => drop(socket::answer(stream, || text::of(process))),
                        // Out of descriptors or memory: try again later.
                        Err(_) => sleep(PAUSE * TRIES),
                    }
                }
            })
        }
    };
    if let Err(why) = thread::spawn(run) {
        (process.warn)(format_args!(
            "RPMA_METRICS: the thread that serves the counters cannot be started: {why}"
        ));
    }
}

/// The process exits: writes the final counters.
pub(super) fn finish(process: &'static Process) {
    match &process.setting {
        // RLIMIT_FSIZE would otherwise end the process with a signal.
        Setting::File(path, _) => thread::without_signals(|| replace(process, path, true)),
        Setting::Unix(_) => {
            if let Some(path) = process.socket.get() {
                // It is too late to report a failure.
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// The default socket, which `rpma top` finds.
fn default_socket(pid: u32) -> PathBuf {
    socket::directory().join(format!("{pid}.sock"))
}

/// Not std's sleep, which panics if a filter of system calls refuses it. No signal handler interrupts this
/// one, since the thread has all signals blocked.
fn sleep(time: Duration) {
    let seconds = time.as_secs().try_into().unwrap_or(i64::MAX);
    let _ = rustix::thread::nanosleep(&Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() });
}

/// Replaces the file, unless another thread of the process is still writing after a while. `is_last`: the
/// process ends now, and a thread that began to write meanwhile would leave its temporary file.
fn replace(process: &'static Process, path: &Path, is_last: bool) {
    for _ in 0..TRIES {
        if !WRITING.swap(true, Ordering::Acquire) {
            if let Some(text) = text::of(process) {
                say(process, path, write(path, process.pid, text.as_bytes()));
            }
            WRITING.store(is_last, Ordering::Release);
            return;
        }
        sleep(PAUSE);
    }
}

fn say(process: &Process, path: &Path, result: io::Result<()>) {
    match result {
        Ok(()) => FAILED.store(false, Ordering::Relaxed),
        Err(why) => {
            if !FAILED.swap(true, Ordering::Relaxed) {
                let path = path.display();
                (process.warn)(format_args!("RPMA_METRICS: {path} cannot be written: {why}"));
            }
        }
    }
}

/// Replaces the file atomically: a reader sees the old text or the new one.
fn write(path: &Path, pid: u32, text: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{pid}.tmp"));
    let beside = Path::new(&beside);
    let create = || {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .custom_flags(libc::O_NOFOLLOW)
            .open(beside)
    };
    let file = match create() {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            // Left by a killed process with this PID.
            fs::remove_file(beside)?;
            create()
        }
        created => created,
    };
    let written = file?.write_all(text).and_then(|()| fs::rename(beside, path));
    if written.is_err() {
        // The caller reports the first failure.
        let _ = fs::remove_file(beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_atomically_without_leftovers() {
        let directory = std::env::temp_dir().join(format!("rpma-metrics-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("counters");
        fs::write(directory.join("counters.7.tmp"), "of a process that was killed").unwrap();
        for text in ["first\n", "second\n"] {
            write(&path, 7, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        let missing = directory.join("missing").join("counters");
        assert_eq!(write(&missing, 7, b"x").unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&directory).unwrap();
    }
}
