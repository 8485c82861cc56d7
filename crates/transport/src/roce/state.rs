// SPDX-License-Identifier: BSD-3-Clause
//! The state of a queue pair, as far as it moves packets.

/// How far a queue pair is. States that only concern the program are one here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// RESET and INIT.
    Idle,
    /// RTR: receives, and sends nothing of its own.
    Receiving,
    /// RTS, SQD and SQE.
    Open,
    /// ERR.
    Over,
}
