// SPDX-License-Identifier: BSD-3-Clause
//! Tests of the RoCE device: the environment is read once in a process, so each starts itself again.

use std::process::Command;

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
