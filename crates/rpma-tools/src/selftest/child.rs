// SPDX-License-Identifier: BSD-3-Clause
//! The processes under test. Their output is read by threads, so that each wait has a limit; they are killed
//! with this process.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::interrupt;

/// The most that is kept of what a process writes to its standard error output.
const LOG: usize = 64 << 10;
/// How often to look for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);

/// This program.
pub(super) fn program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|why| format!("the path of this program is not known: {why}"))
}

/// A running process.
pub(super) struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
    log: Option<JoinHandle<Vec<u8>>>,
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The output of a process, and how it ended.
pub(super) struct Remains {
    pub(super) lines: Vec<String>,
    pub(super) log: String,
    /// How it ended, if not with an exit status of 0, 1 or 2.
    pub(super) crash: Option<String>,
}

impl Child {
    pub(super) fn start(command: &mut Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let prepare = || {
            // The signal comes when the thread that has started the process ends, which outlives it.
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            Ok(())
        };
        // SAFETY: the closure allocates nothing, takes no lock, and makes only async-signal-safe calls.
        let spawned = unsafe { command.pre_exec(prepare) }.spawn();
        let mut process = spawned.map_err(|why| format!("no process can be started: {why}"))?;
        let (out, err) = (process.stdout.take(), process.stderr.take());
        let (sender, lines) = channel();
        let reader = move || {
            for line in out.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        let keeper = move || {
            let mut kept = Vec::new();
            let Some(mut err) = err else { return kept };
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = err.read(&mut bytes) {
                kept.extend(&bytes[..len.min(LOG - kept.len().min(LOG))]);
            }
            kept
        };
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let started = named("output").spawn(reader).and_then(|_| named("log").spawn(keeper));
        let log = Some(started.map_err(|why| format!("no thread can be started: {why}"))?);
        Ok(Self { process, lines, log })
    }

    /// Its next line of output. `None` after the end of its output, when the time has expired, or on Ctrl-C.
    pub(super) fn line(&self, limit: Duration) -> Option<String> {
        let until = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(TICK) {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if Instant::now() > until || interrupt::is_pending() => {
                    return None;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Waits until it ends by itself. After the time, or Ctrl-C, it is killed, which is a crash.
    pub(super) fn end(mut self, limit: Duration) -> Remains {
        let until = Instant::now() + limit;
        let mut lines = Vec::new();
        // It has closed its output when it ends.
        while let Some(line) = self.line(until.saturating_duration_since(Instant::now())) {
            lines.push(line);
        }
        let mut crash = None;
        while crash.is_none() {
            match self.process.try_wait() {
                Ok(Some(status)) => {
                    crash = crashed(status);
                    break;
                }
                Ok(None) if Instant::now() < until && !interrupt::is_pending() => {
                    thread::sleep(Duration::from_millis(2));
                }
                _ => crash = Some(format!("it did not end within {} s", limit.as_secs())),
            }
        }
        Remains { lines, log: self.kill(), crash }
    }

    /// Closes its input, which ends a responder, and kills it if it does not end; returns its log.
    pub(super) fn stop(mut self) -> String {
        drop(self.process.stdin.take());
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until && matches!(self.process.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(2));
        }
        self.kill()
    }

    /// Kills it, unless it has ended; returns its log.
    fn kill(&mut self) -> String {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let log = self.log.take().and_then(|log| log.join().ok()).unwrap_or_default();
        String::from_utf8_lossy(&log).trim_end().to_owned()
    }
}

/// Why a process has failed, according to its log: the message of this program, or the last line.
pub(super) fn reason(log: &str) -> Option<&str> {
    let message = |line: &'_ str| line.starts_with("rpma selftest: ") || line.starts_with("rpma perf: ");
    let said = log.lines().rev().find(|line| message(line));
    said.map(|line| line.split_once(": ").map_or(line, |(_, why)| why)).or(log.lines().last())
}

fn crashed(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0..=2), _) => None,
        (_, Some(signal)) => Some(format!("it was killed by signal {signal}")),
        _ => Some(format!("it ended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Child::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn what_a_process_has_left() {
        let remains = shell("echo a; echo b; echo why >&2; exit 1").end(Duration::from_secs(60));
        assert_eq!((remains.lines, remains.log), (vec!["a".to_owned(), "b".to_owned()], "why".to_owned()));
        assert_eq!(remains.crash, None);
        let crash = shell("kill -SEGV $$").end(Duration::from_secs(60)).crash;
        assert_eq!(crash.as_deref(), Some("it was killed by signal 11"));
        let crash = shell("exec sleep 100").end(Duration::from_millis(50)).crash;
        assert!(crash.unwrap().contains("did not end"));
    }

    #[test]
    fn the_reason_is_what_this_program_says() {
        let log = "rpma selftest: no device: why\nsoftverbs: warn: something else";
        assert_eq!((reason(log), reason("a\nb"), reason("")), (Some("no device: why"), Some("b"), None));
    }

    #[test]
    fn a_process_ends_with_its_input() {
        let child = shell("echo ready; read line; echo over >&2");
        assert_eq!(child.line(Duration::from_secs(60)).as_deref(), Some("ready"));
        assert_eq!(child.stop(), "over");
    }
}
