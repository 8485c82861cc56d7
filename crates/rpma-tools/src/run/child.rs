// SPDX-License-Identifier: BSD-3-Clause
//! Runs the program as a child, as far as possible as if it had replaced this process.
//!
//! The child stays in the process group of this process, so it has the terminal if this process has it, and
//! the signals of the terminal reach both. Other signals are passed on. When the child stops, this process
//! stops as well, so that the shell sees a stopped job; SIGCONT reaches both again. If this process is
//! killed, so is the child. What differs from a program that has replaced this process: the process ID, and
//! SIGSTOP and SIGKILL, which stop and kill this process first.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;
use std::ptr;

use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_parent_process_death_signal, waitpid,
};

/// Signals that the kernel sends for an instruction of this process; one that is blocked would kill it
/// without a trace.
const OWN: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
/// Signals that a terminal sends to the whole process group.
const OF_TERMINAL: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGWINCH];

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Exited(u8),
    Killed(libc::c_int),
}

impl End {
    /// The exit status as a shell shows it.
    pub(super) fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => 128 + (signal & 0x7f) as u8,
        }
    }

    fn of(status: libc::c_int) -> Option<Self> {
        if libc::WIFEXITED(status) {
            Some(Self::Exited(libc::WEXITSTATUS(status) as u8))
        } else if libc::WIFSIGNALED(status) {
            Some(Self::Killed(libc::WTERMSIG(status)))
        } else {
            None
        }
    }
}

/// All signals that can be passed on, or mean something to this process.
fn signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set, and neither function fails with these arguments.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in OWN {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks these signals; returns the mask before.
fn block(set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::uninit();
    // SAFETY: pthread_sigmask initialises `before`, and does not fail with these arguments.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, set, before.as_mut_ptr());
        before.assume_init()
    }
}

/// The description of a signal, as a shell prints it.
pub(super) fn signal_name(signal: libc::c_int) -> String {
    // SAFETY: the call returns NULL or a C string that stays valid until the next call, which only this
    // thread makes.
    let name = unsafe {
        let name = libc::strsignal(signal);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    };
    name.unwrap_or_else(|| format!("signal {signal}"))
}

/// Runs the command until its process ends. The signals stay blocked. Fails if it cannot be executed.
pub(super) fn run(command: &mut Command) -> io::Result<End> {
    let set = signals();
    let before = block(&set);
    // With SIG_IGN, which this process may have inherited, the end of the child would go unnoticed.
    // SAFETY: no function of this program handles the signal.
    let ignores = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } == libc::SIG_IGN;
    let parent = std::process::id();
    let prepare = move || {
        // It fails only if a filter of system calls refuses it.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        if parent_id() != parent {
            // It was killed before.
            let _ = kill_process(getpid(), Signal::KILL);
        }
        // SAFETY: the functions may be called in the child of a fork; `before` outlives the calls.
        unsafe {
            if ignores {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing, takes no lock, and makes only async-signal-safe calls.
    let child = unsafe { command.pre_exec(prepare) }.spawn()?;
    let child = Pid::from_child(&child);
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set and `info` outlive the call.
        let signal = unsafe { libc::sigwaitinfo(&set, info.as_mut_ptr()) };
        // SAFETY: an all-zero siginfo_t is valid, and sigwaitinfo has written only valid values.
        let code = unsafe { info.assume_init() }.si_code;
        match signal {
            libc::SIGCHLD => {
                if let Some(end) = reap(child)? {
                    return Ok(end);
                }
            }
            // This process reads and writes nothing while the program runs.
            libc::SIGTTIN | libc::SIGTTOU => {}
            _ if signal > 0 && reaches_child(signal, code) => {
                // Not by rustix, which has no real-time signals.
                // SAFETY: the child has not been reaped, so its process ID has not been reused.
                unsafe { libc::kill(child.as_raw_pid(), signal) };
            }
            // Interrupted by SIGSTOP and SIGCONT, or the terminal has sent it to the child, too.
            _ => {}
        }
    }
}

/// Whether a signal is to be passed on: the terminal sends its own to the child as well.
fn reaches_child(signal: libc::c_int, code: libc::c_int) -> bool {
    !(code == libc::SI_KERNEL && OF_TERMINAL.contains(&signal))
}

/// The end of the child, if it has ended. If it has stopped, this process stops, too.
fn reap(child: Pid) -> io::Result<Option<End>> {
    loop {
        let waited = retry_on_intr(|| waitpid(Some(child), WaitOptions::NOHANG | WaitOptions::UNTRACED));
        let Some((_, status)) = waited? else { return Ok(None) };
        if status.stopped() {
            // It returns when somebody sends SIGCONT, which is then passed on.
            let _ = kill_process(getpid(), Signal::STOP);
        } else if let Some(end) = End::of(status.as_raw()) {
            return Ok(Some(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_with_the_status_that_a_shell_shows() {
        assert_eq!(End::of(3 << 8), Some(End::Exited(3)));
        assert_eq!(End::of(libc::SIGSEGV), Some(End::Killed(libc::SIGSEGV)));
        assert_eq!(End::of(libc::SIGABRT | 0x80), Some(End::Killed(libc::SIGABRT)), "with a core file");
        assert_eq!((End::Exited(3).status(), End::Killed(libc::SIGKILL).status()), (3, 137));
    }

    #[test]
    fn signals_of_the_terminal_are_not_passed_on() {
        assert!(!reaches_child(libc::SIGINT, libc::SI_KERNEL));
        assert!(reaches_child(libc::SIGINT, libc::SI_USER) && reaches_child(libc::SIGTERM, libc::SI_USER));
        assert!(reaches_child(libc::SIGHUP, libc::SI_KERNEL), "only the leader of a session gets it");
    }
}
