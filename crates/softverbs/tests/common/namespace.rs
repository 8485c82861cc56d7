// SPDX-License-Identifier: BSD-3-Clause
//! Network namespaces of tests: no other test uses UDP port 4791 there. The unit tests use this file, too.

use std::process::Command;

/// A command to which the program to run and its arguments are added: it runs in a new network namespace
/// whose loopback interface is up. `None`, with a message: the host does not permit that.
pub(crate) fn command() -> Option<Command> {
    let begin = ["-n", "-rn"].into_iter().find(|flags| {
        let tried = Command::new("unshare").args([flags, "ip", "link", "set", "lo", "up"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    });
    let Some(flags) = begin else {
        eprintln!("skipped: no network namespace permitted (unshare -rn ip link set lo up)");
        return None;
    };
    let mut command = Command::new("unshare");
    command.args([flags, "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    Some(command)
}
