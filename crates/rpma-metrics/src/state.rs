// SPDX-License-Identifier: BSD-3-Clause
//! What a process with metrics has: the counters, and how they are served.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::PathBuf;

use once_cell::race::OnceBox;

use crate::counters::Counters;
use crate::setting::Setting;

/// Logs a warning.
pub type Warn = fn(fmt::Arguments<'_>);

/// The counters of a process and the setting for serving them.
pub struct Process {
    pub(crate) pid: u32,
    /// The counters.
    pub counters: Counters,
    pub(crate) warn: Warn,
    pub(crate) setting: Setting,
    /// The path of the socket.
    pub(crate) socket: OnceBox<PathBuf>,
}
