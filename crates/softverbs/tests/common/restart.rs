// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the RoCE device: the environment is read once in a process, so each starts itself again.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::namespace;

/// Starts this test again as the child that has the device, with these variables beside. True in that child.
pub(crate) fn child(name: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os("SOFTVERBS_TRANSPORT").is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env("SOFTVERBS_TRANSPORT", "roce");
    let status = command.envs(variables.iter().copied()).status().unwrap();
    assert!(status.success(), "{name} in a process with the device: {status}");
    false
}

/// As [`child`], in a new network namespace: no process of another test shares UDP port 4791. Skips the test
/// if the host does not permit that.
pub(crate) fn child_alone(name: &str) -> bool {
    if std::env::var_os("SOFTVERBS_TRANSPORT").is_some() {
        return true;
    }
    let Some(mut command) = namespace::command() else { return false };
    command.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
    let status = command.env("SOFTVERBS_TRANSPORT", "roce").status().unwrap();
    assert!(status.success(), "{name} in a network namespace with the device: {status}");
    false
}

/// The variable that has the role of a [`Partner`].
const ROLE: &str = "ROCE_TEST_ROLE";

/// The role of this process, if it is a [`Partner`].
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Another process of a test, which prints numbers; killed when this is dropped.
pub(crate) struct Partner {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Partner {
    /// Starts the test `name` again, as [`role`].
    pub(crate) fn start(name: &str, role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(ROLE, role).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// The next number that it prints.
    pub(crate) fn number(&mut self) -> u32 {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the process has ended");
            // libtest begins the line.
            if let Some((_, number)) = line.split_once('@') {
                return number.trim().parse().unwrap();
            }
        }
    }

    /// Waits until it ends.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    /// Stops it (SIGSTOP), and waits until it has stopped.
    pub(crate) fn stop(&self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::STOP).unwrap();
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In a [`Partner`]: prints a number.
pub(crate) fn print(number: u32) {
    println!("@{number}");
}

/// In a [`Partner`]: waits until it is killed.
pub(crate) fn wait_to_be_killed() -> ! {
    loop {
        std::thread::park();
    }
}
