// SPDX-License-Identifier: BSD-3-Clause
//! The findings of a run, for `rpma run --fail-on-misuse`: the file that the processes of a run share
//! ([`rpma_metrics::findings`]).
#![forbid(unsafe_code)]

use crate::sys::{Errno, errno_of};
use crate::{cancel, config};
use rpma_metrics::findings::attach;
pub(super) use rpma_metrics::findings::attached;

/// Opens the file when the library is loaded into a program: later the program may have no right to open it.
/// A failure matters only if the program creates a queue pair.
pub fn attach_findings() {
    if let Some(path) = config::findings() {
        let _ = attach(&path);
    }
}

/// A queue pair is created: counts it. Fails if there is a file in which this process cannot count, since
/// `rpma run` would take missing misuses for a success.
pub(super) fn queue_pair() -> Result<(), Errno> {
    if let Some(path) = config::get().findings.as_ref().filter(|_| attached().is_none()) {
        cancel::whole(|| attach(path)).map_err(|why| {
            let path = path.display();
            log::warn!("SOFTVERBS_FINDINGS: {path} cannot be opened: {why}; no queue pair is created, because rpma run would not learn of its misuses");
            errno_of(&why)
        })?;
    }
    if let Some(findings) = attached() {
        findings.queue_pair();
    }
    Ok(())
}
